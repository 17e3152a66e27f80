"""Kernels for CuPy arrays, written in CUDA C++. The Python file beside each `.cu` file launches its kernels.

See docs/gpu.md. Importing this needs neither CuPy nor a GPU; a file is compiled when its op is first called on one.
"""

from . import adam, attention, cross_entropy, dropout, gelu, layer_norm, linear

__all__ = ["adam", "attention", "cross_entropy", "dropout", "gelu", "layer_norm", "linear"]
