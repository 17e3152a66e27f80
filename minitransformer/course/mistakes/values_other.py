"""Mistakes in what everything beside attention computes: wrong forward and backward alike."""

from __future__ import annotations

from .variant import WrongVariant

_SINUSOIDS = "ops.positions:sinusoidal_positions"
_DROPOUT, _LOSS = "ops.dropout:dropout", "ops.cross_entropy:cross_entropy"
_STEP = "training.optimizers:Adam._move"

_SINUSOIDS_CASES = ("SinusoidalPositions",)

VARIANTS = (
    WrongVariant(
        "encoder-mask-dropped",
        "layers.blocks:Encoder.__call__",
        "mask=mask, ",
        "",
        "The mask is accepted and not handed on to the layers.",
        ("Encoder in pre-norm order, checkpointed",),
        "values",
    ),
    WrongVariant(
        "stack-final-norm-forgotten",
        "layers.blocks:_Stack._finish",
        "(x, lambda dy: dy) if self.final_norm is None else self.final_norm(x)",
        "(x, lambda dy: dy)",
        "A pre-norm stack ends without its norm: the sum of all updates leaves it unnormalised.",
        ("Encoder in pre-norm order, checkpointed",),
        "values",
    ),
    WrongVariant(
        "residual-always-post-norm",
        "layers.residual:Residual.__call__",
        'self._pre if self.order == "pre" else self._post',
        "self._post",
        "The order is accepted and not used: the norm always comes after the sum.",
        ("Residual in pre-norm order",),
        "values",
    ),
    WrongVariant(
        "layer-norm-d-minus-1-throughout",
        "ops.normalization:layer_norm",
        """
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    inverse_std = 1.0 / xp.sqrt(variance + eps)
    normalized = centered * inverse_std
    y = normalized * gamma + beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dgamma = (dy * normalized).sum(axis=rows)
        dbeta = dy.sum(axis=rows)
        dnormalized = dy * gamma
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
""",
        """
    variance = (centered * centered).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)
    inverse_std = 1.0 / xp.sqrt(variance + eps)
    normalized = centered * inverse_std
    y = normalized * gamma + beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dgamma = (dy * normalized).sum(axis=rows)
        dbeta = dy.sum(axis=rows)
        dnormalized = dy * gamma
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)
""",
        "The variance divides by D - 1, and its backward pass as well; LayerNorm divides by D.",
        ("layer_norm", "LayerNorm"),
        "values",
    ),
    WrongVariant(
        "layer-norm-eps-outside-root-throughout",
        "ops.normalization:layer_norm",
        """
    inverse_std = 1.0 / xp.sqrt(variance + eps)
    normalized = centered * inverse_std
    y = normalized * gamma + beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dgamma = (dy * normalized).sum(axis=rows)
        dbeta = dy.sum(axis=rows)
        dnormalized = dy * gamma
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
        dx = inverse_std * (dnormalized - shift - stretch)
""",
        """
    inverse_std = 1.0 / (xp.sqrt(variance) + eps)
    normalized = centered * inverse_std
    y = normalized * gamma + beta

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dgamma = (dy * normalized).sum(axis=rows)
        dbeta = dy.sum(axis=rows)
        dnormalized = dy * gamma
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)
        dx = inverse_std * (dnormalized - shift) - stretch / xp.sqrt(variance)
""",
        "ε is added to the standard deviation, in both passes; it belongs under the root, to the variance.",
        ("layer_norm of two elements, with a large ε",),
        "values",
    ),
    WrongVariant(
        "rms-norm-eps-forgotten",
        "ops.normalization:rms_norm",
        "keepdims=True) + eps)",
        "keepdims=True))",
        "ε is accepted and not used: a row of zeros is divided by zero.",
        ("rms_norm with a large ε",),
        "values",
    ),
    WrongVariant(
        "gelu-tanh-wrong-constant",
        "ops.activations:gelu",
        """(1.0 + 0.044715 * square))
        cumulative = 0.5 * (1.0 + tanh)
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * square)""",
        """(1.0 + 0.44715 * square))
        cumulative = 0.5 * (1.0 + tanh)
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.44715 * square)""",
        "The constant is 0.044715; a zero is missing.",
        ("gelu by tanh",),
        "values",
    ),
    WrongVariant(
        "sinusoidal-base-too-large",
        _SINUSOIDS,
        "frequencies = base **",
        "frequencies = (10.0 * base) **",
        "The base is 100000; the paper's is 10000.",
        _SINUSOIDS_CASES,
        "values",
    ),
    WrongVariant(
        "sinusoidal-halves-concatenated",
        _SINUSOIDS,
        "np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)",
        "np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)",
        "All sines come first and then all cosines; the formula interleaves them, 2i and 2i + 1.",
        _SINUSOIDS_CASES,
        "values",
    ),
    WrongVariant(
        "sinusoidal-exponent-doubled",
        _SINUSOIDS,
        "-np.arange(0, width, 2) / width",
        "-2.0 * np.arange(0, width, 2) / width",
        "arange(0, D, 2) is 2i already; doubled it makes the exponent 2·(2i)/D.",
        _SINUSOIDS_CASES,
        "values",
    ),
    WrongVariant(
        "sinusoidal-cosine-first",
        _SINUSOIDS,
        "[np.sin(angles), np.cos(angles)]",
        "[np.cos(angles), np.sin(angles)]",
        "Sine belongs to the even columns and cosine to the odd ones.",
        _SINUSOIDS_CASES,
        "values",
    ),
    WrongVariant(
        "sinusoidal-positions-start-forgotten",
        "layers.embedding:SinusoidalPositions.__call__",
        "[start:stop]",
        "[: x.shape[-2]]",
        "Every call starts at position 0; with a cache each new token would stand first.",
        _SINUSOIDS_CASES,
        "values",
    ),
    WrongVariant(
        "input-embedding-not-scaled",
        "layers.embedding:InputEmbedding.__call__",
        """(vectors * self.scale, start)
        y, dropout_backward = ops.dropout(placed, self.dropout, rng)

        def backward(dy: Array) -> None:
            dplaced = dropout_backward(dy)
            dvectors = positions_backward(dplaced) * self.scale
""",
        """(vectors, start)
        y, dropout_backward = ops.dropout(placed, self.dropout, rng)

        def backward(dy: Array) -> None:
            dplaced = dropout_backward(dy)
            dvectors = positions_backward(dplaced)
""",
        "The token vectors are not multiplied by √D, so the positions drown them.",
        ("InputEmbedding with dropout",),
        "values",
    ),
    WrongVariant(
        "dropout-without-rescaling",
        _DROPOUT,
        "keep.astype(x.dtype) * (1.0 / (1.0 - rate))",
        "keep.astype(x.dtype)",
        "What is kept is not divided by 1 - rate, so the expected value shrinks while training.",
        ("dropout",),
        "values",
    ),
    WrongVariant(
        "dropout-keeps-with-rate",
        _DROPOUT,
        ">= rate",
        "< rate",
        "Elements are kept with probability `rate`; they must be dropped with it.",
        ("dropout",),
        "values",
    ),
    WrongVariant(
        "dropout-rescales-at-inference",
        _DROPOUT,
        "return x, lambda dy: dy\n",
        "return x * (1.0 - rate), lambda dy: dy * (1.0 - rate)\n",
        "The output is rescaled at inference although training divided by 1 - rate already.",
        ("dropout switched off",),
        "values",
    ),
    WrongVariant(
        "cross-entropy-mean-over-ignored-too",
        _LOSS,
        'xp.maximum(counted.sum(dtype=logits.dtype), 1.0) if reduction == "mean"',
        'targets.size if reduction == "mean"',
        "The mean is taken over all positions, so padding makes the loss look small.",
        ("cross_entropy", "cross_entropy with label smoothing"),
        "values",
    ),
    WrongVariant(
        "cross-entropy-smoothing-on-others-only",
        _LOSS,
        """
        loss_at = loss_at - label_smoothing * log_p.mean(axis=-1)
    n_counted = xp.maximum(counted.sum(dtype=logits.dtype), 1.0) if reduction == "mean" else 1.0
    loss = xp.where(counted, loss_at, 0.0).sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        hit = (xp.arange(n_classes) == wanted).astype(logits.dtype)
        target = (1.0 - label_smoothing) * hit + label_smoothing / n_classes
""",
        """
        others = log_p.sum(axis=-1) - xp.take_along_axis(log_p, wanted, axis=-1)[..., 0]
        loss_at = loss_at - label_smoothing * others / (n_classes - 1)
    n_counted = xp.maximum(counted.sum(dtype=logits.dtype), 1.0) if reduction == "mean" else 1.0
    loss = xp.where(counted, loss_at, 0.0).sum() / n_counted

    def backward(dloss: Array | float = 1.0) -> Array:
        hit = (xp.arange(n_classes) == wanted).astype(logits.dtype)
        target = (1.0 - label_smoothing) * hit + label_smoothing * (1.0 - hit) / (n_classes - 1)
""",
        "ε is spread over the V - 1 other tokens; the formula spreads it over all V, the wanted one too.",
        ("cross_entropy with label smoothing", "cross_entropy summed, another index ignored"),
        "values",
    ),
    WrongVariant(
        "classifier-pools-padding",
        "models.classifier:Classifier.__call__",
        "ops.mean_pool(hidden, mask)",
        "ops.mean_pool(hidden)",
        "The mean includes padding, so the classes depend on how far a batch was padded.",
        ("Classifier",),
        "values",
    ),
    WrongVariant(
        "language-model-not-causal",
        "models.language_model:LanguageModel.__call__",
        "causal=True",
        "causal=False",
        "Each position reads the token that it shall predict.",
        ("LanguageModel in post-norm order, checkpointed",),
        "values",
    ),
    WrongVariant(
        "transformer-source-mask-dropped",
        "models.transformer:Transformer.encode",
        'mask=_keys("source_mask", source_mask, source.shape), ',
        "",
        "source_mask is accepted and not handed on: the encoder attends to padding.",
        ("Transformer checkpointed",),
        "values",
    ),
    WrongVariant(
        "adamw-betas-swapped",
        _STEP,
        "beta1, beta2 = self.betas",
        "beta2, beta1 = self.betas",
        "β1 belongs to the mean of the gradient and β2 to that of its square; here they have changed places.",
        (),
        "values",
    ),
    WrongVariant(
        "adamw-no-bias-correction",
        _STEP,
        "rate * (m / (1.0 - beta1**t)) / (xp.sqrt(v / (1.0 - beta2**t)) + self.eps)",
        "rate * m / (xp.sqrt(v) + self.eps)",
        "The running means start at zero and are too small at first; the division by 1 - β^t is missing.",
        (),
        "values",
    ),
    WrongVariant(
        "adamw-eps-inside-root",
        _STEP,
        "(xp.sqrt(v / (1.0 - beta2**t)) + self.eps)",
        "xp.sqrt(v / (1.0 - beta2**t) + self.eps)",
        "ε is added under the root; Adam adds it to the root.",
        (),
        "values",
    ),
    WrongVariant(
        "adamw-decay-inside-gradient",
        "training.optimizers:AdamW._shrink",
        "return 1.0 - rate * self.weight_decay * decays",
        "p.grad = p.grad + self.weight_decay * decays * p.value\n        return 1.0",
        "The decay goes into the gradient, where √v̂ divides it: weights with large gradients hardly decay.",
        (),
        "values",
    ),
    WrongVariant(
        "sgd-velocity-is-a-mean",
        "training.optimizers:SGD._move",
        "u += p.grad",
        "u += (1.0 - self.momentum) * p.grad",
        "The velocity is a sum of fading gradients; here it is their mean, and steps are too short by a factor 1 - μ.",
        (),
        "values",
    ),
    WrongVariant(
        "cache-returns-new-tokens-only",
        "layers.cache:KeyValueCache.extend",
        "return self.read()",
        "return keys, values",
        "The new keys and values are stored, but those of the earlier tokens are not handed out.",
        (),
        "values",
    ),
)
