"""The stepper's page, as far as it can be tested without a browser: its parts, its data, its formulas."""

import base64
import html
import html.parser
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from all_ops import CALLS, setup_of
from tiers import in_one

from minitransformer import layers, ops
from minitransformer.check.trace.values import copied
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.school.course.worked_example import UNSCALED, self_attention
from minitransformer.school.show.page import as_script_data
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.mathml import NAMESPACE, as_lists, formula, name
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.page_bugs import differ
from minitransformer.school.show.stepper.page_data import Pool, plain
from minitransformer.verify import CASES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
EVIL = "</script><img src=x onerror=alert(1)>&\u2028"


def worked(**options: Any) -> Recording:
    arrays = (UNSCALED.x, UNSCALED.w_q, UNSCALED.w_k, UNSCALED.w_v)
    return step(self_attention, *arrays, scale=1.0, upstream=UNSCALED.doutput, **options)


def data_of(page: str) -> Any:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    (text,) = found
    return json.loads(text)


class Parser(html.parser.HTMLParser):
    """Collects tags and attributes, and complains about a tag that is closed but not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.few(10)
@pytest.mark.parametrize("case", [name for name in CALLS if not CASES[name].along_directions])
def test_every_line_of_every_op_has_a_well_formed_formula(case: str) -> None:
    setup = setup_of(case)
    recording = step(setup.f, *setup.inputs, **setup.options)
    seen = 0
    for recorded in recording.steps:
        element = formula(recorded.source)
        if element is None:
            continue
        parsed = ElementTree.fromstring(ElementTree.tostring(element, encoding="unicode"))
        allowed = "math mrow mi mn mo mtext mspace mfrac msqrt msub msup msubsup munder mtable mtr mtd".split()
        assert {node.tag for node in parsed.iter()} <= {f"{{{NAMESPACE}}}{tag}" for tag in allowed}
        assert json.loads(json.dumps(as_lists(element)))[0] == "math"
        children = {"mfrac": 2, "msup": 2, "msub": 2, "munder": 2, "msubsup": 3}
        assert all(len(node) == children[node.tag] for node in element.iter() if node.tag in children)
        seen += any(bound.value.shape for bound in recorded.bound)
    assert seen >= 2 or case == "dropout switched off"  # which computes nothing
    for recorded in recording.steps:
        head = recorded.source.startswith(("for ", "def ", "if ", "@"))
        if any(bound.value.shape for bound in recorded.bound) and not head:
            assert formula(recorded.source) is not None, recorded.source


def text_of(element: ElementTree.Element | None) -> str:
    """The formula as a line of text: a fraction as (a)/(b), an index as a_b, a power as a^b, a root as √(a)."""
    assert element is not None
    parts = [text_of(child) for child in element]
    forms = {"mfrac": "({})/({})", "msup": "{}^{}", "msub": "{}_{}", "munder": "{}_{}", "msubsup": "{}_{}^{}"}
    if element.tag in forms:
        return forms[element.tag].format(*parts)
    if element.tag == "msqrt":
        return f"√({''.join(parts)})"
    if element.tag == "mspace":
        return " "
    return (element.text or "") + "".join(parts)


@in_one(
    "source, text",
    [
        ("scores = (q @ k.swapaxes(-1, -2)) * factor", "scores=q k^T factor"),
        ("dv = kept.swapaxes(-1, -2) @ doutput", "dv=kept^T doutput"),
        ("dweight = rows.T @ dproduct", "dweight=rows^T dproduct"),
        ("inverse_std = 1.0 / xp.sqrt(variance + eps)", "inverse_std=(1)/(√(variance+ε))"),
        ("exponentials = xp.exp((x - shift) / factor)", "exponentials=e^(x−shift)/(factor)"),
        ("total = exponentials.sum(axis=-1, keepdims=True)", "total=∑_axis\u00a0−1exponentials"),
        ("dx = y * (dy - (dy * y).sum(axis=axis))", "dx=y⊙(dy−∑_axisdy⊙y)"),
        ("dx = dy - (a - b)", "dx=dy−(a−b)"),
        ("y = a - b * c", "y=a−b⊙c"),
        ("y = (a - b) * c", "y=(a−b)⊙c"),
        ("y = -x", "y=−x"),
        ("y = -(a + b)", "y=−(a+b)"),
        ("y = (a + b) ** 2", "y=(a+b)^2"),
        ("y = (a @ b).T", "y=(a b)^T"),
        ("dgamma = x.mean(axis=0)", "dγ=mean_axis\u00a00(x)"),
        ("q, q_backward = linear(x, w_q)", "q=linear(x,W_Q)"),
        ("dx_by_q, dw_q = q_backward(dq)", "dx_by_q,dW_Q=J_q^T dq"),
        ("dscores = softmax_backward(dweights)", "dscores=J_softmax^T dweights"),
        ("y = x if bias is None else x + bias", "y={xif\u00a0biasisNonex+biasotherwise"),
        ("y = xp.where(x > 0.0, x, 0.0)", "y={xif\u00a0x>00otherwise"),
        ("y = xp.maximum(x, 0.0)", "y=max(x,0)"),
        ("x += y", "x←x+y"),
        ("scatter_add(dtable, ids, rows)", "dtable_ids←dtable_ids+rows"),
        ("def f(x, w_k):\n    pass", "f(x,W_K)"),
        ("return dx, dgamma", "return dx,dγ"),
    ],
)
def test_formula(source: str, text: str) -> None:
    assert text_of(formula(source, scalars={"factor"})) == text


@in_one("source", ["check_floats('f', x=x)", "if x.ndim < 2:", "for a in b:", "raise ValueError(x)", ""])
def test_what_computes_nothing_has_no_formula(source: str) -> None:
    assert formula(source) is None


def test_names_as_mathematics_has_them() -> None:
    shown = {
        key: text_of(name(key)) for key in ("gamma", "dgamma", "w_q", "d_k", "t_q", "dscores", "inverse_std", "eps")
    }
    assert shown == {
        "gamma": "γ", "dgamma": "dγ", "w_q": "W_Q", "d_k": "d_k", "t_q": "t_q", "dscores": "dscores",
        "inverse_std": "inverse_std", "eps": "ε",
    }  # fmt: skip
    assert name("dscores").get("mathvariant") == "normal" and name("x").get("mathvariant") is None


def test_page_is_one_sound_file_that_asks_for_nothing() -> None:
    page = to_html(worked(verify=True))
    parser = Parser(page)
    assert parser.open == []
    assert {tag for tag, _ in parser.tags} & {"link", "img", "iframe", "object", "base"} == set()
    for tag, attributes in parser.tags:
        assert not any(key.startswith("on") or key in ("src", "style", "action") for key in attributes), (
            tag,
            attributes,
        )
        assert attributes.get("href", "#").startswith("#")
    urls = set(re.findall(r"[a-z]+://[^\s\"'<>\\]+", page))
    assert urls == {NAMESPACE}  # the name of MathML, which nobody fetches
    assert "@import" not in page and re.findall(r"url\(.{6}", page) == ['url("data:']  # the font of the formulas
    assert "default-src 'none'" in page
    font = re.search(r'url\("data:[^"]*"\)', page)
    assert font is not None and len(font[0]) < 40_000 and len(page) - len(font[0]) < 310_000
    ids = [attributes["id"] for _, attributes in parser.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    script = page.rpartition("<script>")[2]
    assert set(re.findall(r'byId\("(\w+)"\)', script)) <= set(ids)


def test_names_and_tokens_cannot_leave_their_place() -> None:
    def f(x: Any) -> Any:
        return ops.relu(x)

    f.__name__ = EVIL
    page = to_html(step(f, X), tokens=[EVIL, "a", "b"])
    assert "<img" not in page and Parser(page).open == []
    data = data_of(page)
    assert data["name"] == EVIL and data["tokens"][0] == EVIL
    assert f"<title>{html.escape(EVIL)}" in page
    assert not re.search("[<>&]", as_script_data({"a": EVIL}))
    assert json.loads(as_script_data({"a": EVIL})) == {"a": EVIL}


def test_marks_in_a_name_are_not_filled_in() -> None:
    def f(x: Any) -> Any:
        return ops.relu(x)

    f.__name__ = "{{data}}{{script}}"
    page = to_html(step(f, X))
    assert data_of(page)["name"] == "{{data}}{{script}}" and page.count("<title>{{data}}{{script}}") == 1


def test_infinities_are_written_so_that_json_can_hold_them() -> None:
    assert plain(np.array([1.5, 2.0, -np.inf, np.inf, np.nan])) == [1.5, 2, "-inf", "inf", "nan"]
    recording = step(ops.softmax, np.array([[0.0, -np.inf], [1.0, 2.0]]))
    assert ["-inf" in a.get("data", []) for a in data_of(to_html(recording))["arrays"]].count(True) >= 1


def test_mistakes_are_told_by_the_numbers_they_change() -> None:
    recording = worked()
    data = data_of(to_html(recording, bugs=["softmax-no-sum", "layer-norm-no-shift"]))
    (bug,) = data["bugs"]  # there is no LayerNorm in it
    assert bug["mistake"] == MISTAKES["softmax-no-sum"].sentence
    with MISTAKES["softmax-no-sum"].applied():
        wrong = recording.again()
    told = {
        (s, b): (data["changes"][change][0], np.frombuffer(base64.b64decode(data["changes"][change][1]), "<f8"))
        for s, b, change in bug["numbers"]
    }
    for right_step, wrong_step in zip(recording.steps, wrong.steps, strict=True):
        for b, (right, other) in enumerate(zip(right_step.bound, wrong_step.bound, strict=True)):
            differing = np.flatnonzero(~np.isclose(right.value.array, other.value.array, rtol=1e-8, atol=1e-8))
            cells, numbers = told.pop((right_step.index, b), ([], []))
            cells = list(range(right.value.array.size)) if cells is None else cells
            assert cells == differing.tolist()
            np.testing.assert_array_equal(numbers, np.ravel(other.value.array)[cells])
    assert not told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worked-example", "attention", "ffn", "embedding", "cross-entropy"])
def test_every_mistake_that_changes_a_number_of_what_is_shown_is_offered(name: str) -> None:
    """The stepper once knew ten mistakes by name, none of them in linear, in embedding or in cross_entropy."""
    recording = EXAMPLES[name].record()
    data = data_of(to_html(recording))
    offered = {bug["name"]: "refused" in bug for bug in data["bugs"] if bug.get("numbers") != []}
    shown = {call.label.partition("#")[0] for call in recording.calls}
    expected = {}
    for variant in MISTAKES.values():
        if variant.target.partition(":")[2].removesuffix(".__call__") in shown:
            try:
                with variant.applied(), np.errstate(all="ignore"):
                    wrong = recording.again()
            except (ValueError, TypeError, IndexError):
                expected[variant.name] = True
                continue
            right, other = values_of(recording), values_of(wrong)
            if not all(same(other[key], right[key]) for key in right.keys() & other.keys()):
                expected[variant.name] = False
    # The page compares what two lines bind after the second of them: one of these is right by then, the other wrong.
    expected.pop("softmax-changes-y", None)
    if name == "embedding":
        expected["embedding-mean-over-places"] = False
    assert offered.items() <= expected.items()
    assert len(offered) == len(expected) >= 3 or len(offered) > 20  # a page has no room for more


def same(other: np.ndarray, right: np.ndarray) -> bool:
    return np.shape(other) == np.shape(right) and np.allclose(other, right, 1e-9, 1e-9)


def values_of(recording: Recording) -> dict[tuple[str, int], np.ndarray]:
    """Every array of numbers, by its title and which of the title's bindings it is."""
    found: dict[tuple[str, int], np.ndarray] = {}
    for recorded in recording.steps:
        for bound in recorded.bound:
            if bound.value.is_float_array:
                found[bound.title, sum(title == bound.title for title, _ in found)] = bound.value.array
    return found


