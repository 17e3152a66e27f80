"""Residual connections: plain, pre-norm and post-norm."""

from collections.abc import Callable

from ..exercise import Arguments, Array, Draw, exercise

Pullback = Callable[[Array], Array]


def _linear_pullback(draw: Draw, width: int) -> Pullback:
    """The pullback of a linear map. Every pullback has this form."""
    matrix = draw.normal(width, width)
    return lambda dy: dy @ matrix.T


def _residual(draw: Draw) -> Arguments:
    t, d = draw.sizes(2, 3, 7)
    return draw.gradient(t, d), _linear_pullback(draw, d)


@exercise(_residual)
def residual_backward(dy: Array, sublayer_backward: Pullback) -> Array:
    """A residual connection, backward.

    y = x + f(x), where f is a sub-layer. Given dy and the pullback of f, return dx. sublayer_backward(g) takes the
    gradient g of the output of f and returns the gradient of the input of f. Call it once: it also adds to the
    gradients of its parameters.

    dy, dx: (T, D); sublayer_backward: a function from (T, D) to (T, D).

    Hint: x is used twice. What do you do with its two gradients?
    """
    dx = dy + sublayer_backward(dy)
    return dx


def _normed(draw: Draw) -> Arguments:
    dy, sublayer_backward = _residual(draw)
    return dy, sublayer_backward, _linear_pullback(draw, dy.shape[-1])


@exercise(_normed)
def pre_norm_backward(dy: Array, sublayer_backward: Pullback, norm_backward: Pullback) -> Array:
    """A pre-norm residual block, backward.

    y = x + f(norm(x)). Given dy and the pullbacks of f and of norm, return dx. Call each pullback once:
    it also adds to the gradients of its parameters.

    dy, dx: (T, D); sublayer_backward, norm_backward: functions from (T, D) to (T, D).

    Hint: Draw it: one path leads straight from y to x, the other first through f and then through the norm.
    """
    dnormalized = sublayer_backward(dy)
    dx = dy + norm_backward(dnormalized)
    return dx


@exercise(_normed)
def post_norm_backward(dy: Array, sublayer_backward: Pullback, norm_backward: Pullback) -> Array:
    """A post-norm residual block, backward.

    y = norm(x + f(x)), as in the paper. Given dy and the pullbacks of f and of norm, return dx. Call each pullback
    once: it also adds to the gradients of its parameters.

    dy, dx: (T, D); sublayer_backward, norm_backward: functions from (T, D) to (T, D).

    Hint: Name the sum: total = x + f(x), y = norm(total). What is dtotal, and where does it go?
    """
    dtotal = norm_backward(dy)
    dx = dtotal + sublayer_backward(dtotal)
    return dx
