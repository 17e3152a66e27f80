"""Audits of suites written for it: what they catch, what they let pass, and defective suites."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiers import in_one

from minitransformer.check.audit import Outcome, Result, Suite, audit, picture, read, table
from minitransformer.check.audit.replacing import namespace_of, shown
from minitransformer.check.audit.suite import Function
from minitransformer.check.audit.worker import apart, in_turn
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
    assert len(told) == 2 + len(result.outcomes) and result.calls == 1
    assert told[0] == f"softmax: {len(result.outcomes)} known mistakes"
    assert told[-1].startswith(f"softmax: {len(result.outcomes)} of {len(result.outcomes)}: ")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "toml", "right", "problem"),
    [
        (WEAK, "before = 'import absent'\n" + TOML, "error", "stops with ModuleNotFoundError: No module named"),
        (WEAK + "    assert y.sum() == 7\n", TOML, "failed", "test_work.py::test_rows_sum_to_one: assert "),
        ("def test():\n    assert False\n", TOML, "fails by itself", "test_work.py::test: assert False"),
        ("import time\n\ndef test():\n    time.sleep(60)\n", TOML, "fails by itself", "ran out of time"),
        ("import absent\n", TOML, "error", "test_work.py: ModuleNotFoundError: No module named 'absent'"),
        ("def test():\n    pass\n", TOML, "never called", ""),
        (WEAK, TOML.replace("work:softmax", "work:soft_max"), "not found", "soft_max"),
        (WEAK, TOML.replace("work:softmax", "elsewhere:softmax"), "not found", "elsewhere"),
        (WEAK, TOML.replace("test_work.py", "test_other.py"), "error", "file or directory not found: test_other.py"),
        ("import pytest\n\n@pytest.mark.skip\ndef test():\n    pass\n", TOML, "no tests", "1 skipped in "),
        ("import os\n\ndef test():\n    os._exit(3)\n", TOML, "error", "the process died"),
    ],
    ids="before|fails|by itself|hangs|no import|never called|no function|no module|no file|no test|dies".split("|"),
)  # fmt: skip
def test_a_suite_without_a_verdict_is_a_line_in_the_report(
    tmp_path: Path, tests: str, toml: str, right: str, problem: str
) -> None:
    described, (result,) = audit(suite(tmp_path, tests, toml), tmp_path, 5.0)
    assert result.right == right and problem in result.problem and result.outcomes == []
    said = table([(described, [result])])
    assert "| no verdict: the " in said and all(line.count("|") == 6 for line in said.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(("also", "right"), [
    ("from .work import softmax\n", "passed"),
    ("from .work import KEPT\nsoftmax = lambda x: KEPT[0](x)\n", "never called"),  # as functools.partial holds it
])  # fmt: skip
def test_a_function_is_replaced_under_each_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: str, right: str
) -> None:
    """The suite tests pkg.softmax; its description names pkg.work.softmax, in a folder that `paths` adds."""
    package = tmp_path / "source" / "pkg"
    package.mkdir(parents=True)
    own = "import numpy as np\n\ndef softmax(x):\n    return (np.ones(x.shape) / x.shape[-1],)\n\nKEPT = [softmax]\n"
    (package / "work.py").write_text(own)
    (package / "__init__.py").write_text(also)
    tests = (STRONG if right == "passed" else WEAK).replace("work", "pkg")
    path = suite(tmp_path, tests, 'paths = ["source"]' + TOML.replace("work:softmax", "pkg.work:softmax"))
    monkeypatch.chdir(tmp_path.parent)
    described, (result,) = audit(path, tmp_path.name)
    assert result.right == right and bool(result.of("caught")) is (right == "passed") and not result.of("survived")
    assert (right == "passed") is ("passes, but the tests never call it | | |" not in table([(described, [result])]))


@pytest.mark.slow
def test_what_the_suites_own_function_does_by_design_is_no_survivor(tmp_path: Path) -> None:
    path = suite(tmp_path, WEAK, TOML.replace('["(r.normal', '["(r.normal(size=(2, 3)) + 800.0,)", "(r.normal'))
    own = "    p = np.exp(x)\n    return p / p.sum(-1, keepdims=True), lambda dy: dy * p"
    (tmp_path / "work.py").write_text(f"import numpy as np\n\ndef softmax(x):\n{own}\n")
    described, (result,) = audit(path, tmp_path)
    (found,) = result.of("by design")
    assert found.mistake == "softmax-overflows" and result.of("survived")
    assert "It is no survivor: the suite's own function does the same." in table([(described, [result])])


KILL = """
import os, pathlib

def test_kill():
    runs = pathlib.Path(__file__).with_name("runs")
    with runs.open("a") as file:
        file.write("x")
    if runs.stat().st_size == 3:
        os.kill(os.getppid(), 9)
"""
LEAVE = """
import json, os, time
json.dumps = lambda *args, **options: "{}"

def test_leave():
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("more", "right", "problem"), [(KILL, "error", "the worker stopped"), (LEAVE, "passed", "")])
def test_what_tests_do_to_the_worker(tmp_path: Path, more: str, right: str, problem: str) -> None:
    """Verdicts on some of the mistakes are none on the suite; and nobody waits for what a test leaves running."""
    start = time.monotonic()
    described, (result,) = audit(suite(tmp_path, WEAK + more), tmp_path, 20.0)
    assert (result.right, result.problem) == (right, problem) and result.outcomes
    assert ("no verdict" in table([(described, [result])])) == (right == "error")
    assert time.monotonic() - start < 50.0


