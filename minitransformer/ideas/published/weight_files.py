"""The tensors of a folder, as safetensors keeps them: names and shapes first, the numbers one tensor at a time.

A file begins with the length of its header and the header, a JSON object of {name: dtype, shape, place}; then come the
numbers (https://github.com/huggingface/safetensors). Nothing in it is code. The safetensors library checks that the
header is whole and that the places fill the file exactly, so what it claims never exceeds what is there. A large model
is cut into several files, and model.safetensors.index.json says which tensor is in which.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.files import check_content, read_json, write

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: `start` bytes into its file. dtype: of its numbers, in safetensors' words."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    def read(self) -> np.ndarray:
        """Its numbers: float64 as they are, float32 for float32, float16 and bfloat16."""
        check_dtype(self)
        stored = self.stored(_DTYPES[self.dtype], math.prod(self.shape))
        if self.dtype == "BF16":  # the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        wanted = np.float64 if self.dtype == "F64" else np.float32
        return stored.astype(wanted, copy=False).reshape(self.shape)

    def stored(self, dtype: str, count: int) -> np.ndarray:
        """What the file holds from `start` on."""
        found = np.fromfile(self.path, dtype, count, offset=self.start)
        if found.size != count:
            raise ValueError(f"{self.path} became shorter while it was read")
        return found


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by name. Only headers are read.

    Raises FileNotFoundError where a file is missing, and ValueError where one cannot be read.
    """
    if (folder / WEIGHTS).is_file():
        return of_file(folder / WEIGHTS)
    if (folder / INDEX).exists():
        return _of_shards(folder)
    if _there(folder / WEIGHTS):
        raise ValueError(f"{folder / WEIGHTS} is not a regular file, or is a link that leads nowhere")
    pickled = sorted(path.name for path in folder.glob("*.bin"))[:1]
    if pickled:
        raise ValueError(
            f"{folder} holds {pickled[0]} but no {WEIGHTS}; a .bin is a pickle, which can run any code when it is "
            "opened, so it is not read. If you trust it, convert it where PyTorch is installed: "
            f"safetensors.torch.save_file({{n: x.contiguous().clone() for n, x in torch.load('{pickled[0]}', 'cpu', "
            f"weights_only=True).items()}}, '{WEIGHTS}')"
        )
    raise FileNotFoundError(f"{folder} holds no weights: {WEIGHTS} is missing")


def _there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def of_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name. Raises ValueError where it cannot be read."""
    from safetensors import SafetensorError, safe_open  # here, because it is missing in a browser

    check_content(path)
    try:
        with safe_open(path, framework="numpy"):
            pass  # opening checks the header against the file
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error
    return {
        name: Tensor(name, path, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_bfloat16(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as bfloat16, each number as the nearest, of two the even one. Those that were read so stay the same.

    NumPy has no such type, so the library cannot write one. Raises ValueError where a number is too large.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content, end = [], 0
    for name, array in arrays.items():
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        if ((halves & 0x7F80) == 0x7F80).any():
            raise ValueError(f"{name} has a number that is too large for bfloat16, or not finite")
        content.append(halves.tobytes())
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [end, end := end + halves.nbytes]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    write(path, len(text).to_bytes(8, "little") + text + b"".join(content))


def _of_shards(folder: Path) -> dict[str, Tensor]:
    index = read_object(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(file, str) for file in index.values()):
        raise ValueError(f'{folder / INDEX}: "weight_map" must give the file of each tensor')
    found: dict[str, Tensor] = {}
    for file in sorted(set(index.values())):
        if Path(file).name != file or file in (".", "..") or "\\" in file or "\0" in file or len(file) > 200:
            raise ValueError(f"{folder / INDEX} names {file[:60]!r}, which is not a file of this folder")
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder / INDEX} names {file}, but it is missing, or a link that leads nowhere")
        for name, tensor in of_file(folder / file).items():
            if index.get(name) != file:
                raise ValueError(f"{folder / file} holds {name}, but {INDEX} does not say so")
            found[name] = tensor
    missing = [name for name in index if name not in found]
    if missing:
        raise ValueError(f"{folder / INDEX} says that {index[missing[0]]} holds {missing[0]}, but it does not")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises FileNotFoundError or ValueError, naming the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing" + (", or a link that leads nowhere" if _there(path) else ""))
    document = read_json(path)
    if not isinstance(document, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(document).__name__}")
    return document


def check_dtype(tensor: Tensor) -> None:
    """Require numbers that can be read as float32 or float64."""
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{tensor.name} is {tensor.dtype}; only {', '.join(_DTYPES)} can be read")


def n_numbers(found: Mapping[str, Tensor]) -> int:
    """How many numbers the tensors hold together."""
    return sum(math.prod(tensor.shape) for tensor in found.values())
