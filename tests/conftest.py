"""One BLAS thread for the tests.

Their matrices are small, and threads of OpenBLAS that wait for each other spin: on a machine that is busy with other
things as well, two of them made the training of the demo five times slower than one. OpenBLAS reads the variable when
NumPy is imported, so it is set here, before any test module is.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
