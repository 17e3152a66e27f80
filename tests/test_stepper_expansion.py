"""Every number can say where it comes from, and what it says evaluates to it."""

from __future__ import annotations

import math
import re
from collections import defaultdict

import numpy as np
import pytest
from formula_reading import computed_at
from tiers import first_of_each, in_one

from minitransformer import layers, ops, step
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.core.arrays.backend import scatter_add
from minitransformer.school.course.worked_example import UNSCALED, self_attention
from minitransformer.school.show.stepper import NotExpandable, expand, terms
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.expansion import term_of
from minitransformer.school.show.stepper.expressions import Applied, Number, Operation, numbers
from minitransformer.school.show.stepper.terms import evaluate, pretty, readable
from minitransformer.verify import CASES

OPS = [case for case in CASES.values() if case.kind == "op"]
# Ops with lines that have no sum to click on: they work tile by tile, join arrays, or rank numbers.
PARTLY = set("chunked_delta flash_attention load_balance sink_attention top_k_gates".split())


def every_cell(recording, every=1):
    """(step, bound, index) of each recorded number, or of some of them spread over all."""
    count = 0
    for s in recording.steps:
        for bound in s.bound:
            if bound.value.array is not None:
                for index in np.ndindex(bound.value.shape):
                    count += 1
                    if count % every == 0:
                        yield s, bound, index


def cells(expansion):
    return tuple((number.title, number.index) for number in expansion.numbers)


def written_out(recording, every=1):
    """Check every expansion, and return how many there were and, by what they are, which names have none."""
    count, refused = 0, defaultdict(set)
    for s, bound, index in every_cell(recording, every):
        try:
            expansion = expand(recording, s, bound, index)
        except NotExpandable as error:
            refused[kind_of(recording, s, bound, error)].add(f"{recording.calls[s.call].label}.{bound.name}")
            continue
        count += 1
        recorded, value = float(bound.value.array[index]), evaluate(expansion.term)
        same = recorded == value or (math.isnan(recorded) and math.isnan(value))
        assert same or abs(recorded - value) <= 1e-12 * (1.0 + abs(recorded)), (bound.title, index, str(expansion))
        for number in expansion.numbers:
            source_step, source = recording.binding(number.serial)  # the cells it names are there, and before it
            assert (source.title, source.value.array.ndim) == (number.title, len(number.index))
            assert number.serial < bound.serial or source_step.index < s.index
    return count, refused


def kind_of(recording, s, bound, error):
    """What a name that cannot be written out stands for, found without the message."""
    call = recording.calls[s.call]
    is_argument = s is recording.steps_of(call)[0]
    if bound.value.shape == () and bound.value.dtype in ("int", "bool"):
        return "size or switch"
    if is_argument and call.parent is None:
        return "argument"
    if is_argument and "self." in str(error):
        return "attribute"
    if is_argument:
        return "default"
    return "other"


