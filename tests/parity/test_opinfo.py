"""PyTorch's own samples of its operators and modules (`op_db`, `module_db`): every case that we have, with gradients.

The samples are those PyTorch tests itself with, in float64. Ours runs on the same numbers and on the same upstream
gradient; values and all gradients are compared. What we cannot express is out of scope for a reason; docs/referee.md
has the table, and a test holds it to what happens here.
"""

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from minitransformer import ideas, layers, ops

from .composed import OutOfScope, axis_moved, same, with_each
from .counterparts import share_weights

VERSION = torch.__version__.partition("+")[0]
PAGE = Path(__file__).parents[2] / "docs" / "referee.md"
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


class Sample(NamedTuple):
    """One call of theirs: what is called, and with what."""

    source: str  # "OpInfo" or "module_db"
    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]  # by name
    module: Any = None


class Ours(NamedTuple):
    f: Callable[..., Any]  # of arrays, in our form
    tensors: list[Any]  # their counterparts, whose gradients are compared where they have one
    theirs: Callable[[], Any]


def array(x: Any) -> Any:
    return x.detach().numpy().copy() if isinstance(x, torch.Tensor) else x


def scope(ok: bool, reason: str) -> None:
    if not ok:
        raise OutOfScope(reason)


def elementwise(op: Callable[..., Any]) -> Callable[[Sample], Ours]:
    return lambda s: Ours(op, [s.arguments["input"]], lambda: s.call(**s.arguments))


def softmax(s: Sample) -> Ours:
    x, axis = s.arguments["input"], s.arguments["dim"]
    scope(x.ndim > 0, "the softmax of a scalar")
    return Ours(lambda a: ops.softmax(a, axis=axis), [x], lambda: s.call(**s.arguments))


def gelu(s: Sample) -> Ours:
    how = s.arguments.get("approximate", "none")
    return Ours(lambda a: ops.gelu(a, approximate=how), [s.arguments["input"]], lambda: s.call(**s.arguments))


def linear(s: Sample) -> Ours:
    x, weight, bias = (s.arguments.get(name) for name in ("input", "weight", "bias"))
    transposed = axis_moved(0, 1)
    steps = [same, transposed, *([] if bias is None else [same])]
    tensors = [x, weight, *([] if bias is None else [bias])]
    return Ours(with_each(ops.linear, steps), tensors, lambda: s.call(**s.arguments))


def embedding(s: Sample) -> Ours:
    ids, table = s.arguments["input"], s.arguments["weight"]
    for option in ("max_norm", "padding_idx", "scale_grad_by_freq", "sparse"):
        scope(not s.arguments.get(option), "an embedding that changes or skips rows of its table")
    return Ours(lambda a: ops.embedding(array(ids), a), [table], lambda: s.call(**s.arguments))


def norm(op: Callable[..., Any], default: float | None, shifts: bool) -> Callable[[Sample], Ours]:
    def translate(s: Sample) -> Ours:
        x, gamma, beta = (s.arguments.get(name) for name in ("input", "weight", "bias"))
        eps = s.arguments.get("eps", default)
        eps = float(np.finfo(np.float64).eps) if eps is None else eps
        scope(eps > 0, "an ε below 0")
        shape = tuple(s.arguments["normalized_shape"])
        one, zero = (gamma, beta)
        given = [x, *([] if one is None else [one]), *([] if zero is None else [zero])]

        def f(a: Any, *rest: Any) -> Any:  # a gain or shift that they leave out is 1 or 0
            rest_ = list(rest)
            g = np.ones(shape) if one is None else rest_.pop(0)
            b = np.zeros(shape) if zero is None else rest_.pop(0)
            y, backward = op(a, g, *([b] if shifts else []), eps)
            kept = [0, *([] if one is None else [1]), *([] if zero is None else [2])]
            return y, lambda dy: tuple(backward(dy)[i] for i in kept)

        return Ours(f, given, lambda: s.call(**s.arguments))

    return translate


