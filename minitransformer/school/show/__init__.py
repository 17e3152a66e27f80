"""Pictures, the stepper, the attention viewer and the site."""
