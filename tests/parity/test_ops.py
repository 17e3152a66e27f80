"""Every op and every gradient of it, against PyTorch in float64.

Each function below has the name of an op, takes the op's arguments by name, arrays as tensors, and computes the output
with PyTorch alone. The cases of the catalogue call it. What dropout multiplies with comes as `factors`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from all_ops import CALLS, OPS, TABLED, arguments_of, floats, in_dtype, results

from minitransformer import fast, ops

# ------------------------------------------------------------------------------------------------- rows, activations


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return F.linear(x, weight.T, bias)


def low_rank_linear(x: Any, down: Any, up: Any) -> Any:
    return F.linear(F.linear(x, down.T), up.T)


def softmax(x: Any, axis: int = -1, temperature: float = 1.0) -> Any:
    """A row that is hidden altogether gives zeros; PyTorch's is NaN."""
    hidden = (x == -torch.inf).all(dim=axis, keepdim=True)
    return F.softmax(x.masked_fill(hidden, 0.0) / temperature, dim=axis).masked_fill(hidden, 0.0)


def layer_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


def rms_norm(x: Any, gamma: Any, eps: float = 1e-6) -> Any:
    return F.rms_norm(x, gamma.shape, gamma, eps)


def gelu(x: Any, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


def gated(gate: Any, x: Any, activation: Any = ops.silu) -> Any:
    return REFERENCES[activation.__name__](gate) * x


def clamped_swiglu(x: Any, alpha: float = 1.702, limit: float = 7.0) -> Any:
    """As gpt-oss has it in transformers."""
    gate, up = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(min=-limit, max=limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def cross_entropy(
    logits: Any, targets: Any, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Any:
    """Where no position counts the mean is 0; PyTorch's is NaN."""
    options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    if (targets == ignore_index).all():
        options["reduction"] = "sum"
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **options)
    return loss.reshape(targets.shape) if reduction == "none" else loss


def weighted_cross_entropy(
    logits: Any,
    targets: Any,
    class_weights: Any,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """From log_softmax and one-hot rows, since F.cross_entropy passes no gradient to its weights."""
    counted, v = targets != ignore_index, logits.shape[-1]
    hit = F.one_hot(torch.where(counted, targets, 0), v).to(logits.dtype)
    wanted = (1 - label_smoothing) * hit + label_smoothing / v
    of_each = -(class_weights * wanted * torch.log_softmax(logits, dim=-1)).sum(dim=-1) * counted
    total = ((class_weights * hit).sum(dim=-1) * counted).sum()
    return {"none": of_each, "sum": of_each.sum(), "mean": of_each.sum() / total}[reduction]


def mean_pool(x: Any, mask: Any = None) -> Any:
    """The mean of the rows that count, sequence by sequence; of none it is 0."""
    real = torch.ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(x.shape[:-1])
    flat = zip(x.reshape(-1, *x.shape[-2:]), real.reshape(-1, x.shape[-2]), strict=True)
    means = [rows[seen].mean(dim=0) if seen.any() else 0 * rows[0] for rows, seen in flat]
    return torch.stack(means).reshape(*x.shape[:-2], -1)


def dropout(x: Any, factors: Any = 1.0) -> Any:
    return x * factors


def top_k_gates(logits: Any, k: int = 2) -> Any:
    """As MixtralTopKRouter: the softmax of all, of which the k largest are divided by their sum."""
    p = torch.softmax(logits, dim=-1)
    best, places = torch.topk(p, k, dim=-1)
    return torch.zeros_like(p).scatter(-1, places, best / best.sum(dim=-1, keepdim=True))


def load_balance(logits: Any, k: int = 2) -> Any:
    """Mixtral's load balancing sums in float32; here its formula in float64."""
    p = torch.softmax(logits.reshape(-1, logits.shape[-1]), dim=-1)
    shares = F.one_hot(torch.topk(p, k, dim=-1).indices, p.shape[-1]).to(p.dtype).sum(dim=1).mean(dim=0)
    return p.shape[-1] * torch.sum(shares * p.mean(dim=0))


# --------------------------------------------------------------------------------------------------------- attention


def allowed(q: Any, k: Any, mask: Any, causal: bool) -> Any:
    """(..., T_q, T_k). The last t_q of t_k positions look back (PyTorch's is_causal counts from the first instead)."""
    t_q, t_k = q.shape[-2], k.shape[-2]
    pairs = [[not causal or key <= query + t_k - t_q for key in range(t_k)] for query in range(t_q)]
    return torch.tensor(pairs) & (torch.tensor(True) if mask is None else mask)


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    bias: Any = None,
    factors: Any = None,
) -> Any:
    """By PyTorch's own function where it can: it has no gradient of a bias beside a mask, and no dropout of ours.

    A query that sees nothing gives zeros. torch.softmax makes such a row NaN, and so did scaled_dot_product_attention
    in earlier releases; so it is given scores of 0 before the softmax and weights of 0 after it.
    """
    seen = allowed(q, k, mask, causal)
    if bias is None and factors is None and seen.any(dim=-1).all():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    if mask is None and not causal and factors is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(*q.shape[:-1], -1), scale=scale)
    somewhere = seen.any(dim=-1, keepdim=True)
    scores = q @ k.transpose(-1, -2) * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + bias
    scores = scores.masked_fill(~seen & somewhere, -torch.inf).masked_fill(~somewhere, 0.0)
    weights = torch.softmax(scores, dim=-1) * seen
    return (weights if factors is None else weights * factors) @ v


def of_keys(mask: Any) -> Any:
    """A mask of keys as one of pairs."""
    return torch.tensor(True) if mask is None else mask.unsqueeze(-2) if mask.ndim else mask


def flash_attention(q: Any, k: Any, v: Any, mask: Any = None, tile: int = 64, **options: Any) -> Any:
    return attention(q, k, v, of_keys(mask), **options)


def local_attention(q: Any, k: Any, v: Any, radius: int, mask: Any = None, **options: Any) -> Any:
    near = [[abs(i - j) <= radius for j in range(q.shape[-2])] for i in range(q.shape[-2])]
    return attention(q, k, v, torch.tensor(near) & of_keys(mask), **options)


def additive_attention(q: Any, k: Any, v: Any, w: Any, mask: Any = None) -> Any:
    scores = F.linear(torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)), w[None]).squeeze(-1)
    seen = torch.tensor(True) if mask is None else mask
    least = torch.finfo(scores.dtype).min  # not -inf: a row that sees nothing is no NaN, and gets weights of 0
    return torch.softmax(scores.masked_fill(~seen, least), dim=-1) * seen @ v