def cross_entropy(s: Sample) -> Ours:
    logits, targets = s.arguments["input"], s.arguments["target"]
    scope(not targets.is_floating_point(), "targets that are distributions")
    ignored = s.arguments.get("ignore_index", -100)
    scope(bool((targets != ignored).any()), "a mean of no losses, which is NaN there")
    weight = s.arguments.get("weight")
    how = {name: s.arguments[name] for name in ("reduction", "ignore_index", "label_smoothing") if name in s.arguments}
    ids, move = array(targets), axis_moved(0 if logits.ndim == 1 else 1, -1)
    if weight is None:
        f = with_each(lambda a: ops.cross_entropy(a, ids, **how), [move])
        return Ours(f, [logits], lambda: s.call(**s.arguments))
    w = array(weight)

    def weighted(a: Any) -> Any:
        loss, backward = ideas.weighted_cross_entropy(a, ids, w, **how)
        return loss, lambda dloss: backward(dloss)[0]  # PyTorch has no gradient of the weights

    return Ours(with_each(weighted, [move]), [logits], lambda: s.call(**s.arguments))


def attention(s: Sample) -> Ours:
    a = s.arguments
    scope(not a.get("dropout_p"), "numbers drawn by PyTorch's own generator")
    q, k, v = (a[name] for name in ("query", "key", "value"))
    mask = a.get("attn_mask")
    t_q, t_k = q.shape[-2], k.shape[-2]
    seen = np.arange(t_k) <= np.arange(t_q)[:, None] if a.get("is_causal") else None  # they count from the first
    leading = k.shape[:-2]

    def spread(x: Any) -> Any:  # they broadcast queries of fewer axes over the leading axes of the keys
        own = (*leading, *x.shape[-2:])
        extra = len(own) - x.ndim
        return np.broadcast_to(x, own).copy(), lambda dy: dy.sum(axis=tuple(range(extra)))

    more = [] if mask is None else [mask]
    f = with_each(lambda q, k, v, *b: ops.attention(q, k, v, seen, bias=b[0] if b else None),
                  [spread if q.ndim < k.ndim else same, same, same, *([same] if more else [])])  # fmt: skip
    return Ours(f, [q, k, v, *more], lambda: s.call(**s.arguments))


def convolution(s: Sample) -> Ours:
    a = s.arguments
    x, weight, bias = (a.get(name) for name in ("input", "weight", "bias"))
    plain = all(np.all(np.equal(a.get(name, 1), 1)) for name in ("stride", "groups"))
    scope(plain and a.get("padding", 0) in ("same", "valid", 0), "convolution in strides, in groups or with padding")
    scope(a.get("padding", 0) == "same" and weight.shape[-1] % 2 == 1, "convolution of the whole windows alone")
    dilation = int(np.max(a.get("dilation", 1)))
    b = np.zeros(len(weight)) if bias is None else None

    def f(x: Any, w: Any, *given: Any) -> Any:
        y, backward = ideas.convolution(x, w, given[0] if given else b, dilation=dilation)
        return y, lambda dy: backward(dy)[: 2 + len(given)]

    def turned(w: Any) -> Any:  # (out, in, k) to (k, in, out)
        return w.transpose(2, 1, 0), lambda dw: dw.transpose(2, 1, 0)

    move = axis_moved(-2, -1)
    steps = [move, turned, *([] if bias is None else [same])]
    return Ours(with_each(f, steps, move), [x, weight, *([] if bias is None else [bias])], lambda: s.call(**a))


def cell(s: Sample) -> Ours:
    module, kind = s.module, type(s.module).__name__
    scope(getattr(module, "nonlinearity", "tanh") == "tanh", "a recurrent cell with ReLU")
    x, state = s.arguments["input"], s.arguments["hx"]
    state = torch.cat(list(state), dim=-1) if kind == "LSTMCell" else state
    state = state.detach().requires_grad_()

    def theirs() -> Any:
        if kind == "LSTMCell":
            return torch.cat(module(x, tuple(state.chunk(2, dim=-1))), dim=-1)
        return module(x, state)

    op = {"RNNCell": ideas.rnn_cell, "LSTMCell": ideas.lstm_cell, "GRUCell": ideas.gru_cell}[kind]
    gru = kind == "GRUCell"

    def f(x: Any, w_x: Any, b_x: Any, w: Any, b: Any, state: Any) -> Any:
        inputs, inputs_backward = ops.linear(x, w_x.T, b_x if gru else b_x + b)
        new, new_backward = op(inputs, state, w.T, *([b] if gru else []))

        def backward(dnew: Any) -> Any:
            dinputs, dstate, dw, *db = new_backward(dnew)
            dx, dw_x, db_x = inputs_backward(dinputs)
            return dx, dw_x.T, db_x, dw.T, db[0] if db else db_x, dstate

        return new, backward

    m = module
    return Ours(f, [x, m.weight_ih, m.bias_ih, m.weight_hh, m.bias_hh, state], theirs)


