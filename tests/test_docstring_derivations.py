"""The equations in the package's docstrings are tried with numbers, and a wrong one is found."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from minitransformer import ops, verify
from minitransformer.check.docstrings import checking, counts, reading
from minitransformer.cli import main
from minitransformer.core.arrays.backend import Array, Pullback
from minitransformer.core.arrays.declared import op

QUICK = ("core.ops.attention", "core.ops.softmax", "core.ops.linear", "core.ops.embedding")


@pytest.mark.parametrize("module", QUICK)  # the next test has them all
def test_the_derivation_of_an_op_is_right(module: str) -> None:
    passages = checking.check_one(module)
    assert all(passage.ok for passage in passages), "\n\n".join(map(str, passages))
    found = counts(passages)
    assert found["right"] + found["code"] > 0 and not found["unreadable"], found


@pytest.mark.slow
def test_no_docstring_is_wrong_and_each_equation_is_read() -> None:
    passages = [passage for name in checking.modules() for passage in checking.check_one(name)]
    wrong = [str(passage) for passage in passages if not passage.ok]
    assert not wrong, "\n\n".join(wrong)
    found = counts(passages)
    assert not found["unreadable"], found
    assert found["code"] >= 60


def test_each_sign_in_a_sentence_is_tried_or_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = reading.notes()
    assert set(notes) <= set(checking.modules()), "notes about docstrings without a sign ="
    left = {name: reading.untold(checking._files()[name], notes.get(name, [])) for name in checking.modules()}
    assert not any(left.values()), {name: lines for name, lines in left.items() if lines}
    monkeypatch.setattr(checking, "notes", lambda: {"core.ops.softmax": [reading.Notes("core.ops.softmax", "softmax")]})
    *_, passage = checking.check_one("core.ops.softmax")
    assert [(each.line, each.ok) for each in passage.equations] == [(5, False)]
    with pytest.raises(ValueError, match="does not say 'Jacobian is ∂y_i/∂x_j = y_i'"):  # nor half of an equation
        half = [reading.Notes("core.ops.softmax", said=["Jacobian is ∂y_i/∂x_j = y_i"])]
        reading.untold(checking._files()["core.ops.softmax"], half)


SLIPS = [  # a definition that differs from the code is as wrong as a gradient that does
    ("core.ops.softmax", "sum_i dy_i y_i)", "sum_i dy_i)"),
    ("core.ops.softmax", "exp(x_j / T)", "exp(x_j)"),
    ("core.ops.attention", "scale = 1/√d_k", "scale = 1/d_k"),
    ("core.ops.attention", "dscoresᵀ q", "dscores q"),
    ("core.ops.attention", "dkept ⊙ m", "dkept"),
    ("core.ops.attention", "output  = kept v", "output  = weights v"),
    ("core.ops.normalization", "(1/D) sum_i (x_i - mean)²", "(1/(D - 1)) sum_i (x_i - mean)²"),
    ("core.ops.normalization", "- n_j mean_i(dn_i n_i))", ")"),
    ("core.ops.cross_entropy", "dloss (p_j - target_j) / N", "dloss (p_j - target_j)"),
    ("core.ops.linear", "dW = xᵀ dy", "dW = dyᵀ x"),
    ("core.ops.embedding", "sum_n O_nv dy_n", "sum_v O_nv dy_n"),
    ("core.ops.activations", "tanh²(x)", "tanh(x)"),
    ("core.ops.linear", "dW = xᵀ dy", "dW = xᵀ of dy"),  # what cannot be read is no proof
    ("core.layers.residual", "dropout(f(norm(x)))", "dropout(f(x))"),
    ("ideas.after.flash_attention", "l' = e^(m - m') l", "l' = l"),
    ("ideas.after.channel_delta.op", "+ 1[t = C] (", "- 1[t = C] ("),
    ("core.ops.softmax", "∂y_i/∂x_j = y_i (", "∂y_i/∂x_j = y_j ("),  # within sentences, and so in the notes as well
    ("core.ops.attention", "dB = Aᵀ dC", "dB = dCᵀ A"),
    ("ideas.after.linear_attention", "dt = -doutput·output", "dt = doutput·output"),
    ("ideas.after.gated", "(x W_1 + b_1)", "(x W_1)"),
    ("ideas.before.recurrent", "(1 - h'²)", "(1 + h'²)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "old", "new"), SLIPS)
def test_a_slip_in_a_docstring_is_found(module: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_slip(path: Path) -> Any:
        found = tuple([(number, text.replace(old, new)) for number, text in lines] for lines in read(path))
        assert found != read(path)
        return found

    read, about = reading._read, reading.notes().get(module, [])
    said = [dataclasses.replace(each, said=[text.replace(old, new) for text in each.said]) for each in about]
    monkeypatch.setattr(reading, "_read", with_slip)
    monkeypatch.setattr(checking, "notes", lambda: {module: said})
    assert not all(passage.ok for passage in checking.check_one(module))


def test_an_op_that_differs_from_its_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @op("x, y: (...); temperature > 0")
    def softmax(x: Array, temperature: float = 1.0) -> tuple[Array, Pullback]:
        y, backward = ops.softmax(x, temperature=temperature)
        return y, lambda dy: backward(dy) * temperature

    monkeypatch.setattr(checking, "_ops_of", lambda module: {"softmax": softmax})
    (passage,) = checking.check_one("core.ops.softmax")
    assert [each.text[:2] for each in passage.equations if not each.ok] == ["dx"]


def test_derive_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "softmax", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["right"] == 2
    own = tmp_path / "own.txt"
    own.write_text("given x: (n), dy: (n)\ny = x * x\ndx = x * dy\n", encoding="utf-8")
    assert main(["derive", str(own), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_wrong"] == 3
    assert main(["derive", "sotfmax"]) == 2 and main(["derive", str(own), "softmax"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "did you mean 'softmax'" in first and "one FILE alone" in second
    assert main(["derive", "softmax", "--list"]) == 0
    listed = capsys.readouterr().out.partition(",")[0]
    assert listed == "core/ops/softmax.py" and main(["derive", listed]) == 0
    assert main(["derive", str(tmp_path)]) == 2 and capsys.readouterr().err.endswith("is a folder\n")


def test_the_example_of_the_guide_is_read_and_right() -> None:
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = guide.partition("```\n@ core.ops.activations: softsign\n")[2].partition("```")[0]
    note = reading.Notes("core.ops.activations", "softsign")
    for line in block.splitlines():
        reading._note(note, line)
    assert note == reading.Notes("core.ops.activations", "softsign", begins=note.begins)
    (equations,) = re.findall(rf"^    ({re.escape(note.begins)}) +(.+)$", guide, re.MULTILINE)
    assert verify.derivation("\n".join(["given x: (n), dy: (n)", *equations])).ok
