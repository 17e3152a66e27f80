"""For a wrong prediction the page names the slip that gives its number, and never one that was not made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page import to_html
from minitransformer.school.show.stepper.page_bugs import _made_in as made_in
from minitransformer.school.show.stepper.pairing import partners

from .conftest import Open

ASKED = """
(answers) => {
  const recording = new Recording(data);
  return answers.map(([s, b, flat, answer]) => {
    const question = { ...recording.value(s, b) }.data;
    return isNear(answer, question[flat]) ? null : slipOf(recording, [s, b], flat, answer);
  });
}
"""
NAMES = {
    "sign": "with the other sign", "neighbour": "it is ", "factor": "without the factor", "sum": "one of its terms",
    "transpose": "row and column swapped",
}  # fmt: skip
ENOUGH = (50, 200)  # answers by each slip, in each run and in the sweep
CELLS = 6  # of an array, for each slip; where there is a factor, all of them
UNKNOWN = ("Several slips", "No slip")
WITH_FACTOR = {"scores": ("q", "k", False), "dq": ("dscores", "k", True), "dk": ("dscores", "q", True)}


def answers(recording: Recording, rng: np.random.Generator) -> list[tuple[str, str, list[float]]]:
    """(slip, what the mistakes call it, [step, binding, cell, number]), with numbers computed here, not in the page."""
    found = []

    def add(slip: str, told: str, s: int, b: int, flat: int, x: float) -> None:
        found.append((slip, told, [s, b, flat, float(f"{x:.3g}")]))

    for s in recording.steps:
        for b, bound in enumerate(s.bound):
            array = bound.value.array
            if array is None or array.dtype.kind != "f" or array.size < 2 or s.quiet or bound.origin is not None:
                continue
            data = array.ravel()
            for flat in rng.permutation(data.size)[:CELLS].tolist():
                add("sign", "", s.index, b, flat, -data[flat])
                add("neighbour", "", s.index, b, flat, data[(flat + 1) % data.size])
                row, column = divmod(flat, array.shape[-1])
                if array.ndim == 2 and row != column and row < array.shape[1] and column < array.shape[0]:
                    add("transpose", "", s.index, b, flat, array[column, row])
            seen = {other.name: other.value.array for other in recording.visible(s).values()}
            if {"q", "k", "factor", *WITH_FACTOR.get(bound.name, ("none",))[:2]} <= set(seen):
                left, right, _ = WITH_FACTOR[bound.name]
                a, c = seen[left], seen[right]
                if bound.name == "dk":
                    a = a.swapaxes(-1, -2)
                if bound.name == "scores":
                    c = c.swapaxes(-1, -2)
                factor = float(seen["factor"])
                if a.shape[-1] != c.shape[-2] or not np.allclose(factor * (a @ c), array):
                    continue  # of one tile
                for flat in range(data.size):
                    add("factor", "", s.index, b, flat, (a @ c).ravel()[flat])
                    place = np.unravel_index(flat, array.shape)
                    for k in range(a.shape[-1]):
                        term = a[(*place[:-1], k)] * c[(*place[:-2], k, place[-1])] * factor
                        add("sum", "", s.index, b, flat, term)
    for mistake in (each for all_of_one in made_in(recording).values() for each in all_of_one):
        try:
            with mistake.applied(), np.errstate(all="ignore"):
                wrong = recording.again()
        except Exception:
            continue
        others = partners(recording, wrong)
        changed = [
            (s, b, bound, others[bound.serial][1])
            for s in recording.steps
            for b, bound in enumerate(s.bound)
            if bound.serial in others and bound.value.is_float_array and not s.quiet and bound.origin is None
        ]
        changed = [c for c in changed if c[3].value.array is not None and c[3].value.shape == c[2].value.shape]
        changed = [c for c in changed if not np.allclose(c[3].value.array, c[2].value.array, 1e-3, 1e-3)]
        for s, b, bound, other in changed[:3]:
            far = np.abs(np.nan_to_num(other.value.array) - np.nan_to_num(bound.value.array)).ravel()
            for flat in np.argsort(-far)[:2].tolist():
                if far[flat] > 0 and np.isfinite(other.value.array.ravel()[flat]):
                    add("mistake", mistake.sentence.rstrip("."), s.index, b, flat, other.value.array.ravel()[flat])
    return found


def attentions(rng: np.random.Generator, count: int) -> Iterator[Recording]:
    """Attentions of other numbers: the only op with a factor, which an example has too few cells to try."""
    for _ in range(count):
        yield step(ops.attention, rng.normal(size=(5, 4)), rng.normal(size=(6, 4)), rng.normal(size=(6, 3)))


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.sweep)])
def test_the_slip_is_named_or_said_to_be_unknown(open_page: Open, tmp_path: Path, part: int) -> None:
    """Answers by each slip: over small examples in each run, over all others in the sweep."""
    rng = np.random.default_rng(5)
    quick = ["attention", "layer-norm", "softmax"]
    counts: Counter[tuple[str, str]] = Counter()
    wrong = []
    recordings = [(n, EXAMPLES[n].record()) for n in EXAMPLES if (n in quick) != bool(part)]
    for name, recording in [
        *recordings,
        *((f"attention-{i}", each) for i, each in enumerate(attentions(rng, 1 + 2 * part))),
    ]:
        made = answers(recording, rng)
        to_html(recording, tmp_path / f"{name}.html")
        page = open_page(tmp_path / f"{name}.html")
        told = page.evaluate(ASKED, [place for *_, place in made])
        known = set(page.evaluate("playable().map((bug) => bug.mistake.replace(/\\.$/, ''))"))
        for (slip, sentence, place), says in zip(made, told, strict=True):
            if says is None or (slip == "mistake" and sentence not in known):
                continue  # near the right number, or a mistake that this page does not have
            if says.startswith(UNKNOWN):
                counts[slip, "unknown"] += 1
            elif (sentence or NAMES[slip]) in says:
                counts[slip, "named"] += 1
            else:
                # the same number to all digits: said in words, which is as true
                counts[slip, "in words"] += 1
                if slip != "mistake" or not re.search("|".join(NAMES.values()), says):
                    wrong.append((name, slip, sentence, place, says))
        page.context.close()
    print(json.dumps({" ".join(key): n for key, n in sorted(counts.items())}))
    assert wrong == []
    assert all(counts[slip, "named"] for slip in (*NAMES, "mistake"))
    of_each: Counter[str] = Counter()
    for (slip, _), n in counts.items():
        of_each[slip] += n
    assert all(of_each[slip] >= ENOUGH[part] for slip in (*NAMES, "mistake")), of_each
