"""Speed on request: `accelerate(model)` returns a model's fast twin, and `ops` holds forms of the ops that save time
or memory.

A kernel avoids three things that make NumPy slower than a compiled library. Each operation on whole arrays reads and
writes main memory, so a kernel takes the rows in blocks that stay in the processor's cache. Each result is a new array,
so a kernel computes a block in place. And BLAS is fast, so a kernel uses a matrix product wherever the derivation
allows one. What still needs many passes becomes a loop, which Numba compiles if it is installed: see the files whose
names end in "loops.py". Without Numba a kernel that would gain less than a factor of 1.3 declines, and the op runs as
written. docs/speed.md says what each kernel gains.
"""

from . import ops
from .twins import accelerate

__all__ = ["accelerate", "ops"]
