"""Reading the config.json of a published model, and writing one. Each field is checked; an error names the field.

A table states each field once, for reading and for writing: its name in config.json, its kind, and our name. An
optional field also has a default: a JSON value, or the name of the field of ours whose value it takes. The kinds are
methods of Fields.

    hidden_size            size        d_model
    hidden_act             activation  activation    "gelu"
    num_key_value_heads    size        n_key_heads   n_heads
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LARGEST = 1 << 40  # the largest size; before any allocation, the sizes are compared with the file


class Fields:
    """The fields of a config.json. A missing field, a wrong type or a value out of range raises ValueError."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    def read(self, table: str) -> dict[str, Any]:
        """{our name: value} for all fields in a table: see above."""
        found: dict[str, Any] = {}
        for theirs, kind, ours, default in _rows(table):
            found[ours] = getattr(self, kind)(theirs, found[default] if default in found else json.loads(default))
        return found

    def size(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1."""
        return self._checked(name, default, f"an integer from 1 to {_LARGEST}", lambda n: 1 <= n <= _LARGEST, int)

    def size_or_none(self, name: str) -> int | None:
        """An integer of at least 1, or None where the field is null or missing."""
        return None if self.document.get(name) is None else self.size(name)

    def rate(self, name: str, default: float | None = None) -> float:
        """A dropout rate: at least 0 and below 1; 0 where the field is missing."""
        return float(self._checked(name, default or 0.0, "a rate from 0 to below 1", lambda x: 0.0 <= x < 1.0))

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        return float(self._checked(name, default, "a number above 0", lambda x: 0.0 < x < math.inf))

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or False."""
        return self._checked(name, default, "true or false", lambda _: True, bool)

    def _checked(self, name: str, default: Any, wanted: str, fits: Callable[[Any], bool], *types: type) -> Any:
        value = self._get(name, default)
        if type(value) not in (types or (int, float)) or not fits(value):
            raise ValueError(f"{name} must be {wanted}, got {_short(value)}")
        return value

    def choice(self, name: str, meanings: Mapping[str, Any], default: str) -> Any:
        """The meaning of a word; `meanings` has all that are allowed."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in meanings:
            raise ValueError(f"{name} {_short(value)} is not supported; one of {', '.join(meanings)} is")
        return meanings[value]

    def activation(self, name: str, default: str) -> Any:
        """Our name for an activation."""
        return self.choice(name, ACTIVATIONS, default)

    def only(self, **allowed: Any) -> None:
        """Require that a field has this value, or is null: any other value would change the mathematics."""
        for name, value in allowed.items():
            if (found := self.document.get(name)) is not None and found != value:
                raise ValueError(f"{name} {_short(found)} is not supported, only {_short(value)} is")

    def same(self, *names: str) -> None:
        """Require that these sizes are equal. A config can give them separately; our model has one size for all."""
        if len({self.size(name) for name in names}) > 1:
            raise ValueError(f"{' and '.join(names)} must be equal, got {[self.size(name) for name in names]}")

    def _get(self, name: str, default: Any) -> Any:
        value = self.document.get(name)
        if value is None and default is None:
            raise ValueError(f"{name} is missing")
        return default if value is None else value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "an integer of many digits"
    return text if len(text) <= 60 else text[:57] + "..."


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def their_activation(ours: str) -> str:
    """The name in config.json for one of our activations."""
    for theirs, meaning in ACTIVATIONS.items():
        if meaning == ours:
            return theirs
    raise ValueError(f"has no activation {ours!r}")


def every_second(fields: Fields, n_layers: int) -> None:
    """Require a window in every second layer, starting with the first. A config without layer_types means this too."""
    kinds = [("sliding_attention", "full_attention")[i % 2] for i in range(n_layers)]
    if fields.document.get("layer_types") not in (None, kinds):
        raise ValueError("layer_types must be 'sliding_attention' and 'full_attention' in turn, or missing")


def written(config: Any, table: str) -> dict[str, Any]:
    """{their name: value} of a config, by a table of fields."""
    values = {theirs: (kind, getattr(config, ours)) for theirs, kind, ours, _ in _rows(table)}
    return {
        theirs: their_activation(value) if kind == "activation" else value for theirs, (kind, value) in values.items()
    }


def _rows(table: str) -> Iterator[tuple[str, str, str, str]]:
    for line in table.strip().splitlines():
        theirs, kind, ours, *default = line.split()
        yield theirs, kind, ours, default[0] if default else "null"
