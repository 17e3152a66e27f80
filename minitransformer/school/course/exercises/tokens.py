"""Embeddings, tied and not, and sinusoidal positions."""

import numpy as np

from ..exercise import Arguments, Array, Draw, exercise


def _ids(draw: Draw, batch: int, t: int, vocabulary: int) -> Array:
    """Ids with repeats within a sequence and across sequences, including 0; "extreme" uses the last id."""
    ids = draw.indices(max(vocabulary - 1, 1), batch, t)
    if not draw.ones:
        ids[0, :2] = 1
        ids[-1, -1] = vocabulary - 1 if draw.extreme else 1
        ids[-1, 0] = 0
    return ids


def _forward(draw: Draw) -> Arguments:
    batch, t, vocabulary, d = draw.sizes(4, 3, 8)
    return _ids(draw, batch, t, vocabulary), draw.normal(vocabulary, d)


@exercise(_forward)
def embedding_forward(ids: Array, table: Array) -> Array:
    """Embedding.

    Each token's id picks its row of a table: y[b, t] = table[ids[b, t]].

    ids: (B, T) integers from 0 to V - 1; table: (V, D); y: (B, T, D).

    Hint: NumPy can index with an array of integers.
    """
    y = table[ids]
    return y


def _backward(draw: Draw) -> Arguments:
    ids, table = _forward(draw)
    return ids, draw.gradient(*ids.shape, table.shape[1]), len(table)


@exercise(_backward)
def embedding_backward(ids: Array, dy: Array, vocabulary: int) -> Array:
    """Embedding, backward.

    y = table[ids]. Given dy, return the gradient of the table. A token may occur at several places.

    ids: (B, T) integers; dy: (B, T, D); vocabulary: V, the number of rows; dtable: (V, D).

    Hint: y is the product of a one-hot matrix O with the table, so dtable = Oᵀ dy: a row gets the sum over all places
    of its token. dtable[ids] += dy does not do that; np.add.at does, and so does a loop.
    """
    dtable = np.zeros((vocabulary, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable


def _tied(draw: Draw) -> Arguments:
    ids, table = _forward(draw)
    hidden = draw.normal(*ids.shape, table.shape[1])
    dlogits = draw.gradient(*ids.shape, len(table))
    return ids, table, hidden, draw.gradient(*hidden.shape), dlogits


@exercise(_tied)
def tied_embedding_backward(
    ids: Array, table: Array, hidden: Array, dembedded: Array, dlogits: Array
) -> tuple[Array, Array]:
    """A tied embedding, backward.

    One table of weights serves at both ends of a model: embedded = table[ids] at the bottom, logits = hidden tableᵀ at
    the top. Given dembedded and dlogits, return the gradients of hidden and of the table. (In a model dembedded comes
    from dhidden, through all the layers between; here it is given.)

    ids: (B, T) integers; table, dtable: (V, D); hidden, dhidden, dembedded: (B, T, D); dlogits: (B, T, V).

    Hint: The table is used twice, so its gradient is a sum of two: from the look-up and from the matrix product.
    """
    rows_of_hidden = hidden.reshape(-1, hidden.shape[-1])
    rows_of_dlogits = dlogits.reshape(-1, dlogits.shape[-1])
    dhidden = dlogits @ table
    dtable = rows_of_dlogits.T @ rows_of_hidden
    np.add.at(dtable, ids, dembedded)
    return dhidden, dtable


def _positions(draw: Draw) -> Arguments:
    if draw.ones:
        return 1, 2, 10.0
    if draw.extreme:
        return draw.integer(30, 50), 2 * draw.integer(3, 5), draw.uniform(2.0, 10.0)
    return draw.integer(4, 8), 2 * draw.integer(3, 5), draw.uniform(50.0, 1000.0)


@exercise(_positions)
def sinusoidal_positions(length: int, width: int, base: float) -> Array:
    """Sinusoidal positions.

    The table of positions:

        table[pos, 2i]     = sin(pos / base^(2i/D))
        table[pos, 2i + 1] = cos(pos / base^(2i/D))

    length: the number of positions, from 0; width: D, even; base: a number (10000 in the paper); table: (length,
    D).

    Hint: Fill two columns at a time: table[:, 0::2] are the even ones. np.arange(0, width, 2) gives all the 2i.
    """
    frequencies = base ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * frequencies
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table
