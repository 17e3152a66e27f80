"""Embeddings, tied and not, and sinusoidal positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backend import Array
from ..draw import Draw
from ..exercise import Mistake, exercise


def _ids(draw: Draw, batch: int, t: int, vocabulary: int) -> Array:
    """Ids with repeats within a sequence and across sequences, with 0 among them; the last id is used in "extreme"."""
    ids = draw.rng.integers(0, max(vocabulary - 1, 1), size=(batch, t))
    if not draw.ones:
        ids[0, :2] = 1
        ids[-1, -1] = vocabulary - 1 if draw.extreme else 1
        ids[-1, 0] = 0
    return ids


def _forward(draw: Draw) -> tuple[Any, ...]:
    batch, t, vocabulary, d = draw.sizes(4, 3, 8)
    return _ids(draw, batch, t, vocabulary), draw.normal(vocabulary, d)


@exercise(
    title="Embedding",
    statement="""
        Each token's id picks its row of a table: y[b, t] = table[ids[b, t]].

        ids: (B, T) integers from 0 to V - 1; table: (V, D); y: (B, T, D).
    """,
    outputs="y",
    inputs=_forward,
    hint="NumPy can index with an array of integers.",
    mistakes=(
        Mistake(
            "counted-from-one",
            "table[ids]",
            "table[ids - 1]",
            "Every id picks the row before its own, as if ids were counted from 1 (and id 0 the last row).",
        ),
        Mistake(
            "scaled",
            "table[ids]",
            "table[ids] * np.sqrt(table.shape[1])",
            "The rows are multiplied by √D; the Transformer does that, but after the embedding.",
        ),
        Mistake(
            "batch-flattened",
            "table[ids]",
            "table[ids.reshape(-1)]",
            "The batch and the positions are one axis: give y the axes (B, T, D).",
        ),
        Mistake(
            "zero-taken-for-padding",
            "table[ids]",
            "table[ids] * (ids != 0)[..., None]",
            "Token 0 gets a zero vector, as if it were padding; here it is a token like any other.",
        ),
        Mistake(
            "repeats-removed",
            "table[ids]",
            "table[np.unique(ids)]",
            "Each token appears once; a row is needed for every position, repeated or not.",
        ),
    ),
)
def embedding_forward(ids: Array, table: Array) -> Array:
    y = table[ids]
    return y


def _backward(draw: Draw) -> tuple[Any, ...]:
    ids, table = _forward(draw)
    return ids, draw.gradient(*ids.shape, table.shape[1]), len(table)


_ADD = "np.add.at(dtable, ids, dy)"


@exercise(
    title="Embedding, backward",
    statement="""
        y = table[ids]. Given dy, return the gradient of the table. A token may occur at several places.

        ids: (B, T) integers; dy: (B, T, D); vocabulary: V, the number of rows; dtable: (V, D).
    """,
    outputs="dtable",
    inputs=_backward,
    hint="""
        y is the product of a one-hot matrix O with the table, so dtable = Oᵀ dy: a row gets the sum over all places
        of its token. dtable[ids] += dy does not do that; np.add.at does, and so does a loop.
    """,
    mistakes=(
        Mistake(
            "repeated-tokens-lost",
            _ADD,
            "dtable[ids] += dy",
            "A token that occurs several times keeps the gradient of its last place only: dtable[ids] += dy reads "
            "all rows before it writes any. Use np.add.at(dtable, ids, dy).",
        ),
        Mistake(
            "first-place-only",
            _ADD,
            "dtable[ids[::-1, ::-1]] = dy[::-1, ::-1]",
            "A token that occurs several times keeps the gradient of its first place only; all of them add up.",
        ),
        Mistake(
            "mean-over-places",
            "return dtable",
            "return dtable / np.maximum(np.bincount(ids.reshape(-1), minlength=vocabulary), 1)[:, None]",
            "A token that occurs several times gets the mean of its places; it must get their sum.",
        ),
        Mistake(
            "divided-by-positions",
            "return dtable",
            "return dtable / ids.size",
            "The gradient is divided by the number of positions; a mean belongs to the loss, and dy contains it "
            "already.",
        ),
        Mistake(
            "divided-by-batch",
            "return dtable",
            "return dtable / len(ids)",
            "The gradient is divided by the batch size; a mean belongs to the loss, and dy contains it already.",
        ),
        Mistake(
            "counted-from-one",
            _ADD,
            "np.add.at(dtable, ids - 1, dy)",
            "Every gradient goes one row too high, as if ids were counted from 1.",
        ),
        Mistake(
            "zero-taken-for-padding",
            "return dtable",
            "dtable[0] = 0.0\n    return dtable",
            "Token 0 gets no gradient, as if it were padding; here it is a token like any other.",
        ),
        Mistake(
            "used-rows-only",
            "return dtable",
            "return dtable[np.unique(ids)]",
            "Only the rows of tokens that occur are returned; the others have a gradient too, zero.",
        ),
        Mistake(
            "every-row-gets-all",
            _ADD,
            "dtable += dy.sum(axis=(0, 1))",
            "Every row gets the sum over all positions; each position concerns the row of its own token only.",
        ),
        Mistake(
            "last-sequence-only",
            _ADD,
            "np.add.at(dtable, ids[-1], dy[-1])",
            "Only the last sequence is left; those before have been overwritten (= for +=).",
        ),
        Mistake(
            "upstream-forgotten",
            _ADD,
            "np.add.at(dtable, ids, np.ones_like(dy))",
            "The places are counted, but what counts is the sum of their dy.",
        ),
    ),
)
def embedding_backward(ids: Array, dy: Array, vocabulary: int) -> Array:
    dtable = np.zeros((vocabulary, dy.shape[-1]))
    np.add.at(dtable, ids, dy)
    return dtable


def _tied(draw: Draw) -> tuple[Any, ...]:
    ids, table = _forward(draw)
    hidden = draw.normal(*ids.shape, table.shape[1])
    dlogits = draw.gradient(*ids.shape, len(table))
    return ids, table, hidden, draw.gradient(*hidden.shape), dlogits


@exercise(
    title="A tied embedding, backward",
    statement="""
        One table serves at both ends of a model: embedded = table[ids] at the bottom, logits = hidden tableᵀ at the
        top. Given dembedded and dlogits, return the gradients of hidden and of the table. (In a model dembedded comes
        from dhidden, through all the layers between; here it is given.)

        ids: (B, T) integers; table, dtable: (V, D); hidden, dhidden, dembedded: (B, T, D); dlogits: (B, T, V).
    """,
    outputs="dhidden, dtable",
    inputs=_tied,
    hint="The table is used twice, so two gradients meet in it: that of the look-up and that of the matrix product.",
    mistakes=(
        Mistake(
            "output-half-dropped",
            "rows_of_dlogits.T @ rows_of_hidden",
            "np.zeros_like(table)",
            "dtable holds the share of the look-ups only; the matrix product at the top used the table as well.",
        ),
        Mistake(
            "look-up-half-dropped",
            "np.add.at(dtable, ids, dembedded)",
            "pass",
            "dtable holds the share of the matrix product only; the look-ups at the bottom used the table as well.",
        ),
        Mistake(
            "overwritten-by-look-up",
            "np.add.at(dtable, ids, dembedded)",
            "dtable[ids] = dembedded",
            "The rows of the tokens that occur are overwritten by one place of the look-up; everything must be added.",
        ),
        Mistake(
            "repeated-tokens-lost",
            "np.add.at(dtable, ids, dembedded)",
            "dtable[ids] += dembedded",
            "A token that occurs several times keeps only its last place of the look-up: use np.add.at.",
        ),
        Mistake(
            "averaged",
            "return dhidden, dtable",
            "return dhidden, dtable / 2.0",
            "The two gradients of the table are averaged; they must be added.",
        ),
        Mistake(
            "output-half-reshaped",
            "rows_of_dlogits.T @ rows_of_hidden",
            "(rows_of_hidden.T @ rows_of_dlogits).reshape(table.shape)",
            "The gradient of tableᵀ is reshaped to that of the table, which scrambles it; it must be transposed.",
        ),
        Mistake(
            "dembedded-added-to-dhidden",
            "dhidden = dlogits @ table",
            "dhidden = dlogits @ table + dembedded",
            "dembedded is added to dhidden; it belongs to the embedding at the bottom.",
        ),
    ),
)
def tied_embedding_backward(
    ids: Array, table: Array, hidden: Array, dembedded: Array, dlogits: Array
) -> tuple[Array, Array]:
    rows_of_hidden = hidden.reshape(-1, hidden.shape[-1])
    rows_of_dlogits = dlogits.reshape(-1, dlogits.shape[-1])
    dhidden = dlogits @ table
    dtable = rows_of_dlogits.T @ rows_of_hidden
    np.add.at(dtable, ids, dembedded)
    return dhidden, dtable


def _positions(draw: Draw) -> tuple[Any, ...]:
    if draw.ones:
        return 1, 2, 10.0
    if draw.extreme:
        return draw.integer(30, 50), 2 * draw.integer(3, 5), draw.uniform(2.0, 10.0)
    return draw.integer(4, 8), 2 * draw.integer(3, 5), draw.uniform(50.0, 1000.0)


@exercise(
    title="Sinusoidal positions",
    statement="""
        The table of positions:

            table[pos, 2i]     = sin(pos / base^(2i/D))
            table[pos, 2i + 1] = cos(pos / base^(2i/D))

        length: the number of positions, from 0; width: D, even; base: a number (10000 in the paper); table: (length,
        D).
    """,
    outputs="table",
    inputs=_positions,
    hint="Fill two columns at a time: table[:, 0::2] are the even ones. np.arange(0, width, 2) is all the 2i.",
    mistakes=(
        Mistake(
            "halves-side-by-side",
            "table[:, 0::2] = np.sin(angles)\n    table[:, 1::2] = np.cos(angles)",
            "table[:, : width // 2] = np.sin(angles)\n    table[:, width // 2 :] = np.cos(angles)",
            "All sines stand in the first half and all cosines in the second; the formula has them alternate.",
        ),
        Mistake(
            "sine-and-cosine-exchanged",
            "table[:, 0::2] = np.sin(angles)\n    table[:, 1::2] = np.cos(angles)",
            "table[:, 0::2] = np.cos(angles)\n    table[:, 1::2] = np.sin(angles)",
            "Sine and cosine have changed places: even columns hold the sine.",
        ),
        Mistake(
            "exponent-doubled",
            "base ** (-np.arange(0, width, 2) / width)",
            "base ** (-2 * np.arange(0, width, 2) / width)",
            "The exponent is 2·2i/D: np.arange(0, D, 2) is 2i already.",
        ),
        Mistake(
            "exponent-halved",
            "base ** (-np.arange(0, width, 2) / width)",
            "base ** (-np.arange(width // 2) / width)",
            "The exponent is i/D, where it must be 2i/D.",
        ),
        Mistake(
            "frequency-for-each-column",
            "base ** (-np.arange(0, width, 2) / width)\n"
            "    angles = np.arange(length)[:, None] * frequencies\n"
            "    table = np.empty((length, width))\n"
            "    table[:, 0::2] = np.sin(angles)\n"
            "    table[:, 1::2] = np.cos(angles)",
            "base ** (-np.arange(width) / width)\n"
            "    angles = np.arange(length)[:, None] * frequencies\n"
            "    table = np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))",
            "Each column has a frequency of its own; the sine and the cosine of a pair share one.",
        ),
        Mistake(
            "counted-from-one",
            "np.arange(length)",
            "np.arange(1, length + 1)",
            "The first position is 1; it must be 0, where all sines are 0 and all cosines 1.",
        ),
        Mistake(
            "base-fixed",
            "base **",
            "10000.0 **",
            "The base is 10000 whatever is asked for.",
        ),
        Mistake(
            "multiplied-by-power",
            "base ** (-np.arange",
            "base ** (np.arange",
            "The position is multiplied by base^(2i/D); divide by it.",
        ),
        Mistake(
            "sine-only",
            "table[:, 1::2] = np.cos(angles)",
            "table[:, 1::2] = np.sin(angles)",
            "The odd columns hold the sine again; they must hold the cosine.",
        ),
    ),
)
def sinusoidal_positions(length: int, width: int, base: float) -> Array:
    frequencies = base ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * frequencies
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table
