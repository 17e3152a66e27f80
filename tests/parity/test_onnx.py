"""The ONNX project's own node tests: every case of the operators that we have, values and gradients.

The expected values are those of `onnx.backend.test.case.node`, which ONNX runtimes are held to, with its tolerances. It
has no gradients, so these are compared with finite differences on the same inputs, in float64. What we cannot express
is out of scope for a reason; docs/referee.md has the table, and a test holds it to what happens here.
"""

import functools
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from minitransformer import ideas, ops
from minitransformer.verify import gradients

from .composed import OutOfScope, after, axis_moved, chain, final_memory, reshaped, same, scale_of, unrolled, with_each

PAGE = Path(__file__).parents[2] / "docs" / "referee.md"
Inputs = dict[str, Any]


class Wanted:
    """What we call, with which inputs; `more` are further outputs, by their place."""

    def __init__(self, f: Any, inputs: list[Any], more: dict[int, Any] | None = None, first: Any = None) -> None:
        self.f, self.inputs, self.more = f, inputs, more or {}
        self.first = first or (lambda y: {0: y})  # from our output to theirs, by place


def heads(n: int | None) -> Any:
    return same if n is None else lambda x: ops.split_heads(x, n)


def attention(x: Inputs, a: dict[str, Any]) -> Wanted:
    n_q, n_k = a.get("q_num_heads"), a.get("kv_num_heads")
    past = 0 if "past_key" not in x else x["past_key"].shape[2]
    q, k = (heads(n)(x[name])[0] for name, n in (("Q", n_q), ("K", n_k)))
    t_q, t_k, times = q.shape[2], k.shape[2] + past, q.shape[1] // k.shape[1]
    lengths = x.get("nonpad_kv_seqlen")
    offset = np.reshape(past if lengths is None else lengths - t_q, (-1, 1, 1, 1))
    ahead = np.arange(t_k) - np.arange(t_q)[:, None] - offset  # how far a key lies ahead of its query
    allowed = np.ones((1, 1, t_q, t_k), dtype=bool)
    if a.get("is_causal"):
        allowed = allowed & (ahead <= 0)
    if a.get("left_window_size", -1) >= 0:
        allowed = allowed & (ahead >= -a["left_window_size"])
    if a.get("right_window_size", -1) >= 0:
        allowed = allowed & (ahead <= a["right_window_size"])
    if lengths is not None:
        allowed = allowed & (np.arange(t_k) < lengths.reshape(-1, 1, 1, 1))
    bias = x.get("attn_mask")
    if bias is not None:
        missing = [(0, 0)] * (bias.ndim - 1) + [(0, t_k - bias.shape[-1])]
        bias = np.pad(bias, missing, constant_values=False if bias.dtype == bool else -np.inf)
        allowed = allowed & (bias if bias.dtype == bool else np.isfinite(bias))
        bias = None if bias.dtype == bool else np.where(np.isfinite(bias), bias, 0.0).astype(bias.dtype)
    scale, cap = a.get("scale") or None, a.get("softcap")
    if cap and bias is not None and not bias.any():
        bias = None  # it only hides
    if cap and bias is not None:
        raise OutOfScope("softcapped scores with a bias")

    def attend(*qkv: Any) -> Any:
        q, k, v, *more = qkv
        if cap:
            return ideas.softcapped_attention(q, k, v, cap, allowed, scale=scale)
        return ops.attention(q, k, v, allowed, scale=scale, bias=more[0] if more else None)

    def keys(name: str, before: str) -> Any:
        cached = after(x[before], 2) if past else same
        return chain(heads(n_k), cached, *([lambda h: ideas.repeat_heads(h, times)] if times > 1 else []))

    steps = [heads(n_q), keys("K", "past_key"), keys("V", "past_value"), *([same] if bias is not None else [])]
    f = with_each(attend, steps, ops.merge_heads if n_q else None)
    more = {}
    if past:
        more = {i: after(x[b], 2)(heads(n_k)(x[name])[0])[0] for i, (name, b) in PRESENT.items()}
    if a.get("qk_matmul_output_mode") == 3:  # the weights: what comes out for values that are unit vectors
        eye = np.broadcast_to(np.eye(t_k, dtype=q.dtype), (*q.shape[:2], t_k, t_k))
        more[3] = attend(q, steps[1](x["K"])[0], eye, *([] if bias is None else [bias]))[0]
    return Wanted(f, [x["Q"], x["K"], x["V"], *([] if bias is None else [bias])], more)


PRESENT = {1: ("K", "past_key"), 2: ("V", "past_value")}


