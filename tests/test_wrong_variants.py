"""The checker must reject every wrong variant, and none of the right ones.

Mistakes in a backward pass must be rejected by finite differences; mistakes that forward and backward share cannot be,
and must be rejected by independent values (tests/reference.py) or by looking which inputs an output depends on.
"""

import ast
import copy
import dataclasses
import functools
import importlib
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from tiers import in_one
from value_checks import CLOSE, VALUE_CHECKS, Check, rejects

from minitransformer import ideas, layers, models, ops
from minitransformer.check.verify.mistakes import MISTAKES, Mistake
from minitransformer.run.machines.parallel import in_threads, mean
from minitransformer.training import SGD, AdamW, Muon, newton_schulz
from minitransformer.verify import CASES, Case, Report, Row, gradients

PACKAGE = Path(ops.__file__).parent
BY_GRADIENTS = [variant for variant in MISTAKES.values() if variant.caught_by == "gradients"]
BY_VALUES = [variant for variant in MISTAKES.values() if variant.caught_by == "values"]
FAST = {"entrywise": 0, "directions": 1, "entries_at_kinks": False, "intermediates": False}

# Where the checker says in words what is wrong, and has no report: the op's own output is NaN.
STATED = {"softmax-nan-where-all-is-masked": "NaN is first seen in softmax"}


def quick_report(case: Case, seed: int, intermediates: bool = False) -> Report:
    """A case by inputs and parameters alone, the parameters of a layer or model all in one vector, for speed."""
    setup = case.build(np.random.default_rng(seed))
    parameters = [] if setup.module is None else [parameter for _, parameter in setup.module.parameters()]
    if not parameters:
        entrywise = 0 if case.kind == "collective" else 8  # each evaluation of these starts threads
        return case.run(seed, entrywise=entrywise, directions=1, intermediates=intermediates)
    ends = np.cumsum([parameter.value.size for parameter in parameters])

    def load(vector: np.ndarray) -> None:
        for parameter, part in zip(parameters, np.split(vector, ends[:-1]), strict=True):
            parameter.value = part.reshape(parameter.value.shape)

    def of_one_vector(vector: np.ndarray, *inputs: Any, **options: Any) -> Any:
        load(vector)
        y, pullback = setup.f(*inputs, **options)

        def backward(dy: np.ndarray) -> tuple[np.ndarray, ...]:
            load(vector)  # f may have run with other numbers since
            start = float(abs(dy).max())  # to be added to; 1 would round away the gradients of a small dy
            for parameter in parameters:
                parameter.grad = np.full(parameter.value.shape, start)
            returned = pullback(dy)
            dinputs = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
            return np.concatenate([parameter.grad.ravel() - start for parameter in parameters]), *dinputs

        return y, backward

    vector = np.concatenate([parameter.value.ravel() for parameter in parameters])
    return gradients(of_one_vector, vector, *setup.inputs, seed=seed, **FAST, **setup.options)


def rejected(variant: Mistake, run: Callable[[], Report]) -> bool:
    """Whether a check rejects the variant, for its numbers or with a stated problem; no other exception counts."""
    with variant.applied(), np.errstate(invalid="ignore"):
        if variant.name in STATED:
            with pytest.raises(ValueError, match=STATED[variant.name]):
                run()
            return True
        return not run().ok


# ----------------------------------------------------------------------------------------- there are enough of them


@functools.cache
def backward_passes(source: str) -> dict[str, str]:
    """Every function called `backward` in a source: the name of the function around it, and its lines."""
    found, lines = {}, source.splitlines()

    def visit(node: ast.AST, path: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            if named and child.name == "backward":
                found[".".join(path)] = "\n".join(lines[child.lineno - 1 : child.end_lineno])
            visit(child, (*path, child.name) if named else path)

    visit(ast.parse(source), ())
    return found


def too_few_variants(module: str, source: str) -> dict[str, list[str]]:
    """The backward passes of a module that fewer than two variants break, with those variants."""
    right = backward_passes(source)
    breaking: dict[str, list[str]] = {name: [] for name in right}
    for variant in BY_GRADIENTS:
        of, _, function = variant.target.partition(":")
        within = [name for name in right if f"{name}.".startswith(f"{function}.") and len(breaking[name]) < 2]
        if of == module and within:
            wrong = backward_passes(variant.wrong_source)
            for name in within:
                if wrong[name] != right[name]:
                    breaking[name].append(variant.name)
    return {name: variants for name, variants in breaking.items() if len(variants) < 2}


def modules() -> Iterator[tuple[str, str]]:
    for room in ("core/ops", "core/layers", "core/models", "ideas"):
        for path in sorted((PACKAGE / room).rglob("*.py")):
            yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts), path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_backward_pass_has_at_least_two_wrong_variants() -> None:
    assert sum(len(backward_passes(source)) for _, source in modules()) >= 44
    assert not {module: few for module, source in modules() if (few := too_few_variants(module, source))}


def test_a_new_backward_pass_without_variants_would_be_noticed() -> None:
    source = inspect.getsource(inspect.getmodule(inspect.unwrap(ops.softmax)))
    assert too_few_variants("ops.softplus", source) == {"softmax": []}


def test_variants_are_many_and_differ() -> None:
    assert len(BY_GRADIENTS) >= 60
    assert len(BY_GRADIENTS) + len(BY_VALUES) == len(MISTAKES)
    assert len({variant.wrong_source for variant in MISTAKES.values()}) == len(MISTAKES)
    for variant in MISTAKES.values():
        assert variant.sentence.endswith(".") and set(variant.cases) <= CASES.keys(), variant.name
        assert variant.cases or variant in BY_VALUES, variant.name


