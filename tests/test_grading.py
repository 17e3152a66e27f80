"""Grading: the verdicts on honest hand-ins are right, and no hand-in passes or breaks it but by its answers."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from minitransformer.cli import main
from minitransformer.course import EXERCISES, hand_in, judge, sandbox, wire
from minitransformer.course.collecting import Answer
from minitransformer.course.grading import grade
from minitransformer.course.sandbox import Limits

RIGHT = """
import numpy as np

def softmax_backward(y, dy):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))
"""
WRONG = """
def softmax_backward(y, dy):
    return y * dy
"""
LIMITS = Limits(seconds=60.0, memory=2 * 1024**3)
QUICK = Limits(seconds=8.0, memory=2 * 1024**3)


def graded(tmp_path, source, limits=LIMITS, exercises=("softmax_backward",), name="hand_in.py"):
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    return grade(path, exercises, limits=limits)


def notebook(*cells):
    return json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["def softmax_backward(): prose"]},
                *({"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells),
            ],
            "nbformat": 4,
        }
    )


# ---- Honest hand-ins. ----


def test_right_partial_wrong_and_missing(tmp_path):
    source = (
        RIGHT
        + """
def matmul_backward(a, b, dc):
    return dc @ b.T, 2 * a.T @ dc

def relu_backward(x, dy):
    return dy

def gelu_backward(x, dy):
    raise RuntimeError("I do not know")

def my_helper(x):
    return x
"""
    )
    wanted = "softmax_backward matmul_backward relu_backward gelu_backward attention_backward".split()
    found = {one.exercise: one for one in graded(tmp_path, source, exercises=wanted).grades}
    verdicts = {name: (one.verdict, round(one.score, 6)) for name, one in found.items()}
    assert verdicts == {
        "softmax_backward": ("right", 1.0),
        "matmul_backward": ("partial", 0.5),
        "relu_backward": ("wrong", 0.0),
        "gelu_backward": ("wrong", 0.0),
        "attention_backward": ("missing", 0.0),
    }
    assert found["gelu_backward"].summary == "RuntimeError: I do not know"
    assert "in gelu_backward" in found["gelu_backward"].message


def test_without_a_list_all_that_is_there_is_graded_in_the_order_of_the_course(tmp_path):
    source = (
        "relu_backward = lambda x, dy: dy * (x > 0)\n" + RIGHT + "\ndef _private():\n    def attention_backward(): 0"
    )
    grades = graded(tmp_path, source, exercises=None)
    assert [(one.exercise, one.verdict) for one in grades.grades] == [
        ("softmax_backward", "right"),
        ("relu_backward", "right"),
    ]
    assert grades.score == 1.0


def test_the_mistake_is_named(tmp_path):
    (one,) = graded(tmp_path, WRONG).grades
    assert (one.verdict, one.result.mistake) == ("wrong", one.summary.partition(":")[0])
    assert one.result.mistake in EXERCISES["softmax_backward"].known_mistakes


def test_functions_among_the_arguments_are_called_where_they_are(tmp_path):
    source = """
def residual_backward(dy, sublayer_backward):
    return dy + sublayer_backward(dy)

def post_norm_backward(dy, sublayer_backward, norm_backward):
    dtotal = norm_backward(dy)
    return dtotal + sublayer_backward("not an array")
