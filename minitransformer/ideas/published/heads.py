"""Heads on a body that reads a whole text: classes of tokens, an answer inside the text, tokens that were replaced.

    logits = g(hidden) W + b          g: nothing, or in some families a map, an activation and a norm

    classes of tokens    logits (B, T, n_classes)     cross-entropy of each token's class
    an answer            logits (B, T, 2)             its start and its end: two softmaxes over all places
    replaced tokens      logits (B, T)                p = σ(logit), the second entry of softmax([0, logit])

Devlin et al. 2019, "BERT", section 4.2 has the answer, section 5.3 the classes; Clark et al. 2020, "ELECTRA", the last.
A decoder is read as such a body with its layers causal; its last token has seen the whole text.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.layers import Cost, Embedding, Encoder, InputEmbedding, Linear, Module
from ...core.layers.feed_forward import FeedForward, kept_by
from ...core.layers.part_cost import Costs
from ...core.models.checks import parts_of
from ...core.models.classifier import Classifier, ClassifierParts
from ...core.models.earlier import PACKAGE, recipe_of
from ...core.models.encoder_only import EncoderOnly, EncoderOnlyParts
from ...core.models.language_model import positions_of

TOKENS, ANSWERS, REPLACED = "tokens", "answers", "replaced"


class FirstOfAll(Module):
    """The vector of the first token. hidden: (B, T, D); pooled: (B, D). It learns nothing."""

    def place(self, hidden: Array, mask: Array | None) -> Array:
        """Which token of each text is taken, (B,)."""
        return array_module(hidden).zeros(len(hidden), dtype=int)

    def __call__(self, hidden: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (pooled, backward); backward(dpooled) returns dhidden."""
        xp = array_module(hidden)
        at = xp.arange(len(hidden)), self.place(hidden, mask)
        pooled = hidden[at]

        def backward(dpooled: Array) -> Array:
            dhidden = xp.zeros(hidden.shape, dtype=hidden.dtype)
            dhidden[at] = dpooled
            return dhidden

        return pooled, backward


class LastReal(FirstOfAll):
    """The vector of the last token that is real: the one that has seen the whole text, where layers are causal."""

    def place(self, hidden: Array, mask: Array | None) -> Array:
        """Which token of each text is taken, (B,)."""
        last = hidden.shape[1] - 1
        if mask is None:
            return super().place(hidden, mask) + last
        return last - mask[:, ::-1].argmax(axis=1)


class Prediction(Module):
    """y = norm(f(x W + b)), before the logits. x, y: (..., width). norm: None for no norm."""

    _activation: Any = FeedForward._activation

    def __init__(self, dense: Linear, activation: Any, norm: Any = None) -> None:
        self.dense, self.activation, self.norm = dense, activation, norm

    def __call__(self, x: Array) -> tuple[Array, Pullback]:
        """Return (y, backward); backward(dy) returns dx."""
        mapped, dense_backward = self.dense(x)
        active, activation_backward = self._activation()(mapped)
        y, norm_backward = (active, None) if self.norm is None else self.norm(active)

        def backward(dy: Array) -> Array:
            dactive = dy if norm_backward is None else norm_backward(dy)
            dmapped = activation_backward(dactive)
            dx = dense_backward(dmapped)
            return dx

        return y, backward

    def cost(self, batch: int, length: int) -> Cost:
        """Kept besides: the input, and what the activation needs; its output is counted by what reads it."""
        d_in, d_out = self.dense.weight.value.shape
        kept = d_in + (kept_by(self.activation) - 1) * d_out
        return super().cost(batch, length) + Cost(kept=batch * length * kept)


class Pooled(Module):
    """pooled = prediction(pool(hidden)): one vector of a text, and what some families have before the logits."""

    def __init__(self, pool: Module, prediction: Prediction) -> None:
        self.pool, self.prediction = pool, prediction

    def __call__(self, hidden: Array, mask: Array | None = None, rng: Rng | None = None) -> tuple[Array, Pullback]:
        """Return (pooled, backward); backward(dpooled) returns dhidden."""
        one, pool_backward = self.pool(hidden, mask, rng)
        pooled, prediction_backward = self.prediction(one)

        def backward(dpooled: Array) -> Array:
            done = prediction_backward(dpooled)
            dhidden = pool_backward(done)
            return dhidden

        return pooled, backward

    def cost(self, batch: int, length: int) -> Cost:
        """The prediction has one vector of each text."""
        return self.pool.cost(batch, length) + self.prediction.cost(batch, 1)


