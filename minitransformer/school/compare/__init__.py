"""Measurements of the ways to mix the positions of a sequence: what they cost, and how far gradients reach."""
