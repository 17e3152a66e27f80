"""The exercises: each reference is right, each known mistake is named, and nothing else is called right or known.

At the end: how far right answers and wrong ones lie apart, and that every argument counts. One that were the same in
all trials could be hard-coded.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from all_ops import OPS
from scipy.special import erf
from tiers import in_one

from minitransformer import course, ideas, layers, masks, ops
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


# The references against ops and layers, which finite differences check, or against plain Python.


def by_layer(layer: Any, values: dict[str, Any], x: np.ndarray, dy: np.ndarray | None = None) -> Any:
    """The output of a layer with these parameters; given dy, the gradients of x and of the parameters in this order."""
    found = dict(layer.to(dtype="float64").parameters())
    for name, value in values.items():
        found[name].value = value
    y, backward = layer(x)
    return y if dy is None else (backward(dy), *(found[name].grad for name in values))


def heads_of(n_heads: int, *maps: np.ndarray) -> tuple[Any, dict[str, Any]]:
    sizes = {"d_k": maps[0].shape[1] // n_heads, "d_v": maps[2].shape[1] // n_heads, "bias": False}
    names = (f"{name}.weight" for name in ("query", "key", "value", "output"))
    return layers.MultiHeadAttention(len(maps[0]), n_heads, **sizes), dict(zip(names, maps, strict=True))


def encoder_layer(p: dict[str, Any], s: dict[str, Any], dy: np.ndarray) -> Any:
    layer = layers.EncoderLayer(len(p["w_q"]), 1, p["w_1"].shape[1], bias=False)
    attention, maps = heads_of(1, p["w_q"], p["w_k"], p["w_v"], p["w_o"])
    layer.self_attention.sublayer = attention
    values = {f"self_attention.sublayer.{name}": value for name, value in maps.items()}
    values["self_attention.norm.gamma"] = p["gamma_1"]
    values |= {"feed_forward.sublayer.inner.weight": p["w_1"], "feed_forward.sublayer.output.weight": p["w_2"]}
    return by_layer(layer, values | {"feed_forward.norm.gamma": p["gamma_2"]}, s["x"], dy)


def feed_forward(x: Any, w_1: Any, b_1: Any, w_2: Any, dy: Any) -> Any:
    values = {"inner.weight": w_1, "inner.bias": b_1, "output.weight": w_2, "output.bias": np.zeros(dy.shape[-1])}
    return by_layer(layers.FeedForward(*w_1.shape), values, x, dy)


def shared_heads(q: Any, k: Any, v: Any, weights: Any, doutput: Any) -> Any:
    """The weights are given and need not be those of q and k: what lacks is added to the scores."""
    n = len(q) // len(k)
    wide_k, wide_v = (np.repeat(x, n, axis=0) for x in (k, v))
    offsets = np.log(weights) - q @ wide_k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    dq, *wide = ops.attention(q, wide_k, wide_v, bias=offsets)[1](doutput)[:3]
    return dq, *(x.reshape(len(k), n, *x.shape[1:]).sum(axis=1) for x in wide)


def with_a_sink(q: Any, k: Any, v: Any, weights: Any, doutput: Any) -> Any:
    """A sink is one more key, which all have the score 0 with, and whose value is 0; else as in shared_heads."""
    more_k, more_v = (np.concatenate([x, np.zeros((len(x), 1, x.shape[-1]))], axis=1) for x in (k, v))
    rest = 1.0 - weights.sum(axis=-1, keepdims=True)
    offsets = np.log(weights / rest) - q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    offsets = np.concatenate([offsets, np.zeros_like(rest)], axis=-1)
    dq, dk, dv, doffsets = ops.attention(q, more_k, more_v, bias=offsets)[1](doutput)
    return dq, dk[:, :-1], dv[:, :-1], doffsets[..., -1].sum(axis=-1)


def normed_scores(q: Any, k: Any, gamma_q: Any, gamma_k: Any, dscores: Any) -> Any:
    normed_q, back_q = ops.rms_norm(q, gamma_q, 1e-5)
    normed_k, back_k = ops.rms_norm(k, gamma_k, 1e-5)
    dproduct = dscores / len(gamma_q) ** 0.5
    (dq, dgamma_q), (dk, dgamma_k) = back_q(dproduct @ normed_k), back_k(dproduct.T @ normed_q)
    return dq, dk, dgamma_q, dgamma_k


def tied_embedding(ids: Any, table: Any, hidden: Any, dvectors: Any, dlogits: Any) -> Any:
    dhidden, dmap = ops.linear(hidden, table.T)[1](dlogits)[:2]
    return dhidden, dmap.T + ops.embedding(ids, table)[1](dvectors)


def mixture(gates: Any, outputs: Any, dy: Any) -> Any:
    with np.errstate(divide="ignore"):
        logits = np.log(gates)
    return gates[..., None] * dy[:, None], ops.softmax(logits)[1](np.einsum("ned,nd->ne", outputs, dy))


def unfused(p: Any, targets: Any) -> Any:
    hit = np.arange(p.shape[1]) == targets[:, None]
    return np.where(hit, -1.0 / (p * len(p)), 0.0), ops.cross_entropy(np.log(p), targets)[1](1.0)


def turned_by_complex_numbers(x: np.ndarray, base: float) -> np.ndarray:
    """Su et al. 2021, equation 12."""
    turns = np.exp(1j * np.outer(np.arange(len(x)), base ** (-np.arange(0, x.shape[1], 2) / x.shape[1])))
    turned = (x[:, : x.shape[1] // 2] + 1j * x[:, x.shape[1] // 2 :]) * turns
    return np.concatenate([turned.real, turned.imag], axis=1)


def one_more_tile(q: Any, k: Any, v: Any, old_largest: Any, old_total: Any, old_found: Any) -> tuple[Any, ...]:
    """In logarithms, unscaled by a maximum."""
    scores = np.array([[a @ b / len(a) ** 0.5 for b in k] for a in q])
    logs = np.logaddexp(np.log(old_total) + old_largest, np.logaddexp.reduce(scores, axis=1))
    largest = np.array([max(a, *row) for a, row in zip(old_largest, scores, strict=True)])
    mean = old_found * np.exp(old_largest - logs)[:, None] + np.exp(scores - logs[:, None]) @ v
    return largest, np.exp(logs - largest), np.exp(logs - largest)[:, None] * mean


def linear_attention(q: Any, k: Any, v: Any) -> np.ndarray:
    of_q, of_k = ([np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in rows] for rows in (q, k))
    weights = np.tril([[a @ b for b in of_k] for a in of_q])
    return weights @ v / weights.sum(axis=1, keepdims=True)


def of_latents(q: Any, q_place: Any, latent: Any, place: Any, w_uk: Any) -> list[Any]:
    keys, queries = [np.hstack([latent @ w, place]) for w in w_uk], np.hstack([q, q_place])
    return [k @ a / a.size**0.5 for k, a in zip(keys, queries, strict=True)]


def of_kept_keys(q: Any, k: Any, window: int, sinks: int) -> np.ndarray:
    cache = RollingCache(window, sinks)
    for key in k:
        kept = cache.extend(key[None], key[None]) and cache.read()[0]
    turned = [[ideas.rotary(x[None], i)[0][0] for i, x in enumerate(rows)] for rows in (kept, [q] * (len(kept) + 1))]
    return turned[0] @ turned[1][-1]


def one_more_token(x: Any, old_keys: Any, old_values: Any, w_q: Any, w_k: Any, w_v: Any) -> tuple[Any, ...]:
    keys, values = [*old_keys, x @ w_k], [*old_values, x @ w_v]
    return reference.attention([x @ w_q], keys, values)[0], keys, values


OTHERWISE: dict[str, Callable[..., Any]] = {
    "softmax_forward": lambda x: ops.softmax(x)[0],
    "softmax_backward": lambda y, dy: ops.softmax(np.log(y))[1](dy),
    "softmax_temperature_backward": lambda y, dy, t: ops.softmax(np.log(y) * t, temperature=t)[1](dy),
    "softmax_jacobian": lambda y: [ops.softmax(np.log(y))[1](row) for row in np.eye(len(y))],
    "masked_softmax_forward": lambda scores, mask: ops.softmax(np.where(mask, scores, -np.inf))[0],
    "matmul_backward": lambda a, b, dc: ops.linear(a, b)[1](dc)[:2],
    "linear_forward": lambda x, w, b: ops.linear(x, w, b)[0],
    "linear_backward": lambda x, w, dy: ops.linear(x, w, np.zeros(w.shape[1]))[1](dy),
    "low_rank_linear_backward": lambda x, down, up, dy: ideas.low_rank_linear(x, down, up)[1](dy),
    "broadcast_backward": lambda x, gain, dy: (
        np.einsum("btd,tk->btd", dy, gain), np.einsum("btd,btd->t", dy, x)[:, None], np.einsum("btd->d", dy)
    ),
    "cross_entropy_forward": lambda logits, targets: ops.cross_entropy(logits, targets)[0],
    "cross_entropy_backward": lambda logits, targets: ops.cross_entropy(logits, targets)[1](1.0),
    "cross_entropy_unfused_backward": unfused,
    "label_smoothing_backward": lambda z, targets, eps: ops.cross_entropy(z, targets, label_smoothing=eps)[1](1.0),
    "top_k_gates": lambda logits, k: ideas.top_k_gates(logits, k)[0],
    "mixture_backward": mixture,
    "causal_mask": masks.causal_mask,
    "padding_mask": masks.padding_mask,
    "local_mask": masks.local_mask,
    "dropout_forward": lambda x, rate, u: np.where(u < rate, 0.0, x / (1 - rate)),
    "dropout_backward": lambda dy, keep, rate: np.where(keep, dy / (1 - rate), 0.0),
    "attention_forward": lambda q, k, v: (
        ops.attention(q, k, v)[0], ops.softmax(np.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5)[0]
    ),
    "attention_backward": lambda q, k, v, weights, doutput: ops.attention(q, k, v)[1](doutput),
    "masked_attention_backward": lambda q, k, v, mask, doutput: ops.attention(q, k, v, mask)[1](doutput),
    "shared_heads_backward": shared_heads,
    "sink_attention_backward": with_a_sink,
    "normed_scores_backward": normed_scores,
    "split_heads": lambda x, n_heads: ops.split_heads(x, n_heads)[0],
    "merge_heads": lambda heads: ops.merge_heads(heads)[0],
    "multi_head_attention_forward": lambda x, *maps: by_layer(*heads_of(maps[-1], *maps[:-1]), x),
    "multi_head_attention_backward": lambda x, p, s, dy: by_layer(
        *heads_of(s["q"].shape[1], p["w_q"], p["w_k"], p["w_v"], p["w_o"]), x, dy
    ),
    "layer_norm_forward": lambda x, gamma, beta, eps: ops.layer_norm(x, gamma, beta, eps)[0],
    "layer_norm_backward": lambda x, gamma, eps, dy: ops.layer_norm(x, gamma, 0.0 * gamma, eps)[1](dy),
    "rms_norm_backward": lambda x, gamma, eps, dy: ops.rms_norm(x, gamma, eps)[1](dy),
    "relu_backward": lambda x, dy: ops.relu(x)[1](dy),
    "gelu_backward": lambda x, dy: ops.gelu(x)[1](dy),
    "feed_forward_backward": feed_forward,
    "encoder_layer_backward": encoder_layer,
    "embedding_forward": lambda ids, table: ops.embedding(ids, table)[0],
    "embedding_backward": lambda ids, dy, n: ops.embedding(ids, np.zeros((n, dy.shape[-1])))[1](dy),
    "tied_embedding_backward": tied_embedding,
    "sinusoidal_positions": ops.sinusoidal_positions,
    "rotary_forward": turned_by_complex_numbers,
    "rotary_backward": lambda dy, base: ideas.rotary(0.0 * dy, base=base)[1](dy),
    "relative_bias_backward": lambda dbias, buckets, n: ops.embedding(buckets, np.zeros((n, len(dbias))))[1](
        np.moveaxis(dbias, 0, -1)
    ),
    "alibi_bias": lambda n, t_q, t_k: ideas.alibi(2.0 ** (-8.0 * np.arange(1, n + 1) / n), t_q, t_k)[0],
    "online_softmax_step": one_more_tile,
    "linear_attention_forward": linear_attention,
    "latent_scores": of_latents,
    "rolling_cache_scores": of_kept_keys,
    "kv_cache_step": one_more_token,
    "warmup_schedule": lambda steps, d, warmup: [optimizers.warmup_schedule(int(step), d, warmup) for step in steps],
    "all_gather_backward": lambda dys: np.stack(np.split(dys.sum(axis=0), len(dys))),
}  # fmt: skip


def by_the_op(name: str) -> Callable[..., Any] | None:
    """The pullback of an idea's op, if the exercise has the op's arguments, and the upstream gradient after them."""
    arguments, op = EXERCISES[name].arguments[:-1], OPS.get(name.removesuffix("_backward"))
    parameters = inspect.signature(op).parameters if op else {}
    needed = {key for key, each in parameters.items() if each.default is each.empty}
    if op is None or not needed <= set(arguments) <= parameters.keys():
        return None
    arrays = {key for key, each in parameters.items() if each.annotation == "Array"}

    def pulled(*inputs: Any) -> Any:
        *given, upstream = inputs
        given = {name: np.asarray(x) if name in arrays else x for name, x in zip(arguments, given, strict=True)}
        return op(**given)[1](upstream)

    return pulled


OTHERWISE |= {name: pulled for name in EXERCISES if name not in OTHERWISE and (pulled := by_the_op(name))}
# Their inputs are pullbacks, of linear maps: the test below writes out the chain of matrices.
BY_PULLBACKS = {"residual_backward", "pre_norm_backward", "post_norm_backward", "decoder_layer_backward"}


def test_every_backward_reference_is_checked() -> None:
    checked = OTHERWISE.keys() | BY_PULLBACKS
    assert {name for name in OWN if name.endswith("backward")} <= checked and len(checked - OWN) >= 6


@in_one("name", OTHERWISE)
def test_the_reference_is_what_another_computation_gives(name: str) -> None:
    for inputs in EXERCISES[name].trials(1):
        wanted = OTHERWISE[name](*inputs)
        for found, right in zip(
            outputs_of(EXERCISES[name], *inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-11)


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
        verdicts = [verdict(exercise, edited(name, edits), seed).right for seed in seeds]
        assert verdicts == [kind == "+"] * len(seeds), (edits, verdicts)


def verdict(exercise: Exercise, f: Callable[..., Any], seed: int) -> course.Result:
    """Right or wrong; looking for the mistake would take most of the time."""
    return course.judge(exercise, course.collect(exercise, f, seed), seed, explain=False)


def singles(x: Any) -> Any:
    """In float32, with what is in a dictionary."""
    if isinstance(x, dict):
        return {key: singles(value) for key, value in x.items()}
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


def with_signature(f: Any, exercise: Exercise) -> None:
    f.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in exercise.arguments]
    )


SEEDS = pytest.mark.parametrize("seeds", [[0], pytest.param([1, 2, 3, 4], marks=pytest.mark.slow)], ids=["1", "4 more"])


@each_exercise
@SEEDS
def test_an_answer_that_hard_codes_an_argument_is_wrong(exercise: Exercise, seeds: list[int]) -> None:
    for seed in seeds:
        first = exercise.trials(seed)[0]
        for i, name in enumerate(exercise.arguments):

            def f(*inputs: Any, i: int = i, value: Any = first[i]) -> Any:
                return exercise.reference(*inputs[:i], copy.deepcopy(value), *inputs[i + 1 :])

            with_signature(f, exercise)
            assert not verdict(exercise, f, seed).right, f"{name} may be hard-coded"


@pytest.mark.few(6)
@each_exercise
def test_a_right_answer_in_float32_passes_and_so_does_what_it_promotes_to(exercise: Exercise) -> None:
    def promoted(*inputs: Any) -> Any:
        return exercise.reference(*map(singles, inputs))

    def rounded(*inputs: Any) -> Any:
        with np.errstate(all="ignore"):
            returned = promoted(*copy.deepcopy(inputs))
        found = tuple(map(singles, map(np.asarray, returned if isinstance(returned, tuple | list) else (returned,))))
        return found if len(found) > 1 else found[0]

    for f in (promoted, rounded):
        with_signature(f, exercise)
        for seed in range(5):
            result = verdict(exercise, f, seed)
            assert result.right, str(result)


# Wrong answers that were once accepted, and others that are almost right.


def log_of_softmax(logits: Any, targets: Any) -> Any:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return -np.log(p[np.arange(len(p)), targets]).mean()


def gelu_by_tanh(x: Any, dy: Any) -> Any:
    inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(2.0 / np.pi) * (1.0 + 3.0 * 0.044715 * x * x)
    return dy * (0.5 * (1.0 + np.tanh(inner)) + 0.5 * x * (1.0 - np.tanh(inner) ** 2) * slope)


adam = EXERCISES["adam_step"].reference
local_mask = EXERCISES["local_mask"].reference


@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "f"), [
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, b1, 1.0 - e, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, b1, b2, 1.0 - b2)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, rate, 0.8, 0.95, 0.05)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, t, 0.1, b1, b2, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, max(t, 2), rate, b1, b2, e)),
    ("adam_step", lambda th, g, m, v, t, rate, b1, b2, e: adam(th, g, m, v, min(t, 5), rate, b1, b2, e)),
    ("cross_entropy_forward", log_of_softmax),
    *(("local_mask", lambda t, radius, cap=cap: local_mask(t, min(radius, cap))) for cap in range(7)),
    ("local_mask", lambda t, radius: local_mask(t, radius or 1)),
    ("gelu_backward", gelu_by_tanh),
    ("gelu_backward", lambda x, dy: dy * (0.5 * (1.0 + erf(x / 1.4)) + x * np.exp(-0.5 * x * x) * 0.399)),
    ("relu_backward", lambda x, dy: dy * (x >= 0)),
    ("dropout_forward", lambda x, rate, u: x * (u > rate) / (1.0 - rate)),
    ("layer_norm_forward", lambda x, g, b, eps: EXERCISES["layer_norm_forward"].reference(x, g, b, 0.1)),
    ("softmax_backward", lambda y, dy: (y * (dy - (dy * y).sum(-1, keepdims=True))).clip(-5.0, 5.0)),
])  # fmt: skip
def test_a_wrong_answer_that_is_almost_right_is_rejected(name: str, f: Callable[..., Any]) -> None:
    with_signature(f, EXERCISES[name])
    for seed in range(5):
        assert not verdict(EXERCISES[name], f, seed).right, f"seed {seed}"


def test_a_logarithm_of_softmax_is_named() -> None:
    assert course.check("cross_entropy_forward", log_of_softmax).mistake == "log-of-softmax"
