"""The worked example: the numbers that introductions print, and every number again by plain Python."""

import dataclasses
import functools
import inspect
import math

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.school.course import worked_example
from minitransformer.school.course.worked_example import EXAMPLES, SCALED, UNEQUAL, UNSCALED, self_attention

NAMES = ("x", "w_q", "w_k", "w_v", "q", "k", "v", "scores", "weights", "output")
ROWS = {name: name for name in NAMES[:4]}
ROWS |= {name: f"self_attention.{name}" for name in ("q", "k", "v", "output")}
ROWS |= {name: f"attention.{name}" for name in ("scores", "weights")}


@functools.cache
def report_of(number):
    return EXAMPLES[number].report()


@functools.cache
def text_of(number):
    return str(EXAMPLES[number])


each_example = pytest.mark.parametrize("number", range(3), ids=["unscaled", "scaled", "unequal"])

# ---- The same with Python's floats and loops: values from their definitions, gradients from the chain rule. ----


def product(a, b):
    return [[math.fsum(a[i][n] * b[n][j] for n in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]


def softmax(row):
    exponentials = [math.exp(score) for score in row]
    return [e / math.fsum(exponentials) for e in exponentials]


def forward(x, w_q, w_k, w_v, scale):
    q, k, v = product(x, w_q), product(x, w_k), product(x, w_v)
    scores = [[scale * math.fsum(a * b for a, b in zip(query, key, strict=True)) for key in k] for query in q]
    weights = [softmax(row) for row in scores]
    values = (x, w_q, w_k, w_v, q, k, v, scores, weights, product(weights, v))
    return dict(zip(NAMES, values, strict=True))


def backward(values, scale, doutput):
    """Each gradient entry by entry: a sum, over all that depends on the entry, of dL/d(that) · d(that)/d(entry)."""
    x, w_q, w_k, w_v, q, k, v, _, weights, _ = (values[name] for name in NAMES)
    tokens, width, d_k, d_v = range(len(x)), range(len(x[0])), range(len(q[0])), range(len(v[0]))
    dweights = [[sum(doutput[i][c] * v[j][c] for c in d_v) for j in tokens] for i in tokens]
    dv = [[sum(doutput[i][c] * weights[i][j] for i in tokens) for c in d_v] for j in tokens]

    def softmax_slope(i, j, n):  # of weight j with respect to score n, both of query i
        return weights[i][j] * ((1.0 if j == n else 0.0) - weights[i][n])

    dscores = [[sum(dweights[i][j] * softmax_slope(i, j, n) for j in tokens) for n in tokens] for i in tokens]
    dq = [[sum(dscores[i][j] * scale * k[j][c] for j in tokens) for c in d_k] for i in tokens]
    dk = [[sum(dscores[i][j] * scale * q[i][c] for i in tokens) for c in d_k] for j in tokens]

    def dw(dprojected, columns):
        return [[sum(x[t][a] * dprojected[t][c] for t in tokens) for c in columns] for a in width]

    dx = [
        [
            sum(dq[t][c] * w_q[a][c] + dk[t][c] * w_k[a][c] for c in d_k) + sum(dv[t][c] * w_v[a][c] for c in d_v)
            for a in width
        ]
        for t in tokens
    ]
    gradients = (dx, dw(dq, d_k), dw(dk, d_k), dw(dv, d_v), dq, dk, dv, dscores, dweights, doutput)
    return dict(zip(NAMES, gradients, strict=True))


def by_loops(example):
    arrays = [array.tolist() for array in (example.x, example.w_q, example.w_k, example.w_v)]
    values = forward(*arrays, example.scale)
    return values, backward(values, example.scale, example.doutput.tolist())


def by_ops(example):
    """The output, and the gradients of x and the weights."""
    output, pullback = self_attention(example.x, example.w_q, example.w_k, example.w_v, scale=example.scale)
    return [output, *pullback(example.doutput)]


def wanted_of(example):
    values, gradients = by_loops(example)
    return [values["output"], *(gradients[name] for name in NAMES[:4])]


def close(ours, theirs):
    return np.shape(ours) == np.shape(theirs) and np.allclose(ours, theirs, rtol=0.0, atol=1e-12)


# ---- What introductions print. ----

OUTPUT = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]


def test_the_first_example_has_the_published_numbers():
    report = report_of(0)
    assert report[ROWS["scores"]].entries().value.tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    output = report[ROWS["output"]].entries().value
    assert output.round(4).tolist() == OUTPUT
    assert np.array_equal(output, by_ops(UNSCALED)[0])


def test_rounded_weights_give_the_published_round_numbers():
    report = report_of(0)
    weights, v = (report[ROWS[name]].entries().value for name in ("weights", "v"))
    published = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.9, 0.1]])
    assert np.abs(published - weights).max() < 0.07
    assert close(published @ v, [[2, 7, 1.5], [2, 8, 0], [2, 7.8, 0.3]])
    assert close(weights.round(1) @ v, [[2.1, 7.2, 1.8], [2, 8, 0], [2, 7.8, 0.3]])  # to one decimal 0.0634 is not 0


def test_scales_are_one_over_the_root_of_d_k():
    assert [example.scale for example in EXAMPLES] == [1.0, 1.0 / math.sqrt(3.0), 1.0 / math.sqrt(2.0)]
    assert UNEQUAL.w_q.shape[1] == UNEQUAL.w_k.shape[1] == 2
    for name in ("x", "w_q", "w_k", "w_v", "doutput"):  # the second example is the first but for its scale
        assert np.array_equal(getattr(SCALED, name), getattr(UNSCALED, name))


# ---- Every number, forward and backward. ----


