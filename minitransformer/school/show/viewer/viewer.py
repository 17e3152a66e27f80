"""Attention weights of every layer and head, and how a logit depends on each of them.

    weights_ij                how much query i takes of value j
    d logit / d weights_ij    how the logit would change if it took a little more

The weights come from the forward pass. The gradients are the `dweights` of our own backward pass, which starts from a
gradient that is 1 at the chosen logit and 0 elsewhere. Large weights are not always the ones that matter: Jain and
Wallace 2019, "Attention is not Explanation", section 4.1, compare the two.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....check.trace.recorder import Recorder
from ....core.arrays.backend import to_device, to_numpy
from ....core.layers.unread import Discarded, Unread
from ....core.models import Classifier, LanguageModel, Transformer
from ....ideas.published import MaskedLanguageModel
from ...inspect.watch import attentions
from ..page import build, frame, packed

MOST_TOKENS = 256  # of a sequence: the page has a button for each weight of a head
_MOST = 1_000_000  # weights on a page, and likewise gradients: about 5 MB each

# By the names of inspect.watch: the name on the page, and which of the sequences the queries and the keys come from.
_KINDS = {
    "self": ("Self-attention", 0, 0),
    "encoder": ("Encoder self-attention", 0, 0),
    "decoder": ("Decoder self-attention", 1, 1),
    "cross": ("Cross-attention", 1, 0),
}

Model = Transformer | LanguageModel | MaskedLanguageModel | Classifier


@dataclass(frozen=True)
class Choice:
    """A logit whose gradients are shown: the largest one at a position, or that of one class."""

    position: int | None  # of the token after which it was predicted; None for a class
    name: str
    logit: float
    probability: float


@dataclass(frozen=True)
class Maps:
    """One kind of attention in a model. queries, keys: which of the sequences they come from. which: the layers,
    counted from 1. weights: (layers, heads, T_q, T_k); gradients: (choices, layers, ...).
    """

    name: str
    queries: int
    keys: int
    causal: bool
    which: tuple[int, ...]
    weights: np.ndarray
    gradients: np.ndarray


@dataclass(frozen=True)
class AttentionView:
    """The result of `view`. In a notebook it shows itself.

    sequences: the tokens of each sequence; choices: the logits that have gradients; chosen: which one is shown first.
    """

    title: str
    sequences: tuple[tuple[str, ...], ...]
    choices: tuple[Choice, ...]
    chosen: int
    maps: tuple[Maps, ...]

    def to_html(self, path: str | os.PathLike[str] | None = None, links: Sequence[tuple[str, str]] = ()) -> str:
        """One self-contained page as a text, also written to `path` if given. links: to pages that lead back."""
        data = vars(self) | {"choices": list(map(vars, self.choices)), "maps": list(map(_maps_data, self.maps))}
        return build(__package__, self.title, "attention", data, ["page_numbers.js"], path, links=links)

    def _repr_html_(self) -> str:
        return frame(self.to_html(), self.title, height=720)


def _maps_data(maps: Maps) -> dict[str, Any]:
    layers, heads = maps.weights.shape[:2]
    packs = {"weights": packed(maps.weights), "gradients": list(map(packed, maps.gradients))}
    return vars(maps) | {"layers": layers, "heads": heads} | packs


def view(
    model: Model,
    *ids: Any,
    names: Sequence[Sequence[str]] = (),
    title: str = "Attention",
    layers: Sequence[int] | None = None,
) -> AttentionView:
    """Run the model forward and backward, and return its attention weights and the gradients of logits.

    ids: sequences of at most 256 token ids: source and target for a Transformer, one sequence for the other models.
    names: for each of these sequences, the names of all tokens by id, as in Vocabulary.tokens; for a Classifier also,
    as the last list, the names of its classes. Without names, the ids are shown. layers: only these are shown, by their
    indices from 0, so that a page holds a longer text; `inspect.heads` returns the weights of any text.

    Each position has a choice, the token predicted there; a Classifier has one for each class, the most likely first.
    If that makes more than a million gradients, only the last positions or the first classes have choices. The model
    and its gradients do not change. Raises TypeError and ValueError for arguments that cannot be shown.
    """
    sequences = _checked(model, ids)
    if not isinstance(title, str):
        raise TypeError(f"view: title must be a text, got {type(title).__name__}")
    naming = _naming(names, len(sequences) + isinstance(model, Classifier))
    tokens = tuple(tuple(naming(i, token) for token in row.tolist()) for i, row in enumerate(sequences))
    counts = {kind: len(found) for kind, found in attentions(model).items()}
    if not any(counts.values()):
        raise ValueError("view: no layer of this model attends, so there are no weights to show")
    shown = {kind: which for kind, which in _which(layers, counts).items() if which}
    areas = {
        kind: len(tokens[queries]) * len(tokens[keys]) for kind, (_, queries, keys) in _KINDS.items() if kind in shown
    }
    size = sum(len(which) * model.config.n_heads * areas[kind] for kind, which in shown.items())
    if size > _MOST:
        raise ValueError(
            f"view: there are {size:,} attention weights, but a page holds {_MOST:,}; show fewer layers, or a shorter "
            "text; inspect.heads returns them all"
        )

    copy = _copy(model)
    logits = np.atleast_2d(_run(copy, sequences, 1)[0][0])  # (T, vocabulary), or (1, classes)
    if not np.isfinite(logits).all():
        raise ValueError("view: the logits of this model are not finite, so they have no gradients to show")
    most = max(1, _MOST // size)
    if isinstance(model, Classifier):
        wanted = [(0, int(c)) for c in np.argsort(-logits[0], kind="stable")[:most]]
    else:
        wanted = [(t, int(row.argmax())) for t, row in enumerate(logits)][-most:]

    # The batch repeats the sentence once for each choice, so that one backward pass gives the gradients of all choices.
    with Recorder(copy, only=("weights", "dweights")) as recording:
        output, backward = _run(copy, sequences, len(wanted))
    upstream = np.zeros(output.shape, dtype=output.dtype)
    for n, (position, token) in enumerate(wanted):
        upstream[n].reshape(logits.shape)[position, token] = 1.0
    recording.in_forward = False
    with recording:
        backward(to_device(upstream, copy.device))
    found = [(p.value[0], p.gradient) for p in recording.pairs() if p.name == "weights" and p.gradient is not None]
    # Which of the calls of attention, in order, are of a kind: a decoder attends to the target and then to the memory.
    n_encoder = counts.get("encoder", 0)
    calls = {"self": slice(None), "encoder": slice(n_encoder)}
    calls |= {kind: slice(n_encoder + i, None, 2) for i, kind in enumerate(("decoder", "cross"))}
    maps = []
    for kind, which in shown.items():
        weights, gradients = ([pair[part] for pair in found[calls[kind]]] for part in (0, 1))
        causal = kind == "decoder" or isinstance(model, LanguageModel)
        layer_weights, slopes = np.stack([weights[i] for i in which]), np.stack([gradients[i] for i in which], axis=1)
        maps.append(Maps(*_KINDS[kind], causal, tuple(i + 1 for i in which), layer_weights, slopes))
    choices = tuple(_choice(model, logits, naming, position, token) for position, token in wanted)
    return AttentionView(title, tokens, choices, 0 if isinstance(model, Classifier) else len(wanted) - 1, tuple(maps))


def _which(layers: Sequence[int] | None, counts: Mapping[str, int]) -> dict[str, list[int]]:
    """The indices of the layers to be shown, for each kind of attention."""
    most = max(counts.values())
    wanted = list(range(most) if layers is None else dict.fromkeys(layers))
    if not wanted or not all(type(i) is int and 0 <= i < most for i in wanted):
        raise ValueError(f"view: layers must be indices from 0 to {most - 1}, got {layers!r}")
    return {kind: [i for i in wanted if i < n] for kind, n in counts.items()}


def _naming(names: Sequence[Sequence[str]], wanted: int) -> Callable[[int, int], str]:
    """The names of tokens: naming(which of the vocabularies, id)."""
    if not isinstance(names, Sequence) or not all(isinstance(each, Sequence) for each in names):
        raise TypeError("view: names must be a list of lists of names, by id")
    if len(names) not in (0, wanted):
        raise ValueError(f"view: names must hold {wanted} lists of names for this model, got {len(names)}")

    def naming(which: int, token: int) -> str:
        if names and not 0 <= token < len(names[which]):
            raise ValueError(f"view: there are only {len(names[which])} names, so id {token} has none")
        return str(names[which][token] if names else token)

    return naming


def _checked(model: Any, ids: Sequence[Any]) -> list[np.ndarray]:
    if not isinstance(model, Model):
        raise TypeError(
            "view: the model must be a Transformer, LanguageModel, MaskedLanguageModel or Classifier, "
            f"got {type(model).__name__}"
        )
    wanted = ("source", "target") if isinstance(model, Transformer) else ("ids",)
    if len(ids) != len(wanted):
        raise TypeError(f"view: a {type(model).__name__} needs {' and '.join(wanted)}, got {len(ids)} sequences")
    checked = []
    for name, sequence in zip(wanted, ids, strict=True):
        row = np.asarray(sequence if isinstance(sequence, list | tuple) else to_numpy(sequence))
        if row.ndim != 1 or row.dtype.kind not in "iu" or not 1 <= len(row) <= MOST_TOKENS:
            found = f"shape {row.shape} of {row.dtype}; inspect.heads returns the weights of any text"
            raise ValueError(f"view: {name} must be a sequence of 1 to {MOST_TOKENS} token ids, got {found}")
        checked.append(row.astype(np.int64))
    return checked


def _copy(model: Model) -> Model:
    """The model with the same values, no gradients and no recomputing: a backward pass runs once and changes none."""
    config: Any = model.config
    if hasattr(config, "recompute"):
        config = dataclasses.replace(config, recompute=False)
    copy: Any = type(model)(config, Unread())
    values = {name: parameter.value for name, parameter in model.parameters()}
    for name, parameter in copy.parameters():
        parameter.value, parameter.grad = values[name], Discarded()
    return copy


def _run(model: Any, sequences: Sequence[np.ndarray], times: int) -> Any:
    """The logits, on the host, of a batch that holds the same sequences several times; and the pullback."""
    batch = [to_device(np.tile(row, (times, 1)), model.device) for row in sequences]
    output, backward = model(*batch)
    return to_numpy(output), backward


def _choice(model: Model, logits: np.ndarray, naming: Callable[[int, int], str], position: int, token: int) -> Choice:
    row = logits[position].astype(np.float64)
    probability = math.exp(row[token] - row.max()) / float(np.exp(row - row.max()).sum())
    classifies = isinstance(model, Classifier)
    which = 0 if isinstance(model, LanguageModel | MaskedLanguageModel) else 1
    return Choice(None if classifies else position, naming(which, token), float(row[token]), probability)
