"""Speed on request: `accelerate(model)` returns a model's fast twin, and `ops` has faster or smaller forms of the ops.

Three ideas make a kernel faster than plain NumPy. NumPy reads and writes main memory in each operation on a large
array, so a kernel takes the rows in blocks that stay in the processor's cache. NumPy allocates a new array for each
result, so a kernel computes a block in place. And BLAS is fast, so a kernel uses a matrix product wherever the
derivation allows one. Work that still needs many passes becomes a loop, which Numba compiles if it is installed: see
the files whose names end in "loops.py". Without Numba a kernel that would gain less than a factor of 1.3 declines, and
the op runs as written. docs/speed.md gives the gain of each kernel.
"""

from . import ops
from .twins import accelerate

__all__ = ["accelerate", "ops"]