def recurrent(s: Sample) -> Ours:
    module = s.module
    scope(getattr(module, "nonlinearity", "tanh") == "tanh", "a recurrent cell with ReLU")
    scope(module.num_layers == 1 and not module.bidirectional, "several recurrent layers or both directions at once")
    scope(not getattr(module, "proj_size", 0), "an LSTM whose state is projected")
    raise AssertionError("a sample of one layer, which the samples did not have")


def blocked(mask: Any) -> tuple[Any, Any]:
    """(may attend, bias) from a mask of theirs, which is True where one may not, or is added."""
    if mask is None:
        return None, None
    mask = array(mask)
    return (~mask, None) if mask.dtype == bool else (np.isfinite(mask), np.where(np.isfinite(mask), mask, 0.0))


def both(*masks: Any) -> Any:
    known = [mask for mask in masks if mask is not None]
    return None if not known else known[0] if len(known) == 1 else known[0] & known[1]


def block(s: Sample) -> Ours:
    """An encoder or decoder layer, with our weights in theirs; parameters are compared as well."""
    module, a, kind = s.module, s.arguments, type(s.module).__name__
    decoder = kind == "TransformerDecoderLayer"
    scope(module.linear1.bias is not None, "norms without a shift")
    activation = module.activation.__name__
    ours = (layers.DecoderLayer if decoder else layers.EncoderLayer)(
        module.self_attn.embed_dim, module.self_attn.num_heads, module.linear1.out_features,
        activation=activation, norm_order="pre" if module.norm_first else "post",
    )  # fmt: skip
    module.dropout_p = 0.0
    pairs = share_weights(ours, module, np.random.default_rng(0))
    inputs = [a["tgt"], a["memory"]] if decoder else [a["src"]]
    first = not module.self_attn.batch_first and inputs[0].ndim == 3
    step = axis_moved(0, 1) if first else same

    def mask_of(pairs_: Any, keys: Any) -> Any:
        allowed, bias = blocked(pairs_)
        scope(bias is None or not bias.any(), "scores that a layer is given a bias for")
        real, of_keys = blocked(keys)
        scope(of_keys is None or not of_keys.any(), "scores that a layer is given a bias for")
        return both(allowed, None if real is None else real[..., None, :])

    names = ("tgt_mask", "tgt_key_padding_mask") if decoder else ("src_mask", "src_key_padding_mask")
    mask = mask_of(*(a.get(name) for name in names))
    scope(not decoder or (mask is not None and not np.triu(mask, 1).any()), "a decoder that sees ahead")
    memory_mask = mask_of(a.get("memory_mask"), a.get("memory_key_padding_mask")) if decoder else None

    def call(*arrays: Any) -> Any:
        return ours(*arrays, mask, memory_mask) if decoder else ours(*arrays, mask)

    f = with_each(call, [step] * len(inputs), step)

    def with_parameters(*arrays: Any) -> Any:
        y, backward = f(*arrays[: len(inputs)])

        def all_gradients(dy: Any) -> Any:
            ours.zero_grad()
            dx = backward(dy)
            return (*(dx if isinstance(dx, tuple) else (dx,)), *(pair.ours.grad for pair in pairs))

        return y, all_gradients

    return Ours(with_parameters, [*inputs, *pairs], lambda: s.call(**a))


