"""Models whose weights stay packed: 8-bit integers, or the blocks of a GGUF file as they lie there.

    y = x W,    W unpacked from its bytes when it is read, and then forgotten

A packed weight takes a half to a seventh of the memory of float32, and to write a token is to read every weight once.
It is in place of a `Linear`'s weight or an `Embedding`'s table, and the rest of the model does not change. It is only
read: it has no gradient. `fast.accelerate` unpacks in the processor's registers (run/fast/decoding.py).
"""

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ...core.arrays.backend import Array, Pullback
from ...core.arrays.boundary import check_array, check_range_of_ids
from ...core.layers import Embedding, Linear, Module, Parameter
from . import packing

M = TypeVar("M", bound=Module)
WEIGHTS = {"int8": "Q8_0", "bfloat16": "BF16"}
_PIECE = 2048  # rows packed at once
_LIKE = np.zeros(1, np.float32)


class PackedWeight(Parameter):
    """A matrix as packed rows. rows: (N, n_bytes) bytes, each row of `width` numbers and perhaps zeros after them.

    `value` is unpacked anew each time: (N, width), or (width, N) if it is `across`, as a Linear stores the rows of a
    file. To set it, and to ask for its gradient, raises ValueError.
    """

    device = "numpy"

    def __init__(self, rows: np.ndarray, kind: str, width: int, across: bool) -> None:
        self.rows, self.kind, self.width, self.across = rows.view(np.ndarray), kind, width, across
        self.rows.flags.writeable = False
        self._read: Any = lambda: None

    @property
    def value(self) -> Array:
        """Its numbers, in float32."""
        numbers = packing.unpack(self.rows, self.kind)[:, : self.width]
        numbers = numbers.T if self.across else numbers
        numbers.flags.writeable = False  # a change would be lost
        self._read = weakref.ref(numbers)
        return numbers

    @value.setter
    def value(self, value: Array) -> None:
        if value is not self._read():  # Module.to sets again what it read
            raise ValueError("a packed weight is only read; open the model without packing it to change its weights")

    @property
    def grad(self) -> Array:
        """Raises ValueError."""
        raise ValueError("a packed weight has no gradient; open the model without packing it to train or to check it")

    def part(self, at: Any) -> Parameter:
        """A part of the numbers, as a parameter that is not packed."""
        return Parameter(self.value[at].copy())

    def __repr__(self) -> str:
        return f"PackedWeight({self.kind}, {self.rows.nbytes:,} bytes)"


def packed_product(x: Array, weight: PackedWeight) -> Array:
    """y = x Wᵀ, where W are the unpacked rows. x: (..., width); y: (..., N), in float32."""
    numbers: Array = weight.value if weight.across else weight.value.T
    return (x.reshape(-1, weight.width) @ numbers).reshape(*x.shape[:-1], -1)


class _Reads(Module):
    """What has a packed weight. The fast ops have a product of their own."""

    def _product(self, x: Array, weight: Any) -> Array:
        self.takes(x, _LIKE, weight.width, "its width")
        product: Array = getattr(self.ops, "packed_product", packed_product)(x, weight)
        return product


def _no_gradient(*_: Array) -> Any:
    raise ValueError(
        "a model with packed weights has no backward pass; open it without packing to train or to check it"
    )


class PackedLinear(_Reads, Linear):
    """y = x W + b with a packed weight, for inference. x: (..., d_in); y: (..., d_out)."""

    weight: PackedWeight

    @property
    def d_in(self) -> int:
        """The width of x."""
        return self.weight.width

    @property
    def d_out(self) -> int:
        """The width of y."""
        return len(self.weight.rows)

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward raises ValueError."""
        y = self._product(x, self.weight)
        return y if self.bias is None else y + self.bias.value, _no_gradient

    def part(self, rows: slice = slice(None), columns: slice = slice(None)) -> Linear:
        """See Linear; the part is not packed."""
        part = super().part(rows, columns)
        part.__class__ = Linear
        return part


class PackedEmbedding(_Reads, Embedding):
    """y = table[ids] with a packed table, for inference: the rows that are asked for are unpacked."""

    table: PackedWeight

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward raises ValueError. ids: (...) integers; y: (..., width)."""
        check_array("PackedEmbedding", "ids", ids)
        check_range_of_ids("PackedEmbedding", "ids", ids, len(self.table.rows))
        rows = packing.unpack(self.table.rows[ids.reshape(-1)], self.table.kind)[:, : self.table.width]
        return rows.reshape(*ids.shape, -1), _no_gradient

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """logits = x tableᵀ. x: (..., width); logits: (..., vocabulary). backward raises ValueError."""
        return self._product(x, self.table), _no_gradient


_PACKED: dict[type[Module], tuple[str, type[Module]]] = {
    Linear: ("weight", PackedLinear),
    Embedding: ("table", PackedEmbedding),
}


def pack(model: M, weights: str) -> M:
    """Pack every weight of a Linear and table of an Embedding, in place; vectors and other matrices stay.

    weights: "int8", 32 integers of eight bits and their scale for each 32 numbers of a column of a weight, or of a row
    of a table; or "bfloat16". The model is then for inference. Its weights must be float32, in NumPy; else this raises
    ValueError.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"pack: weights must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    for parameter, holders in _packable(model):
        value, across = parameter.value, isinstance(holders[0], Linear)
        if type(value) is not np.ndarray or value.dtype != np.float32:
            raise ValueError(f"pack: got {parameter}; convert it first: model.to('numpy', 'float32')")
        rows = value.T if across else value
        pieces = [packing.pack(rows[i : i + _PIECE], WEIGHTS[weights]) for i in range(0, len(rows), _PIECE)]
        _replace(holders, PackedWeight(np.concatenate(pieces), WEIGHTS[weights], rows.shape[1], across))
    return model


def put(model: Module, found: Mapping[int, PackedWeight]) -> None:
    """Put packed weights into a model, in place. found: of each Parameter, by its id. What fits nowhere is unpacked."""
    left = dict(found)
    for parameter, holders in list(_packable(model)):
        if packed := left.pop(id(parameter), None):
            _replace(holders, packed)
    for _, parameter in model.parameters():
        if packed := left.get(id(parameter)):
            parameter.value = np.array(packed.value, order="C")


def _packable(model: Module) -> Iterator[tuple[Parameter, list[Module]]]:
    """Every matrix that only Linear maps, or only Embeddings, hold, with these."""
    holders: dict[int, tuple[Parameter, list[Module], set[Any]]] = {}
    for _, module in model.modules():
        for name, item in vars(module).items():
            if isinstance(item, Parameter):
                _, modules, roles = holders.setdefault(id(item), (item, [], set()))
                modules.append(module)
                roles.add((type(module), name))
    while holders:  # who takes them one by one has room for one
        _, (parameter, modules, roles) = holders.popitem()
        if len(roles) == 1 and any(roles == {(kind, name)} for kind, (name, _) in _PACKED.items()):
            yield parameter, modules


def _replace(holders: list[Module], weight: PackedWeight) -> None:
    for module in {id(each): each for each in holders}.values():
        name, kind = _PACKED[type(module)]
        module.__class__ = kind
        setattr(module, name, weight)