@each_example
def test_outputs_and_gradients_are_those_of_plain_python(number):
    for ours, theirs in zip(by_ops(EXAMPLES[number]), wanted_of(EXAMPLES[number]), strict=True):
        assert close(ours, theirs)


@pytest.mark.few(1)
@each_example
def test_report_holds_every_value_and_gradient(number):
    values, gradients = by_loops(EXAMPLES[number])
    report = report_of(number)
    report.assert_ok()
    for name in NAMES:
        entries = report[ROWS[name]].entries()
        assert close(entries.value, values[name])
        assert close(entries.by_hand, gradients[name])
        assert np.abs(entries.numerical - gradients[name]).max() < 1e-8


def matrix_rows(lines, label, columns=slice(None)):
    """The numbers of the matrix called `label`, as the text shows it; `columns` picks one of two side by side."""
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{label} = ["))
    rows = [lines[start]]
    while start + len(rows) < len(lines) and lines[start + len(rows)].strip().startswith("["):
        rows.append(lines[start + len(rows)])
    shown = [row[columns].partition("[")[2].partition("]")[0] for row in rows]
    return [[float(number) for number in row.split()] for row in shown]


@pytest.mark.few(1)
@each_example
def test_text_shows_every_number_under_its_heading(number):
    values, gradients = by_loops(EXAMPLES[number])
    lines = text_of(number).splitlines()
    assert lines[0] == EXAMPLES[number].title
    heading = next(line for line in lines if line.startswith("backward"))
    by_hand, numerical = heading.index("by hand"), heading.index("by finite differences")
    for name in NAMES:
        assert close(matrix_rows(lines, name), np.round(values[name], 4))
        for columns in (slice(by_hand, numerical), slice(numerical, None)):
            assert close(matrix_rows(lines, "d" + name, columns), np.round(gradients[name], 4))
    below = [line for line in lines[lines.index(heading) + 1 :] if "[" in line]
    assert {(line.index("["), line.rindex("[")) for line in below} == {(by_hand, numerical)}
    order = [line.partition(" = [")[0].strip() for line in lines if " = [" in line]
    assert order == [*NAMES, *("d" + name for name in reversed(NAMES))]


@pytest.mark.few(1)
@each_example
def test_text_is_tidy(number):
    text = text_of(number)
    assert "-0.0000" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_text_says_how_far_apart_both_columns_are():
    report = report_of(2)
    error = max(report[ROWS[name]].error for name in NAMES)
    assert text_of(2).splitlines()[-1].strip() == f"largest |by hand - numerical| / (1 + |numerical|): {error:.0e}"


# ---- What equal sizes hide, the twin shows. ----


def test_the_root_of_t_for_that_of_d_k_is_seen_in_the_twin_alone():
    for example, seen in [(SCALED, False), (UNEQUAL, True)]:
        wrong = dataclasses.replace(example, scale=1.0 / math.sqrt(len(example.x)))
        difference = np.abs(by_ops(wrong)[0] - by_ops(example)[0]).max()
        assert difference > 0.01 if seen else difference == 0.0


def test_the_default_scale_of_attention_is_that_of_the_twin():
    values, _ = by_loops(UNEQUAL)
    q, k, v = (np.array(values[name]) for name in ("q", "k", "v"))
    assert close(ops.attention(q, k, v)[0], values["output"])


def attention_with(old, new):
    """The op with a mistake in its source."""
    module = inspect.getmodule(inspect.unwrap(ops.attention))
    source = inspect.getsource(module)
    assert source.count(old) == 1
    namespace = {"__name__": module.__name__, "__package__": module.__package__}
    exec(compile(source.replace(old, new), "wrong attention", "exec", dont_inherit=True), namespace)
    return namespace["attention"]


def noticed(example):
    """What becomes of the mistake: an error, numbers that differ, or nothing."""
    try:
        ours = by_ops(example)
    except ValueError:
        return "error"
    pairs = zip(ours, wanted_of(example), strict=True)
    return "" if all(close(a, b) for a, b in pairs) else "numbers"


@pytest.mark.parametrize(
    ("old", "new", "equal_sizes", "unequal_sizes"),
    [
        ("q @ k.swapaxes(-1, -2)", "q @ k", "numbers", "error"),
        ("doutput @ v.swapaxes(-1, -2)", "doutput @ v", "numbers", "error"),
        ("kept.swapaxes(-1, -2) @ doutput", "kept @ doutput", "numbers", "numbers"),
        ("dscores.swapaxes(-1, -2) @ q", "dscores @ q", "numbers", "numbers"),
        ("dq = (dscores @ k) * factor", "dq = dscores @ k", "numbers", "numbers"),
        ("dscores @ k", "dscores.swapaxes(-1, -2) @ k", "numbers", "numbers"),
    ],
)
def test_a_mistake_is_noticed(monkeypatch, old, new, equal_sizes, unequal_sizes):
    """Equal sizes let every one of these run to the end; only the values here tell. The twin stops the first two."""
    assert noticed(SCALED) == noticed(UNEQUAL) == ""
    monkeypatch.setattr(worked_example, "attention", attention_with(old, new))
    assert noticed(SCALED) == equal_sizes
    assert noticed(UNEQUAL) == unequal_sizes


def test_a_wrong_example_would_not_pass_as_right(monkeypatch):
    wrong = attention_with("dscores.swapaxes(-1, -2) @ q", "dscores @ q")
    monkeypatch.setattr(worked_example, "attention", wrong)
    report = UNEQUAL.report()
    assert not report.ok
    assert {row.name for row in report.rows if not row.ok} >= {"x", "w_k", ROWS["k"]}
