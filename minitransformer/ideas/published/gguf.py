"""GGUF files: a model in one file, often with only a few bits for each number.

    magic, version, counts | {name: value}, the metadata | {name: shape, type, place} of the tensors | the numbers

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The numbers come in blocks that share a scale;
the library `gguf` unpacks them. We read the header ourselves: that library trusts every length that a file claims, and
takes seconds for a vocabulary. Nothing in a file is code.
"""

import math
import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...core.arrays.files import check_content
from ...core.text.tokenizer import load_library
from . import packing
from .weight_files import Tensor

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_LONGEST_HEADER = 1 << 28  # bytes; a vocabulary of 128,000 tokens takes about 8 million
_MOST_AXES = 4
_MOST_PARTS = 99_999  # and the largest number of tensors
_SCALARS = dict(enumerate(["<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "<u1"])) | {10: "<u8", 11: "<i8", 12: "<f8"}
_BOOL, _TEXT, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class Packed(Tensor):
    """A tensor of packed numbers. kind: how its blocks are packed; dtype: what `read` returns; shape: rows first."""

    kind: str
    n_bytes: int

    def rows(self) -> np.ndarray:
        """Its packed rows, (N, n_bytes), mapped into memory: the system reads a page when it is needed."""
        mapped = np.memmap(self.path, np.uint8, "r", self.start, (self.shape[0], self.n_bytes // self.shape[0]))
        if not packing.all_finite(mapped, self.kind):
            raise ValueError(f"{self.name} contains NaN or infinity")
        return mapped

    def read(self) -> np.ndarray:
        """Its numbers, in float32."""
        stored = self.stored("u1", self.n_bytes)
        numbers = _unpacked(stored.reshape(*self.shape[:-1], -1), self.kind).reshape(self.shape)
        if not np.isfinite(numbers).all():
            raise ValueError(f"{self.name} contains NaN or infinity")
        return numbers


@dataclass(frozen=True)
class Changed(Tensor):
    """A tensor that a folder stores in another way. change(numbers of each of `of`) returns what a folder has."""

    of: tuple[Packed, ...]
    change: Callable[..., np.ndarray]
    moves: bool = False  # only rows change their places

    def read(self) -> np.ndarray:
        """Its numbers as a folder has them, in float32."""
        with np.errstate(all="ignore"):
            found = np.asarray(self.change(*(packed.read() for packed in self.of)), np.float32).reshape(self.shape)
        if not np.isfinite(found).all():
            raise ValueError(f"{self.name} cannot be made of what {self.of[0].name} holds")
        return found


def packed_rows(tensor: Tensor) -> tuple[np.ndarray, str, int] | None:
    """The packed rows of a matrix as a folder has them, their kind and width; None where they cannot stay packed."""
    source = tensor.of[0] if isinstance(tensor, Changed) and tensor.moves else tensor
    if not isinstance(source, Packed) or source.kind not in packing.KINDS or len(source.shape) != 2:
        return None
    rows = source.rows()
    moved = tensor.change(rows).reshape(rows.shape) if isinstance(tensor, Changed) else rows
    return moved, source.kind, source.shape[1]


@dataclass(frozen=True)
class File:
    """A GGUF file without its numbers. metadata: {name: number, text, list of texts or array of numbers}."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Packed]


def _unpacked(rows: np.ndarray, kind: str) -> np.ndarray:
    library = load_library("a .gguf file", "models", "gguf")
    with np.errstate(all="ignore"):  # the bytes can encode any numbers
        return library.dequantize(rows, library.GGMLQuantizationType[kind])


def open_file(path: str | os.PathLike[str]) -> File:
    """Read the metadata of a file, and where its tensors lie. Memory stays within a few times the size of the file.

    A model may be cut into NAME-00001-of-00003.gguf and so on; path is then the first part, which has the metadata.

    Raises FileNotFoundError if a file is missing, ModuleNotFoundError without the library `gguf`, and ValueError where
    one is cut short, claims more than it has, has tensors of an unknown type or not one after the other, or is no part
    of the model.
    """
    first = _open_part(Path(path))
    n_parts, tensors = _number(first, "split.count", 1), dict(first.tensors)
    if n_parts <= 1:
        return first
    name = re.fullmatch(r"(.*-)00001(-of-\d{5}\.gguf)", first.path.name)
    if name is None or name[2] != f"-of-{n_parts:05d}.gguf" or _number(first, "split.no", 0):
        raise ValueError(
            f"{first.path} is one of {n_parts} parts; open the first, NAME-00001-of-{n_parts:05d}.gguf, "
            "with all others beside it"
        )
    for i in range(1, n_parts):
        part = _open_part(first.path.with_name(f"{name[1]}{i + 1:05d}{name[2]}"))
        if (_number(part, "split.no", 0), _number(part, "split.count", 1)) != (i, n_parts):
            raise ValueError(f"{part.path} does not say that it is part {i + 1} of {n_parts}")
        if twice := tensors.keys() & part.tensors.keys():
            raise ValueError(f"{part.path}: the tensor {min(twice)[:60]!r} is in another part, too")
        tensors |= part.tensors
    if _number(first, "split.tensors.count", len(tensors)) != len(tensors):
        raise ValueError(f"{first.path}: the parts hold {len(tensors)} tensors together, not as many as it says")
    return File(first.path, first.metadata, tensors)


def _number(file: File, name: str, default: int) -> int:
    found = file.metadata.get(name, default)
    if type(found) is not int or not 0 <= found <= _MOST_PARTS:
        raise ValueError(f"{file.path}: {name} must be an integer from 0 to {_MOST_PARTS}, got {str(found)[:40]}")
    return found


def _open_part(path: Path) -> File:
    """One file: see `open_file`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    library = load_library("a .gguf file", "models", "gguf")
    check_content(path)
    try:
        with path.open("rb") as file:
            reader = _Reader(file, path.stat().st_size)
            if reader.take(4) != _MAGIC:
                raise ValueError("it does not begin with GGUF")
            version = reader.number("<I")
            if version not in _VERSIONS:
                raise ValueError(f"its version must be one of {_VERSIONS}, got {version}")
            n_tensors, n_entries = reader.count(24), reader.count(13)
            metadata: dict[str, Any] = {}
            for _ in range(n_entries):
                name = reader.text()
                if name in metadata:
                    raise ValueError(f"{name[:60]!r} is there twice")
                metadata[name] = reader.value(reader.number("<I"))
            described = [reader.tensor() for _ in range(n_tensors)]
            tensors = _placed(path, library, described, reader.place, _alignment(metadata), reader.size)
    except (ValueError, OverflowError) as error:  # UnicodeDecodeError is a ValueError
        raise ValueError(f"{path} cannot be read as GGUF: {error}") from error
    return File(path, metadata, tensors)


class _Reader:
    """Reads a file from its beginning, and never past its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.place = file, size, 0

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if self.place + n > min(self.size, _LONGEST_HEADER):
            raise ValueError(f"its header asks for {n:,} bytes at byte {self.place:,}, past its end")
        found = self.file.read(n)
        if len(found) < n:
            raise ValueError("it became shorter while it was read")
        self.place += n
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, smallest: int) -> int:
        """A count of entries, each of at least `smallest` bytes."""
        found = self.number("<Q")
        if found * smallest > self.size:
            raise ValueError(f"it claims {found:,} entries, more than a file of {self.size:,} bytes holds")
        return found

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8")

    def shape(self) -> tuple[int, ...]:
        """A shape, rows first; the file stores it in reverse."""
        n_axes = self.number("<I")
        if not 1 <= n_axes <= _MOST_AXES:
            raise ValueError(f"a tensor must have 1 to {_MOST_AXES} axes, got {n_axes}")
        return tuple(self.number("<Q") for _ in range(n_axes))[::-1]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """A tensor's name, shape, type, and place among the numbers."""
        return self.text(), self.shape(), self.number("<I"), self.number("<Q")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            return self.array(self.number("<I"))
        found = self.scalars(kind, 1)[0].item()
        return bool(found) if kind == _BOOL else found

    def array(self, kind: int) -> Any:
        if kind == _TEXT:
            return [self.text() for _ in range(self.count(8))]
        return self.scalars(kind, self.count(1))

    def scalars(self, kind: int, n: int) -> np.ndarray:
        if kind not in _SCALARS:
            raise ValueError(f"a value has the unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(n * dtype.itemsize), dtype)


def _alignment(metadata: Mapping[str, Any]) -> int:
    """Each tensor begins at a multiple of it."""
    step = metadata.get("general.alignment", 32)
    if type(step) is not int or not 1 <= step <= 1 << 20:
        raise ValueError(f"general.alignment must be an integer from 1 to {1 << 20}, got {str(step)[:40]}")
    return step


def _placed(path: Path, library: Any, described: Any, place: int, step: int, size: int) -> dict[str, Packed]:
    """The tensors: each follows the one before, at the next multiple of `step`. place: where the header ends."""
    begin = end = -(-place // step) * step
    found: dict[str, Packed] = {}
    for name, shape, number, offset in described:
        if name in found:
            raise ValueError(f"the tensor {name[:60]!r} is there twice")
        kind = number
        try:
            kind = library.GGMLQuantizationType(number)
            block, n_bytes = library.GGML_QUANT_SIZES[kind]
            _unpacked(np.zeros((1, n_bytes), np.uint8), kind.name)
        except (ValueError, KeyError, NotImplementedError):
            raise ValueError(
                f"the tensor {name[:60]!r} is of type {getattr(kind, 'name', number)}, which cannot be read; "
                f"it must be F32, F16, or packed, such as {', '.join(packing.KINDS)}"
            ) from None
        if 0 in shape or shape[-1] % block:
            raise ValueError(f"the tensor {name[:60]!r} of shape {shape} has no whole blocks of {block} numbers")
        n_bytes *= math.prod(shape) // block
        if begin + offset != end:
            raise ValueError(
                f"the tensor {name[:60]!r} must begin at byte {end - begin:,} of the numbers, where the one before it "
                f"ends, got {offset:,}"
            )
        if end + n_bytes > size:
            raise ValueError(f"the tensor {name[:60]!r} ends at byte {end + n_bytes:,}, but the file at {size:,}")
        found[name] = Packed(name, path, "F32", shape, end, kind.name, n_bytes)
        end = -(-(end + n_bytes) // step) * step
    return found