@pytest.mark.slow
def test_mistakes_of_one_function_stand_together_in_the_order_of_the_calls() -> None:
    data = data_of(to_html(EXAMPLES["ffn"].record()))
    functions = [bug["in"] for bug in data["bugs"]]
    groups = list(dict.fromkeys(functions))
    assert groups == ["FeedForward", "Linear", "linear", "relu"]
    assert functions == sorted(functions, key=groups.index)


@pytest.mark.slow
def test_a_page_with_little_room_offers_mistakes_of_every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = EXAMPLES["ffn"].record()
    numbers = sum(b.value.array.size for s in recording.steps for b in s.bound if b.value.array is not None)
    monkeypatch.setattr("minitransformer.school.show.stepper.page_bugs.ROOM", 5 * numbers)
    bugs = data_of(to_html(recording))["bugs"]
    assert {bug["in"] for bug in bugs} == {"FeedForward", "Linear", "linear", "relu"} and len(bugs) <= 5
    monkeypatch.setattr("minitransformer.school.show.stepper.page_bugs.NUMBERS", numbers - 1)
    assert data_of(to_html(recording))["bugs"] == []
    assert [bug["name"] for bug in data_of(to_html(recording, bugs=["linear-dbias-mean"]))["bugs"]] == [
        "linear-dbias-mean"
    ]


