"""Files that are written completely or not at all. Errors of reading name the file.

safetensors is imported where it is used: in a browser it is missing, and everything but saved models works there.
"""

import contextlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_LONGEST_JSON = 1 << 26  # bytes


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file under a temporary name and then rename it, so that no half-written file is left. Text is UTF-8.

    A file that is there keeps its mode, and a link still leads to it. A device or a pipe is written to as it stands.
    Raises OSError that names the path, if it cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = Path(os.path.realpath(path))  # the file that a link names
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                file.write(data)
            return
        with temporary.open("wb") as file:
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))  # before the content: it may be secret
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the content before the name, so a crash of the machine leaves no empty file
        os.replace(temporary, target)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary.exists():
            temporary.unlink()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors about what a file holds become ValueErrors that begin with its path."""
    try:
        yield
    except (ValueError, TypeError, MemoryError) as error:
        raise ValueError(f"{path}: {error}") from error


_POINTER = b"version https://git-lfs"


def check_content(path: Path) -> None:
    """Raise ValueError for a file that only points to its content: Git without LFS leaves such a file of 130 bytes.

    Who reads the file says why it cannot be read at all.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ValueError(f"{path} is a Git LFS pointer in place of the file; `git lfs pull` fetches the file")


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError that names the file, if it is damaged or longer than 64 MiB."""
    check_content(path)
    try:
        if (size := path.stat().st_size) > _LONGEST_JSON:
            raise ValueError(f"it has {size:,} bytes, and {_LONGEST_JSON:,} is the most that is read")
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} cannot be read as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], about: dict[str, str] | None = None) -> None:
    """Write arrays under their names as safetensors (https://github.com/huggingface/safetensors): no code in them.

    about: what the header says about the whole file.
    """
    from safetensors.numpy import save

    write(path, save({name: np.array(array, order="C") for name, array in arrays.items()}, about))


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write one array as NumPy's .npy, which `numpy.load(path, mmap_mode="r")` reads from the disk."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write(path, content.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote. Raises ValueError that names the file, if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    check_content(path)
    try:
        return load(path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error


def forms_of(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtype, in safetensors' words, and the shape of each array in a file; only its header is read."""
    from safetensors import SafetensorError, safe_open

    check_content(path)
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            return {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error
