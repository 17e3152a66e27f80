"""The benchmark of a graphics card, run small and on the processor: both programs take the same steps."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks/ belongs to the checkout and is not installed

from benchmarks import compare, report
from benchmarks.cases import Case
from benchmarks.cases.card import operations

SMALL = {"batch": 2, "length": 9, "n_layers": 2, "n_heads": 2, "width": 16, "vocabulary": 50, "device": "numpy"}


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float32", 1e-5), pytest.param("float16", 1e-2, marks=pytest.mark.sweep)]
)
def test_ours_and_pytorchs_steps_agree(precision: str, tolerance: float) -> None:
    sizes = {"precision": precision} | SMALL
    case = Case("small", "a small step", "card", sizes, ("ours", "eager", "products"), 18, 1.25, tolerance)
    found = compare.compare(case, 1, 1.0, 2)
    assert found.agrees, found.left_out
    assert set(found.seconds) == {"ours", "eager", "products"}
    assert "in large matrices" in report.table([found], {"1": {"numpy matmul": 100.0, "copy": 10.0}})


def test_products_multiply_as_much_as_a_step() -> None:
    from benchmarks.cases.card import Sizes
    from benchmarks.cases.card_torch import Products

    for sizes in (Sizes("float32", **SMALL), Sizes("float32", **SMALL | {"batch": 40})):
        program = Products(sizes, None)
        assert program.times * 2 * program.side**3 == pytest.approx(operations(sizes), rel=0.1)
        program.run()
