"""Each typeset formula says what its line does: read from the page, it gives the recorded numbers."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import itertools
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from formula_reading import Formula, key
from tiers import first_of_each

from minitransformer import ops, step
from minitransformer.check.trace.calls import Call
from minitransformer.school.show import font
from minitransformer.school.show.stepper import NotExpandable, Recording, mathml, page_data
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.expressions import (
    Applied,
    Expression,
    Member,
    Name,
    Statement,
    argument_in,
    arguments,
    expression,
    inner,
    is_joined,
    member,
    names,
    unstarred,
)
from minitransformer.school.show.stepper.naming import as_function
from minitransformer.school.show.stepper.paper import PaperFormula
from minitransformer.school.show.stepper.steps import Step
from minitransformer.school.show.stepper.symbols import symbols_of
from minitransformer.school.show.stepper.walk import walk_of
from minitransformer.verify import CASES

FONT = resources.files("minitransformer.school.show").joinpath("formulas.woff2")
GLYPHS = TTFont(io.BytesIO(FONT.read_bytes())).getBestCmap()
OPS = [case for case in CASES.values() if case.kind == "op"]


class Line:
    """A recorded line, and what its symbols, its code and its calls stand for."""

    def __init__(self, recording: Recording, at: Step) -> None:
        self.recording, self.step = recording, at
        self.walk = walk_of(recording, at)
        self.statement = self.walk.statement
        self.waiting = list(self.walk.made.items())

    def symbols(self) -> dict[str, Any]:
        """What the names of the code stand for."""
        found = {}
        parts = self.statement.everything
        within = {id(part.of) for part in parts if isinstance(part, Member)}
        for part in sorted(parts, key=lambda part: getattr(part, "name", "") == "value"):  # of a parameter: at last
            if isinstance(part, Name) or (isinstance(part, Member) and id(part) not in within):
                with contextlib.suppress(NotExpandable):
                    found[key(mathml.Formula(()).expression(part))] = self.walk.value(part)
        return found

    def paper_symbols(self) -> dict[str, Any]:
        """What the symbols of a paper stand for; one symbol may not stand for two arrays."""
        found: dict[str, Any] = {}
        for bound in self.walk.bound.values():
            symbol = key(symbols_of(self.recording).of(bound))
            value = bound.value.plain()
            if symbol in found and bound.name in names(*self.statement.targets, self.statement.value):
                assert_same(found[symbol], value, f"{symbol} is {bound.title} and something else")
            found[symbol] = value
        return found

    def code(self, text: str) -> Any:
        if text == "j" and text not in self.walk.names:
            return np.arange(self.step.bound[0].value.shape[-1])
        if text == "i" and text not in self.walk.names:
            return np.arange(self.step.bound[0].value.shape[-2])[:, None]
        return eval(text, self.walk.names | {"_at": _At()})

    def weights(self, made: Applied, call: Call) -> dict[str, Any]:
        """The weights of the layers that a call is given, by argument."""
        found = {}
        for name in arguments(call.code):
            layer = argument_in(made, call.code, name)
            if isinstance(layer, Member):
                with contextlib.suppress(NotExpandable):
                    found[name] = self.walk.value(member(layer, "weight", "value"))
        return found

    def call(self, name: str, given: list[Any]) -> Any:
        """The result of a function; of a recorded one the recorded result, if it was given what the formula says."""
        if name == "heads":
            (rows,) = given
            *before, n_heads, length, width = self.step.bound[0].value.shape
            return rows.reshape(*before, length, n_heads, width).swapaxes(-2, -3)
        joins = [p for p in self.statement.everything if isinstance(p, Applied) and p.name in ("concatenate", "stack")]
        if name == "Concat" and joins:
            given = list(given[0]) if isinstance(given[0], list) else given
            arrays = [a if np.ndim(a) else np.zeros_like(given[0][..., :1]) for a in given]
            return getattr(np, joins[0].name)(arrays, axis=self.walk.value(joins[0].options["axis"]))
        if name == "Concat" and not any(c.name == "merge_heads" for _, c in self.waiting):
            *before, n_heads, length, width = given[0].shape  # of a gradient: the heads of a projection
            return given[0].swapaxes(-2, -3).reshape(*before, length, n_heads * width)
        for i, (node, call) in enumerate(self.waiting):
            called = ast.unparse(node.func)
            of = mathml.map_of(called)
            index = "" if of is None else "".join(of.itertext())
            if name not in (index if mathml.is_pullback(called) else called, called, self.recording.function_for(call)):
                continue
            del self.waiting[i]
            taken = {bound.name: bound.value.array for bound in self.recording.steps_of(call)[0].bound}
            given = [value for value in _flat(tuple(given)) if isinstance(value, np.ndarray) and value.ndim]
            weights = self.weights(expression(node), call)
            if any(value is weight for value in given for weight in weights.values()):  # the code passes the layer
                taken |= weights
            arrays = [taken[a] for a in arguments(call.code) if np.ndim(taken.get(a, 0))]
            for value, array in zip(given, arrays, strict="*" in ast.unparse(node) or len(given) == len(arrays)):
                assert_same(value, array, f"an argument of {name}")
            return plain(call.results)
        inside = self.inside(name, given)
        if inside is not None:
            return inside
        if name == "softmax":  # of a formula for the whole of a call's lines
            return ops.softmax(*given)[0]
        name = next((of_numpy for of_numpy in ("tril",) if as_function(of_numpy) == name), name)
        return getattr(np, name)(*given) if hasattr(np, name) else self.code(name)(*given)

    def inside(self, name: str, given: list[Any]) -> Any:
        """What a function returned that the line's calls call with these arrays, as Residual calls its sub-layer."""
        for call in self.recording.calls:
            last = self.recording.steps_of(call)[-1].index
            if as_function(call.name) != name or call.backward or last > self.step.index:
                continue
            taken = [b.value.array for b in self.recording.steps_of(call)[0].bound if b.name in arguments(call.code)]
            taken = [array for array in taken if np.ndim(array)]
            if len(taken) == len(given) and all(np.array_equal(a, b) for a, b in zip(given, taken, strict=True)):
                return plain(call.results)[0] if isinstance(call.results, tuple) else plain(call.results)
        return None