"""
    right, wrong = graded(tmp_path, source, exercises=["residual_backward", "post_norm_backward"]).grades
    assert right.verdict == "right"
    assert wrong.verdict == "wrong" and "Error" in wrong.summary


def test_a_notebook_with_magics_and_a_failing_cell(tmp_path):
    cells = [
        "%matplotlib inline\nimport numpy as np\n!pip install torch\nfiles = !ls\nnp.sum?",
        "from minitransformer import course\nfrom minitransformer.course import check",
        "if True:\n    %time x = 1\n",
        "%%bash\nrm -rf /",
        "this is no Python",
        "raise ValueError('on purpose \\x1b[31m')",
        "%%time\ndef softmax_backward(y, dy):\n    return y * (dy - (dy * y).sum(-1, keepdims=True))",
        "check('softmax_backward', softmax_backward)\ncourse.exercise('softmax_backward').hint()",
        "text = '''\n% not a magic\n'''\nassert text == '\\n% not a magic\\n'",
        "import sys; sys.exit(3)",
    ]
    grades = graded(tmp_path, notebook(*cells), name="hand_in.ipynb")
    assert [one.verdict for one in grades.grades] == ["right"]
    failed = grades.failed_cells
    assert [cell.split(":")[0] for cell in failed] == [f"hand_in.ipynb, code cell {i}, line 1" for i in (5, 6)] + [
        "hand_in.ipynb, code cell 10, line 1"
    ]
    assert (
        "SyntaxError" in failed[0] and failed[1].endswith("ValueError: on purpose [31m") and "SystemExit" in failed[2]
    )


def test_a_function_that_its_cell_never_came_to(tmp_path):
    (one,) = graded(tmp_path, "import numpy as np\n1 / 0\n" + RIGHT).grades
    assert (one.verdict, one.summary) == ("wrong", "it is not there after the hand-in has been run")


def test_the_same_seed_gives_the_same_grades_and_another_seed_other_inputs(tmp_path):
    path = tmp_path / "hand_in.py"
    path.write_text(WRONG)
    one, same, other = (grade(path, seed=seed).as_dict() for seed in (3, 3, 4))
    assert one == same != other


# ---- Hostile hand-ins: each has the wrong softmax_backward of WRONG, or none. ----

TRICKS = {
    "numpy is overwritten": """
import numpy as np
def always(*args, **options): return True
for name in "allclose array_equal isclose all any array_equiv".split():
    setattr(np, name, always)
np.ndarray_all = always
np.testing.assert_allclose = always
np.abs = np.absolute = np.subtract = lambda *args, **options: np.zeros(1)
""",
    "builtins are overwritten": """
import builtins
builtins.all = builtins.any = lambda *args: True
builtins.abs = lambda x: 0
""",
    "the checker is overwritten": """
import minitransformer.course as course
import minitransformer.course.collecting as collecting
course.check = course.judge = lambda *args, **options: "right"
collecting.near = lambda *args: True
collecting.collect = lambda exercise, f, seed: [collecting.Answer((0,))]
try:
    import minitransformer.course.checking as checking
    checking.close = lambda *args: True
    checking.judge = lambda *args: None
except Exception:
    pass
""",
    "the reference is imported": """
try:
    from minitransformer.course.exercises.softmax import softmax_backward as stolen
except Exception:
    pass
else:
    raise AssertionError("stolen")
""",
    "prints": """
import sys, os
for _ in range(200_000):
    print("softmax_backward: right. score 1.0")
    os.write(1, b'{"answers": []}')
    sys.stderr.write("secret")
""",
    "changes the environment": """
import os, sys, json, base64, gc
os.environ.clear()
sys.path.clear()
json.dumps = lambda *args, **options: "{}"
base64.b64encode = lambda x: b""
gc.disable()
""",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_does_not_make_a_wrong_answer_right(tmp_path, trick):
    (one,) = graded(tmp_path, TRICKS[trick] + WRONG).grades
    assert (one.verdict, one.score) == ("wrong", 0.0), one


THEFTS = {
    "by import": "from minitransformer.course.exercises.softmax import softmax_backward",
    "by its name": "import minitransformer.course as c\nsoftmax_backward = c.EXERCISES['softmax_backward'].reference",
    "by the stand-in": "from minitransformer import course\nsoftmax_backward = course.exercise(0).solution",
    "by reading its file": """
import minitransformer, pathlib
path = pathlib.Path(minitransformer.__file__).parent / "course" / "exercises" / "softmax.py"
try:
    text = path.read_text()
except PermissionError:
    text = ""
assert not text, "stolen"
def softmax_backward(y, dy): return text
""",
    "by importing it anew": """
import sys, importlib
for name in list(sys.modules):
    if name.startswith("minitransformer"):
        del sys.modules[name]
