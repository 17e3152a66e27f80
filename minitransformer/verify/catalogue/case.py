"""A case of the catalogue: a function with its arguments, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.backend import Array, to_device
from ...layers import Module
from ..gradients import gradients
from ..report import Report

Random = np.random.Generator


@dataclass(frozen=True)
class Setup:
    """A function with its arguments, ready for `verify.gradients`."""

    f: Callable[..., Any]
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    module: Module | None = None  # whose parameters are checked

    def on(self, device: str) -> Setup:
        """The same setup with every array on the named device."""
        if self.module is not None:
            self.module.to(device)

        def move(x: Any) -> Any:
            return to_device(x, device) if isinstance(x, np.ndarray) else x

        options = {name: move(option) for name, option in self.options.items()}
        return Setup(self.f, tuple(map(move, self.inputs)), options, self.module)


@dataclass(frozen=True)
class Case:
    """A named entry of the catalogue."""

    name: str
    kind: str  # "op", "layer", "model" or "collective"
    build: Callable[[Random], Setup]
    along_directions: bool = False  # one direction for each array, not entry by entry

    @property
    def covers(self) -> str:
        """The public op, layer or model that the case is about: the first word of its name."""
        return self.name.partition(" ")[0]

    def run(self, seed: int = 0, device: str = "numpy", **settings: Any) -> Report:
        """Build the case from a seed and check all its gradients. settings: those of `verify.gradients`."""
        setup = self.build(np.random.default_rng(seed)).on(device)
        if self.along_directions:
            settings = {"entrywise": 0, "directions": 1, "intermediates": self.kind == "op"} | settings
        elif self.kind in ("layer", "model"):  # some hundred intermediates, which the ops show entry by entry
            settings = {"entrywise": 8 if self.kind == "layer" else 0, "directions": 1} | settings
        settings |= {"parameters": setup.module, "seed": seed, "name": self.name}
        return gradients(setup.f, *setup.inputs, **settings, **setup.options)


CASES: dict[str, Case] = {}


def case(kind: str, name: str, build: Callable[[Random], Setup], along_directions: bool = False) -> None:
    """Enter a builder into the catalogue. The first word of the name is the public op, layer or model it is about."""
    if name in CASES:
        raise ValueError(f"the catalogue has two cases called {name!r}")
    CASES[name] = Case(name, kind, build, along_directions)


def call(f: Callable[..., Any], *inputs: Any, module: Module | None = None, **options: Any) -> Setup:
    """The setup f(*inputs, **options)."""
    return Setup(f, inputs, options, f if module is None and isinstance(f, Module) else module)


def ordinary(module: Module, rng: Random) -> Any:
    """Give every parameter float64 numbers of ordinary size, with gains around 1; initial values hide mistakes."""
    for name, parameter in module.parameters():
        shape = parameter.value.shape
        parameter.value = rng.normal(1.0, 0.5, shape) if name.endswith("gamma") else rng.normal(0.0, 0.6, shape)
        parameter.grad = np.zeros(shape)
    return module


def some_mask(rng: Random, *shape: int) -> Array:
    """A random mask in which query 1 may attend to nothing and every other query to something."""
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    mask[..., 1, :] = False
    return mask


def frozen(rng: Random) -> dict[str, Any]:
    """The option `rng`: a generator for dropout, with a state of its own that each evaluation starts from anew."""
    return {"rng": np.random.default_rng(rng.integers(2**32))}
