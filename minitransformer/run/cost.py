"""What a model costs, counted from its sizes alone: parameters, FLOPs and memory, part by part.

Each part counts itself, in its method `cost`: those of the paper in layers/, a later idea in its own file. Here the
tree is walked. It is built of zeros that take no memory, and nothing runs, so the model may have any size. For B
sequences of T tokens (source and target alike), D = d_model, F = d_ff, H heads and V tokens in the vocabulary:

                     parameters                FLOPs forward              numbers kept for backward
    table            V·D                       0                          0
    attention        4·D² + 4·D                8·B·T·D² + 4·B·T²·D        B·T·4·D + w·B·H·T² + its input B·T·D
    feed-forward     2·D·F + F + D             4·B·T·D·F                  a·B·T·F + its input B·T·D
    norm             2·D                       0                          B·T·(D + 1)
    dropout          0                         0                          as many as its input has
    logits           0, or V·D                 2·B·T·D·V                  its input B·T·D
    loss             0                         0                          2·B·T·V

FLOPs count the matrix products, which take nearly all the time. A multiplication and an addition count as two, so the
product of (m, k) and (k, n) takes 2·m·k·n. Attention has four maps of D to D, 2·B·T·D² each, and two products with the
T × T scores, 2·B·T²·D each. A causal mask saves nothing: the hidden half is computed as well. Each product C = A·B
takes two products in backward, dA = dC·Bᵀ and dB = Aᵀ·dC. So a training step takes three times the forward pass, and
with recomputing four times in the layers, which run forward once more.

Attention keeps q, k, v, the merged heads, and the weights (w = 1). With dropout w = 3: the weights, the kept weights,
and the factor. A ReLU keeps its output, a = 1; SiLU also the sigmoid, a = 2; GELU its input,
output, cumulative and density, a = 4. With recomputing a layer keeps only its input. Ids and masks, a few bytes for
each token, are left out. This is the memory in use between forward and backward. While a pass runs, it needs more for
the arrays it works on. The counts hold for the ops as written in ops/.
"""

import dataclasses
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays.boundary import check_sizes
from ..core.layers import Cost, Module
from ..core.layers.part_cost import Costs
from ..core.layers.unread import Unread


@dataclass(frozen=True)
class Part:
    """One part of a model, or all its equal copies together, such as the self-attentions of a stack.

    name: dotted, as in module.parameters(), with * for the number of a layer. output: its shape. parameters, flops (of
    a forward pass) and kept (the numbers that stay in memory for backward) count all copies. formula: for the FLOPs of
    one copy, "" if there are none, or none in powers of B and T.
    """

    name: str
    copies: int
    output: tuple[int, ...]
    parameters: int
    flops: int
    formula: str
    kept: int