@pytest.mark.few(0, slow=25)
@pytest.mark.parametrize("case", first_of_each(OPS, variants=False))
def test_every_number_of_an_op_is_written_out(case) -> None:
    setup = case.build(np.random.default_rng([0, 1]))
    recording = step(setup.f, *setup.inputs, **setup.options)
    count, refused = written_out(recording)
    if case.covers in PARTLY:
        assert count > 10 and refused.pop("other", refused.pop("default", None))
        return
    # The whole list of what is not: what f was given, what says how large or which, defaults, and what is random.
    own = {f"{case.covers}.{name}" for name in recording.calls[0].code.co_varnames}
    (pullback,) = (call for call in recording.calls if call.backward and call.forward_call == 0)
    own |= {f"{case.covers}.{name}" for name in pullback.code.co_varnames[: pullback.code.co_argcount]}
    assert refused.pop("argument") <= own
    refused.pop("size or switch", None)
    defaults = {re.sub(r"#\d+", "", title) for title in refused.pop("default", set())}
    assert defaults <= {"softmax.temperature"}
    given = (*setup.inputs, *setup.options.values())
    other = {"dropout.keep"} if any(isinstance(x, np.random.Generator) for x in given) else set()
    if case.covers == "softplus":  # log1p is none of the functions that the page computes
        other |= {"softplus.y"}
    if case.name == "cross_entropy of rank 1":  # whether its one position counts is no array, but says how many
        other |= {"cross_entropy.n_counted", "cross_entropy.dlogits"}
    if case.name == "weighted_cross_entropy of rank 1":  # the same
        other |= {"weighted_cross_entropy.hit", "weighted_cross_entropy.share"}
    if case.name == "linear_attention in blocks, padded":  # the features of what is padding
        other |= {"linear_attention.keys"}
    assert refused.pop("other", set()) <= other
    assert refused == {}
    assert count > 10 or case.name == "dropout switched off"


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "every"), [("encoder-layer", 3), ("decoder-layer", 5), ("gpt", 5), ("multi-head", 1)])
def test_numbers_of_layers_and_models_are_written_out(name, every) -> None:
    recording = EXAMPLES[name].record()
    count, refused = written_out(recording, every)
    assert count > 800
    outermost = {recording.calls[0].label, recording.calls[0].label.removesuffix(".loss")}
    assert {title.rpartition(".")[0] for title in refused.pop("argument")} <= outermost
    refused.pop("size or switch")
    assert {title.rpartition(".")[2] for title in refused.pop("attribute")} <= set(
        "weight bias gamma beta eps table rate dropout".split()
    )
    assert {title.rpartition(".")[2] for title in refused.pop("default", set())} <= {"temperature", "label_smoothing"}
    assert refused == {}


# --------------------------------------------------------------------------------------------------- what it looks like


def worked_example():
    e = UNSCALED
    return step(self_attention, e.x, e.w_q, e.w_k, e.w_v, scale=e.scale, upstream=e.doutput)


def text_of(recording, title, *index):
    return str(expand(recording, *recording.find(title), index))


def test_the_worked_example_reads_as_on_paper() -> None:
    recording = worked_example()
    expected = {
        "linear#1.product": "product[1, 2] = 0·1 + 2·0 + 0·1 + 2·1 = 2",
        "attention.scores": "scores[1, 2] = (2·2 + 2·3 + 2·1)·1 = 12",
        "softmax.largest": "largest[1, 0] = max(4, 16, 12) = 16",
        "softmax.exponentials": "exponentials[1, 2] = exp((12 − 16) / 1) = 0.01832",
        "softmax.total": "total[1, 0] = 6.144·10⁻⁶ + 1 + 0.01832 = 1.018",
        "softmax.y": "y[1, 2] = 0.01832 / 1.018 = 0.01799",
        "softmax.dx": "dx[1, 2] = 0.01799·(3 − (−1·6.034·10⁻⁶ + 8·0.982 + 3·0.01799)) / 1 = −0.08831",
        "attention.dweights": "dweights[1, 2] = attention.dkept[1, 2] = 3",
        "attention.dk": "dk[1, 2] = (−0.1224·2 − 0.08836·2 + 0.9297·3)·1 = 2.367",
    }
    for title, text in expected.items():
        index = (1, 0) if "[1, 0]" in text else (1, 2)
        if title == "attention.dk":
            array = recording.find(title)[1].value.array
            assert text_of(recording, title, 1, 2).endswith(f" = {readable(array[1, 2])}")
        else:
            assert text_of(recording, title, *index) == text


def test_a_result_leads_inside_and_an_argument_to_the_caller() -> None:
    recording = worked_example()
    weights = expand(recording, *recording.find("attention.weights"), (1, 2))
    assert cells(weights) == (("softmax.exponentials", (1, 2)), ("softmax.total", (1, 0)))
    assert computed_at(recording, *recording.find("attention.weights"))[1].title == "softmax.y"
    assert computed_at(recording, *recording.find("softmax.x"))[1].title == "softmax.x"
    given = expand(recording, *recording.find("softmax.x"), (1, 2))
    assert (cells(given), evaluate(given.term)) == ((("attention.visible", (1, 2)),), 12.0)
    kept = expand(recording, *recording.find("attention.kept"), (0, 1))  # there is no dropout, so nothing happened
    assert cells(kept) == (("attention.weights", (0, 1)),)
    passed = expand(recording, *recording.find("attention.dweights"), (0, 1))
    assert cells(passed) == (("attention.dkept", (0, 1)),)