def layer_norm(x: Inputs, a: dict[str, Any]) -> Wanted:
    eps = a.get("epsilon", 1e-5)
    return Wanted(lambda *arrays: ideas.layer_norm_over_axes(*arrays, eps), [x["X"], x["W"], x["B"]])


def rms_norm(x: Inputs, a: dict[str, Any]) -> Wanted:
    return Wanted(lambda *arrays: ideas.rms_norm_over_axes(*arrays, a.get("epsilon", 1e-5)), [x["X"], x["W"]])


def rotary(x: Inputs, a: dict[str, Any]) -> Wanted:
    at = x.get("position_ids")
    cos, sin = ((table if at is None else table[at])[:, None] for table in (x["cos_cache"], x["sin_cache"]))
    n = a.get("num_heads")
    rotate = lambda *arrays: ideas.rotate(*arrays, interleaved=bool(a.get("interleaved")))  # noqa: E731
    return Wanted(with_each(rotate, [heads(n), same, same], ops.merge_heads if n else None), [x["input"], cos, sin])


def softmax(x: Inputs, a: dict[str, Any]) -> Wanted:
    return Wanted(lambda scores: ops.softmax(scores, axis=a.get("axis", -1)), [x["x"]])


def gelu(x: Inputs, a: dict[str, Any]) -> Wanted:
    return Wanted(lambda y: ops.gelu(y, approximate=a.get("approximate", b"none").decode()), [x["x"]])


def swish(x: Inputs, a: dict[str, Any]) -> Wanted:
    if a["alpha"] != 1.0:
        raise OutOfScope("Swish with a factor inside")
    return Wanted(ops.silu, [x["x"]])


def cross_entropy(x: Inputs, a: dict[str, Any]) -> Wanted:
    how = {"reduction": a.get("reduction", b"mean").decode(), "ignore_index": a.get("ignore_index", -100)}
    logits, targets = x["x"], x["y"]
    move = axis_moved(1, -1)
    if "w" in x:
        f = with_each(lambda s, w: ideas.weighted_cross_entropy(s, targets, w, **how), [move, same])
        return Wanted(f, [logits, x["w"]])
    return Wanted(with_each(lambda s: ops.cross_entropy(s, targets, **how), [move]), [logits])


