"""Several ranks: collectives and their transposes, on the arrays of all ranks in one."""

from ..exercise import Arguments, Array, Draw, exercise


def _ring(draw: Draw) -> Arguments:
    n = (3, 4, 5, 6, 3, 2, 4)[draw.number]
    (k,) = draw.sizes(1, 2, 7)
    return draw.gradient(n, n, k), 3 * draw.number


@exercise(_ring)
def ring_step(parts: Array, t: int) -> Array:
    """One step of a ring.

    n ranks in a circle sum their arrays. Each array is cut into n stretches; parts[r, s] is stretch s on rank r. In
    step t every rank r sends its stretch (r + t + 1) mod n to rank (r - 1) mod n, all at the same time, and the
    receiver adds it to its own. Return the parts of all ranks after step t. (This ring runs in the opposite
    direction to the lesson's. n - 1 steps are the reduce-scatter; the rule is the same for every t.)

    parts, after: (n, n, k); t: an integer, 0 or more.

    Hint: What changes on rank r - 1, and where? Compute what all ranks send before any of them adds.
    """
    n = len(parts)
    after = parts.copy()
    for r in range(n):
        s = (r + t + 1) % n
        after[(r - 1) % n, s] += parts[r, s]
    return after


def _gathered(draw: Draw) -> Arguments:
    n, k, d = draw.sizes(3, 2, 5)
    return (draw.gradient(n, n * k, d),)


@exercise(_gathered)
def all_gather_backward(dys: Array) -> Array:
    """All-gather, backward.

    all-gather puts the arrays x_0 ... x_{n-1} of n ranks, each (k, D), one after the other on every rank:
    y_s = x_0, x_1, ..., x_{n-1} for each rank s. Given the gradients dys of the outputs of all ranks, return the
    gradients dxs of the inputs of all ranks.

    dys: (n, n k, D), dys[s] is that of rank s; dxs: (n, k, D), dxs[r] is that of rank r.

    Hint: On how many ranks is a number of x_r found, and where? Its gradients add up.
    """
    n, length, width = dys.shape
    total = dys.sum(axis=0)
    dxs = total.reshape(n, length // n, width)
    return dxs
