"""What the ways to mix the positions of a sequence cost, and how far gradients reach through them: measured."""