class _At:
    def __getitem__(self, index: Any) -> Any:
        return index


def plain(results: Any) -> Any:
    if isinstance(results, tuple):
        return tuple(map(plain, results))
    return None if results is None else results.value.plain()


def assert_same(value: Any, recorded: Any, what: str) -> None:
    value, recorded = np.asarray(value), np.asarray(recorded)
    if "reshape" in what and value.size == recorded.size:  # a paper does not write the last change of shape
        value = value.reshape(recorded.shape)
    sizes = [[size for size in a.shape if size != 1] for a in (value, recorded)]
    if sizes[0] != sizes[1]:
        value = np.broadcast_to(value, recorded.shape)
    near = 1e-6 if recorded.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(value.ravel(), recorded.ravel(), rtol=near, atol=near, err_msg=what)


def targets_of(statement: Statement) -> list[Expression]:
    return [part for target in statement.targets for part in _parts(target)]


def _parts(target: Expression) -> list[Expression]:
    if is_joined(target, ","):
        return [part for inside in inner(target) for part in _parts(inside)]
    return [unstarred(target)]


class Read(PaperFormula):
    """leaves: what stands for an attribute or a size, by the text of its symbol."""

    def __init__(self, recording: Recording, at: Step) -> None:
        super().__init__(recording, at)
        self.leaves: dict[str, Any] = {}

    def expression(self, whole: Expression, within: int = 0) -> Element:
        element = super().expression(whole, within)
        plain = self.rewritten(whole)
        moved = isinstance(plain, Applied) and (plain.name == "reshape" or element.tag == "mi")  # S, without arguments
        moved |= isinstance(plain, Applied) and plain.name == "arange"  # (0, 1, 2)
        if (isinstance(whole, Member) and whole.name != "T") or is_joined(whole, "[]") or moved:
            with contextlib.suppress(NotExpandable):
                self.leaves[key(element)] = self.walk.value(whole)
        return element


