"""Mistakes in the stepper: which numbers of the right and the wrong run are compared, and what is said of gradients."""

import json
import re
from typing import Any

import numpy as np
import pytest

from minitransformer import ideas, layers, ops
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.mathml import as_lists, formula
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.page_bugs import bugs_data
from minitransformer.school.show.stepper.page_data import is_shown, page_data
from minitransformer.school.show.stepper.pairing import partners
from minitransformer.school.show.stepper.sentences import sentence_of

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def layer() -> Recording:
    module = layers.EncoderLayer(4, 2, 3, rng=np.random.default_rng(1)).to(dtype="float64")
    return step(module, RNG.normal(size=(2, 4)), verify=True)


def bugs_of(recording: Recording, *names: str) -> list[dict[str, Any]]:
    page = to_html(recording, bugs=names)
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    return json.loads(text[1])["bugs"]


@pytest.mark.slow
def test_a_call_that_the_mistake_skips_turns_no_other_call_red(layer: Recording) -> None:
    """Calls were paired by how many of their name came before, so one call's dy was compared with another's."""
    bugs = bugs_of(layer, "heads-not-rotated-back")  # in this layer nothing is rotated
    assert {bug["name"]: bug["numbers"] for bug in bugs} == {"heads-not-rotated-back": []}


@pytest.mark.slow
def test_a_skipped_call_leaves_the_others_paired() -> None:
    module = layers.MultiHeadAttention(4, 2, turn=ideas.rotary_turn(9.0), rng=np.random.default_rng(1)).to(
        dtype="float64"
    )
    right = step(module, RNG.normal(size=(3, 4)))
    with MISTAKES["heads-not-rotated-back"].applied():
        wrong = right.again()
    found = partners(right, wrong)
    turned = [call for call in right.calls if call.name == "_together in backward"]  # a rotation ends with it
    assert len(turned) == 2 and not any(b.serial in found for call in turned for b, *_ in call.bound.get("x", []))
    projected = [call for call in right.calls if call.name == "Linear.backward"]
    assert len(projected) == 4 and all(call.bound["dx"][0][0].serial in found for call in projected)


def test_what_several_lines_compute_is_compared_after_the_last() -> None:
    """`dx = y; dx *= ...` is right after its second line; after the first it was red, and said to be right."""
    recording = step(ops.softmax, RNG.normal(size=(2, 3)))
    (bug,) = bugs_of(recording, "softmax-changes-y")
    assert bug["numbers"] == []


def test_a_line_that_the_mistake_adds_in_a_loop_shifts_no_later_turn() -> None:
    """Names paired by how often they were bound: the second turn's weights with what the first turn's new line made."""
    q, k, v = (RNG.normal(size=(5, 2)) for _ in range(3))
    recording = step(ideas.flash_attention, q, k, v, tile=2)
    with MISTAKES["flash-weights-of-one-tile"].applied():
        wrong = recording.again()
    found = partners(recording, wrong)
    turns = [b for s in recording.steps for b in s.bound if b.title == "flash_attention.weights" and b.call.backward]
    added = [found[bound.serial][0] for bound in turns]
    assert len(turns) > 1 and all(s.source.startswith("weights = weights / ") for s in added)
    assert len({s.index for s in added}) == len(turns)


@pytest.mark.slow
def test_a_parameters_gradient_in_a_layer_has_the_check_of_the_op(layer: Recording) -> None:
    for name, op in (("dgamma", "layer_norm#2.gamma"), ("dbeta", "layer_norm#2.beta")):
        at, bound = layer.find(f"LayerNorm#2.{name}")
        row = layer.check_of(at, bound)
        assert row is not None and row.name == op
        np.testing.assert_allclose(bound.value.array, row.entries().numerical, atol=1e-7)


def test_helpers_that_return_what_they_were_given_are_no_steps(layer: Recording) -> None:
    """ "as tuple begins", and eight times `_unchanged in backward`."""
    shown = {layer.calls[s.call].name for s in layer.steps if is_shown(s)}
    assert {"_unchanged in backward", "_as_tuple in backward"} & shown == set()
    assert {"_split", "_merge in backward"} <= shown  # these do something


def test_no_formula_spells_out_what_only_python_needs(layer: Recording) -> None:
    shown = [(s, formula(s.source, layer.scalars(s))) for s in layer.steps if is_shown(s)]
    texts = {s.source: json.dumps(found and as_lists(found), ensure_ascii=False) for s, found in shown}
    (through,) = {text for source, text in texts.items() if source.startswith("dthrough")}
    assert "tuple" not in through and "sublayer" in through
    assert all("*x.shape" not in text for text in texts.values())
    assert any("…, " in text for source, text in texts.items() if "reshape(*x.shape" in source)


def test_sentences_say_which_gradient_came_which_way(layer: Recording) -> None:
    assert sentence_of(layer, layer.find("Residual._post#2.dx")[0]) == (
        "The input took two paths, so two gradients add: `dtotal` came around the sublayer, `dthrough` through it."
    )
    three = sentence_of(layer, layer.find("MultiHeadAttention.dx")[0])
    assert three.index("`dq`") < three.index("`dk`") < three.index("`dv`")


def test_the_loss_is_said_where_backward_begins(layer: Recording) -> None:
    heads = [s for s in layer.steps if layer.calls[s.call].backward and s is layer.steps_of(layer.calls[s.call])[0]]
    told = [sentence_of(layer, head) for head in heads]
    assert "the loss = Σ output ⊙ `dy`, so `dy` = ∂loss/∂output" in told[0]
    assert not any("the loss =" in other for other in told[1:])
    dy = heads[0].bound[0].value.array  # and so it is: the checks, which take this loss, agree
    assert layer.report is not None and layer.report.ok
    np.testing.assert_allclose(dy, layer.report["EncoderLayer.y"].entries().numerical, atol=1e-7)


def test_attentions_sentences_name_the_operation() -> None:
    q, k, v = (RNG.normal(size=shape) for shape in ((2, 3), (4, 3), (4, 5)))
    recording = step(ops.attention, q, k, v)
    told = {name: sentence_of(recording, recording.find(f"attention.{name}")[0]) for name in ("dkept", "dscores")}
    softmax = sentence_of(recording, recording.find("softmax.dx")[0])
    assert "the dot product of row i of `doutput` and row j of `v`" in told["dkept"] and "counted" not in told["dkept"]
    assert "subtracts from `dweights` its mean" in told["dscores"] and "the mean of `dy`, weighted by `y`" in softmax


@pytest.mark.slow
def test_a_mistake_in_softmax_changes_its_formula_in_attention() -> None:
    """The formula of a pullback with its caller's symbols, dS = A ⊙ dA, is that of the wrong code."""
    recording = EXAMPLES["attention"].record()
    data = page_data(recording)
    (bug,) = bugs_data(recording, ["softmax-no-sum"], data, iter)
    changed = {index: data["lines"][line] for index, line in bug["lines"]}
    line = changed[recording.find("attention.dscores")[0].index]
    assert line["wrong"] and "∑" not in str(line["paper"]) and "⊙" in str(line["paper"])
