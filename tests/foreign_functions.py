"""Functions as others write them: a forward, a backward apart from it, and what goes wrong in the latter.

One text serves NumPy, PyTorch and JAX, whose arrays share these operations; `xp` is the library. A function begins with
its name and its inputs with their shapes. Then come the lines of forward, which binds `out`; after `<-` those of
backward, which has `dout` and all that forward bound; after each `!` an edit that makes backward wrong, `old => new`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

TEXT = """
square(x 3,4)
    out = x * x
<-  dx = 2.0 * x * dout
!   2.0 * x => x
!   x * dout => dout

exponential(x 3,4)
    out = xp.exp(x)
<-  dx = out * dout
!   out * dout => x * dout
!   out * dout => dout

tanh(x 3,4)
    out = xp.tanh(x)
<-  dx = (1.0 - out * out) * dout
!   out * out => out
!   1.0 - out * out => 1.0 - x * x

sigmoid(x 3,4)
    out = 1.0 / (1.0 + xp.exp(-x))
<-  dx = out * (1.0 - out) * dout
!   (1.0 - out) => (1.0 + out)
!   out * (1.0 - out) => (1.0 - out)

swish(x 3,4)
    gate = 1.0 / (1.0 + xp.exp(-x))
    out = x * gate
<-  dgate = dout * x
    dx = dout * gate + dgate * gate * (1.0 - gate)
!   dout * gate + =>
!   * (1.0 - gate) =>
!   dout * x => dout * gate

softplus(x 3,4)
    grown = 1.0 + xp.exp(x)
    out = xp.log(grown)
<-  dgrown = dout / grown
    dx = dgrown * (grown - 1.0)
!   (grown - 1.0) => grown
!   dout / grown => dout * grown

gelu(x 3,4)
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    bent = xp.tanh(inner)
    out = 0.5 * x * (1.0 + bent)
<-  dbent = 0.5 * x * dout
    dinner = dbent * (1.0 - bent * bent)
    dx = 0.5 * (1.0 + bent) * dout + dinner * 0.7978845608 * (1.0 + 3.0 * 0.044715 * x * x)
!   3.0 * 0.044715 => 0.044715
!   (1.0 - bent * bent) => (1.0 - bent)
!   0.5 * (1.0 + bent) * dout + =>

leaky(x 3,4)
    out = xp.where(x > 0.0, x, 0.1 * x)
<-  dx = xp.where(x > 0.0, dout, 0.1 * dout)
!   0.1 * dout => 0.0 * dout
!   x > 0.0 => dout > 0.0

reciprocal(x 3,4)
    moved = 2.0 + x * x
    out = 1.0 / moved
<-  dmoved = -dout * out * out
    dx = 2.0 * x * dmoved
!   -dout => dout
!   out * out => out

hyperbola(x 3,4)
    out = xp.sqrt(1.0 + x * x)
<-  dx = dout * x / out
!   x / out => 0.5 / out
!   / out =>

log_sum_exp(x 3,4)
    grown = xp.exp(x)
    total = grown.sum(-1)
    out = xp.log(total)
<-  dtotal = dout / total
    dx = grown * dtotal[:, None]
!   grown * dtotal => dtotal
!   / total =>

softmax(x 3,4)
    grown = xp.exp(x)
    out = grown / grown.sum(-1, keepdims=True)
