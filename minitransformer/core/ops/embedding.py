"""Embedding: a token's id picks its row of a table.

    y_n = table[id_n],                       in matrices:  y = O table

The matrix O is one-hot: O_nv is 1 where id_n = v and otherwise 0. So row v of the table gets the sum of dy_n over *all*
positions n that contain token v,

    dtable_v = sum_n O_nv dy_n               in matrices:  dtable = Oᵀ dy

dtable[ids] = dy, or dtable[ids] += dy, would keep only one of the terms: "the cat saw the dog" would train "the" once.
"""

from __future__ import annotations

from ..arrays.backend import Array, Pullback, library, scatter_add
from ..arrays.declared import op


@op("ids: integers (...) < V; table: (V, D); y: (..., D)")
def embedding(ids: Array, table: Array) -> tuple[Array, Pullback]:
    """y = table[ids]. backward(dy) returns dtable.

    Raises ValueError for an id below 0 or above V - 1.
    """
    xp = library(type(table))
    y = table[ids]

    def backward(dy: Array) -> Array:
        dtable = xp.zeros_like(table)
        scatter_add(dtable, ids.reshape(-1), dy.reshape(-1, table.shape[1]))
        return dtable

    return y, backward


@op("table: (T_max, D); y: (length, D)")
def learned_positions(table: Array, length: int, start: int = 0) -> tuple[Array, Pullback]:
    """Rows start, ..., start + length - 1 of a table of learned positions.

    This is an embedding whose ids are the positions. Each is used once, so backward(dy) writes dy to these rows of
    dtable. The caller adds y to every sequence of a batch and sums the gradient over the batch. Gehring et al. 2017,
    "Convolutional Sequence to Sequence Learning", section 3.1.
    """
    if start < 0 or length < 1 or start + length > table.shape[0]:
        raise ValueError(
            f"learned_positions: positions {start} to {start + length - 1} were requested, "
            f"but the table holds positions 0 to {table.shape[0] - 1}"
        )
    y = table[start : start + length]

    def backward(dy: Array) -> Array:
        dtable = library(type(table)).zeros_like(table)
        dtable[start : start + length] = dy
        return dtable

    return y, backward
