"""The arrows of the map against what the recording says: an arrow leads where data flows, and nowhere else."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer import ideas
from minitransformer.check.trace.calls import Binding
from minitransformer.layers import MultiHeadAttention
from minitransformer.school.show.stepper import Recording, page_map, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.school.show.stepper.series import row_of
from minitransformer.school.show.stepper.steps import Step

from .conftest import Example, Open
from .reading import current, go

ASSIGNMENT = re.compile(r"[\w, *()]+ = ")
Edges = set[tuple[str, str]]


@functools.cache
def recorded(name: str) -> Recording:
    if name == "mixture":
        x = np.random.default_rng(1).normal(size=(8, 4))  # each expert is chosen
        return step(ideas.MixtureOfExperts(4, 5, 4, 2, rng=np.random.default_rng(2)).to(dtype="float64"), x)
    if name == "masked":
        x, mask = np.random.default_rng(1).normal(size=(2, 3, 4)), np.ones((2, 3, 3), dtype=bool)
        return step(MultiHeadAttention(4, 2, rng=np.random.default_rng(2)).to(dtype="float64"), x, mask=mask)
    return EXAMPLES[name].record()


# What is drawn: the row of a box, as nested lists. A group is drawn as its row alone, without what comes in.
DRAWN = """
(box) => {
  const nameOf = (input) => input.dataset.place.slice("input ".length);
  const partOf = (element) => {
    if (element.matches(".row")) return { row: [...element.children].map((li) => partOf(li.firstElementChild)) };
    if (element.matches(".branches"))
      return { branches: [...element.children].map((li) => partOf(li.firstElementChild)) };
    if (element.matches(".ranks")) return { ranks: true };
    if (element.matches(".around")) return { row: [], around: element.textContent };
    if (element.matches(".joined")) {
      const [inputs, place] = element.children;
      return { ...partOf(place), beside: [...inputs.children].map(nameOf) };
    }
    const beside = element.dataset.beside ? { beside: element.dataset.beside.split(",") } : {};
    return { place: element.dataset.place, text: element.textContent, ...beside };
  };
  const figure = document.querySelector(`#map :is(.figure, .group)[data-place="box ${box}"]`);
  const row = figure?.querySelector(":scope > .row");
  if (!row) return null;
  const found = partOf(row);
  const first = found.row[0];
  if (first?.place?.startsWith("input") && found.row[1]?.place && figure.matches(".figure")) {
    const group = document.querySelector(`#map .group[data-place="${found.row[1].place}"]`);
    if (group?.dataset.input === first.place.slice("input ".length)) found.row.shift(); // what comes in to the group
  }
  if (figure.dataset.input) found.row.unshift({ place: `input ${figure.dataset.input}` });
  return found;
}
"""


def drawn_edges(part: dict[str, Any], before: set[str]) -> tuple[Edges, set[str]]:
    """The arrows that a reader sees, (from, to), and from where the next arrow comes."""
    edges: Edges = set()
    if part.get("place", "").startswith("line"):  # a part of what a line computes
        return edges, before
    if "place" in part:
        beside = {f"input {name}" for name in part.get("beside", ())}
        return {(source, part["place"]) for source in before | beside}, {part["place"]}
    if "row" in part:
        for inner in part["row"]:
            more, before = drawn_edges(inner, before)
            edges |= more
        return edges, before
    after = set()
    for branch in part["branches"]:
        more, last = drawn_edges(branch, before)
        edges |= more
        after |= last
    return edges, after


def drawn(page: Page, recording: Recording, box: int, of: list[int]) -> dict[str, Any] | None:
    """Go to a line of the box in its forward pass, and read the row."""
    inside = (s.index for s in recording.steps if of[s.call] == box and not recording.calls[s.call].in_backward)
    go(page, next(i for i in inside if page.evaluate(f"data.steps[{i}].shown")))
    return page.evaluate(DRAWN, box)


class Expected:
    """The edges in one box, by a rule that reads whole statements: what a line binds comes from all that it reads, and
    what a call of a box returns, from that box. Lines that do more than one of these in one statement are not judged.
    """

    def __init__(self, recording: Recording, of: list[int], box: int, sums: dict[int, str]) -> None:
        self.recording, self.of, self.box, self.sums = recording, of, box, sums
        self.children = [
            c.index for c in recording.calls if c.parent is not None and of[c.parent] == box and of[c.index] == c.index
        ]

    def edges_to(self, place: str) -> Edges | None:
        kind, number = place.split()
        if kind in ("sum", "product"):
            step = self.recording.steps[int(number)]
            found = [] if self.recording.calls_in(step) else [self.sources(b) for b in self.read_by(step)]
            known = bool(found)
        else:
            first = self.recording.steps_of(self.recording.calls[int(number)])[0]
            given = [bound for bound in first.bound if bound.value.shape]
            found = [self.sources(bound) for bound in given]
            unpacked = any(isinstance(value, tuple) and value for value in first.other.values())  # *others
            known = not unpacked and all(bound.origin is not None for bound in given)
        if not known or None in found:
            return None
        return {(source, place) for sources in found for source in sources or ()}

    def read_by(self, step: Step) -> Iterator[Binding]:
        seen = self.recording.visible(step)
        statement = ast.parse(step.source).body[0]
        index = {n for part in ast.walk(statement) if isinstance(part, ast.Subscript) for n in ast.walk(part.slice)}
        sizes = {part.value for part in ast.walk(statement) if isinstance(part, ast.Attribute) and part.attr == "shape"}
        called = [part for part in ast.walk(statement) if isinstance(part, ast.Call)]
        sizes |= {part for call in called if ast.unparse(call.func) == "device_of" for part in call.args}
        for node in ast.walk(statement):
            is_read = isinstance(node, ast.Name) and (
                isinstance(node.ctx, ast.Load) or isinstance(statement, ast.AugAssign)
            )
            if is_read and node not in index | sizes and node.id in seen and seen[node.id].value.shape:
                yield seen[node.id]

    def sources(self, bound: Binding) -> set[str] | None:
        """Where an array comes from, as the place in the drawing; None where this rule does not tell."""
        step = self.recording.binding(bound.serial)[0]
        call = self.recording.calls[step.call]
        inner = self.recording.calls_in(step)
        if self.of[call.index] != self.box:
            outer: int | None = call.index
            while outer is not None and outer not in self.children:
                outer = self.recording.calls[outer].parent
            if outer is None:
                return {f"input {bound.name}"}
            if step is not self.recording.steps_of(self.recording.calls[outer])[0]:
                return {f"box {outer}"}
            return None if bound.origin is None else self.sources(self.recording.binding(bound.origin)[1])
        if step.index in self.sums:
            return {self.sums[step.index]}
        if step is self.recording.steps_of(call)[0]:
            if call.index == self.box:
                return {f"input {bound.name}"}
            return None if bound.origin is None else self.sources(self.recording.binding(bound.origin)[1])
        if not inner and bound.origin is not None:  # another name of an array
            return self.sources(self.recording.binding(bound.origin)[1])
        if bound.in_place or not ASSIGNMENT.match(step.source):
            return None
        parsed = ast.parse(step.source).body[0]
        if not inner:
            found = [self.sources(read) for read in self.read_by(step)]
            return None if None in found else {source for sources in found for source in sources or ()}
        if isinstance(parsed.value, ast.Call):
            if self.of[inner[-1].index] == inner[-1].index:
                return {f"box {inner[-1].index}"}
            if bound.origin is not None:
                return self.sources(self.recording.binding(bound.origin)[1])
        return None


def judged(page: Page, recording: Recording, data: dict[str, Any]) -> tuple[int, list[str]]:
    """How many places the rule judges, and which of them have different arrows."""
    of, wrong, count = data["map"]["of"], [], 0
    for box in map(int, data["map"]["boxes"]):
        tree = drawn(page, recording, box, of) if data["map"]["boxes"][str(box)]["row"] else None
        if tree is None or "ranks" in str(tree):
            continue
        edges, _ = drawn_edges(tree, set())
        places = set(_places(tree))
        expected = Expected(
            recording, of, box, {int(p.split()[1]): p for p in places if p.startswith(("sum", "product"))}
        )
        for place in places:
            if place.startswith(("input", "line")) or (edges_to := expected.edges_to(place)) is None:
                continue
            count += 1
            seen = {edge for edge in edges if edge[1] == place}
            inputs = {source for source, _ in edges_to if source.startswith("input")}
            left_out = inputs - places - {f"input {name}" for name in _beside(tree)}  # it leads to one box alone
            edges_to = {edge for edge in edges_to if edge[0] not in left_out}
            at_most = len(inputs) if not data["map"]["boxes"][str(box)]["name"] and places == {place} else 1
            if seen != edges_to or len(left_out) > at_most:  # what comes in to a group of one comes in to that one
                wrong.append(f"{recording.calls[box].label}: {place}: drawn {seen}, expected {edges_to}")
    return count, wrong


def _places(part: dict[str, Any]) -> Iterator[str]:
    if "place" in part:
        yield part["place"]
    for inner in (*part.get("row", ()), *part.get("branches", ())):
        yield from _places(inner)


def _beside(part: dict[str, Any]) -> Iterator[str]:
    yield from part.get("beside", ())
    for inner in (*part.get("row", ()), *part.get("branches", ())):
        yield from _beside(inner)


EXPECTED = {  # how many places the rule judges at least, in the larger recordings
    "multi-head": 10,
    "encoder-layer": 20,
    "decoder-layer": 30,
    "gpt": 30,
    "mixture": 15,
}


OFTEN = {"encoder-layer", "lstm", "mixture", "masked"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in OFTEN else pytest.param(name, marks=pytest.mark.sweep)
        for name in [*EXAMPLES, "mixture", "masked"]
    ],
)
def test_an_arrow_leads_where_data_flows_and_nowhere_else(open_page: Open, tmp_path: Path, name: str) -> None:
    recording = recorded(name)
    recording.to_html(tmp_path / "page.html", bugs=())
    count, wrong = judged(open_page(tmp_path / "page.html"), recording, page_data(recording))
    assert wrong == []
    assert count >= EXPECTED.get(name, 0)


def chain(nodes: Iterable[Any], edges: Any) -> list[Any]:
    """The map as it was: an arrow from each box to the next."""
    return list(nodes)


def without_residuals(nodes: Iterable[Any], edges: dict[Any, str]) -> list[Any]:
    """A map that forgets what goes around."""
    return row_of(nodes, [(a, b) for a, b in edges if not (a[0] == "input" and b[0] == "sum")])


@pytest.mark.parametrize(("layout", "name"), [(chain, "worked-example"), (without_residuals, "encoder-layer")])
def test_a_map_that_draws_other_arrows_is_found(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Callable[..., Any], name: str
) -> None:
    monkeypatch.setattr(page_map, "row_of", layout)
    recording = recorded(name)
    recording.to_html(tmp_path / "page.html", bugs=())
    _, wrong = judged(open_page(tmp_path / "page.html"), recording, page_data(recording))
    assert wrong


def text_of(part: dict[str, Any], data: dict[str, Any]) -> str:
    """The drawing as one line: in { } what lies side by side."""
    if "row" in part:
        return f"-{part['around']}-" if "around" in part else " > ".join(text_of(inner, data) for inner in part["row"])
    if "branches" in part:
        return "{" + " | ".join(text_of(inner, data) for inner in part["branches"]) + "}"
    kind, number = part["place"].split()
    if kind == "line":
        return part["text"]
    name = (
        (data["map"]["boxes"][number]["name"] or re.split(r"[.#]", data["calls"][int(number)]["label"])[0])
        if kind == "box"
        else {"sum": "+", "product": "×"}.get(kind, number)
    )
    return name + "".join(f" <- {text}" for text in part.get("beside", ()))


ATTENTION = "{q | k} > × > Scale > Mask (opt.) > Softmax > × <- v"
HEADS = "x > {Linear Q | Linear K | Linear V} > ScaledDotProduct > Concat heads > Linear"
RESIDUAL = "x > {%s | -X residual connection-} > + > Layer Norm"
PRE_NORM = "x > {Layer Norm > %s | -X residual connection-} > +"
PAPER = {  # Vaswani et al. 2017, figures 1 and 2. gpt has its norms first: Xiong et al. 2020
    "worked-example": {
        "self_attention": "x > {Linear Q <- w_q | Linear K <- w_k | Linear V <- w_v} > Scaled Dot-Product Attention",
        "attention": ATTENTION,
    },
    "attention": {"attention": ATTENTION},
    "multi-head": {"MultiHeadAttention": HEADS, "attention": ATTENTION},
    "encoder-layer": {
        "EncoderLayer": "Residual > Residual",
        "Residual#1": RESIDUAL % "Multi-Head Attention",
        "MultiHeadAttention": HEADS,
        "Residual#2": RESIDUAL % "Feed Forward",
        "FeedForward": "Linear hidden > ReLU > Linear Y",
    },
    "decoder-layer": {
        "DecoderLayer": "Residual > Residual <- memory > Residual",
        "Residual#1": RESIDUAL % "Multi-Head Attention",
        "MultiHeadAttention#1": HEADS,
        "Residual#2": RESIDUAL % "Multi-Head Attention <- memory",
        "MultiHeadAttention#2": "{x > Linear Q | memory > {Linear K | Linear V}} > " + HEADS.partition("} > ")[2],
        "Residual#3": RESIDUAL % "Feed Forward",
    },
    "gpt": {
        "EncoderLayer": "Residual > Residual",
        "Residual#1": PRE_NORM % "Multi-Head Attention",
        "Residual#2": PRE_NORM % "Feed Forward",
        "LanguageModel.loss": "LanguageModel > Cross-entropy <- wanted",
    },
    "masked": {"MultiHeadAttention": HEADS.replace("Product", "Product <- mask")},
    "grouped-attention": {  # Ainslie et al. 2023, figure 2: what is shared lies inside of what mixes
        "MultiHeadAttention": HEADS.replace("ScaledDotProduct", "Grouped"),
        "Grouped": "{k > Repeat heads all k | v > Repeat heads all v} > ScaledDotProduct <- q",
    },
    "mixture": {  # Shazeer et al. 2017, figure 1; gated experts: Shazeer 2020
        "MixtureOfExperts": "x > {Linear > {Top K | Top K chosen} | "
        + " | ".join(["Gated Feed Forward output"] * 4)
        + "} > +",
        "GatedFeedForward#1": "x > {Linear gate | Linear hidden} > Gated > Linear Y",
    },
}


@pytest.mark.few(2, slow=0)
@pytest.mark.parametrize("name", PAPER)
def test_the_map_is_the_papers_figure(open_page: Open, tmp_path: Path, name: str) -> None:
    """Linear Q, K and V looked like a chain, and no residual connection was to be seen."""
    recording = recorded(name)
    recording.to_html(tmp_path / "page.html", bugs=())
    page, data = open_page(tmp_path / "page.html"), page_data(recording)
    for label, expected in PAPER[name].items():
        (call,) = (c.index for c in recording.calls if c.label == label and not c.in_backward)
        assert text_of(drawn(page, recording, call, data["map"]["of"]), data) == expected


def test_branches_stand_side_by_side_and_are_told(open_page: Open, example: Example) -> None:
    page = open_page(example("multi-head")[1])
    branches = page.get_by_role("list", name="3 branches")
    assert branches.locator("button").all_inner_texts() == ["Linear Q", "Linear K", "Linear V"]
    items = branches.locator(":scope > li")
    boxes = [item.bounding_box() for item in items.all()]
    assert len({box["y"] for box in boxes}) == 1 and all(a["x"] < b["x"] for a, b in pairwise(boxes))
    arrow = "(li) => getComputedStyle(li, '::after').content"
    assert items.evaluate_all(f"all => all.map({arrow})") == ["none"] * 3
    attention = page.locator("button:text-is('Scaled Dot-Product Attention')")
    follows = page.locator("#map .row > li", has=attention).first  # of the mixer, drawn as what is in it
    assert follows.evaluate(arrow) == '"↑"'  # from the bottom up
    page.keyboard.press("End")
    assert follows.evaluate(arrow) == '"↓"'


def test_a_sum_is_a_place_to_go_to(open_page: Open, example: Example) -> None:
    recording, path = example("encoder-layer")
    page = open_page(path)
    page.locator("#map button:text-is('+')").first.click()
    assert current(page) == recording.find("Residual._post#1.total")[0].index
    assert page.locator("#map [aria-current]").inner_text() == "+"


def test_a_layout_takes_time_in_proportion_to_the_arrows() -> None:
    """A chain of n residual connections: from n to 2 n, the work doubles."""

    def lines_run(n: int) -> int:
        edges = [(i, i + 1) for i in range(3 * n)] + [(3 * i, 3 * i + 3) for i in range(n)]
        count = 0

        def counted(*_: Any) -> Any:
            nonlocal count
            count += 1
            return counted

        before = sys.gettrace()
        sys.settrace(counted)
        try:
            row = row_of(range(3 * n + 1), edges)
        finally:
            sys.settrace(before)
        assert len(row) == 2 * n + 1
        return count

    assert lines_run(400) < 2.5 * lines_run(200)