@pytest.mark.slow
def test_mistakes_leave_no_trace_in_each_other() -> None:
    """One of them takes an optimiser's step inside backward, and all after it began with other parameters."""
    recording = EXAMPLES["ffn"].record()
    before = recording.again()
    page = to_html(recording)
    for key, array in values_of(recording.again()).items():
        np.testing.assert_array_equal(array, values_of(before)[key])
    assert to_html(recording) == page


@pytest.mark.slow
def test_a_mistake_that_changes_an_input_leaves_the_callers_alone() -> None:
    """softmax-changes-x does; the next page that was made of the same array showed other numbers."""
    x = X.copy()
    recording = step(ops.softmax, x)
    page = to_html(recording)
    np.testing.assert_array_equal(x, X)
    assert to_html(recording) == page


@pytest.mark.slow
def test_what_runs_in_backward_says_so_and_gradients_in_a_helper_are_gradients() -> None:
    """The badge said "forward" in `_split in backward`, whose x, a gradient, had the colour of values."""
    recording = EXAMPLES["multi-head"].record()
    data = data_of(to_html(recording, bugs=()))
    helpers = [i for i, call in enumerate(data["calls"]) if call["label"].partition("#")[0] == "_split in backward"]
    assert helpers and all(data["calls"][i]["backward"] for i in helpers)
    bound = [b for s in data["steps"] if s["call"] in helpers for b in s["bound"] if b["name"] == "x"]
    assert bound and all(b.get("gradient") for b in bound)
    again = step(layers.Recompute(layers.FeedForward(4, 5)), X.astype(np.float32))
    data = data_of(to_html(again, bugs=()))
    second = [i for i, call in enumerate(data["calls"]) if call["label"] == "FeedForward in backward"]
    shown = {b["name"]: "gradient" in b for s in data["steps"] if s["call"] in second for b in s["bound"]}
    assert shown["dy"] and shown["dx"] and not shown["x"] and not shown["y"]
    assert all(data["calls"][i]["backward"] for i in second)


