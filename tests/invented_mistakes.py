"""Wrong ops, invented by someone who had not seen the catalogue of known mistakes: edits of the source, `old => new`.

Some slips are a user's (a sign, an axis, a factor), others are nobody's, so that nothing known should explain them.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from all_ops import OPS

TEXT = """
softmax
    (dy * y).sum(axis=axis, keepdims=True) => (dy * y).max(axis=axis, keepdims=True)
    dx = y * (dy - => dx = y * y * (dy -
    keepdims=True)) / temperature => keepdims=True)) / temperature**2
    exponentials / xp.where(total == 0.0, 1.0, total) => exponentials / (total + 0.01)
attention
    1.0 / math.sqrt(d_k) => 1.0 / math.sqrt(d_k + 1)
    dkept = doutput @ v => dkept = output @ v
    dq = (dscores @ k) * factor => dq = (dscores @ k) * abs(factor) ** 0.5
    dv = kept.swapaxes(-1, -2) @ doutput => dv = (kept * kept).swapaxes(-1, -2) @ doutput
    dk = (dscores.swapaxes(-1, -2) @ q) * factor => dk = (dscores.swapaxes(-1, -2) @ q) * factor * 2.0
additive_attention
    xp.tanh(q[..., :, None, :] + k => xp.tanh(q[..., :, None, :] - k
    dmatch * (1.0 - match * match) => dmatch * (1.0 + match * match)
    dq = of_sums.sum(axis=-2) => dq = -of_sums.sum(axis=-2)
    scores = match @ w => scores = match @ abs(w)
alibi
    -(dbias * distance).sum => -(dbias * distance * distance).sum
    -slopes[:, None, None] * distance => -slopes[:, None, None] * distance**0.5
    (t_k - t_q))[:, None] => (t_k - t_q + 1))[:, None]