<-  dx = out * (dout - (dout * out).sum(-1, keepdims=True))
!   (dout - (dout * out).sum(-1, keepdims=True)) => dout
!   .sum(-1, keepdims=True) => .sum(0, keepdims=True)
!   out * (dout - ( => out * (dout + (
!   (dout * out).sum => dout.sum

log_softmax(x 3,4)
    out = x - xp.log(xp.exp(x).sum(-1, keepdims=True))
<-  dx = dout - xp.exp(out) * dout.sum(-1, keepdims=True)
!   xp.exp(out) * => out *
!   dout.sum(-1, keepdims=True) => dout

linear(x 3,4; w 4,2; b 2)
    out = x @ w + b
<-  dx = dout @ w.swapaxes(0, 1)
    dw = x.swapaxes(0, 1) @ dout
    db = dout.sum(0)
!   dout.sum(0) => dout.mean(0)
!   x.swapaxes(0, 1) => x.reshape(4, 3)
!   w.swapaxes(0, 1) => w.reshape(2, 4)

two_layers(x 3,4; w 4,5; u 5,2)
    hidden = xp.tanh(x @ w)
    out = hidden @ u
<-  du = hidden.swapaxes(0, 1) @ dout
    dhidden = dout @ u.swapaxes(0, 1)
    dbefore = dhidden * (1.0 - hidden * hidden)
    dw = x.swapaxes(0, 1) @ dbefore
    dx = dbefore @ w.swapaxes(0, 1)
!   dhidden * (1.0 - hidden * hidden) => dhidden
!   @ dbefore => @ dhidden
!   = dbefore @ => = dhidden @

squared_error(x 3,4; y 3,4)
    apart = x - y
    out = (apart * apart).mean()
<-  dapart = 2.0 / 12.0 * apart * dout
    dx = dapart
    dy = -dapart
!   2.0 / 12.0 => 2.0 / 3.0
!   -dapart => 1.0 * dapart

soft_cross_entropy(x 3,4)
    logs = x - xp.log(xp.exp(x).sum(-1, keepdims=True))
    out = -(logs[:, 0] + 2.0 * logs[:, 2]).sum() / 9.0
<-  chances = xp.exp(logs)
    target = 0.0 * x + xp.asarray([1.0, 0.0, 2.0, 0.0], dtype=x.dtype)
    dx = dout * (3.0 * chances - target) / 9.0
!   3.0 * chances => chances
!   / 9.0 => / 3.0
!   chances - target => chances + target

layer_norm(x 3,4; g 4; b 4)
    centered = x - x.mean(-1, keepdims=True)
    root = xp.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)
    normalized = centered / root
    out = g * normalized + b
<-  db = dout.sum(0)
    dg = (dout * normalized).sum(0)
    dnormalized = dout * g
    shift = dnormalized.mean(-1, keepdims=True)
    slope = (dnormalized * normalized).mean(-1, keepdims=True)
    dx = (dnormalized - shift - normalized * slope) / root
!   - shift =>
!   - normalized * slope =>
!   dnormalized = dout * g => dnormalized = dout
!   (dout * normalized).sum(0) => (dout * centered).sum(0)

rms_norm(x 3,4; g 4)
    root = xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    normalized = x / root
    out = normalized * g
<-  dg = (dout * normalized).sum(0)
    dnormalized = dout * g
    dx = (dnormalized - normalized * (dnormalized * normalized).mean(-1, keepdims=True)) / root
!   (dnormalized * normalized).mean => (dnormalized * normalized).sum
!   (dout * normalized).sum(0) => (dout * x).sum(0)
!   - normalized * (dnormalized => + normalized * (dnormalized

batch_norm(x 5,3; g 3)
    centered = x - x.mean(0, keepdims=True)
    root = xp.sqrt((centered * centered).mean(0, keepdims=True) + 1e-5)
    normalized = centered / root
    out = g * normalized
<-  dg = (dout * normalized).sum(0)
    dnormalized = dout * g
    drift = dnormalized.mean(0, keepdims=True) + normalized * (dnormalized * normalized).mean(0, keepdims=True)
    dx = (dnormalized - drift) / root
!   (dnormalized - drift) => dnormalized
!   (dnormalized * normalized).mean(0, keepdims=True) => (dnormalized * normalized).mean(-1, keepdims=True)

attention(q 3,4; k 5,4; v 5,2)
    scores = q @ k.swapaxes(0, 1) * 0.5
    grown = xp.exp(scores)
    weights = grown / grown.sum(-1, keepdims=True)
    out = weights @ v
<-  dv = weights.swapaxes(0, 1) @ dout
    dweights = dout @ v.swapaxes(0, 1)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    dq = 0.5 * dscores @ k
    dk = 0.5 * dscores.swapaxes(0, 1) @ q
!   0.5 * dscores @ k => dscores @ k
!   dk = 0.5 * => dk =
!   weights * (dweights - (dweights * weights).sum(-1, keepdims=True)) => weights * dweights
!   dscores.swapaxes(0, 1) => dscores.reshape(5, 3)

causal_attention(q 4,3; k 4,3; v 4,2)
    ahead = xp.asarray([[0.0, 9e2, 9e2, 9e2], [0.0, 0.0, 9e2, 9e2], [0.0, 0.0, 0.0, 9e2], [0.0] * 4], dtype=q.dtype)
    products = q @ k.swapaxes(0, 1)
    grown = xp.exp(products - ahead)
    total = grown.sum(-1, keepdims=True)
    out = grown @ v / total
<-  weights = xp.exp(products - ahead) / total
    dv = weights.swapaxes(0, 1) @ dout
    dproducts = weights * (dout @ v.swapaxes(0, 1) - (dout * out).sum(-1, keepdims=True))
    dq = dproducts @ k
    dk = dproducts.swapaxes(0, 1) @ q
!   - ahead =>
!   - (dout * out).sum(-1, keepdims=True) =>
!   dproducts @ k => dproducts.swapaxes(0, 1) @ k

gated(x 3,4; g 3,4)
    gate = 1.0 / (1.0 + xp.exp(-g))
    turned = g * gate
    out = x * turned
<-  dx = dout * turned
    dturned = dout * x
    dg = dturned * (gate + turned * (1.0 - gate))
!   dx = dout * turned => dx = dout * gate
!   turned * (1.0 - gate) => gate * (1.0 - gate)

outer(x 3; y 4)
    out = x[:, None] * y[None, :]
<-  dx = (dout * y[None, :]).sum(1)
    dy = (dout * x[:, None]).sum(0)
!   .sum(0) => .mean(0)
!   dout * y[None, :] => dout

cosine(x 4; y 4)
    size = xp.sqrt((x * x).sum())
    other = xp.sqrt((y * y).sum())
    out = (x * y).sum() / (size * other)
<-  dx = dout * (y / (size * other) - out * x / (size * size))
    dy = dout * (x / (size * other) - out * y / (other * other))
!   - out * x / (size * size) =>
!   out * y / (other * other) => out * y / other

unit(x 3,4)
    size = xp.sqrt((x * x).sum(-1, keepdims=True))
    out = x / size
<-  dx = (dout - out * (dout * out).sum(-1, keepdims=True)) / size
!   - out * (dout * out).sum(-1, keepdims=True) =>
!   / size =>

recurrence(x 3,4; h 3,2; w 4,2; u 2,2)
    before = x @ w + h @ u
    out = xp.tanh(before)
<-  dbefore = dout * (1.0 - out * out)
    dx = dbefore @ w.swapaxes(0, 1)
    dh = dbefore @ u.swapaxes(0, 1)
    dw = x.swapaxes(0, 1) @ dbefore
    du = h.swapaxes(0, 1) @ dbefore
!   u.swapaxes(0, 1) => u
!   dbefore = dout * (1.0 - out * out) => dbefore = dout
!   h.swapaxes(0, 1) @ dbefore => h.swapaxes(0, 1) @ dout

mixed(z 3,4; h 3,4; c 3,4)
    gate = 1.0 / (1.0 + xp.exp(-z))
    out = gate * h + (1.0 - gate) * c
<-  dgate = dout * (h - c)
    dz = dgate * gate * (1.0 - gate)
    dh = dout * gate
    dc = dout * (1.0 - gate)
!   (h - c) => (h + c)
!   dc = dout * (1.0 - gate) => dc = dout * gate

wave(x 3,4; y 3,4)
    out = xp.sin(x) * xp.cos(y)
<-  dx = xp.cos(x) * xp.cos(y) * dout
    dy = -xp.sin(x) * xp.sin(y) * dout
!   -xp.sin(x) => xp.sin(x)
!   dx = xp.cos(x) => dx = xp.sin(x)

weighted_mean(x 5,3; w 5)
    total = w * w
    out = (total[:, None] * x).sum(0) / total.sum()
<-  dx = total[:, None] * dout[None, :] / total.sum()
    dtotal = ((x - out[None, :]) * dout[None, :]).sum(1) / total.sum()
    dw = 2.0 * w * dtotal
!   (x - out[None, :]) => x
!   2.0 * w => w

convolution(x 6; f 3)
    out = f[0] * x[:-2] + f[1] * x[1:-1] + f[2] * x[2:]
<-  none = 0.0 * dout[:2]
    before = xp.concatenate([dout, none])
    middle = xp.concatenate([none[:1], dout, none[:1]])
    after = xp.concatenate([none, dout])
    dx = f[0] * before + f[1] * middle + f[2] * after
    df = xp.stack([(dout * x[:-2]).sum(), (dout * x[1:-1]).sum(), (dout * x[2:]).sum()])
!   f[0] * before + f[1] * middle + f[2] * after => f[2] * before + f[1] * middle + f[0] * after
!   (dout * x[1:-1]).sum() => (dout * x[1:-1]).mean()

huber(x 3,4)
    near = abs(x) < 1.0
    out = xp.where(near, 0.5 * x * x, abs(x) - 0.5)
<-  dx = dout * xp.where(near, x, xp.sign(x))
!   xp.sign(x) => abs(x)
!   dout * xp.where(near, x, xp.sign(x)) => dout * x

rope(x 2,5,6)
    place = xp.arange(5, dtype=x.dtype)[:, None]
    angle = place * 10.0 ** (-xp.arange(3, dtype=x.dtype) / 3)
    left = x[..., :3] * xp.cos(angle) - x[..., 3:] * xp.sin(angle)
    right = x[..., :3] * xp.sin(angle) + x[..., 3:] * xp.cos(angle)
    out = xp.concatenate([left, right], -1)
<-  dleft = dout[..., :3]
    dright = dout[..., 3:]
    first = dleft * xp.cos(angle) + dright * xp.sin(angle)
    second = dright * xp.cos(angle) - dleft * xp.sin(angle)
    dx = xp.concatenate([first, second], -1)
!   xp.cos(angle) + dright => xp.cos(angle) - dright
!   [first, second] => [second, first]

embedding(table 7,4)
    tokens = xp.asarray([1, 3, 1, 0, 1, 6])
    out = table[tokens]
<-  chosen = xp.where(tokens[:, None] == xp.arange(7), xp.ones_like(dout[:, :1]), 0.0)
    dtable = chosen.T @ dout
!   xp.arange(7), => xp.arange(7) - 7 * (xp.arange(6)[:, None] < 3),
!   chosen.T @ dout => (chosen / (1e-9 + chosen.sum(0))).T @ dout

dropout(x 4,5)
    kept = (xp.arange(20) * 7 % 4 > 0).reshape(4, 5) / 0.75
    out = x * kept
<-  dx = dout * kept
!   dout * kept => dout * (kept > 0)
!   dout * kept => dout

swiglu(x 3,4; w 4,5; v 4,5)
    a = x @ w
    b = x @ v
    s = 1.0 / (1.0 + xp.exp(-a))
    out = a * s * b
<-  db = dout * a * s
    da = dout * b * (s + a * s * (1.0 - s))
    dx = da @ w.T
    dx = dx + db @ v.T
    dw = x.T @ da
    dv = x.T @ db
!   dx = dx + db => dx = db
!   (s + a * s * (1.0 - s)) => (a * s * (1.0 - s))

ignored_cross_entropy(z 6,5)
    right = (xp.arange(6)[:, None] % 5 == xp.arange(5)) * 1.0
    kept = (xp.arange(6) % 3 != 1)[:, None] * 1.0
    p = xp.exp(z) / xp.exp(z).sum(-1)[:, None]
    out = -(xp.log(p) * right * kept).sum() / kept.sum()
<-  dz = dout * (p - right) * kept / kept.sum()
!   / kept.sum() => / len(z)
!   * kept / => /

recomputed_attention(q 2,4,3; k 2,6,3; v 2,6,5)
    seen = xp.arange(6) <= xp.arange(4)[:, None] + 2
    scores = xp.where(seen, q @ k.swapaxes(-1, -2) * 3**-0.5, -xp.inf)
    lse = xp.log(xp.exp(scores).sum(-1))[..., None]
    out = xp.exp(scores - lse) @ v
<-  again = xp.where(seen, q @ k.swapaxes(-1, -2) * 3**-0.5, -xp.inf)
    p = xp.exp(again - lse)
    dv = p.swapaxes(-1, -2) @ dout
    dscores = p * (dout @ v.swapaxes(-1, -2) - (dout * out).sum(-1)[..., None])
    dq = dscores @ k * 3**-0.5
    dk = dscores.swapaxes(-1, -2) @ q * 3**-0.5
!   xp.where(seen, q => xp.where(seen | True, q
!   (dout * out).sum(-1) => (dout * out).mean(-1)
!   dk = dscores => dk = 1.01 * dscores
!   @ q * 3**-0.5 => @ q * 6**-0.5
"""

HEAD = re.compile(r"(\w+)\((.*)\)")


@dataclass(frozen=True)
class Function:
    """A function with its inputs (name to shape), the lines of forward and backward, and the wrong backwards."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    forward: str
    backward: str
    wrong: tuple[str, ...]

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Normal numbers."""
        rng = np.random.default_rng(seed)
        return [rng.normal(size=shape) for shape in self.shapes.values()]

    @property
    def saved(self) -> list[str]:
        """What forward binds, with its inputs: all that backward needs."""
        return [*self.shapes, *dict.fromkeys(re.findall(r"^(\w+) =", self.forward, re.MULTILINE))]

    @property
    def intermediates(self) -> set[str]:
        """The names that forward binds and whose gradient backward binds."""
        return {
            name for name in self.saved[len(self.shapes) :] if re.search(rf"^d{name} =", self.backward, re.MULTILINE)
        }

    def source(self, template: str, backward: str | None = None) -> str:
        """The template with its words in capitals replaced; FORWARD and BACKWARD are indented as they are."""
        parts = {"NAME": self.name, "INPUTS": ", ".join(self.shapes), "SAVED": ", ".join(self.saved)}
        parts["GRADIENTS"] = ", ".join(f"d{name}" for name in self.shapes)
        parts |= {"FORWARD": self.forward, "BACKWARD": backward or self.backward}
        for key, part in parts.items():
            indent = re.search(rf"^( *){key}$", template, re.MULTILINE)
            template = template.replace(key, part.replace("\n", "\n" + (indent[1] if indent else "")))
        return template


def _functions() -> Iterator[Function]:
    for block in TEXT.strip("\n").split("\n\n"):
        head, *lines = block.split("\n")
        match = HEAD.fullmatch(head)
        assert match is not None, head
        shapes = {name: tuple(map(int, sizes.split(","))) for name, sizes in (x.split() for x in match[2].split("; "))}
        marks = list(itertools.accumulate((line[0] for line in lines), lambda old, new: old if new == " " else new))
        of = {mark: [line[4:] for line, own in zip(lines, marks, strict=True) if own == mark] for mark in " <!"}
        backward = "\n".join(of["<"])
        wrong = []
        for old, new in (edit.split(" =>") for edit in of["!"]):
            assert backward.count(old) == 1, (head, old, backward.count(old))
            wrong.append(backward.replace(old, new.strip()))
        yield Function(match[1], shapes, "\n".join(of[" "]), backward, tuple(wrong))


FUNCTIONS = list(_functions())
WRONG = [(function, i) for function in FUNCTIONS for i in range(len(function.wrong))]
WRONG_NAMES = [f"{function.name}-{i}" for function, i in WRONG]

PAIR = """
def NAME(INPUTS):
    FORWARD
    return out, (SAVED,)

def backward(dout, cache):
    SAVED, = cache
    BACKWARD
    return GRADIENTS
"""
TORCH = """
class NAME(torch.autograd.Function):
    @staticmethod
    def forward(ctx, INPUTS):
        FORWARD
        ctx.save_for_backward(SAVED)
        return out

    @staticmethod
    def backward(ctx, dout):
        SAVED, = ctx.saved_tensors
        BACKWARD
        return GRADIENTS
"""
JAX = """
@jax.custom_vjp
def NAME(INPUTS):
    FORWARD
    return out

def forward(INPUTS):
    FORWARD
    return out, (SAVED,)

def backward(saved, dout):
    SAVED, = saved
    BACKWARD
    return GRADIENTS,

NAME.defvjp(forward, backward)
"""


def made(function: Function, template: str, wrong: int | None = None, **names: Any) -> dict[str, Any]:
    """What the source of a function defines, with its backward right, or wrong in the way of that number."""
    source = function.source(template, None if wrong is None else function.wrong[wrong])
    if template is JAX and len(function.shapes) == 1:
        source = source.replace("return dx,", "return (dx,)")
    scope: dict[str, Any] = dict(names)
    exec(compile(source, f"{function.name}_of_a_user.py", "exec"), scope)
    return scope


def assert_rejected_rightly(report: Any, function: Function, wrong: int) -> None:
    """The rows of wrong gradients are those that differ, and each names an entry that differs, with both numbers."""
    right, bad = (made(function, PAIR, which, xp=np) for which in (None, wrong))
    inputs = function.inputs()
    assert not report.ok, str(report)
    differing = set()
    dy = np.random.default_rng((0, 1)).normal(size=right[function.name](*inputs)[0].shape)  # that of verify.gradients
    results = []
    for scope in (right, bad):
        _, cache = scope[function.name](*inputs)
        returned = scope["backward"](dy, cache)
        results.append(returned if isinstance(returned, tuple) else (returned,))
    for name, true, false in zip(function.shapes, *results, strict=True):
        row = report[name]
        if np.shape(true) != np.shape(false):
            differing.add(name)
            assert row.problem == f"the gradient has shape {np.shape(false)}, its array {np.shape(true)}"
            continue
        if np.allclose(true, false, rtol=1e-9, atol=1e-12):
            assert row.ok, str(report)
            continue
        differing.add(name)
        assert not row.ok and row.where is not None, str(report)
        np.testing.assert_allclose(row.hand, false[row.where], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(row.numerical, true[row.where], rtol=1e-4, atol=1e-7)
        scale = 1.0 + abs(true)
        assert abs(true - false)[row.where] / scale[row.where] >= 0.99 * (abs(true - false) / scale).max()
    assert differing and {row.name for row in report.of_kind("input") if not row.ok} == differing
