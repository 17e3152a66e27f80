"""Fast twins: the same model with fast ops, and with whole sub-layers as one call.

A twin shares the parameters of its original, under the same names; only the code that computes differs.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...core import layers
from ...core.arrays.backend import Array, Pullback, Rng
from ...core.layers.cache import Cache, KeyValueCache, no_backward
from ...core.layers.module import Module, Parameter
from ...core.models import LanguageModel, Transformer
from ...core.training.optimizers import Adam, Optimizer
from . import adam, cuda, ops
from .decoding import cached_layer, cached_layers
from .sublayers import residual_attention, residual_feed_forward

T = TypeVar("T", bound=Module | Optimizer)


def accelerate(original: T) -> T:
    """The fast twin of a module, such as a whole model, or of an optimiser. The original stays unchanged.

    The twin shares the parameters under the same names and gives the same results up to rounding. So if one of the two
    learns, the other has learned too. `twin.textbook` is the original form of a module. Raises TypeError for anything
    else.

    >>> fast_model = accelerate(model)
    >>> loss, backward = fast_model.loss(ids, wanted)
    """
    if isinstance(original, Module):
        return _copied(original, _twin_of, {})
    if isinstance(original, Optimizer):
        twin: Any = copy.copy(original)
        if isinstance(original, Adam):
            twin.__class__ = _twin_of(type(original))
        return twin
    raise TypeError(f"accelerate: expected a module or an optimiser, got {type(original).__name__}")


class Fast:
    """Base of every twin of a module: it has the fast ops, and the way back to the original."""

    ops = ops

    @property
    def textbook(self) -> Any:
        """The same module with the textbook ops and the same parameters."""
        return _copied(self, _original_of, {})


class Residual(Fast, layers.Residual):
    """Attention or a feed-forward network as one call, if its parts have the usual classes; see sublayers.py."""

    original = layers.Residual

    def __call__(self, x: Array, *others: Array, rng: Rng | None = None, **options: Any) -> tuple[Array, Pullback]:
        """See core/layers/residual.py."""
        form = self._form(others, options) if type(x) is np.ndarray else None
        fast = form(self, x, *others, rng=rng, **options) if form else None
        return super().__call__(x, *others, rng=rng, **options) if fast is None else fast

    def _form(self, others: tuple[Array, ...], options: dict[str, Any]) -> Any:
        """The compiled form, if all parts have exactly these classes: methods of other classes may do more."""
        s: Any = self.sublayer
        if not _are(layers.LayerNorm, self.norm):
            return None
        if _are(layers.FeedForward, s):
            plain = not others and not options and _are(layers.Linear, s.inner, s.output)
            return residual_feed_forward if plain else None
        if not _are(layers.MultiHeadAttention, s) or not _are(layers.ScaledDotProduct, s.mix) or len(others) > 1:
            return None
        plain = s.mix.scale is None and not s.turn_query and not s.turn_key
        return residual_attention if plain and _are(layers.Linear, s.query, s.key, s.value, s.output) else None


class EncoderLayer(Fast, layers.EncoderLayer):
    """A new token on the cache as one call; see decoding.py."""

    original = layers.EncoderLayer

    def __call__(
        self,
        x: Array,
        mask: Array | None = None,
        rng: Rng | None = None,
        cache: KeyValueCache | None = None,
        **how: Any,
    ) -> tuple[Array, Pullback]:
        """See core/layers/blocks.py."""
        if cache is not None and _decodes(rng, **how):
            written = cached_layer(x, self, (cache,), masks=(mask, None))
            if written is not None:
                return written, no_backward
        return super().__call__(x, mask, rng, cache=cache, **how)


def _decodes(rng: Any, causal: Any = False, **how: Any) -> bool:
    """Whether nothing is asked for that the loop of decoding.py cannot do."""
    return rng is None and type(causal) is bool and all(given is None for given in how.values())


def _are(kind: Any, *modules: Any) -> bool:
    """Whether all have exactly this class, or its twin class."""
    return {kind, _twin_of(kind)}.issuperset(map(type, modules))


def _original_of(kind: type[Any]) -> type[Any]:
    return vars(kind).get("original", kind)


def _copied(item: Any, class_of: Any, made: dict[int, Any]) -> Any:
    """A copy of a tree of modules, with other classes and the same Parameters. made: the copies so far, by id."""
    if isinstance(item, list | tuple):
        return type(item)(_copied(part, class_of, made) for part in item)
    if not isinstance(item, Module):
        return item
    if id(item) not in made:
        made[id(item)] = twin = copy.copy(item)
        twin.__class__ = class_of(type(item))
        vars(twin).update({name: _copied(part, class_of, made) for name, part in vars(item).items()})
    return made[id(item)]


class DecoderLayer(Fast, layers.DecoderLayer):
    """A new token on the caches as one call; see decoding.py."""

    original = layers.DecoderLayer

    def __call__(
        self,
        x: Array,
        memory: Array,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        cache: tuple[KeyValueCache, KeyValueCache] | None = None,
        rng: Rng | None = None,
    ) -> tuple[Array, Pullback]:
        """See core/layers/blocks.py."""
        if cache is not None and rng is None and memory is not None:
            written = cached_layer(x, self, cache, memory, (mask, memory_mask))
            if written is not None:
                return written, no_backward
        return super().__call__(x, memory, mask, memory_mask, cache, rng)


class FastLoss(Fast):
    """A model whose loss makes logits only where a target counts: padding needs none."""

    def loss(self, *given: Any, **options: Any) -> tuple[Array, Pullback]:
        """See core/models/."""
        model: Any = super()
        bound = inspect.signature(model.loss).bind(*given, **options)
        wanted, ignored = bound.arguments["wanted"], bound.arguments.get("ignore_index", -100)
        counted = wanted != ignored if type(wanted) is np.ndarray and wanted.dtype.kind in "iu" else None
        ids: Any = bound.arguments.get("target", bound.arguments.get("ids"))
        if counted is None or np.shape(ids) != wanted.shape or counted.all() or not counted.any():
            return model.loss(*given, **options)
        some: Any = copy.copy(self)
        some.output = _Rows(some.output, counted)
        bound.arguments["wanted"] = wanted[counted]
        return model.loss.__func__(some, *bound.args, **bound.kwargs)


@dataclass(frozen=True)
class _Rows:
    """An output that turns only some vectors into logits. rows: boolean, (B, T)."""

    output: Any
    rows: Array

    def unembed(self, x: Array) -> tuple[Array, Pullback]:
        """logits: (n, vocabulary)."""
        logits, unembed_backward = self.output.unembed(x[self.rows])

        def backward(dlogits: Array) -> Array:
            dx = np.zeros_like(x)
            dx[self.rows] = unembed_backward(dlogits)
            return dx

        return logits, backward


class FastAdam(Adam):
    """Adam and AdamW with a step in one pass over the numbers; see adam.py."""

    def _move(self, p: Parameter, remembered: dict[str, Array], rate: float) -> None:
        kind = type(p.value)
        if "mean" not in remembered:  # Muon updates it, not Adam
            super()._move(p, remembered, rate)
            return
        kernel = adam.adam if kind is np.ndarray else cuda.adam.adam if kind.__module__ == "cupy" else None
        arrays = (p.value, p.grad, remembered["mean"], remembered["square"])
        if not (kernel and kernel(*arrays, int(self.steps), rate, self.betas, self.eps, self._shrink(p, rate))):
            super()._move(p, remembered, rate)


class Encoder(Fast, layers.Encoder):
    """A new token through all layers as one call; see decoding.py."""

    original = layers.Encoder

    def __call__(
        self, x: Array, mask: Array | None = None, rng: Rng | None = None, cache: Cache | None = None, **how: Any
    ) -> tuple[Array, Pullback]:
        """See core/layers/blocks.py."""
        if type(cache) is Cache and len(cache.self_attention) == len(self.layers) and _decodes(rng, **how):
            caches = [(each,) for each in cache.self_attention]
            whole = all(type(layer) is EncoderLayer for layer in self.layers)
            written = cached_layers(x, self.layers, caches, masks=(mask, None)) if whole else None
            if written is not None:
                return self._finish(written)[0], no_backward
        return super().__call__(x, mask, rng, cache, **how)


_twins: dict[type[Any], type[Any]] = {kind.original: kind for kind in (Residual, EncoderLayer, DecoderLayer, Encoder)}


def _twin_of(kind: type[Any]) -> type[Any]:
    """The twin class of a class, made at the first call and then reused."""
    if twin := _twins.get(kind):
        return twin
    if issubclass(kind, Fast | FastAdam):
        return kind
    base = FastLoss if kind in (LanguageModel, Transformer) else Fast
    bases = (FastAdam if issubclass(kind, Adam) else base, kind)
    return _twins.setdefault(
        kind, type(kind.__name__, bases, {"__module__": kind.__module__, "__doc__": kind.__doc__, "original": kind})
    )
