"""Each mistake that a public suite lets pass, at the input that docs/referee.md names for it: it shows there.

What is right is computed here, by the formulas alone.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tiers import in_one

from minitransformer import ideas, ops
from minitransformer.check.verify.mistakes import MISTAKES

PAGE = Path(__file__).parent.parent / "docs" / "referee.md"
SHARE = 0.05  # as a share of the largest right number: a mistake must differ by more than this

Results = dict[str, np.ndarray]


def softmax(x: np.ndarray) -> np.ndarray:
    """Rows of -inf alone become zeros."""
    x = np.asarray(x, np.longdouble)
    top = x.max(axis=-1, keepdims=True)
    p = np.exp(x - np.where(np.isfinite(top), top, 0.0))
    total = p.sum(axis=-1, keepdims=True)
    return (p / np.where(total == 0.0, 1.0, total)).astype(float)


def through_softmax(p: np.ndarray, dp: np.ndarray) -> np.ndarray:
    """By the whole Jacobian of every row: diag(p) - p pᵀ."""
    jacobian = p[..., :, None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
    dx: np.ndarray = (jacobian @ dp[..., None])[..., 0]
    return dx


def of_softmax(x: np.ndarray) -> Results:
    p = softmax(x)
    return {"the output": p, "dX": through_softmax(p, upstream(p))}


def of_layer_norm(x: np.ndarray, gamma: Any) -> Results:
    gamma = np.ones(x.shape[-1]) if isinstance(gamma, list) else gamma
    apart = x - x.mean(axis=-1, keepdims=True)
    return {"the output": gamma * apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + 1e-5)}


def of_learned_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> Results:
    return {"the output": of_layer_norm(x, gamma)["the output"] + beta}


def of_rms_norm(x: np.ndarray, gamma: np.ndarray) -> Results:
    return {"the output": gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)}


def of_causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Results:
    return of_attention(q, k, v, True)


def of_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None) -> Results:
    scale = q.shape[-1] ** -0.5
    scores = np.einsum("...id,...jd->...ij", q, k) * scale
    if mask is True:  # causal; the last query sees every key
        mask = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    p = softmax(scores if mask is None else np.where(np.asarray(mask) != 0, scores, -np.inf))
    y = p @ v
    dy = upstream(y)
    dscores = through_softmax(p, np.einsum("...id,...jd->...ij", dy, v)) * scale
    gradients = {"dq": dscores @ k, "dk": dscores.swapaxes(-1, -2) @ q, "dv": p.swapaxes(-1, -2) @ dy}
    return {"the output": y, **gradients}


def upstream(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(5).normal(size=y.shape)


def ours(op: Callable[..., Any], *names: str) -> Callable[..., Results]:
    def run(*inputs: Any) -> Results:
        y, backward = op(*inputs)
        found = backward(upstream(y))
        return {"the output": y, **dict(zip(names, found if isinstance(found, tuple) else (found,), strict=False))}

    return run


def norm(x: np.ndarray, gamma: Any) -> Any:
    gamma = np.ones(x.shape[-1]) if isinstance(gamma, list) else gamma
    return ops.layer_norm(x, gamma, np.zeros(x.shape[-1]))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None) -> Any:
    return ops.attention(q, k, v, mask=None if mask is None else np.asarray(mask) != 0)


SOFTMAX = of_softmax, ours(lambda x: ops.softmax(x), "dX")
NORM = of_layer_norm, ours(norm)
ATTENTION = of_attention, ours(attention, "dq", "dk", "dv")
FLASH = of_attention, ours(lambda q, k, v, causal: ideas.flash_attention(q, k, v, causal=causal), "dq", "dk", "dv")
FUNCTIONS = {
    "CS336, assignment 1, `run_scaled_dot_product_attention`": ATTENTION,
    "CS336, assignment 2, `get_flashattention_autograd_function_pytorch`": FLASH,
    "UCSD DSC 291, assignment 1, `softmax`": SOFTMAX,
    "UCSD DSC 291, assignment 1, `layernorm`": NORM,
    "numpy-ml, `Softmax`": SOFTMAX,
    "numpy-ml, `LayerNorm1D`": NORM,
    "numpy-ml, `DotProductAttention`": ATTENTION,
    "TinyTorch, `scaled_dot_product_attention`": ATTENTION,
    "TorchCode, `scaled_dot_product_attention`": ATTENTION,
    "TorchCode, `causal_attention`": (
        of_causal_attention,
        ours(lambda q, k, v: ops.attention(q, k, v, causal=True), "dq", "dk", "dv"),
    ),
    "TorchCode, `my_layer_norm`": (of_learned_norm, ours(ops.layer_norm)),
    "TorchCode, `rms_norm`": (of_rms_norm, ours(ops.rms_norm)),
    "Equinox, `dot_product_attention`": ATTENTION,
    "Equinox, `LayerNorm.__call__`": NORM,
    "thinc, `Ops.softmax`": (lambda x, t: of_softmax(x / t), ours(lambda x, t: ops.softmax(x, -1, t))),
}


def survivors() -> list[tuple[str, str, str, int, str]]:
    """(function, mistake, input, seed, what is said) of the page."""
    found = []
    of_others = PAGE.read_text(encoding="utf-8").partition("### Ours")[0]
    for function, text in re.findall(r"^([^\n|]+`[\w.]+`):\n\n(- `.*?)\n\n(?!- )", of_others, re.DOTALL | re.MULTILINE):
        for one in re.split(r"^- ", text, flags=re.MULTILINE)[1:]:
            parts = re.fullmatch(r"`(.+?)`: .* Seen with `(.+)` with r = .*\((\d+)\): (.+)\.", " ".join(one.split()))
            assert parts, one
            found.append((function, parts[1], parts[2], int(parts[3]), parts[4]))
    return found


SURVIVORS = survivors()


def test_all_of_the_table_are_there() -> None:
    table = re.findall(r"^\| .+ at \w{10} \|.*\| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(SURVIVORS) == sum(map(int, table)) >= 25
    assert {function for function, *_ in SURVIVORS} == FUNCTIONS.keys()


@in_one("function, mistake, text, seed, said", SURVIVORS, ids=[f"{one[0]}-{one[1]}" for one in SURVIVORS])
def test_a_survivor_is_wrong_where_the_page_says(function: str, mistake: str, text: str, seed: int, said: str) -> None:
    given = eval(text, {"r": np.random.default_rng(seed)})
    inputs = [x.astype(float) if getattr(x, "dtype", None) == np.float32 else x for x in given]
    formula, op = FUNCTIONS[function]
    right, found = formula(*inputs), op(*inputs)
    with MISTAKES[mistake].applied(), np.errstate(all="ignore"):
        wrong = op(*inputs)
    for name in found:
        np.testing.assert_allclose(found[name], right[name], rtol=1e-9, atol=1e-9)
    if "not finite" in said:
        assert np.isfinite(right["the output"]).all() and not np.isfinite(wrong["the output"]).all()
        return
    name, off, largest = re.fullmatch(r"(.+) is off by (\S+), its largest is (\S+)", said).groups()
    apart = abs(wrong[name] - right[name]).max()
    assert apart > SHARE * abs(right[name]).max()
    np.testing.assert_allclose([apart, abs(right[name]).max()], [float(off), float(largest)], rtol=0.06)