def _flat(value: Any) -> list[Any]:
    return [part for inner in value for part in _flat(inner)] if isinstance(value, tuple) else [value]


def check(recording: Recording, at: Step, element: Element, line: Line, symbols: dict[str, Any]) -> int:
    """Compute the formula and compare it with what the step bound; return how many arrays and numbers that were."""
    try:
        return _check(at, element, line, symbols, keeps=True)
    except (AssertionError, ValueError):
        return _check(at, element, Line(recording, at), symbols, keeps=False)


def _check(at: Step, element: Element, line: Line, symbols: dict[str, Any], keeps: bool) -> int:
    formula = Formula(symbols, line.code, line.call, keeps)
    _, right = formula.sides(element)
    if "scatter_add" in at.source:  # dtable_ids ← dtable_ids + rows, where an id may come twice
        (added,) = at.bound
        array = np.zeros_like(added.value.array)
        np.add.at(array, formula.value(right[0][1]), formula.values(right[2:])[0])
        assert_same(array, added.value.array, added.title)
        return 1
    targets = targets_of(line.statement)
    values = _flat(tuple(formula.values(right)))
    if len(values) != len(targets):
        targets = [t for t in targets if not (isinstance(t, Name) and t.id.endswith(("backward", "pullback")))]
    if line.statement.kind == "assign" and line.statement.targets[0].text.strip("()").rpartition(", ")[2][0] == "*":
        targets = targets[: len(values)]
    bound = {b.name: b for b in at.bound}
    count = 0
    for target, value in zip(targets, values, strict=True):
        base, *index = inner(target) if is_joined(target, "[]") else [target]
        name = base.text
        if name not in bound:
            continue
        array = np.asarray(bound[name].value.array)
        if index:
            array = array[line.code(f"_at[{index[0].text.strip('()')}]")]
        assert_same(value, array, f"{bound[name].title} by {at.source}")
        count += 1
    return count


def equations_of(element: Element) -> list[Element]:
    """The parts of dX = dY Wᵀ, dW = Xᵀ dY; of Q, K = ..., which has one sign of equality, the whole."""
    pieces = [mathml.block([])]
    for part in element:
        if part.text == "," and any(other.text == "=" for other in pieces[-1]):
            pieces.append(mathml.block([]))
        else:
            pieces[-1].append(part)
    return pieces if all(any(part.text == "=" for part in piece) for piece in pieces) else [element]


def check_linear(recording: Recording, at: Step, equations: list[Element], symbols: dict[str, Any]) -> int:
    """The gradients of a linear map against those that its pullback computed."""
    (call,) = (c for c in recording.calls_in(at) if c.backward)
    while recording.calls[call.forward_call].name != "linear":
        call = next(c for inner in recording.steps_of(call) for c in recording.calls_in(inner))
    line = Line(recording, at)
    given = plain(call.results)
    for equation, recorded in zip(equations, given, strict=True):
        right = Formula(symbols, line.code, line.call, True).sides(equation)[1]
        value = np.asarray(Formula(symbols, line.code, line.call, True).values(right)[0])
        assert_same(value, recorded, f"a gradient of linear in {at.source}")
    return len(given)


def is_computed(recording: Recording, at: Step) -> bool:
    """Whether a step is shown and computes; not the head of a function or a loop, and nothing drawn at random."""
    statement = walk_of(recording, at).statement
    head = statement.kind in ("", "return") or isinstance(statement.node, ast.FunctionDef)
    return page_data.is_shown(at) and not head and "uniform(" not in at.source