def test_where_a_gradient_fans_in_every_path_is_shown() -> None:
    recording = EXAMPLES["multi-head"].record()
    s, bound = recording.find("MultiHeadAttention.dx")
    expansion = expand(recording, s, bound, (3, 4))
    assert s.source == "dx = q_backward(dq) + k_backward(dk) + v_backward(dv)"
    paths = [f"MultiHeadAttention.project#{k}.dx" for k in (1, 2, 3)]
    assert cells(expansion) == tuple((title, (3, 4)) for title in paths)
    parts = [recording.find(title)[1].value.array[3, 4] for title in paths]
    assert evaluate(expansion.term) == sum(parts)
    assert pretty(expansion.term).count(" + ") + pretty(expansion.term).count(" − ") == 2


def test_arguments_computed_in_the_callers_line_are_written_out_there() -> None:
    embed = layers.InputEmbedding(layers.Embedding(5, 4), layers.SinusoidalPositions(4), scale=2.0)
    recording = step(embed, np.array([[1, 3]]))
    expansion = expand(recording, *recording.find("SinusoidalPositions.x"), (0, 1, 2))
    assert cells(expansion) == (("InputEmbedding.scaled", (0, 1, 2)),)
    placed = expand(recording, *recording.find("SinusoidalPositions.y"), (0, 1, 0))
    assert f"{readable(math.sin(1.0))}" in pretty(placed.term)  # from the table, which is kept from call to call
    heads = EXAMPLES["multi-head"].record()
    assert cells(expand(heads, *heads.find("split_heads#1.heads"), (1, 2, 0))) == (("_split#1.x", (2, 3)),)


def test_parts_of_results_and_several_targets() -> None:
    def helper(x):
        return x * 2.0, (x + 1.0, x - 1.0)

    def f(x):
        a, (b, c) = helper(x)
        first = second = a @ b
        (d, e), *rest = (c * 3.0, b), a, a
        e += c
        y = d + first * second + e + rest[0]
        return y, lambda dy: dy

    x = np.array([1.5, -2.0, 0.25])
    recording = step(f, x)
    count, refused = written_out(recording)
    assert text_of(recording, "f.a", 1) == "a[1] = −2·2 = −4"
    assert text_of(recording, "f.c", 1) == "c[1] = −2 − 1 = −3"
    assert text_of(recording, "f.d", 0) == "d[0] = 0.5·3 = 1.5"
    assert text_of(recording, "f.e", 0) == "e[0] = 2.5 + 0.5 = 3"
    assert text_of(recording, "f.first") == "first = 3·2.5 − 4·(−1) + 0.5·1.25 = 12.12"
    assert cells(expand(recording, *recording.find("f.second"), ())) == (("f.first", ()),)
    assert count > 20
    assert refused.pop("other") == {"f.b"}  # which e += c changes as well, being the same array as e
    assert set(refused) == {"argument"}


def test_arrays_that_are_filled_in_place() -> None:
    def f(x):
        table = np.zeros((3, 2))
        table[1:, 0] = x * 2.0
        scatter_add(table, np.array([2, 0, 2]), x[:, None] * np.ones((1, 2)) if len(x) == 3 else np.ones((3, 2)))
        table[[0, 0], [1, 1]] += x
        table *= 0.5
        y = table + 0.0
        return y, lambda dy: dy[0]

    recording = step(f, np.array([1.5, -2.0]))
    written_out(recording)
    table = [b for s in recording.steps for b in s.bound if b.title == "f.table"]
    steps = {b.serial: s for s in recording.steps for b in s.bound}
    texts = [str(expand(recording, steps[b.serial], b, (2, 0))) for b in table[1:]]
    assert texts[0] == "table[2, 0] = −2·2 = −4"
    assert texts[1] == "table[2, 0] = −4 + 1 + 1 = −2"
    assert texts[2] == "table[2, 0] = f.table[2, 0] = −2"  # as it was
    assert texts[3] == "table[2, 0] = −2·0.5 = −1"
    last_wins = expand(recording, steps[table[3].serial], table[3], (0, 1))
    assert pretty(last_wins.term) == "1 − 2"  # not 1 + 1.5 − 2: of an index that occurs twice only the last counts