def self_attention(s: Sample) -> Ours:
    """Their module from our ops: three projections, heads, attention, and one more projection."""
    m, a = s.module, s.arguments
    scope(m.bias_k is None and not m.add_zero_attn, "keys and values that are parameters, or zeros")
    scope(m._qkv_same_embed_dim, "keys and values of other widths")
    allowed, bias = blocked(a.get("attn_mask"))
    scope(bias is None or not bias.any(), "scores that a layer is given a bias for")
    if allowed is not None and allowed.ndim == 3:  # (B·H, T, T)
        allowed = allowed.reshape(-1, m.num_heads, *allowed.shape[-2:])
        allowed = allowed[0] if a["query"].ndim == 2 else allowed
    real, _ = blocked(a.get("key_padding_mask"))
    mask = both(allowed, None if real is None else real[..., None, None, :])
    step = axis_moved(0, 1) if not m.batch_first and a["query"].ndim == 3 else same
    biased = m.in_proj_bias is not None

    def f(q: Any, k: Any, v: Any, w: Any, w_out: Any, *more: Any) -> Any:
        parts = [np.split(x, 3) for x in (w, more[0])] if biased else [np.split(w, 3), [None] * 3]
        projected, pulls = [], []
        for x, weight, b in zip((q, k, v), *parts, strict=True):
            y, pull = ops.linear(x, weight.T, *([] if b is None else [b]))
            heads, back = ops.split_heads(y, m.num_heads)
            projected.append(heads)
            pulls.append(lambda dheads, pull=pull, back=back: pull(back(dheads)))
        heads, heads_backward = ops.attention(*projected, mask)
        merged, merge_backward = ops.merge_heads(heads)
        y, out_backward = ops.linear(merged, w_out.T, *more[1:])

        def backward(dy: Any) -> Any:
            dmerged, dw_out, *db_out = out_backward(dy)
            each = [pull(d) for pull, d in zip(pulls, heads_backward(merge_backward(dmerged)), strict=True)]
            dw = np.concatenate([d[1].T for d in each])
            db = [np.concatenate([d[2] for d in each])] if biased else []
            return (*(d[0] for d in each), dw, dw_out.T, *db, *db_out)

        return y, backward

    tensors = [a["query"], a["key"], a["value"], m.in_proj_weight, m.out_proj.weight]
    tensors += [m.in_proj_bias, m.out_proj.bias] if biased else []
    tensors = [*tensors[:3], *(x for x in tensors[3:])]
    return Ours(with_each(f, [step] * 3 + [same] * (len(tensors) - 3), step), tensors, lambda: s.call(**a)[0])


OPS: dict[str, Callable[[Sample], Ours]] = {
    "softmax": softmax,
    "tanh": elementwise(ops.tanh),
    "nn.functional.relu": elementwise(ops.relu),
    "nn.functional.silu": elementwise(ops.silu),
    "nn.functional.gelu": gelu,
    "nn.functional.linear": linear,
    "nn.functional.embedding": embedding,
    "nn.functional.layer_norm": norm(ideas.layer_norm_over_axes, 1e-5, True),
    "nn.functional.rms_norm": norm(ideas.rms_norm_over_axes, None, False),
    "nn.functional.cross_entropy": cross_entropy,
    "nn.functional.scaled_dot_product_attention": attention,
    "nn.functional.conv1d": convolution,
}
FUNCTIONAL = {  # modules that are a function with parameters
    "nn.Linear": "linear",
    "nn.LayerNorm": "layer_norm",
    "nn.RMSNorm": "rms_norm",
    "nn.GELU": "gelu",
    "nn.SiLU": "silu",
    "nn.ReLU": "relu",
    "nn.Softmax": "softmax",
    "nn.CrossEntropyLoss": "cross_entropy",
    "nn.Embedding": "embedding",
    "nn.Conv1d": "conv1d",
}
MODULES: dict[str, Callable[[Sample], Ours]] = {
    "nn.Tanh": elementwise(ops.tanh),
    "nn.RNNCell": cell,
    "nn.GRUCell": cell,
    "nn.LSTMCell": cell,
    "nn.RNN": recurrent,
    "nn.GRU": recurrent,
    "nn.LSTM": recurrent,
    "nn.TransformerEncoderLayer": block,
    "nn.TransformerDecoderLayer": block,
    "nn.MultiheadAttention": self_attention,
}
NAMES = {  # of arguments, where PyTorch's function tells no signature
    "softmax": ["input", "dim", "dtype"],
    "nn.functional.gelu": ["input", "approximate"],
    "nn.functional.linear": ["input", "weight", "bias"],
    "nn.functional.conv1d": ["input", "weight", "bias"],
    "nn.functional.scaled_dot_product_attention": ["query", "key", "value"],
    "tanh": ["input"],
}
ATTRIBUTES = (
    "weight bias eps normalized_shape approximate dim reduction ignore_index label_smoothing stride padding dilation "
    "groups padding_idx max_norm scale_grad_by_freq sparse"
)


