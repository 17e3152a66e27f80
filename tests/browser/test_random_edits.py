"""Edited inputs: the page computes what Python computes from the same inputs, or says why it does not."""

import functools
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.school.course.worked_example import SCALED, self_attention
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page import to_html

from .conftest import Open

EDITS = [60, pytest.param(500, marks=pytest.mark.sweep)]
EQUAL = 1e-10  # relative to 1 + |Python's number|

# Type a text into field number `field` of the editor, then read what the page says and what it computed for each title.
# No field, or one that is disabled: the page refuses, with the sentence below the fields.
EDIT = """
(edits) => {
  const click = (id) => document.getElementById(id).click();
  const text = (id) => (document.getElementById(id).hidden ? "" : document.getElementById(id).textContent);
  click("edit");
  const recording = new Recording(data);
  const inputs = editable(recording);
  const answers = edits.map(([field, typed]) => {
    const fields = [...document.querySelectorAll("#inputs input")];
    if (fields.length === 0 || fields[field].disabled) return { refused: text("fixed") };
    click("reset");
    const edited = [...document.querySelectorAll("#inputs input")][field];
    edited.value = typed;
    edited.dispatchEvent(new Event("change", { bubbles: true }));
    if (edited.getAttribute("aria-invalid") === "true") return { refused: text("edited") };
    const arrays = [...document.querySelectorAll("#inputs figure")].map((figure) =>
      Float64Array.from(figure.querySelectorAll("input"), (other) => numberOrRefusal(figure.dataset.name, other.value)),
    );
    const found = inputs.run(arrays, null).numbers;
    const numbers = recording.places.map((place, n) => [recording.title(...place), [...found[n]].map(String)]);
    const shown = [...document.querySelectorAll("#result .matrix.result")].map((figure) => [
      figure.dataset.name, [...figure.querySelectorAll(".cell")].map((cell) => cell.dataset.value)
    ]);
    return { said: text("edited"), numbers, shown };
  });
  return JSON.stringify(answers);
}
"""


# Where an input decides which way a line goes, or a number has no sum: refused.
REFUSED = {"lstm", "gru", "flash-attention", "linear-attention", "experts", "attention-float32"}


def _others() -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    """Calls with masks, dropout and scalar settings, beside the examples: function, inputs and options."""
    rng = np.random.default_rng(17)
    q, k, v = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    mask = rng.random((4, 4)) < 0.6
    gain = [1.0 + rng.normal(size=3) / 3.0, rng.normal(size=3)]
    weights = [SCALED.x, SCALED.w_q, SCALED.w_k, SCALED.w_v]
    drop = {"dropout": 0.5, "rng": np.random.default_rng(0)}
    return {
        "worked-scaled": (self_attention, weights, {"scale": SCALED.scale}),
        "softmax-temperature": (ops.softmax, [q], {"temperature": 0.7}),
        "softmax-columns": (ops.softmax, [q], {"axis": 0}),
        "attention-scale": (ops.attention, [q, k, v], {"scale": 0.4}),
        "attention-mask": (ops.attention, [q, k, v], {"mask": mask}),
        "attention-causal": (ops.attention, [q, k, v], {"causal": True}),
        "attention-dropout": (ops.attention, [q, k, v], drop),
        "attention-rate-alone": (ops.attention, [q, k, v], {"dropout": 0.5}),
        "attention-float32": (ops.attention, [x.astype("float32") for x in (q, k, v)], {}),
        "attention-heads": (ops.attention, [x[None] for x in (q, k, v)], {}),
        "layer-norm-eps": (ops.layer_norm, [q, *gain], {"eps": 1e-3}),
    }


def _recordings() -> dict[str, Callable[[], Recording]]:
    """How every example and every other call is recorded."""
    found: dict[str, Callable[[], Recording]] = {name: example.record for name, example in EXAMPLES.items()}
    for name, (f, inputs, options) in _others().items():
        found[name] = functools.partial(step, f, *inputs, **options)
    return found


def _inputs(recording: Recording) -> list[tuple[str, np.ndarray]]:
    """What the editor shows: the float arguments that the page has whole, and the upstream gradient, in order."""
    entry = next(s for s in recording.steps if recording.calls[s.call].backward)
    bound = [*recording.steps[0].bound, *entry.bound]
    return [(b.name, b.value.array) for b in bound if b.value.dtype.startswith("float") and b.value.array is not None]