def checked(recording: Recording) -> tuple[int, int]:
    """Check every formula, as code has it and as papers do; return how many numbers and arrays they gave."""
    counts = [0, 0]
    seen = set()  # a line that runs often needs one look for each formula that it has
    for at in recording.steps:
        if not is_computed(recording, at):
            continue
        line, paper = Line(recording, at), Read(recording, at)
        in_code, in_paper = mathml.formula(at.source, recording.scalars(at)), paper.line()
        if in_code is not None and (at.source, key(in_code)) not in seen:
            seen.add((at.source, key(in_code)))
            counts[0] += check(recording, at, in_code, line, line.symbols())
        if in_paper is not None and (at.source, key(in_paper)) not in seen:
            seen.add((at.source, key(in_paper)))
            equations = equations_of(in_paper)
            if len(equations) > 1:
                counts[1] += check_linear(recording, at, equations, paper.leaves | line.paper_symbols())
                continue
            counts[1] += check(recording, at, in_paper, Line(recording, at), paper.leaves | line.paper_symbols())
    return counts[0], counts[1]


@functools.cache
def recorded(name: str) -> Recording:
    return EXAMPLES[name].record()


@functools.cache
def page_of(name: str) -> dict[str, Any]:
    return page_data.page_data(recorded(name))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXAMPLES)
def test_formulas_of_examples(name: str) -> None:
    assert min(checked(recorded(name))) > 1


@pytest.mark.few(8, slow=45)
@pytest.mark.parametrize("case", first_of_each(OPS, variants=False))
def test_formulas_of_ops(case) -> None:
    setup = case.build(np.random.default_rng([0, 1]))
    recording = step(setup.f, *setup.inputs, **setup.options)
    assert min(checked(recording)) > 0 or case.name == "dropout switched off"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_formula_of_a_paper_is_written_as_code(name: str) -> None:
    data = page_of(name)
    shown = ["".join(characters(line["paper"])) for line in data["lines"] if line["paper"]]
    code = re.compile(
        r"reshape|stack\(|concatenate|swap|axis|device|zeros|mask\(|scoresof|\.\.\.|…|:|new,| \* |first\s1\s|from\s-1"
    )
    assert shown and [text for text in shown if code.search(text)] == []
    code = re.compile(r"[\w -]+ begins: |[\w -]+: .*=|.*\(1\)")  # of a docstring, in place of a sentence
    assert [line["sentence"] for line in data["lines"] if line["entry"] and code.match(line["sentence"])] == []
    assert {name for line in data["lines"] if line["paper"] for name in identifiers(line["paper"])} == set()


@pytest.mark.few(1, slow=40)
@pytest.mark.parametrize("name", sorted(EXAMPLES, key=lambda name: name not in ("qk-norm", "gpt", "state-space")))
def test_no_letter_stands_for_two_things(name: str) -> None:
    """Pairs (a, b) of RoPE were A and B beside the weights A, W_O a map of attention and one of the network, E the
    tables of tokens and of positions, H hidden units and the last vectors, and a state transposed was the table Eᵀ."""
    assert two_things(recorded(name)) == []


def test_an_axis_has_one_letter() -> None:
    """Q_i + K_j beside dQ = ∑_i, a sum over the keys; slopes_i, one for each head, beside ∑_{i,j} over positions."""
    shown = {name: [text_of(line["paper"]) for line in page_of(name)["lines"] if line["paper"]] for name in ADDED}
    assert all(any(text.startswith(each) for text in shown[name]) for name in ADDED for each in ADDED[name])


ADDED = {
    "additive-attention": ["match=tanh(Qh+Ki)", "dQ=∑iδ", "dK=∑hδ", "dw=∑h,idSi⊙match"],
    "alibi": ["B=(−slopesh)⊙distance", "dslopes=−∑i,j"],
}


def test_a_letter_of_ones_own_is_small_where_its_capital_is_taken() -> None:
    def f(x: np.ndarray) -> tuple[np.ndarray, Any]:
        a = x + 1.0
        weights = a * a
        y = weights + a

        def backward(dy: np.ndarray) -> np.ndarray:
            return dy * (2.0 * a + 1.0)

        return y, backward

    recording = step(f, np.array([[1.0, 2.0]]))
    shown = [text_of(line["paper"]) for line in page_data.page_data(recording)["lines"] if line["paper"]]
    assert "A=a2" in shown and "Y=A+a" in shown and two_things(recording) == []


