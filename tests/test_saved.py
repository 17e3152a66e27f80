"""What a pullback keeps alive, against bytes counted by hand."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from minitransformer import layers, ops, saved
from minitransformer.core.arrays.backend import to_device

DEVICES = ("numpy", "strict")


def array(device, *shape, dtype="float64"):
    return to_device(np.random.default_rng(0).normal(size=shape).astype(dtype), device)


def names(backward):
    return {name for row in saved(backward).rows for name in row.names}


@pytest.mark.parametrize("device", DEVICES)
def test_linear_keeps_its_input_and_its_weight(device) -> None:
    x, weight, bias = array(device, 2, 5, 4), array(device, 4, 3), array(device, 3)
    kept = saved(ops.linear(x, weight, bias)[1])
    assert {row.names: row.nbytes for row in kept.rows} == {
        ("linear.rows", "linear.x"): 8 * 40,  # rows is a view of x, so there is one buffer of 2 · 5 · 4 numbers
        ("linear.weight",): 8 * 12,
        ("linear.bias",): 8 * 3,
    }
    assert (kept.total, kept.parameters) == (8 * 55, 0)
    assert [row.nbytes for row in kept.rows] == [8 * 40, 8 * 12, 8 * 3]  # the largest first
    assert kept.rows[0].shape == (2, 5, 4)
    assert kept.rows[0].dtype == "float64"


@pytest.mark.parametrize("device", DEVICES)
def test_attention_keeps_q_k_v_and_its_weights(device) -> None:
    q, k, v = array(device, 6, 3), array(device, 7, 3), array(device, 7, 4)
    numbers = 6 * 3 + 7 * 3 + 7 * 4 + 6 * 7  # kept and softmax's y are the weights, one array
    kept = saved(ops.attention(q, k, v)[1])
    assert kept.total == 8 * numbers
    assert ("attention.kept", "softmax.y") in {row.names for row in kept.rows}
    dropped = saved(ops.attention(q, k, v, dropout=0.5, rng=np.random.default_rng(0))[1])
    assert dropped.total == 8 * (numbers + 2 * 6 * 7)  # besides: what remains of them, and the factor


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_keeps_the_whole_array(device) -> None:
    table = array(device, 100, 4)
    kept = saved(ops.relu(table[3:5])[1])  # of x nothing: a boolean for each number suffices
    assert kept.total == 2 * 4
    kept = saved(ops.linear(table[3:5], array(device, 4, 3))[1])
    assert kept.total == 8 * (100 * 4 + 4 * 3)


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_are_listed_apart(device) -> None:
    layer = layers.Linear(4, 3).to(device)
    x = array(device, 5, 4, dtype="float32")
    kept = saved(layer(x)[1])
    assert (kept.total, kept.parameters) == (4 * 20, 4 * 15)
    assert {row.names[0]: row.parameter for row in kept.rows} == {
        "linear.rows": False,
        "linear.weight": True,
        "linear.bias": True,
    }
    table = layers.Embedding(10, 4).to(device)
    kept = saved(table.unembed(x)[1])  # whose weight is the table's transpose
    assert (kept.total, kept.parameters) == (4 * 20, 4 * 40)


@pytest.mark.parametrize("device", DEVICES)
def test_recomputing_keeps_the_inputs_of_each_layer_alone(device) -> None:
    sizes = {"n_layers": 3, "d_model": 8, "n_heads": 2, "d_ff": 16}
    x = array(device, 2, 5, 8, dtype="float32")
    tokens, per_layer = 2 * 5, 0
    per_layer += tokens * 8  # x, into q, k and v
    per_layer += 3 * tokens * 8  # q, k, v
    per_layer += 2 * 2 * 5 * 5  # the weights: batch, heads, T, T
    per_layer += tokens * 8  # the merged heads, into the output projection
    per_layer += 2 * tokens * (8 + 1)  # each LayerNorm: normalized, and one inverse_std for each token
    per_layer += tokens * 8  # into the feed-forward network
    per_layer += tokens * 16  # its active units
    plain = saved(layers.Encoder(**sizes).to(device)(x)[1])
    units = tokens * 16  # where ReLU lets them pass: a byte each
    assert plain.total == 3 * (4 * per_layer + units)
    recomputed = saved(layers.Encoder(**sizes, recompute=True).to(device)(x)[1])
    assert recomputed.total == 4 * 3 * tokens * 8
    per_layer = 4 * (8 * 8 + 8) + 8 * 16 + 16 + 16 * 8 + 8 + 4 * 8
    assert plain.parameters == recomputed.parameters == 4 * 3 * per_layer


def test_an_array_that_several_layers_read_counts_once() -> None:
    memory = array("numpy", 1, 50, 8, dtype="float32")
    decoder = layers.Decoder(2, 8, 2, 16)
    kept = saved(decoder(array("numpy", 1, 3, 8, dtype="float32"), memory)[1])
    assert [row.nbytes for row in kept.rows if row.shape == (1, 50, 8)] == [memory.nbytes]


def test_everything_that_holds_an_array_is_followed() -> None:
    class Holder:
        def __init__(self, weight):
            self.weight = weight

        def backward(self, dy):
            return dy

    a, b, c, d, e, f = (np.ones(size) for size in (1, 2, 4, 8, 16, 32))
    mapping, several, late = {"key": b}, [c, (d, {"inner": [a]})], None

    def backward(dy, default=e, *, keyword=f):
        return dy, mapping, several, late, backward  # it holds itself, too

    assert saved(backward).total == 8 * 63
    here = "test_everything_that_holds_an_array_is_followed"
    assert {f"{here}.default", f"{here}.keyword", f"{here}.mapping['key']"} < names(backward)
    assert saved(functools.partial(backward, a, keyword=np.ones(64))).total == 8 * 127
    assert saved(lambda dy: dy).total == 0
    assert saved(Holder(a).backward).total == 8
    assert names(Holder(a).backward) == {"Holder.weight"}

    layer = layers.LayerNorm(4)
    assert saved(layer.__call__).parameters == 4 * 8

    def unset():
        def backward(dy):
            return never

        return backward
        never = a

    assert saved(unset()).rows == ()


def test_what_is_no_pullback_is_refused() -> None:
    with pytest.raises(TypeError, match="saved: expected a pullback, got ndarray"):
        saved(np.ones(3))


def test_it_shows_itself_as_a_table() -> None:
    encoder = layers.Encoder(3, 8, 2, 16)
    kept = saved(encoder(np.ones((2, 5, 8), "float32"))[1])
    lines = str(kept).splitlines()
    assert (
        lines[-1] == f"{kept.total / 1000:.1f} kB kept for backward, and {kept.parameters / 1000:.1f} kB of parameters"
    )
    assert re.fullmatch(r"attention\.kept, softmax\.y +\(2, 2, 5, 5\) float32 × 3 +1\.2 kB", lines[1])
    assert sum(" parameter" in line and "× 12" in line for line in lines) == 1  # the square weights of three layers
    html = kept._repr_html_()
    assert html.count("<tr>") == len(lines)
    assert "<td>attention.kept, softmax.y</td><td>(2, 2, 5, 5) float32 × 3</td><td>1.2 kB</td>" in html
    small = saved(ops.softmax(np.ones(2))[1])
    assert str(small).splitlines()[-1] == "16 bytes kept for backward, and 0 bytes of parameters"
