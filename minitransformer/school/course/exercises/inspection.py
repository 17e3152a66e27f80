"""Inside a model: scores and circuits of a head, the logit lens, ablation, patching, gradient × activation."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _repeating(draw: Draw) -> Arguments:
    n_heads, period, before = draw.sizes(3, 2, 6)
    t = 2 * period + before
    return draw.weights(n_heads, t, t), period


@exercise(_repeating)
def induction_score(weights: Array, period: int) -> Array:
    """Induction score.

    A text ends in `period` tokens that repeat the `period` tokens before them. An induction head at position t of
    this second copy looks at the token that followed the same token in the first copy, at position t - period + 1.
    The score of a head is the mean of this weight over the last `period` queries.

    weights: (H, T, T), row t holds the weights of query t; score: (H,). T may be larger than 2 · period.

    Hint: np.diagonal(weights, offset, 1, 2) takes weights[:, t, t + offset] for all t for which there is such a key.
    """
    along = np.diagonal(weights, 1 - period, 1, 2)
    score = along[:, -period:].mean(axis=1)
    return score


def _projections(draw: Draw) -> Arguments:
    d, d_v, n_key_heads, times = draw.sizes(4, 2, 6)
    if draw.number == 1:  # with head 4 these tell apart all that is mistaken for head // times
        (d, d_v), n_key_heads, times = draw.sizes(2, 5, 6), 4, 2
    n_heads = n_key_heads * times
    width = n_heads * d_v + 1  # not H·d, so that no wrong product fits
    size = 3.0 if draw.extreme else 1.0
    w_q, w_k = size * draw.normal(width, n_heads * d), draw.normal(width, n_key_heads * d)
    w_v, w_o = size * draw.normal(width, n_key_heads * d_v), draw.normal(n_heads * d_v, width)
    head = 4 if draw.number == 1 else (draw.number - 1) % n_heads  # the last one, then the first ones
    return w_q, w_k, w_v, w_o, head, n_heads, n_key_heads


@exercise(_projections)
def head_circuits(
    w_q: Array, w_k: Array, w_v: Array, w_o: Array, head: int, n_heads: int, n_key_heads: int
) -> tuple[Array, Array]:
    """The circuits of a head.

    Without biases and positions, the score of query vector x_i for key vector x_j in one head is x_i qk x_jᵀ, and
    what the head adds to the residual path at i is the sum over j of weights_ij x_j ov. Return the two matrices
    of one head, qk (with the factor 1/√d in it) and ov.

    The n_heads heads of queries share n_key_heads heads of keys and values: each of these serves
    n_heads / n_key_heads consecutive heads of queries. head: the number of the head, from 0. The heads lie side by
    side.

    w_q: (D, n_heads · d); w_k: (D, n_key_heads · d); w_v: (D, n_key_heads · d_v); w_o: (n_heads · d_v, D);
    qk, ov: (D, D).

    Hint: np.split(w_q, n_heads, axis=1) gives the pieces of the heads. The pieces of w_o are rows.
    """
    shared = head // (n_heads // n_key_heads)
    q = np.split(w_q, n_heads, axis=1)[head]
    k = np.split(w_k, n_key_heads, axis=1)[shared]
    v = np.split(w_v, n_key_heads, axis=1)[shared]
    o = np.split(w_o, n_heads, axis=0)[head]
    qk = q @ k.T / np.sqrt(q.shape[1])
    ov = v @ o
    return qk, ov


def _residual_path(draw: Draw) -> Arguments:
    n_layers, t, width, vocabulary = draw.sizes(4, 2, 7)
    growing = np.arange(1, n_layers + 1)[:, None, None]  # as on a residual path, to which every layer adds
    size = 100.0 if draw.extreme else 1.0
    eps = draw.uniform(0.1, 0.3)  # large, so that its place shows
    table = draw.normal(vocabulary, width)
    return size * growing * draw.normal(n_layers, t, width), 1.0 + 0.3 * draw.normal(width), table, eps


@exercise(_residual_path)
def lens_logits(x: Array, gamma: Array, table: Array, eps: float) -> Array:
    """The logit lens.

    x[l] holds the vectors of the residual path after layer l. Return the logits that the model would give if it
    ended there: each vector goes through the model's last norm, RMSNorm with `gamma` and `eps`; then its dot
    products with all rows of the table are the logits:

        norm(v) = gamma · v / √(mean(v²) + eps),    logits = norm(v) tableᵀ

    x: (L, T, D); gamma: (D,); table: (V, D); logits: (L, T, V).

    Hint: The mean is over the last axis, with keepdims=True. Vectors of different layers differ in size.
    """
    size = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    logits = gamma * x / size @ table.T
    return logits


def _outputs(draw: Draw) -> Arguments:
    batch, n_heads, t, d = draw.sizes(4, 4, 8)
    size = 10.0 if draw.extreme else 1.0
    w_o = draw.normal(n_heads * d, n_heads * d + 1)
    removed = (draw.number - 1) % n_heads  # the last one, then the first ones
    return size * draw.normal(batch, n_heads, t, d), w_o, removed


@exercise(_outputs)
def ablated_output(heads: Array, w_o: Array, removed: int) -> Array:
    """Ablation of a head.

    Return what a layer's attention would output without one head: y = merge(heads) w_o, where head number
    `removed` outputs zeros. The others stay as they are, and so does the array `heads` itself.

    heads: (B, H, T, d); w_o: (H·d, D); removed: from 0; y: (B, T, D).

    Hint: Copy before you write zeros. merge_heads puts the heads side by side.
    """
    batch, n_heads, t, d = heads.shape
    kept = heads.copy()
    kept[:, removed] = 0.0
    y = kept.swapaxes(1, 2).reshape(batch, t, n_heads * d) @ w_o
    return y


def _two_runs(draw: Draw) -> Arguments:
    batch, n_heads, t, d = draw.sizes(4, 4, 8)
    size = 10.0 if draw.extreme else 1.0
    if draw.number == 0:
        t = n_heads  # in this trial head and position are the last of all, in the others they differ
    least = min(n_heads, t)
    head, position = (draw.number - 1) % least, (2 * draw.number - 1) % least
    own, other = (size * draw.normal(batch, n_heads, t, d) for _ in range(2))
    return own, other, head, position


@exercise(_two_runs)
def patch_head(own: Array, other: Array, head: int, position: int) -> Array:
    """Patching one head at one position.

    `own` and `other` are the outputs of all heads of a layer on two texts. Return `patched`: `own`, with
    the output of head number `head` at `position` taken from `other`. Change neither of the given arrays.

    own, other, patched: (B, H, T, d); head, position: from 0.

    Hint: Copy `own`, then set one slice of the copy.
    """
    patched = own.copy()
    patched[:, head, position] = other[:, head, position]
    return patched


@exercise(lambda draw: draw.arrays("b h t d; b h t d", 2, 6))
def head_attribution(heads: Array, dheads: Array) -> Array:
    """Gradient × activation.

    A logit depends on the outputs of the heads; `dheads` is its gradient with respect to them. Multiply the
    output of one head by s: return the derivative of the logit with respect to s at s = 1, for every text and head.
    To first order it is what the logit loses without the head.

    heads, dheads: (B, H, T, d); attribution: (B, H).

    Hint: The chain rule: each number of the head's output changes by ds times its own value; add up the effects.
    """
    attribution = (heads * dheads).sum(axis=(2, 3))
    return attribution