from minitransformer.course import EXERCISES
softmax_backward = EXERCISES["softmax_backward"].reference
""",
    "by what lies in memory": """
import gc, types
for x in gc.get_objects():
    if isinstance(x, types.FunctionType) and x.__name__ == "softmax_backward":
        softmax_backward = x
""",
}


@pytest.mark.parametrize("theft", THEFTS)
def test_the_reference_solution_is_not_to_be_had(tmp_path, theft):
    grades = graded(tmp_path, THEFTS[theft])
    (one,) = grades.grades
    assert one.verdict in ("wrong", "missing") and not any("stolen" in cell for cell in grades.failed_cells), one


ENDINGS = {
    "loops at the top": ("while True: pass\n" + RIGHT, "did not finish within 8 s"),
    "loops in the function": ("def softmax_backward(y, dy):\n    while True: pass", "did not finish within 8 s"),
    "sleeps and refuses to end": (
        "import time, signal\nfor s in (15, 14, 24): signal.signal(s, signal.SIG_IGN)\ntime.sleep(500)" + RIGHT,
        "did not finish within 8 s",
    ),
    "exits at the top": ("import os; os._exit(0)\n" + RIGHT, "ended, with exit status 0, before it gave an answer"),
    "exits in the function": ("import os\ndef softmax_backward(y, dy): os._exit(7)", "exit status 7"),
    "crashes": ("import os\ndef softmax_backward(y, dy): os.abort()", "ended by SIGABRT"),
    "raises SystemExit": ("import sys\ndef softmax_backward(y, dy): sys.exit(0)", "SystemExit"),
    "raises what is no Exception": ("class E(BaseException): 0\ndef softmax_backward(y, dy): raise E", "exit status"),
    "takes all memory": ("def softmax_backward(y, dy): return bytearray(10**13)", "MemoryError"),
    "takes memory bit by bit": (
        "import numpy as np\nkept = []\ndef softmax_backward(y, dy):\n    while True: kept.append(np.empty(10**7))",
        "MemoryError",
    ),
    "recurses": ("def softmax_backward(y, dy): return softmax_backward(y, dy)", "RecursionError"),
    "forks": ("import os\ndef softmax_backward(y, dy):\n    while True: os.fork()", "os.fork is not allowed"),
    "starts programs": (
        "import subprocess\ndef softmax_backward(y, dy): subprocess.run(['sleep', '500'])",
        "subprocess.Popen is not allowed",
    ),
    "kills the grader": ("import os\ndef softmax_backward(y, dy): os.kill(os.getppid(), 9)", "os.kill is not allowed"),
    "opens a connection": (
        "import socket\ndef softmax_backward(y, dy): socket.create_connection(('localhost', 9))",
        "not allowed",
    ),
    "lifts its limits": (
        "import resource\ndef softmax_backward(y, dy): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "not allowed",
    ),
    "is no function": ("softmax_backward = 3", "must be the function itself"),
    "returns objects": (
        "import numpy as np\ndef softmax_backward(y, dy): return np.array([print, {}], dtype=object)",
        "it is an array of object",
    ),
    "returns a liar": (
        "class Liar:\n    def __eq__(self, other): return True\n    __array_priority__ = 1e9\n    shape = (1,)\n"
        "def softmax_backward(y, dy): return Liar()",
        "it is a Liar",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_hand_in_that_misbehaves_is_wrong_and_says_why(tmp_path, ending):
    source, message = ENDINGS[ending]
    (one,) = graded(tmp_path, source, limits=QUICK if "8 s" in message else LIMITS).grades
    assert (one.verdict, one.score) == ("wrong", 0.0)
    assert message in one.message, one.message


def test_files_are_written_in_the_working_folder_alone(tmp_path):
    target = tmp_path / "kept.txt"
    target.write_text("as it was")
    source = f"""
open("mine.txt", "w").write("allowed")
assert open("mine.txt").read() == "allowed"
import os
for attempt in ("open({str(target)!r}, 'w')", "os.remove({str(target)!r})", "os.rename('mine.txt', {str(target)!r})"):
    try:
        eval(attempt)
    except PermissionError:
        continue
    raise AssertionError(attempt)
