"""The memory that all processes of a hand-in use together, seen from outside (proc(5)).

The system's limit (RLIMIT_AS) holds for each process separately: 32 processes may use 32 times as much. So the grader
adds up what they use, several times a second, and ends them if that is too much. Between two checks they may allocate
more. So where the system lets the grader make a control group (cgroups(7)), the kernel enforces the limit too. Where
there is no /proc, as on macOS, the grader sees nothing, and only the limit per process holds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_RUNNER = 128 * 1024**2  # bytes for the processes that run the hand-in, which are in its control group
_CGROUPS, _OURS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_numbers = itertools.count()


class ControlGroup:
    """A control group for one hand-in, in which the kernel enforces the limit; where none can be made, it does nothing.

    limit: bytes of memory for the hand-in.
    """

    def __init__(self, limit: int) -> None:
        self._folder = next(filter(None, (_limited(parent, limit + _RUNNER) for parent in _parents())), None)
        self._ended = 0

    def inside(self, command: list[str]) -> list[str]:
        """A command that runs this one, and all that it will start, in the group."""
        if self._folder is None:
            return command
        return ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def exceeded(self) -> bool:
        """Whether the kernel has ended a process of the group, because the limit was reached, since the last call."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, TypeError):
                lines = (self._folder / name).read_text().splitlines()  # type: ignore[operator]
                before, self._ended = self._ended, sum(int(x.split()[1]) for x in lines if x.startswith("oom_kill "))
                return self._ended > before
        return False

    def remove(self) -> None:
        """Remove the group as soon as its last process has ended; the caller has ended them."""
        for _ in range(100 if self._folder is not None else 0):
            with contextlib.suppress(OSError):
                self._folder.rmdir()  # type: ignore[union-attr]
                return
            time.sleep(0.01)


def _parents() -> list[Path]:
    """The control groups that this process is in and that may limit memory, of version 1 or 2."""
    try:
        lines = [line.split(":", 2) for line in _OURS.read_text().splitlines()]
    except OSError:
        return []
    roots = [(_CGROUPS / kind if kind else _CGROUPS, path) for _, kind, path in lines if kind in ("memory", "")]
    return [root / path.lstrip("/") for root, path in roots]


def _limited(parent: Path, limit: int) -> Path | None:
    """A new control group with a limit below this one; None where the system refuses it."""
    folder = parent / f"hand-in-{os.getpid()}-{next(_numbers)}"
    try:
        folder.mkdir()
    except OSError:
        return None
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError):
            _set(folder / name, limit)
            for swap, most in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limit)):
                with contextlib.suppress(OSError):
                    _set(folder / swap, most)
            return folder
    folder.rmdir()
    return None


def _set(file: Path, value: int) -> None:
    """Write to one of the kernel's files; a missing one is never created."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


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
    files = _files(processes) + _temporary(processes)
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


def _files(processes: set[int]) -> int:
    """Bytes in files that lie in memory (memfd_create) and are open, but need not be mapped."""
    found = {}
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").glob("*"):
                if os.readlink(descriptor).startswith("/memfd:"):
                    file = descriptor.stat()
                    found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(found.values())


def _temporary(processes: set[int]) -> int:
    """Bytes in the /tmp of the hand-in, which lies in memory: its files, and about 1 KiB for each inode."""
    for process in processes:
        with contextlib.suppress(OSError):
            theirs = f"/proc/{process}/root/tmp"
            if os.stat(theirs).st_dev == os.stat("/tmp").st_dev:  # without isolation it is that of everybody
                return 0
            found = os.statvfs(theirs)
            return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * 1024
    return 0