@dataclass(frozen=True)
class Info:
    """The parts of a model, and their sums for a batch of `batch` sequences of `length` tokens in `dtype`."""

    model: str
    config: Any
    batch: int
    length: int
    dtype: str
    parts: tuple[Part, ...]

    @property
    def parameters(self) -> int:
        """The number of learned numbers."""
        return sum(part.parameters for part in self.parts)

    @property
    def flops(self) -> int:
        """FLOPs of a forward pass."""
        return sum(part.flops for part in self.parts)

    @property
    def training_flops(self) -> int:
        """FLOPs of a forward and a backward pass."""
        again = (
            sum(part.flops for part in self.parts if ".layers." in part.name)
            if getattr(self.config, "recompute", False)
            else 0
        )
        return 3 * self.flops + again

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of parameters, gradients, the state of Adam or AdamW (two numbers for each parameter), activations."""
        itemsize = np.dtype(self.dtype).itemsize
        parameters = self.parameters * itemsize
        kept = sum(part.kept for part in self.parts) * itemsize
        return {"parameters": parameters, "gradients": parameters, "optimizer": 2 * parameters, "activations": kept}

    def as_dict(self) -> dict[str, Any]:
        """All of this as JSON types."""
        return {
            "model": self.model,
            "config": dataclasses.asdict(self.config),
            "batch": self.batch,
            "length": self.length,
            "dtype": self.dtype,
            "parts": [dataclasses.asdict(part) | {"output": list(part.output)} for part in self.parts],
            "parameters": self.parameters,
            "flops": {"forward": self.flops, "training_step": self.training_flops},
            "memory": self.memory | {"total": sum(self.memory.values())},
        }

    def __str__(self) -> str:
        itemsize = np.dtype(self.dtype).itemsize
        lines = [("part", "output", "parameters", "FLOPs forward", "kept")]
        for part in self.parts:
            name = part.name + (f" × {part.copies}" if part.copies > 1 else "")
            shape = "(" + ", ".join(map(str, part.output)) + ")" if part.output else ""
            lines.append((name, shape, f"{part.parameters:,}", _short(part.flops), _short(part.kept * itemsize, "B")))
        memory = self.memory
        kept = _short(memory["activations"], "B")
        lines.append(("total", "", f"{self.parameters:,}", _short(self.flops), kept))
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        table = [
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        fields = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(self.config).items())
        formula_lines = [f"    {part.name:<33} {part.formula}" for part in self.parts if part.formula]
        total = _short(sum(memory.values()), "B")
        return "\n".join(
            [
                *textwrap.wrap(f"{self.model}: {fields}", 100, subsequent_indent="    "),
                f"a batch of {self.batch} × {self.length} tokens in {self.dtype}",
                "",
                *table,
                "",
                f"a training step takes {_short(self.training_flops)} FLOPs, forward and backward",
                f"memory to train with AdamW: {total}, without the temporary arrays of a running operation",
                f"    parameters      {_short(memory['parameters'], 'B')}",
                f"    gradients       {_short(memory['gradients'], 'B')}",
                f"    optimiser       {_short(memory['optimizer'], 'B')}",
                f"    activations     {kept}, kept for backward",
                "FLOPs of the matrix products of one copy, for B sequences of T tokens:",
                *formula_lines,
            ]
        )


def describe(model: Any, batch: int = 1, length: int | None = None, dtype: str | None = None) -> Info:
    """Count what a model costs, in training with its dropout, on B = batch sequences of T = length tokens.

    model: one that exists, or the config of one, which is then built of numbers that take no memory. length: 128 by
    default, or the model's max_length if that is less. dtype: float32, or the model's. Raises ValueError for a config
    that the model would refuse, and TypeError for anything else.
    """
    built = _built(model) if hasattr(model, "build") and not isinstance(model, type) else model
    if not isinstance(built, Module) or not hasattr(built, "costs"):
        raise TypeError(
            "describe: model must be a model or its config, such as LanguageModelConfig(50257), "
            f"got {type(model).__name__}"
        )
    config: Any = built.config  # type: ignore[attr-defined]
    longest = getattr(config, "max_length", None)
    fixed = getattr(built, "length", None)  # of a picture
    if length is None:
        length = fixed or (128 if longest is None else min(128, longest))
    check_sizes("describe", batch=batch, length=length)
    if fixed is not None and length != fixed:
        raise ValueError(f"describe: length must be {fixed}, as many vectors as a picture becomes, got {length}")
    if longest is not None and length > longest:
        raise ValueError(f"describe: length must be at most max_length {longest}, got {length}")
    dtype = str(next(built.parameters())[1].value.dtype) if dtype is None else dtype
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"describe: dtype must be a floating-point one, such as float32, got {dtype}")
    name = type(config).__name__.removesuffix("Config") if hasattr(config, "build") else type(built).__name__
    return Info(name, config, batch, length, np.dtype(dtype).name, tuple(_parts(built, batch, length)))


_LARGEST = {"layers": 10_000, "vocabulary": 1 << 30, "length": 1 << 30}  # by the last word of a size's name
_MOST = 1e14  # numbers


def _built(config: Any) -> Any:
    """The model of a config, of numbers that take no memory. Raises ValueError for more than can be walked through."""
    for name, size in vars(config).items():
        largest = _LARGEST.get(name.rpartition("_")[2], 1 << 20)
        if type(size) is int and size > largest:
            raise ValueError(f"describe: {name} must be at most {largest:,}, got {size:,}")
    drawn = Unread(_MOST)
    try:
        return config.build(drawn)
    except (ValueError, MemoryError) as error:
        if isinstance(error, MemoryError) or (drawn.left or 0) < 0:
            raise ValueError(f"describe: a model of these sizes has more than {_MOST:,.0f} parameters") from error
        raise


def _parts(model: Any, batch: int, length: int) -> Iterable[Part]:
    """The parts that a model names, equal ones together; every parameter belongs to the part with its name."""
    found: dict[str, list[tuple[tuple[int, ...], Cost]]] = {}
    for name, shape, cost in model.costs(batch, length):
        found.setdefault(name, []).append((shape, cost))
    sizes = dict.fromkeys(found, 0)
    for name, parameter in model.parameters():
        general = re.sub(r"\.\d+(?=\.|$)", ".*", name)
        (owner,) = [part for part in found if general.startswith(f"{part}.")] or [general]
        sizes[owner] = sizes.get(owner, 0) + parameter.value.size
    smaller = [_flops(model.costs(1, t)) for t in (1, 2, 3)]
    for name, size in sizes.items():
        copies = found.get(name, [((), Cost())])
        flops = sum(cost.flops for _, cost in copies)
        formula = _formula([each.get(name, 0) for each in smaller], flops, batch, length, len(copies))
        kept = sum(cost.kept for _, cost in copies)
        yield Part(name, len(copies), copies[0][0], size, flops, formula, kept)


def _flops(costs: Costs) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, _, cost in costs:
        total[name] = total.get(name, 0) + cost.flops
    return total


def _formula(values: list[int], flops: int, batch: int, length: int, copies: int) -> str:
    """The a, b and c of a·B + b·B·T + c·B·T², found from the FLOPs of 1, 2 and 3 tokens, where they give `flops`."""
    one, two, three = values
    c = (three - 2 * two + one) // 2
    b = two - one - 3 * c
    a = one - b - c
    if not flops or batch * (a + b * length + c * length**2) != flops or any(x % copies for x in (a, b, c)):
        return ""
    terms = zip((a, b, c), ("B", "B·T", "B·T²"), strict=True)
    return " + ".join(f"{x // copies}·{power}" for x, power in terms if x)


def _short(number: int, unit: str = "") -> str:
    """1234567 as "1.23 M": three digits are enough."""
    for size, prefix in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {prefix}{unit}"
    return f"{number} {unit}".rstrip()