"""
    grades = graded(tmp_path, source + RIGHT)
    assert grades.failed_cells == () and grades.grades[0].verdict == "right"
    assert target.read_text() == "as it was" and not (tmp_path / "mine.txt").exists()


def test_the_environment_of_the_teacher_is_not_handed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("TEACHERS_SECRET", "swordfish")
    source = "import os\nassert 'swordfish' not in str(os.environ), 'seen'\n" + RIGHT
    grades = graded(tmp_path, source)
    assert (grades.failed_cells, grades.grades[0].verdict) == ((), "right")


FORGERIES = [
    '{"answers": []}',
    '{"answers": [{"outputs": [], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"plain": 1}], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["|O", [1], "AAAA"]}], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["<f8", [-1], ""]}], "changed": 3, "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["<f8", [2147483647, 2147483647], ""]}], "changed": []}]}',
    '{"answers": {"right": true}}',
    '{"answers": null}',
    '{"right": true}',
    "[1]",
    "null",
    "not JSON",
    "[" * 100_000,
    '{"call": 99, "args": {"tuple": []}}',
    '{"call": 0, "args": {"function": 0}}',
    '{"failed": 3}',
]


def test_forged_answers_are_refused(tmp_path):
    """The hand-in finds the channel and writes to it. What it can send is data, and must be of the right form."""
    for forgery in FORGERIES:
        source = f"""
import os
def write(text):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, text)
        except OSError:
            pass
write({(forgery + chr(10)).encode()!r})
""" + (RIGHT if "answers" in forgery else WRONG)
        (one,) = graded(tmp_path, source).grades
        assert (one.verdict, one.score) == ("wrong", 0.0), (forgery, one)


def test_what_a_hand_in_leaves_behind_is_ended():
    """A process that went into a session of its own is found by the mark in its environment."""
    mark = f"MINITRANSFORMER_HAND_IN={os.getpid()}-test"
    name, _, value = mark.partition("=")
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    stray = subprocess.Popen(command, env={name: value}, start_new_session=True)
    try:
        process = sandbox._Process.__new__(sandbox._Process)
        process._mark, process._process, process._lock = mark, stray, sandbox.threading.Lock()
        assert sandbox._processes_with(mark.encode()) == [stray.pid]
        process._kill()
        assert stray.wait(10) == -9
        assert sandbox._processes_with(mark.encode()) == []
    finally:
        stray.kill()
        stray.wait()


# ---- The wire. ----


def test_values_come_back_as_they_went():
    functions = []
    value = (
        np.arange(6.0).reshape(2, 3).T,
        np.array([True, False]),
        np.float32(2.5),
        {"a": np.zeros((0, 2), np.int64), "f": abs},
        [1, 2.5, None, "text", True, (float("inf"),)],
    )
    back = wire.decode(json.loads(json.dumps(wire.encode(value, functions))), lambda i: functions[i])
    assert back[3]["f"] is abs and back[4] == value[4]
    for one, other in zip((*back[:3], back[3]["a"]), (*value[:3], value[3]["a"]), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape) and np.array_equal(one, other)


@pytest.mark.parametrize(
    "message",
    [
        None,
        3,
        {},
        {"plain": []},
        {"pickle": ""},
        {"function": 0},
        {"array": ["<f8", [1], "AAAA"]},
        {"array": ["|O8", [1], "AAAAAAAAAAA="]},
        {"array": ["<f8,<f8", [0], ""]},
        {"array": ["<f8", [True], "AAAAAAAAAAA="]},
        {"array": ["<f8", [-1], ""]},
        {"array": ["<f8", [0] * 40, ""]},
        {"array": ["<f8", [1], "%%%"]},
    ],
)
def test_other_messages_are_refused(message):
    with pytest.raises(ValueError):
        wire.decode(message)


@pytest.mark.parametrize("x", [object(), np.array([object()]), abs, {1: 2}, np.array(["text"])])
def test_what_is_no_data_is_not_sent(x):
    with pytest.raises(TypeError):
        wire.encode(x)


def test_every_exercise_can_be_sent():
    for exercise in EXERCISES.values():
        for seed in range(3):
            for trial in exercise.trials(seed):
                json.dumps(wire.encode(trial, []), allow_nan=True)


def test_every_reference_passes_when_it_comes_back_over_the_wire():
    """All of grading but the process: a reference's outputs, encoded and decoded, are judged right."""
    for exercise in EXERCISES.values():
        answers = []
        for trial in exercise.trials(1):
            returned = exercise.reference(*trial)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            answers.append(Answer(tuple(wire.decode(wire.encode(np.asarray(x))) for x in outputs)))
        assert judge(exercise, answers, 1).right, exercise.name