convolution
    dx = _collected(dwindows, => dx = 0.5 * _collected(dwindows,
    return dx, dweight, dbias => return dx, dweight[::-1], dbias
    return dx, dweight, dbias => return dx[..., ::-1, :], dweight, dbias
dropout
    keep.astype(x.dtype) * (1.0 / (1.0 - rate)) => keep.astype(x.dtype) * (1.0 + rate)
    dx = dy * factor => dx = dy * factor * factor
top_k_gates
    (gates * dgates).sum => (gates * gates * dgates).sum
    gates = weights / weights.sum(axis=-1, keepdims=True) => gates = weights / weights.max(axis=-1, keepdims=True)
    dlogits = gates * => dlogits = (gates > 0.0) *
load_balance
    loss = n_experts * => loss = 2.0 * n_experts *
    dmean_p / n, => dmean_p,
    p.mean(axis=0) => p.max(axis=0)
flash_attention
    (dscores.swapaxes(-1, -2) @ q[..., rows, :]) * factor => (dscores.swapaxes(-1, -2) @ q[..., rows, :]) * 1.5 * factor
    inner = (doutput * output).sum => inner = 0.9 * (doutput * output).sum
    correction + exponentials.sum(axis=-1, keepdims=True) => correction + 1.1 * exponentials.sum(axis=-1, keepdims=True)
    dweights - inner[..., rows, :] => dweights + inner[..., rows, :]
gated_delta
    dv[..., t, :] = derror[..., 0, :] => dv[..., t, :] = dwritten[..., 0, :]
    ddecays[..., t, :] = (dfaded * faded) => ddecays[..., t, :] = (dfaded * memories[..., t, :, :])
    from_later = kept * dfaded => from_later = kept * dmemory
    output = factor * => output = factor * factor *
gru_cell_reset_first
    of_keep = dkeep * keep * (1.0 - keep) => of_keep = dkeep * keep * keep
    dnew * (h - candidate) => dnew * (candidate - h)
    dh = dh_gates + dremembered * reset + dnew * keep => dh = dh_gates + dremembered + dnew * keep
    remembered = reset * h => remembered = reset * h * h
split_heads
    dx = _merge(dheads) => dx = _merge(dheads[..., ::-1])
    heads = _split(x, n_heads) => heads = _split(x, n_heads)[..., ::-1, :, :]
merge_heads
    dheads = _split(dx, n_heads) => dheads = 2.0 * _split(dx, n_heads)
    x = _merge(heads) => x = _merge(heads)[..., ::-1, :]
repeat_heads
    .sum(axis=-3) => .max(axis=-3)
    xp.repeat(x, times, axis=-3) => 1.1 * xp.repeat(x, times, axis=-3)
linear_attention
    return dq, dk, dv => return dq, -dk, dv
    return dq, dk, dv => return dk, dq, dv
    return dq, dk, dv => return dq, dk, dv * dv
local_attention
    return dq, dk, dv => return dq * 1.01, dk, dv
    return dq, dk, dv => return dq, dk, dv[..., ::-1, :]
layer_norm
    return dx, dgamma, dbeta => return dx - dx.mean(), dgamma, 1.5 * dbeta
    return dx, dgamma, dbeta => return dx, dgamma - dbeta, dbeta
    return dx, dgamma, dbeta => return dx, dgamma[::-1], dbeta
    return dx, dgamma, dbeta => return dx.clip(-1e-3, 1e-3), dgamma, dbeta
rms_norm
    .mean(axis=-1, keepdims=True) + eps => .mean(axis=-1, keepdims=True) + 100.0 * eps + 0.1
    dx = inverse_rms * => dx = inverse_rms**2 *
    inverse_rms * (dnormalized - stretch) => inverse_rms * (dnormalized - 2.0 * stretch)
    y = normalized * gamma => y = normalized * (1.0 + gamma)
layer_norm_over_axes
    return dx, dgamma, dbeta => return dx, dbeta, dgamma
    return dx, dgamma, dbeta => return 0.99 * dx, dgamma, dbeta
rms_norm_over_axes
    return dx, dgamma => return dx, 0.5 * dgamma
    return dx, dgamma => return abs(dx), dgamma
relu
    xp.maximum(x, 0.0) => xp.maximum(x, 0.01 * x)
    dx = dy * passes => dx = dy * ~passes
    passes = x > 0.0 => passes = x > 0.5
gelu
    dy * (cumulative + x * density) => dy * (cumulative - x * density)
    0.5 * erfc(x * => 0.5 * erfc(0.9 * x *
    y = x * cumulative => y = x * cumulative**2
silu
    sigmoid + y * (1.0 - sigmoid) => sigmoid - y * (1.0 - sigmoid)
    y * (1.0 - sigmoid) => y * (1.0 - y)
    y = x * sigmoid => y = x * sigmoid + 0.5
    y * (1.0 - sigmoid) => y * sigmoid
tanh
    1.0 - y * y => 1.0 - abs(y)
    1.0 - y * y => 1.0 + y * y
    y = xp.tanh(x) => y = xp.tanh(2.0 * x)
gated
    y = opening * x => y = opening + x
    dopening = dy * x => dopening = dy * y
    dx = dy * opening => dx = dy * opening * x
linear
    dweight = rows.T @ dproduct => dweight = -rows.T @ dproduct
    dproduct.sum(axis=0) => dproduct.max(axis=0)
    drows = dproduct @ weight.T => drows = dproduct @ (weight**2).T
    product + bias => product - bias
low_rank_linear
    return dx, ddown, dup => return dx, ddown, dup / 3.0
    return dx, ddown, dup => return -dx, ddown, dup
embedding
    dy.reshape(-1, table.shape[1]) => 0.5 * dy.reshape(-1, table.shape[1])
    y = table[ids] => y = table[ids] * table.shape[1]
    return dtable => return dtable[::-1]
learned_positions
    dtable[start : start + length] = dy => dtable[start : start + length] = dy[::-1]
    y = table[start : start + length] => y = table[start : start + length] ** 2
cross_entropy
    xp.exp(log_p) - target, => xp.exp(log_p) - 2.0 * target,
    xp.exp(log_p) - target, => xp.exp(2.0 * log_p) - target,
    loss_at - label_smoothing * log_p.mean(axis=-1) => loss_at - label_smoothing * log_p.max(axis=-1)
    logits.max(axis=-1, keepdims=True) => logits.max(axis=-1, keepdims=True) + 1e-3 * logits
weighted_cross_entropy
    p * target.sum(axis=-1, keepdims=True) - target) => p * target.sum(axis=-1, keepdims=True) + target)
    dclass_weights - dloss * loss / total * times => dclass_weights + dloss * loss / total * times
    target = class_weights * share => target = class_weights**2 * share
mean_pool
    dx = dy[..., None, :] * share => dx = dy[..., None, :] * share**2
    (x * share).sum(axis=-2) => (x * share).max(axis=-2)
sinusoidal_positions
    base ** (-np.arange(0, width, 2) / width) => base ** (-np.arange(0, width, 2) / (width + 2))
    np.sin(angles), np.cos(angles)] => np.sin(angles), np.cos(angles) ** 2]