class CausalEncoder(Encoder):
    """A stack in which no token sees those after it."""

    names_in_tables: ClassVar[dict[str, str]] = {"embed.tokens": "tokens", "encoder": "stack"}

    def __call__(self, x: Array, **how: Any) -> tuple[Array, Pullback]:  # type: ignore[override]
        """Return (y, backward); backward(dy) returns dx."""
        return super().__call__(x, **how, causal=True)


class CountedEmbedding(InputEmbedding):
    """An embedding whose positions count the real tokens, where a mask says which these are."""

    def places(self, ids: Array, mask: Array | None) -> tuple[Array | None, Array | None]:
        """Which tokens are real, and the position of each among these."""
        return mask, None if mask is None or self.positions is None else positions_of(mask)


def read_as_a_whole(parts: Any) -> EncoderOnlyParts:
    """The parts of an encoder; those of a decoder become such, with layers that stay causal."""
    if isinstance(parts, EncoderOnlyParts):
        return parts
    embed = CountedEmbedding.__new__(CountedEmbedding)
    vars(embed).update(vars(parts.embed))
    return EncoderOnlyParts(embed, CausalEncoder.of(parts.stack.layers, parts.stack.final_norm), LastReal())


@dataclass(frozen=True)
class HeadParts(EncoderOnlyParts):
    """The parts of a body with a head. prediction: before the head; None for nothing."""

    prediction: Prediction | None
    head: Linear


