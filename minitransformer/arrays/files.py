"""Files that are written whole or not at all, and read with an error that names them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as bytes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises ValueError, naming it, where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], about: dict[str, str] | None = None) -> None:
    """Write arrays under their names as safetensors (https://github.com/huggingface/safetensors): no code in it.

    about: words of its header on the file as a whole.
    """
    write(path, bytes_of({name: np.array(array, order="C") for name, array in arrays.items()}, about))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote. Raises ValueError, naming the file, where it cannot be read."""
    try:
        return arrays_of(path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error


def write_figure(path: Path, figure: Figure) -> None:
    """Write a matplotlib figure as PNG, whole or not at all; its folder is made where it is missing."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, picture.getvalue())
