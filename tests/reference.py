"""The formulas in Python's floats, lists and loops: slow, plain, and sharing nothing with the package."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Rows = list[list[float]]


def matmul(a: Any, b: Any) -> Rows:
    return [[sum(row[i] * b[i][j] for i in range(len(b))) for j in range(len(b[0]))] for row in a]


def softmax(scores: list[float], temperature: float = 1.0) -> list[float]:
    exponentials = [math.exp((score - max(scores)) / temperature) for score in scores]  # the shift changes nothing
    return [exponential / sum(exponentials) for exponential in exponentials]


def attention(q: Any, k: Any, v: Any, may_attend: Callable[[int, int], bool] = lambda i, j: True) -> Rows:
    """One head, scaled by 1/√d_k. A query that may attend to nothing gives zeros."""
    output = []
    for i, query in enumerate(q):
        keys = [j for j in range(len(k)) if may_attend(i, j)]
        scores = [sum(a * b for a, b in zip(query, k[j], strict=True)) / math.sqrt(len(query)) for j in keys]
        weights = softmax(scores)
        output.append([sum(w * v[j][c] for w, j in zip(weights, keys, strict=True)) for c in range(len(v[0]))])
    return output


def multi_head_attention(x: Any, memory: Any, state: dict[str, np.ndarray], n_heads: int) -> np.ndarray:
    """Head h takes columns h·d to (h + 1)·d of each projection; the heads' outputs stand side by side."""

    def project(rows: Any, name: str) -> np.ndarray:
        return np.array(matmul(rows, state[f"{name}.weight"])) + state[f"{name}.bias"]

    q, k, v = project(x, "query"), project(memory, "key"), project(memory, "value")
    d = q.shape[1] // n_heads
    heads = [slice(h * d, (h + 1) * d) for h in range(n_heads)]
    merged = np.concatenate([np.array(attention(q[:, h], k[:, h], v[:, h])) for h in heads], axis=1)
    return project(merged, "output")


def layer_norm(row: Any, gamma: Any, beta: Any, eps: float) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    return [g * (x - mean) / math.sqrt(variance + eps) + b for x, g, b in zip(row, gamma, beta, strict=True)]


def rms_norm(row: Any, gamma: Any, eps: float) -> list[float]:
    mean_square = sum(x * x for x in row) / len(row)
    return [g * x / math.sqrt(mean_square + eps) for x, g in zip(row, gamma, strict=True)]


def position(pos: int, column: int, width: int, base: float = 10000.0) -> float:
    """Entry (pos, column) of the sinusoidal table: column 2i holds a sine, 2i + 1 the cosine of the same angle."""
    angle = pos / base ** (2 * (column // 2) / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


def cross_entropy(logits: Any, targets: Any, ignore_index: int, smoothing: float) -> float:
    """The mean over the rows that count. The wanted token gets 1 - ε, and ε is shared out among all tokens alike."""
    losses = []
    for row, target in zip(logits, targets, strict=True):
        if target != ignore_index:
            wanted = [smoothing / len(row) + (1 - smoothing if v == target else 0) for v in range(len(row))]
            losses.append(-sum(w * math.log(p) for w, p in zip(wanted, softmax(row), strict=True)))
    return sum(losses) / len(losses)


def adamw(value: float, gradients: list[float], rate: float, betas: tuple[float, float], eps: float) -> float:
    """One number after a step for each gradient, without decay: Kingma and Ba 2015, algorithm 1."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        value -= rate * (m / (1 - betas[0] ** t)) / (math.sqrt(v / (1 - betas[1] ** t)) + eps)
    return value


def orthogonal(matrix: np.ndarray, rounds: int = 5) -> np.ndarray:
    """Muon's polynomial of the singular values, found by a decomposition: Jordan 2024."""
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    s = s / math.sqrt(sum(x * x for x in s))
    for _ in range(rounds):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ np.diag(s) @ v


def dependencies(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> list[list[int]]:
    """Which outputs see which inputs: entry [i][j] is 1 where row i of f(x) moves if row j of x is moved.

    Rows are those of the last axis but one; of a vector (token ids) they are its entries.
    """
    before = f(x)
    rows = []
    for j in range(x.shape[0 if x.ndim == 1 else -2]):
        moved = x.copy()
        if x.ndim == 1:
            moved[j] += 1
        else:
            moved[..., j, :] += 1.0 + np.arange(x.shape[-1])  # not the same shift everywhere: a norm would remove it
        change = abs(f(moved) - before)
        rows.append((change.reshape(-1, *change.shape[-2:]).max(axis=(0, 2)) > 1e-9).astype(int))
    return np.array(rows).T.tolist()
