"""Mistakes in what later models added: rotary positions, shared heads, relative bias, tanh."""

from __future__ import annotations

from .variant import WrongVariant

_ROTARY = "ops.rotary:rotary"
_REPEAT = "ops.heads:repeat_heads"
_RELATIVE = "ops.relative_bias:relative_bias"
_ATTENTION = "ops.attention:attention"
_TANH = "ops.activations:tanh"

VARIANTS = (
    WrongVariant(
        "rotary-turned-on-instead-of-back",
        _ROTARY,
        "dya * cos + dyb * sin, dyb * cos - dya * sin",
        "dya * cos - dyb * sin, dyb * cos + dya * sin",
        "The gradient is rotated by θ once more; the transpose of a rotation is the rotation back, by -θ.",
        ("rotary",),
    ),
    WrongVariant(
        "rotary-only-the-cosines",
        _ROTARY,
        "dya * cos + dyb * sin, dyb * cos - dya * sin",
        "dya * cos, dyb * cos",
        "Each number of a pair reached both numbers of the result, so both gradients flow back into it.",
        ("rotary",),
    ),
    WrongVariant(
        "repeat-heads-first-copy-only",
        _REPEAT,
        "dy.reshape(*batch, n_heads, times, t, d).sum(axis=-3)",
        "dy.reshape(*batch, n_heads, times, t, d)[..., 0, :, :]",
        "Only one copy sends its gradient back; a shared head is used several times, and its gradients add up.",
        ("repeat_heads",),
    ),
    WrongVariant(
        "repeat-heads-mean",
        _REPEAT,
        "dy.reshape(*batch, n_heads, times, t, d).sum(axis=-3)",
        "dy.reshape(*batch, n_heads, times, t, d).mean(axis=-3)",
        "The gradients of a shared head are averaged; they must be added, for each use of it moves the loss.",
        ("repeat_heads",),
    ),
    WrongVariant(
        "repeat-heads-in-another-order",
        _REPEAT,
        "dy.reshape(*batch, n_heads, times, t, d).sum(axis=-3)",
        "dy.reshape(*batch, times, n_heads, t, d).sum(axis=-4)",
        "Copies of a head stand side by side, one head after the other, and not all heads again and again.",
        ("repeat_heads",),
    ),
    WrongVariant(
        "relative-bias-last-pair-only",
        _RELATIVE,
        "scatter_add(dtable, buckets.reshape(-1), xp.ascontiguousarray(drows.reshape(-1, table.shape[1])))",
        "dtable[buckets.reshape(-1)] = drows.reshape(-1, table.shape[1])",
        "Of all pairs that share a bucket only the last sends its gradient back; they must be added.",
        ("relative_bias",),
    ),
    WrongVariant(
        "relative-bias-heads-first",
        _RELATIVE,
        "drows = xp.moveaxis(dbias, 0, -1)",
        "drows = dbias.reshape(*dbias.shape[1:], dbias.shape[0])",
        "The axis of the heads must be moved to the end; a reshape mixes numbers of different heads.",
        ("relative_bias",),
    ),
    WrongVariant(
        "tanh-linear",
        _TANH,
        "(1.0 - y * y)",
        "(1.0 - y)",
        "The slope of tanh is 1 - y², not 1 - y.",
        ("tanh",),
    ),
    WrongVariant(
        "tanh-of-the-input",
        _TANH,
        "(1.0 - y * y)",
        "(1.0 - x * x)",
        "The slope of tanh is 1 - y² with the output y, not with the input x.",
        ("tanh",),
    ),
    WrongVariant(
        "attention-bias-times-scale",
        _ATTENTION,
        "dbias = _summed_to(dscores, bias.shape)",
        "dbias = _summed_to(dscores, bias.shape) * factor",
        "The bias is added after the scaling, so its gradient has no factor.",
        ("attention with a bias",),
    ),
    WrongVariant(
        "attention-bias-of-weights",
        _ATTENTION,
        "dbias = _summed_to(dscores, bias.shape)",
        "dbias = _summed_to(dweights, bias.shape)",
        "The gradient of the weights goes to the bias; it was added to the scores, before the softmax.",
        ("attention with a bias",),
    ),
)