def test_a_mistake_that_the_shapes_refuse_is_said_to_be_refused() -> None:
    q, k, v = (RNG.normal(size=shape) for shape in ((2, 3), (4, 3), (4, 5)))
    data = data_of(to_html(step(ops.attention, q, k, v), bugs=["attention-dk-not-transposed"]))
    assert "refused" in data["bugs"][0] and "numbers" not in data["bugs"][0]


def test_unknown_mistakes_and_changed_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown mistake 'no-such'"):
        to_html(worked(), bugs=["no-such"])
    x = X.copy()
    recording = step(ops.softmax, x)
    x[0, 0] += 1.0
    with pytest.raises(ValueError, match="gives other numbers"):
        to_html(recording)
    assert data_of(to_html(recording, bugs=()))["bugs"] == []


def test_rounding_is_no_difference() -> None:
    right = np.array([1.0, 1.0, np.inf, np.nan, 0.0, 1.0, -np.inf])
    wrong = np.array([1.0 + 1e-12, 1.0 + 1e-6, np.inf, np.nan, np.nan, -np.inf, 1.0])
    assert differ(right, wrong).tolist() == [False, True, False, False, True, True, True]


@pytest.mark.slow
def test_written_file_is_the_page_and_nothing_else_is_left(tmp_path: Path) -> None:
    page = to_html(worked(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(OSError, match=r"cannot write .*nowhere.page\.html: No such file"):
        to_html(worked(), tmp_path / "nowhere" / "page.html")


@pytest.mark.slow
def test_large_arrays_are_summarised_and_the_page_stays_small() -> None:
    model = layers.Encoder(4, 64, 4, 128, rng=np.random.default_rng(7)).to(dtype="float64")
    page = to_html(step(model, np.random.default_rng(8).normal(size=(1, 64, 64))))
    data = data_of(page)
    assert len(page.encode()) < 10e6
    assert any("summary" in array for array in data["arrays"])
    for array in data["arrays"]:
        size = int(np.prod(array["shape"]))
        assert ("data" in array or "float32" in array) == (size <= data["limits"]["array"])
        if "summary" in array:
            corner = array["corner"]
            assert corner["shape"] == [min(axis, 8) for axis in array["shape"][-2:]]
            assert len(base64.b64decode(corner["float32"])) == 4 * int(np.prod(corner["shape"]))


def test_page_without_room_for_corners_leaves_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.full((9, 9), float(i)) for i in range(50)]

    def fitted(budget: int) -> list[Any]:
        monkeypatch.setattr("minitransformer.school.show.stepper.page_data.BUDGET", budget)
        pool = Pool()
        for array in arrays:
            pool.hold(copied(array))
        return pool.fitted()[0]

    assert all("data" in array for array in fitted(100_000))
    assert all("corner" in array and "summary" in array for array in fitted(30_000))
    smallest = fitted(10_000)
    assert all("corner" not in array and array["summary"].startswith("81 numbers from ") for array in smallest)
    assert max(len(json.dumps(fitted(budget))) - budget for budget in (100_000, 30_000, 10_000)) <= 0