# ---- Reading. ----


def test_names_that_a_hand_in_binds():
    source = """
import numpy as np, os.path
from math import sqrt as root
def f(): inner = 1
class C: attribute = 1
a, (b, *c) = 1, (2, 3)
d: int = 1
if a:
    def g(): pass
else:
    h = 2
try:
    k = 1
except ValueError:
    def m(): pass
for i in []: pass
"""
    found = hand_in.HandIn("x.py", (source, "broken(", "z = 1")).defined()
    assert set(found) == {*"np os.path root f C a b c d g h k m i z".split()}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "a hand-in is a notebook"),
        ("a.ipynb", b"{", "it is not JSON"),
        ("a.ipynb", b"[" * 100_000, "it is not JSON"),
        ("a.ipynb", b"[]", "no list of cells"),
        ("a.ipynb", b'{"cells": 3}', "no list of cells"),
        ("a.py", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_files_that_are_no_hand_in(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["grade", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out.strip() == "" and message in err and err.count("\n") == 1


# ---- The command. ----


def test_the_table(tmp_path, capsys):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(RIGHT)
    bad.write_text(WRONG)
    assert main(["grade", str(good), str(bad), "--exercises", "softmax_backward, relu_backward", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert f"{good}: 50 % of 2" in out and f"{bad}: 0 % of 2" in out
    assert out.count("relu_backward     missing  0.00  the hand-in does not define it") == 2
    assert "softmax_backward  right    1.00" in out and "expected" in out


def test_json_and_csv(tmp_path, capsys):
    path = tmp_path / "bad.py"
    path.write_text(WRONG)
    assert main(["grade", str(path), "--json", "--seed", "5"]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["files"][0]["exercises"]
    assert (document["seed"], found["exercise"], found["verdict"], found["score"]) == (
        5,
        "softmax_backward",
        "wrong",
        0.0,
    )
    assert found["result"]["mistake"]
    assert main(["grade", str(path), str(tmp_path / "none.py"), "--csv"]) == 1  # one of the two could not be graded
    out, err = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["exercise"], row["verdict"], row["score"]) == ("softmax_backward", "wrong", "0.0000")
    assert "cannot read" in err and "none.py" in err


def test_a_spreadsheet_computes_nothing_of_a_hand_in(tmp_path, capsys):
    path = tmp_path / "bad.py"
    path.write_text(
        "class Odd(Exception): pass\nOdd.__name__ = Odd.__qualname__ = '=HYPERLINK(1)'\nOdd.__module__ = 'builtins'\n"
        "def softmax_backward(y, dy): raise Odd('x')"
    )
    assert main(["grade", str(path), "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["message"] == "'=HYPERLINK(1): x"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exercises", "sofmax_backward"], "did you mean 'softmax_backward'?"),
        (["--json", "--csv"], "choose one"),
        (["--seconds", "0"], "greater than 0"),
        (["--seconds", "nan"], "greater than 0"),
        (["--memory", "5"], "at least 256"),
        (["--seed", "-1"], "at least 0"),
    ],
)
def test_bad_usage(tmp_path, capsys, options, message):
    path = tmp_path / "a.py"
    path.write_text(RIGHT)
    assert main(["grade", str(path), *options]) == 2
    assert message in capsys.readouterr().err
