"""Right code in the style of public code, and its variants that are wrong in one line: see foreign_mistakes.txt."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_TEXT = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True)
class Foreign:
    """One function or object of others. names: the known mistakes that may be named; none for right code."""

    kind: str
    op: str
    inputs: tuple[tuple[str, str], ...]
    source: str
    edit: str = ""
    names: tuple[str, ...] = ()

    def made(self, rng: np.random.Generator) -> tuple[Any, list[Any]]:
        """The function as `check_gradients` takes it, and its inputs."""
        scope: dict[str, Any] = {"np": np, "math": math}
        arrays = [_drawn(what, rng) for _, what in self.inputs]
        if self.kind in ("function", "forward"):
            import torch

            scope["torch"] = torch
            arrays = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]
        before = set(scope)
        exec(compile(self.source, "<string>", "exec"), scope)  # written in this folder
        made = [x for name, x in scope.items() if name not in before and not name.startswith("__")]
        if self.kind == "pair":
            return tuple(made), arrays
        return made[0]() if self.kind == "object" else made[0].apply if self.kind == "function" else made[0], arrays


def _drawn(what: str, rng: np.random.Generator) -> Any:
    if match := re.fullmatch(r"i([\d,]+)<(\d+)", what):
        return rng.integers(int(match[2]), size=tuple(map(int, match[1].split(","))))
    if match := re.fullmatch(r"([mp]?)((?:\d+,)*\d+)", what):
        shape = tuple(map(int, match[2].split(",")))
        if match[1] == "m":
            return (rng.random(shape) < 0.5) | np.eye(*shape, dtype=bool)
        return rng.uniform(0.5, 2.0, shape) if match[1] == "p" else rng.normal(size=shape)
    return eval(what, {"np": np})


def _bases() -> Iterator[tuple[Foreign, list[str]]]:
    for part in re.split(r"^@ ", _TEXT.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, *lines = part.splitlines()
        kind, op, inputs = re.fullmatch(r"(\w+) (\w+): (.+)", head).groups()  # type: ignore[union-attr]
        named = tuple(tuple(one.split(" ", 1)) for one in inputs.split("; "))
        source = "\n".join(line for line in lines if not line.startswith("!"))
        yield Foreign(kind, op, named, source), [line[2:] for line in lines if line.startswith("!")]


def right() -> list[Foreign]:
    """The right ones."""
    return [base for base, _ in _bases()]


def wrong() -> list[Foreign]:
    """The wrong ones. Raises ValueError for an edit that does not fit."""
    found = []
    for base, edits in _bases():
        for edit in edits:
            old, new, names = re.fullmatch(r"(.+?) =>(?: (.*?))? : (.+)", edit).groups()  # type: ignore[union-attr]
            old, new = old.replace("\\n", "\n"), (new or "").replace("\\n", "\n")
            if old not in base.source:
                raise ValueError(f"{base.kind} {base.op}: not there: {old!r}")
            source = base.source.replace(old, new)
            found.append(Foreign(base.kind, base.op, base.inputs, source, edit, tuple(names.split())))
    return found