KNOWN_ERRORS = {
    "softmax backward divides by the batch size": "softmax-divided-by-batch",
    "softmax backward keeps only p (1 - p)": "softmax-diagonal-only",
    "softmax backward sums over the wrong axis": "softmax-sum-over-first-axis",
    "softmax backward expects the cross-entropy gradient": "softmax-expects-cross-entropy",
    "dK scrambled by a reshape": "attention-dk-reshaped",
    "dK without its transpose": "attention-dk-not-transposed",
    "1/√d_k missing from dQ": "attention-dq-not-scaled",
    "1/√d_k missing from dK": "attention-dk-not-scaled",
    "1/√d_k applied twice": "attention-dq-scaled-twice",
    "V in place of Vᵀ": "attention-v-not-transposed",
    "dropout forgotten in dV": "attention-no-dropout-in-dv",
    "softmax before the scaling": "attention-scaled-after-softmax",
    "√d_model for √d_k": "attention-scaled-by-model-width",
    "√T for √d_k": "attention-scaled-by-length",
    "heads split by a reshape": "split-heads-by-reshape",
    "mask added with a finite constant": "attention-mask-added",
    "mask ignored": "attention-mask-ignored",
    "mask after the softmax": "attention-mask-after-softmax",
    "mask accepted by an encoder and not passed on": "encoder-mask-dropped",
    "Q, K, V in the wrong order to cross-attention": "decoder-layer-memory-asks",
    "a fully masked row gives NaN": "softmax-nan-where-all-is-masked",
    "a fully masked row gives uniform weights": "attention-finite-mask",
    "γ pulled out of the means": "layer-norm-gamma-outside-means",
    "ε outside the root": "layer-norm-eps-outside-root",
    "n - 1 in the variance": "layer-norm-variance-over-d-minus-1",
    "a missing mean term": "layer-norm-no-shift",
    "loss gradient not divided by N": "cross-entropy-not-divided",
    "loss gradient divided twice": "cross-entropy-divided-twice",
    "label-smoothing mass": "cross-entropy-smoothing-mass",
    "ignored rows": "cross-entropy-ignored-rows-learn",
    "a row wrong on tied logits": "cross-entropy-finds-token-by-value",
    "the identity path dropped, post-norm": "post-norm-identity-dropped",
    "the identity path dropped, pre-norm": "pre-norm-identity-dropped",
    "grad[ids] = g": "embedding-repeated-tokens-lost",
    "a tied output matrix's half dropped": "unembed-tied-half-dropped",
    "= for +=": "linear-layer-grad-overwritten",
    "one dropout at several sites, masks overwritten": "post-norm-pullback-on-self",
    "rescaled at inference": "dropout-rescales-at-inference",
    "mask redrawn": "dropout-mask-redrawn",
    "dropout not replayed when it recomputes": "recompute-dropout-not-replayed",
    "pullbacks in the wrong order": "encoder-not-reversed",
    "memory's gradient from the last layer only": "decoder-dmemory-of-last-layer",
    "dy damaged in place": "dropout-changes-dy",
    "β1 where β2 belongs": "adam-betas-swapped",
    "the bias correction forgotten": "adam-no-bias-correction",
    "100000 for 10000": "sinusoidal-base-too-large",
    "sine and cosine halves concatenated": "sinusoidal-halves-concatenated",
    "exponent 2·(2i)": "sinusoidal-exponent-doubled",
}


def test_errors_seen_in_public_code_are_among_them() -> None:
    assert set(KNOWN_ERRORS.values()) <= MISTAKES.keys()


# ---------------------------------------------------------------------------------------------- each one is rejected


@pytest.mark.few(70, slow=606)
@pytest.mark.parametrize("variant", BY_GRADIENTS, ids=lambda variant: variant.name)
def test_checker_rejects(variant: Mistake) -> None:
    """In its first case, by inputs and parameters alone."""
    assert rejected(variant, functools.partial(quick_report, CASES[variant.cases[0]], 1))


@pytest.mark.few(0, slow=30)
@pytest.mark.parametrize("variant", BY_GRADIENTS, ids=lambda variant: variant.name)
def test_checker_rejects_in_every_case(variant: Mistake) -> None:
    """In the settings of `minitransformer check`, up to the first gradient that is wrong."""
    for name in variant.cases:
        assert rejected(variant, functools.partial(CASES[name].run, progress=until_wrong)), name


OF_OPS = [each for each in BY_GRADIENTS if CASES[each.cases[0]].kind == "op" and each.name not in STATED]


@pytest.mark.few(0, slow=20)
@pytest.mark.parametrize("variant", OF_OPS, ids=lambda variant: variant.name)
def test_a_report_on_a_device_says_what_it_says_on_the_host(variant: Mistake) -> None:
    with variant.applied(), np.errstate(invalid="ignore"):
        host, device = (str(CASES[variant.cases[0]].run(device=place)) for place in ("numpy", "strict"))
    assert "WRONG" in host and device == host


def until_wrong(checks: list[Callable[[], Row]]) -> Iterator[Callable[[], Row]]:
    """A check's `progress` that ends it after a wrong row."""
    rows: list[Row] = []
    for check in checks:
        yield lambda check=check: rows.append(check()) or rows[-1]
        if not rows[-1].ok:
            return


@pytest.mark.sweep
@pytest.mark.parametrize("variant", [v for v in BY_GRADIENTS if len(v.cases) > 1], ids=lambda variant: variant.name)
def test_checker_rejects_with_other_numbers(variant: Mistake) -> None:
    """In its other cases, by inputs and parameters alone."""
    for name in variant.cases[1:]:
        assert rejected(variant, functools.partial(quick_report, CASES[name], 1)), name


# Rows that must be wrong, all others of the case being right: the report leads to the mistake.
PLACES = [
    ("attention-dk-not-scaled", "attention", {"k"}),
    ("attention-dk-reshaped", "attention", {"k"}),
    ("attention-dk-not-transposed", "attention where all sizes are equal", {"k"}),
    ("attention-dq-scaled-twice", "attention with mask and scale", {"q"}),
    ("attention-dv-reshaped", "attention", {"v"}),
    ("attention-no-dropout-in-dv", "attention with causal mask and dropout", {"v"}),
    ("attention-no-softmax-in-backward", "attention", {"q", "k", "attention.scores"}),
    ("attention-softmax-diagonal-only", "attention", {"q", "k", "attention.scores"}),
    ("linear-dbias-mean", "linear", {"bias"}),
    ("linear-dweight-reshaped", "linear", {"weight"}),
    ("linear-layer-bias-untrained", "Linear", {"bias"}),
    ("gated-gate-not-activated", "gated", {"x"}),
    ("layer-norm-no-shift", "layer_norm", {"x"}),
    ("layer-norm-dgamma-of-centered", "layer_norm", {"gamma"}),
    ("layer-norm-gamma-forgotten", "layer_norm", {"x", "layer_norm.normalized"}),
    ("softmax-changes-x", "softmax", {"x"}),
    (
        "learned-positions-mean-over-batch",
        "LearnedPositions",
        {"table", "LearnedPositions.rows", "learned_positions.table", "learned_positions.y"},
    ),
    ("decoder-dmemory-mean", "Decoder in pre-norm order, recomputed", {"memory"}),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "case", "wrong"), PLACES, ids=[f"{name}" for name, _, _ in PLACES])
def test_report_names_the_place(name: str, case: str, wrong: set[str]) -> None:
    with MISTAKES[name].applied():
        report = CASES[case].run()
    assert {row.name for row in report.rows if not row.ok} == wrong
    assert len({row.name for row in report.rows}) > len(wrong)


