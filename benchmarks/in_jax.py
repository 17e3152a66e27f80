"""The training cases in JAX, as its users write them: pure functions of a dictionary of parameters, optax's AdamW, and
one jitted step that may overwrite what it is given. Our weights are copied in; queries, keys and values become one.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .cases import classifier, language_model, translator

Parameters = dict[str, jax.Array]


class Network:
    """The layers, with the parameters that they find by name. Without a key there is no dropout."""

    def __init__(self, parameters: Parameters, sizes: Any, key: jax.Array | None) -> None:
        self.parameters, self.n_heads, self.n_layers, self.rate = (
            parameters,
            sizes.n_heads,
            sizes.n_layers,
            sizes.dropout,
        )
        self.keys = iter(jax.random.split(key, 8 * sizes.n_layers)) if key is not None and self.rate else None

    def dropout(self, x: jax.Array) -> jax.Array:
        if self.keys is None:
            return x
        kept = jax.random.bernoulli(next(self.keys), 1.0 - self.rate, x.shape)
        return jnp.where(kept, x / (1.0 - self.rate), 0.0)

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        return x @ self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def norm(self, name: str, x: jax.Array) -> jax.Array:
        scaled = jax.nn.standardize(x, epsilon=1e-5)
        return scaled * self.parameters[f"{name}.gamma"] + self.parameters[f"{name}.beta"]

    def attention(self, name: str, x: jax.Array, memory: jax.Array | None = None, **options: Any) -> jax.Array:
        if memory is None:
            q, k, v = jnp.split(self.linear(f"{name}.qkv", x), 3, axis=-1)
        else:
            q, (k, v) = self.linear(f"{name}.query", x), jnp.split(self.linear(f"{name}.kv", memory), 2, axis=-1)
        q, k, v = (part.reshape(*part.shape[:2], self.n_heads, -1) for part in (q, k, v))
        heads = self.mix(q, k, v, **options)
        return self.dropout(self.linear(f"{name}.output", heads.reshape(x.shape)))

    def mix(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        mask: jax.Array | None = None,
        causal: bool = False,
        weights_dropout: bool = False,
    ) -> jax.Array:
        """jax.nn's attention, which knows no dropout of its weights; with that, the causal one written out."""
        if self.keys is None or not weights_dropout:
            return jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=causal)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        weights = jax.nn.softmax(jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf))
        return jnp.einsum("bhqk,bkhd->bqhd", self.dropout(weights), v)

    def feed_forward(self, name: str, x: jax.Array, activation: Any) -> jax.Array:
        return self.dropout(self.linear(f"{name}.output", activation(self.linear(f"{name}.inner", x))))

    def pre_norm_layer(self, name: str, x: jax.Array, activation: Any, **options: Any) -> jax.Array:
        normed = self.norm(f"{name}.self_attention.norm", x)
        x = x + self.attention(f"{name}.self_attention.sublayer", normed, **options)
        normed = self.norm(f"{name}.feed_forward.norm", x)
        return x + self.feed_forward(f"{name}.feed_forward.sublayer", normed, activation)

    def post_norm_layer(self, name: str, x: jax.Array, memory: jax.Array | None, mask: jax.Array) -> jax.Array:
        """A layer of the decoder, which attends to the memory, or without one of the encoder."""
        own = {"mask": mask} if memory is None else {"causal": True}
        x = x + self.attention(f"{name}.self_attention.sublayer", x, **own)
        x = self.norm(f"{name}.self_attention.norm", x)
        if memory is not None:
            x = x + self.attention(f"{name}.cross_attention.sublayer", x, memory, mask=mask)
            x = self.norm(f"{name}.cross_attention.norm", x)
        x = x + self.feed_forward(f"{name}.feed_forward.sublayer", x, jax.nn.relu)
        return self.norm(f"{name}.feed_forward.norm", x)

    def embed(self, name: str, ids: jax.Array) -> jax.Array:
        """The rows of the table, larger by the root of the width, and sines and cosines of the positions."""
        table = self.parameters[name]
        length, width = ids.shape[1], table.shape[1]
        angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(0, width, 2) / width)
        positions = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(length, width)
        return self.dropout(table[ids] * math.sqrt(width) + positions)


