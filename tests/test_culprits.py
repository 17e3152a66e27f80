"""Which lines of a backward pass are told: those through which every wrong gradient comes, and no right one."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import verify

HEADS = """
import numpy as np

def forward(x, wq, wk, wv, wo, heads=2):
    B, T, D = x.shape
    d = D // heads
    q, k, v = x @ wq, x @ wk, x @ wv
    qh = q.reshape(B, T, heads, d).transpose(0, 2, 1, 3)
    kh = k.reshape(B, T, heads, d).transpose(0, 2, 1, 3)
    vh = v.reshape(B, T, heads, d).transpose(0, 2, 1, 3)
    scores = qh @ kh.transpose(0, 1, 3, 2) / np.sqrt(d)
    mask = np.triu(np.ones((T, T), dtype=bool), k=1)
    scores = np.where(mask, -1e9, scores)
    scores = scores - scores.max(axis=-1, keepdims=True)
    e = np.exp(scores)
    weights = e / e.sum(axis=-1, keepdims=True)
    oh = weights @ vh
    o = oh.transpose(0, 2, 1, 3).reshape(B, T, D)
    y = o @ wo
    return y, (x, wq, wk, wv, wo, qh, kh, vh, weights, o, mask, heads, d)

def backward(dy, cache):
    x, wq, wk, wv, wo, qh, kh, vh, weights, o, mask, heads, d = cache
    B, T, D = x.shape
    do = dy @ wo.T
    dwo = o.reshape(-1, D).T @ dy.reshape(-1, D)
    doh = do.reshape(B, T, heads, d).transpose(0, 2, 1, 3)
    dweights = doh @ vh.transpose(0, 1, 3, 2)
    dvh = weights.transpose(0, 1, 3, 2) @ doh
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    dscores = np.where(mask, 0.0, dscores)
    dqh = dscores @ kh / np.sqrt(d)
    dkh = dscores.transpose(0, 1, 3, 2) @ qh / np.sqrt(d)
    dq = dqh.transpose(0, 2, 1, 3).reshape(B, T, D)
    dk = dkh.transpose(0, 2, 1, 3).reshape(B, T, D)
    dv = dvh.transpose(0, 2, 1, 3).reshape(B, T, D)
    dwq = x.reshape(-1, D).T @ dq.reshape(-1, D)
    dwk = x.reshape(-1, D).T @ dk.reshape(-1, D)
    dwv = x.reshape(-1, D).T @ dv.reshape(-1, D)
    dx = dq @ wq.T + dk @ wk.T + dv @ wv.T
    return dx, dwq, dwk, dwv, dwo
