"""Functions as others write them: a forward, a backward apart from it, and what goes wrong in the latter.

One text, foreign_functions.txt, serves NumPy, PyTorch and JAX, whose arrays share these operations; `xp` is the
library. A function begins with its name and its inputs with their shapes. Then come the lines of forward, which binds
`out`; after `<-` those of backward, which has `dout` and all that forward bound; after each `!` an edit that makes
backward wrong, `old => new`.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TEXT = Path(__file__).with_name("foreign_functions.txt").read_text(encoding="utf-8")

HEAD = re.compile(r"(\w+)\((.*)\)")


@dataclass(frozen=True)
class Function:
    """A function with its inputs (name to shape), the lines of forward and backward, and the wrong backwards."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    forward: str
    backward: str
    wrong: tuple[str, ...]

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Normal numbers."""
        rng = np.random.default_rng(seed)
        return [rng.normal(size=shape) for shape in self.shapes.values()]

    @property
    def saved(self) -> list[str]:
        """What forward binds, with its inputs: all that backward needs."""
        return [*self.shapes, *dict.fromkeys(re.findall(r"^(\w+) =", self.forward, re.MULTILINE))]

    @property
    def intermediates(self) -> set[str]:
        """The names that forward binds and whose gradient backward binds."""
        return {
            name for name in self.saved[len(self.shapes) :] if re.search(rf"^d{name} =", self.backward, re.MULTILINE)
        }

    def source(self, template: str, backward: str | None = None) -> str:
        """The template with its words in capitals replaced; FORWARD and BACKWARD are indented as they are."""
        parts = {"NAME": self.name, "INPUTS": ", ".join(self.shapes), "SAVED": ", ".join(self.saved)}
        parts["GRADIENTS"] = ", ".join(f"d{name}" for name in self.shapes)
        parts |= {"FORWARD": self.forward, "BACKWARD": backward or self.backward}
        for key, part in parts.items():
            indent = re.search(rf"^( *){key}$", template, re.MULTILINE)
            template = template.replace(key, part.replace("\n", "\n" + (indent[1] if indent else "")))
        return template


def _functions() -> Iterator[Function]:
    for block in TEXT.strip("\n").split("\n\n"):
        head, *lines = block.split("\n")
        match = HEAD.fullmatch(head)
        assert match is not None, head
        shapes = {name: tuple(map(int, sizes.split(","))) for name, sizes in (x.split() for x in match[2].split("; "))}
        marks = list(itertools.accumulate((line[0] for line in lines), lambda old, new: old if new == " " else new))
        of = {mark: [line[4:] for line, own in zip(lines, marks, strict=True) if own == mark] for mark in " <!"}
        backward = "\n".join(of["<"])
        wrong = []
        for old, new in (edit.split(" =>") for edit in of["!"]):
            assert backward.count(old) == 1, (head, old, backward.count(old))
            wrong.append(backward.replace(old, new.strip()))
        yield Function(match[1], shapes, "\n".join(of[" "]), backward, tuple(wrong))


FUNCTIONS = list(_functions())
WRONG = [(function, i) for function in FUNCTIONS for i in range(len(function.wrong))]
WRONG_NAMES = [f"{function.name}-{i}" for function, i in WRONG]

PAIR = """
def NAME(INPUTS):
    FORWARD
    return out, (SAVED,)

def backward(dout, cache):
    SAVED, = cache
    BACKWARD
    return GRADIENTS
"""
TORCH = """
class NAME(torch.autograd.Function):
    @staticmethod
    def forward(ctx, INPUTS):
        FORWARD
        ctx.save_for_backward(SAVED)
        return out

    @staticmethod
    def backward(ctx, dout):
        SAVED, = ctx.saved_tensors
        BACKWARD
        return GRADIENTS
"""
JAX = """
@jax.custom_vjp
def NAME(INPUTS):
    FORWARD
    return out

def forward(INPUTS):
    FORWARD
    return out, (SAVED,)

def backward(saved, dout):
    SAVED, = saved
    BACKWARD
    return GRADIENTS,

NAME.defvjp(forward, backward)
"""


def made(function: Function, template: str, wrong: int | None = None, **names: Any) -> dict[str, Any]:
    """What the source of a function defines, with its backward right, or wrong in the way of that number."""
    source = function.source(template, None if wrong is None else function.wrong[wrong])
    if template is JAX and len(function.shapes) == 1:
        source = source.replace("return dx,", "return (dx,)")
    scope: dict[str, Any] = dict(names)
    exec(compile(source, f"{function.name}_of_a_user.py", "exec"), scope)
    return scope


def assert_rejected_rightly(report: Any, function: Function, wrong: int) -> None:
    """The rows of wrong gradients are those that differ, and each names an entry that differs, with both numbers."""
    right, bad = (made(function, PAIR, which, xp=np) for which in (None, wrong))
    inputs = function.inputs()
    assert not report.ok, str(report)
    differing = set()
    dy = np.random.default_rng((0, 1)).normal(size=right[function.name](*inputs)[0].shape)  # that of verify.gradients
    results = []
    for scope in (right, bad):
        _, cache = scope[function.name](*inputs)
        returned = scope["backward"](dy, cache)
        results.append(returned if isinstance(returned, tuple) else (returned,))
    for name, true, false in zip(function.shapes, *results, strict=True):
        row = report[name]
        if np.shape(true) != np.shape(false):
            differing.add(name)
            assert row.problem == f"the gradient has shape {np.shape(false)}, its array {np.shape(true)}"
            continue
        if np.allclose(true, false, rtol=1e-9, atol=1e-12):
            assert row.ok, str(report)
            continue
        differing.add(name)
        assert not row.ok and row.where is not None, str(report)
        np.testing.assert_allclose(row.hand, false[row.where], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(row.numerical, true[row.where], rtol=1e-4, atol=1e-7)
        scale = 1.0 + abs(true)
        assert abs(true - false)[row.where] / scale[row.where] >= 0.99 * (abs(true - false) / scale).max()
    assert differing and {row.name for row in report.of_kind("input") if not row.ok} == differing
