"""Every step has a sentence, and it names only what its line has."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re

import numpy as np
import pytest
from tiers import in_one

from minitransformer import layers, ops, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import is_shown
from minitransformer.school.show.stepper.recording import Recording
from minitransformer.school.show.stepper.sentences import _begins, _read, names_of, outside_of, sections, sentence_of
from minitransformer.school.show.stepper.stops import stops_of
from minitransformer.school.show.stepper.symbols import LETTERS
from minitransformer.school.show.stepper.terminal import Viewer

GLOSSARY = sections()["glossary"]
# "The `bias` is added" is "The b is added" on the page.
AS_A_WORD = re.compile(rf"\b[Tt]he `({'|'.join(LETTERS)})`(?= (are|is|of)\b|[ ,.:;])")
# What was put together from names: "y is what Linear makes of x: y = x W + b", "A pair that is not M".
CLUMSY = re.compile(
    r" makes of |[Pp]airs? that (is|are) not `|Forward: The|` (is|are) computed from `| computes `|no encoder"
    r"|: [A-Z][a-z]+ each row"
)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_step_has_a_sentence_about_its_line(name: str) -> None:
    recording = EXAMPLES[name].record()
    for at in recording.steps:
        told = sentence_of(recording, at)
        assert told.strip().endswith((".", "!", "?")), (at.source, told)
        named = set(re.findall(r"`([^`]*)`", told))
        head = at is recording.steps_of(recording.calls[at.call])[0]  # its docstring also names sizes, such as T_k
        others = set() if head else set(re.findall(r"\b[A-Za-z]+_\w+\b", told))  # a name with _ is never a word
        assert named | others <= names_of(at), (at.source, told, named | others - names_of(at))
        if is_shown(at):
            assert len(told.split()) >= 4, (at.source, told)
            assert not CLUMSY.search(told), (at.source, told)
        assert "called with these arguments" not in told, at.source  # every function here has a sentence of its own
    stops = [recording.steps[index] for index in stops_of(recording).found]
    for before, at in itertools.pairwise(stops):  # zeros, and then what goes into them, are two things
        assert at.source == before.source or sentence_of(recording, at) != sentence_of(recording, before), at.source


def test_every_written_sentence_belongs_to_a_line() -> None:
    """A sentence whose line was rewritten would be shown nowhere, or at the wrong line."""
    for section, told in (each for each in sections().items() if each[0] != "glossary"):
        module, _, call = section.partition(":")
        source = inspect.getsource(importlib.import_module(f"minitransformer.{module}"))
        layer, _, method = call.rpartition(".")
        defined = f"class {layer}(" if layer else call
        assert re.search(rf"\b{re.escape(defined.removesuffix('('))}\b", source) and method in source, section
        lines = [line.strip() for line in source.splitlines()]
        for key in told:
            beginning, _, condition = key.partition(" if ")
            assert any(_begins(line, beginning) for line in lines), f"no line of {section} begins with {key!r}"
            assert not condition or compile(condition, key, "eval")
            assert not AS_A_WORD.search(told[key]), told[key]


def told_at(recording: Recording, title: str) -> str:
    return sentence_of(recording, recording.find(title)[0])


def test_sentences_fit_the_run() -> None:
    """The worked example has a scale of 1 and no biases; attention scales by 1/√3."""
    attention, worked = EXAMPLES["attention"].record(), EXAMPLES["worked-example"].record()
    assert "a sum of d_k = 3 products" in told_at(attention, "attention.factor")
    assert "`factor` = 1/√d_k = 0.5774" in told_at(attention, "attention.factor")
    assert "`factor` is the `scale` that was given" in told_at(worked, "attention.factor")
    assert "There is no bias" in told_at(worked, "linear#1.x") and "There is no bias" in told_at(worked, "linear#1.y")
    x = np.array([[1.0, -2.0]])
    with_bias = step(ops.linear, x, np.eye(2), np.ones(2))
    assert "`bias` is added" in told_at(with_bias, "linear.x") and "`bias` is added" in told_at(with_bias, "linear.y")
    dropped = step(ops.dropout, x, 0.5, np.random.default_rng(0))
    assert "Here it is off" in told_at(attention, "dropout.x") and "it is off" not in told_at(dropped, "dropout.x")
    without = step(layers.Linear(2, 3, bias=False), x.astype(np.float32))
    assert "gives two gradients" in told_at(without, "Linear.dx")


def test_the_backward_pass_begins_with_what_the_loss_is() -> None:
    recording = EXAMPLES["attention"].record(verify=True)
    told = told_at(recording, "attention.doutput")
    parts = ("loss = Σ output ⊙ `doutput`", "dX means ∂loss/∂X, for every array X", "A finite difference nudges")
    assert all(part in told for part in parts)
    q, k, v, doutput = (recording.find(f"attention.{name}")[1].value.array for name in ("q", "k", "v", "doutput"))
    by = np.zeros_like(q)
    by[1, 2] = 1e-5
    ahead, behind = ((ops.attention(q + d, k, v)[0] * doutput).sum() for d in (by, -by))
    assert recording.find("attention.dq")[1].value.array[1, 2] == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
    assert "finite difference" not in told_at(EXAMPLES["attention"].record(), "attention.doutput")
    loss = EXAMPLES["cross-entropy"].record()
    assert "The output is the loss itself" in told_at(loss, "cross_entropy.dloss")
    inner = EXAMPLES["worked-example"].record()
    assert told_at(inner, "attention.doutput").startswith("In the backward pass `doutput` says how the loss changes")


def test_an_inner_call_says_what_its_caller_calls_its_arguments_and_results() -> None:
    recording = EXAMPLES["worked-example"].record()

    def outside(title: str) -> str:
        return outside_of(recording, recording.find(title)[0])

    assert outside("softmax.x") == " For the caller, `x` is visible."
    assert outside("linear#2.weight") == " For the caller, `weight` is w_k."
    assert outside("softmax.y") == " For the caller, `y` is weights."
    assert outside("softmax.dy") == " For the caller, `dy` is dweights."
    assert outside("softmax.dx") == " For the caller, `dx` is dscores."
    assert outside("attention.q") == outside("softmax.total") == ""


@in_one("name", ["attention", "worked-example", "encoder-layer", "decoder-layer", "multi-head"])
def test_the_first_step_says_what_and_why(name: str) -> None:
    recording = EXAMPLES[name].record()
    told = sentence_of(recording, recording.steps[0])
    assert len(re.findall(r"\. [A-Z]", told)) >= 1 and len(told.split()) > 25, told
    given = {bound.name for bound in recording.steps[0].bound}
    assert set(re.findall(r"`([^`]*)`", told)) <= given and ("scale" in told) <= ("scale" in given), told


def test_the_glossary_covers_what_sentences_and_checks_do_not_define() -> None:
    needed = "token,pullback,head,mask,causal,dropout,batch,target,T_q,T_k,d_k,d_v,⊙,Σ,loss,finite difference,gap,dX"
    assert set(needed.split(",")) <= GLOSSARY.keys() and len(GLOSSARY) <= 25
    assert "axis = −1" in GLOSSARY["Σ"] and GLOSSARY["gap"].startswith("|a − b| / (1 + |b|)")
    assert all("\n" not in meaning and len(meaning) < 110 for meaning in GLOSSARY.values())


def test_unreadable_sentences_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, dict[str, str]] = {}
    with pytest.raises(ValueError, match=r"f\.txt, line 3: expected a new beginning"):
        _read("@ a:b\ny: one.\ny: two.", "f.txt", found)
    with pytest.raises(ValueError, match=r"f\.txt, line 2"):
        _read("@ a:b\nno colon", "f.txt", found)


def test_a_function_of_ones_own_has_sentences() -> None:
    def double(x):
        """Twice x."""
        y = 2.0 * x  # because it is enough

        def backward(dy):
            dx = 2.0 * dy
            return dx

        return y, backward

    recording = step(double, np.ones(2))
    told = {s.source.split("  #")[0]: sentence_of(recording, s) for s in recording.steps}
    assert told["y = 2.0 * x"] == "`y` is computed from `x`: because it is enough."
    assert told["def double(x):"] == "Double: Twice x."
    assert told["def backward(dy):"].startswith("Backward begins. `dy` is chosen: drawn at random, or given.")
    assert told["dx = 2.0 * dy"] == "`dx` is computed from `dy`."


def test_the_terminal_shows_the_sentence() -> None:
    recording = EXAMPLES["attention"].record()
    viewer = Viewer(recording)
    viewer.at = recording.find("attention.dv")[0].index
    screen = " ".join(viewer.screen(60, 30)).replace("  ", " ")
    assert "A value gets gradient from every query that looked at it" in screen
    assert max(map(len, viewer.screen(60, 30))) <= 60
