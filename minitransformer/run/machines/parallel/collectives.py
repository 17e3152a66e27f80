"""Collectives: operations on the arrays of n ranks, each with its pullback.

A collective is a linear map. Stack the arrays x_0 ... x_{n-1} of all ranks into one input x, and their outputs into y.
Then y = A x, where the matrix A has one block for each pair of ranks: the identity or zero. The pullback of a linear
map is its transpose, dx = Aᵀ dy, because <dy, A x> = <Aᵀ dy, x>. With three ranks:

    broadcast from rank 0            reduce to rank 0               both: what one copies, the other sums

        | 1 0 0 |                        | 1 1 1 |
        | 1 0 0 |                        | 0 0 0 |
        | 1 0 0 |                        | 0 0 0 |

The transpose of each is the other. So dx_0 = dy_0 + dy_1 + dy_2 for broadcast: rank 0's x has gone to three places.

all_gather puts the x of every rank, one after the other, on every rank; reduce_scatter sums, and leaves rank r with
stretch r of the sum. One block row of all_gather, for output stretch r on rank s, is y_s[r] = x_r. Its transpose is
dx_r = Σ_s dy_s[r]: reduce_scatter.

**Copies.** Often all ranks hold the same value and compute the same with it: a weight, a residual stream, the loss. It
is one vector, not n, and counts once in <dy, y>. Its gradient is also one vector, and each rank has a copy.

    all_reduce   y = Σ_r x_r         from n parts to one value      | 1 1 1 |
    identity     y_r = x             from one value to n parts      | 1 1 1 |ᵀ

So the pullback of all_reduce is dx_r = dy, with nothing to send, and that of identity is dx = Σ_r dy_r. These are g and
f of Shoeybi et al. 2019, "Megatron-LM", section 3. (If each rank computed its own loss from its copy of all_reduce's y,
and the losses were added, the copies would be n vectors. Then Aᵀ, all ones, would be all_reduce itself.)

mean is the loss of data parallel training. Rank r has the mean loss x_r of its w_r tokens, and the loss is the mean
over all tokens, y = Σ_r w_r x_r / Σ_r w_r. It is one value, so dx_r = w_r dy / Σ_r w_r. The mean over ranks,
Σ_r x_r / n, differs from it as soon as ranks have different numbers of tokens.

send and receive move x from one rank to another: the gradient goes the opposite way.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.boundary import check_floats
from ....core.arrays.declared import op
from .group import Group


@op("x, y: (...)")
def broadcast(x: Array, group: Group, root: int = 0) -> tuple[Array, Pullback]:
    """y_r = x_root. x, y: any shape, the same on all ranks. backward(dy) returns Σ_r dy_r on the root, else zero."""
    xp = array_module(x)
    _check_rank("broadcast", "root", root, group)
    y = group.broadcast(x, root)

    def backward(dy: Array) -> Array:
        total = group.sum(dy)
        dx = total if group.rank == root else xp.zeros_like(dy)
        return dx

    return y, backward


@op("x, y: (...)")
def reduce(x: Array, group: Group, root: int = 0) -> tuple[Array, Pullback]:
    """y_root = Σ_r x_r; zero elsewhere. x, y: any shape, the same on all ranks. backward(dy) returns dy_root."""
    xp = array_module(x)
    _check_rank("reduce", "root", root, group)
    total = group.sum(x)
    y = total if group.rank == root else xp.zeros_like(x)

    def backward(dy: Array) -> Array:
        dx = group.broadcast(dy, root)
        return dx

    return y, backward


@op("x: (...)")
def all_gather(x: Array, group: Group) -> tuple[Array, Pullback]:
    """y = x_0, x_1, ... along the first axis. x: (k, ...), the same on all ranks; y: (n k, ...).

    backward(dy) returns dx_r = Σ_s dy_s[r], of stretch r.
    """
    _check_axis("all_gather", x)
    equal = [len(x)] * group.size
    y = group.gather(x, equal)

    def backward(dy: Array) -> Array:
        dx = group.scatter_sum(dy, equal)
        return dx

    return y, backward


@op("x: (...)")
def reduce_scatter(x: Array, group: Group) -> tuple[Array, Pullback]:
    """y_r = Σ_s x_s[r], of stretch r. x: (n k, ...), the same on all ranks; y: (k, ...).

    backward(dy) returns dx = dy_0, dy_1, ... along the first axis.
    """
    _check_axis("reduce_scatter", x)
    if len(x) % group.size:
        raise ValueError(
            f"reduce_scatter: the first axis of x must divide into {group.size} equal stretches, one for each rank, "
            f"got shape {x.shape}"
        )
    equal = [len(x) // group.size] * group.size
    y = group.scatter_sum(x, equal)

    def backward(dy: Array) -> Array:
        dx = group.gather(dy, equal)
        return dx

    return y, backward


@op("x, y: (...)")
def all_reduce(x: Array, group: Group) -> tuple[Array, Pullback]:
    """y = Σ_r x_r, one value of which every rank has a copy. x, y: any shape. backward(dy) returns dx_r = dy."""
    y = group.sum(x)

    def backward(dy: Array) -> Array:
        dx = dy.copy()
        return dx

    return y, backward


@op("x, y: (...)")
def identity(x: Array, group: Group) -> tuple[Array, Pullback]:
    """y_r = x, where x is one value of which every rank has a copy. x, y: any shape. backward(dy) returns Σ_r dy_r."""
    y = x.copy()

    def backward(dy: Array) -> Array:
        dx = group.sum(dy)
        return dx

    return y, backward


@op("x, y: (...)")
def mean(x: Array, group: Group, weight: float) -> tuple[Array, Pullback]:
    """y = Σ_r w_r x_r / Σ_r w_r, one value of which every rank has a copy. x, y: any shape, the same on all ranks.

    weight: w_r, such as the number of tokens that x_r is the mean of. backward(dy) returns dx_r = w_r dy / Σ_r w_r.
    """
    xp = array_module(x)
    share = weight / float(group.sum(xp.asarray([float(weight)]))[0])
    y = group.sum(share * x)

    def backward(dy: Array) -> Array:
        dx = share * dy
        return dx

    return y, backward


def send(x: Array, group: Group, to: int) -> tuple[None, Pullback]:
    """Send x to another rank. The output is there, as the result of `receive`; the sender has no output.

    backward() returns dx, which that rank sends back.
    """
    check_floats("send", x=x)
    _check_rank("send", "to", to, group, other=True)
    group.send(x, to)

    def backward() -> Array:
        dx = group.receive(x, to)
        return dx

    return None, backward


def receive(like: Array, group: Group, source: int) -> tuple[Array, Pullback]:
    """The x that another rank sends. like: any array of its shape and dtype.

    backward(dy) sends dy back and returns None, because the input is on that rank.
    """
    check_floats("receive", like=like)
    _check_rank("receive", "source", source, group, other=True)
    y = group.receive(like, source)

    def backward(dy: Array) -> None:
        group.send(dy, source)

    return y, backward


def _check_rank(where: str, name: str, rank: int, group: Group, other: bool = False) -> None:
    if not (isinstance(rank, int) and 0 <= rank < group.size) or (other and rank == group.rank):
        which = f"another rank than {group.rank}, " if other else ""
        raise ValueError(f"{where}: {name} must be {which}from 0 to {group.size - 1}, got {rank}")


def _check_axis(where: str, x: Array) -> None:
    if x.ndim == 0:
        raise ValueError(f"{where}: x needs a first axis to share among the ranks; got an array without axes")
