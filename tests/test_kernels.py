"""Kernels: the mechanism, and each kernel held equal to its textbook op."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_freed_memory_is_kept() -> None:
    code = """
import resource
import numpy
from minitransformer.backend import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [numpy.ones(1 << 17) for _ in range(64)]  # of 1 MiB, 256 pages each
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(4)))
keep_freed_memory()
print(min(faults() for _ in range(4)))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    without, kept = map(int, shown.split())
    assert without > 64 * 200
    assert kept < 64
