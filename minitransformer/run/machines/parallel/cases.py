"""Cases for collectives. Three ranks run in threads, and a case is one function of the arrays of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....check.verify.catalogue.case import Random, Setup, call, case, ordinary
from ....core import layers, models, ops
from ....core.arrays.backend import Array, Pullback, array_module, device_of
from ....ideas.after.gated import GatedFeedForward
from .. import parallel
from .group import Group

_RANKS = 3
_STRETCHES = [2, 2, 3]  # how many of seven tokens each rank has

Collective = Callable[[Array, Group], tuple[Array, Pullback]]


def across_ranks(collective: Collective, *xs: Array, copied: bool = False) -> tuple[Array, Pullback]:
    """Run collective(x, group) on every rank. xs: one array for each rank, or a single one that all ranks get.

    y: (n, ...), the outputs of all ranks. copied: the ranks return copies of one value, so y is that value, with NaN
    where the copies differ. The pullback takes dy, of the shape of y, and returns dxs in the form of xs.
    """
    xp, single = array_module(xs[0]), len(xs) == 1
    ranks = parallel.thread_ranks(_RANKS)
    both = parallel.in_threads(ranks, lambda group: collective(xs[0 if single else group.rank], group))
    ys = [y for y, _ in both]
    y = _one(ys) if copied else xp.stack(ys)

    def backward(dy: Array) -> Any:
        dxs = parallel.in_threads(ranks, lambda group: both[group.rank][1](dy if copied else dy[group.rank].copy()))
        return _one(dxs) if single else tuple(dxs)

    return y, backward


def _one(copies: list[Array]) -> Array:
    """The one value, and NaN where the copies differ."""
    xp = array_module(copies[0])
    same = (xp.stack(copies) == copies[0]).all(axis=0)
    return xp.where(same, copies[0], xp.nan).astype(copies[0].dtype)


def _enter(
    name: str, collective: Collective, *shapes: tuple[int, ...], truth: Callable[..., Any], copied: bool = False
) -> None:
    """Enter a case of a collective, with normal random numbers. shapes: one for each rank, or one that all ranks get.

    truth: the output of across_ranks, computed by NumPy from the arrays of all ranks.
    """

    def build(r: Random) -> Setup:
        inputs = (collective, *(r.normal(size=shape) for shape in shapes))
        return Setup(across_ranks, inputs, {"copied": copied}, truth=lambda _, *xs, copied: truth(*xs))

    case("collective", name, build)


def _passed_on(x: Array, group: Group) -> tuple[Array, Pullback]:
    """Rank 0 sends its x to rank 2 and returns 0. The others return twice their x, and rank 2 adds what it received."""
    xp = array_module(x)
    if group.rank == 0:
        _, send_backward = parallel.send(x, group, 2)
        return xp.zeros_like(x), lambda dy: send_backward()
    if group.rank == 1:
        return 2.0 * x, lambda dy: 2.0 * dy
    received, receive_backward = parallel.receive(x, group, 0)

    def backward(dy: Array) -> Array:
        receive_backward(dy)
        return 2.0 * dy

    return received + 2.0 * x, backward


_EACH = [(2, 4)] * _RANKS
# A case looks its collective up when it runs, so it checks whatever `parallel` holds at that moment.
_enter("broadcast", lambda x, group: parallel.broadcast(x, group, 1), *_EACH, truth=lambda x, y, z: np.stack([y, y, y]))
_enter(
    "reduce",
    lambda x, group: parallel.reduce(x, group, 2),
    *_EACH,
    truth=lambda x, y, z: np.stack([0.0 * x, 0.0 * x, x + y + z]),
)
_enter(
    "all_gather",
    lambda x, group: parallel.all_gather(x, group),
    *_EACH,
    truth=lambda *xs: np.stack([np.concatenate(xs)] * _RANKS),
)
_enter(
    "reduce_scatter",
    lambda x, group: parallel.reduce_scatter(x, group),
    *[(6, 2)] * _RANKS,
    truth=lambda x, y, z: (x + y + z).reshape(3, 2, 2),
)
_enter("all_reduce", lambda x, group: parallel.all_reduce(x, group), *_EACH, truth=lambda *xs: sum(xs), copied=True)
_enter("identity", lambda x, group: parallel.identity(x, group), (2, 4), truth=lambda x: np.stack([x] * _RANKS))
_enter(
    "mean",
    lambda x, group: parallel.mean(x, group, (5.0, 2.0, 4.0)[group.rank]),
    *[(3,)] * _RANKS,
    truth=lambda x, y, z: (5.0 * x + 2.0 * y + 4.0 * z) / 11.0,
    copied=True,
)
_enter("send", _passed_on, *_EACH, truth=lambda x, y, z: np.stack([0.0 * x, 2.0 * y, x + 2.0 * z]))
_enter("receive", _passed_on, *_EACH, truth=lambda x, y, z: np.stack([0.0 * x, 2.0 * y, x + 2.0 * z]))


def enter_cut(name: str, make: Callable[[], Any], *shapes: tuple[int, ...], **options: Any) -> None:
    """Enter a case of a cut module: its output and gradients must equal those of the whole module."""

    def build(r: Random) -> Setup:
        whole = ordinary(make(), r)

        def across(*inputs: Array) -> tuple[Array, Pullback]:
            ranks = parallel.thread_ranks(_RANKS)
            parts = parallel.in_threads(ranks, lambda group: parallel.Cut(whole, group))
            both = parallel.in_threads(ranks, lambda group: parts[group.rank](*inputs, **options))

            def backward(dy: Array) -> Any:
                for part in parts:
                    part.zero_grad()
                results = parallel.in_threads(ranks, lambda group: both[group.rank][1](dy))
                for parameters in zip(whole.parameters(), *(_in_order(part) for part in parts), strict=True):
                    (_, parameter), *own = parameters
                    parameter.grad += _joined([p.grad for p in own], parameter.grad.shape)
                alone = len(inputs) == 1
                return _one(results) if alone else tuple(_one(list(copies)) for copies in zip(*results, strict=True))

            return _one([y for y, _ in both]), backward

        setup = call(r, across, *shapes, module=whole)
        return Setup(across, setup.inputs, {}, whole, lambda *inputs: whole(*inputs, **options)[0])

    case("collective", name, build)


def _in_order(cut: Any) -> list[Any]:
    """The parameters of a cut module in the order of the whole one, where the bias of the output comes last."""
    return [p for _, p in cut.part.parameters()] + ([] if cut.bias is None else [cut.bias])


def _joined(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """The whole array, from each rank's stretch or copy of it."""
    axis = next((i for i, n in enumerate(parts[0].shape) if n != shape[i]), None)
    return _one(parts) if axis is None else array_module(parts[0]).concatenate(parts, axis=axis)


