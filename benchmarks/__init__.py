"""minitransformer against PyTorch on the same machine, from the same weights and the same batches.

    python -m benchmarks                    every case: a table, and with --out DIR a picture
    python -m benchmarks gpt attention      the cases whose names begin with these words
    python -m benchmarks growth             how the time grows with length, width, layers and batch

How a comparison works (compare.py): each program runs in a process of its own (worker.py) on the same cores, so the
two share no memory, threads or settings. First both take ten steps, and their results must agree. Then they take turns,
and the order is reversed each round, so that other work of the machine affects both equally. samples.py computes
medians and quartiles of the times; report.py shows them; machine.py describes the machine.

A case (cases/) is a pair of files. NAME.py has the sizes, the inputs, the operations counted by formula and our
program. NAME_torch.py has the twin, written by hand in the way a PyTorch user would write it.

The environment variables reach both sides. If OPENBLAS_CORETYPE is set, NumPy's OpenBLAS obeys it: with Haswell, for
example, it does not use AVX-512. The table of the machine names the kernels in use.
"""
