"""Speed, for those who ask for it: `accelerate(model)` gives a model's fast twin, `ops` the fast forms of the ops.

Three things make NumPy slow beside a compiled library, and a kernel avoids them: each operation on whole arrays reads
and writes main memory, so the rows are taken in blocks that stay in the processor's cache; each result is a new array,
so a block is computed in place; and what the derivation can say with a matrix product should, since BLAS is fast. What
needs many passes all the same is a loop, which Numba compiles where it is installed: the files that end in "loops.py".
Without Numba a kernel that would gain less than a factor of 1.3 declines, and the op runs as written. docs/speed.md
says what each kernel gains.
"""

from . import ops
from .twins import accelerate

__all__ = ["accelerate", "ops"]
