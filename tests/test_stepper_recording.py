"""What `step` records: every line that runs, every number that it binds, as it was then; and what it leaves alone."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import re
import sys
import time
import tracemalloc

import numpy as np
import pytest
from tiers import first_of_each

from minitransformer import layers, models, ops, step
from minitransformer.ops import softmax
from minitransformer.school.show.stepper import Recording
from minitransformer.school.show.stepper.document import document
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.verify import CASES, Report, Row

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]])
OPS = [case for case in CASES.values() if case.kind == "op"]
SOME_LAYERS = [
    "Encoder of two layers",
    "MultiHeadAttention across to a memory",
    "EncoderLayer used twice, with dropout",
]


def built(name):
    return CASES[name].build(np.random.default_rng([0, 1]))


def recorded(name, **options):
    setup = built(name)
    return step(setup.f, *setup.inputs, **setup.options, **options)


def history(recording, title):
    """Every value that was bound under the title, in order."""
    return [b.value.array for s in recording.steps for b in s.bound if b.title == title]


# ------------------------------------------------------------------------------------------------- lines and sources


# fmt: off
def worked(
    x,
    factor=2.0,
):
    doubled = (
        x
        * factor  # in three lines
    )
    if doubled.shape == (1, 1):
        raise AssertionError
    y, softmax_backward = softmax(
        doubled,
        axis=-1,
    )

    def backward(dy):
        ddoubled = softmax_backward(dy)
        dx = ddoubled * (
            factor
        )
        return dx

    return y, backward
# fmt: on


def lines_of(recording, label, backward):
    """(first line within the function, source, names bound) of each step of one call."""
    (call,) = (call for call in recording.calls if call.label == label and call.backward is backward)
    return [(s.line - call.first_line, s.source, [b.name for b in s.bound]) for s in recording.steps_of(call)]


def test_every_executed_line_is_recorded_with_its_whole_statement_and_what_it_bound() -> None:
    recording = step(worked, X)
    assert lines_of(recording, "worked", False) == [
        (0, "def worked(\n    x,\n    factor=2.0,\n):", ["x", "factor"]),
        (4, "doubled = (\n    x\n    * factor  # in three lines\n)", ["doubled"]),
        (8, "if doubled.shape == (1, 1):", []),
        (10, "y, softmax_backward = softmax(\n    doubled,\n    axis=-1,\n)", ["y"]),
        (15, "def backward(dy):", []),
        (22, "return y, backward", []),
    ]
    assert lines_of(recording, "worked", True) == [
        (0, "def backward(dy):", ["dy"]),
        (1, "ddoubled = softmax_backward(dy)", ["ddoubled"]),
        (2, "dx = ddoubled * (\n    factor\n)", ["dx"]),
        (5, "return dx", []),
    ]
    names = [names for _, _, names in lines_of(recording, "softmax", False)]
    assert [
        name for group in names for name in group
    ] == "x axis temperature largest shift exponentials total y".split()


def test_a_statement_stands_after_the_calls_inside_it_and_knows_them() -> None:
    recording = step(worked, X)
    (inside,) = (s for s in recording.steps if s.source.startswith("y, softmax_backward"))
    calls = recording.calls_in(inside)
    assert [call.label for call in calls][:1] == ["softmax"]
    assert all(s.index < inside.index for call in calls for s in recording.steps_of(call))
    assert [s.index for s in recording.steps] == list(range(len(recording.steps)))
    deepest = recording.find("softmax.exponentials")[0]
    assert [call.label for call in recording.path(deepest)] == ["worked", "softmax"]


def test_comprehensions_and_generators_belong_to_their_statement_on_every_python() -> None:
    def generated(x):
        for row in x:
            twice = row * 2.0
            yield twice

    def f(x):
        rows = [*generated(x), *[row * 2.0 for row in x]][:2]
        y = sum(part for part in rows)
        return y, lambda dy: np.stack([dy * 2.0 for row in x])

    recording = step(f, X)
    assert {call.code.co_name for call in recording.calls} == {"f", "<lambda>"}
    assert {b.name for s in recording.steps for b in s.bound} == {"x", "y", "dy"}


def test_functions_of_every_kind_can_be_stepped_through() -> None:
    class Callable:
        def __call__(self, x):
            return softmax(x)

    namespace = {"softmax": softmax}
    exec("def unseen(x):\n    y, backward = softmax(x)\n    return y, backward", namespace)
    layer = layers.LayerNorm(3)
    layer.to(dtype="float64")
    kinds = {
        "lambda": lambda x: softmax(x),
        "partial": functools.partial(functools.partial(softmax, axis=0), temperature=2.0),
        "object": Callable(),
        "method": Callable().__call__,
        "module": layer,
        "without source": namespace["unseen"],
    }
    for kind, f in kinds.items():
        recording = step(f, X)
        op = "layer_norm" if kind == "module" else "softmax"
        np.testing.assert_array_equal(recording.find(f"{op}.y")[1].value.array, f(X)[0], err_msg=kind)
        assert history(recording, f"{op}.dx"), kind
        assert str(recording), kind
    unseen = step(namespace["unseen"], X)
    assert unseen.find("unseen.y")[0].source == ""
    assert unseen.calls[0].source == ()


# ------------------------------------------------------------------------------------- nothing missing, nothing wrong


@pytest.mark.few(21)
@pytest.mark.parametrize("case", first_of_each(OPS, variants=False))
def test_every_number_that_a_profiler_sees_is_recorded(case) -> None:
    """An independent witness: a profile function looks at all variables of every function of the ops as it returns."""
    seen = []

    def is_op(file):  # the bits of a hash are no steps
        return "/minitransformer/core/ops/" in file and not file.endswith("/random_numbers.py")

    def witness(frame, event, arg):
        code = frame.f_code
        if event == "return" and is_op(code.co_filename) and code.co_name.isidentifier():
            own = {name: value for name, value in frame.f_locals.items() if name not in code.co_freevars}
            arrays = {name: np.array(v) for name, v in own.items() if isinstance(v, np.ndarray | np.generic | float)}
            seen.append((code.co_name, arrays))

    setup = case.build(np.random.default_rng([0, 1]))
    upstream_seed = 5
    y = setup.f(*setup.inputs, **setup.options)[0]
    upstream = np.random.default_rng((upstream_seed, 1)).normal(size=y.shape).round(2) if y.shape else np.ones(())
    setup = case.build(np.random.default_rng([0, 1]))
    sys.setprofile(witness)
    try:
        setup.f(*setup.inputs, **setup.options)[1](upstream)
    finally:
        sys.setprofile(None)
    setup = case.build(np.random.default_rng([0, 1]))
    recording = step(setup.f, *setup.inputs, upstream=upstream, **setup.options)
    ended = sorted(recording.calls, key=lambda call: recording.steps_of(call)[-1].index)
    ended = [call for call in ended if call.code.co_name.isidentifier() and "/ops/" in call.file]
    assert [name for name, _ in seen] == [call.code.co_name for call in ended]
    for (_, arrays), call in zip(seen, ended, strict=True):
        last = {bound.name: bound.value.array for s in recording.steps_of(call) for bound in s.bound}
        assert set(arrays) <= set(last)
        for name, array in arrays.items():
            np.testing.assert_array_equal(last[name], array)


# ------------------------------------------------------------------------------------------------------------ copies


def changing(x):
    table = np.zeros((2, 2))
    view = table[0]
    table[1] = x
    view += 1.0
    table *= 3.0
    y = table + 0.0
    table[...] = -1.0
    return y, lambda dy: dy[1] * 3.0


def test_later_work_in_place_does_not_change_history_but_is_seen() -> None:
    x = np.array([2.0, 5.0])
    recording = step(changing, x)
    x[...] = 9.0
    before, filled, added, tripled, wiped = history(recording, "changing.table")
    assert before.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert filled.tolist() == [[0.0, 0.0], [2.0, 5.0]]
    assert added.tolist() == [[1.0, 1.0], [2.0, 5.0]]  # through its view
    assert tripled.tolist() == [[3.0, 3.0], [6.0, 15.0]]
    assert wiped.tolist() == [[-1.0, -1.0], [-1.0, -1.0]]
    assert [row.tolist() for row in history(recording, "changing.view")] == [[0, 0], [1, 1], [3, 3], [-1, -1]]
    in_place = [b.in_place for s in recording.steps for b in s.bound if b.name == "table"]
    assert in_place == [False, True, True, True, True]
    assert history(recording, "changing.x")[0].tolist() == [2.0, 5.0]
    assert history(recording, "changing.y")[0].tolist() == [[3.0, 3.0], [6.0, 15.0]]


def test_filling_of_a_gradient_is_seen_also_above_the_limit() -> None:
    ids, table = np.array([0, 2, 2]), np.arange(12.0).reshape(4, 3)
    empty, filled = history(step(ops.embedding, ids, table, upstream=np.ones((3, 3))), "embedding.dtable")
    assert not empty.any()
    assert filled.tolist() == [[1.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3]
    recording = step(ops.embedding, ids, table, upstream=np.ones((3, 3)), limit=9)
    summaries = [b.value.summary for s in recording.steps for b in s.bound if b.title == "embedding.dtable"]
    assert summaries == ["12 numbers from 0 to 0, mean 0", "12 numbers from 0 to 2, mean 0.75"]


def test_above_the_limit_there_is_a_summary_and_no_copy() -> None:
    x = np.arange(12.0).reshape(3, 4)
    at, above = step(ops.relu, x, limit=12), step(ops.relu, x, limit=11)
    assert np.array_equal(at.find("relu.y")[1].value.array, x)
    value = above.find("relu.y")[1].value
    assert value.array is None
    assert (value.shape, value.dtype) == ((3, 4), "float64")
    assert value.summary == "12 numbers from 0 to 11, mean 5.5"
    assert all(b.value.array is None or b.value.array.size <= 11 for s in above.steps for b in s.bound)
    with pytest.raises(ValueError, match="limit must be greater than 0"):
        step(ops.relu, x, limit=0)


def test_the_callers_arrays_generators_and_gradients_are_left_as_they_were() -> None:
    layer = layers.EncoderLayer(4, 2, 5, dropout=0.5)
    layer.to(dtype="float64")
    layer.feed_forward.sublayer.inner.bias.grad += 7.0
    before = {name: (p.grad, p.grad.copy()) for name, p in layer.parameters()}
    x, rng = np.random.default_rng(1).normal(size=(3, 4)), np.random.default_rng(2)
    recording = step(layer, x, rng=rng)
    assert rng.random() == np.random.default_rng(2).random()
    for name, parameter in layer.parameters():
        assert parameter.grad is before[name][0], name
        np.testing.assert_array_equal(parameter.grad, before[name][1], err_msg=name)
    np.testing.assert_array_equal(x, np.random.default_rng(1).normal(size=(3, 4)))
    again = recording.again()  # with the same random numbers
    assert [b.title for s in again.steps for b in s.bound] == [b.title for s in recording.steps for b in s.bound]
    np.testing.assert_array_equal(*(r.find("EncoderLayer.dx")[1].value.array for r in (recording, again)))


# ------------------------------------------------------------------------------------------- origins, pairs and checks


def test_other_names_of_the_same_array_are_known() -> None:
    recording = step(ops.attention, np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 5)))

    def other_name(title):
        origin = recording.find(title)[1].origin
        return None if origin is None else recording.binding(origin)[1].title

    assert other_name("softmax.x") == "attention.visible"  # given
    assert other_name("attention.weights") == "softmax.y"  # returned
    assert other_name("attention.dscores") == "softmax.dx"
    assert other_name("dropout.x") == "attention.weights"
    assert other_name("attention.kept") == "attention.weights"  # given, and returned as it came
    assert other_name("attention.visible") == "attention.biased"  # in one function, where there is no mask
    assert other_name("attention.biased") == "attention.scores"  # nor a bias
    assert other_name("attention.scores") is None


def test_gradients_meet_their_values() -> None:
    recording = step(ops.attention, np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 5)))
    pairs = {
        bound.title: recording.pair_of(s, bound).title
        for s in recording.steps
        for bound in s.bound
        if recording.pair_of(s, bound) is not None
    }
    expected = {f"attention.d{n}": f"attention.{n}" for n in "output kept weights scores q k v".split()}
    assert pairs == expected | {"softmax.dy": "softmax.y", "softmax.dx": "softmax.x"}


def test_a_gradient_of_a_name_that_is_bound_twice_has_its_check() -> None:
    """The report had a row for it, by its own pairing rule, and the stepper found none."""

    def f(x):
        h = x * 2.0
        h = h + 1.0
        y = h * h

        def backward(dy):
            dh = 2.0 * h * dy
            return dh * 2.0

        return y, backward

    recording = step(f, X, verify=True)
    bound = recording.find("f.dh")
    assert recording.check_of(*bound).name == "f.h[1]" and recording.check_of(*bound).ok
    np.testing.assert_array_equal(recording.pair_of(*bound).value.array, X * 2.0 + 1.0)


def test_progress_is_told_of_every_check() -> None:
    """`step decoder-layer --verify` was silent until its end."""
    seen = []

    def progress(checks):
        for check in checks:
            seen.append(len(checks))
            yield check

    recording = EXAMPLES["ffn"].record(verify=True, progress=progress)
    others = [row for row in recording.report.rows if row.kind != "input"]
    assert seen == [len(others)] * len(others) and len(others) > 5


def test_in_a_loop_gradients_meet_their_values_in_the_reverse_order() -> None:
    recording = recorded("Encoder of two layers")
    values, gradients = history(recording, "Encoder.x"), history(recording, "Encoder.dx")
    assert len(values) == len(gradients) == 3
    met = [recording.pair_of(s, b) for s in recording.steps for b in s.bound if b.title == "Encoder.dx"]
    for pair, value in zip(met, reversed(values), strict=True):
        np.testing.assert_array_equal(pair.value.array, value)


def attached(recording):
    """The names of the rows that some gradient leads to, with the same numbers: one, and other names of its array."""
    found = {}
    for s in recording.steps:
        for bound in s.bound:
            row = recording.check_of(s, bound)
            if row is not None:
                assert row.name not in found or bound.origin is not None, row.name
                assert tuple(row.shape) == bound.value.shape
                if row.where is not None:
                    assert row.hand == pytest.approx(float(bound.value.array[row.where]), rel=1e-9, abs=1e-12)
                found[row.name] = row
    return set(found)


@pytest.mark.few(4, slow=25)
@pytest.mark.parametrize("case", first_of_each(OPS, variants=False))
def test_every_gradient_of_an_op_that_finite_differences_check_shows_its_check(case) -> None:
    setup = case.build(np.random.default_rng([0, 1]))
    recording = step(setup.f, *setup.inputs, verify=True, **setup.options)
    assert recording.report.ok
    expected = {row.name for row in recording.report.rows} - {"input 0"}  # dropout.x, which has a row of that name too
    if case.name == "dropout switched off":
        expected = set()  # its pullback hands dy on and binds no gradient
    assert attached(recording) == expected


@pytest.mark.few(1, slow=9)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_right(name) -> None:
    """Those that ideas bring, too."""
    EXAMPLES[name].record(verify=True).report.assert_ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME_LAYERS)
def test_checks_of_layers_find_their_gradients(name) -> None:
    setup = built(name)
    report = CASES[name].run(entrywise=1)
    upstream = np.ones_like(setup.f(*setup.inputs, **setup.options)[0])
    recording = dataclasses.replace(step(setup.f, *setup.inputs, upstream=upstream, **setup.options), report=report)
    assert {row.name for row in report.of_kind("intermediate")} <= attached(recording)


def test_without_verify_there_are_no_checks() -> None:
    recording = step(worked, X)
    assert recording.report is None
    assert attached(recording) == set()


def test_values_and_gradients_that_are_filled_in_a_loop_have_their_checks() -> None:
    def f(x):
        for _ in range(2):
            h = np.zeros_like(x)
            h[...] = x * 3.0
            x = h
        y = np.zeros_like(x)
        y[...] = x

        def backward(dy):
            for _ in range(2):
                dh = np.zeros_like(dy)
                dh += dy
                dy = dh * 3.0
            return dy

        return y, backward

    recording = step(f, X)
    rows = tuple(Row(name, "intermediate", X.shape) for name in ("f.h[0]", "f.h[1]"))
    recording = dataclasses.replace(recording, report=Report("f", rows))
    found = [(s, b, recording.check_of(s, b)) for s in recording.steps for b in s.bound if b.name == "dh"]
    assert [row and row.name for _, _, row in found] == [None, "f.h[1]", None, "f.h[0]"]
    paired = [recording.pair_of(s, b).value.array for s, b, _ in found]
    for value, expected in zip(paired, (9.0 * X, 9.0 * X, 3.0 * X, 3.0 * X), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_wrong_gradient_shows_where_it_begins() -> None:
    def wrong(x):
        hidden = x * x
        y = hidden * 3.0

        def backward(dy):
            dhidden = dy * 3.0
            dx = dhidden * x  # the factor 2 is missing
            return dx

        return y, backward

    recording = step(wrong, X, verify=True)
    verdicts = {b.name: recording.check_of(s, b) for s in recording.steps for b in s.bound}
    assert verdicts["dhidden"].ok
    assert not verdicts["dx"].ok
    assert not recording.report.ok


def test_labels_are_numbered_as_in_the_report() -> None:
    recording = recorded("Encoder of two layers")
    labels = [call.label for call in recording.calls if not call.backward and call.label.startswith("linear")]
    assert labels == [f"linear#{k}" for k in range(1, 13)]
    pullbacks = [call.label for call in recording.calls if call.backward and call.label.startswith("linear")]
    assert sorted(pullbacks) == sorted(labels)
    assert (pullbacks[0], pullbacks[-1]) == ("linear#12", "linear#3")  # of q, k and v the pullback of v comes last
    assert [c.label for c in recording.calls if c.label.startswith("EncoderLayer")] == [
        "EncoderLayer#1",
        "EncoderLayer#2",
        "EncoderLayer#2",
        "EncoderLayer#1",
    ]


def test_a_recomputed_layer_is_shown_both_times() -> None:
    recording = recorded("Recompute around a layer with dropout")
    first, second = recording.find("EncoderLayer.y"), recording.find("EncoderLayer in backward.y")
    np.testing.assert_array_equal(first[1].value.array, second[1].value.array)
    assert [call.label for call in recording.path(second[0])] == ["Recompute", "EncoderLayer in backward"]
    assert recording.path(second[0])[0].backward
    gradient = recording.find("EncoderLayer in backward.dx")
    assert recording.pair_of(*gradient).title == "EncoderLayer in backward.x"
    (pullback,) = (call for call in recording.calls if call.backward and call.forward_call == 0)
    np.testing.assert_array_equal(gradient[1].value.array, pullback.results.value.array)
    forward = [call.label for call in recording.calls if not call.backward]
    for op, times in {"linear": 6, "attention": 1, "layer_norm": 2, "dropout": 3}.items():
        here = [label for label in forward if label.partition("#")[0] == op]
        again = [label for label in forward if label.partition("#")[0] == f"{op} in backward"]
        assert (len(here), len(again)) == (times, times)


# ---------------------------------------------------------------------------------------------- what is left as it was


def tracer(frame, event, arg):
    return None


@pytest.fixture
def traced():
    """A trace and a profile function, as a debugger and a profiler set them."""
    before = sys.gettrace()
    profile = sys.getprofile()
    sys.settrace(tracer)
    sys.setprofile(tracer)
    yield
    sys.setprofile(profile)
    sys.settrace(before)


def raising_forward(x):
    raise ZeroDivisionError("in forward")


def raising_backward(x):
    y, _ = softmax(x)

    def backward(dy):
        raise ZeroDivisionError("in backward")

    return y, backward


def wrong_result(x):
    return x


def test_trace_and_profile_functions_stay(traced) -> None:
    step(worked, X, verify=True)
    assert sys.gettrace() is tracer
    assert sys.getprofile() is tracer
    for f, error in ((raising_forward, "in forward"), (raising_backward, "in backward")):
        with pytest.raises(ZeroDivisionError, match=error):
            step(f, X)
        assert sys.gettrace() is tracer
    with pytest.raises(TypeError, match=r"step: the function must return \(output, backward\), got ndarray"):
        step(wrong_result, X)
    assert sys.gettrace() is tracer


def test_a_tracer_sees_the_lines_around_a_step() -> None:
    seen = []

    def follow(frame, event, arg):
        if event == "line":
            seen.append(frame.f_lineno - frame.f_code.co_firstlineno)
        return follow

    def around():
        a = 1
        step(worked, X)
        b = 2
        return a + b

    before = sys.gettrace()

    def only_around(frame, event, arg):
        return follow if frame.f_code is around.__code__ else None

    sys.settrace(only_around)
    try:
        around()
    finally:
        sys.settrace(before)
    assert seen == [1, 2, 3, 4]


def test_a_step_inside_a_step_works() -> None:
    inner_recordings = []

    def outer(x):
        doubled = x * 2.0
        inner_recordings.append(step(softmax, doubled))
        y = doubled + 1.0
        return y, lambda dy: dy * 2.0

    recording = step(outer, X)
    assert history(recording, "outer.y")[0].tolist() == (X * 2.0 + 1.0).tolist()
    assert [call.label for call in recording.calls] == ["outer", "outer"]
    np.testing.assert_array_equal(inner_recordings[0].find("softmax.y")[1].value.array, softmax(X * 2.0)[0])


# ----------------------------------------------------------------------------------------------------- kinds of arrays


def test_every_dtype_is_recorded_as_it_is() -> None:
    for dtype in ("float16", "float32", "float64"):
        value = step(ops.relu, X.astype(dtype)).find("relu.dx")[1].value
        assert (value.dtype, value.array.dtype) == (dtype, np.dtype(dtype))
    recording = step(ops.cross_entropy, X.astype("float32"), np.array([2, -100], dtype="int16"))
    kinds = {b.name: b.value.dtype for s in recording.steps for b in s.bound}
    assert kinds["targets"] == "int16"
    assert kinds["counted"] == "bool"
    assert kinds["n_classes"] == "int"
    assert kinds["label_smoothing"] == "float"
    assert kinds["loss"] == kinds["dlogits"] == "float32"
    whole = recording.find("cross_entropy.n_classes")[1].value
    assert type(whole.plain()) is int
    assert whole.plain() == 3


def test_the_gradient_of_a_single_number_is_one() -> None:
    recording = step(ops.cross_entropy, X, np.array([2, 0]))
    assert recording.find("cross_entropy.dloss")[1].value.array == 1.0
    assert np.array_equal(step(ops.relu, X, seed=3).find("relu.dy")[1].value.array, step_upstream(3))


def step_upstream(seed):
    return np.random.default_rng((seed, 1)).normal(size=X.shape).round(2)


def test_inputs_drawn_with_the_same_seed_are_not_the_upstream_gradient() -> None:
    """They were once: then dx = 2 dy², wrong for y = x², would pass."""

    def square(x):
        return x * x, lambda dy: 2.0 * dy * dy

    x = np.random.default_rng(0).normal(size=(2, 3)).round(2)
    report = step(square, x, verify=True).report
    assert report is not None and not report.ok


def test_quiet_steps_are_those_that_show_nothing() -> None:
    recording = step(ops.attention, np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 5)))
    quiet = {s.source for s in recording.steps if s.quiet}
    assert "xp = library(type(q))" in quiet
    assert "return output, backward" in quiet
    assert not any(s.quiet for s in recording.steps if s.source.startswith(("scores =", "dq =", "weights,")))
    assert all(s.bound for s in recording.steps if not s.quiet)


# -------------------------------------------------------------------------------------------------------- large models


@pytest.mark.slow
def test_a_model_of_twelve_layers_records_in_little_time_and_memory() -> None:
    config = models.LanguageModelConfig(
        vocabulary=100, max_length=64, d_model=64, n_heads=4, d_ff=256, dropout=0.0, attention_dropout=0.0
    )
    assert config.n_layers == 12
    model = models.LanguageModel(config, np.random.default_rng(0))
    ids = np.random.default_rng(1).integers(0, 100, (1, 64))
    began = time.perf_counter()
    recording = step(model.loss, ids, ids)
    assert time.perf_counter() - began < 60.0  # about 1 s on an idle machine
    assert len(recording.steps) > 5000
    assert len(list(s for s in recording.steps if "softmax#12" in {c.label for c in recording.path(s)})) > 10
    kept = sum(b.value.array.nbytes for s in recording.steps for b in s.bound if b.value.array is not None)
    assert kept < 100e6
    del recording
    tracemalloc.start()
    try:
        step(model.loss, ids, ids)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 250e6


# --------------------------------------------------------------------------------------------------------- its faces


def test_a_gradient_that_rounding_hides_is_not_called_wrong() -> None:
    """Terminal, page and JSON said WRONG, or showed a gap, of what finite differences cannot see."""

    def f(x: np.ndarray):
        y = 1e6 + 1e-12 * x

        def backward(dy: np.ndarray) -> np.ndarray:
            dx = 1e-12 * dy
            return dx

        return y, backward

    recording = step(f, np.array([0.1, 0.2]), upstream=np.ones(2), verify=True)
    assert recording.report is not None and recording.report.verdict == "CANNOT BE SEEN"
    (dx,) = (b for s in document(recording)["steps"] for b in s["bound"] if b["name"] == "dx")
    assert dx["check"]["verdict"] == "CANNOT BE SEEN"
    (shown,) = (b for s in page_data(recording)["steps"] for b in s["bound"] if b["name"] == "dx")
    assert "numerical" not in shown and shown["told"].startswith(
        "finite differences: they cannot see it, rounding hides"
    )
    assert "WRONG" not in str(recording)


def test_json_holds_the_whole_recording(tmp_path) -> None:
    recording = step(ops.softmax, np.array([[0.0, -np.inf, 2.0]]), upstream=np.array([[1.0, 2.0, 4.0]]))
    path = tmp_path / "recording.json"
    text = recording.to_json(path)
    assert path.read_text(encoding="utf-8") == text + "\n"
    assert [file.name for file in tmp_path.iterdir()] == ["recording.json"]
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (read["format"], read["version"], read["name"]) == ("minitransformer recording", 1, "softmax")
    assert read["report"] is None
    assert [s["source"] for s in read["steps"]] == [s.source for s in recording.steps]
    bound = {b["title"]: (s, b) for s in read["steps"] for b in s["bound"]}
    assert bound["softmax.x"][1]["values"] == [[0.0, "-Infinity", 2.0]]
    s, dx = bound["softmax.dx"]
    assert dx["of"] == {"step": bound["softmax.x"][0]["index"], "name": "x", "title": "softmax.x"}
    assert (dx["shape"], dx["dtype"], dx["in_place"], dx["check"]) == ([1, 3], "float64", False, None)
    call = read["calls"][s["call"]]
    assert call["source"][s["line"] - call["first_line"]].strip() == s["source"]
    assert (call["file"], call["backward"], call["forward_call"]) == ("core/ops/softmax.py", True, 0)
    verified = document(step(ops.relu, X, verify=True, limit=2))
    assert verified["report"]["ok"]
    last = verified["steps"][-2]["bound"][0]
    assert (last["name"], last["values"], last["check"]["name"]) == ("dx", None, "x")
    assert last["summary"].startswith("6 numbers from ")


def test_in_a_notebook_it_shows_itself_in_a_frame_of_its_own() -> None:
    recording = step(ops.relu, X)
    markup = recording._repr_html_()
    match = re.fullmatch(r'<iframe title="([^"<>]*)" srcdoc="([^"<>]*)" [^<>]*></iframe>', markup)
    assert match is not None
    assert html.unescape(match[2]) == recording.to_html()


def test_it_says_what_it_is() -> None:
    recording = step(ops.relu, X)
    assert isinstance(recording, Recording)
    assert repr(recording) == f"<Recording of relu: {len(recording.steps)} steps in 2 calls>"
    assert "dx = dy * passes" in str(recording)
    with pytest.raises(KeyError, match=r"softmax\.nothing"):
        recording.find("softmax.nothing")
