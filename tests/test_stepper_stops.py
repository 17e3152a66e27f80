"""Where the stepper's page stops: at each number once, at nothing that only renames or moves, and not too often."""

from __future__ import annotations

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.school.show.stepper.paper import paper
from minitransformer.school.show.stepper.sentences import sentence_of
from minitransformer.school.show.stepper.stops import LONG, stops_of

ATTENTION = [
    "scores",
    "largest",
    "exponentials",
    "total",
    "y",
    "output",
    "doutput",
    "dkept",
    "dv",
    "dscores",
    "dq",
    "dk",
]


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {name: example.record() for name, example in EXAMPLES.items()}


def test_attention_stops_at_its_formulas(recordings: dict[str, Recording]) -> None:
    recording = recordings["attention"]
    head, *stops, end = (recording.steps[i] for i in stops_of(recording).found)
    assert head.index == 0 and end is recording.steps[-1]
    assert [bound.name for at in stops for bound in at.bound] == ATTENTION


def test_numbers_made_of_booleans_are_a_step(recordings: dict[str, Recording]) -> None:
    """True and 1 are equal, but later formulas speak of the numbers by their own name, which no step had shown."""
    recording = recordings["delta-chunk"]
    shown = [bound.name for index in stops_of(recording).found for bound in recording.steps[index].bound]
    assert shown.index("back") + 1 == shown.index("sums")


@pytest.mark.few(3)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_stop_shows_something_new(recordings: dict[str, Recording], name: str) -> None:
    recording = recordings[name]
    found = stops_of(recording).found
    most = {"attention": 14, "flash-attention": LONG + 2}  # which puts the rows of two tiles in their places
    assert 2 <= len(found) <= most.get(name, LONG)
    for index in list(found)[1:]:
        at = recording.steps[index]
        told = sentence_of(recording, at)
        assert not at.quiet or at is recording.steps[-1]
        assert "Nothing changes here" not in told and "handed back" not in told
        is_head = at is recording.steps_of(recording.calls[at.call])[0]
        assert is_head or at is recording.steps[-1] or paper(recording, at) is not None, at.source


def test_a_tile_of_scores_says_which(recordings: dict[str, Recording]) -> None:
    """It read "visible = S", and no step had shown an S."""
    recording = recordings["flash-attention"]
    written = [paper(recording, recording.steps[i]) for i in stops_of(recording).found]
    told = {"".join(formula.itertext()) for formula in written if formula is not None}
    assert "visible=S(rows,keys)" in told


def test_the_last_step_hands_back_all_gradients_and_none_is_left_out(recordings: dict[str, Recording]) -> None:
    """A gradient of a parameter is shown at the stop that stands for its layer, if its own line is none."""
    recording = recordings["decoder-layer"]
    found = stops_of(recording).found
    shown = {bound.value.array.tobytes() for i in found for bound in (*recording.steps[i].bound, *found[i].also)}
    given = [b for _, b in recording.bindings if b.call.backward and b.name in ("dweight", "dbias", "dgamma", "dbeta")]
    assert len(given) > 20 and {bound.value.array.tobytes() for bound in given} <= shown


def test_a_linear_map_is_one_step_after_its_first_time(recordings: dict[str, Recording]) -> None:
    recording = recordings["ffn"]
    inside = [recording.calls[recording.steps[i].call].label for i in stops_of(recording).found]
    assert inside.count("linear#1") == 5 and "linear#2" not in inside and "Linear#2" not in inside


def test_what_only_renames_or_reshapes_is_no_stop() -> None:
    def f(x: np.ndarray):
        same = x
        row = same.reshape(-1)
        twice = 2.0 * row
        y = twice.reshape(x.shape)

        def backward(dy: np.ndarray) -> np.ndarray:
            dtwice = dy.reshape(-1)
            dx = (2.0 * dtwice).reshape(x.shape)
            return dx

        return y, backward

    recording = step(f, np.array([[1.0, 2.0], [3.0, 4.0]]))
    names = [[bound.name for bound in recording.steps[i].bound] for i in stops_of(recording).found]
    assert names == [["x"], ["twice"], ["dy"], ["dx"]]


def test_a_sum_in_place_is_seen_each_time() -> None:
    recording = step(ops.embedding, np.array([1, 0, 1]), np.arange(6.0).reshape(2, 3))
    names = [bound.name for i in stops_of(recording).found for bound in recording.steps[i].bound]
    assert names.count("dtable") == 2


def test_gpt_begins_with_its_text_and_ends_at_the_table_of_vectors(recordings: dict[str, Recording]) -> None:
    """It began as a model and a loss, said dlogits = Jᵀ dℒ, and ended before the gradient of its table."""
    recording = recordings["gpt"]
    stops = [recording.steps[i] for i in stops_of(recording).found]
    assert recording.tokens == ("the", "dog", "the")
    assert "probable" in sentence_of(recording, stops[0]) and "token" in sentence_of(recording, stops[0])
    names = [bound.name for at in stops for bound in at.bound]
    assert {"log_p", "loss", "dlogits"} <= set(names) and names[-1] == "dtable"
    table = recording.calls[recording.find("embedding.table")[1].call.index]
    assert stops[-1].call != table.index and recording.calls[stops[-1].call].forward_call == table.index
    data = page_data(recording)
    boxes = [box["name"] for box in data["map"]["boxes"].values()]
    whole = data["map"]["boxes"]["0"]["row"]
    assert not any("Encoder" in name or name == "Language Model" for name in boxes), boxes
    assert {"Input Embedding", "Transformer Blocks", "Unembed", "Cross-entropy"} <= set(boxes) and whole
    formulas = {line["text"]: "".join(texts(line["paper"])) for line in data["lines"] if line["paper"]}
    assert formulas["dlogits = loss_backward(dloss)"] == "dlogits=(softmax(logits)−(j=wantedi))dℒ3"


def texts(part: list) -> list[str]:
    return [text for child in part[2:] for text in ([child] if isinstance(child, str) else texts(child))]