@pytest.mark.slow
def test_report_names_the_part_of_a_layer() -> None:
    with MISTAKES["encoder-layer-attention-skipped"].applied():
        report = CASES["EncoderLayer with RMSNorm and a gated unit"].run()
    right = {row.name.partition(".")[0] for row in report.of_kind("parameter") if row.ok}
    wrong = {row.name.partition(".")[0] for row in report.of_kind("parameter") if not row.ok}
    assert right == {"feed_forward"} and wrong == {"self_attention"}


# ------------------------------------------------------------------------------------- and the right code is accepted


RIGHT = sorted({case for variant in MISTAKES.values() for case in variant.cases})


@pytest.mark.few(0, slow=80)
@pytest.mark.parametrize("case", RIGHT)
def test_checker_accepts_the_right_code(case: str) -> None:
    """With the numbers that mistakes are rejected with; the quick tests of the catalogue have seed 0."""
    quick_report(CASES[case], 1, intermediates=CASES[case].kind == "op").assert_ok()


@pytest.mark.sweep
@pytest.mark.parametrize("case", RIGHT)
def test_checker_accepts_the_right_code_over_50_seeds(case: str) -> None:
    for seed in range(2, 50):
        quick_report(CASES[case], seed, intermediates=CASES[case].kind == "op").assert_ok()


# ----------------------------------------------------------------------------- weaker checks would let mistakes through


def stub(target: str, old: str, new: str) -> Mistake:
    return Mistake("stub", target, ((old, new),), "A backward pass that nobody has written yet.")


ZERO_SOFTMAX = stub("core.ops.softmax:softmax", "dx = y *", "dx = 0.0 * y *")
ZERO_LAYER_NORM = stub("core.ops.normalization:layer_norm", "dx = inverse_std *", "dx = 0.0 * inverse_std *")


