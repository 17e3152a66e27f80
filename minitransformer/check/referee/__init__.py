"""Check functions that others wrote: adapters for PyTorch, JAX and NumPy, and the diagnosis of mistakes.

`minitransformer.verify` has the names of this room: `verify.from_torch`, `verify.diagnose` and so on.
"""