def test_mistakes_are_written_out_as_they_are() -> None:
    variant = MISTAKES["softmax-no-sum"]
    with variant.applied():
        recording = step(ops.softmax, np.array([[1.0, 2.0]]), upstream=np.array([[3.0, 5.0]]))
    assert text_of(recording, "softmax.dx", 0, 1) == "dx[0, 1] = 0.7311·5 / 1 = 3.655"
    assert recording.find("softmax.dx")[0].source == "dx = y * dy / temperature"


def test_reductions_and_functions_in_either_form() -> None:
    xp = np

    def f(x):
        a = xp.sum(x, axis=0)
        b = x.mean(axis=(0, 1))
        c = xp.max(x, axis=-1, keepdims=True)
        d = xp.clip(x, -1.0, 1.0) ** 2
        e = xp.stack([a, a * 2.0], axis=1)
        g = abs(x).T @ x[:, 0]
        y = (d + c - b) * e[:, 0] + g
        return y, lambda dy: dy

    recording = step(f, np.array([[1.5, -2.0, 0.25], [0.0, 1.0, -4.0], [2.0, -1.0, 1.0]]))
    count, refused = written_out(recording)
    assert set(refused) == {"argument"}
    assert count > 30
    assert text_of(recording, "f.a", 1) == "a[1] = −2 + 1 − 1 = −2"
    assert text_of(recording, "f.b").endswith(") / 9 = −0.1389")
    assert text_of(recording, "f.d", 1, 2) == "d[1, 2] = min(max(−4, −1), 1)^2 = 1"
    assert text_of(recording, "f.e", 0, 1) == "e[0, 1] = 3.5·2 = 7"
    assert text_of(recording, "f.g", 0) == "g[0] = abs(1.5)·1.5 + abs(0)·0 + abs(2)·2 = 6.25"


# ------------------------------------------------------------------------------------------- what cannot be written out


def test_what_cannot_be_written_out_says_why() -> None:
    recording = worked_example()
    x = np.ones((2, 3))
    with pytest.raises(NotExpandable, match=r"self_attention\.x was passed to the call"):
        expand(recording, *recording.find("self_attention.x"), (0, 0))
    layer = EXAMPLES["ffn"].record()
    with pytest.raises(NotExpandable, match=r"linear#1\.weight was passed to the call: it is self\.weight\.value"):
        expand(layer, *layer.find("linear#1.weight"), (0, 0))
    with pytest.raises(NotExpandable, match=r"attention\.t_q is a size, an index or a flag"):
        expand(recording, *recording.find("attention.t_q"), ())
    short = step(ops.softmax, x, limit=5)
    with pytest.raises(NotExpandable, match=r"only a summary of softmax\.y was recorded"):
        expand(short, *short.find("softmax.y"), (0, 0))
    with pytest.raises(NotExpandable, match=r"only a summary of x was recorded"):
        expand(short, *short.find("softmax.largest"), (0, 0))
    for index in ((0,), (0, 3), (0, 0, 0), (-1, 0)):
        with pytest.raises(ValueError, match=r"attention\.q has the shape \(3, 3\), so it has no cell"):
            expand(recording, *recording.find("attention.q"), index)


def test_asking_draws_no_random_number_and_changes_nothing() -> None:
    seen, rng = [], np.random.default_rng(0)

    def f(x):
        hidden = x + rng.normal(size=x.shape)
        counted = x + (seen.append(1) or 0.0)
        y, backward = ops.dropout(hidden + counted, 0.5, rng)
        return y, backward

    recording = step(f, np.ones((2, 3)))
    drawn = rng.bit_generator.state
    for s, bound, index in every_cell(recording):
        if bound.name in ("hidden", "counted"):
            with pytest.raises(NotExpandable):
                expand(recording, s, bound, index)
    assert rng.bit_generator.state == drawn
    assert seen == [1]


