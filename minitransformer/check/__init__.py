"""The checker: records running code, compares gradients with finite differences, and names known mistakes."""