_TARGETS = [[0, 6, 3], [1, -1, 5]]


def _enter_cross_entropy(name: str, label_smoothing: float = 0.0) -> None:
    """A vocabulary of seven tokens, cut into parts for three ranks; one target is ignored."""

    def collective(logits: Array, group: Group) -> tuple[Array, Pullback]:
        targets = array_module(logits).asarray(_TARGETS)
        return parallel.vocabulary_cross_entropy(logits, targets, group, 7, -1, label_smoothing)

    def truth(*parts: Array) -> Array:
        return ops.cross_entropy(np.concatenate(parts, axis=-1), np.array(_TARGETS), -1, label_smoothing)[0]

    _enter(name, collective, *((2, 3, n) for n in _STRETCHES), truth=truth, copied=True)


def _looked_up(x: Array, group: Group) -> tuple[Array, Pullback]:
    """Look up rows in a table x that is cut into parts. Backward gathers the gradients of the parts."""
    whole = layers.Embedding(7, 4)
    whole.table.value, whole.table.grad = x, array_module(x).zeros_like(x)
    table = parallel.CutEmbedding(whole, group)
    y, embedding_backward = table(array_module(x).asarray([[0, 6, 3], [1, 6, 5]]))

    def backward(dy: Array) -> Array:
        table.zero_grad()
        embedding_backward(dy)
        return group.gather(table.table.grad, _STRETCHES)

    return y, backward


def _embedded(x: Array, group: Group) -> tuple[Array, Pullback]:
    """The logits for x from a cut table: the logits of all ranks, side by side."""
    whole = ordinary(layers.Embedding(7, 4), np.random.default_rng(5)).to(device_of(x).name, str(x.dtype))
    table = parallel.CutEmbedding(whole, group)
    logits, unembed_backward = table.unembed(x)
    y = group.gather(logits.T, _STRETCHES).T

    def backward(dy: Array) -> Array:
        end = sum(_STRETCHES[: group.rank + 1])
        return unembed_backward(dy[:, end - _STRETCHES[group.rank] : end])

    return y, backward


_TABLE = ordinary(layers.Embedding(7, 4), np.random.default_rng(5)).table.value
_enter_cross_entropy("vocabulary_cross_entropy")
_enter_cross_entropy("vocabulary_cross_entropy with label smoothing", 0.1)
_enter("CutEmbedding looks up", _looked_up, (7, 4), truth=lambda table: table[[[0, 6, 3], [1, 6, 5]]], copied=True)
_enter("CutEmbedding makes logits", _embedded, (3, 4), truth=lambda x: x @ _TABLE.T, copied=True)
enter_cut("Cut of a feed-forward network", lambda: layers.FeedForward(4, 9, "gelu"), (2, 3, 4))
enter_cut("Cut of a gated network", lambda: GatedFeedForward(4, 6, bias=False), (2, 3, 4))
enter_cut("Cut of attention", lambda: layers.MultiHeadAttention(6, 3), (2, 3, 6), causal=True)
enter_cut("Cut of attention across to a memory", lambda: layers.MultiHeadAttention(6, 3), (2, 3, 6), (2, 5, 6))


def _piece(r: Random) -> Setup:
    """Half of a batch, on one rank that both embeds the tokens and computes the loss."""
    sizes: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6, "n_layers": 1, "max_length": 6, "dropout": 0.0}
    model = ordinary(models.LanguageModel(models.LanguageModelConfig(7, tie_output=False, **sizes)), r)

    def of_a_piece(ids: Array, wanted: Array) -> tuple[Array, Pullback]:
        stage, _ = parallel.stage_of(model, ids, wanted, 2, parallel.thread_ranks(1)[0])
        return stage(0, None)

    def truth(ids: Array, wanted: Array) -> Array:
        return model.loss(ids[:1], wanted[:1])[0] / 3.0  # the first piece has one of three rows

    ids = np.array([[1, 5, 5, 2, 3], [1, 4, 0, 3, 3], [6, 2, 2, 1, 0]])
    return replace(call(r, of_a_piece, ids[:, :-1], ids[:, 1:], module=model), truth=truth, intermediates=False)


case("collective", "stage_of a piece of a batch", _piece)
