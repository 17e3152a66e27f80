"""Linear layers, and a linear map of low rank."""

from ..exercise import Array, exercise


@exercise(lambda draw: draw.arrays("b t i, i o, o"))
def linear_forward(x: Array, w: Array, b: Array) -> Array:
    """A linear layer.

    y = x w + b at every position of every sequence.

    x: (B, T, d_in); w: (d_in, d_out); b: (d_out,); y: (B, T, d_out).

    Hint: @ multiplies the last two axes of x by w and repeats this over the batch; b broadcasts along the last axis.
    """
    y = x @ w + b
    return y


@exercise(lambda draw: draw.arrays("b t i, i o; b t o"))
def linear_backward(x: Array, w: Array, dy: Array) -> tuple[Array, Array, Array]:
    """A linear layer, backward.

    y = x w + b at every position of every sequence. Given dy, return the gradients of x, w and b.

    x, dx: (B, T, d_in); w, dw: (d_in, d_out); db: (d_out,); dy: (B, T, d_out).

    Hint: The same w and b serve all B·T positions, so their gradients sum over all of them. Flatten x and dy to rows
    first: then dw is one product of two matrices.
    """
    rows = x.reshape(-1, x.shape[-1])
    drows = dy.reshape(-1, dy.shape[-1])
    dx = dy @ w.T
    dw = rows.T @ drows
    db = drows.sum(axis=0)
    return dx, dw, db


@exercise(lambda draw: draw.arrays("n i, i r, r o; n o"))
def low_rank_linear_backward(x: Array, down: Array, up: Array, dy: Array) -> tuple[Array, Array, Array]:
    """A low-rank linear map, backward.

    y = (x down) up, with a matrix of rank r kept as two factors. Given dy, return the gradients of x and of both
    factors. (In attention W_V and W_O of one head are such a pair: W_V maps to fewer numbers, W_O back.)

    x, dx: (N, d_in); down, ddown: (d_in, r); up, dup: (r, d_out); dy: (N, d_out).

    Hint: Name the intermediate: hidden = x down, y = hidden up. Go back through the second product first.
    """
    hidden = x @ down
    dhidden = dy @ up.T
    dup = hidden.T @ dy
    dx = dhidden @ down.T
    ddown = x.T @ dhidden
    return dx, ddown, dup