def test_several_calls_of_one_op_in_a_line_are_told_apart() -> None:
    def f(x):
        y = ops.relu(ops.relu(x)[0] - 1.0)[0] * 2.0 + ops.relu(-x)[0]
        return y, lambda dy: dy

    recording = step(f, np.array([3.0, -5.0]))
    first, second = (expand(recording, *recording.find("f.y"), (i,)) for i in (0, 1))
    assert (str(first), str(second)) == ("y[0] = 2·2 + 0 = 4", "y[1] = 0·2 + 5 = 5")
    assert cells(first) == (("relu#2.y", (0,)), ("relu#3.y", (0,)))
    assert text_of(recording, "relu#2.x", 0) == "x[0] = 3 − 1 = 2"


def test_a_parameter_that_has_changed_since_is_noticed() -> None:
    class Scale(layers.Module):
        def __init__(self):
            self.weight = layers.Parameter(np.array([2.0, 3.0]))

        def __call__(self, x):
            y = x * self.weight.value
            return y, lambda dy: dy * self.weight.value

    layer = Scale()
    recording = step(layer, np.array([5.0, 7.0]))
    assert text_of(recording, "Scale.y", 1) == "y[1] = 7·3 = 21"
    layer.weight.value[...] = 1.0
    recording._kept.clear()
    with pytest.raises(NotExpandable, match="has changed since"):
        expand(recording, *recording.find("Scale.y"), (1,))


def test_a_division_by_zero_evaluates_as_in_arrays() -> None:
    def f(x):
        y = 1.0 / x + np.exp(x * 1000.0) + np.log(x)
        return y, lambda dy: dy

    with np.errstate(all="ignore"):
        recording = step(f, np.array([0.0, 1.0]), upstream=np.ones(2))
    assert math.isnan(evaluate(expand(recording, *recording.find("f.y"), (0,)).term))
    assert evaluate(expand(recording, *recording.find("f.y"), (1,)).term) == math.inf


def test_expansions_of_float32_are_near() -> None:
    layer = layers.LayerNorm(4)
    recording = step(layer, np.random.default_rng(0).normal(size=(2, 4)).astype("float32"))
    for s, bound, index in every_cell(recording):
        if bound.name in ("variance", "normalized", "dx") and recording.calls[s.call].label == "layer_norm":
            recorded = float(bound.value.array[index])
            assert evaluate(expand(recording, s, bound, index).term) == pytest.approx(recorded, rel=1e-5, abs=1e-6)


# ---------------------------------------------------------------------------------------------------------------- terms


@in_one(
    "number, text",
    [
        (2.0, "2"),
        (-0.70710678, "−0.7071"),
        (0.0, "0"),
        (-0.0, "0"),
        (6.0341e-06, "6.034·10⁻⁶"),
        (-1e-05, "−10⁻⁵"),
        (1e12, "10¹²"),
        (-2.5e20, "−2.5·10²⁰"),
        (12345.0, "1.234·10⁴"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "nan"),
        (True, "1"),
        (False, "0"),
        (-100, "−100"),
    ],
)
def test_numbers_are_readable(number, text) -> None:
    assert readable(number) == text


def n(value):
    return Number(value)