def _python(recording: Recording, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The recorded call once more with other numbers: every float that it binds, by title."""
    f, *given = recording.again.args
    named = dict(zip(inspect.signature(f).parameters, given, strict=False)) | recording.again.keywords
    upstream = list(arrays)[-1]
    named |= {name: array if array.shape else float(array) for name, array in arrays.items() if name != upstream}
    with np.errstate(all="ignore"):
        fresh = step(f, **named | {"upstream": arrays[upstream]})
    return {
        b.title: b.value.array for s in fresh.steps if not s.quiet for b in s.bound if b.value.dtype.startswith("float")
    }


SYMBOLS = {"temperature": "τ", "eps": "ε", "label_smoothing": "ε"}
TYPED = ("0", "-0.5", "\u22121.3", "1e-3", "100", "-2", ".25", "two", "", "1e999", "NaN", "0x", "1,5")


def _draw(rng: np.random.Generator, inputs: list[tuple[str, np.ndarray]]) -> tuple[int, int, str]:
    """Which input, which of its numbers, and what is typed there; mostly a number of one decimal."""
    which = int(rng.integers(len(inputs)))
    typed = str(rng.choice(TYPED)) if rng.random() < 0.3 else str(round(float(rng.normal()) * 3.0, 1))
    return which, int(rng.integers(inputs[which][1].size)), typed


@pytest.mark.parametrize("edits", EDITS)
def test_random_edits_are_equal_to_python_or_refused_with_a_sentence(
    open_page: Open, tmp_path: Path, edits: int
) -> None:
    rng, made = np.random.default_rng(2017), _recordings()
    if edits < 3 * len(made):  # some pages; the sweep edits all of them
        some = ("attention", "experts", "attention-float32", *list(made)[::12])
        made = {name: one for name, one in made.items() if name in some}
    count = {name: 2 * edits // 100 for name in made if name in REFUSED}
    editable = sorted(set(made) - REFUSED)
    count |= dict.fromkeys(editable, (edits - sum(count.values())) // len(editable))
    count["attention"] += edits - sum(count.values())
    outcomes: Counter[str] = Counter()
    largest = 0.0
    for name, record in made.items():
        recording, path = record(), tmp_path / f"{name}.html"
        to_html(recording, path, bugs=())
        inputs = _inputs(recording)
        starts = np.cumsum([0] + [array.size for _, array in inputs])
        drawn = [_draw(rng, inputs) for _ in range(count[name])]
        page = open_page(path)
        answers = json.loads(page.evaluate(EDIT, [[int(starts[i] + flat), typed] for i, flat, typed in drawn]))
        page.context.close()
        told = [answer.get("refused", "") for answer in answers]  # an idea may bring an example that refuses all edits
        fixed = name in REFUSED or all(sentence.startswith("This page cannot recompute ") for sentence in told)
        for (which, flat, typed), answer in zip(drawn, answers, strict=True):
            arrays = {title: array.astype(np.float64, copy=True) for title, array in inputs}
            title = inputs[which][0]
            if "refused" in answer:
                outcomes["refused"] += 1
                sentence = answer["refused"]
                if sentence.endswith(": as recorded."):  # the page takes its numbers as they were
                    assert not fixed and SYMBOLS.get(title, title) in sentence, title
                elif not fixed:
                    assert re.match(r"\S+( \S+)?(\[[\d, ]+\])? must be ", sentence), sentence
                    assert not _is_right(title, typed), sentence
                else:
                    assert sentence.startswith(("To change ", "This page ")) and "record again in Python" in sentence
                continue
            assert not fixed
            outcomes["equal"] += 1
            arrays[title].reshape(-1)[flat] = float(typed.replace("\u2212", "-"))
            wanted = _python(recording, arrays)
            found = dict(answer["numbers"])
            for key, array in wanted.items():
                theirs = np.array([float(x.replace("Infinity", "inf")) for x in found[key]])
                ours = np.ravel(array).astype(float)
                np.testing.assert_allclose(theirs, ours, rtol=EQUAL, atol=EQUAL, err_msg=f"{name}: {title} = {typed}")
                finite = np.isfinite(ours)
                theirs, ours = theirs[finite], ours[finite]
                largest = max(largest, float(np.max(abs(theirs - ours) / (1 + abs(ours)), initial=0.0)))
            for shown_name, shown in answer["shown"]:  # the page is at the first step, whose numbers are the inputs
                if shown_name in arrays:
                    np.testing.assert_array_equal([float(x) for x in shown], arrays[shown_name].ravel())
            assert "recomputes every number" in answer["said"]
    print(f"{edits} edits: {dict(outcomes)}, largest difference {largest:.1e}")
    assert outcomes.total() == edits and outcomes["equal"] >= edits // 2 and outcomes["refused"] >= edits // 10


def _is_right(title: str, typed: str) -> bool:
    """Whether Python takes this text as the number of an input."""
    try:
        number = float(typed.replace("\u2212", "-"))
    except ValueError:
        return False
    if title == "label_smoothing":
        return 0.0 <= number <= 1.0
    if title == "dropout":
        return 0.0 <= number < 1.0
    return bool(np.isfinite(number)) and (number > 0.0 or title not in ("temperature", "eps", "cap"))
