"""Residual connections, plain and with a norm in either place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise

Pullback = Callable[[Array], Array]


def _linear_pullback(draw: Draw, width: int) -> Pullback:
    """The pullback of a linear map, which is all that a pullback ever is."""
    matrix = draw.normal(width, width)
    return lambda dy: dy @ matrix.T


def _residual(draw: Draw) -> tuple[Any, ...]:
    t, d = draw.sizes(2, 3, 7)
    return draw.gradient(t, d), _linear_pullback(draw, d)


@exercise(
    title="A residual connection, backward",
    statement="""
        y = x + f(x), where f is a sub-layer. Given dy and the pullback of f, return dx. Calling sublayer_backward(g)
        takes a gradient g of what f returned to that of what f was given. Call it once: it also adds to the gradients
        of its parameters.

        dy, dx: (T, D); sublayer_backward: a function from (T, D) to (T, D).
    """,
    outputs="dx",
    inputs=_residual,
    hint="x is used twice. What happens to gradients that meet?",
    mistakes=(
        Mistake(
            "identity-dropped",
            "dy + sublayer_backward(dy)",
            "sublayer_backward(dy)",
            "The residual connection is missing: x also went into the sum unchanged, so dy itself flows back as well.",
        ),
        Mistake(
            "sublayer-dropped",
            "dy + sublayer_backward(dy)",
            "dy * 1.0",
            "The path through f is missing: dx = dy would mean that f does not depend on x.",
        ),
        Mistake(
            "averaged",
            "dy + sublayer_backward(dy)",
            "(dy + sublayer_backward(dy)) / 2.0",
            "The two gradients that meet in x are averaged; they must be added.",
        ),
        Mistake(
            "subtracted",
            "dy + sublayer_backward(dy)",
            "dy - sublayer_backward(dy)",
            "The gradient through f is subtracted; it must be added.",
        ),
        Mistake(
            "multiplied",
            "dy + sublayer_backward(dy)",
            "dy * sublayer_backward(dy)",
            "The two gradients are multiplied. Chain them along one path, but add them where two paths meet.",
        ),
        Mistake(
            "identity-through-sublayer",
            "dy + sublayer_backward(dy)",
            "sublayer_backward(dy + dy)",
            "Both paths are led through f; one of them goes around it.",
        ),
        Mistake(
            "sublayer-twice",
            "dy + sublayer_backward(dy)",
            "dy + sublayer_backward(dy + sublayer_backward(dy))",
            "The gradient goes through f twice; the sum is formed after f, so f's output gets dy alone.",
        ),
        Mistake(
            "identity-twice",
            "dy + sublayer_backward(dy)",
            "2.0 * dy + sublayer_backward(dy)",
            "dy of the residual connection is counted twice.",
        ),
    ),
)
def residual_backward(dy: Array, sublayer_backward: Pullback) -> Array:
    dx = dy + sublayer_backward(dy)
    return dx


def _normed(draw: Draw) -> tuple[Any, ...]:
    dy, sublayer_backward = _residual(draw)
    return dy, sublayer_backward, _linear_pullback(draw, dy.shape[-1])


@exercise(
    title="A pre-norm residual block, backward",
    statement="""
        y = x + f(norm(x)). Given dy and the pullbacks of f and of norm, return dx. Call each pullback once:
        it also adds to the gradients of its parameters.

        dy, dx: (T, D); sublayer_backward, norm_backward: functions from (T, D) to (T, D).
    """,
    outputs="dx",
    inputs=_normed,
    hint="Draw it: one path leads straight from y to x, the other first through f and then through the norm.",
    mistakes=(
        Mistake(
            "identity-dropped",
            "dy + norm_backward(dnormalized)",
            "norm_backward(dnormalized)",
            "The residual connection is missing: dy itself flows back to x as well.",
        ),
        Mistake(
            "sublayer-dropped",
            "dy + norm_backward(dnormalized)",
            "dy * 1.0",
            "The path through the sub-layer is missing.",
        ),
        Mistake(
            "norm-skipped",
            "dy + norm_backward(dnormalized)",
            "dy + dnormalized",
            "The gradient that comes out of f does not go back through the norm, which stands before f.",
        ),
        Mistake(
            "identity-through-norm",
            "dy + norm_backward(dnormalized)",
            "norm_backward(dy + dnormalized)",
            "The residual connection is led through the norm; in pre-norm order it goes through no norm.",
        ),
        Mistake(
            "wrong-order",
            "dnormalized = sublayer_backward(dy)\n    dx = dy + norm_backward(dnormalized)",
            "dx = dy + sublayer_backward(norm_backward(dy))",
            "The norm's pullback comes first and then f's: that is the order of the forward pass; go back from the "
            "end.",
        ),
        Mistake(
            "sublayer-skipped",
            "sublayer_backward(dy)",
            "dy",
            "The gradient goes through the norm, but not through f.",
        ),
        Mistake(
            "as-post-norm",
            "dnormalized = sublayer_backward(dy)\n    dx = dy + norm_backward(dnormalized)",
            "dtotal = norm_backward(dy)\n    dx = dtotal + sublayer_backward(dtotal)",
            "This is the backward of post-norm, norm(x + f(x)).",
        ),
        Mistake(
            "averaged",
            "dy + norm_backward(dnormalized)",
            "(dy + norm_backward(dnormalized)) / 2.0",
            "The two gradients that meet in x are averaged; they must be added.",
        ),
    ),
)
def pre_norm_backward(dy: Array, sublayer_backward: Pullback, norm_backward: Pullback) -> Array:
    dnormalized = sublayer_backward(dy)
    dx = dy + norm_backward(dnormalized)
    return dx


@exercise(
    title="A post-norm residual block, backward",
    statement="""
        y = norm(x + f(x)), as in the paper. Given dy and the pullbacks of f and of norm, return dx. Call each pullback
        once: it also adds to the gradients of its parameters.

        dy, dx: (T, D); sublayer_backward, norm_backward: functions from (T, D) to (T, D).
    """,
    outputs="dx",
    inputs=_normed,
    hint="Name the sum: total = x + f(x), y = norm(total). What is dtotal, and where does it go?",
    mistakes=(
        Mistake(
            "identity-dropped",
            "dtotal + sublayer_backward(dtotal)",
            "sublayer_backward(dtotal)",
            "The residual connection is missing: dtotal itself flows back to x as well.",
        ),
        Mistake(
            "sublayer-dropped",
            "dtotal + sublayer_backward(dtotal)",
            "dtotal",
            "The path through the sub-layer is missing.",
        ),
        Mistake(
            "identity-past-norm",
            "dtotal + sublayer_backward(dtotal)",
            "dy + sublayer_backward(dtotal)",
            "dy is led around the norm; here the norm comes after the sum, so both paths pass it.",
        ),
        Mistake(
            "sublayer-past-norm",
            "dtotal + sublayer_backward(dtotal)",
            "dtotal + sublayer_backward(dy)",
            "f's pullback gets dy; it must get dtotal, which has gone back through the norm.",
        ),
        Mistake(
            "norm-skipped",
            "norm_backward(dy)",
            "dy",
            "The norm's pullback is left out.",
        ),
        Mistake(
            "norm-last",
            "dtotal = norm_backward(dy)\n    dx = dtotal + sublayer_backward(dtotal)",
            "dx = norm_backward(dy + sublayer_backward(dy))",
            "The norm's pullback comes last; the norm was the last thing done, so it is the first to go back through.",
        ),
        Mistake(
            "as-pre-norm",
            "dtotal = norm_backward(dy)\n    dx = dtotal + sublayer_backward(dtotal)",
            "dx = dy + norm_backward(sublayer_backward(dy))",
            "This is the backward of pre-norm, x + f(norm(x)).",
        ),
        Mistake(
            "averaged",
            "dtotal + sublayer_backward(dtotal)",
            "(dtotal + sublayer_backward(dtotal)) / 2.0",
            "The two gradients that meet in x are averaged; they must be added.",
        ),
    ),
)
def post_norm_backward(dy: Array, sublayer_backward: Pullback, norm_backward: Pullback) -> Array:
    dtotal = norm_backward(dy)
    dx = dtotal + sublayer_backward(dtotal)
    return dx
