"""Written derivations: right ones are accepted, wrong ones refused at their line, and nothing typed does harm."""

import re
from pathlib import Path

import pytest

from minitransformer import verify

RIGHT = {
    f"{path.stem}: {part.splitlines()[0]}": part.partition("\n")[2]
    for path in sorted((Path(__file__).parent / "derivations" / "right").glob("*.md"))
    for part in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}

ATTENTION = RIGHT["attention: in indices"].strip()


@pytest.mark.few(12)
@pytest.mark.parametrize("name", RIGHT)
def test_right_derivation_is_accepted(name: str) -> None:
    report = verify.derivation(RIGHT[name])
    assert report.ok and report.first_wrong is None, str(report)


WRONG = [  # the line as it stands above, what is typed instead
    ("dS_ij = sum_l dA_il ∂A_il/∂S_ij", "dS_ij = sum_l dA_il ∂A_il/∂S_il"),
    ("      = sum_l dA_il A_il (δ_lj - A_ij)", "      = sum_l dA_il A_il (δ_lj - A_il)"),
    ("      = sum_l dA_il A_il (δ_lj - A_ij)", "      = sum_l dA_il A_il (δ_lj + A_ij)"),
    ("      = A_ij (dA_ij - sum_l dA_il A_il)", "      = A_ij (dA_ij - sum_l dA_il A_ij)"),
    ("      = A_ij (dA_ij - sum_l dA_il A_il)", "      = A_ij dA_ij"),
    ("dQ_ic = sum_j dS_ij K_jc / sqrt(d)", "dQ_ic = sum_j dS_ij K_jc"),
    ("dQ_ic = sum_j dS_ij K_jc / sqrt(d)", "dQ_ic = sum_j dS_ij K_jc / d"),
    ("dQ_ic = sum_j dS_ij K_jc / sqrt(d)", "dQ_ic = dS_ij K_jc / sqrt(d)"),
    ("dV_jc = sum_i A_ij dO_ic", "dV = A dO"),
    ("dK_jc = sum_i dS_ij Q_ic / sqrt(d)", "dK = dS Q / sqrt(d)"),
]


@pytest.mark.parametrize(("line", "typed"), WRONG)
def test_wrong_line_is_refused_at_its_place(line: str, typed: str) -> None:
    text = ATTENTION.replace(line.strip(), typed.strip())
    assert text != ATTENTION
    report = verify.derivation(text)
    expected = next(n for n, each in enumerate(text.splitlines(), 1) if each.strip() == typed.strip())
    assert not report.ok and report.first_wrong == expected, str(report)
    others = [each for each in report.lines if each.number != expected]
    assert {each.verdict for each in others} <= {"given", "defines", "right"}, str(report)