@dataclass(frozen=True)
class HeadConfig:
    """A head, and the config of the body that it stands on.

    head: TOKENS, ANSWERS or REPLACED, or CLASSES on a body that has no classifier of its own. recipe, sizes: the body's
    config, by its place in this package and its fields. An attribute of that config is one of this one, too.
    """

    head: str
    n_classes: int
    recipe: str
    sizes: Mapping[str, Any]

    @classmethod
    def of(cls, body: Any, head: str, n_classes: int) -> HeadConfig:
        """A head on the body of this config."""
        kind = type(body)
        recipe = f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{PACKAGE}.")
        return cls(head, n_classes, recipe, dataclasses.asdict(body))

    @functools.cached_property
    def body(self) -> Any:
        """The config of the body."""
        return recipe_of(Path(), self.recipe)(**self.sizes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("recipe", "sizes"):  # while an object is made, these are not there
            raise AttributeError(name)
        return getattr(self.body, name)

    def build(self, rng: Rng | None = None) -> EncoderOnly:
        """The model of these sizes, untrained."""
        kind: Any = HEADS.get(self.head) or getattr(self.body, "classifier", Classifier)
        return kind(self, rng)

    def parts(self, rng: Rng) -> EncoderOnlyParts:
        """The parts: those of the body, what some bodies have before a head, and the head."""
        found, make = self.body.parts(rng), getattr(self.body, "before_head", lambda head, rng: None)
        parts, before = vars(read_as_a_whole(found)), make(self.head, rng)
        is_decoder = not isinstance(found, EncoderOnlyParts)
        width = _width(found.output) if is_decoder else self.body.d_model
        if self.head in HEADS:
            return HeadParts(**parts, prediction=before, head=Linear(width, self.n_classes, rng=rng))
        pool = parts["pool"] if before is None else before
        return ClassifierParts(**parts | {"pool": pool}, head=Linear(width, self.n_classes, not is_decoder, rng))


def _width(output: Any) -> int:
    """The width of the vectors that logits are made of."""
    table = output if isinstance(output, Embedding) else output.tokens
    return table.table.value.shape[1]


class Headed(EncoderOnly):
    """From ids to logits of each token. Each class below has its own loss."""

    def __init__(self, config: HeadConfig, rng: Rng | None = None) -> None:
        parts = parts_of(type(self).__name__, config, HeadConfig, HeadParts, rng)
        super().__init__(config, parts)
        self.prediction, self.head = parts.prediction, parts.head

    def __call__(
        self, ids: Array, mask: Array | None = None, types: Array | None = None, rng: Rng | None = None
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); logits: (B, T, n_classes). backward(dlogits) returns None."""
        hidden, hidden_backward = self.hidden(ids, mask, types, rng)
        ready, prediction_backward = (hidden, None) if self.prediction is None else self.prediction(hidden)
        logits, head_backward = self.head(ready)

        def backward(dlogits: Array) -> None:
            dready = head_backward(dlogits)
            dhidden = dready if prediction_backward is None else prediction_backward(dready)
            hidden_backward(dhidden)

        return logits, backward

    def loss(self, ids: Array, wanted: Array, mask: Array | None = None, **how: Any) -> tuple[Array, Pullback]:
        """Return (loss, backward); backward(dloss=1.0) returns None. how: types, rng, ignore_index=-100."""
        ignore_index = how.pop("ignore_index", -100)
        logits, model_backward = self(ids, mask, **how)
        compared, compared_backward = self.compared(logits, mask)
        loss, loss_backward = self.ops.cross_entropy(compared, wanted, ignore_index)

        def backward(dloss: Array | float = 1.0) -> None:
            dcompared = loss_backward(dloss)
            dlogits = compared_backward(dcompared)
            model_backward(dlogits)

        return loss, backward

    def compared(self, logits: Array, mask: Array | None) -> tuple[Array, Pullback]:
        """Return (compared, backward): the logits between which each softmax of the loss decides, in the last axis."""
        return logits, lambda dcompared: dcompared

    def some_targets(self, ids: Array, mask: Array | None) -> Array:
        """Targets that fit, for whoever only needs a loss."""
        xp = array_module(ids)
        return xp.zeros_like(ids) if mask is None else xp.where(mask, 0, -100)

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        d, n = self.head.weight.value.shape
        for name, size, cost in super().costs(batch, length):
            yield name, size, Cost() if name == "pool" else cost  # nothing is pooled here
        if self.prediction is not None:
            yield "prediction", (batch, length, d), self.prediction.cost(batch, length)
        kept = Cost(kept=batch * length * d)
        yield "head", (batch, length, n), self.head.cost(batch, length) + kept
        yield "loss", (), Cost(kept=2 * batch * length * n)


class TokenClassifier(Headed):
    """From ids to logits of each token's class, (B, T, n_classes). wanted: (B, T), -100 for those that do not count."""

    does = "has a label for each token"


class AnswerFinder(Headed):
    """From ids to logits (B, T, 2): that an answer starts at a token, and that it ends there.

    wanted: (B, 2), the places of its first and of its last token; -100 for those that do not count. The loss leaves out
    places that are padding.
    """

    does = "finds an answer in a text"

    def compared(self, logits: Array, mask: Array | None) -> tuple[Array, Pullback]:
        """Return (compared, backward); compared: (B, 2, T)."""
        xp = array_module(logits)
        places = logits.swapaxes(-1, -2)
        compared = places if mask is None else xp.where(mask[:, None, :], places, -xp.inf)

        def backward(dcompared: Array) -> Array:
            dplaces = dcompared if mask is None else xp.where(mask[:, None, :], dcompared, 0.0)
            dlogits = dplaces.swapaxes(-1, -2)
            return dlogits

        return compared, backward

    def some_targets(self, ids: Array, mask: Array | None) -> Array:
        """The first real token of each text, as start and end."""
        first = ids[:, 0] * 0 if mask is None else mask.argmax(axis=1)
        return array_module(ids).stack([first, first], axis=1)


class ReplacedTokenFinder(Headed):
    """From ids to one logit for each token, (B, T): above 0, it was replaced. wanted: (B, T), 1 where so, else 0."""

    does = "finds replaced tokens"

    def __call__(self, *inputs: Any, **how: Any) -> tuple[Array, Pullback]:
        """Return (logits, backward); logits: (B, T). backward(dlogits) returns None."""
        columns, columns_backward = super().__call__(*inputs, **how)
        return columns[..., 0], lambda dlogits: columns_backward(dlogits[..., None])

    def compared(self, logits: Array, mask: Array | None) -> tuple[Array, Pullback]:
        """Return (compared, backward); compared: (B, T, 2), a logit of 0 for "not replaced" beside ours."""
        compared = array_module(logits).stack([logits * 0.0, logits], axis=-1)

        def backward(dcompared: Array) -> Array:
            dlogits = dcompared[..., 1]
            return dlogits

        return compared, backward


HEADS: dict[str, type[Headed]] = {TOKENS: TokenClassifier, ANSWERS: AnswerFinder, REPLACED: ReplacedTokenFinder}
