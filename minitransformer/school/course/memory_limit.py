"""The memory that all processes of a hand-in use together, seen from outside (proc(5)).

The system's limit (RLIMIT_AS) holds for each process separately: 32 processes may use 32 times as much. So the grader
adds up what they use, several times a second, and ends them if that is too much. Between two looks they may use more.
"""

import contextlib
import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def started_by(process: int) -> set[int]:
    """The processes below this one that left its process group: those of the hand-in, not those that run it."""
    found, waiting = set[int](), [process]
    while waiting:
        with contextlib.suppress(OSError):  # it may end meanwhile
            for children in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
                below = [int(number) for number in children.read_text().split()]
                waiting += below
                found.update(below)
    return {one for one in found if _group(one) not in (_group(process), None)}


def used_by(processes: set[int], limit: int) -> int:
    """Bytes that these processes use, not counting shared pages twice if the sum would otherwise exceed the limit."""
    files = _temporary(processes)
    used = sum(map(_resident, processes)) + files
    return used if used <= limit else sum(map(_share, processes)) + files


def _group(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except OSError:
        return None


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _share(process: int) -> int:
    """The process's memory, where a page that n processes share counts for 1/n."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(process)
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss:", "SwapPss:")))


def _temporary(processes: set[int]) -> int:
    """Bytes in the /tmp of the hand-in, which lies in memory: its files, and about 1 KiB for each inode."""
    for process in processes:
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{process}/root/tmp")
            return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * 1024
    return 0