def two_things(recording: Recording) -> list[tuple[str, Any, Any]]:
    """A letter and the two names, of the functions that have them, whose arrays it stands for."""
    found: dict[str, dict[Any, list[np.ndarray]]] = {}
    for letter, what, array in lettered(recording):
        found.setdefault(letter, {}).setdefault(what, []).append(array)
    pairs = [(letter, *pair) for letter, named in found.items() for pair in itertools.combinations(named, 2)]
    return [
        p for p in pairs if not any(itertools.starmap(np.array_equal, itertools.product(*map(found[p[0]].get, p[1:]))))
    ]


def lettered(recording: Recording) -> Iterator[tuple[str, Any, np.ndarray]]:
    """The letters, but for X and Y, of parameters and of what functions compute for themselves, and these arrays."""
    symbols = symbols_of(recording)
    for at in filter(page_data.is_shown, recording.steps):
        call = recording.calls[recording.calls[at.call].forward_call]
        made = [b for b in at.bound if b.value.array is not None and not b.call.backward]
        made = [b for b in made if b.name not in (*arguments(call.code), "_") and symbols.outside(b) is None]
        parts = [(symbols.of(b), (call.name.partition(" ")[0], b.name), np.asarray(b.value.array)) for b in made]
        walk, formula = walk_of(recording, at), PaperFormula(recording, at)
        for part in walk.statement.everything:
            if isinstance(part, Member) and part.name == "value" and isinstance(part.of, Member):
                owner = (call.name.partition(".")[0], part.of.text.removeprefix("self."))
                parts.append((formula._parameter_symbol(part, part.of), owner, np.asarray(walk.value(part))))
        for symbol, what, array in parts:
            base = symbol[0] if len(symbol) else symbol
            if len(base.text or "") == 1 and base.text not in "XY" and array.ndim:
                yield key(symbol), what, array


PLAIN = "exp log tanh sin cos max min mean argsort clip split".split()  # NumPy's names that papers have as well


def identifiers(part: list[Any]) -> set[str]:
    """What a formula writes as code does: of_all, 1_scores, compress_backward(of latent), arange(size), n near, and
    what it writes in the wrong order, as "reads" with the index "from"."""
    tag, _, *rest = part
    found: set[str] = set()
    for child, after in itertools.zip_longest(rest, rest[1:]):
        if isinstance(child, str):
            continue
        text = child[2] if child[0] in ("mi", "mtext") and len(child) > 2 else ""
        is_called = isinstance(after, list) and after[0] == "mrow" and after[2][2] == "("
        is_index = tag in ("msub", "msubsup") and child is rest[1]
        words = text.split("\u00a0")
        if "_" in text or "backward" in words[1:] or (words[0] == "of" and text) or (len(words) > 1 and not is_called):
            found |= set() if (is_index and "_" not in text) or words == ["if", ""] else {text}
        if hasattr(np, text) and text not in PLAIN and is_called:
            found |= {text}
        if is_index and text in ("from", "through", "in", "of", "passed"):
            found |= {text}
        if is_index and child[0] == "mi" and rest[0][0] == "mn":  # 1 with the index "scores"
            found |= {text}
        found |= identifiers(child)
    return found


def test_queries_keys_and_values_are_told_apart_by_their_weights() -> None:
    """They were Q = heads(X), K = heads(X) and V = heads(X)."""
    data = page_of("multi-head")
    shown = {"".join(characters(line["paper"])) for line in data["lines"] if "self.project(" in line["text"]}
    letters = str.maketrans({italic(c): c for c in "QKVWXb"})
    assert {text.translate(letters) for text in shown} == {f"{c}=heads(X W{c}+b{c})".replace(" ", "") for c in "QKV"}


