"""Functions that others wrote before our checker: adapters for PyTorch, JAX and NumPy, and the names of their mistakes.

`minitransformer.verify` has the names of this room: `verify.from_torch`, `verify.diagnose` and so on.
"""
