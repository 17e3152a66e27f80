"""Mistakes in LayerNorm and RMSNorm."""

from __future__ import annotations

from .variant import WrongVariant

_LAYER_NORM, _RMS_NORM = "ops.normalization:layer_norm", "ops.normalization:rms_norm"
_LAYER_NORM_LAYER = "layers.normalization:LayerNorm.__call__"
_RMS_NORM_LAYER = "layers.normalization:RMSNorm.__call__"

_LAYER_NORM_CASES = ("layer_norm", "layer_norm of two elements, with a large ε")
_RMS_NORM_CASES = ("rms_norm", "rms_norm with a large ε")

VARIANTS = (
    WrongVariant(
        "layer-norm-gamma-outside-means",
        _LAYER_NORM,
        """
        shift = dnormalized.mean(axis=-1, keepdims=True)
        stretch = normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)""",
        """
        shift = gamma * dy.mean(axis=-1, keepdims=True)
        stretch = gamma * normalized * (dy * normalized).mean(axis=-1, keepdims=True)""",
        "γ is pulled out of the means, which is right only when all its entries are equal.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-no-shift",
        _LAYER_NORM,
        "(dnormalized - shift - stretch)",
        "(dnormalized - stretch)",
        "The term -mean(dn) is missing: the mean of the row depends on every x as well.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-no-stretch",
        _LAYER_NORM,
        "(dnormalized - shift - stretch)",
        "(dnormalized - shift)",
        "The term -n mean(dn n) is missing: the variance of the row depends on every x as well.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-statistics-constant",
        _LAYER_NORM,
        "(dnormalized - shift - stretch)",
        "dnormalized",
        "Mean and variance are treated as constants, but both are computed from x.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-divides-by-d-minus-1",
        _LAYER_NORM,
        "shift = dnormalized.mean(axis=-1, keepdims=True)",
        "shift = dnormalized.sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)",
        "The mean of dn divides by D - 1; the forward pass divided by D.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-variance-over-d-minus-1",
        _LAYER_NORM,
        "variance = (centered * centered).mean(axis=-1, keepdims=True)",
        "variance = (centered * centered).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)",
        "The variance divides by D - 1, as a sample's does; LayerNorm divides by D, and so does its backward pass.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-eps-outside-root",
        _LAYER_NORM,
        "1.0 / xp.sqrt(variance + eps)",
        "1.0 / (xp.sqrt(variance) + eps)",
        "ε is added to the standard deviation; it belongs under the root, to the variance.",
        ("layer_norm of two elements, with a large ε",),
    ),
    WrongVariant(
        "layer-norm-variance-for-deviation",
        _LAYER_NORM,
        "dx = inverse_std *",
        "dx = inverse_std * inverse_std *",
        "dx is divided by the variance; it must be divided by its root.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-gamma-forgotten",
        _LAYER_NORM,
        "dnormalized = dy * gamma",
        "dnormalized = dy",
        "γ multiplied the output, so it must multiply dy on the way back.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-dgamma-of-centered",
        _LAYER_NORM,
        "dgamma = (dy * normalized)",
        "dgamma = (dy * centered)",
        "γ multiplied the normalised row, not the merely centred one.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-dgamma-one-axis",
        _LAYER_NORM,
        "dgamma = (dy * normalized).sum(axis=rows)",
        "dgamma = (dy * normalized).sum(axis=0)",
        "γ is shared by all rows, so its gradient sums over every axis but the last, not over the batch alone.",
        ("layer_norm",),
    ),
    WrongVariant(
        "layer-norm-dbeta-mean",
        _LAYER_NORM,
        "dbeta = dy.sum(axis=rows)",
        "dbeta = dy.mean(axis=rows)",
        "β was added to every row, so its gradient is the sum over the rows, not their mean.",
        _LAYER_NORM_CASES,
    ),
    WrongVariant(
        "rms-norm-no-stretch",
        _RMS_NORM,
        "dx = inverse_rms * (dnormalized - stretch)",
        "dx = inverse_rms * dnormalized",
        "The root mean square is treated as a constant, but it is computed from x.",
        _RMS_NORM_CASES,
    ),
    WrongVariant(
        "rms-norm-with-layer-norm-backward",
        _RMS_NORM,
        "(dnormalized - stretch)",
        "(dnormalized - dnormalized.mean(axis=-1, keepdims=True) - stretch)",
        "LayerNorm's backward pass is used: RMSNorm subtracts no mean, so none is subtracted from the gradient.",
        _RMS_NORM_CASES,
    ),
    WrongVariant(
        "rms-norm-gamma-outside-mean",
        _RMS_NORM,
        "stretch = normalized * (dnormalized * normalized)",
        "stretch = gamma * normalized * (dy * normalized)",
        "γ is pulled out of the mean, which is right only when all its entries are equal.",
        _RMS_NORM_CASES,
    ),
    WrongVariant(
        "rms-norm-dgamma-of-x",
        _RMS_NORM,
        "dgamma = (dy * normalized)",
        "dgamma = (dy * x)",
        "γ multiplied the normalised row, not x itself.",
        _RMS_NORM_CASES,
    ),
    WrongVariant(
        "layer-norm-layer-grad-overwritten",
        _LAYER_NORM_LAYER,
        "self.gamma.grad += dgamma",
        "self.gamma.grad = dgamma",
        "The gradient overwrites the one collected before.",
        ("LayerNorm",),
    ),
    WrongVariant(
        "layer-norm-layer-gamma-beta-swapped",
        _LAYER_NORM_LAYER,
        "dx, dgamma, dbeta = norm_backward(dy)",
        "dx, dbeta, dgamma = norm_backward(dy)",
        "γ collects the gradient of β and β that of γ; their equal shapes hide it.",
        ("LayerNorm",),
    ),
    WrongVariant(
        "rms-norm-layer-grad-overwritten",
        _RMS_NORM_LAYER,
        "self.gamma.grad += dgamma",
        "self.gamma.grad = dgamma",
        "The gradient overwrites the one collected before.",
        ("RMSNorm",),
    ),
    WrongVariant(
        "rms-norm-layer-gamma-untrained",
        _RMS_NORM_LAYER,
        "self.gamma.grad += dgamma",
        "self.gamma.grad + dgamma",
        "The sum is computed and thrown away (+ for +=), so γ is never trained.",
        ("RMSNorm", "Residual in pre-norm order"),
    ),
)
