"""Audits of suites written for it: what they catch, what they let pass, and defective suites."""

import json
from pathlib import Path

import pytest

from minitransformer.check.audit import Outcome, Result, Suite, audit, picture, read, table, worker
from minitransformer.check.audit.suite import Function
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.cli import main

SUITES = sorted((Path(__file__).parent.parent / "benchmarks" / "suites").glob("*.toml"))
STUDENT = "def softmax(x):\n    raise NotImplementedError\n"
WEAK = """
import numpy as np
import work

def test_rows_sum_to_one():
    y = work.softmax(np.array([[1.0, 2.0, 4.0]]))[0]
    assert np.allclose(y.sum(axis=-1), 1.0)
"""
STRONG = (
    WEAK
    + """
def test_values_and_gradient():
    x, dy = np.array([[1.0, 2.0, 4.0], [0.0, -1.0, 2.0], [800.0, 3.0, 801.0]]), np.array([[1.0, -2.0, 0.5]] * 3)
    y, backward = work.softmax(x)
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    assert np.allclose(y, p)
    assert np.allclose(backward(dy), p * (dy - (dy * p).sum(axis=1, keepdims=True)))
    assert np.allclose(y, p)  # backward has left the output as it was
"""
)
TOML = """
title = "a suite"
commit = "0123456789abcdef"

[[functions]]
ops = ["softmax"]
replaces = "work:softmax"
call = "lambda x: softmax(x)"
probe = '''
def probe(function, x):
    y, backward = function(x)
    return {"the output": y, "dx": backward(np.random.default_rng(1).normal(size=y.shape))}
'''
tests = ["test_work.py"]
inputs = ["(r.normal(size=(2, 3)),)"]
"""


def suite(folder: Path, tests: str, toml: str = TOML) -> Path:
    (folder / "work.py").write_text(STUDENT)
    (folder / "test_work.py").write_text(tests)
    path = folder / "suite.toml"
    path.write_text(toml)
    return path


@pytest.mark.slow
def test_a_weak_suite_lets_backward_passes_through(tmp_path: Path) -> None:
    told: list[str] = []
    described, (result,) = audit(suite(tmp_path, WEAK), tmp_path, 60.0, told.append)
    assert (result.right, result.tests) == ("passed", 1)
    survivors = {outcome.mistake: outcome for outcome in result.of("survived")}
    assert {"softmax-no-sum", "softmax-diagonal-only"} <= survivors.keys()
    assert survivors["softmax-no-sum"].shows.startswith("dx is off by")
    assert len(told) == 1 + len(result.outcomes)
    text = table([(described, [result])])
    assert (
        f"| a suite at 0123456789 | `softmax` (softmax) | 1 | {len(result.of('caught'))} | {len(survivors)} |" in text
    )
    assert "Seen with `(r.normal(size=(2, 3)),)` with r = np.random.default_rng(0): dx is off by" in text
    assert len(picture([(described, [result])]).axes) == 1


@pytest.mark.slow
def test_a_strong_suite_lets_nothing_pass(tmp_path: Path) -> None:
    _, (result,) = audit(suite(tmp_path, STRONG), tmp_path)
    assert result.right == "passed" and result.of("caught") and result.of("survived") == []


OF_OURS = """
import numpy as np
from minitransformer import ops

def test_tanh():
    x = np.array([0.3, -2.0])
    y, backward = ops.tanh(x)
    assert np.allclose(y, np.tanh(x))

def test_relu():
    y, backward = ops.relu(np.array([0.3, -2.0, 0.0, 4.0]))
    assert y.tolist() == [0.3, 0.0, 0.0, 4.0]
    assert backward(np.array([2.0, 3.0, 5.0, -1.0])).tolist() == [2.0, 0.0, 0.0, -1.0]
"""