def test_one_process_takes_all_in_turn_and_another_goes_on_where_it_hangs_or_dies() -> None:
    def run(names: list[str], tell: Any) -> None:
        for name in names:
            if name == "hangs":
                time.sleep(60.0)
            if name == "dies":
                os._exit(3)
            tell({"outcome": name, "process": os.getpid()})

    found = list(in_turn(0.2, ["a", "b", "dies", "c", "hangs", "d"], run))
    outcomes = [each["outcome"] for each in found]
    assert outcomes == ["a", "b", "error", "c", "ran out of time", "d"]
    processes = [each.get("process") for each in found]
    assert processes[0] == processes[1] and len({*processes} - {None}) == 3
    assert apart(0.2, lambda: {"outcome": "passed"}) == {"outcome": "passed"}
    assert "ZeroDivisionError" in apart(5.0, lambda: {"outcome": 1 // 0})["problem"]


@pytest.mark.parametrize(("old", "new", "said"), [
    ('title = "a suite"', "title = a suite", "this is not a TOML file"),
    ('title = "a suite"', "", "the suite needs title, a text"),
    ('["softmax"]', '["softmix"]', "function 1: there is no op 'softmix'"),
    ('call = "lambda x: softmax(x)"', "", "give both replaces"),
    ('"work:softmax"', '"work.softmax"', 'replaces must be "module:attribute"'),
    ("[[functions]]", "colour = 1\n[[functions]]", "the suite has colour; known are"),
    ("[[functions]]", 'arrays = "cupy"\n[[functions]]', "arrays must be one of numpy, torch, jax, got .cupy"),
])  # fmt: skip
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


@pytest.mark.parametrize("package", [False, True])
def test_where_the_command_looks_for_a_suite_and_how_it_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: bool
) -> None:
    """In a folder of its name, unless that is a package in its repository. Not on a terminal: a line in ten seconds."""
    path, seen, seconds = suite(tmp_path, WEAK), list[Path](), iter([0.0, 5.0, 11.0, 11.0, 12.0, 22.0, 22.0])
    (tmp_path / "suite").mkdir()
    if package:
        (tmp_path / "suite" / "__init__.py").touch()

    def pretended(path: Path, folder: Path, limit: float, progress: Any) -> tuple[Suite, list[Result]]:
        seen.append(folder)
        for line in ("after 5 s", "after 11 s", "after 12 s", "after 22 s"):
            progress(line)
        return read(path), []

    monkeypatch.setattr("minitransformer.commands.audit.audit", pretended)
    monkeypatch.setattr("minitransformer.commands.audit.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert main(["audit", str(path), "--at", str(tmp_path)]) == 0
    assert seen == [tmp_path if package else tmp_path / "suite"]
    assert capsys.readouterr().err.split("\n") == ["after 11 s", "after 22 s", ""]


@in_one("name", [path.name for path in SUITES])
def test_our_descriptions_can_be_read(name: str) -> None:
    described = read(SUITES[0].parent / name)
    assert described.title and all(
        function.inputs or not function.replaces for function in described.functions if function.tests
    )


def test_where_nothing_was_asked_the_row_does_not_read_as_a_clean_bill() -> None:
    outcomes = [Outcome("m", "It is wrong.", "no effect")]
    described, result = (
        read(SUITES[0]),
        Result(Function(("relu",), ("t.py",)), "passed", tests=3, skipped=2, outcomes=outcomes),
    )
    said = table([(described, [result, result])])
    assert (
        "| `relu` (relu) | 3 (2 skipped) | nothing was asked | |" in said
        and "That says nothing about the tests." in said
    )
    assert " all " not in said  # nor does a sum over these
    assert not picture([(described, [result])]).axes[0].patches


@pytest.fixture
def audited(tmp_path: Path) -> tuple[Suite, Result]:
    """A result as an audit gives it: one mistake is caught, and one survives."""
    described = read(suite(tmp_path, WEAK))
    shown = Outcome("softmax-no-sum", "The sum is missing.", "survived", "", "(r.normal(size=3),)", 2, "dx is off by 2")
    outcomes = [Outcome("softmax-overflows", "It overflows.", "caught", "test_work.py::test"), shown]
    return described, Result(described.functions[0], "passed", tests=1, outcomes=outcomes)


@pytest.mark.parametrize(("mistake", "shows"), [("softmax-no-sum", "dx is off by"), ("softmax-overflows", "")])
def test_the_input_that_shows_a_survivor(audited: tuple[Suite, Result], mistake: str, shows: str) -> None:
    """Ordinary numbers show the first mistake, but only scores above 700 the second."""
    described, result = audited
    found = shown(described, result.function, namespace_of(described), MISTAKES[mistake])
    assert found.get("shows", "").startswith(shows) and bool(found) == bool(shows)
    if found:
        assert (found["input"], found["seed"]) == ("(r.normal(size=(2, 3)),)", 0)
