"""minitransformer against PyTorch on the same machine, from the same weights and the same batches.

    python -m benchmarks                    every case: a table, and with --out DIR a picture
    python -m benchmarks gpt attention      the cases whose names begin so
    python -m benchmarks growth             how the time grows with length, width, layers and batch

How a comparison is made (compare.py). Each program runs in a process of its own (worker.py) on the same cores, so that
neither shares memory, threads or settings with the other. First both take ten steps and their results must agree. Then
they take turns, the order reversed from one round to the next, so that whatever else the machine does meets both alike.
samples.py makes medians and quartiles of the times; report.py shows them; machine.py says on what they were measured.

A case (cases/) is a pair of files: NAME.py has the sizes, the inputs, the operations counted by formula and our
program; NAME_torch.py has the twin, written by hand in the way a PyTorch user would.

The environment reaches both sides. Where it sets OPENBLAS_CORETYPE, NumPy's OpenBLAS obeys: with Haswell, for one, it
does without AVX-512. The table of the machine says which kernels were in use.
"""
