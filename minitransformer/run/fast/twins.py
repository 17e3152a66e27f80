"""Fast twins: the same model with fast ops, and with whole sub-layers as one call.

A twin shares the parameters of its original, under the same names; only the code that computes differs.
"""

from __future__ import annotations

import copy
import inspect
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from ...core import layers
from ...core.arrays.backend import Array, Pullback, Rng
from ...core.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from ...core.layers.cache import no_backward
from ...core.layers.module import Module, Parameter
from ...core.models import Classifier, LanguageModel, Transformer
from ...core.models.encoder_only import MeanPool
from ...core.training.optimizers import Adam, Optimizer
from ...ideas.published.text_encoder import FirstToken
from . import adam, cuda, ops
from .decoding import new_token
from .padding import WithoutPadding
from .row_blocks import class_of
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

    @property
    def ops(self) -> Any:
        """The fast ops, also where a float16 module has ops of its own (Module.to)."""
        return ops

    @property
    def textbook(self) -> Any:
        """The same module with the textbook ops and the same parameters."""
        return _copied(self, lambda kind: vars(kind).get("original", kind), {})


class Residual(Fast, layers.Residual):
    """Attention or a feed-forward network as one call, if its parts have the usual classes; see sublayers.py."""

    original = layers.Residual

    def __call__(self, x: Array, *others: Array, rng: Rng | None = None, **options: Any) -> tuple[Array, Pullback]:
        """See core/layers/residual.py."""
        form = self.form(others, options) if type(x) is np.ndarray else None
        fast = form(self, x, *others, rng=rng, **options) if form else None
        return super().__call__(x, *others, rng=rng, **options) if fast is None else fast

    def form(self, others: tuple[Array, ...], options: dict[str, Any]) -> Any:
        """The compiled form, if all parts have exactly these classes: methods of other classes may do more."""
        s: Any = self.sublayer
        form: Any = None
        maps: tuple[Any, ...] = ()
        if class_of(s) is layers.FeedForward and not others and not options:
            form, maps = residual_feed_forward, (s.inner, s.output)
        if class_of(s) is layers.MultiHeadAttention and class_of(s.mix) is layers.ScaledDotProduct and len(others) < 2:
            plain = s.mix.scale is None and not s.turn_query and not s.turn_key
            form, maps = residual_attention if plain else None, (s.query, s.key, s.value, s.output)
        usual = class_of(self.norm) is layers.LayerNorm and all(class_of(each) is layers.Linear for each in maps)
        return form if usual else None


class Decoding(Fast):
    """Base of the twins of layers and stacks: a new token on their caches is one call; see decoding.py."""

    def __call__(self, x: Array, *given: Any, **how: Any) -> tuple[Array, Pullback]:
        """See core/layers/blocks.py."""
        ops_alone: Any = super()
        written = new_token(self, x, *given, **how)
        if written is None:
            made: tuple[Array, Pullback] = ops_alone.__call__(x, *given, **how)
            return made
        return self._finish(written)[0] if isinstance(self, Encoder | Decoder) else written, no_backward


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


class FastLoss(Fast):
    """A model whose loss leaves padding out, and makes logits only where a target counts."""

    def loss(self, *given: Any, **options: Any) -> tuple[Array, Pullback]:
        """See core/models/."""
        model: Any = super()
        bound = inspect.signature(model.loss).bind(*given, **options)
        wanted, ignored = bound.arguments["wanted"], bound.arguments.get("ignore_index", -100)
        counted = wanted != ignored if type(wanted) is np.ndarray and wanted.dtype.kind in "iu" else None
        ids: Any = bound.arguments.get("target", bound.arguments.get("ids"))
        if counted is None or np.shape(ids) != wanted.shape or not counted.any():
            return model.loss(*given, **options)
        some: Any = copy.copy(self)
        for name in {"encoder", "decoder", "stack"} & vars(self).keys():
            vars(some)[name] = WithoutPadding(getattr(self, name), None if name == "encoder" else counted)
        output = some.output

        def unembed(x: Array) -> tuple[Array, Pullback]:
            logits, unembed_backward = output.unembed(x[counted])

            def backward(dlogits: Array) -> Array:
                dx = np.zeros_like(x)
                dx[counted] = unembed_backward(dlogits)
                return dx

            return logits, backward

        if not counted.all():
            some.output = SimpleNamespace(unembed=unembed)
            bound.arguments["wanted"] = wanted[counted]
        return model.loss.__func__(some, *bound.args, **bound.kwargs)


class FastClassifier(Fast):
    """A classifier that leaves padding out, if its pool reads real tokens alone."""

    def __call__(self, *given: Any, **options: Any) -> tuple[Array, Pullback]:
        """See core/models/classifier.py."""
        model: Any = super()
        some: Any = copy.copy(self)
        if class_of(some.pool) in (MeanPool, FirstToken):
            some.encoder = WithoutPadding(some.encoder)
        return model.__call__.__func__(some, *given, **options)


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


_twins: dict[type[Any], type[Any]] = {Residual.original: Residual}
_BASES: dict[Any, Any] = {
    **dict.fromkeys((EncoderLayer, DecoderLayer, Encoder, Decoder), Decoding),
    **dict.fromkeys((LanguageModel, Transformer), FastLoss),
    Classifier: FastClassifier,
}


def _twin_of(kind: type[Any]) -> type[Any]:
    """The twin class of a class, made at the first call and then reused."""
    if twin := _twins.get(kind):
        return twin
    if issubclass(kind, Fast | FastAdam):
        return kind
    bases = (FastAdam if issubclass(kind, Adam) else _BASES.get(kind, Fast), kind)
    return _twins.setdefault(
        kind, type(kind.__name__, bases, {"__module__": kind.__module__, "__doc__": kind.__doc__, "original": kind})
    )