def draw(*shape: int, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def accepts(variant: Mistake | str, f: Callable[..., Any], *inputs: Any, **settings: Any) -> bool:
    with (MISTAKES[variant] if isinstance(variant, str) else variant).applied():
        return gradients(f, *inputs, **settings).ok


def test_upstream_of_ones_would_accept_gradients_of_zero() -> None:
    x = draw(3, 4)
    assert accepts(ZERO_SOFTMAX, ops.softmax, x, upstream=np.ones((3, 4)))
    assert not accepts(ZERO_SOFTMAX, ops.softmax, x)
    # LayerNorm's is zero only with γ = 1, which is drawn anew.
    assert not accepts(ZERO_LAYER_NORM, ops.layer_norm, x, np.ones(4), draw(4, seed=1), upstream=np.ones((3, 4)))
    assert not accepts(ZERO_LAYER_NORM, ops.layer_norm, x, np.ones(4), draw(4, seed=1))


def test_a_mask_by_the_wrong_sign_is_rejected_even_where_upstream_equals_the_input() -> None:
    """There the numbers agree, but dy * (dy > 0) is not linear in dy."""
    x = draw(3, 4)
    assert not accepts("relu-masks-by-dy", ops.relu, x, upstream=x)
    assert not accepts("relu-masks-by-dy", ops.relu, x)
    same_seed = np.random.default_rng(3).normal(size=(3, 4))
    assert not accepts("relu-masks-by-dy", ops.relu, same_seed, seed=3)


@pytest.mark.slow
def test_tiny_weights_with_a_loose_tolerance_would_accept_a_scrambled_dk() -> None:
    def layer(size: float) -> layers.MultiHeadAttention:
        layer = layers.MultiHeadAttention(8, 2, rng=np.random.default_rng(1)).to(dtype="float64")
        layer.load_state({name: size * value for name, value in layer.state().items()})
        return layer

    loose = {"atol": 1e-4, "intermediates": False}
    assert accepts("attention-dk-reshaped", layer(0.02), draw(4, 8), **loose)
    assert not accepts("attention-dk-reshaped", layer(1.0), draw(4, 8), **loose)
    assert not accepts("attention-dk-reshaped", layer(0.02), draw(4, 8))


def test_equal_numbers_would_hide_what_depends_on_their_differences() -> None:
    x, beta = draw(3, 4), draw(4, seed=1)
    assert not accepts("layer-norm-gamma-outside-means", ops.layer_norm, x, np.full(4, 1.3), beta)  # it is drawn anew
    assert not accepts("layer-norm-gamma-outside-means", ops.layer_norm, x, np.array([1.3, 1.3, 1.3, 0.7]), beta)
    assert accepts("attention-scaled-by-length", ops.attention, x, x, x)
    assert accepts("softmax-divided-by-batch", ops.softmax, draw(1, 4))
    assert not accepts("softmax-divided-by-batch", ops.softmax, draw(2, 4))


def test_tokens_that_do_not_repeat_would_hide_a_scatter_that_does_not_add() -> None:
    assert accepts("embedding-repeated-tokens-lost", ops.embedding, np.array([2, 0, 1]), draw(4, 3))
    assert not accepts("embedding-repeated-tokens-lost", ops.embedding, np.array([2, 0, 2]), draw(4, 3))


@pytest.mark.slow
def test_a_stack_of_one_layer_would_hide_the_order() -> None:
    def encoder(n_layers: int) -> layers.Encoder:
        return layers.Encoder(n_layers, 4, 2, 6, activation="gelu", rng=np.random.default_rng(1))

    assert accepts("encoder-not-reversed", encoder(1), draw(3, 4), **FAST)
    assert not accepts("encoder-not-reversed", encoder(2), draw(3, 4), **FAST)


def test_gradients_that_start_at_zero_would_hide_that_they_are_overwritten() -> None:
    layer, x, dy = layers.Linear(4, 3).to(dtype="float64"), draw(2, 4), draw(2, 3, seed=1)
    with MISTAKES["linear-layer-grad-overwritten"].applied():
        _, backward = layer(x)
        backward(dy)
        once = layer.weight.grad.copy()
        backward(dy)
    np.testing.assert_allclose(once, x.T @ dy)
    np.testing.assert_array_equal(layer.weight.grad, once)  # and not twice as much


def test_a_tolerance_of_one_percent_would_accept_d_minus_1_in_a_wide_row() -> None:
    inputs = draw(2, 256), draw(256, seed=1), draw(256, seed=2)
    assert accepts("layer-norm-divides-by-d-minus-1", ops.layer_norm, *inputs, atol=1e-2, rtol=1e-2)
    assert not accepts("layer-norm-divides-by-d-minus-1", ops.layer_norm, *inputs)


def test_a_relative_error_without_a_floor_would_reject_right_code() -> None:
    """The true gradient of the key's bias is exactly zero: it moves all scores of a query alike."""
    layer = layers.MultiHeadAttention(6, 2, rng=np.random.default_rng(1))
    report = gradients(layer, draw(3, 6), atol=0.0, intermediates=False)
    assert not report["key.bias"].ok and report["query.bias"].ok
    gradients(layer, draw(3, 6), intermediates=False).assert_ok()


# --------------------------------------------------------- forward and backward wrong together: only values can tell

Value = tuple[str, Callable[[], Any], Any]


def enter(name: str, mistakes: str, check: Check) -> None:
    check.__name__ = name
    rejects(*mistakes.split())(check)


def built(kind: Callable[..., Any], *sizes: Any, **options: Any) -> Any:
    return kind(*sizes, **options, rng=np.random.default_rng(1)).to(dtype="float64")


def rows_of(norm: Callable[..., Any], x: np.ndarray, *more: Any) -> list[Any]:
    return [norm(row.ravel(), *more) for row in x]


X, Q, K, V = draw(3, 4), draw(3, 2), draw(5, 2, seed=1), draw(5, 4, seed=2)
FIVE, THREE, KEYS, QUERY = draw(3, 5), draw(4, 3), draw(4, 3, seed=1), draw(2, 3)
GAMMA, BETA = draw(5, seed=1), draw(5, seed=2)
HIDDEN = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
SHORT_K, SHORT_V = draw(4, 2, seed=1), draw(4, 3, seed=2)
LOCAL = draw(5, 2), draw(5, 2, seed=1), draw(5, 3, seed=2)
FLASH = draw(3, 2), draw(5, 2, seed=1), draw(5, 3, seed=2)
GATES = np.log([[1.0, 3.0], [1.0, 3.0]])
AXES = draw(2, 2, 3), draw(2, 3, seed=1), draw(2, 3, seed=2)
LOGITS, TARGETS = draw(4, 5), np.array([1, -100, 4, 0])

# Of each check the mistakes that it rejects, what is computed, and what by hand or by reference.py.
VALUES: dict[str, Value] = {
    "softmax_of_large_scores": (
        "softmax-overflows", lambda: ops.softmax(np.array([1000.0, 1000.0]))[0], [0.5, 0.5],
    ),
    "softmax_of_each_row": (
        "softmax-over-first-axis softmax-over-everything softmax-logarithm",
        lambda: ops.softmax(X)[0], [reference.softmax(list(row)) for row in X],
    ),
    "softmax_with_temperature": (
        "softmax-temperature-multiplies",
        lambda: ops.softmax(X[0], temperature=2.0)[0], reference.softmax(list(X[0]), 2.0),
    ),
    "attention_of_unequal_sizes": (
        """attention-not-scaled attention-scaled-by-length attention-scaled-after-softmax attention-scaled-by-width
        attention-multiplied-by-root attention-scaled-by-query-length attention-scaled-by-value-width
        attention-softmax-over-queries attention-softmax-over-everything attention-sigmoid-for-softmax
        attention-no-softmax attention-not-normalised attention-values-for-keys attention-keys-reshaped
        attention-output-scaled-too""",
        lambda: ops.attention(Q, K, V)[0], reference.attention(Q, K, V),
    ),
    "attention_under_a_mask": (
        """attention-mask-ignored attention-mask-inverted attention-mask-added attention-mask-after-softmax
        attention-hidden-scores-are-zero attention-mask-added-as-a-number""",
        lambda: ops.attention(Q, SHORT_K, SHORT_V, HIDDEN)[0],
        reference.attention(Q, SHORT_K, SHORT_V, lambda i, j: bool(HIDDEN[i, j])),
    ),
    "a_token_is_a_row_of_the_table": (
        "embedding-scaled",
        lambda: ops.embedding(np.array([1, 0]), np.array([[1.0, 2.0], [3.0, 4.0]]))[0], [[3, 4], [1, 2]],
    ),
    "copies_of_a_head_are_side_by_side": (
        "repeat-heads-tiled",
        lambda: ideas.repeat_heads(np.array([[[1.0]], [[2.0]]]), 2)[0].ravel(), [1, 1, 2, 2],
    ),
    "a_row_of_two_axes": (
        "layer-norm-axes-last-only", lambda: ideas.layer_norm_over_axes(*AXES)[0].reshape(2, 6),
        rows_of(reference.layer_norm, AXES[0], AXES[1].ravel(), AXES[2].ravel(), 1e-5),
    ),
    "a_class_that_counts_three_times": (  # -log p is log 4 and log (4 / 3): their mean with weights 1 and 3
        "weighted-mean-over-positions weighted-by-p",
        lambda: ideas.weighted_cross_entropy(GATES, np.array([0, 1]), np.array([1.0, 3.0]))[0],
        (np.log(4.0) + 3.0 * np.log(4.0 / 3.0)) / 4.0,
    ),
    "the_best_two_share_the_weight": (
        "gates-of-the-worst",
        lambda: ideas.top_k_gates(np.log([[1.0, 3.0, 2.0, 4.0]]))[0], [[0.0, 3 / 7, 0.0, 4 / 7]],
    ),
    "equal_or_not_the_loss_has_the_factor_e": (  # p = (2/3, 1/3) and (1/2, 1/2): the shares are 1 and 0, 2 · P_0 is 7/6
        "balance-without-e", lambda: ideas.load_balance(np.log([[2.0, 1.0], [1.0, 1.0]]), 1)[0], 7 / 6,
    ),
    "local_attention_is_attention_under_a_mask": (
        "local-attention-too-wide local-attention-sees-outside",
        lambda: ideas.local_attention(*LOCAL, 2)[0], reference.attention(*LOCAL, lambda i, j: abs(i - j) <= 2),
    ),
    "flash_attention_is_attention": (
        "flash-queries-counted-from-the-first-key flash-last-tile-left-out",
        lambda: ideas.flash_attention(*FLASH, causal=True, tile=2)[0],
        reference.attention(*FLASH, lambda i, j: j <= i + 2),
    ),
    "a_rolling_cache_cuts_a_mask_to_what_it_keeps": (
        "rolling-cache-mask-of-the-oldest",
        lambda: ideas.RollingCache(window=2, sinks=1).of_kept(np.array([1, 0, 0, 1, 1, 0], bool), 4), [1, 1, 1, 0],
    ),
    "linear_biases_by_hand": (  # of 2 queries at the end of 4 positions
        "alibi-counted-from-the-first-query alibi-nearer-is-lower alibi-ahead-is-higher",
        lambda: ideas.alibi(np.array([0.5]), 2, 4)[0], [[[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]]],
    ),
    "layer_norm_of_rows": (
        "layer-norm-d-minus-1-throughout layer-norm-eps-outside-root-throughout",
        lambda: ops.layer_norm(FIVE, GAMMA, BETA, 0.1)[0], rows_of(reference.layer_norm, FIVE, GAMMA, BETA, 0.1),
    ),
    "rms_norm_of_rows": (
        "rms-norm-eps-forgotten",
        lambda: ops.rms_norm(FIVE, GAMMA, 0.1)[0], rows_of(reference.rms_norm, FIVE, GAMMA, 0.1),
    ),
    "gelu_of_one_is_the_share_below_one_deviation": (
        "gelu-by-sigmoid", lambda: ops.gelu(np.array([1.0]))[0], [0.8413447460685429],
    ),
    "sinusoidal_table": (
        """sinusoidal-base-too-large sinusoidal-halves-concatenated sinusoidal-exponent-doubled
        sinusoidal-cosine-first""",
        lambda: ops.sinusoidal_positions(4, 6), [[reference.position(t, i, 6) for i in range(6)] for t in range(4)],
    ),
    "positions_go_on_from_start": (
        "sinusoidal-positions-start-forgotten",
        lambda: layers.SinusoidalPositions(4)(np.zeros((2, 4)), start=3)[0],
        [[reference.position(t, i, 4) for i in range(4)] for t in (3, 4)],
    ),
    "cross_entropy_of_rows": (
        "cross-entropy-mean-over-ignored-too cross-entropy-smoothing-on-others-only",
        lambda: ops.cross_entropy(LOGITS, TARGETS, label_smoothing=0.2)[0],
        reference.cross_entropy(LOGITS, TARGETS, -100, 0.2),
    ),
}  # fmt: skip

for name, (mistakes, computed, expected) in VALUES.items():
    enter(name, mistakes, lambda f=computed, y=expected: np.testing.assert_allclose(f(), y, **CLOSE))


@rejects("gelu-tanh-wrong-constant", "gelu-tanh-wrong-root")
def gelu_by_tanh_is_near_gelu() -> None:
    x = np.linspace(-4.0, 4.0, 81)
    np.testing.assert_allclose(ops.gelu(x, approximate="tanh")[0], ops.gelu(x)[0], atol=1e-3)


WINDOW = built(layers.MultiHeadAttention, 4, 2, mix=ideas.Window(2))
RECURRENT = built(ideas.Recurrent, 2, 3, "rnn")
DECODER_LAYER = built(layers.DecoderLayer, 4, 2, 6)
ENCODER = built(layers.Encoder, 2, 4, 2, 6)
LANGUAGE_MODEL = built(
    models.LanguageModel, models.LanguageModelConfig(7, max_length=6, d_model=4, n_heads=2, d_ff=6, n_layers=2)
)
SIZES = {"d_model": 4, "n_heads": 2, "d_ff": 6, "n_encoder_layers": 1, "n_decoder_layers": 1}
TRANSFORMER = built(models.Transformer, models.TransformerConfig(7, 7, **SIZES))
TWO = np.array([[True, True, False]])  # are real of three
WEIGHT, BIAS = draw(2, 3, 3, seed=1), draw(3, seed=2)
ALL = np.ones(4, bool)

# Of each check the mistakes that it rejects, what is computed of which input, and for each position of the output a
# digit for each of the input: whether it depends on it. Padding sees itself through the residual connection.
SEEN: dict[str, tuple[str, Callable[[Any], Any], np.ndarray, str]] = {
    "causal_attention_sees_the_past": (
        "causal-mask-sees-one-ahead causal-mask-hides-self attention-causal-ignored attention-causal-looks-ahead",
        lambda x: ops.attention(x, x, x, causal=True)[0], THREE, "1000 1100 1110 1111",
    ),
    "queries_are_the_last_positions": (
        "mask-forgets-earlier-keys", lambda v: ops.attention(QUERY, KEYS, v, causal=True)[0], THREE, "1110 1111",
    ),
    "a_window_shows_the_query_and_those_before_it": (
        "attend-window-one-too-wide", lambda x: WINDOW(x)[0], draw(4, 4), "1000 1100 0110 0011",
    ),
    "causal_convolution_sees_the_past": (
        "convolution-sees-ahead",
        lambda x: ideas.convolution(x, WEIGHT, BIAS, 2, True)[0], THREE, "1000 0100 1010 0101",
    ),
    "a_recurrent_layer_does_not_read_padding": (
        "recurrent-reads-padding",
        lambda x: RECURRENT(x, mask=np.array([1, 1, 0, 0], bool))[0], draw(4, 2), "1000 1100 1100 1100",
    ),
    "flash_attention_looks_back": (
        "flash-query-does-not-see-itself flash-causal-forgotten",
        lambda v: ideas.flash_attention(SHORT_K, SHORT_K, v, ALL, causal=True, tile=2)[0], draw(4, 2),
        "1000 1100 1110 1111",
    ),
    "linear_attention_looks_back": (
        "linear-attention-own-key-left-out linear-attention-block-sees-ahead linear-attention-last-block-alone",
        lambda v: ideas.linear_attention(K, K, v, block=2)[0], draw(5, 2), "10000 11000 11100 11110 11111",
    ),
    "decoder_layer_sees_the_past": (
        "decoder-layer-not-causal decoder-layer-memory-asks",
        lambda x: DECODER_LAYER(x, X)[0], draw(3, 4, seed=1), "100 110 111",
    ),
    "decoder_layer_sees_no_padding": (
        "decoder-layer-memory-mask-dropped",
        lambda memory: DECODER_LAYER(draw(2, 4), memory, memory_mask=TWO)[0], X, "110 110",
    ),
    "encoder_sees_no_padding": ("encoder-mask-dropped", lambda x: ENCODER(x, mask=TWO)[0], X, "110 110 111"),
    "language_model_sees_the_past": (
        "language-model-not-causal",
        lambda ids: LANGUAGE_MODEL(ids[None])[0], np.array([1, 5, 2]), "100 110 111",
    ),
    "memory_does_not_depend_on_padding": (
        "transformer-source-mask-dropped",
        lambda source: TRANSFORMER.encode(source[None], TWO)[0], np.array([1, 5, 2]), "110 110 111",
    ),
}  # fmt: skip


def sees(f: Callable[[Any], Any], x: np.ndarray, seen: str) -> None:
    assert reference.dependencies(f, x) == [list(map(int, row)) for row in seen.split()]


for name, (mistakes, f, x, seen) in SEEN.items():
    enter(name, mistakes, functools.partial(sees, f, x, seen))


@rejects("attention-scaled-by-all-heads", "attention-softmax-over-heads", "attention-mask-transposed")
def attention_of_two_heads_under_a_square_mask() -> None:
    q, k, v = draw(2, 3, 2), draw(2, 3, 2, seed=1), draw(2, 3, 4, seed=2)
    mask = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]], dtype=bool)
    expected = [reference.attention(*head, lambda i, j: bool(mask[i, j])) for head in zip(q, k, v, strict=True)]
    np.testing.assert_allclose(ops.attention(q, k, v, mask)[0], expected, **CLOSE)


