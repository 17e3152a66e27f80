"""The exercises: each reference is right, each known mistake is named, and nothing else is called right or known."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from scipy.special import erf
from tiers import in_one

from minitransformer import course, ideas, masks, ops
from minitransformer.core.training import optimizers
from minitransformer.ideas import RollingCache
from minitransformer.school.course import EXERCISES, Exercise

# An idea that brings an exercise has tests of its own beside those for every exercise.
OWN = {name for name, one in EXERCISES.items() if not one.reference.__module__.endswith(".lesson")}
each_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))


def outputs_of(exercise: Exercise, *inputs: Any) -> list[np.ndarray]:
    returned = exercise.reference(*inputs)
    return [np.asarray(x) for x in (returned if isinstance(returned, tuple) else (returned,))]


def changed_answer(exercise: Exercise, i: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """The reference with a change to its output i alone."""

    def f(*inputs: Any) -> Any:
        outputs = outputs_of(exercise, *inputs)
        outputs[i] = change(outputs[i])
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return f


# What there is.


@in_one("exercise", EXERCISES.values())
def test_every_exercise_is_complete(exercise: Exercise) -> None:
    assert exercise.title and exercise.statement and exercise.hint()
    assert exercise.solution().startswith(f"def {exercise.name}(")
    for name in (*exercise.arguments, *exercise.outputs):
        assert name.isidentifier()
        assert name.removeprefix("new_") in exercise.statement, f"the statement says nothing of {name}"
    needed = 3
    if exercise.name.endswith("backward"):
        needed = 5
    assert len(exercise.mistakes) >= needed
    assert len({mistake.name for mistake in exercise.mistakes}) == len(exercise.mistakes)
    for mistake in exercise.mistakes:
        assert mistake.sentence.endswith((".", ")")) and len(mistake.sentence) < 260, mistake.name


@in_one("exercise", EXERCISES.values())
def test_the_solution_is_not_shown_by_accident(exercise: Exercise) -> None:
    shown = "\n".join([str(exercise), repr(exercise), exercise._repr_html_(), repr(course.exercises())])
    body = [line.strip() for line in exercise.solution().splitlines()[1:] if "=" in line]
    assert body and not any(line in shown for line in body)
    assert exercise.hint() not in shown
    assert not any(mistake.sentence in shown for mistake in exercise.mistakes)
    assert not any(mistake.name in shown for mistake in exercise.mistakes if "-" in mistake.name)


@functools.cache
def solutions() -> dict[str, Any]:
    """All solutions, run with NumPy, the error function and each other; what types they name does not matter."""
    types = {"Array": Any, "Callable": Callable, "Any": Any, "Pullback": Any}
    namespace: dict[str, Any] = {"np": np, "erf": erf, **types}
    for exercise in EXERCISES.values():
        exec(exercise.solution(), namespace)
    return namespace


@pytest.mark.parametrize("seeds", [[0], pytest.param(range(1, 50), marks=pytest.mark.sweep)], ids=["1", "49 more"])
@each_exercise
def test_the_solution_stands_by_itself_and_is_right(exercise: Exercise, seeds: list[int]) -> None:
    for seed in seeds:
        result = course.check(exercise.name, solutions()[exercise.name], seed)
        assert result.right and result.score == 1.0 and result.mistake is None, f"seed {seed}\n{result}"


@in_one("exercise", EXERCISES.values())
def test_trials_differ_and_repeat(exercise: Exercise) -> None:
    one, again, other = exercise.trials(3), exercise.trials(3), exercise.trials(4)
    outputs = [[outputs_of(exercise, *inputs)[0] for inputs in trials] for trials in (one, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(outputs[0], outputs[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(outputs[0], outputs[2], strict=True))


# Right and wrong.


@pytest.mark.few(26)
@pytest.mark.parametrize("seeds", [[0], pytest.param([1, 2, 3, 4], marks=pytest.mark.sweep)], ids=["1", "4 more"])
@each_exercise
def test_every_known_mistake_is_named(exercise: Exercise, seeds: list[int]) -> None:
    for mistake, seed in itertools.product(exercise.mistakes, seeds):
        result = course.check(exercise.name, exercise.mistaken(mistake), seed)
        assert not result.right and result.score < 1.0
        assert {output.mistake for output in result.outputs if not output.right} == {mistake.name}, str(result)
        assert " ".join(mistake.sentence.split()) in " ".join(str(result).split())


def unknown_changes(x: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    rng = np.random.default_rng(1)
    if x.dtype.kind == "b":

        def flipped(mask: np.ndarray) -> np.ndarray:
            other = mask.copy()
            other.flat[mask.size // 2] ^= True
            return other

        return {"flipped": flipped}
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "times 1.01": lambda y: y * 1.01,
        "noise": lambda y: y + 0.01 * rng.normal(size=y.shape) * np.abs(y).max(),
        "one entry": lambda y: y + 0.05 * np.abs(y).max() * (np.arange(y.size) == y.size - 1).reshape(y.shape),
        "zeros": np.zeros_like,
        "shifted": lambda y: y + 0.1,
        "NaN": lambda y: np.where(np.arange(y.size) == 0, np.nan, y.reshape(-1)).reshape(y.shape),
    }
    if x.ndim:
        changes["an axis more"] = lambda y: y[None]
    return changes


def test_a_mistake_that_no_longer_fits_its_reference_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = EXERCISES["softmax_backward"]
    stale = dataclasses.replace(exercise.mistakes[0], edits=(("no such line", "another"),))
    monkeypatch.setattr(type(exercise), "mistakes", (stale,))
    with pytest.raises(ValueError, match="its snippet must occur exactly once"):
        course.check(exercise.name, lambda y, dy: dy)


SLOW = (pytest.mark.slow, *3 * [pytest.mark.sweep])  # in turns
QUICK = "softmax_forward matmul_backward cross_entropy_forward causal_mask dropout_backward embedding_backward".split()


@pytest.mark.parametrize(
    "exercise",
    [pytest.param(EXERCISES[name], marks=() if name in QUICK else SLOW[i % 4]) for i, name in enumerate(EXERCISES)],
    ids=list(EXERCISES),
)
def test_an_unknown_mistake_is_said_to_be_unknown(exercise: Exercise) -> None:
    example = outputs_of(exercise, *exercise.trials(0)[0])
    for i, name in enumerate(exercise.outputs):
        for label, change in unknown_changes(example[i]).items():
            if i and label not in ("times 1.01", "noise"):
                continue
            result = course.check(exercise.name, changed_answer(exercise, i, change), seed=6)
            assert not result.right, f"{label}\n{result}"
            assert [output.name for output in result.outputs if not output.right] == [name], f"{label}\n{result}"
            assert result.score == (len(example) - 1) / len(example)
            assert result.mistake is None, f"{label}\n{result}"
            told = f"An unknown mistake: none of the known ones gives this {name}." in str(result)
            assert told == result[name].unknown == (not result[name].remark and not result[name].problem), (
                f"{label}\n{result}"
            )
            if label in ("times 1.01", "zeros", "shifted") and result[name].size > 1:
                assert result[name].remark, f"{label}\n{result}"


SYMMETRIC = ("softmax_jacobian", "local_mask")
KNOWN_TRANSPOSES = """
    da-transposed db-transposed dw-transposed transposed axis-in-the-wrong-place head-transposed qk-transposed
    ov-transposed
