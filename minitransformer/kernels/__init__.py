"""Kernels: the fast forms of some ops, for NumPy; see forms.py for when they stand in and docs/speed.md for their gain.

Three things make NumPy slow beside a compiled library, and a kernel avoids them: each operation on whole arrays reads
and writes main memory, so the rows are taken in blocks that stay in the processor's cache; each result is a new array,
so a block is computed in place; and what the derivation can say with a matrix product should, since BLAS is fast. What
needs many passes all the same is a loop, which Numba compiles where it is installed: the files that end in "loops.py".
"""

from . import activations, adam, attention, cross_entropy, decoding, feed_forward, layers, linear, normalization
from . import cuda as cuda  # the kernels for CuPy arrays, which are no part of this list

__all__ = [
    "activations",
    "adam",
    "attention",
    "cross_entropy",
    "decoding",
    "feed_forward",
    "layers",
    "linear",
    "normalization",
]