@rejects(
    "attention-scaled-by-model-width",
    "split-heads-by-reshape",
    "merge-heads-by-reshape",
    "multi-head-keys-and-values-swapped",
)
def multi_head_attention_across() -> None:
    layer = layers.MultiHeadAttention(6, 2, rng=np.random.default_rng(1)).to(dtype="float64")
    x, memory = draw(3, 6), draw(5, 6, seed=1)
    expected = reference.multi_head_attention(x, memory, layer.state(), n_heads=2)
    np.testing.assert_allclose(layer(x, memory)[0], expected, **CLOSE)


@rejects(
    "rotary-turned-the-other-way",
    "rotary-starts-at-one",
    "rotary-neighbours-side-by-side",
    "rotary-exponent-halved",
    "rotary-exponent-doubled",
    "rotary-base-too-large",
)
def a_pair_is_a_complex_number_that_turns() -> None:
    """(a + ib) e^(iθ), θ = t · 16^(-i/2) for the pairs i = 0 and 1 of a width of 4: t and t/4."""
    x = draw(3, 4)
    turned = (x[:, :2] + 1j * x[:, 2:]) * np.exp(1j * np.arange(3.0)[:, None] * [1.0, 0.25])
    expected = np.concatenate([turned.real, turned.imag], axis=1)
    np.testing.assert_allclose(ideas.rotary(x, base=16.0)[0], expected, **CLOSE)