@in_one(
    "term, text, python",
    [
        (Operation("+", (n(1.0), Operation("+", (n(-2.0), n(3.0))))), "1 + (−2 + 3)", "1.0 + (-2.0 + 3.0)"),
        (Operation("-", (n(1.0), Operation("-", (n(2.0), n(3.0))))), "1 − (2 − 3)", "1.0 - (2.0 - 3.0)"),
        (Operation("-", (Operation("-", (n(1.0), n(2.0))), n(3.0))), "1 − 2 − 3", "1.0 - 2.0 - 3.0"),
        (Operation("/", (n(1.0), Operation("/", (n(2.0), n(3.0))))), "1 / (2 / 3)", "1.0 / (2.0 / 3.0)"),
        (Operation("*", (n(2.0), n(-3.0))), "2·(−3)", "2.0 * -3.0"),
        (Operation("+", (n(2.0), n(-3.0))), "2 − 3", "2.0 + -3.0"),
        (Operation("-", (n(2.0), n(-3.0))), "2 − (−3)", "2.0 - -3.0"),
        (Operation("+", (n(2.0), Operation("*", (n(-3.0), n(4.0))))), "2 − 3·4", "2.0 + -3.0 * 4.0"),
        (Operation("**", (n(-2.0), n(2.0))), "(−2)^2", "(-2.0) ** 2.0"),
        (Operation("**", (n(2.0), Operation("**", (n(3.0), n(2.0))))), "2^(3^2)", "2.0 ** (3.0 ** 2.0)"),
        (Operation("negative", (Operation("+", (n(2.0), n(3.0))),)), "−(2 + 3)", "-(2.0 + 3.0)"),
        (Operation("*", (Operation("+", (n(2.0), n(3.0))), n(4.0))), "(2 + 3)·4", "(2.0 + 3.0) * 4.0"),
        (Operation("*", (n(2.0), n(3e-5))), "2·3·10⁻⁵", "2.0 * 3e-05"),
        (Operation("/", (n(2.0), n(3e-5))), "2 / (3·10⁻⁵)", "2.0 / 3e-05"),
        (Operation("*", (n(2.0), Operation(">", (n(3.0), n(0.0))))), "2·(3 > 0)", "2.0 * (3.0 > 0.0)"),
        (Operation(">", (n(-3.0), n(-1.0))), "−3 > −1", "-3.0 > -1.0"),
        (Operation("&", (n(True), n(False))), "1 & 0", "True & False"),
        (Applied("exp", (Operation("-", (n(1.0), n(2.0))),)), "exp(1 − 2)", "exp(1.0 - 2.0)"),
    ],
)
def test_brackets_stand_where_they_are_needed(term, text, python) -> None:
    assert pretty(term) == text
    assert evaluate(term) == eval(python, {"exp": np.exp})


def value_of(term):
    """The value by the definition of each operation, apart from any text."""
    if isinstance(term, Number):
        return term.value
    parts = [value_of(part) for part in term.parts]
    if term.symbol == "negative":
        return -parts[0]
    result = parts[0]
    for part in parts[1:]:
        result = {"+": result + part, "-": result - part, "*": result * part, "/": result / part}[term.symbol]
    return result


@pytest.mark.slow
def test_texts_of_random_terms_evaluate_to_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(terms, "readable", lambda number: repr(number).replace("-", "−"))  # all digits
    monkeypatch.setattr(terms, "LONGEST", 100)

    def term(depth):
        if depth == 0 or rng.random() < 0.2:
            return Number(float(rng.choice([-2.5, -1.0, 0.75, 3.0, 1e-7, 2e9])))
        symbol = str(rng.choice(["+", "-", "*", "/", "negative"]))
        count = 1 if symbol == "negative" else int(rng.integers(2, 4)) if symbol in "+*" else 2
        return Operation(symbol, tuple(term(depth - 1) for _ in range(count)))

    checked = 0
    for _ in range(500):
        tree = term(4)
        try:
            expected = value_of(tree)
        except ZeroDivisionError:
            continue
        assert evaluate(tree) == pytest.approx(expected, rel=1e-12)
        shown = pretty(tree)
        assert eval(shown.replace("−", "-").replace("·", "*")) == pytest.approx(expected, rel=1e-12)
        checked += 1
    assert checked > 400


def test_long_sums_are_shortened_to_be_looked_at() -> None:
    recording = step(ops.linear, np.arange(20.0).reshape(1, 20), np.ones((20, 1)))
    s, bound = recording.find("linear.product")
    expansion = expand(recording, s, bound, (0, 0))
    assert pretty(expansion.term) == "0·1 + 1·1 + 2·1 + 3·1 + 4·1 + 5·1 + … 13 more … + 19·1"
    assert len(expansion.numbers) == 40
    assert len(list(numbers(term_of(recording, s, bound, (0, 0))))) == 40