def linear_attention(q: Any, k: Any, v: Any, mask: Any = None, block: int = 64) -> Any:
    """The weights of all pairs, T² of them, as a product; a row without weights is 0."""
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2) * of_keys(mask)
    weights = weights.tril()
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.masked_fill(total == 0, 1.0)) @ v


def sink_attention(
    q: Any, k: Any, v: Any, sink: Any, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """As gpt-oss has it in transformers: the sink is one more logit, whose probability is thrown away."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~allowed(q, k, mask, causal), -torch.inf)
    sinks = sink.reshape(-1, 1, 1).expand(*q.shape[:-1], 1)
    return F.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1] @ v


def gated_delta(q: Any, k: Any, v: Any, decay: Any, beta: Any, state: Any = None, scale: float | None = None) -> Any:
    """Equation 10 of the paper with matrices: S (α (I - β k kᵀ)) + β v kᵀ, S of d_v rows, a rate for each column."""
    memory = torch.zeros(*v.shape[:-2], v.shape[-1], k.shape[-1], dtype=k.dtype)
    memory, outputs = memory if state is None else state.transpose(-1, -2), []
    for i in range(q.shape[-2]):
        key, b, alpha = k[..., i, :, None], beta[..., i, None, None], torch.exp(decay[..., i, None, :])
        erase = torch.eye(k.shape[-1], dtype=k.dtype) - b * key @ key.transpose(-1, -2)
        memory = (alpha * memory) @ erase + b * v[..., i, :, None] @ key.transpose(-1, -2)
        outputs.append(memory @ q[..., i, :, None] * (q.shape[-1] ** -0.5 if scale is None else scale))
    return torch.stack(outputs, dim=-3)[..., 0]


# ------------------------------------------------------------------------------------------- recurrence, convolution


def recurrent(cell: Any, inputs: Any, state: Any, weight: Any, bias: Any = None) -> Any:
    """A cell of torch.nn with our weight as its weight_hh; its weight_ih is 1, so its input is our `inputs`."""
    n = inputs.shape[-1]
    zeros = torch.zeros(n, dtype=inputs.dtype)
    flat = [x.reshape(-1, x.shape[-1]) for x in (inputs, state)]
    given = (flat[0], flat[1], torch.eye(n, dtype=inputs.dtype), weight.T, zeros, zeros if bias is None else bias)
    if cell is not torch.lstm_cell:
        return cell(*given).reshape(state.shape)
    return torch.cat(cell(given[0], given[1].chunk(2, dim=-1), *given[2:]), dim=-1).reshape(state.shape)


def rnn_cell(inputs: Any, h: Any, weight: Any) -> Any:
    return recurrent(torch.rnn_tanh_cell, inputs, h, weight)


def lstm_cell(inputs: Any, state: Any, weight: Any) -> Any:
    return recurrent(torch.lstm_cell, inputs, state, weight)


def gru_cell(inputs: Any, h: Any, weight: Any, bias: Any) -> Any:
    return recurrent(torch.gru_cell, inputs, h, weight, bias)


def gru_cell_reset_first(inputs: Any, h: Any, weight: Any) -> Any:
    """Equations 5 to 8 of the paper."""
    (of_r, of_z, of_n), (w_r, w_z, w_n) = inputs.chunk(3, dim=-1), weight.chunk(3, dim=-1)
    r, z = torch.sigmoid(of_r + h @ w_r), torch.sigmoid(of_z + h @ w_z)
    return z * h + (1 - z) * torch.tanh(of_n + (r * h) @ w_n)


def convolution(x: Any, weight: Any, bias: Any, dilation: int = 1, causal: bool = False) -> Any:
    """F.conv1d has the channels before the positions, and pads both sides alike."""
    flat = x.reshape(-1, *x.shape[-2:]).transpose(1, 2)
    reach = (weight.shape[0] - 1) * dilation
    padded = F.pad(flat, (reach, 0) if causal else (reach // 2, reach // 2))
    y = F.conv1d(padded, weight.permute(2, 1, 0), bias, dilation=dilation)
    return y.transpose(1, 2).reshape(*x.shape[:-1], -1)


# -------------------------------------------------------------------------------------------------- heads, positions


def split_heads(x: Any, n_heads: int) -> Any:
    return torch.stack(x.chunk(n_heads, dim=-1), dim=-3)


def merge_heads(heads: Any) -> Any:
    return torch.cat(heads.unbind(-3), dim=-1)


def repeat_heads(x: Any, times: int) -> Any:
    return x.repeat_interleave(times, dim=-3)


def embedding(ids: Any, table: Any) -> Any:
    return F.embedding(ids.long(), table)


def learned_positions(table: Any, length: int, start: int = 0) -> Any:
    return F.embedding(torch.arange(start, start + length), table)


def rotate(x: Any, cos: Any, sin: Any, interleaved: bool = False) -> Any:
    """The first pairs as complex numbers, times others whose length need not be 1; the rest as it is."""
    n = cos.shape[-1]
    pairs = x[..., : 2 * n].unflatten(-1, (n, 2) if interleaved else (2, n))
    pairs = pairs if interleaved else pairs.mT
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, sin))
    return torch.cat([(turned if interleaved else turned.mT).flatten(-2), x[..., 2 * n :]], dim=-1)


def rotary(x: Any, start: int = 0, base: float = 1e4, interleaved: bool = False, positions: Any = None) -> Any:
    half = x.shape[-1] // 2
    places = torch.arange(start, start + x.shape[-2]) if positions is None else positions
    angles = places[..., None] / base ** (torch.arange(half, dtype=x.dtype) / half)
    return rotate(x, torch.cos(angles), torch.sin(angles), interleaved)


def relative_bias(table: Any, t_q: int, t_k: int, both_ways: bool = True, max_distance: int = 128) -> Any:
    """By `_relative_position_bucket` of T5 in transformers, over all pairs at once."""
    ahead = torch.arange(t_k)[None, :] - torch.arange(t_k - t_q, t_k)[:, None]
    n, offset = len(table), 0
    if both_ways:
        n //= 2
        offset, distance = n * (ahead > 0), ahead.abs()
    else:
        distance = -ahead.clamp(max=0)
    exact = n // 2
    far = torch.log(distance.clamp(min=1) / exact) / math.log(max_distance / exact) * (n - exact)
    bucket = torch.where(distance < exact, distance, (exact + far.long()).clamp(max=n - 1))
    return table[bucket + offset].permute(2, 0, 1)


def alibi(slopes: Any, t_q: int, t_k: int) -> Any:
    rows = [[abs(query + t_k - t_q - key) for key in range(t_k)] for query in range(t_q)]
    return torch.einsum("h,ij->hij", -slopes, torch.tensor(rows, dtype=slopes.dtype))


REFERENCES: dict[str, Callable[..., Any]] = {
    **{name: globals()[name] for name in TABLED & globals().keys()},
    "layer_norm_over_axes": layer_norm,
    "relu": lambda x: F.relu(x),
    "rms_norm_over_axes": rms_norm,
    "silu": lambda x: F.silu(x),
    "tanh": lambda x: torch.tanh(x),
}

# -------------------------------------------------------------------------------------------------------------- tests


def tensor(x: Any) -> Any:
    return torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x


def dropped(op: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with `factors`, what dropout multiplies with, in place of the rate and the generator."""
    rate = arguments.get("dropout", arguments.get("rate", 0.0))
    rest = {name: x for name, x in arguments.items() if name not in ("dropout", "rate", "rng")}
    if not rate or arguments["rng"] is None:
        return rest
    ones = {"x": np.ones_like(arguments["x"])} if op == "dropout" else {}
    if not ones:  # with the unit vectors as values the output is the weights
        ones = {"v": np.eye(arguments["k"].shape[-2]) + 0 * arguments["k"][..., :1]}
    kept = OPS[op](**arguments | ones)[0] != 0.0
    assert 0 < kept.sum() < kept.size
    return rest | {"factors": torch.from_numpy(kept / (1.0 - rate))}


def compare(case: str, form: Any, agree: Callable[..., None], size: float = 1.0, seed: int = 0) -> None:
    op = CALLS[case]
    assert op in REFERENCES, f"tests/parity/test_ops.py has no function {op}: write the op {op} with PyTorch"

    def given() -> dict[str, Any]:
        return in_dtype(arguments_of(case, seed), "float64", size)

    y, backward = getattr(form, op, OPS[op])(**given())
    theirs = {name: tensor(x) for name, x in dropped(op, given()).items()}
    leaves = [theirs[name].requires_grad_() for name in floats(given())]
    expected = REFERENCES[op](**theirs)
    agree(op, "output", y, expected)
    dy = np.random.default_rng(seed).normal(0.3, 1.0, size=expected.shape)
    gradients = results(y, backward(dy if dy.shape else float(dy)))[1:]
    expected_gradients = torch.autograd.grad(expected, leaves, torch.from_numpy(np.asarray(dy)))
    for i, (gradient, expected_gradient) in enumerate(zip(gradients, expected_gradients, strict=True)):
        agree(op, f"gradient of input {i}", gradient, expected_gradient)


@pytest.mark.parametrize("form", [ops, fast.ops], ids=["as written", "fast"])
@pytest.mark.parametrize("case", [case for case, op in CALLS.items() if op in TABLED])
def test_output_and_gradients(case: str, form: Any, agree: Callable[..., None]) -> None:
    for seed in range(3):
        compare(case, form, agree, seed=seed)


SIZES = {"relu": 0.0, "softmax": 1e4, "cross_entropy": 1e4, "gelu": 30.0, "silu": 300.0, "gated_delta": 0.5}
SIZES |= {"attention": 400.0, "flash_attention": 400.0}


@pytest.mark.parametrize("form", [ops, fast.ops], ids=["as written", "fast"])
@pytest.mark.parametrize("case", [case for case, op in CALLS.items() if op in TABLED and "rank" not in case])
def test_far_out(case: str, form: Any, agree: Callable[..., None]) -> None:
    """The first array is 20 times as large, or as much as its op bears."""
    compare(case, form, agree, SIZES.get(CALLS[case], 20.0))


def test_sinusoidal_positions(agree: Callable[..., None]) -> None:
    """The table in the other common spelling, sin(pos · exp(-2i ln(base) / D)), filled in by strides."""
    for length, width, base in [(50, 16, 10000.0), (7, 6, 100.0), (1, 2, 10000.0)]:
        position = torch.arange(length, dtype=torch.float64)[:, None]
        frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(base) / width))
        table = torch.zeros(length, width, dtype=torch.float64)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency)
        agree("sinusoidal_positions", "table", ops.sinusoidal_positions(length, width, base=base), table)
