"""The command line: what each verb prints and returns, and that every error is one line and no traceback."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from all_ops import OPS

import minitransformer
from minitransformer import backend
from minitransformer.check.verify.catalogue import Case
from minitransformer.cli import main
from minitransformer.commands import check as check_command
from minitransformer.commands import demo, outputs
from minitransformer.commands.options import COMMANDS, declared
from minitransformer.commands.options.training import MEANINGS
from minitransformer.core import ops
from minitransformer.ideas.published.packed import WEIGHTS
from minitransformer.run.machines.recipes import RECIPES, recipe_name
from minitransformer.run.machines.settings import OPTIMIZERS, TrainingSettings, used_by
from minitransformer.run.tasks import TASKS
from minitransformer.school.course.worksheets.hand_out import FORMATS
from minitransformer.verify import CASES

ROOT = Path(__file__).parent.parent
KINDS = {"ops": "op", "layers": "layer", "models": "model", "collectives": "collective"}


@pytest.fixture(autouse=True)
def fresh_devices(monkeypatch):
    """MINITRANSFORMER_DEVICE from outside must not reach a test, nor one test's CuPy another."""
    known = {name: device for name, device in backend._devices.items() if name != "cupy"}
    monkeypatch.setattr(backend, "_devices", known)
    monkeypatch.delenv("MINITRANSFORMER_DEVICE", raising=False)


@pytest.fixture
def run(capsys):
    """run(*arguments) -> (status, stdout, stderr), in this process."""

    def run(*arguments):
        try:
            status = main(arguments)
        except SystemExit as end:  # --help and --version
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


def environment(**changes):
    unwanted = ("MINITRANSFORMER_DEVICE", "PYTHONUNBUFFERED", "PYTHONIOENCODING")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | {"PYTHONPATH": str(ROOT)} | changes