def op_samples() -> list[Sample]:
    found = []
    for info in op_db:
        if info.name in OPS and info.variant_test_name != "complex":
            torch.manual_seed(0)
            for i, sample in enumerate(info.sample_inputs("cpu", torch.float64, requires_grad=True)):
                given = [sample.input, *sample.args]
                names = NAMES.get(info.name) or list(inspect.signature(info.op).parameters)
                arguments = dict(zip(names, given, strict=False)) | sample.kwargs
                if info.name == "nn.functional.embedding":  # its samples have the table first
                    arguments = {"weight": given[0], "input": given[1], **sample.kwargs}
                call = torch.nn.functional.embedding if info.name == "nn.functional.embedding" else info.op
                found.append(Sample("OpInfo", f"{info.name} {info.variant_test_name} {i}", call, arguments))
    return found


def module_samples() -> list[Sample]:
    found = []
    for info in module_db:
        if info.name not in {*MODULES, *FUNCTIONAL}:
            continue
        torch.manual_seed(0)
        samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=True)
        for i, sample in enumerate(samples):
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(torch.float64)
            names = list(inspect.signature(module.forward).parameters)
            names = ["input" if name == "x" else name for name in names]  # RMSNorm's
            arguments = dict(zip(names, sample.forward_input.args, strict=False)) | sample.forward_input.kwargs
            call: Any = module
            if info.name in FUNCTIONAL:
                call = getattr(torch.nn.functional, FUNCTIONAL[info.name])
                own = {name: getattr(module, name) for name in ATTRIBUTES.split() if hasattr(module, name)}
                arguments |= {name: value for name, value in own.items() if name in _takes(call)}
            found.append(Sample("module_db", f"{info.name} {i} {sample.desc}", call, arguments, module))
    return found


def _takes(call: Any) -> set[str]:
    more = {"linear": "weight bias", "conv1d": "weight bias stride padding dilation groups", "gelu": "approximate"}
    name = getattr(call, "__name__", "")
    return set(more[name].split()) if name in more else set(inspect.signature(call).parameters)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    SAMPLES = [*op_samples(), *module_samples()]


def translated(s: Sample) -> Ours:
    floats = [x for x in s.arguments.values() if isinstance(x, torch.Tensor)]
    scope(all(x.numel() for x in floats), "an array without elements")
    name = s.name.partition(" ")[0]
    if s.source == "module_db" and name in MODULES:
        return MODULES[name](s)
    if s.source == "module_db":
        return OPS["softmax" if name == "nn.Softmax" else f"nn.functional.{FUNCTIONAL[name]}"](s)
    return OPS[name](s)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.source} {s.name}".replace(" ", "-"))
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own samples
def test_sample(sample: Sample) -> None:
    try:
        ours = translated(sample)
    except OutOfScope as reason:
        assert str(reason) in PAGE.read_text(encoding="utf-8")
        return
    inputs = [x for x in ours.tensors if isinstance(x, torch.Tensor)]
    pairs = [x for x in ours.tensors if not isinstance(x, torch.Tensor)]
    y, backward = ours.f(*map(array, inputs))
    theirs = ours.theirs()
    np.testing.assert_allclose(y, array(theirs), **TOLERANCE)
    dy = np.random.default_rng(1).normal(size=y.shape)
    gradients = backward(dy)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    asked = [*inputs, *(pair.theirs for pair in pairs)]
    wanted = [x for x in dict.fromkeys(asked) if x.requires_grad]
    found = dict(zip(wanted, torch.autograd.grad(theirs, wanted, torch.from_numpy(dy)), strict=True))
    assert wanted
    views = [*([lambda g: g] * len(inputs)), *(pair.view for pair in pairs)]
    for tensor, view, ours_ in zip(asked, views, gradients, strict=True):
        if tensor.requires_grad:
            np.testing.assert_allclose(ours_, array(view(found[tensor])), **TOLERANCE)


@pytest.mark.skipif(VERSION != "2.13.0", reason="the page counts the samples of the pinned PyTorch")
def test_the_page_has_the_counts() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for sample in SAMPLES:
        try:
            translated(sample)
            counts[sample.source, "right"] += 1
        except OutOfScope as reason:
            counts[sample.source, str(reason)] += 1
    page = PAGE.read_text(encoding="utf-8")
    for source in ("OpInfo", "module_db"):
        out = sum(n for (where, reason), n in counts.items() if where == source and reason != "right")
        assert re.search(rf"\| {source} of PyTorch {VERSION} \| {counts[source, 'right']} \| 0 \| {out} \|", page), (
            source,
            counts,
        )
    for (source, reason), n in counts.items():
        assert reason == "right" or re.search(rf"\| {source} \| {n} \| {re.escape(reason)}", page), (source, reason, n)
