"""The paths of options: where a command writes is tried before the work, not after it."""

import argparse
import os
import tempfile
from pathlib import Path


def named(name: str) -> Path:
    """What an option names. An empty name is none: as a path it would be the current folder."""
    if not name:
        raise argparse.ArgumentTypeError("'' is no name of a file or folder")
    return Path(name)


def file_to_write(name: str) -> Path:
    """The file that an option names, tried before the work: the type of --output, --html and their kin."""
    path = Path(name)
    if not name or path.is_dir():
        raise argparse.ArgumentTypeError(f"{name!r} is no file that can be written; give the name of a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    if path.exists() and not path.is_file():  # a device or a pipe
        if not os.access(path, os.W_OK):
            raise argparse.ArgumentTypeError(f"cannot write {name}: Permission denied")
    else:
        _try(Path(os.path.realpath(path)).parent, name)
    return path


def folder_to_write(name: str) -> Path:
    """The folder that an option names, tried before the work: the type of --out. It may be missing."""
    path = Path(name)
    there = next((each for each in (path, *path.absolute().parents) if each.exists()), path)
    if not name or not there.is_dir():
        raise argparse.ArgumentTypeError(f"{name!r} is no folder that can be written; give the name of a folder")
    _try(there, name)
    return path


def _try(folder: Path, name: str) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write {name}: {error.strerror or error}") from error