def start(*arguments, **options):
    command = [sys.executable, "-m", "minitransformer", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    return subprocess.Popen(command, **(pipes | {"env": environment()} | options))


def run_program(*arguments, **options):
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def assert_one_line_error(err, *parts):
    assert err.startswith("minitransformer: error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    for part in parts:
        assert part in err


def names_in(out):
    """The cases that a table lists."""
    lines = out.splitlines()
    return [line.split("  ")[0] for line in lines[1:] if re.search(r"  (ok|WRONG)$", line)]


CASES_OF = {op: [name for name in CASES if name.split()[0] == op] for op in OPS}


@pytest.fixture
def only_pretend(monkeypatch):
    """Checks that take no time, for tests of which cases are chosen."""
    report = CASES["softmax"].run()
    monkeypatch.setattr(Case, "run", lambda self, seed, device: type(report)(self.name, report.rows), raising=True)
    monkeypatch.setattr(check_command, "forms", lambda case, seed, device: [])
    monkeypatch.setattr(check_command, "docstrings", lambda options: {"ok": True, "summary": "none looked at"})


@pytest.mark.parametrize(("names", "wanted"), [
    ([], lambda case: True),
    (["ops"], lambda case: case.kind == "op"),
    (["layers"], lambda case: case.kind == "layer"),
    (["models"], lambda case: case.kind == "model"),
    (["softmax"], lambda case: case.name.split()[0] == "softmax"),
    (["Transformer"], lambda case: case.name.split()[0] == "Transformer"),
    (["relu at its kink"], lambda case: case.name == "relu at its kink"),
    (["models", "gelu", "gelu by tanh"], lambda case: case.kind == "model" or case.name.split()[0] == "gelu"),
], ids=lambda x: "+".join(x) or "all" if isinstance(x, list) else "")  # fmt: skip
def test_names_and_kinds_choose_cases(run, only_pretend, names, wanted):
    status, out, err = run("check", *names)
    assert (status, err) == (0, "")
    chosen = names_in(out)
    assert sorted(chosen) == sorted(case.name for case in CASES.values() if wanted(case))
    kinds = [CASES[name].kind for name in chosen]
    assert kinds == sorted(kinds, key=list(KINDS.values()).index)


@pytest.mark.parametrize(("name", "hint"), [
    ("sofmax", "did you mean 'softmax'?"),
    ("Encoder_Layer", "did you mean 'EncoderLayer'?"),
    ("op", "did you mean 'ops'?"),
    ("LAYERNORM", "try one of: ops, layers, models, collectives, derivations, linear"),
    ("", "try one of: ops, layers, models, collectives, derivations, linear"),
])  # fmt: skip
def test_an_unknown_name_is_bad_usage_with_a_suggestion(run, name, hint):
    status, out, err = run("check", "softmax", name)
    assert (status, out) == (2, "")
    assert_one_line_error(err, f"check knows no {name!r}", hint)


def test_the_table_tells_what_was_checked(run):
    status, out, err = run("check", "softmax", "Linear without bias")
    assert (status, err) == (0, "")
    cases = [*(name for name in CASES if name.split()[0] == "softmax"), "Linear without bias"]
    assert names_in(out) == cases
    reports = [CASES[name].run(0) for name in cases]
    n_rows = sum(len(report.rows) for report in reports)
    for report, line in zip(reports, out.splitlines()[1:], strict=False):
        assert line.removeprefix(report.name).split() == [str(len(report.rows)), f"{report.max_error:.1e}", "ok"]
    *_, counts, errors = out.splitlines()
    assert counts == f"{n_rows} gradients, all ok; largest error of"
    worst = [max(row.error for report in reports for row in report.of_kind(kind)) for kind in ("input", "parameter")]
    assert errors.startswith(f"inputs {worst[0]:.1e}, parameters {worst[1]:.1e}, intermediates ")


def test_verbose_shows_every_gradient(run):
    _, out, _ = run("check", "low_rank_linear", "--verbose")
    for row in CASES["low_rank_linear"].run(0).rows:
        assert re.search(rf"^{re.escape(row.name)} .*  ok$", out, re.M)


def test_the_environment_chooses_the_device_and_the_option_overrules_it(run, monkeypatch):
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "strict")
    assert json.loads(run("check", "RMSNorm", "--json")[1])["device"] == "strict"
    assert json.loads(run("check", "RMSNorm", "--json", "--device", "numpy")[1])["device"] == "numpy"


def parsed(text):
    """JSON as the standard has it: NaN and Infinity are refused."""

    def refuse(token):
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_all_that_is_printed(run):
    status, out, err = run("check", "relu", "--json", "--verbose")
    assert status == 0
    assert [case["name"] for case in parsed(out)["cases"]] == CASES_OF["relu"]
    assert "relu: all 2 gradients are right" in err


right_silu = ops.silu


def slightly_wrong(x):
    y, backward = right_silu(x)
    return y, lambda dy: backward(dy) * (1.0 + 1e-3)


def not_finite(x):
    y, backward = right_silu(x)
    return y, lambda dy: backward(dy) * math.nan


def failing(x):
    y, _ = right_silu(x)

    def backward(dy):
        raise IndexError("axis 7 is\nout of bounds")

    return y, backward


WRONG = [slightly_wrong, not_finite, failing]


@pytest.mark.few(2)
@pytest.mark.parametrize("silu", WRONG)
def test_a_wrong_backward_fails_the_check(run, monkeypatch, silu):
    monkeypatch.setattr(ops, "silu", silu)
    status, out, err = run("check", "silu", "relu")
    assert (status, err) == (1, "")
    assert re.search(r"^silu +\d+ +\S+  WRONG$", out, re.M)
    assert re.search(r"^relu +2 +\S+  ok$", out, re.M)  # the others are checked all the same
    assert "WRONG" in out.splitlines()[-2]
    assert re.search(r"^silu: \d+ of \d+ gradients are wrong: ", out, re.M)  # and what is wrong is told in full
    status, out, err = run("check", "silu", "relu", "--json")
    document = parsed(out)
    assert status == 1 and document["ok"] is False and "silu: " in err
    verdicts = {case["name"]: case["ok"] for case in document["cases"]}
    assert verdicts == dict.fromkeys(CASES_OF["silu"], False) | dict.fromkeys(CASES_OF["relu"], True)
    error = document["max_error"]["input"]
    assert error > 1e-6 if silu is slightly_wrong else error is None


def test_a_gradient_that_rounding_hides_is_not_called_wrong(run, monkeypatch):
    def shifted(x):
        y, backward = right_silu(x)
        return y + 1e15, backward

    monkeypatch.setattr(ops, "silu", shifted)
    status, out, err = run("check", "silu", "relu")
    assert (status, err) == (1, "")
    assert re.search(r"^silu +\d+ +\S+  CANNOT BE SEEN$", out, re.M) and "WRONG" not in out.splitlines()[-2]
    assert out.splitlines()[-2].endswith("not all of them ok: CANNOT BE SEEN; largest error of")


@pytest.mark.few(1)
@pytest.mark.parametrize("names", [("layer_norm", "layer-norm"), ("cross-entropy", "cross_entropy")])
def test_check_and_step_take_a_name_in_either_spelling(run, names):
    """It was `check layer_norm` but `step layer-norm`."""
    for verb in ("check", "step"):
        (status, out, err), other = (run(verb, name) for name in names)
        assert (status, err) == (0, ""), out
        assert out and other == (status, out, err)


def test_cupy_without_a_gpu_is_one_line(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # import cupy raises ImportError
    for verb in ("check", "demo"):
        status, out, err = run(verb, "--device", "cupy")
        assert (status, out) == (1, "")
        assert_one_line_error(err, '"cupy"', "pip install")


@pytest.mark.parametrize("verb", ["check", "demo"])
def test_an_unknown_device_is_one_line(run, monkeypatch, verb):
    status, out, err = run(verb, "--device", "nonsense")
    assert (status, out) == (2, "")
    assert_one_line_error(err, 'unknown device "nonsense"; expected one of "cupy", "numpy"')
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "nonsense")
    status, out, err = run(verb)
    assert (status, out) == (2, "")
    assert_one_line_error(err, 'unknown device "nonsense" (from MINITRANSFORMER_DEVICE)')


@pytest.mark.parametrize(("arguments", "parts"), [
    ([], ["the following arguments are required: COMMAND", "minitransformer --help"]),
    (["chek"], ["there is no command 'chek'", "did you mean 'check'"]), (["xyz"], ["choose from", "train"]),
    (["check", "--seed", "-1"], ["--seed must be at least 0, got -1"]),
    (["check", "--seed", "one"], ["invalid int value: 'one'", "minitransformer check --help"]),
    (["check", "--fast"], ["unrecognized arguments: --fast"]),
    (["demo", "--steps", "0"], ["--steps must be at least 1, got 0"]),
    (["demo", "softmax"], ["unrecognized arguments: softmax"]),
], ids=" ".join)  # fmt: skip
def test_bad_usage_is_one_line_and_status_2(run, monkeypatch, arguments, parts):
    monkeypatch.setattr(demo, "run", lambda *_: pytest.fail("it ran"))
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert_one_line_error(err, *parts)


def test_version(run):
    assert run("--version") == (0, f"minitransformer {minitransformer.__version__}\n", "")


IMPORTED = r"""
import contextlib, io, json, re, sys
from minitransformer.cli import main
ours = r"minitransformer\.(cli|moved|commands(\.outputs|\.options.*)?)$"
light = re.compile(rf"(?!numpy|tqdm|numba|minitransformer\.)|{ours}")
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        main(words)
    assert "usage: " in out.getvalue() or "; see minitransformer" in out.getvalue(), words
    assert all(map(light.match, sys.modules)), (words, [name for name in sys.modules if not light.match(name)])
"""


def test_help_and_bad_usage_import_neither_numpy_nor_a_model():
    words = [[name] for name in COMMANDS] + [["train", task] for task in TASKS] + [["plot", "attention"], []]
    helps = [[*each, "--help"] for each in words]
    wrong = [["chek"], ["train", "lm", "--nonsense", "1"], ["fill-mask", "--nonsense"]]
    command = [sys.executable, "-c", IMPORTED, json.dumps(helps + wrong)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment())
    assert done.returncode == 0, done.stderr


def test_choices_written_in_the_options_are_those_of_the_code(run):
    for command, choices in {"generate": ["packed", *WEIGHTS], "worksheet": [*FORMATS]}.items():
        assert "{" + ",".join(choices) + "}" in run(command, "--help")[1], command


@pytest.mark.parametrize("name", TASKS)
def test_settings_read_from_the_source_are_those_of_the_classes(name):
    declared_task, task = declared.TASKS[name], TASKS[name]
    assert recipe_name(task) == declared_task.recipe
    assert declared_task.words() == ([*task.from_data], [*task.presets])
    for places, real in (
        (declared_task.data, task.data),
        ([declared_task.config], task.config),
        ([declared.TRAINING], TrainingSettings),
    ):
        found = [field for place in places for field in declared.fields(*place)]
        assert [(f.name, f.type, f.default, f.metadata) for f in found] == [
            (f.name, f.type, f.default, f.metadata) for f in dataclasses.fields(real)
        ]


def test_every_command_is_listed(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    files = {path.stem for path in (ROOT / "minitransformer" / "commands").glob("*.py")} - {
        "__init__",
        "common",
        "outputs",
    }
    assert {name.replace("-", "_") for name in COMMANDS} == files
    listed = " ".join(run("--help")[1].split())
    status, _, err = run("chek")
    assert status == 2
    for name, add in COMMANDS.items():
        assert f" {name} {add.__doc__.splitlines()[0]}" in listed
        assert re.search(rf"\b{name}\b", err.partition("choose from")[2])


@pytest.fixture
def demos(monkeypatch):
    """What demo.run was called with; it returns True unless told otherwise by demos.right."""

    class Demos(list):
        right = True

    called = Demos()

    def pretend(*arguments):
        called.append(arguments[:4])
        return called.right

    monkeypatch.setattr(demo, "run", pretend)
    return called


def test_demo_passes_its_options_on(run, demos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("demo")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"\ndone in \d+ s\n", out)
    assert run("demo", "--out", "a/b", "--seed", "3", "--steps", "7", "--device", "strict")[0] == 0
    assert demos == [(Path("demo"), 0, 400, "numpy"), (Path("a/b"), 3, 7, "strict")]
    assert os.listdir(tmp_path) == []  # nothing is left of the attempt to write


def test_demo_fails_if_a_gradient_is_wrong(run, demos, tmp_path):
    demos.right = False
    assert run("demo", "--out", str(tmp_path))[0] == 1


FILES = """audit x.toml --picture
compare layers --plot
exam --html
plot attention x --model m --out
step attention --html
translate x --model m --output
evaluate --model m --output
view x --model m --html
worksheet softmax-backward --html
worksheet softmax-backward --form"""
FOLDERS = """demo --out
export m
grade x.py --exercises softmax_forward --out
prepare x --out
site --out
train lm --out
worksheet softmax-backward --class x --out"""
READ = ("grade", "translate x --model", "translate --model m --input")


def test_an_empty_name_to_read_is_not_the_current_folder(run):
    for words in READ:
        status, _, err = run(*words.split(), "")
        assert status == 2 and "'' is no name of a file or folder" in err


OUTPUTS = {words: kind for kind, lines in (("file", FILES), ("folder", FOLDERS)) for words in lines.splitlines()}


@pytest.mark.parametrize("words", OUTPUTS)
def test_every_command_tries_its_way_out_before_the_work(run, demos, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    kind = OUTPUTS[words]
    refused = ["", ".", "folder", "none/a"] if kind == "file" else ["", "file", "file/deeper"]
    for name in refused:
        status, out, err = run(*words.split(), name)
        assert (status, out, demos) == (2, "", []), (name, err)
        wrong = "there is no folder none" if name == "none/a" else f"{name!r} is no {kind} that can be written"
        assert_one_line_error(err, wrong)

    def refuse(dir):  # what a read-only folder does; of the super-user it would take the file all the same
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(outputs.tempfile, "TemporaryFile", refuse)
    status, out, err = run(*words.split(), "new")
    assert (status, out, demos) == (2, "", [])
    assert_one_line_error(err, "cannot write new: Permission denied")


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, OSError])
def test_an_error_of_a_run_is_one_line(run, monkeypatch, tmp_path, error):
    def fail(*_):
        raise error("first line\n  second line")

    monkeypatch.setattr(demo, "run", fail)
    status, out, err = run("demo", "--out", str(tmp_path))
    assert (status, out) == (1, "")
    assert err == "minitransformer: error: first line second line\n"


# It may be ignored where the tests run, as a shell does for what it starts in the background.
HEED_CTRL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from minitransformer.cli import main
sys.exit(main())
"""


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_check():
    command = [sys.executable, "-u", "-c", HEED_CTRL_C, "check", "--verbose"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    process = subprocess.Popen(command, env=environment(), **pipes)
    assert process.stdout.readline().startswith("linear: all ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert (process.returncode, err) == (130, "minitransformer: error: interrupted\n")


@pytest.mark.slow
def test_output_into_head_ends_quietly():
    process = start("check", "layers", "--verbose", env=environment(PYTHONUNBUFFERED="1"))
    assert ": all " in process.stdout.readline()
    process.stdout.close()
    _, err = process.communicate(timeout=900)
    assert (process.returncode, err) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["check", "relu"], ["--help"], ["--version"]], ids=" ".join)
def test_output_that_nobody_reads_ends_quietly(arguments):
    """So little is written that it all waits in the buffer, and the pipe is found broken only at the end."""
    read, write = os.pipe()
    os.close(read)
    status, _, err = run_program(*arguments, stdout=write)
    os.close(write)
    assert (status, err) == (1, "")


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_letter_gets_a_question_mark():
    case = "rms_norm with a large ε"
    status, out, err = run_program("check", case, env=environment(PYTHONIOENCODING="ascii"))
    assert (status, err) == (0, "")
    assert "rms_norm with a large ? " in out


@pytest.mark.slow
def test_the_module_and_the_command_are_the_same_program():
    script = Path(sys.executable).parent / "minitransformer"
    options = {"capture_output": True, "encoding": "utf-8", "env": environment(), "timeout": 900}
    for command in ([sys.executable, "-m", "minitransformer"], [str(script)]):
        done = subprocess.run([*command, "check", "gelu"], **options)
        assert (done.returncode, done.stderr, names_in(done.stdout)) == (0, "", CASES_OF["gelu"])
        done = subprocess.run([*command, "check", "gleu"], **options)
        assert (done.returncode, done.stdout) == (2, "")
        assert_one_line_error(done.stderr, "did you mean 'gelu'?")


def test_every_meaning_in_the_help_of_train_is_one_of_a_setting():
    settings = {
        name: {field.name for s in (task.data, task.config) for field in dataclasses.fields(s)}
        for name, task in TASKS.items()
    }
    of_recipes = {field.name for config in RECIPES.values() for field in dataclasses.fields(config)}
    everywhere = {field.name for field in dataclasses.fields(TrainingSettings)}.union(of_recipes, *settings.values())
    for task, meanings in MEANINGS.items():
        assert set(meanings) <= settings.get(task, everywhere), task
    assert MEANINGS["all"]["optimizer"].startswith(f"{', '.join(OPTIMIZERS)} ")
    for name in ("weight_decay", "momentum"):
        assert MEANINGS["all"][name] == f"used by {used_by(name)}"