""".split()


@pytest.mark.few(6)
@each_exercise
def test_a_transposed_output_is_said_to_be_one(exercise: Exercise) -> None:
    example = outputs_of(exercise, *exercise.trials(0)[0])
    for i, name in enumerate(exercise.outputs):
        if example[i].ndim < 2 or exercise.name in SYMMETRIC:
            continue
        result = course.check(exercise.name, changed_answer(exercise, i, lambda y: y.swapaxes(-1, -2)))
        assert [output.name for output in result.outputs if not output.right] == [name]
        assert not result[name].unknown
        if result.mistake in KNOWN_TRANSPOSES:  # which has an explanation of its own
            continue
        assert result.mistake is None
        how = ".T" if example[i].ndim == 2 else ".swapaxes(-1, -2)"
        assert f"It is the transpose of what was expected: transpose it once more, with {how}." in str(result)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_mistakes_at_once_are_both_named(order: tuple[int, int]) -> None:
    attention = EXERCISES["attention_backward"]
    both = [m for m in attention.mistakes if m.name in ("dq-not-scaled", "softmax-no-sum")]
    result = course.check("attention_backward", attention.mistaken(*(both[i] for i in order)))
    assert result["dq"].mistake == "dq-not-scaled + softmax-no-sum"
    assert result["dk"].mistake == "softmax-no-sum"
    assert result["dv"].right and result.score == pytest.approx(1 / 3)


def test_each_output_may_have_its_own_mistake() -> None:
    def linear_backward(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, ...]:
        rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        return dy @ w.T, rows.T @ drows / len(rows), drows.mean(axis=0)

    result = course.check("linear_backward", linear_backward)
    assert [output.mistake for output in result.outputs] == [None, "dw-mean", "db-mean"]
    assert result.score == pytest.approx(1 / 3) and result.mistake == "dw-mean"


# The references against finite differences of an independent forward pass.


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def normalize(x: np.ndarray, gamma: np.ndarray, eps: float) -> np.ndarray:
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def root_normed(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return gamma * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = True) -> np.ndarray:
    exponentials = np.where(mask, np.exp(np.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5), 0.0)
    total = exponentials.sum(-1, keepdims=True)
    return exponentials / np.where(total == 0.0, 1.0, total) @ v


def nll(logits: np.ndarray, targets: np.ndarray, epsilon: float = 0.0) -> float:
    return reference.cross_entropy(logits.tolist(), targets.tolist(), -100, epsilon)


def log_p_loss(p: np.ndarray, targets: np.ndarray) -> float:
    return -np.log(p[np.arange(len(p)), targets]).mean()


def heads_loss(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, n_heads: int, dy: Any) -> float:
    split = [np.stack(np.split(x @ w, n_heads, axis=-1), axis=1) for w in (w_q, w_k, w_v)]
    return (dy * (np.concatenate(list(attend(*split).swapaxes(0, 1)), axis=-1) @ w_o)).sum()


def encoder_loss(
    dy: Any, x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, g_1: Any, w_1: Any, w_2: Any, g_2: Any
) -> float:
    attended = normalize(x + attend(x @ w_q, x @ w_k, x @ w_v) @ w_o, g_1, 1e-5)
    return (dy * normalize(attended + np.maximum(attended @ w_1, 0) @ w_2, g_2, 1e-5)).sum()


Case = tuple[list[np.ndarray], Callable[..., float]]


def tied_case(ids: Any, table: Any, hidden: Any, de: Any, dl: Any) -> Case:
    return [hidden, table], lambda h, t: (de * t[ids]).sum() + (dl * (h @ t.T)).sum()


def heads_case(x: Any, p: Any, s: Any, dy: Any) -> Case:
    n_heads = s["q"].shape[1]
    return [x, p["w_q"], p["w_k"], p["w_v"], p["w_o"]], lambda *a: heads_loss(*a, n_heads, dy)


def encoder_case(p: Any, s: Any, dy: Any) -> Case:
    names = "w_q w_k w_v w_o gamma_1 w_1 w_2 gamma_2".split()
    return [s["x"], *(p[name] for name in names)], lambda *a: encoder_loss(dy, *a)


# For each backward exercise: the variables in the order of its outputs, and the loss as a function of them.
def shared_case(q: Any, k: Any, v: Any, weights: Any, doutput: Any) -> Case:
    """The weights are given and need not be those of q and k, so each head has scores to which its own are added."""
    n = len(q) // len(k)
    offsets = [np.log(weights[h]) - q[h] @ k[h // n].T / np.sqrt(q.shape[-1]) for h in range(len(q))]

    def loss(q: Any, k: Any, v: Any) -> float:
        scores = [q[h] @ k[h // n].T / np.sqrt(q.shape[-1]) + offsets[h] for h in range(len(q))]
        return sum((doutput[h] * (softmax(s) @ v[h // n])).sum() for h, s in enumerate(scores))

    return [q, k, v], loss


def sink_case(q: Any, k: Any, v: Any, weights: Any, doutput: Any) -> Case:
    """As in shared_case; the sink of each head is 0 but for what each query needs to leave as much as it does."""
    root = np.sqrt(q.shape[-1])
    rest = 1.0 - weights.sum(axis=-1, keepdims=True)
    offsets = np.log(weights / rest) - q @ k.swapaxes(1, 2) / root

    def loss(q: Any, k: Any, v: Any, sink: Any) -> float:
        e = np.exp(q @ k.swapaxes(1, 2) / root + offsets)
        shared = e / (np.exp(sink)[:, None, None] + e.sum(axis=-1, keepdims=True))
        return (doutput * (shared @ v)).sum()

    return [q, k, v, np.zeros(len(q))], loss


LOSSES: dict[str, Callable[..., Case]] = {
    "matmul_backward": lambda a, b, dc: ([a, b], lambda a, b: (dc * (a @ b)).sum()),
    "linear_backward": lambda x, w, dy: ([x, w, np.zeros(w.shape[1])], lambda x, w, b: (dy * (x @ w + b)).sum()),
    "broadcast_backward": lambda x, gain, dy: (
        [x, gain, np.zeros(x.shape[-1])],
        lambda x, g, b: (dy * (x * g + b)).sum(),
    ),
    "low_rank_linear_backward": lambda x, down, up, dy: ([x, down, up], lambda x, d, u: (dy * (x @ d @ u)).sum()),
    "softmax_backward": lambda y, dy: ([np.log(y)], lambda x: (dy * softmax(x)).sum()),
    "softmax_temperature_backward": lambda y, dy, t: ([np.log(y) * t], lambda x: (dy * softmax(x / t)).sum()),
    "cross_entropy_backward": lambda logits, targets: ([logits], lambda x: nll(x, targets)),
    "cross_entropy_unfused_backward": lambda p, targets: (
        [p, np.log(p)],
        # dp and dlogits are gradients of two functions, each of one variable
        lambda q, x: log_p_loss(q, targets) + log_p_loss(softmax(x), targets),
    ),
    "label_smoothing_backward": lambda logits, targets, eps: ([logits], lambda x: nll(x, targets, eps)),
    "dropout_backward": lambda dy, keep, rate: (
        [np.ones(dy.shape)],
        lambda x: (dy * np.where(keep, x / (1 - rate), 0)).sum(),
    ),
    "attention_backward": lambda q, k, v, weights, do: ([q, k, v], lambda q, k, v: (do * attend(q, k, v)).sum()),
    "masked_attention_backward": lambda q, k, v, mask, do: (
        [q, k, v],
        lambda q, k, v: (do * attend(q, k, v, mask)).sum(),
    ),
    "multi_head_attention_backward": heads_case,
    "layer_norm_backward": lambda x, gamma, eps, dy: (
        [x, gamma, np.zeros(gamma.shape)],
        lambda x, g, b: (dy * (normalize(x, g, eps) + b)).sum(),
    ),
    "rms_norm_backward": lambda x, gamma, eps, dy: (
        [x, gamma],
        lambda x, g: (dy * g * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)).sum(),
    ),
    "relu_backward": lambda x, dy: ([x], lambda x: (dy * np.maximum(x, 0)).sum()),
    "gelu_backward": lambda x, dy: ([x], lambda x: (dy * x * (1 + erf(x * 0.5**0.5)) / 2).sum()),
    "feed_forward_backward": lambda x, w_1, b_1, w_2, dy: (
        [x, w_1, b_1, w_2, np.zeros(x.shape[-1])],
        lambda x, w_1, b_1, w_2, b_2: (dy * (np.maximum(x @ w_1 + b_1, 0) @ w_2 + b_2)).sum(),
    ),
    "embedding_backward": lambda ids, dy, n: ([np.ones((n, dy.shape[-1]))], lambda table: (dy * table[ids]).sum()),
    "tied_embedding_backward": tied_case,
    "encoder_layer_backward": encoder_case,
    "rotary_backward": lambda dy, base: (
        [np.linspace(-1.0, 2.0, dy.size).reshape(dy.shape)],
        lambda x: (dy * ideas.rotary(x, base=base)[0]).sum(),
    ),
    "shared_heads_backward": shared_case,
    "sink_attention_backward": sink_case,
    "normed_scores_backward": lambda q, k, gamma_q, gamma_k, dscores: (
        [q, k, gamma_q, gamma_k],
        lambda q, k, g_q, g_k: (dscores * (root_normed(q, g_q) @ root_normed(k, g_k).T)).sum() / len(g_q) ** 0.5,
    ),
    "relative_bias_backward": lambda dbias, buckets, n: (
        [np.ones((n, len(dbias)))],
        lambda table: (dbias * np.moveaxis(table[buckets], -1, 0)).sum(),
    ),
}
LOSSES["mixture_backward"] = lambda gates, outputs, dy: (
    [outputs, np.where(gates > 0, np.log(np.where(gates > 0, gates, 1.0)), -np.inf)],
    lambda outputs, logits: ((softmax(logits)[..., None] * outputs).sum(axis=1) * dy).sum(),
)
LOSSES["all_gather_backward"] = lambda dys: (
    [np.zeros((len(dys), dys.shape[1] // len(dys), dys.shape[2]))],
    lambda xs: sum((dy * np.concatenate(list(xs))).sum() for dy in dys),
)
# Their inputs are pullbacks, of linear maps: the tests below write out the chain of matrices.
BY_PULLBACKS = {"residual_backward", "pre_norm_backward", "post_norm_backward", "decoder_layer_backward"}


def numerical(loss: Callable[..., float], variables: list[np.ndarray], i: int, h: float = 1e-5) -> np.ndarray:
    gradient = np.zeros(variables[i].shape)
    for index in np.ndindex(gradient.shape):
        ends = []
        for step in (h, -h):
            moved = [x.copy() for x in variables]
            moved[i][index] += step
            ends.append(loss(*moved))
        gradient[index] = (ends[0] - ends[1]) / (2 * h)
    return gradient


def test_every_backward_reference_is_checked() -> None:
    assert {name for name in OWN if name.endswith("backward")} == LOSSES.keys() | BY_PULLBACKS


@pytest.mark.few(8)
@pytest.mark.parametrize("name", LOSSES)
def test_the_reference_agrees_with_finite_differences(name: str) -> None:
    exercise = EXERCISES[name]
    for inputs in exercise.trials(2)[:2]:
        variables, loss = LOSSES[name](*inputs)
        outputs = outputs_of(exercise, *inputs)
        assert len(outputs) == len(variables)
        for i, gradient in enumerate(outputs):
            np.testing.assert_allclose(gradient, numerical(loss, variables, i), rtol=1e-6, atol=1e-7)


def matrix_of(pullback: Callable[[np.ndarray], Any], shape: tuple[int, ...], part: int | None = None) -> np.ndarray:
    """The matrix of a linear map on arrays of this shape, flattened, found by its images of the unit vectors."""
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    images = [pullback(unit) if part is None else pullback(unit)[part] for unit in units]
    return np.stack([image.reshape(-1) for image in images], axis=1)


def test_references_made_of_pullbacks() -> None:
    """Forward passes of matrices are differentiated by transposing, so the whole backward is one product of them."""
    for dy, f in EXERCISES["residual_backward"].trials(1):
        jacobian = np.eye(dy.size) + matrix_of(f, dy.shape).T
        dx = EXERCISES["residual_backward"].reference(dy, f)
        np.testing.assert_allclose(dx.reshape(-1), dy.reshape(-1) @ jacobian)
    for dy, f, norm in EXERCISES["pre_norm_backward"].trials(1):
        flat, f_matrix, norm_matrix = dy.reshape(-1), matrix_of(f, dy.shape).T, matrix_of(norm, dy.shape).T
        dx = EXERCISES["pre_norm_backward"].reference(dy, f, norm)
        np.testing.assert_allclose(dx.reshape(-1), flat @ (np.eye(dy.size) + f_matrix @ norm_matrix))
        dx = EXERCISES["post_norm_backward"].reference(dy, f, norm)
        np.testing.assert_allclose(dx.reshape(-1), flat @ norm_matrix @ (np.eye(dy.size) + f_matrix))
    for dy, parts in EXERCISES["decoder_layer_backward"].trials(1):
        j = {name: matrix_of(f, dy.shape).T for name, f in parts.items() if name != "cross_attention"}
        cross, memory = (matrix_of(parts["cross_attention"], dy.shape, part).T for part in (0, 1))
        one = np.eye(dy.size)
        after_cross = j["norm_3"] @ (one + j["feed_forward"]) @ j["norm_2"]  # ∂y/∂(attended + cross-attention)
        dx, dmemory = EXERCISES["decoder_layer_backward"].reference(dy, parts)
        to_x = after_cross @ (one + cross) @ j["norm_1"] @ (one + j["self_attention"])
        np.testing.assert_allclose(dx.reshape(-1), dy.reshape(-1) @ to_x)
        np.testing.assert_allclose(dmemory.reshape(-1), dy.reshape(-1) @ after_cross @ memory)


# The other references against the ops, or against plain Python.


def test_forward_references() -> None:
    def each(name: str) -> list[tuple[list[np.ndarray], tuple[Any, ...]]]:
        return [(outputs_of(EXERCISES[name], *inputs), inputs) for inputs in EXERCISES[name].trials(1)]

    equal = np.testing.assert_allclose
    for (y,), (x,) in each("softmax_forward"):
        equal(y, ops.softmax(x)[0])
    for (jacobian,), (y,) in each("softmax_jacobian"):
        x = np.log(y)
        for i in range(len(y)):
            equal(jacobian[i], numerical(lambda x, i=i: softmax(x)[i], [x], 0), atol=1e-9)
    for (y,), (x, w, b) in each("linear_forward"):
        equal(y, ops.linear(x, w, b)[0])
    for (loss,), (logits, targets) in each("cross_entropy_forward"):
        equal(loss, ops.cross_entropy(logits, targets)[0])
    for (gates,), (logits, k) in each("top_k_gates"):
        equal(gates, ideas.top_k_gates(logits, k)[0])
    for (mask,), (t_q, t_k) in each("causal_mask"):
        equal(mask, masks.causal_mask(t_q, t_k))
    for (mask,), (lengths, t_k) in each("padding_mask"):
        equal(mask, masks.padding_mask(lengths, t_k))
    for (mask,), (t, radius) in each("local_mask"):
        equal(mask, masks.local_mask(t, radius))
    for (weights,), (scores, mask) in each("masked_softmax_forward"):
        equal(weights, ops.softmax(np.where(mask, scores, -np.inf))[0])
        assert (weights.sum(axis=-1) == 0.0).any()
    for (y,), (x, rate, u) in each("dropout_forward"):
        equal(y.ravel(), [0.0 if b < rate else a / (1 - rate) for a, b in zip(x.ravel(), u.ravel(), strict=True)])
    for (output, weights), (q, k, v) in each("attention_forward"):
        equal(output, ops.attention(q, k, v)[0])
        equal(weights @ v, output)
    for (heads,), (x, n_heads) in each("split_heads"):
        equal(heads, ops.split_heads(x, n_heads)[0])
    for (x,), (heads,) in each("merge_heads"):
        equal(x, ops.merge_heads(heads)[0])
    for (y,), (x, w_q, w_k, w_v, w_o, n_heads) in each("multi_head_attention_forward"):
        weights = {"query": w_q, "key": w_k, "value": w_v, "output": w_o}
        state = {f"{name}.weight": w for name, w in weights.items()}
        state |= {f"{name}.bias": np.zeros(w.shape[1]) for name, w in weights.items()}
        equal(y[0], reference.multi_head_attention(x[0], x[0], state, n_heads))
    for (y,), (x, gamma, beta, eps) in each("layer_norm_forward"):
        equal(y[-1, 0], reference.layer_norm(x[-1, 0], gamma, beta, eps))
        equal(y, ops.layer_norm(x, gamma, beta, eps)[0])
    for (y,), (ids, table) in each("embedding_forward"):
        equal(y, ops.embedding(ids, table)[0])
    for (table,), (length, width, base) in each("sinusoidal_positions"):
        equal(table, ops.sinusoidal_positions(length, width, base), atol=1e-12)
    for (y,), (x, base) in each("rotary_forward"):
        turns = np.exp(1j * np.outer(np.arange(len(x)), base ** (-np.arange(0, x.shape[1], 2) / x.shape[1])))
        turned = (x[:, : x.shape[1] // 2] + 1j * x[:, x.shape[1] // 2 :]) * turns  # Su et al. 2021, equation 12
        equal(y, np.concatenate([turned.real, turned.imag], axis=1))
        equal(y, ideas.rotary(x, base=base)[0])
    for (bias,), (n_heads, t_q, t_k) in each("alibi_bias"):
        equal(bias, ideas.alibi(np.array([2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads)]), t_q, t_k)[0])
    for (largest, total, found), (q, k, v, old_largest, old_total, old_found) in each("online_softmax_step"):
        scores = np.array([[a @ b / len(a) ** 0.5 for b in k] for a in q])  # unscaled by a maximum, in logarithms
        logs = np.logaddexp(np.log(old_total) + old_largest, np.logaddexp.reduce(scores, axis=1))
        equal(largest + np.log(total), logs)
        equal(largest, [max(a, *row) for a, row in zip(old_largest, scores, strict=True)])
        seen_before = old_found * np.exp(old_largest - logs)[:, None]
        equal(found / total[:, None], seen_before + np.exp(scores - logs[:, None]) @ v, atol=1e-12)
    for (output,), (q, k, v) in each("linear_attention_forward"):
        by_features = [[np.where(x > 0, x + 1, np.exp(x)) for x in rows] for rows in (q, k)]
        weights = np.tril([[a @ b for b in by_features[1]] for a in by_features[0]])
        equal(output, weights @ v / weights.sum(axis=1, keepdims=True))
    for (scores,), (q, q_place, latent, place, w_uk) in each("latent_scores"):
        keys = [np.hstack([latent @ w, place]) for w in w_uk]
        queries = np.hstack([q, q_place])
        equal(scores, [k @ a / a.size**0.5 for k, a in zip(keys, queries, strict=True)])
    for (scores,), (q, k, window, sinks) in each("rolling_cache_scores"):
        cache = RollingCache(window, sinks)
        for key in k:
            kept = cache.extend(key[None], key[None]) and cache.read()[0]
        turned = [
            [ideas.rotary(x[None], i)[0][0] for i, x in enumerate(rows)] for rows in (kept, [q] * (len(kept) + 1))
        ]
        equal(scores, turned[0] @ turned[1][-1])
    for (output, keys, values), (x, old_keys, old_values, w_q, w_k, w_v) in each("kv_cache_step"):
        equal(keys, [*old_keys, x @ w_k])
        equal(values, [*old_values, x @ w_v])
        equal(output, reference.attention([x @ w_q], keys, values)[0])
    for (rates,), (steps, d_model, warmup) in each("warmup_schedule"):
        equal(rates, [optimizers.warmup_schedule(int(step), d_model, warmup) for step in steps])


def test_adam_reference_takes_the_steps_of_adam() -> None:
    gradients = [0.5, -1.0, 2.0, 0.25]
    theta, m, v = np.array([1.0]), np.zeros(1), np.zeros(1)
    for t, g in enumerate(gradients, start=1):
        theta, m, v = EXERCISES["adam_step"].reference(theta, np.array([g]), m, v, t, 0.1, 0.8, 0.95, 0.05)
    assert theta[0] == pytest.approx(reference.adamw(1.0, gradients, 0.1, (0.8, 0.95), 0.05))


def test_finite_difference_reference_has_an_error_of_second_order() -> None:
    f, x, _ = EXERCISES["finite_difference"].trials(0)[0]
    dx = EXERCISES["finite_difference"].reference
    exact = dx(f, x, 1e-4)
    assert np.abs(dx(f, x, 0.1) - exact).max() / np.abs(dx(f, x, 0.05) - exact).max() == pytest.approx(4.0, rel=0.2)


# Right answers that are written differently, and wrong ones that are easily taken for right, as edits.


def answers() -> list[tuple[str, str, list[list[str]]]]:
    """Those of course_answers.txt: the exercise, "+" or "-", and the edits."""
    found, name = [], ""
    for line in (Path(__file__).parent / "course_answers.txt").read_text().splitlines():
        if line.startswith(("+", "-")):
            found.append((name, line[0], [edit.replace("\\n", "\n").split(" => ") for edit in line[2:].split(" && ")]))
        elif not line.startswith("#"):
            name = line or name
    return found


def edited(name: str, edits: list[list[str]]) -> Callable[..., Any]:
    source = EXERCISES[name].solution()
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    scope: dict[str, Any] = {"np": np} | EXERCISES[name].reference.__globals__
    exec(compile(source, f"<{edits}>", "exec", dont_inherit=True), scope)
    return scope[name]


@pytest.mark.few(16)
@pytest.mark.parametrize("seeds", [[0], pytest.param(range(1, 20), marks=pytest.mark.sweep)], ids=["1", "19 more"])
@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in answers()))
def test_answers_are_judged_alike_on_every_seed(name: str, seeds: list[int]) -> None:
    """Every seed includes the extreme cases, so that no wrong answer passes by luck."""
    exercise = EXERCISES[name]
    for _, kind, edits in (one for one in answers() if one[0] == name):
        answered = [course.collect(exercise, edited(name, edits), seed) for seed in seeds]
        verdicts = [course.judge(exercise, *both, explain=False).right for both in zip(answered, seeds, strict=True)]
        assert verdicts == [kind == "+"] * len(seeds), (edits, verdicts)
