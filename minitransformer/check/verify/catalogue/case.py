"""A case of the catalogue: a function with its arguments, which are drawn from a seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from ....core import ops
from ....core.arrays.backend import to_device, to_numpy
from ....core.arrays.declared import trusted
from ....core.layers import Module
from ..gradients import gradients
from ..report import Report, Row

Random = np.random.Generator
Draw = Callable[[Random], Any]


@dataclass(frozen=True)
class Setup:
    """A function with its arguments, ready for `verify.gradients`.

    truth: takes the same arguments and computes the same output in another way, with NaN where any number is right.
    Differences cannot see a mistake that forward and backward share. intermediates: whether to check those of f.
    """

    f: Callable[..., Any]
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    module: Module | None = None  # whose parameters are checked
    truth: Callable[..., Any] | None = None
    intermediates: bool = True

    def on(self, device: str) -> Setup:
        """The same setup with every array on the named device."""
        if self.module is not None:
            self.module.to(device)

        def move(x: Any) -> Any:
            return to_device(x, device) if isinstance(x, np.ndarray) else x

        options = {name: move(option) for name, option in self.options.items()}
        return Setup(self.f, tuple(map(move, self.inputs)), options, self.module, self.truth, self.intermediates)

    def differs(self) -> float:
        """The largest difference between the output and the truth; 0 without a truth, infinite for another shape."""
        if self.truth is None:
            return 0.0
        y, wanted = (np.asarray(to_numpy(f(*self.inputs, **self.options))) for f in (self._output, self.truth))
        if y.shape != wanted.shape:
            return math.inf
        return float(np.nan_to_num(abs(y - wanted)[~np.isnan(wanted)], nan=math.inf).max())

    def _output(self, *inputs: Any, **options: Any) -> Any:
        return self.f(*inputs, **options)[0]


@dataclass(frozen=True)
class Case:
    """A named case of the catalogue."""

    name: str
    kind: str  # "op", "layer", "model" or "collective"
    build: Callable[[Random], Setup]
    along_directions: bool = False  # check each array along one direction, not entry by entry

    @property
    def covers(self) -> str:
        """The public name that the case is about: the first word of its own name."""
        return self.name.partition(" ")[0]

    def run(self, seed: int = 0, device: str = "numpy", **settings: Any) -> Report:
        """Build the case from a seed and check all its gradients. settings: those of `verify.gradients`."""
        setup = self.build(np.random.default_rng(seed)).on(device)
        if self.along_directions:
            settings = {"entrywise": 0, "directions": 1, "intermediates": self.kind == "op"} | settings
        elif self.kind in ("layer", "model"):  # hundreds of intermediates, which the cases of ops check
            settings = {"entrywise": 8 if self.kind == "layer" else 0, "directions": 1} | settings
        if not setup.intermediates:
            settings = {"intermediates": False} | settings
        settings |= {"parameters": setup.module, "seed": seed, "name": self.name}
        with trusted():  # it runs some hundred times; the fast forms of the same case run with every check
            report = gradients(setup.f, *setup.inputs, **settings, **setup.options)
        error = setup.differs() if device == "numpy" else 0.0
        if error <= 1e-10:
            return report
        problem = f"it differs by {error:.1e} from what an independent computation gives"
        return dataclasses.replace(
            report, rows=(*report.rows, Row("the output", "output", (), error=error, ok=False, problem=problem))
        )


CASES: dict[str, Case] = {}
_ROOMS: dict[str, ModuleType] = dict.fromkeys(ops.__all__, ops)  # where each op is


def case(kind: str, name: str, build: Callable[[Random], Setup], along_directions: bool = False) -> None:
    """Enter a case into the catalogue. The first word of its name is the public name that it is about."""
    if name in CASES:
        raise ValueError(f"the catalogue has two cases called {name!r}")
    CASES[name] = Case(name, kind, build, along_directions)


def op(name: str, *arguments: Any, along_directions: bool = False, room: ModuleType = ops, **options: Any) -> None:
    """Enter a case of the op that is the first word of the name. Its arguments are drawn as `call` says.

    room: the module that has the op.
    """
    word = name.partition(" ")[0]
    _ROOMS[word] = room

    def build(r: Random) -> Setup:  # looks the op up, so a case checks whatever the room holds when it is run
        return call(r, getattr(room, word), *arguments, **options)

    case("op", name, build, along_directions)


def known_ops() -> dict[str, Callable[..., Any]]:
    """Every op by its name: those of the core, and those of the rooms around it that have a case."""
    return {name: getattr(room, name) for name, room in _ROOMS.items()}


def layer(
    name: str,
    make: Callable[[], Module],
    *arguments: Any,
    along_directions: bool = False,
    truth: Callable[..., Any] | None = None,
    **options: Any,
) -> None:
    """Enter a case of the layer that `make` returns. Its parameters are ordinary; the rest is drawn as `call` says.

    truth: that of a Setup, with the layer as its first argument.
    """

    def build(r: Random) -> Setup:
        setup = call(r, ordinary(make(), r), *arguments, **options)
        return setup if truth is None else dataclasses.replace(setup, truth=partial(truth, setup.f))

    case("layer", name, build, along_directions)


def call(r: Random, f: Callable[..., Any], *arguments: Any, module: Module | None = None, **options: Any) -> Setup:
    """f(*arguments, **options). A tuple stands for normal numbers of this shape, a function for what it draws.

    module: whose parameters are checked, if not those of f.
    """

    def drawn(x: Any) -> Any:
        if isinstance(x, tuple):
            return r.normal(size=x)
        return x(r) if callable(x) else x

    inputs = tuple(map(drawn, arguments))
    options = {name: drawn(option) for name, option in options.items()}
    return Setup(f, inputs, options, f if module is None and isinstance(f, Module) else module)


def ordinary(module: Module, r: Random) -> Any:
    """Give every parameter float64 numbers of ordinary size, and gains numbers around 1.

    The initial values would hide mistakes: biases are 0 and gains are 1.
    """
    for name, parameter in module.parameters():
        shape = parameter.value.shape
        parameter.value = r.normal(1.0, 0.5, shape) if name.endswith("gamma") else r.normal(0.0, 0.6, shape)
        parameter.grad = np.zeros(shape)
    return module


def gain(size: int | tuple[int, ...]) -> Draw:
    """Numbers around 1, as the gains of a norm are."""
    return lambda r: r.normal(1.0, 0.5, size)


def ids(below: int, *shape: int) -> Draw:
    """Integers from 0 to below - 1."""
    return lambda r: np.asarray(r.integers(below, size=shape))


def some_mask(*shape: int) -> Draw:
    """A random mask in which query 1 may attend to nothing, and every other query to something."""

    def draw(r: Random) -> np.ndarray:
        mask = r.random(shape) < 0.6
        mask[..., 0] = True
        mask[..., 1, :] = False
        return mask

    return draw


def frozen(r: Random) -> Random:
    """A generator for dropout: each evaluation of a case begins with a copy of it, so dropout is always the same."""
    return np.random.default_rng(r.integers(2**32))