def loss_of_language_model(net: Network, ids: jax.Array, wanted: jax.Array) -> jax.Array:
    table = net.parameters["tokens.table"]
    x = net.dropout(table[ids] + net.parameters["embed.positions.table"])
    for i in range(net.n_layers):
        x = net.pre_norm_layer(f"stack.layers.{i}", x, jax.nn.gelu, causal=True, weights_dropout=True)
    logits = net.norm("stack.final_norm", x) @ table.T
    return optax.softmax_cross_entropy_with_integer_labels(logits, wanted).mean()


def loss_of_classifier(net: Network, ids: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    x, exact = net.embed("embed.tokens.table", ids), functools.partial(jax.nn.gelu, approximate=False)
    for i in range(net.n_layers):
        x = net.pre_norm_layer(f"encoder.layers.{i}", x, exact, mask=mask[:, None, None, :])
    pooled = net.norm("encoder.final_norm", x).mean(axis=1, where=mask[..., None])
    return optax.softmax_cross_entropy_with_integer_labels(net.linear("head", pooled), labels).mean()


def loss_of_translator(
    net: Network, source: jax.Array, target: jax.Array, wanted: jax.Array, source_mask: jax.Array
) -> jax.Array:
    table, mask = "target_tokens.table", source_mask[:, None, None, :]
    memory = net.embed(table, source)
    for i in range(net.n_layers):
        memory = net.post_norm_layer(f"encoder.layers.{i}", memory, None, mask)
    x = net.embed(table, target)
    for i in range(net.n_layers):
        x = net.post_norm_layer(f"decoder.layers.{i}", x, memory, mask)
    logits = x @ net.parameters[table].T
    smooth = optax.smooth_labels(jax.nn.one_hot(wanted, logits.shape[-1]), translator.LABEL_SMOOTHING)
    return optax.softmax_cross_entropy(logits, smooth).mean(where=wanted != translator.PADDING)


LOSSES = {
    language_model.Sizes: loss_of_language_model,
    classifier.Sizes: loss_of_classifier,
    translator.Sizes: loss_of_translator,
}


class Jitted:
    """Training steps over the batches of a case, repeatedly. A run is timed; `prepare` comes before it and is not."""

    def __init__(self, sizes: Any, weights: Mapping[str, np.ndarray]) -> None:
        case = importlib.import_module(type(sizes).__module__)
        self.batches = [jax.device_put(batch) for batch in case.batches(sizes)]
        optimizer = optax.adamw(case.LEARNING_RATE, weight_decay=0.01, mask=functools.partial(jax.tree.map, _decays))
        self.parameters = jax.device_put(merged(weights))
        self.state, self.key, self.taken = optimizer.init(self.parameters), None, 0

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(parameters: Parameters, state: Any, key: jax.Array | None, batch: dict[str, jax.Array]) -> Any:
            key, now = (None, None) if key is None else jax.random.split(key)
            loss = LOSSES[type(sizes)]
            value, gradients = jax.value_and_grad(lambda p: loss(Network(p, sizes, now), **batch))(parameters)
            updates, state = optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, key, value

        self.step = step

    @classmethod
    def threads(cls, count: int) -> None:
        """XLA has as many threads as the process has cores."""

    def prepare(self) -> None:
        pass

    def run(self) -> float:
        batch = self.batches[self.taken % len(self.batches)]
        self.taken += 1
        self.parameters, self.state, self.key, loss = self.step(self.parameters, self.state, self.key, batch)
        return float(loss)

    def prove(self) -> dict[str, np.ndarray]:
        """The losses of ten steps without dropout; later steps have it."""
        losses = np.array([self.run() for _ in range(10)])
        self.key = jax.random.key(0)
        return {"losses": losses}


def _decays(parameter: jax.Array) -> bool:
    return parameter.ndim > 1


def merged(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights of queries, keys and values that read the same side by side, by the name qkv or kv."""
    found = dict(weights)
    for name in [name for name in weights if ".query." in name]:
        parts = ("key", "value") if "cross_attention" in name else ("query", "key", "value")
        together = "kv" if len(parts) == 2 else "qkv"
        columns = [found.pop(name.replace("query", part)) for part in parts]
        found[name.replace("query", together)] = np.concatenate(columns, axis=-1)
    return found