def test_the_gradient_of_the_input_is_written_with_the_weights() -> None:
    """It was dX = J_qᵀ dQ + J_kᵀ dK + J_vᵀ dV, and nothing said what J is."""
    lines = page_of("multi-head")["lines"]
    (dx,) = (line for line in lines if line["paper"] and "q_backward(dq)" in line["text"])
    assert text_of(dx["paper"]) == "dX=" + "+".join(f"Concat(d{c})\u2009W{c}T" for c in "QKV").replace("\u2009", "")
    told = [line["sentence"] for line in lines if line["paper"] and "J" in text_of(line["paper"])]
    assert len(told) == 1 and told[0].endswith(" J: the Jacobian of Scaled Dot-Product Attention, never formed.")


@pytest.mark.parametrize("name", ["ffn", "multi-head"])
def test_a_linear_map_has_the_gradient_of_its_bias(name: str) -> None:
    """Beside Y = X W + b stood dX, dW = Jᵀ dY, without db."""
    data = page_of(name)
    lines = [line for line in data["lines"] if line["paper"] and "backward(d" in line["text"]]
    shown = ["".join(characters(line["paper"])) for line in lines]
    dw, db = (f"d{chr(italic(c))}" for c in "Wb")
    assert sum(dw in text for text in shown) >= 3
    assert [text for text in shown if dw in text and not (db in text and "=∑" in text)] == []


@pytest.mark.few(4)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_font_of_the_page_has_every_character_of_the_formulas(name: str) -> None:
    """As a browser shows them: a letter on its own is an italic one of mathematics (MathML Core, section 4.2)."""
    data = page_of(name)
    formulas = [line[kind] for line in data["lines"] for kind in ("math", "paper") if line[kind]]
    shown = {c for part in [*formulas, *data["symbols"], *data["names"].values()] for c in characters(part)}
    assert len(shown) > 5 and {c for c in shown if ord(c) not in GLYPHS} == set()


def test_the_font_has_the_characters_that_its_module_lists() -> None:
    listed = (part.partition("-") for part in font.CHARACTERS.split(","))
    assert set(GLYPHS) == {c for first, _, last in listed for c in range(int(first, 16), int(last or first, 16) + 1)}


def characters(part: list[Any]) -> str:
    tag, attributes, *rest = part
    text = "".join(child if isinstance(child, str) else characters(child) for child in rest)
    if tag != "mi" or len(text) > 1 or "mathvariant" in attributes or not text.isalpha():
        return text
    return {"h": "ℎ", "ℒ": "ℒ", "ℓ": "ℓ"}.get(text) or chr(italic(text))


def italic(letter: str) -> int:
    """The Unicode Standard, chapter 22.2: the italic letters are in the order of the upright ones."""
    for first, start in (("A", 0x1D434), ("a", 0x1D44E), ("Α", 0x1D6E2), ("α", 0x1D6FC)):
        if 0 <= ord(letter) - ord(first) < 26:
            return start + ord(letter) - ord(first)
    raise ValueError(letter)


def test_a_value_keeps_its_symbol_and_a_return_has_symbols() -> None:
    """Softmax said largest and then shift, showed a temperature of 1, and attention returned dq, dk, dv."""
    data = page_data.page_data(EXAMPLES["attention"].record())
    lines = [data["lines"][step["line"]] for step in data["steps"] if step.get("stop")]
    formulas = [text_of(line["paper"] or line["math"]) for line in lines]
    assert "exponentials=eX−largest" in formulas and formulas[-1].endswith("dQ,dK,dV")
    assert not any("temperature" in line["uses"] or "temperature" in line["sentence"] for line in lines)
    warm = page_data.page_data(step(ops.softmax, np.array([[1.0, 2.0]]), temperature=2.0))
    assert any("temperature" in line["uses"] for line in warm["lines"] if line["paper"])


def text_of(element: list[Any]) -> str:
    return "".join(child if isinstance(child, str) else text_of(child) for child in element[2:])
