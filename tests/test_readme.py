"""What the README shows is true."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import code_of
from PIL import Image

from minitransformer import ops
from minitransformer.check.verify.mistakes import MISTAKES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)


def test_softmax_is_shown_as_it_is() -> None:
    (block,) = [block for block in BLOCKS if "exponentials = " in block]
    source = [line.partition("  #")[0].strip() for line in inspect.getsource(inspect.unwrap(ops.softmax)).splitlines()]
    for line in filter(None, block.splitlines()):
        shown = line.strip()
        assert shown in source or (shown == "def backward(dy):" and "def backward(dy: Array) -> Array:" in source)


def test_example_prints_what_is_shown() -> None:
    """Which entry has the largest rounding error depends on the BLAS; the numbers shown for an entry do not."""
    (code,) = [block for block in BLOCKS if "print(verify.gradients" in block]
    (shown,) = [block for block in BLOCKS if block.startswith("attention: all")]
    code = code.replace("print(verify.gradients", "report = (verify.gradients")
    report = names_after(code)["report"]
    heading, titles, *rows, dots = shown.splitlines()
    assert heading.startswith(f"attention: all {len(report.rows)} gradients are right, largest error ") and report.ok
    assert dots == "..." and len(rows) > 3
    assert titles.split() == str(report).splitlines()[1].split()
    for shown_row, row in zip(rows, report.rows, strict=False):
        *mathematics, place, by_hand, numerically, error, verdict = re.split(" {2,}", shown_row)
        assert mathematics == [row.name, row.kind, str(row.shape), row.checked]
        where = tuple(json.loads(place))
        assert float(by_hand) == pytest.approx(row.entries().by_hand[where], rel=1e-7)
        assert float(numerically) == pytest.approx(row.entries().numerical[where], rel=1e-7)
        assert float(error) < 1e-10 and verdict == "ok"


def test_the_section_on_a_users_own_tests_is_short_and_starts_with_the_installation() -> None:
    (section,) = re.findall(r"### In your own tests\n\n(.*?)\n\n## ", README, re.DOTALL)
    assert len(section.splitlines()) <= 10 and section.startswith("`pip install .`")
    quoted = re.search(r"known\s+mistake: ([^\"]*)\"", section)
    assert quoted is not None
    assert MISTAKES["flash-causal-forgotten-in-backward"].sentence.startswith(quoted[1])


def names_after(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace


def test_linked_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_moving_picture_shows_what_the_op_computes(tmp_path: Path) -> None:
    drawing = code_of(ROOT / "docs" / "draw_attention.py")
    x, verdict = drawing.values()
    assert np.allclose(x["scores"], x["q"] @ x["k"].T / np.sqrt(2)) and np.allclose(x["output"], x["weights"] @ x["v"])
    assert np.allclose(x["dv"], x["weights"].T @ x["doutput"]) and np.allclose(
        x["dq"], x["dscores"] @ x["k"] / np.sqrt(2)
    )
    assert {name for names, _ in drawing.LINES for name in names.split()} == {*x} and "largest error" in verdict
    with Image.open(ROOT / "docs" / "attention.gif") as picture:
        assert picture.n_frames == len(drawing.LINES) + 1
    assert (ROOT / "docs" / "attention.gif").stat().st_size < 400_000
