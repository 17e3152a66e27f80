"""Text encoders: they read a whole text at once and describe it. Devlin et al. 2019, "BERT".

    hidden = encoder(embed(ids))                                          a vector for each token
    masked-language model:  logits = norm(f(hidden W + b)) tableᵀ + c      which token is behind each mask
    classifier:             logits = f(hidden_0 W + b) V + d              which class the text has

In RoBERTa (Liu et al. 2019) positions count only the real tokens. DistilBERT (Sanh et al. 2019) has no token types.
ALBERT (Lan et al. 2020) uses one layer many times, and projects a narrow token table to the width of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays.backend import Array, Pullback, array_module
from ..arrays.boundary import check_sizes
from ..arrays.float16 import sum_over
from ..layers import (
    Cost,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    InputEmbedding,
    LayerNorm,
    LearnedPositions,
    Linear,
    Module,
    MultiHeadAttention,
    Parameter,
    Residual,
)
from ..layers.cost import Costs
from ..layers.feed_forward import kept_by
from ..layers.module import generator
from ..models.encoder_decoder import check_config, check_sequences, keys
from ..models.language_model import positions_of


@dataclass(frozen=True)
class TextEncoderConfig:
    """Sizes of a text encoder. The defaults are those of BERT-Base."""

    vocabulary: int
    max_length: int = 512
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    n_layers: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    norm_eps: float = 1e-12
    types: int = 2  # token types, one for each of two texts; 0: the model has no types
    width: int | None = None  # of the embedding tables, which are then projected to d_model
    shared: bool = False  # one layer, used n_layers times
    position_offset: int = 0  # rows of the table of positions before position 0
    count_real: bool = False  # positions count only the real tokens
    pooler: bool = True  # tanh(hidden_0 W + b), a vector for the whole text
    tie_output: bool = True  # the table of tokens also makes the logits of a masked-language model


class TextEncoder(Module):
    """From ids to a vector for each token. ids: (B, T); mask: boolean (B, T), True where a token is real.

    types: integers (B, T), 0 for the first text and 1 for the second; hidden: (B, T, D). Where positions count the real
    tokens (RoBERTa), the padding id is known, so a call without a mask masks the padding by itself.
    """

    def __init__(self, config: TextEncoderConfig, rng: np.random.Generator | None = None) -> None:
        check_config("TextEncoder", config, TextEncoderConfig)
        rng = generator(rng)
        self.config = config
        width = config.d_model if config.width is None else config.width
        self.tokens = Embedding(config.vocabulary, width, std=0.02, rng=rng)
        self.embed = InputEmbedding(
            self.tokens,
            LearnedPositions(config.max_length, width, rng=rng, offset=config.position_offset),
            dropout=config.dropout,
            types=Embedding(config.types, width, std=0.02, rng=rng) if config.types else None,
            norm=LayerNorm(width, config.norm_eps),
            projection=None if config.width is None else Linear(width, config.d_model, rng=rng),
        )

        def layer() -> EncoderLayer:
            attention = MultiHeadAttention(config.d_model, config.n_heads, dropout=config.attention_dropout, rng=rng)
            feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, rng=rng)
            return EncoderLayer.of(*(residual(sublayer) for sublayer in (attention, feed_forward)))

        def residual(sublayer: Module) -> Residual:
            return Residual(sublayer, LayerNorm(config.d_model, config.norm_eps), "post", config.dropout)

        check_sizes("TextEncoder", n_layers=config.n_layers)
        n = config.n_layers
        self.stack = Encoder.of([layer()] * n if config.shared else [layer() for _ in range(n)])
        self.pooler = Linear(config.d_model, config.d_model, rng=rng) if config.pooler else None

    def __call__(
        self,
        ids: Array,
        mask: Array | None = None,
        types: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (hidden, backward); backward(dhidden) returns None, since ids have no gradient."""
        check_sequences("TextEncoder", "ids", ids)
        if mask is None and self.config.count_real:
            mask = ids != self.config.position_offset - 1  # RoBERTa's positions begin one row after that of this id
            mask = None if mask.all() else mask
        real = keys("TextEncoder", "mask", mask, ids.shape)
        at = None if mask is None or not self.config.count_real else positions_of(mask)
        embedded, embed_backward = self.embed(ids, rng=rng, positions=at, types=types)
        hidden, stack_backward = self.stack(embedded, mask=real, rng=rng)

        def backward(dhidden: Array) -> None:
            dembedded = stack_backward(dhidden)
            embed_backward(dembedded)

        return hidden, backward

    def costs(self, batch: int, length: int, name: str = "") -> Costs:
        """What each part costs in training; see `minitransformer.cost`. name: before that of each part."""
        shape = (batch, length, self.config.d_model)
        yield f"{name}tokens", shape, Cost()
        yield f"{name}embed", shape, self.embed.cost(batch, length)
        yield from self.stack.costs(f"{name}stack", batch, length)
        if self.pooler is not None:
            yield f"{name}pooler", (batch, shape[-1]), _pooling_cost(self.pooler, batch, length)

    def pool(self, hidden: Array) -> tuple[Array, Pullback]:
        """pooled = tanh(hidden_0 W + b), from the vector of the first token. hidden: (B, T, D); pooled: (B, D).

        backward(dpooled) returns dhidden. Raises ValueError where the model has no pooler.
        """
        if self.pooler is None:
            raise ValueError("TextEncoder: this model has no pooler; average the hidden states with ops.mean_pool")
        return _of_first(self, hidden, self.pooler)


