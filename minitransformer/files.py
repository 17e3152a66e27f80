"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file: first under another name beside it, then renamed, so that no half of one is left. Text is UTF-8.

    Raises OSError, naming the path, where it cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before the name is: a crash of the machine leaves no empty file
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary.exists():
            temporary.unlink()