@rejects("rotate-the-last-part", "rotate-other-pairs")
def a_quarter_turn_of_the_first_two_pairs() -> None:
    x, cos, sin = np.arange(1.0, 7.0)[None], np.zeros((1, 2)), np.ones((1, 2))
    np.testing.assert_allclose(ideas.rotate(x, cos, sin)[0], [[-3, -4, 1, 2, 5, 6]], **CLOSE)
    np.testing.assert_allclose(ideas.rotate(x, cos, sin, interleaved=True)[0], [[-2, 1, -4, 3, 5, 6]], **CLOSE)


@rejects("gru-first-gates-swapped", "gru-first-resets-after")
def one_unit_of_a_gru_that_resets_first() -> None:
    """W_r = W_z = 0, so r = σ(ln 3) = 3/4 and z' = σ(-ln 3) = 1/4; W_n stands for a matrix that mixes two units."""
    inputs, h = np.array([np.log(3.0), np.log(1 / 3.0), -np.log(3.0), -np.log(3.0), 0.1, 0.2]), np.array([0.4, -0.8])
    weight = np.concatenate([np.zeros((2, 4)), [[0.0, 1.0], [2.0, 0.0]]], axis=1)
    candidate = np.tanh([0.1 + 2.0 * 0.25 * -0.8, 0.2 + 0.75 * 0.4])
    new, _ = ideas.gru_cell_reset_first(inputs, h, weight)
    np.testing.assert_allclose(new, 0.75 * candidate + 0.25 * h, **CLOSE)


@rejects("delta-reads-before-it-fades", "delta-adds-only")
def a_value_is_replaced_under_its_key() -> None:
    """Written whole (β = 1) under one key: the second value takes the first one's place, whatever is left of it."""
    key, values = np.array([[0.6, 0.8], [0.6, 0.8]]), np.array([[5.0, -1.0], [2.0, 3.0]])
    output, _ = ideas.gated_delta(key, key, values, np.full((2, 1), np.log(0.5)), np.ones(2), scale=1.0)
    np.testing.assert_allclose(output, values, **CLOSE)


