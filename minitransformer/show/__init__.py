"""What is looked at: pictures, the stepper and the attention viewer."""
