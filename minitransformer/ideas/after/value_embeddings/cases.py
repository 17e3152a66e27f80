"""The cases of value embeddings for `minitransformer check`."""

from typing import Any

from ....check.verify.catalogue import case
from ....check.verify.catalogue.caches import IDS, padded, with_cache
from ....check.verify.catalogue.case import Random, Setup, call, ids, layer, ordinary, some_mask
from ....check.verify.catalogue.ranks_of_arrays import leading
from ....core import layers
from ..grouped import grouped
from ..rotary import rotary_turn
from .layer import ValueAttention, ValueEmbedding
from .model import ValueLanguageModelConfig


def _embedding() -> ValueEmbedding:
    return ValueEmbedding(layers.Linear(5, 6), 2, 4, 3)


def _shared() -> ValueAttention:
    attention = grouped(6, 4, 2, 2, turn=rotary_turn(50.0))
    return ValueAttention.like(attention, ValueEmbedding(attention.value, 2, 5, 3))


def _model(r: Random) -> Any:
    sizes: dict[str, Any] = {"d_model": 4, "n_heads": 2, "d_ff": 6, "n_layers": 3, "n_channels": 3, "dropout": 0.0}
    return ordinary(ValueLanguageModelConfig(7, max_length=6, attention_dropout=0.0, **sizes).build(), r)


def _loss(r: Random) -> Setup:
    model = _model(r)
    return call(r, model.loss, IDS[:, :-1], IDS[:, 1:], module=model)


layer("ValueEmbedding", _embedding, (2, 4, 5), ids(4, 2, 4))
for _rank, _axes in leading((..., 5)):
    layer(f"ValueEmbedding of rank {_rank}", _embedding, (*_axes, 5), ids(4, *_axes), along_directions=True)
layer("ValueAttention", _shared, (2, 4, 6), ids(5, 2, 4), mask=some_mask(2, 4, 4))
layer("ValueAttention looking back", _shared, (2, 4, 6), ids(5, 2, 4), causal=True)
for _rank, _axes in leading((..., 3, 6)):
    layer(f"ValueAttention of rank {_rank}", _shared, (*_axes, 3, 6), ids(5, *_axes, 3), along_directions=True)
case.case("layer", "ValueLanguageModel", _loss, True)
case.case("layer", "ValueLanguageModel with a cache", with_cache(_model), True)
case.case("layer", "ValueLanguageModel padded on the left", padded(_model), True)
