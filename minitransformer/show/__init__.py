"""Pictures, the stepper and the attention viewer."""