"""
RNG = np.random.default_rng(0)
INPUTS = [RNG.normal(size=(2, 5, 6)), *RNG.normal(size=(4, 6, 6))]
BATCH = RNG.normal(size=(5, 4))
SLIPS = {  # what is typed in place of which line of backward; behind | another line that may be told as well
    "doh = do.reshape(B, heads, T, d)": "doh = do",
    "doh = do.reshape(B, T, d, heads).transpose(0, 3, 1, 2)": "doh = do",
    "dq = dqh.reshape(B, T, D)": "dq = dqh",
    "dk = dkh.transpose(0, 2, 3, 1).reshape(B, T, D)": "dk = dkh",
    "dv = dvh.reshape(B, T, D)": "dv = dvh",
    "dqh = dscores @ kh": "dqh = ",
    "dqh = dscores @ kh / np.sqrt(D)": "dqh = ",
    "dkh = dscores.transpose(0, 1, 3, 2) @ qh / d": "dkh = ",
    "dkh = dscores @ qh / np.sqrt(d)": "dkh = ",
    "dvh = weights @ doh": "dvh = ",
    "dweights = doh @ kh.transpose(0, 1, 3, 2)": "dweights = ",
    "do = dy @ wo": "do = ",
    "dwo = x.reshape(-1, D).T @ dy.reshape(-1, D)": "dwo = ",
    "dwk = x.reshape(-1, D).T @ dq.reshape(-1, D)": "dwk = ",
    "dx = dq @ wq.T + dk @ wk.T": "dx = ",
    "dx = dq @ wq + dk @ wk.T + dv @ wv.T": "dx = ",
    "dscores = np.where(mask.T, 0.0, dscores)": "dscores = np",
    "dscores = weights * dweights": "dscores = weights | where",
    "dscores = weights * (dweights - dweights.sum(axis=-1, keepdims=True))": "dscores = weights | where",
    "dscores = weights * (dweights - (dweights * weights).sum(axis=-2, keepdims=True))": "dscores = weights | where",
    "dscores = weights * (dweights + (dweights * weights).sum(axis=-1, keepdims=True))": "dscores = weights | where",
}


def told(folder: Path, code: str, *inputs: np.ndarray) -> list[str]:
    """The lines that the check of `forward` and `backward` in this code tells, with their numbers."""
    path = folder / "written.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pair = (module.Layer(),) if hasattr(module, "Layer") else (module.forward, module.backward)
    report = str(verify.gradients(verify.from_pair(*pair), *inputs))
    return re.findall(r"^  (\d+: .+)$", report.partition("Look at ")[2], re.M)


@pytest.mark.few(1)
@pytest.mark.parametrize("typed", SLIPS)
def test_the_line_of_a_slip_in_multi_head_attention_is_told(typed: str, tmp_path: Path) -> None:
    lines = HEADS.splitlines()
    first, *more = SLIPS[typed].split(" | ")
    at = next(n for n, line in enumerate(lines) if n > lines.index("def backward(dy, cache):") and first in line)
    lines[at] = f"    {typed}"
    assert all(line.strip() != typed for line in HEADS.splitlines())
    found = told(tmp_path, "\n".join(lines), *INPUTS)
    assert f"{at + 1}: {typed}" in found and len(found) == 1 + len(more), found


@pytest.mark.slow
def test_right_code_is_told_nothing_and_of_two_slips_the_first(tmp_path: Path) -> None:
    assert told(tmp_path, HEADS, *INPUTS) == []
    both = HEADS.replace("dv = dvh.transpose(0, 2, 1, 3)", "dv = dvh").replace("qh / np.sqrt(d)\n    dq", "qh\n    dq")
    (line,) = told(tmp_path, both, *INPUTS)
    assert "dkh = dscores.transpose(0, 1, 3, 2) @ qh" in line


def test_gradients_in_attributes_and_in_places_are_followed(tmp_path: Path) -> None:
    code = """
import numpy as np

class Layer:
    def __init__(self):
        self.W, self.b = np.arange(12.0).reshape(4, 3) / 7 - 0.5, np.array([0.3, -0.2, 0.1])

    def forward(self, x):
        self.x = x
        return x @ self.W + self.b

    def backward(self, dy):
        self.dW = self.x.T @ dy
        self.db = dy.mean(axis=0)
        dx = np.zeros_like(self.x)
        dx += dy @ self.W.T
        return dx
"""
    assert told(tmp_path, code, BATCH) == ["14: self.db = dy.mean(axis=0)"]
    slip = code.replace("mean", "sum").replace("dx += dy @ self.W.T", "dx += 2 * dy @ self.W.T")
    assert told(tmp_path, slip, BATCH) == ["15: dx = np.zeros_like(self.x)", "16: dx += 2 * dy @ self.W.T"]


def test_a_backward_within_its_forward_is_told_too() -> None:
    def f(x: np.ndarray, w: np.ndarray) -> Any:
        h = x @ w
        y = np.tanh(h)

        def backward(dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            dh = dy * (1.0 - y)
            dw = x.T @ dh
            return dh @ w.T, dw

        return y, backward

    report = str(verify.gradients(f, INPUTS[0][0], INPUTS[1]))
    assert re.findall(r"^  \d+: (.+)$", report.partition("Look at this line of backward")[2], re.M) == [
        "dh = dy * (1.0 - y)"
    ]