class MaskedLanguageModel(Module):
    """From ids to logits for each token, (B, T, vocabulary), to guess masked ones. Devlin et al. 2019, section 3.1."""

    def __init__(self, config: TextEncoderConfig, rng: np.random.Generator | None = None) -> None:
        check_config("TextEncoder", config, TextEncoderConfig)
        rng = generator(rng)
        self.config = config
        self.encoder = TextEncoder(config, rng)
        width = self.encoder.tokens.table.value.shape[1]
        self.dense = Linear(config.d_model, width, rng=rng)
        self.norm = LayerNorm(width, config.norm_eps)
        self.output = None if config.tie_output else Embedding(config.vocabulary, width, std=0.02, rng=rng)
        self.logit_bias = Parameter(np.zeros(config.vocabulary, np.float32))

    def __call__(
        self,
        ids: Array,
        mask: Array | None = None,
        types: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None."""
        hidden, encoder_backward = self.encoder(ids, mask, types, rng)
        mapped, dense_backward = self.dense(hidden)
        active, activation_backward = self._activate(mapped)
        normalized, norm_backward = self.norm(active)
        products, unembed_backward = (self.output or self.encoder.tokens).unembed(normalized)
        logits = products + self.logit_bias.value

        def backward(dlogits: Array) -> None:
            self.logit_bias.grad += sum_over(dlogits, axis=(0, 1))
            dproducts = dlogits
            dnormalized = unembed_backward(dproducts)
            dactive = norm_backward(dnormalized)
            dmapped = activation_backward(dactive)
            dhidden = dense_backward(dmapped)
            encoder_backward(dhidden)

        return logits, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        vocabulary, width = self.encoder.tokens.table.value.shape
        shape, rows = (batch, length, width), batch * length
        table = self.output or self.encoder.tokens
        kept = Cost(kept=rows * (self.config.d_model + (kept_by(self.config.activation) - 1) * width))
        for name, size, cost in self.encoder.costs(batch, length, "encoder."):
            yield name, size, Cost() if name == "encoder.pooler" else cost  # nothing is pooled here
        yield "dense", shape, self.dense.cost(batch, length) + kept
        yield "norm", shape, self.norm.cost(batch, length)
        yield "output", (batch, length, vocabulary), table.unembed_cost(batch, length)
        yield "loss", (), Cost(kept=2 * rows * vocabulary)

    def _activate(self, x: Array) -> tuple[Array, Pullback]:
        approximate = {"approximate": "tanh"} if self.config.activation == "gelu_tanh" else {}
        return getattr(self.ops, self.config.activation.removesuffix("_tanh"))(x, **approximate)

    def loss(
        self,
        ids: Array,
        wanted: Array,
        mask: Array | None = None,
        types: Array | None = None,
        ignore_index: int = -100,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the masked tokens. wanted: (B, T), ignore_index elsewhere. backward(dloss=1.0): None."""
        logits, model_backward = self(ids, mask, types, rng)
        return _loss(self, logits, model_backward, wanted, ignore_index)


class TextClassifier(Module):
    """From ids to the logits of a text's class, (B, n_classes), by its first token: f(hidden_0 W + b) V + d.

    activation: f, "tanh" (the pooler of BERT and ALBERT, the head of RoBERTa) or "relu" (DistilBERT). The encoder's
    pooler contains W, b and tanh; without one (config.pooler is False) W and b are the classifier's `dense`.
    """

    def __init__(
        self,
        config: TextEncoderConfig,
        n_classes: int,
        activation: str = "tanh",
        rng: np.random.Generator | None = None,
    ) -> None:
        check_config("TextClassifier", config, TextEncoderConfig)
        if activation not in ("tanh", "relu"):
            raise ValueError(f'TextClassifier: activation must be "tanh" or "relu", got {activation!r}')
        if config.pooler and activation != "tanh":
            raise ValueError('TextClassifier: a pooler uses tanh; for "relu" give a config with pooler=False')
        rng = generator(rng)
        self.config, self.activation = config, activation
        self.encoder = TextEncoder(config, rng)
        self.dense = None if config.pooler else Linear(config.d_model, config.d_model, rng=rng)
        self.output = Linear(config.d_model, n_classes, rng=rng)

    def __call__(
        self,
        ids: Array,
        mask: Array | None = None,
        types: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None."""
        hidden, encoder_backward = self.encoder(ids, mask, types, rng)
        if self.dense is None:
            pooled, pool_backward = self.encoder.pool(hidden)
        else:
            pooled, pool_backward = _of_first(self, hidden, self.dense, self.activation)
        kept, dropout_backward = self.ops.dropout(pooled, self.config.dropout, rng)
        logits, output_backward = self.output(kept)

        def backward(dlogits: Array) -> None:
            dkept = output_backward(dlogits)
            dpooled = dropout_backward(dkept)
            dhidden = pool_backward(dpooled)
            encoder_backward(dhidden)

        return logits, backward

    def costs(self, batch: int, length: int) -> Costs:
        """What each part costs in training; see `minitransformer.cost`."""
        d, classes = self.output.weight.value.shape
        yield from self.encoder.costs(batch, length, "encoder.")
        if self.dense is not None:
            yield "dense", (batch, d), _pooling_cost(self.dense, batch, length, self.activation)
        dropped = 2 if self.config.dropout else 0
        yield "output", (batch, classes), self.output.cost(batch, 1) + Cost(kept=batch * d * dropped)
        yield "loss", (), Cost(kept=2 * batch * classes)

    def loss(
        self,
        ids: Array,
        labels: Array,
        mask: Array | None = None,
        types: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, Pullback]:
        """Cross-entropy of the classes. labels: (B,) integers. backward(dloss=1.0) returns None."""
        logits, model_backward = self(ids, mask, types, rng)
        return _loss(self, logits, model_backward, labels)


def _pooling_cost(dense: Linear, batch: int, length: int, activation: str = "tanh") -> Cost:
    """Kept: all vectors, since the first token's are a view of them, and the output of tanh; ReLU keeps booleans."""
    d_in, d_out = dense.weight.value.shape
    return dense.cost(batch, 1) + Cost(kept=batch * (length * d_in + (d_out if activation == "tanh" else 0)))


def _of_first(module: Module, hidden: Array, dense: Linear, activation: str = "tanh") -> tuple[Array, Pullback]:
    """f(hidden_0 W + b): a vector for the whole text, computed from that of its first token."""
    shape, dtype = hidden.shape, hidden.dtype
    first = hidden[:, 0]
    mapped, dense_backward = dense(first)
    pooled, activation_backward = getattr(module.ops, activation)(mapped)

    def backward(dpooled: Array) -> Array:
        dmapped = activation_backward(dpooled)
        dfirst = dense_backward(dmapped)
        dhidden = array_module(dfirst).zeros(shape, dtype=dtype)
        dhidden[:, 0] = dfirst
        return dhidden

    return pooled, backward


def _loss(
    module: Module, logits: Array, model_backward: Pullback, wanted: Array, ignore_index: int = -100
) -> tuple[Array, Pullback]:
    loss, loss_backward = module.ops.cross_entropy(logits, wanted, ignore_index)

    def backward(dloss: Array | float = 1.0) -> None:
        dlogits = loss_backward(dloss)
        model_backward(dlogits)

    return loss, backward
