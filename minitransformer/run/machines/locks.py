"""Folders that one process locks while it writes, and pictures as files."""

from __future__ import annotations

import contextlib
import io
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...core.arrays.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. A missing folder is created, and removed again if it stays empty.

    Raises OSError that names the other process, if another one holds the lock. The lock ends with its process, however
    that ends. If the system has no such locks (Windows, a browser, some network drives), nothing is locked.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise OSError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
    with file:
        if not _lock(file) or not _is_at(file, path):  # or the other process has just ended and removed its file
            file.seek(0)
            holder = file.read() or "another process"
            raise OSError(f"{folder} is in use by {holder}; wait until it ends, or choose another folder")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the folder is no longer empty
                path.unlink()
                for each in made:
                    each.rmdir()


def _lock(file: IO[str]) -> bool:
    """Lock a file, if the system can. Returns whether no other process has locked it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether the open file still exists under the path."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def write_figure(path: Path, figure: Figure) -> None:
    """Write a matplotlib figure as PNG, completely or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    write(path, picture.getvalue())