rnn_cell
    1.0 - new * new => 1.0 - 0.5 * new * new
    xp.tanh(inputs + carried) => xp.tanh(inputs - carried)
    dinputs = dcarried => dinputs = dnew * new
lstm_cell
    dwrite = dnew_cell * candidate => dwrite = dnew_cell * cell
    dcell = dnew_cell * keep => dcell = dnew_cell * write
    dshown * (1.0 - shown * shown) => dshown * shown
    of_show = dshow * show * (1.0 - show) => of_show = dshow * show
gru_cell
    drecalled = of_candidate * reset => drecalled = of_candidate
    dnew * (h - candidate) => dnew * h
    dh = dh_carried + dnew * keep => dh = dh_carried + dnew
relative_bias
    xp.moveaxis(dbias, 0, -1) => xp.moveaxis(dbias, 0, -1)[::-1]
    rows = table[buckets] => rows = table[buckets] * 0.5
rotary
    a * sin + b * cos => a * sin + 2.0 * b * cos
    dyb * cos - dya * sin => dyb * cos
    dya * cos + dyb * sin => dya * sin + dyb * cos
rotate
    dya * a + dyb * b => dya * a - dyb * b
    dsin = _summed_to( => dsin = -_summed_to(
    a * cos - b * sin => a * cos - b * sin * sin
softcap
    1.0 - share * share => 1.0 - share**4
    y = cap * share => y = cap * share + 0.1
softcapped_attention
    return dq, dk, dv => return dq, dk, dv + dv.mean()
    return dq, dk, dv => return dq, dk[..., ::-1, :], dv
clamped_swiglu
    dopening = dy * (up + 1.0) => dopening = dy * (up - 1.0)
    dgate * moves[0], => dgate * moves[0] * 0.7,
sink_attention
    of_all[..., -1].sum => 2.0 * of_all[..., -1].sum
    weights = shared[..., :-1] => weights = shared[..., 1:]
    sink[:, None, None] => abs(sink)[:, None, None]
"""


def invented() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """(op, edit, the wrong op) for each edit."""
    op = ""
    for line in filter(None, TEXT.splitlines()):
        if not line.startswith(" "):
            op = line
            continue
        old, _, new = line.strip().partition(" => ")
        yield op, line.strip(), _edited(op, old, new)


def _edited(name: str, old: str, new: str) -> Callable[..., Any]:
    op: Any = inspect.unwrap(OPS[name])
    module: Any = inspect.getmodule(op)
    source, text = inspect.getsource(module), inspect.getsource(op)
    if old not in text:
        raise ValueError(f"there is no {old!r} in {name}")
    head, _, tail = text.rpartition(old)
    made = types.ModuleType(module.__name__)
    made.__package__, made.__file__ = module.__package__, module.__file__
    wrong = source.replace(text, f"{head}{new}{tail}")
    exec(compile(wrong, f"an invented {name}", "exec", dont_inherit=True), made.__dict__)
    function: Callable[..., Any] = getattr(made, name)
    return function
