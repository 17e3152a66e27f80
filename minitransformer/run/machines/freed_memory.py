"""How the C library hands out memory during a long run."""

import ctypes
import sys


def keep_freed_memory() -> None:
    """Make the C library keep and reuse large freed blocks, for the rest of this process.

    By default glibc gets each large array from the system and returns it at once. So every array of a training step
    has new pages, which the system must map and clear one by one. With these thresholds a step reuses the pages of the
    step before. The process then keeps the most memory that it ever needed. Only glibc on Linux has these settings;
    elsewhere nothing happens. All threads share one store. Otherwise glibc gives each thread after the first a store of
    its own, made of heaps of 64 MiB, and returns an empty heap in spite of the thresholds. See mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # M_TRIM_THRESHOLD and so on in malloc.h
        mallopt(mmap_threshold, 1 << 30) or mallopt(mmap_threshold, 1 << 25)  # older ones refuse more than 32 MiB
        mallopt(trim_threshold, (1 << 31) - 1)
        mallopt(arena_max, 1)