@pytest.mark.slow
def test_each_op_of_ours_that_a_suite_tests_is_asked_for(tmp_path: Path) -> None:
    each = '[[functions]]\nops = "each"\ntests = ["test_work.py", "-k", "test_{op}"]\n'
    path = suite(tmp_path, OF_OURS, f'title = "ours"\n{each}')
    described, results = audit(path, tmp_path)
    assert [result.function.name for result in results] == ["relu", "tanh"]
    relu, tanh = results
    assert len(relu.of("caught")) >= 3 and not relu.of("survived")
    assert len(tanh.of("survived")) >= 2 and not tanh.of("caught")
    text = table([(described, results)])
    assert f"| ours | all | 2 | {len(relu.outcomes)} | {len(tanh.outcomes)} |" in text
    assert "- `tanh-linear`: " in text and "Seen with" not in text


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("tests", "toml", "right", "problem"),
    [
        ("def test():\n    assert False\n", TOML, "failed", "test_work.py::test"),
        ("import time\n\ndef test():\n    time.sleep(60)\n", TOML, "ran out of time", ""),
        (WEAK, TOML.replace("work:softmax", "work:soft_max"), "not found", "soft_max"),
        (WEAK, TOML.replace("work:softmax", "elsewhere:softmax"), "not found", "elsewhere"),
        (WEAK, TOML.replace("test_work.py", "test_other.py"), "error", "pytest ended with status 4"),
        ("", TOML, "no tests", ""),
        ("import os\n\ndef test():\n    os._exit(3)\n", TOML, "error", "the process died"),
        (
            WEAK,
            "before = 'import absent'\n" + TOML,
            "error",
            "stops with ModuleNotFoundError: No module named 'absent'",
        ),
    ],
    ids=["fails", "hangs", "no function", "no module", "no file", "no test", "dies", "before"],
)
def test_a_suite_without_a_verdict_is_a_line_in_the_report(
    tmp_path: Path, tests: str, toml: str, right: str, problem: str
) -> None:
    described, (result,) = audit(suite(tmp_path, tests, toml), tmp_path, 5.0)
    assert result.right == right and problem in result.problem and result.outcomes == []
    assert "| no verdict: the right version " in table([(described, [result])])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "a suite"', "title = a suite", "this is not a TOML file"),
        ('title = "a suite"', "", "the suite needs title, a text"),
        ('["softmax"]', '["softmix"]', "function 1: there is no op 'softmix'"),
        ('call = "lambda x: softmax(x)"', "", "give both replaces"),
        ('"work:softmax"', '"work.softmax"', 'replaces must be "module:attribute"'),
        ("[[functions]]", "colour = 1\n[[functions]]", "the suite has colour; known are"),
        ("[[functions]]", 'arrays = "cupy"\n[[functions]]', "arrays must be one of numpy, torch, jax, got .cupy"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = suite(tmp_path, WEAK, TOML.replace(old, new))
    with pytest.raises(ValueError, match=r"suite\.toml: .*" + said.replace("(", r"\(").replace('"', '"')):
        read(path)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = suite(tmp_path, STRONG)
    drawn = tmp_path / "drawn.png"
    assert main(["audit", str(path), "--at", str(tmp_path), "--json", "--picture", str(drawn)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["title"] == "a suite" and found["functions"][0]["right"] == "passed"
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = suite(tmp_path, STRONG)
    assert main(["audit", str(tmp_path / "none.toml")]) == 2
    assert main(["audit", str(path), "--at", str(tmp_path), "--limit", "0"]) == 2
    assert main(["audit", str(path), "--at", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_our_descriptions_can_be_read(path: Path) -> None:
    described = read(path)
    assert described.title and all(
        function.inputs or not function.replaces for function in described.functions if function.tests
    )


def test_a_row_of_a_result_without_survivors() -> None:
    result = Result(
        Function(("relu",), ("t.py",)), "passed", tests=3, outcomes=[Outcome("m", "It is wrong.", "caught")]
    )
    assert table([(read(SUITES[0]), [result])]).splitlines()[-1].endswith("| `relu` (relu) | 3 | 1 | 0 |")


@pytest.fixture
def audited(tmp_path: Path) -> tuple[Suite, Result]:
    """A result as an audit gives it: one mistake is caught, and one survives."""
    described = read(suite(tmp_path, WEAK))
    shown = Outcome("softmax-no-sum", "The sum is missing.", "survived", "", "(r.normal(size=3),)", 2, "dx is off by 2")
    outcomes = [Outcome("softmax-overflows", "It overflows.", "caught", "test_work.py::test"), shown]
    return described, Result(described.functions[0], "passed", tests=1, outcomes=outcomes)


def test_a_survivor_is_a_sentence_and_a_bar(audited: tuple[Suite, Result]) -> None:
    described, result = audited
    text = table([(described, [result, result])])
    assert "| a suite at 0123456789 | `softmax` (softmax) | 1 | 1 | 1 |" in text
    assert "| a suite at 0123456789 | all | 2 | 2 | 2 |" in text
    sentence = (
        "- `softmax-no-sum`: The sum is missing. Seen with `(r.normal(size=3),)` with r = np.random.default_rng(2)"
    )
    assert f"{sentence}: dx is off by 2." in text
    bars = picture([(described, [result])]).axes[0]
    assert [bar.get_width() for bar in bars.patches] == [1, 1]


@pytest.mark.parametrize(
    ("mistake", "shows"),
    [("softmax-no-sum", "dx is off by"), ("softmax-overflows", "")],
)
def test_the_input_that_shows_a_survivor(audited: tuple[Suite, Result], mistake: str, shows: str) -> None:
    """Ordinary numbers show the first mistake, but only scores above 700 the second."""
    described, result = audited
    found = worker._shown(described, result.function, worker._namespace(described), MISTAKES[mistake])
    assert found.get("shows", "").startswith(shows) and bool(found) == bool(shows)
    if found:
        assert (found["input"], found["seed"]) == ("(r.normal(size=(2, 3)),)", 0)


@pytest.mark.parametrize(
    ("status", "passed", "outcome"),
    [(0, 2, "passed"), (1, 0, "failed"), (0, 0, "no tests"), (5, 0, "no tests"), (4, 0, "error")],
)
def test_what_became_of_the_tests(status: int, passed: int, outcome: str) -> None:
    counts = worker._Counts()
    counts.passed = passed
    assert counts.outcome(status)["outcome"] == outcome