@rejects("experts-dense")
def experts_without_a_token_are_not_called() -> None:
    layer = ideas.MixtureOfExperts(2, 3, 3, 1, rng=np.random.default_rng(1)).to(dtype="float64")
    called = []
    for i, expert in enumerate(layer.experts):
        layer.experts[i] = lambda x, i=i, expert=expert: called.append((i, len(x))) or expert(x)
    layer.router.weight.value[...] = [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    layer(np.array([[1.0, 0.5], [2.0, 0.5]]))
    assert called == [(1, 2)]


@rejects("rolling-cache-one-too-few", "rolling-cache-forgets-the-sinks")
def a_rolling_cache_keeps_the_first_and_the_last() -> None:
    cache, tokens = ideas.RollingCache(window=2, sinks=1), draw(6, 2)
    for token in tokens:
        seen, _ = cache.extend(token[None], token[None])
    np.testing.assert_array_equal(seen, tokens[[0, 3, 4, 5]])  # the two kept, which the new one joins
    np.testing.assert_array_equal(cache.read()[0], tokens[[0, 4, 5]])


@rejects("rolling-cache-query-counts-in-the-text", "rolling-cache-rotated-twice")
def a_rolling_cache_counts_positions_within_itself() -> None:
    """After five tokens, with a window of 2, the new one attends as if it were the third of three."""
    layer = layers.MultiHeadAttention(4, 1, turn=ideas.rotary_turn(9.0), rng=np.random.default_rng(1)).to(
        dtype="float64"
    )
    cache, tokens = ideas.RollingCache(window=2), draw(6, 4)
    for token in tokens:
        y = layer(token[None], cache=cache)[0]
    expected = layer(tokens[3:], mask=np.array([False, True, True]))[0]
    np.testing.assert_allclose(y[0], expected[2], **CLOSE)


@rejects("attend-one-norm-for-both", "attend-keys-not-normed", "attend-values-normed")
def norms_of_queries_and_keys_by_hand() -> None:
    layer = layers.MultiHeadAttention(4, 1, turn=ideas.qk_norm(4), rng=np.random.default_rng(1)).to(dtype="float64")
    layer.turn_query.norm.gamma.value, layer.turn_key.norm.gamma.value = draw(4, seed=1), draw(4, seed=2)
    x = draw(3, 4)
    q, k, v = layer.query(x)[0], layer.key(x)[0], layer.value(x)[0]
    q, k = (np.stack([row / np.sqrt(np.mean(row**2) + 1e-6) for row in rows]) for rows in (q, k))
    heads = reference.attention(q * draw(4, seed=1), k * draw(4, seed=2), v, lambda i, j: True)
    np.testing.assert_allclose(layer(x)[0], layer.output(np.array(heads))[0], **CLOSE)


@rejects("stack-final-norm-forgotten")
def pre_norm_stack_ends_with_a_norm() -> None:
    encoder = layers.Encoder(2, 8, 2, 6, norm_order="pre", rng=np.random.default_rng(1)).to(dtype="float64")
    y = encoder(3.0 * draw(4, 8))[0]
    np.testing.assert_allclose(y.mean(axis=-1), np.zeros(4), atol=1e-12)
    np.testing.assert_allclose(y.var(axis=-1), np.ones(4), rtol=1e-4)


@rejects("residual-always-post-norm")
def pre_norm_with_no_update_is_the_identity() -> None:
    residual = layers.Residual(layers.FeedForward(4, 6), layers.LayerNorm(4), "pre").to(dtype="float64")
    residual.load_state({name: np.zeros_like(value) for name, value in residual.state().items()})
    np.testing.assert_array_equal(residual(draw(3, 4))[0], draw(3, 4))


@rejects("input-embedding-not-scaled")
def input_embedding_is_scaled() -> None:
    tokens = layers.Embedding(5, 4, rng=np.random.default_rng(1)).to(dtype="float64")
    y = layers.InputEmbedding(tokens, layers.SinusoidalPositions(4), scale=2.0)(np.array([3, 1]))[0]
    positions = np.array([[reference.position(pos, c, 4) for c in range(4)] for pos in range(2)])
    np.testing.assert_allclose(y, 2.0 * tokens.table.value[[3, 1]] + positions, **CLOSE)


@rejects("dropout-without-rescaling", "dropout-keeps-with-rate", "dropout-rescales-at-inference")
def dropout_keeps_the_expected_value() -> None:
    x = np.ones(10_000)
    y = ops.dropout(x, 0.3, np.random.default_rng(1))[0]
    assert abs((y == 0.0).mean() - 0.3) < 0.03  # six standard deviations
    np.testing.assert_allclose(y[y != 0.0], 1 / 0.7)
    np.testing.assert_array_equal(ops.dropout(x, 0.3, None)[0], x)


@rejects("classifier-pools-padding", "encoder-sees-padding")
def classes_do_not_depend_on_padding() -> None:
    config = models.ClassifierConfig(7, 3, d_model=4, n_heads=2, d_ff=6, n_layers=1)
    model = models.Classifier(config, np.random.default_rng(1)).to(dtype="float64")
    padded = model(np.array([[3, 5, 0, 0]]), mask=np.array([[True, True, False, False]]))[0]
    np.testing.assert_allclose(padded, model(np.array([[3, 5]]))[0], **CLOSE)


@rejects("text-encoder-counts-padding")
def a_text_does_not_depend_on_padding() -> None:
    config = models.TextEncoderConfig(7, 6, d_model=4, n_heads=2, d_ff=6, n_layers=1, types=0, count_real=True)
    model = models.TextEncoder(config, np.random.default_rng(1)).to(dtype="float64")
    padded = model(np.array([[0, 0, 3, 5]]), np.array([[False, False, True, True]]))[0]
    np.testing.assert_allclose(padded[:, 2:], model(np.array([[3, 5]]))[0], **CLOSE)


@rejects("cache-returns-new-tokens-only")
def cached_decoding_equals_full_attention() -> None:
    model, ids = LANGUAGE_MODEL, np.array([[1, 5, 2, 4]])
    cache = layers.Cache(2)
    one_by_one = [model(ids[:, t : t + 1], cache=cache)[0] for t in range(4)]
    np.testing.assert_allclose(np.concatenate(one_by_one, axis=1), model(ids)[0], rtol=0, atol=1e-12)


@rejects("adam-betas-swapped", "adam-no-bias-correction", "adam-eps-inside-root")
def ten_steps_of_adamw() -> None:
    parameter = layers.Parameter(np.array([0.3, -0.2]))
    optimizer = AdamW([("w", parameter)], 0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.0)
    steps = draw(10, 2)
    for g in steps:
        parameter.grad = g.copy()
        optimizer.step()
    expected = [reference.adamw(w, list(steps[:, i]), 0.1, (0.8, 0.95), 1e-3) for i, w in enumerate((0.3, -0.2))]
    np.testing.assert_allclose(parameter.value, expected, **CLOSE)


@rejects("adamw-decay-inside-gradient")
def decay_is_beside_the_quotient() -> None:
    """However large the gradient, a step is η against its sign, and the decay η λ θ: 2 - 0.1 - 0.1 · 0.5 · 2 = 1.8."""
    parameter = layers.Parameter(np.array([[2.0]]))
    parameter.grad[...] = 1e6
    AdamW([("w", parameter)], 0.1, weight_decay=0.5).step()
    np.testing.assert_allclose(parameter.value, [[1.8]], **CLOSE)


@rejects("sgd-velocity-is-a-mean")
def two_steps_of_sgd() -> None:
    """μ = 1/2 and g = 4, 2 give u = 4, 4, so with η = 1/10 the weight 1 becomes 0.6 and then 0.2."""
    parameter = layers.Parameter(np.array([1.0]))
    optimizer = SGD([("w", parameter)], 0.1, momentum=0.5)
    for g, wanted in ((4.0, 0.6), (2.0, 0.2)):
        parameter.grad[...] = g
        optimizer.step()
        np.testing.assert_allclose(parameter.value, [wanted], **CLOSE)


@rejects(
    "newton-schulz-not-normalized",
    "newton-schulz-norm-without-root",
    "newton-schulz-not-transposed-back",
    "newton-schulz-one-round",
    "newton-schulz-cubic",
)
def singular_values_follow_the_polynomial() -> None:
    for shape in ((3, 5), (5, 3)):
        matrix = 3.0 * draw(*shape)
        with np.errstate(over="ignore"):
            found = newton_schulz(matrix)
        np.testing.assert_allclose(found, reference.orthogonal(matrix), **CLOSE)


@rejects("muon-no-nesterov", "muon-decay-after-the-step", "muon-size-of-the-smaller-side", "muon-no-size")
def two_steps_of_muon() -> None:
    start, gradients = draw(4, 3), draw(2, 4, 3, seed=1)
    parameter, expected, momentum = layers.Parameter(start.copy()), start, np.zeros((4, 3))
    optimizer = Muon([("weight", parameter)], 0.1, momentum=0.8, weight_decay=0.5)
    for g in gradients:
        parameter.grad = g.copy()
        optimizer.step()
        momentum = 0.8 * momentum + 0.2 * g
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.4 * reference.orthogonal(0.8 * momentum + 0.2 * g)
    np.testing.assert_allclose(parameter.value, expected, **CLOSE)


@rejects("mean-over-ranks")
def mean_over_the_tokens_of_all_ranks() -> None:
    losses, tokens = np.array([[2.0], [5.0], [11.0]]), (1.0, 2.0, 5.0)
    ys = in_threads(3, lambda group: mean(losses[group.rank], group, tokens[group.rank])[0])
    np.testing.assert_allclose(ys, np.full((3, 1), (2.0 + 2.0 * 5.0 + 5.0 * 11.0) / 8.0))


_PLACES = {tuple(mistake.target.partition(":")[0].split(".")) for mistake in MISTAKES.values()}
for idea in sorted(
    {place[2] for place in _PLACES if place[0] == "ideas" and len(place) == 4}
):  # whose checks of values stand in its own test file
    importlib.import_module(f"test_{idea}")


def test_every_variant_that_only_values_catch_has_a_check_of_values() -> None:
    assert VALUE_CHECKS.keys() == {variant.name for variant in BY_VALUES}


@in_one("check", dict.fromkeys(VALUE_CHECKS.values()), ids=lambda check: check.__name__)
def test_right_code_has_the_right_values(check: Check) -> None:
    check()


@in_one("variant", BY_VALUES, ids=lambda variant: variant.name)
def test_values_reject(variant: Mistake) -> None:
    with variant.applied(), np.errstate(over="ignore", invalid="ignore"), pytest.raises(AssertionError):
        VALUE_CHECKS[variant.name]()


UNSEEN = [(variant, case) for variant in BY_VALUES for case in variant.cases]


@pytest.mark.few(20)
@pytest.mark.parametrize(("variant", "case"), UNSEEN, ids=[f"{variant.name}, {case}" for variant, case in UNSEEN])
def test_finite_differences_cannot_see_it(variant: Mistake, case: str) -> None:
    with variant.applied():
        assert [row.name for row in CASES[case].run(**FAST).rows if not row.ok and row.kind != "output"] == []


# --------------------------------------------------------------------------------------------------- the mechanism

SILU = MISTAKES["silu-x-for-y"]
TANH = MISTAKES["gelu-density-not-times-x"]


def function_of(variant: Mistake) -> Any:
    module, _, path = variant.target.partition(":")
    return inspect.unwrap(operator.attrgetter(path)(importlib.import_module(f"minitransformer.{module}")))


def slope_at_two(activation: Callable[..., Any]) -> float:
    return float(activation(np.array([2.0]))[1](np.array([1.0]))[0])


@pytest.mark.slow
def test_everything_is_restored() -> None:
    for variant in MISTAKES.values():
        function = function_of(variant)
        right = function.__code__
        with variant.applied():
            assert function.__code__ is not right
        assert function.__code__ is right


def test_everything_is_restored_after_an_error() -> None:
    right = slope_at_two(ops.silu)
    with pytest.raises(KeyError), SILU.applied():
        assert slope_at_two(ops.silu) != right
        raise KeyError
    assert slope_at_two(ops.silu) == right


def test_variants_may_be_nested() -> None:
    silu, gelu = slope_at_two(ops.silu), slope_at_two(ops.gelu)
    with SILU.applied():
        wrong_silu = slope_at_two(ops.silu)
        with TANH.applied(), MISTAKES["silu-gate-is-constant"].applied():
            assert slope_at_two(ops.gelu) != gelu and slope_at_two(ops.silu) not in (silu, wrong_silu)
        assert slope_at_two(ops.gelu) == gelu and slope_at_two(ops.silu) == wrong_silu
    assert slope_at_two(ops.silu) == silu


def slope_of_default_gate() -> float:
    return float(ideas.gated(np.array([2.0]), np.array([1.0]))[1](np.array([1.0]))[0][0])


HOLDERS = {
    "a table of activations": (SILU, lambda: slope_at_two({"silu": ops.silu}["silu"])),
    "a functools.partial": (TANH, lambda: slope_at_two(functools.partial(ops.gelu, approximate="tanh"))),
    "a default argument": (SILU, slope_of_default_gate),
}


@pytest.mark.parametrize(("variant", "value"), HOLDERS.values(), ids=HOLDERS.keys())
def test_whoever_holds_the_function_runs_the_mistake(variant: Mistake, value: Callable[[], float]) -> None:
    right = value()
    with variant.applied():
        assert value() != right
    assert value() == right


def test_an_instance_made_before_runs_the_mistake() -> None:
    layer, x, dy = layers.Linear(2, 2).to(dtype="float64"), draw(1, 2), draw(1, 2, seed=1)
    layer.bias.grad += 1.0
    call = layer.__call__
    with MISTAKES["linear-layer-bias-untrained"].applied():
        call(x)[1](dy)
    np.testing.assert_array_equal(layer.bias.grad, [1.0, 1.0])
    call(x)[1](dy)
    np.testing.assert_allclose(layer.bias.grad, 1.0 + dy[0])


def test_results_that_are_kept_are_not_mixed_up() -> None:
    positions, x = layers.SinusoidalPositions(4), np.zeros((2, 4))
    right = positions(x)[0]  # the table is kept from now on
    with MISTAKES["sinusoidal-cosine-first"].applied():
        assert not np.array_equal(positions(x)[0], right)
    np.testing.assert_array_equal(positions(x)[0], right)


def test_a_wrong_op_is_traced_like_the_right_one() -> None:
    right = CASES["attention"].run()
    with MISTAKES["attention-dk-not-scaled"].applied():
        wrong = CASES["attention"].run()
    assert [row.name for row in wrong.rows] == [row.name for row in right.rows]
    assert len(right.of_kind("intermediate")) > 3


def test_a_traceback_shows_the_wrong_line() -> None:
    wrong = stub("core.ops.softmax:softmax", "dx = y *", "dx = nothing_known *")
    with wrong.applied():
        try:
            ops.softmax(draw(3))[1](draw(3))
        except NameError as error:
            text = "".join(traceback.format_exception(error))
    assert "dx = nothing_known * (dy" in text and "softmax.py [stub]" in text


@in_one(
    "change, message",
    [
        (
            {"edits": (("no such snippet", ""),)},
            "occur exactly once in the body of core.ops.softmax:softmax, .* 0 times",
        ),
        ({"edits": (("keepdims=True", ""),)}, "occur exactly once in the body of core.ops.softmax:softmax, .* 3 times"),
        ({"edits": (("temperature: float = 1.0", ""),)}, "0 times"),  # a default is no part of the body
        ({"target": "core.ops.softmax:hardmax"}, "there is no core.ops.softmax:hardmax"),
        ({"target": "core.layers.residual:Residual"}, "must be a function or a method"),
    ],
)
def test_a_variant_that_does_not_fit_says_so(change: dict[str, Any], message: str) -> None:
    right = copy.copy(inspect.unwrap(ops.softmax).__code__)
    with pytest.raises(ValueError, match=message), dataclasses.replace(ZERO_SOFTMAX, **change).applied():
        pass
    assert inspect.unwrap(ops.softmax).__code__ == right