def linear_attention(x: Inputs, a: dict[str, Any]) -> Wanted:
    rule = a.get("update_rule", b"gated_delta").decode()
    if "delta" not in rule:
        raise OutOfScope("linear attention without features and without a quotient")
    n_q, n_k = a["q_num_heads"], a["kv_num_heads"]
    times = n_q // n_k
    split = chain(heads(n_k), *([lambda h: ideas.repeat_heads(h, times)] if times > 1 else []))
    k = split(x["key"])[0]
    scale = scale_of(k.shape[-1], a.get("scale"))
    decay = x.get("decay", np.zeros((*x["key"].shape[:2], n_k), k.dtype))
    beta = np.broadcast_to(x["beta"], (*x["beta"].shape[:2], n_k))
    drop = chain(split, reshaped(*k.shape[:-1]))
    state = x.get("past_state", np.zeros((len(k), n_k, k.shape[-1], x["value"].shape[-1] // n_k), k.dtype))
    repeat = (lambda s: ideas.repeat_heads(s, times)) if times > 1 else same
    steps = [heads(n_q), split, split, split, drop, repeat]
    inputs = [x["query"], x["key"], x["value"], decay, beta, state]
    f = with_each(lambda *arrays: ideas.gated_delta(*arrays, scale=scale), steps, ops.merge_heads)
    memory = final_memory([step(array)[0] for step, array in zip(steps, inputs, strict=True)], scale)
    return Wanted(f, inputs, {1: memory[:, ::times]})


GATES = {"RNN": [0], "LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}  # theirs: i; i o f c; z r h. Ours: i f c o; r z h


def recurrent(kind: str, x: Inputs, a: dict[str, Any]) -> Wanted:
    if "P" in x:
        raise OutOfScope("peepholes")
    size, n = a["hidden_size"], len(GATES[kind])
    batchwise, way = a.get("layout", 0), a.get("direction", b"forward").decode()
    rows = np.concatenate([np.arange(g * size, (g + 1) * size) for g in GATES[kind]])
    width = 2 * size if kind == "LSTM" else size
    start = np.zeros((x["X"].shape[0 if batchwise else 1], width))
    cell = {"RNN": ideas.rnn_cell, "LSTM": ideas.lstm_cell, "GRU": ideas.gru_cell_reset_first}[kind]
    inputs, directions = [], []
    for i in range(len(x["W"])):
        w, r = x["W"][i][rows].T, x["R"][i][rows].T
        of_x, of_h = np.split(x["B"][i] if "B" in x else np.zeros(2 * n * size, w.dtype), 2)
        inputs += [w, (of_x + of_h)[rows], r]
        directions.append(unrolled(cell, start, way == "reverse" or i == 1))

    def f(sequence: Any, *weights: Any) -> Any:
        sequence, moved = axis_moved(0, 1)(sequence) if batchwise else same(sequence)
        each = [d(sequence, *weights[3 * i : 3 * i + 3]) for i, d in enumerate(directions)]

        def backward(dy: Any) -> tuple[Any, ...]:
            of_each = [pullback(dy[:, i]) for i, (_, pullback) in enumerate(each)]
            return (moved(sum(g[0] for g in of_each)), *(dw for g in of_each for dw in g[1:]))

        return np.stack([y for y, _ in each], axis=1), backward  # (T, directions, B, S)

    def theirs(y: Any) -> dict[int, Any]:
        ends = np.stack([y[0 if way == "reverse" or i == 1 else -1, i] for i in range(y.shape[1])])
        all_, h, c = y[..., :size], ends[..., :size], ends[..., size:]
        return {0: np.moveaxis(all_, 2, 0), 1: np.moveaxis(h, 1, 0)} if batchwise else {0: all_, 1: h, 2: c}

    return Wanted(f, [x["X"], *inputs], first=theirs)


TRANSLATIONS = {
    "Attention": attention,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "RotaryEmbedding": rotary,
    "Softmax": softmax,
    "Gelu": gelu,
    "Swish": swish,
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "LinearAttention": linear_attention,
    **{kind: functools.partial(recurrent, kind) for kind in GATES},
}


def node_cases() -> list[Any]:
    """Those of one node each; the others repeat a case, written out as a graph of simpler nodes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases are made of numbers that overflow
        cases = [(case, case.model.graph.node) for case in collect_testcases(None)]
    return [case for case, node in cases if len(node) == 1 and node[0].op_type in TRANSLATIONS]


CASES = node_cases()


def translated(case: Any) -> tuple[Wanted, list[str], list[Any]]:
    (node,) = case.model.graph.node
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    given, expected = case.data_sets[0]
    inputs = dict(zip([name for name in node.input if name], given, strict=True))
    if any(str(x.dtype) == "bfloat16" for x in inputs.values()):
        raise OutOfScope("bfloat16, which NumPy does not have")
    roles = [spec.name for spec in onnx.defs.get_schema(node.op_type).inputs]
    fixed = dict(zip([name for name in node.input if name], [None] * len(inputs), strict=True))
    by_role = {role: inputs[name] for role, name in zip(roles, node.input, strict=False) if name in fixed}
    return TRANSLATIONS[node.op_type](inputs | by_role, attributes), list(node.output), list(expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node(case: Any) -> None:
    try:
        wanted, names, expected = translated(case)
    except OutOfScope as reason:
        assert str(reason) in PAGE.read_text(encoding="utf-8")
        return
    y, _ = wanted.f(*wanted.inputs)
    ours = wanted.first(y) | wanted.more
    for place, theirs in zip([i for i, name in enumerate(names) if name], expected, strict=True):
        if place in ours:
            assert ours[place].dtype == theirs.dtype
            tolerance = {"rtol": case.rtol, "atol": max(case.atol, 1e-3 if theirs.dtype == np.float16 else 1e-6)}
            np.testing.assert_allclose(ours[place], theirs, **tolerance)
    assert any(i in ours for i, name in enumerate(names) if name)
    gradients(wanted.f, *wanted.inputs, entrywise=0, directions=1, intermediates=False).assert_ok()


def test_the_page_has_the_counts() -> None:
    counts: Counter[str] = Counter()
    for case in CASES:
        try:
            translated(case)
            counts["right"] += 1
        except OutOfScope as reason:
            counts[str(reason)] += 1
    page = PAGE.read_text(encoding="utf-8")
    assert re.search(rf"\| ONNX {onnx.__version__} \| {counts.pop('right')} \| 0 \| {sum(counts.values())} \|", page)
    assert len(re.findall(r"^\| ONNX \| \d+ \|", page, re.MULTILINE)) == len(counts)
    for reason, n in counts.items():
        assert re.search(rf"\| ONNX \| {n} \| {re.escape(reason)}", page), (reason, n)
