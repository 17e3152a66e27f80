"""The answers of the examination questions once more, from the numbers in their texts and by other means: gradients by
finite differences, sums by loops, counts by counting."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitransformer import ideas, ops

LN2 = math.log(2.0)
Given = Mapping[str, Any]


def slopes(f: Callable[..., Any], dy: Any, *inputs: Any, h: float = 1e-4) -> Any:
    """The gradient of sum(f(*inputs) * dy) for each input, by central differences of the fourth order."""
    found = []
    arrays = [np.array(x, dtype=float) for x in inputs]
    for x in arrays:
        slope = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            kept, total = x[at], 0.0
            for steps, factor in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
                x[at] = kept + steps * h
                total += factor * float(np.sum(f(*arrays) * dy))
            x[at] = kept
            slope[at] = total / (12.0 * h)
        found.append(slope)
    return found[0] if len(found) == 1 else found


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def named(names: str, values: Any) -> dict[str, Any]:
    return dict(zip(names.split(","), values, strict=True))


def loss(logits: np.ndarray, target: np.ndarray) -> float:
    return float(-(target * np.log(softmax(logits))).sum())


def norm(x: np.ndarray, gamma: Any, beta: Any) -> np.ndarray:
    return gamma * (x - x.mean()) / x.std() + beta


def relu_net(x: np.ndarray, w_1: np.ndarray, w_2: np.ndarray) -> np.ndarray:
    inner = x @ w_1
    return np.where(inner > 0, inner, 0) @ w_2


def central_difference(g: Given) -> dict[str, Any]:
    x, h = g["x"], g["h"]
    return named("one-sided,central", [((x + h) ** 3 - x**3) / h, ((x + h) ** 3 - (x - h) ** 3) / (2 * h)])


def gradient_of_two(g: Given) -> dict[str, Any]:
    def f(x: np.ndarray) -> float:
        return g["upstream"] * (x[0] ** 2 * x[1] + g["c"] * x[1])

    up, down = (f(g["x"] + np.array([0.0, step])) for step in (0.01, -0.01))
    return named("gradient,difference", [slopes(f, 1.0, g["x"]), up - down])


def gradient_of_the_logits(g: Given) -> dict[str, Any]:
    wanted = np.eye(3)[g["target"]]
    return {"dlogits": slopes(lambda z: loss(z, wanted) / g["count"], 1.0, np.log(g["p"]))}


def label_smoothing(g: Given) -> dict[str, Any]:
    target = np.full(3, g["eps"] / 3)
    target[g["target"]] += 1 - g["eps"]
    return {"target": target, "dlogits": slopes(lambda z: loss(z, target), 1.0, np.log(g["p"]))}


def relative_error(g: Given) -> dict[str, Any]:
    error = abs(1.0 - g["numerical"] / g["by_hand"])
    return {"error": error, "accepted": error <= 1e-4}


def softmax_of_logarithms(g: Given) -> dict[str, Any]:
    logs = np.log(g["odds"])
    return named("weights,shifted,doubled", [softmax(logs), softmax(logs + 5.0), softmax(2.0 * logs)])


def why_the_root(g: Given) -> dict[str, Any]:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=8)))  # all q·k of width 8 with entries ±1
    per_entry = signs.sum(axis=1).std() ** 2 / 8
    before = math.sqrt(per_entry * g["d"])
    scaled = g["difference"] * LN2 / math.sqrt(g["d"])
    return named("before,after,ratio,power", [before, before / math.sqrt(g["d"]), math.exp(scaled), g["difference"]])


def order_of_tokens(g: Given) -> dict[str, Any]:
    order = list(g["order"])
    weights = softmax(g["scores"][0][order] * LN2)
    return {"weights": weights, "output": sum(w * g["v"][i] for w, i in zip(weights, order, strict=True))}


def attention_of(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.array([sum(w * row for w, row in zip(softmax(s), v, strict=True)) for s in scores])


def three_ways_to_x(g: Given) -> dict[str, Any]:
    x = np.zeros((1, 2))
    parts = [slopes(lambda x, m=g[f"W_{n}"]: x @ m, g[f"d{n.lower()}"], x)[0] for n in "QKV"]
    return {"dx": sum(parts), "lost": sum(parts) - parts[0]}


def causal_weights(g: Given) -> dict[str, Any]:
    out = np.zeros((3, 3))
    for i in range(3):
        out[i, : i + 1] = softmax(g["scores"][i, : i + 1] * LN2)
    return {"weights": out}


def visible_pairs(g: Given) -> dict[str, Any]:
    pairs = sum(1 for length in g["lengths"] for i in range(length) for j in range(length) if j <= i)
    return {"pairs": pairs, "computed": len(list(itertools.product(range(g["t"]), range(g["t"]), range(2))))}


def parameters_of_heads(g: Given) -> dict[str, Any]:
    from minitransformer.layers import MultiHeadAttention

    sizes = []
    for heads in (g["H"], 2 * g["H"]):
        layer = MultiHeadAttention(g["D"], heads, rng=np.random.default_rng(0))
        sizes.append(sum(parameter.value.size for _, parameter in layer.parameters()))
    return named("width,parameters,with twice the heads", [len(range(0, g["D"], g["H"])), *sizes])


def where_a_number_goes(g: Given) -> dict[str, Any]:
    t, h, d = g["T"], g["H"], g["d"]
    marked = np.zeros((t, h * d))
    marked[tuple(g["index"])] = 1.0
    split = marked.reshape(t, h, d).transpose(1, 0, 2)
    return {"index": np.argwhere(split)[0], "reshaped": np.argwhere(marked.reshape(h, t, d))[0]}


def feed_forward_pullback(g: Given) -> dict[str, Any]:
    dx, _, dw_2 = slopes(relu_net, g["dy"], g["x"], g["W_1"], g["W_2"])
    return {"dW_2": dw_2, "dx": dx[0], "columns without": (g["x"] @ g["W_1"])[0] < 0}


def embedding_pullback(g: Given) -> dict[str, Any]:
    return {"dtable": slopes(lambda table: table[g["ids"]], g["dx"], np.zeros((4, 2)))}


def tied_tables(g: Given) -> dict[str, Any]:
    from_output = slopes(lambda e: g["h"] @ e.T, g["dlogits"], np.zeros((3, 2)))
    return {"dE": from_output + slopes(lambda e: e[g["token"]], g["dx"], np.zeros((3, 2)))}


def two_steps_of_adam(g: Given) -> dict[str, Any]:
    w, places = 1.0, []
    for t in (1, 2):
        past = g["gradients"][:t][::-1]
        m = sum(0.1 * 0.9**i * x for i, x in enumerate(past)) / (1 - 0.9**t)
        v = sum(0.001 * 0.999**i * x * x for i, x in enumerate(past)) / (1 - 0.999**t)
        w -= 0.1 * m / math.sqrt(v)
        places.append(w)
    return named("after one,after two", places)


def warm_up(g: Given) -> dict[str, Any]:
    def rate(step: float) -> float:
        return g["d"] ** -0.5 * min(step**-0.5, step * g["warmup"] ** -1.5)

    largest = max(rate(step) for step in range(1, 3 * g["warmup"], max(1, g["warmup"] // 100) // 4 * 4 or 1))
    assert largest <= rate(g["warmup"]) * (1 + 1e-12)
    return named("largest,early,late", map(rate, (g["warmup"], g["warmup"] / 4, 4 * g["warmup"])))


def with_and_without_cache(g: Given) -> dict[str, Any]:
    cached = sum(g["d"] * i for i in range(1, g["T"] + 1))
    whole = sum(g["d"] * i * i for i in range(1, g["T"] + 1))
    return {"with": cached, "without": whole, "ratio": whole / cached}


def slope_of_silu(g: Given) -> dict[str, Any]:
    def silu(x: np.ndarray) -> np.ndarray:
        return x / (1 + np.exp(-x))

    x = math.log(g["a"])
    return {"value": silu(np.array(x)), "slope": slopes(silu, 1.0, x), "at zero": slopes(silu, 1.0, 0.0)}


def a_blind_check(g: Given) -> dict[str, Any]:
    claim = [[y - y * y for y in g["y"]], np.log(g["y"])]
    wrong = np.array(claim[0])
    right = [slopes(softmax, dy, claim[1]) for dy in (g["dy"], np.ones(3))]
    return named("claim,right,claim for ones,right for ones", [wrong * g["dy"], right[0], wrong, right[1]])


def where_induction_looks(g: Given) -> dict[str, Any]:
    text, place = list(g["text"]), g["position"]
    after_equal = text.index(text[place]) + 1
    return {"looks at": after_equal, "predicts": text[place + 1]}


def score_of_a_head(g: Given) -> dict[str, Any]:
    w = g["weights"]
    return {"previous": (w[1, 0] + w[2, 1] + w[3, 2]) / 3, "first": (w[1, 0] + w[2, 0] + w[3, 0]) / 3}


def what_a_head_writes(g: Given) -> dict[str, Any]:
    ov = g["W_V"] @ g["W_O"]
    return {"OV": ov, "rank": np.linalg.matrix_rank(ov), "adds": (g["x"] @ g["W_V"]) @ g["W_O"]}


def logit_lens(g: Given) -> dict[str, Any]:
    before, after = ([float(np.dot(row, x)) for row in g["table"]] for x in (g["x"], g["x"] + g["update"]))
    return {"before": before, "after": after, "tokens": [before.index(max(before)), after.index(max(after))]}


def attribution_and_ablation(g: Given) -> dict[str, Any]:
    def z(s: np.ndarray) -> np.ndarray:
        return (s * (g["h"] @ g["w"]) + g["bias"]) ** 2

    return {"attribution": slopes(z, 1.0, 1.0), "lost": z(np.array(1.0)) - z(np.array(0.0))}


def cost_and_path(g: Given) -> dict[str, Any]:
    n, reach, hops = g["n"], 1, 0
    while reach < n:
        reach, hops = reach + 2 * 3**hops, hops + 1  # a kernel of 3, dilated 3^hops
    return {"ratio": 2 * n * n * g["d"] / (2 * n * g["d"] ** 2), "attention": 1, "recurrence": n, "convolution": hops}


def step_of_an_lstm(g: Given) -> dict[str, Any]:
    f, i, candidate = (math.log(g[name]) for name in "fig")
    sums = np.array([i, f, candidate, 0.0])
    new = ideas.lstm_cell(sums, np.array([0.0, g["c"]]), np.zeros((1, 4)))[0][1]
    up, down = (ideas.lstm_cell(sums, np.array([0.0, g["c"] + h]), np.zeros((1, 4)))[0][1] for h in (0.5, -0.5))
    return {"c'": new, "slope": up - down, "after ten": (up - down) ** 10}


def softmax_over_tiles(g: Given) -> dict[str, Any]:
    whole = np.concatenate([g["first"], g["second"]])
    m = [g["first"].max(), whole.max()]
    return {"m": m, "l": [sum(2.0 ** (s - m[0]) for s in g["first"]), sum(2.0 ** (s - m[1]) for s in whole)]}


def gates_of_experts(g: Given) -> dict[str, Any]:
    gates, backward = ideas.top_k_gates(np.log(g["odds"])[None], 2)
    return {"gates": gates[0], "dscores": backward(g["dgates"][None])[0]}


def sum_around_a_ring(g: Given) -> dict[str, Any]:
    steps = 2 * (g["ranks"] - 1)  # in each a rank sends one of its stretches
    stretch = g["megabytes"] / g["ranks"]
    one = g["delay"] * 1e-6 + stretch * 1e6 / (g["rate"] * 1e9)
    return {"sent": sum(stretch for _ in range(steps)), "seconds": steps * one}


def size_of_the_cache(g: Given) -> dict[str, Any]:
    size = sum(np.zeros((2, g["T"]), np.float32).nbytes for _ in range(g["layers"])) * g["D"] / 1e6
    return {"megabytes": size, "smaller": size / 4 / 2}


def chain_rule(g: Given) -> dict[str, Any]:
    dx, db = slopes(lambda x, b: (g["a"] * x + b) ** 2, g["dy"], g["x"], g["b"])
    return {"dx": dx, "db": db}


def used_twice(g: Given) -> dict[str, Any]:
    dw, dx = slopes(lambda w, x: w * (w * x), g["dz"], g["w"], g["x"])
    return {"dw": dw, "dx": dx}


def broadcasting(g: Given) -> dict[str, Any]:
    return named("dx,db,dc", slopes(lambda x, b, c: x + b + c, g["dy"], np.zeros((3, 2)), np.zeros(2), np.array(0.0)))


def an_overwritten_gradient(g: Given) -> dict[str, Any]:
    parts = [slopes(f, g["dy"], g["x"]) for f in (lambda x: g["a"] * x, lambda x: g["b"] * x * x)]
    return {"returned": parts[1], "right": sum(parts)}


def dropout_both_ways(g: Given) -> dict[str, Any]:
    def drop(x: np.ndarray) -> np.ndarray:
        return np.array([v / (1 - g["p"]) if k else 0.0 for v, k in zip(x, g["kept"], strict=True)])

    return {"y": drop(g["x"]), "dx": slopes(drop, g["dy"], g["x"])}


def dropout_forgets_its_factor(g: Given) -> dict[str, Any]:
    right = dropout_both_ways({"x": np.ones(4), **g})["dx"]
    returned = np.array([d if k else 0.0 for d, k in zip(g["dy"], g["kept"], strict=True)])
    return {
        "returned": returned,
        "right": right,
        "factor": np.sum(returned) / np.sum(right) if right.sum() else 1 - g["p"],
    }


ANSWERS: dict[str, Callable[[Given], Mapping[str, Any]]] = {
    "matmul_gradients": lambda g: named("dA,dB", slopes(np.matmul, g["dC"], g["A"], g["B"])),
    "directional_derivative": lambda g: {"loss": 2 + sum(0.01 * a * b for a, b in zip(g["g"], g["u"], strict=True))},
    "softmax_jacobian_by_hand": lambda g: {
        "jacobian": np.array([slopes(softmax, row, np.log(g["y"])) for row in np.eye(3)]),
        "sums": [sum(slopes(softmax, row, np.log(g["y"]))) for row in np.eye(3)],
    },
    "softmax_pullback": lambda g: {"dx": slopes(softmax, g["dy"], np.log(g["y"]))},
    "loss_of_two_positions": lambda g: {
        "loss": -math.log(g["p"].prod()) / 2,
        "guess": -sum(math.log(1 / g["k"]) / g["k"] for _ in range(g["k"])),
    },
    "projection": lambda g: {"q": np.einsum("tc,cd->td", g["x"], g["W_Q"])},
    "scaled_scores": lambda g: {
        "scores": (s := np.array([[sum(q * k) / 2 for k in g["k"]] for q in g["q"]])),
        "spread": [max(row) - min(row) for row in s],
    },
    "weights_and_output": lambda g: {
        "weights": softmax(g["scores"] * LN2),
        "output": attention_of(g["scores"] * LN2, g["v"]),
    },
    "a_query_of_zeros": lambda g: {
        "all": attention_of(np.zeros((1, 4)), g["v"])[0],
        "two": attention_of(np.zeros((1, 2)), g["v"][:2])[0],
    },
    "gradient_of_the_weights": lambda g: {"dweights": slopes(lambda w: w @ g["v"], g["doutput"], np.zeros((2, 3)))},
    "gradient_of_the_values": lambda g: {
        "dv": slopes(lambda v: g["weights"] @ v, g["doutput"], np.zeros((3, 2))),
        "largest part": max(range(3), key=lambda i: g["weights"][0, i]),
    },
    "gradient_of_the_scores": lambda g: {"dscores": slopes(softmax, g["dweights"], np.log(g["weights"]))},
    "gradients_of_queries_and_keys": lambda g: named(
        "dq,dk", slopes(lambda q, k: q @ k.T / 2, g["dscores"], g["q"], g["k"])
    ),
    "layer_norm": lambda g: {"y": norm(g["x"], g["γ"], g["β"])},
    "layer_norm_pullback": lambda g: named(
        "dγ,dβ,dx",
        slopes(lambda gamma, beta, x: norm(x, gamma, beta), g["dy"], g["γ"], np.zeros(4), g["x"], h=1e-3),
    ),
    "residual_connection": lambda g: {
        "dx": slopes(lambda x: x + x @ g["W"], g["dy"], np.zeros((1, 2)))[0],
        "without": slopes(lambda x: x @ g["W"], g["dy"], np.zeros((1, 2)))[0],
    },
    "gradient_in_the_depth": lambda g: {
        "without": math.prod([g["a"]] * g["depth"]),
        "with": math.prod([1 + g["a"]] * g["depth"]),
    },
    "positions_of_width_four": lambda g: {
        "row": ops.sinusoidal_positions(10, 4)[g["position"]],
        "angles": [1.0, 10000.0 ** (-2 / 4)],
    },
    "products_of_a_training_step": lambda g: {
        "forward": (once := 2 * np.zeros((g["tokens"], g["d"]), bool).size * g["wide"]),
        "backward": once + once,
    },
    "work_per_byte": lambda g: {
        "per byte": g["n"] ** 3 / (3 * np.zeros((g["n"], g["n"]), np.float32).nbytes),
        "arithmetic": g["n"] > 12 * g["machine"],
    },
    "a_missing_scale": lambda g: {"right": g["dq"][0] / math.sqrt(g["d"])},
    "a_mean_taken_twice": lambda g: {
        "right": sum(g["wrong"] for _ in range(g["count"])),
        "step": -g["rate"] * g["count"] * g["wrong"],
        "wrong step": -g["rate"] * g["wrong"],
    },
} | {
    f.__name__: f
    for f in (
        central_difference, chain_rule, gradient_of_two, relative_error, used_twice, broadcasting,
        softmax_of_logarithms, why_the_root, gradient_of_the_logits, label_smoothing, order_of_tokens,
        three_ways_to_x, causal_weights,
        visible_pairs, dropout_both_ways, parameters_of_heads, where_a_number_goes, feed_forward_pullback,
        embedding_pullback, tied_tables, two_steps_of_adam, warm_up, size_of_the_cache, with_and_without_cache,
        slope_of_silu, an_overwritten_gradient, a_blind_check, dropout_forgets_its_factor, where_induction_looks,
        score_of_a_head, what_a_head_writes, logit_lens, attribution_and_ablation, cost_and_path, step_of_an_lstm,
        softmax_over_tiles, gates_of_experts, sum_around_a_ring,
    )
}  # fmt: skip
