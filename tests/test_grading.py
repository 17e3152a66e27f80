"""Grading: the verdicts on honest hand-ins are right, and no hand-in passes or breaks it but by its answers."""

import ast
import csv
import functools
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hostile_hand_ins import ANSWERS, ENDINGS, FINDERS, HARM, MEDDLERS, RETURNS, SEARCHES, SLOW, STALLS, attack
from hostile_hand_ins import FILES as TRICKS_WITH_FILES
from tiers import in_one

import minitransformer
from minitransformer import course
from minitransformer.cli import main
from minitransformer.school.course import EXERCISES, collecting, grading, hand_in, isolation, judge, marks, wire
from minitransformer.school.course.collecting import Answer
from minitransformer.school.course.grading import grade_all, sandbox
from minitransformer.school.course.sandbox import Limits

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PACKAGE = Path(minitransformer.__file__).parent
RIGHT = """
import numpy as np

def softmax_backward(y, dy):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))
"""
WRONG = """
def softmax_backward(y, dy):
    return y * dy
"""
SEED = 5
REQUIRE = isolation.require


@functools.cache
def why_not():
    """Why nothing can be graded here, or "". Trying it takes as long as a hand-in: not for each sandbox."""
    box = sandbox([], SEED)
    try:
        REQUIRE(box.desk)
    except isolation.Missing as error:
        return str(error)
    finally:
        shutil.rmtree(box._folder)
    return ""


@pytest.fixture(autouse=True)
def bubblewrap_is_tried_once(monkeypatch):
    monkeypatch.setattr(isolation, "require", lambda desk: pytest.skip(why_not()) if why_not() else None)


def by_command(capsys, *arguments, status=0):
    """What `minitransformer grade` prints, and what it complains of."""
    assert main(["grade", *map(str, arguments)]) == status
    return capsys.readouterr()


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def grade(path, exercises=None, seed=None, limits=None):
    with sandbox(exercises, seed, limits) as box:
        (found,) = grade_all(box, [path], exercises)
    return found


def graded(tmp_path, source, exercises=("softmax_backward",), name="hand_in.py", limits=None):
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    return grade(path, exercises, SEED, limits)


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


def completed(path):
    """A notebook of the course with the reference solutions in place of its stubs, and the exercises that it sets."""
    document, names = json.loads(path.read_text(encoding="utf-8")), []
    helpers = [EXERCISES[name].solution() for name in ("attention_backward", "layer_norm_backward")]
    helpers += [EXERCISES[name].solution() for name in ("split_heads", "merge_heads")]
    imports = (
        "from collections.abc import Callable\nfrom scipy.special import erf\n" + "Array = Pullback = Any = Callable\n"
    )
    document["cells"].insert(0, {"cell_type": "code", "source": imports + "\n".join(helpers).replace(" -> Any", "")})
    for cell in document["cells"][1:]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("%"):
            continue
        for node in reversed(ast.parse(source).body):
            if isinstance(node, ast.FunctionDef) and node.name in EXERCISES:
                names.append(node.name)
                lines = source.splitlines(keepends=True)
                solution = EXERCISES[node.name].solution()
                source = "".join([*lines[: node.lineno - 1], solution, *lines[node.end_lineno :]])
        cell["source"] = "from __future__ import annotations\n" + source
    return json.dumps(document), names


@pytest.mark.slow
def test_every_notebook_completed_rightly_gets_all_marks(tmp_path):
    """Given code in 05, 07 and 08 binds `softmax_backward` or `dropout_backward` to an op's pullback."""
    wanted = {}
    for path in sorted(NOTEBOOKS.glob("[01]*.ipynb")):
        text, names = completed(path)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
        wanted[path.name] = set(names)
    assert sum(map(len, wanted.values())) >= 35
    with sandbox(seed=SEED) as box:
        for grades in grade_all(box, sorted(tmp_path.glob("*.ipynb"))):
            found = {one.exercise: one for one in grades.grades}
            assert wanted[Path(grades.file).name] <= set(found), grades.text()
            assert {one.verdict for one in grades.grades} == {"right"}, grades.text(verbose=True)
            assert not any(one.problems for one in grades.grades) and not grades.problems, grades.text(verbose=True)


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
    found = {one.exercise: one for one in graded(tmp_path, source, wanted).grades}
    verdicts = {name: (one.verdict, round(one.score, 6)) for name, one in found.items()}
    assert verdicts == {
        "softmax_backward": ("right", 1.0),
        "matmul_backward": ("partial", 0.5),
        "relu_backward": ("wrong", 0.0),
        "gelu_backward": ("wrong", 0.0),
        "attention_backward": ("missing", 0.0),
    }
    assert found["gelu_backward"].summary == "RuntimeError: I do not know"
    assert 'line 14, in gelu_backward\n    raise RuntimeError("I do not know")' in found["gelu_backward"].message


def test_without_a_list_all_that_is_defined_is_graded_in_the_order_of_the_course(tmp_path):
    source = (
        "relu_backward = lambda x, dy: dy * (x > 0)\n"
        + RIGHT
        + "\ngelu_backward = 3\ndef _private():\n    def attention_backward(): 0"
    )
    grades = graded(tmp_path, source, exercises=None)
    assert [(one.exercise, one.verdict) for one in grades.grades] == [
        ("softmax_backward", "right"),
        ("relu_backward", "right"),
    ]
    assert grades.score == 1.0


LAST = "def softmax_backward(y, dy):\n    return helper(y, dy)\n"
SLICES = {
    "rebound by given code": (RIGHT, "weights, softmax_backward = (1, 2)"),
    "rebound together with what it needs": (
        "scale, softmax_backward = 1.0, None\n" + RIGHT.replace("return y", "return scale * y"),
        "scale, softmax_backward = 1.0, None",
    ),
    "the last definition": (WRONG, RIGHT),
    "a helper's helper and a constant": (
        LAST,
        "AXIS = -1\ndef helper(y, dy):\n    return y * (dy - mean(y, dy))",
        "def mean(y, dy):\n    return (dy * y).sum(axis=AXIS, keepdims=True)",
    ),
    "a constant that is changed in place": (
        "import numpy as np\nfactors = [2.0]\nfactors[0] = 1.0\nkept = []\nkept.append(1.0)\n",
        RIGHT.replace("return y", "return factors[0] * kept[0] * y"),
    ),
    "a constant from a loop": ("for axis in (0, 1): last = axis\n" + RIGHT.replace("axis=-1", "axis=last"),),
    "an import that may fail": (
        "try:\n    import nothing_of_this_name as np\nexcept ImportError:\n    import numpy as np\n",
        RIGHT.replace("import numpy as np", "").replace("return y", "return np.asarray(y)"),
    ),
    "a star import": (
        "from numpy import *\ndef softmax_backward(y, dy):\n    return y * (dy - einsum('ij,ij->i', y, dy)[:, None])",
    ),
    "given `xp`": (
        "from minitransformer import backend\ndevice = 'numpy'\nxp = backend.get_device(device).xp",
        RIGHT.replace("return y", "return xp.asarray(y)"),
    ),
    "annotations of the package": (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from x import Array",
        RIGHT.replace("(y, dy)", "(y: Array, dy: Array) -> Array"),
    ),
    "a class": (
        "import numpy as np\nclass Softmax:\n    def backward(self, y, dy):\n"
        "        return y * (dy - (dy * y).sum(-1, keepdims=True))",
        "layer = Softmax()\nsoftmax_backward = lambda y, dy: layer.backward(y, dy)",
    ),
    "a default and a decorator": (
        "import functools\nsame = lambda f: f\nMINUS = -1",
        "@same\n" + RIGHT.strip().split("\n\n")[1].replace("dy)", "dy, axis=MINUS)", 1).replace("axis=-1", "axis=axis"),
    ),
    "cells that fail, loop and exit, and are not needed": (
        "1 / 0",
        "while True: pass",
        "import sys; sys.exit(3)",
        RIGHT,
        *["raise ValueError('on purpose \\x1b[31m')"] * 500,
    ),
    "work with the package, in other cells": (
        "from minitransformer import course, ops, step, verify\nprint(verify.gradients(ops.softmax))",
        RIGHT,
        "course.check('softmax_backward', softmax_backward)\nstep(ops.softmax)",
    ),
    "magics": (
        "%matplotlib inline\nimport numpy as np\n!pip install \\\n    torch\nfiles = !ls\nnp.sum?\none = (7\n%3)",
        "pip install torch\nif True:\n    %time two = 2 * one\n",
        "%%bash\nrm -rf /",
        "%%time" + RIGHT.replace("return", "return two / 2 *"),
        "text = '''\n% not a magic\n'''\nassert text == '\\n% not a magic\\n'",
    ),
    "what was refused before: processes and threads": (
        "import numpy as np\nimport subprocess, sys\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "one = float(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout)\n"
        "with ThreadPoolExecutor(2) as pool: two = sum(pool.map(float, '11'))",
        RIGHT.replace("return y", "return one * two / 2 * y"),
    ),
    "a function made of another": (
        "import functools\n" + RIGHT.replace("softmax_backward(y, dy)", "mine(axis, y, dy)").replace("-1", "axis"),
        "softmax_backward = functools.partial(mine, -1)",
    ),
    "a function that is wrapped under its own name": (RIGHT, "softmax_backward = memo(softmax_backward)"),
    "a feature that the future does not have": (RIGHT, "from __future__ import nothing"),
    "compiled by Numba": (
        "import numba, numpy as np\n@numba.njit\ndef helper(y, dy):\n    r = np.empty_like(y)\n"
        "    for i in range(len(y)): r[i] = y[i] * (dy[i] - (dy[i] * y[i]).sum())\n    return r",
        LAST,
    ),
    "in long doubles": (RIGHT.replace("return y", "return np.asarray(y, np.longdouble)"),),
}


@pytest.fixture(scope="module")
def slices(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slices")
    names = {f"{i}.ipynb": name for i, name in enumerate(SLICES)}
    for file, name in names.items():
        (folder / file).write_text(notebook(*SLICES[name]), encoding="utf-8")
    with sandbox(["softmax_backward"], SEED, Limits(600.0, 4 * 1024**3)) as box:
        found = grade_all(box, [folder / file for file in names], ["softmax_backward"])
        return {names[Path(grades.file).name]: grades for grades in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICES)
def test_what_a_definition_needs_is_run_and_nothing_else(slices, name):
    (one,) = slices[name].grades
    assert (one.verdict, one.problems) == ("right", ()), slices[name].text(verbose=True)


def test_what_is_needed_and_fails_is_said_with_its_line(tmp_path):
    source = "import numpy as np\nscale = 1 / 0\n" + RIGHT.replace("return y", "return scale * y")
    (one,) = graded(tmp_path, source).grades
    assert one.problems == ("hand_in.py, line 2: ZeroDivisionError: division by zero",)
    assert one.summary == "NameError: name 'scale' is not defined"


def test_a_syntax_error_is_said_with_its_line_and_costs_its_own_cell_alone(tmp_path):
    cells = [RIGHT, "\ndef relu_backward(x, dy)\n    return dy"]
    grades = graded(tmp_path, notebook(*cells), None, "hand_in.ipynb")
    said = [(one.exercise, one.verdict, one.summary) for one in grades.grades]
    assert said == [
        ("softmax_backward", "right", ""),
        ("relu_backward", "wrong", "hand_in.ipynb, code cell 2, line 2: SyntaxError: expected ':'"),
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("start", [
    b"# coding: latin-1\nword = '\xe9'\n",
    b"#!/usr/bin/python\n# -*- coding: cp1252 -*-\nword = '\x80'\r\n",
    b"\xef\xbb\xbfword = '\xc3\xa9'\r\n",
    b"\xef\xbb\xbf# coding: utf-8\n",
])  # fmt: skip
def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path, start):
    path = tmp_path / "hand_in.py"
    path.write_bytes(start + RIGHT.replace("\n", "\r\n").encode())
    assert grade(path, None, SEED).score == 1.0


def test_a_value_under_the_name_of_an_exercise_is_no_definition(tmp_path):
    source = "import numpy as np\ncausal_mask = np.tril(np.ones((4, 4)))\nalibi_bias = Model.bias\n"
    assert [one.exercise for one in graded(tmp_path, source + RIGHT, None).grades] == ["softmax_backward"]
    assert "causal_mask: it is assigned, not defined: write def causal_mask(" in graded(tmp_path, source, None).note


OWN = """
def my(y, dy):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))
class Layer:
    def backward(self, y, dy):
        return my(y, dy)
    __call__ = backward
layer = Layer()
"""
NAMED = ["a, softmax_backward = 1, my", "softmax_backward = my if layer else None", "softmax_backward = Layer()"]
NAMED += ["softmax_backward = layer.backward", "other = softmax_backward = my", "softmax_backward = {'b': my}['b']"]
NAMED += ['globals()["softmax_backward"] = my', "def softmax_backward(dy): 0\nsoftmax_backward = my"]


def takes_two(name, value):
    return name == "softmax_backward" and callable(value) and collecting.signature_misfit(("y", "dy"), value) == ""


@pytest.mark.parametrize("line", NAMED)
def test_a_function_of_ones_own_counts_by_whatever_line_it_gets_the_name(line):
    found = hand_in.read("hand_in.py", f"{OWN}{line}\n".encode())
    function, problems = found.function("softmax_backward", takes_two)
    assert problems == [] and function(np.array([0.25, 0.75]), np.array([1.0, 0.0])).tolist() == [0.1875, -0.1875]


def test_names_that_a_statement_binds():
    source = """import numpy as np, os.path; from math import sqrt as root; a, (b, *c) = 1, (2, 3); d: int = 1
def f(): inner = 1
if a:
    def g(): pass
else: h = 2
try: k = 1
except ValueError as error:
    def m(): pass
n.attribute[0].x = 1; o.append(1); np.fill_diagonal(r[0], 1); np.add.at(s.x, 0, u); np.exp(t)
match a:
    case [p, *q]: pass
"""
    found = {name for node in ast.parse(source).body for name in hand_in._names(node)[0]}
    assert found == {*"np os root f a b c d g h k m n o p q r s error".split()}


@pytest.mark.parametrize("later", ["y, softmax_backward = OWN(3)", "softmax_backward = 3", "softmax_backward = 1 / 0"])
def test_what_is_no_function_of_the_arguments_does_not_replace_one(later):
    """Given code that calls an op binds the name of an exercise to a pullback, whose argument is dy alone."""
    source = f"def softmax_backward(y, dy): return 1\ndef OWN(x): return x, lambda dy: dy\n{later}\n"
    source += "def other(y): return softmax_backward(y, y)\n"
    found = hand_in.read("hand_in.py", source.encode())
    function, problems = found.function("softmax_backward", takes_two)
    assert (function(0, 0), problems) == (1, [])
    assert found.function("other", takes_two)[0](0) == 1


def test_a_file_without_an_exercise_gets_a_row_that_says_why(tmp_path):
    grades = graded(tmp_path, "x = 1\ny = (\n", None)
    assert grades.note.startswith("it defines no exercise; hand_in.py, line 2: SyntaxError") and grades.score == 0.0
    (row,) = rows_of(marks.spreadsheet({"anna": grades}, [], SEED))
    assert (row["student"], row["note"]) == ("anna", grades.note)


def test_an_op_may_not_be_called_and_the_message_says_so(tmp_path):
    source = "from minitransformer import ops\ndef softmax_forward(x):\n    return ops.softmax(x)[0]"
    (one,) = graded(tmp_path, source, ["softmax_forward"]).grades
    assert one.verdict == "wrong"
    assert (
        one.summary == "RuntimeError: minitransformer.ops.softmax may not be used in an exercise: write it with NumPy"
    )


@pytest.mark.slow
def test_functions_among_the_arguments_are_called_where_they_are(tmp_path):
    source = """
def residual_backward(dy, sublayer_backward):
    return dy + sublayer_backward(dy)

def pre_norm_backward(dy, sublayer_backward, norm_backward):
    while True: sublayer_backward(dy)

def post_norm_backward(dy, sublayer_backward, norm_backward):
    dtotal = norm_backward(dy)
    return dtotal + sublayer_backward("not an array")

def decoder_layer_backward(dy, pullbacks):
    return pullbacks["norm_3"](dy), dy
"""
    names = ["residual_backward", "pre_norm_backward", "post_norm_backward", "decoder_layer_backward"]
    right, endless, wrong, half = graded(tmp_path, source, names, limits=Limits(6.0)).grades
    assert right.verdict == "right"
    assert endless.verdict == wrong.verdict == half.verdict == "wrong"
    assert "Error" in wrong.summary and "dx" in half.message


@pytest.mark.slow
def test_an_exercise_that_fails_costs_no_other_of_the_same_file(tmp_path):
    source = (
        "import os\ndef matmul_backward(a, b, dc): os.abort()\ndef softmax_forward(x):\n    while True: pass\n"
        "def linear_forward(x, w, b):\n    os.write(4, b'{' * 1000)\n    return 0\n" + RIGHT
    )
    names = ["matmul_backward", "linear_forward", "softmax_forward", "softmax_backward"]
    found = graded(tmp_path, source, names, limits=Limits(6.0)).grades
    assert [one.verdict for one in found] == ["wrong", "wrong", "wrong", "right"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_grades_and_another_seed_other_inputs(tmp_path):
    path = tmp_path / "hand_in.py"
    path.write_text(WRONG)
    one, same, other = (grade(path, seed=seed).as_dict() for seed in (3, 3, 4))
    assert one == same != other


@pytest.mark.slow
def test_a_table_of_the_answers_to_the_seed_of_check_earns_nothing(tmp_path, capsys):
    exercise = EXERCISES["softmax_backward"]
    table = [(y.tolist(), exercise.reference(y, dy).tolist()) for y, dy in exercise.trials(0)]
    path = tmp_path / "table.py"
    path.write_text(
        f"import numpy as np\nTABLE = {table!r}\ndef softmax_backward(y, dy):\n"
        "    return next((np.array(dx) for given, dx in TABLE if given == y.tolist()), dy)"
    )
    known, *others = (json.loads(by_command(capsys, path, "--json", *seed).out) for seed in (["--seed", 0], [], []))
    assert known["files"][0]["score"] == 1.0  # such a table passes where the seed is known
    assert [document["files"][0]["score"] for document in others] == [0.0, 0.0]
    assert others[0]["seed"] != others[1]["seed"]


BODIES = FINDERS | MEDDLERS | SEARCHES | HARM
HOSTILE = {name: (body, "") for name, body in BODIES.items()}
HOSTILE |= ENDINGS | RETURNS | {name: (source, "") for name, source in ANSWERS.items()}
NEIGHBOURS = 6


@pytest.fixture(scope="module")
def class_of_rogues(tmp_path_factory):
    """All of them graded at once, with honest neighbours between; and the teacher's files before and after."""
    folder = tmp_path_factory.mktemp("class")
    canary, out = folder / "teachers" / "canary.txt", folder / "hand-in"
    canary.parent.mkdir()
    out.mkdir()
    canary.write_text("as it was")
    server = socket.create_server(("127.0.0.1", 0))
    places = {
        "REFERENCE": str(PACKAGE / "school" / "course" / "exercises" / "softmax.py"),
        "PACKAGE": str(PACKAGE),
        "CLASSMATE": str(out / "neighbour 0.py"),
        "CANARY": str(canary),
        "PORT": server.getsockname()[1],
        "MARK": f"left by {os.getpid()}",
    }
    files = {}
    for i, (name, (source, _)) in enumerate(HOSTILE.items()):
        files[f"{i}.py"] = name
        text = attack(source, **places) if name in BODIES else source
        (out / f"{i}.py").write_text(text, encoding="utf-8")
        if i % (len(HOSTILE) // NEIGHBOURS) == 0:
            files[f"neighbour {i}.py"] = f"neighbour {i}"
            (out / f"neighbour {i}.py").write_text(RIGHT)
    before = {path: path.read_bytes() for path in (*PACKAGE.rglob("*.py"), canary)}
    with sandbox(["softmax_backward"], SEED, Limits(12.0, 512 * 1024**2)) as box:
        found = {files[Path(g.file).name]: g for g in grade_all(box, [out / f for f in files], ["softmax_backward"])}
    server.close()
    after = {path: path.read_bytes() for path in (*PACKAGE.rglob("*.py"), canary)}
    changed = [str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return found, changed, sorted(path.name for path in canary.parent.iterdir())


@pytest.mark.slow
@pytest.mark.long
@in_one("name", [*HOSTILE, "their neighbours", "what they leave"])  # in one, since it takes a minute to grade the class
def test_a_hostile_hand_in_gets_no_marks_costs_no_neighbour_and_leaves_nothing(class_of_rogues, name):
    found, changed, left = class_of_rogues
    honest = {name: grades for name, grades in found.items() if name.startswith("neighbour")}
    if name == "their neighbours":
        assert len(honest) >= NEIGHBOURS and {grades.score for grades in honest.values()} == {1.0}
        assert len(found) == len(HOSTILE) + len(honest)
    elif name == "what they leave":
        assert (changed, left) == ([], ["canary.txt"])
        # The processes that a hand-in leaves behind end with it: none has this process's namespace or parent.
        ours = ["ps", "-o", "args=", "--ppid", str(os.getpid())]
        assert "marking" not in subprocess.run(ours, capture_output=True, text=True).stdout
        sleeping = subprocess.run(["ps", "-e", "-o", "args="], capture_output=True, text=True).stdout
        assert f"left by {os.getpid()}" not in sleeping
    else:
        grades = found[name]
        assert grades.score == 0.0, grades.text(verbose=True)
        said = grades.error + "".join(f"{one.message} {one.summary}" for one in grades.grades)
        assert HOSTILE[name][1] in said, said


@pytest.mark.filterwarnings("ignore:Exception ignored")  # it closes no file
@pytest.mark.parametrize(
    "theft", ["reads the file of the reference", "reads it by a descriptor of its folder", "reads a classmate's file"]
)
def test_a_theft_succeeds_where_nothing_is_hidden(tmp_path, theft):
    """Here, in this process."""
    classmate = tmp_path / "classmate.py"
    classmate.write_text(RIGHT)
    places = {"REFERENCE": str(PACKAGE / "school" / "course" / "exercises" / "softmax.py"), "CLASSMATE": str(classmate)}
    scope = {"np": np}
    exec(attack(FINDERS[theft], **places), scope)
    assert course.check("softmax_backward", scope["softmax_backward"]).right


IN_PLACE = "    dy *= y\n    dy -= y * dy.sum(-1, keepdims=True)\n    return dy\n"
FORGERIES = [
    "sys.modules['marking.collecting'].near = lambda a, b, *r, **k: np.ones(np.shape(a), bool)",
    "sys.modules['marking.collecting'].unchanged = lambda *a: True",
    "sys.modules['marking.collecting'].copy.deepcopy = lambda x: x",
    "sys.modules['marking.collecting'].Answer.inputs = ()",
    "sys._getframe(1).f_locals.update(inputs=(y, dy))",
]


def test_a_hand_in_that_patches_what_judges_it_gets_no_better_mark(tmp_path):
    """What it changed in place, which costs half the marks, is seen outside its process."""
    honest = tmp_path / "honest.py"
    honest.write_text(f"def softmax_backward(y, dy):\n{IN_PLACE}")
    paths = [honest]
    for i, line in enumerate(FORGERIES):
        paths.append(tmp_path / f"forged {i}.py")
        paths[-1].write_text(f"import sys\nimport numpy as np\ndef softmax_backward(y, dy):\n    {line}\n{IN_PLACE}")
    with sandbox(["softmax_backward"], SEED) as box:
        found = {Path(grades.file).stem: grades.score for grades in grade_all(box, paths, ["softmax_backward"])}
    assert found == {path.stem: 0.5 for path in paths}


@pytest.mark.slow
def test_a_pullback_that_is_called_twice_is_counted_outside(tmp_path):
    source = "def residual_backward(dy, sublayer_backward):\n    sublayer_backward(dy)\n"
    source += "    import sys\n    sys.modules['marking.collecting'].Answer.repeated = ()\n"
    source += "    return dy + sublayer_backward(dy)\n"
    (one,) = graded(tmp_path, source, ["residual_backward"]).grades
    assert (one.score, one.result.repeated) == (0.5, ("sublayer_backward",))


@pytest.mark.few(1)
@pytest.mark.parametrize("given", ["as a folder", "as files"])
def test_hostile_files_get_no_marks_and_cost_nobody_any(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "hand-in"
    (folder / "right").mkdir(parents=True)
    (folder / "right" / "answers.py").write_text(RIGHT)
    for name, make in TRICKS_WITH_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make(folder / name)
    monkeypatch.chdir(tmp_path)
    paths = grading.hand_ins(folder)
    if given == "as files":
        paths = [*(path for path in folder.glob("*/*") if path.suffix in (".py", ".ipynb") and path.name != "b")]
    with sandbox(["softmax_backward"], SEED) as box:
        found = {grades.file: grades for grades in grade_all(box, paths, ["softmax_backward"])}
    assert len(found) >= len(TRICKS_WITH_FILES)
    marks_of = {file: grades.score for file, grades in found.items() if grades.score}
    assert marks_of == {str(folder / "right" / "answers.py"): 1.0}
    assert all(grades.note for grades in found.values() if not grades.score), [g.text() for g in found.values()]


@pytest.mark.slow
def test_no_hand_in_is_waited_for_beyond_its_time(tmp_path):
    slow = SLOW | STALLS
    paths = [tmp_path / f"{name}.py" for name in slow]
    for path in paths:
        path.write_text(slow[path.stem])
    start = time.monotonic()
    with sandbox(["softmax_backward"], SEED, Limits(2.0)) as box:
        found = list(grade_all(box, paths, ["softmax_backward"], jobs=len(paths)))
    assert len(found) == len(slow)
    for grades in found:
        assert grades.score == 0.0 and "did not finish within" in grades.grades[0].message, grades.text()
    assert time.monotonic() - start < 300.0  # they run for ever, or sleep for 500 s


CROWDS = {  # what takes memory, in one process or several, and the limit in megabytes
    "files in its temporary folder and two children": ("""
    for i in range(8):
        open(f"/tmp/{i}", "wb").write(bytes(7 * 2**20))
    for _ in range(2):
        if os.fork() == 0:
            kept = np.ones(32_000_000)
            time.sleep(60.0)
            os._exit(0)
    time.sleep(10.0)
""", 512),
    # Files are limited, but a million empty folders take a gigabyte of the kernel's memory.
    "empty folders in its temporary folder": ("\n    for i in range(10**6): os.mkdir(f'/tmp/{i}')\n", 256),
}  # fmt: skip


def with_processes(work):
    head = "import os, time\nimport numpy as np\ndone = []\ndef matmul_backward(a, b, dc):"
    slowly = RIGHT.replace("    return", "    time.sleep(0.5)\n    return")  # the grader looks at it meanwhile
    return f"{head}{work}    return dc @ b.T, a.T @ dc\n{slowly}"


@pytest.mark.slow
@pytest.mark.parametrize("crowd", CROWDS)
def test_the_memory_of_all_processes_counts_together(tmp_path, crowd):
    """Too much ends the exercise that uses it, and no other."""
    work, most = CROWDS[crowd]
    names, limits = ["matmul_backward", "softmax_backward"], Limits(120.0, most * 1024**2)
    one, other = graded(tmp_path, with_processes(work), names, limits=limits).grades
    assert one.message == f"all its processes together used more than {most} MB of memory"
    assert other.verdict == "right"


def test_memory_that_would_be_in_no_process_is_refused(tmp_path):
    """Shared memory of System V, files in memory, the buffers of sockets."""
    source = """
import ctypes, os, socket
refused = []
def try_to(make):
    try:
        refused.append(make() == -1 and ctypes.get_errno() == 1)
    except PermissionError:
        refused.append(True)
def softmax_backward(y, dy):
    c = ctypes.CDLL(None, use_errno=True)
    for make in (lambda: c.shmget(0, 100 * 2**20, 0o1600), lambda: c.msgget(0, 0o1600), lambda: os.memfd_create("x"),
                 socket.socket, socket.socketpair, lambda: c.semget(0, 10, 0o1600)):
        try_to(make)
    raise RuntimeError(f"{refused}")
"""
    assert graded(tmp_path, source).grades[0].summary == f"RuntimeError: {[True] * 6}"


@pytest.mark.slow
def test_a_whole_hand_in_has_a_limit_of_time_too(tmp_path):
    names = list(EXERCISES)[:14]
    source = "\n".join(f"def {name}(*a):\n    while True: pass" for name in names)
    start = time.monotonic()
    found = graded(tmp_path, source, names, limits=Limits(1.0)).grades
    assert time.monotonic() - start < 14 + 10
    said = [one.message for one in found]
    assert said[0] == "it did not finish within 1 s" and said[-1] == "the whole hand-in did not finish within 10 s"


def test_a_hand_in_sees_nothing_of_this_machines_users(tmp_path, monkeypatch):
    source = f"""
import os
seen = []
for path in {[str(Path.home()), str(PACKAGE), str(NOTEBOOKS), str(tmp_path), "/etc/passwd", "/proc/1", "/run"]!r}:
    try:
        seen.append((path, sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()))
    except OSError:
        pass
hidden = [(path, names) for path, names in seen if path != {str(Path.home())!r} or any(n[0] != "." for n in names)]
def softmax_backward(y, dy):
    raise ValueError(f"{{hidden}} {{os.environ}}")
"""
    monkeypatch.setenv("TEACHERS_SECRET", "swordfish")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    (one,) = graded(tmp_path, source).grades
    assert one.summary.startswith("ValueError: [] environ("), one.message
    assert "swordfish" not in one.summary and str(tmp_path) not in one.summary and "'PWD': '/tmp'" in one.summary


@pytest.mark.slow
def test_a_hand_in_finds_python_and_no_copy_of_the_package_wherever_it_lies(monkeypatch):
    """Also where Python and its packages are below /tmp, since a hand-in has a /tmp of its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        packages = Path(folder, "site-packages")
        for name in ("minitransformer", "backup/minitransformer", "build/lib/minitransformer", "einops"):
            (packages / name).mkdir(parents=True)
            (packages / name / "__init__.py").write_text("solution = 1")
        (packages / "minitransformer-1.0-py3-none-any.whl").write_text("solution = 1")
        everywhere = [str(packages), *isolation.python_path()]
        monkeypatch.setattr(isolation, "python_path", lambda: everywhere)
        isolation._files.cache_clear()
        try:
            with sandbox(["softmax_backward"], SEED) as box:
                code = f"import os, einops, json; print(json.dumps([*os.walk('/')])); os.listdir({str(packages)!r})"
                command = isolation.command(box.desk, code)
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        finally:
            isolation._files.cache_clear()
    assert done.returncode == 0, done.stderr
    seen = {os.path.join(place, name) for place, a, b in json.loads(done.stdout) for name in a + b}
    assert f"{packages}/einops/__init__.py" in seen and not [path for path in seen if "minitransformer" in path]
    assert not seen & {"/bin", "/usr/bin", "/usr/share", "/usr/src", "/usr/include", "/opt", "/home", "/proc", "/sys"}
    assert {path for path in seen if os.path.dirname(path) == str(packages)} == {f"{packages}/einops"}


@pytest.mark.parametrize(
    ("program", "said"),
    [(None, "under bubblewrap, which is missing: install it"), ("exit 1", "which does not work here (no namespaces)")],
)
def test_without_bubblewrap_one_sentence_says_what_to_do(tmp_path, capsys, monkeypatch, program, said):
    monkeypatch.setattr(isolation, "require", REQUIRE)
    if program:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho no namespaces >&2\n{program}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "a.py"
    path.write_text(RIGHT)
    monkeypatch.setattr(subprocess, "run", functools.partial(run_by_path, subprocess.run))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out, err = by_command(capsys, path, "--json", status=1)
    assert not list(tmp_path.glob("grading-*"))
    assert out == "" and err.count("\n") == 1 and said in err, err


def run_by_path(run, command, **options):
    """Here `sh` is found, which starts `bwrap` by the PATH."""
    return run([shutil.which(command[0], path=os.defpath) or command[0], *command[1:]], **options)


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


@in_one("x", [object(), np.array([object()]), abs, {1: 2}, np.array(["text"]), np.longdouble(1)])
def test_what_is_no_data_is_not_sent(x):
    with pytest.raises(TypeError):
        wire.encode(x)


@in_one("message", [
    *(None, 3, {}, {"plain": []}, {"pickle": ""}, {"function": 0}, {"array": ["|O8", [1], "AAAAAAAAAAA="]}),
    *({"array": ["<f8", shape, "AAAAAAAAAAA="]} for shape in ([True], [2])),
    *({"array": ["<f8", [1], text]} for text in ("AAAA", "%%%")),
    *({"array": ["<f8", shape, ""]} for shape in ([-1], [0] * 40)),
    *({"array": ["<f8,<f8", [0], ""]}, {"array": ["<f16", [1], "AAAAAAAAAAAAAAAAAAAAAA=="]}),
])  # fmt: skip
def test_other_messages_are_refused(message):
    with pytest.raises(ValueError):
        wire.decode(message)


def test_every_reference_passes_when_it_comes_back_over_the_wire():
    """All of grading but the process: a reference's outputs, encoded and decoded, are judged right."""
    for exercise in EXERCISES.values():
        answers = []
        for trial in exercise.trials(1):
            json.dumps(wire.encode(trial, []), allow_nan=True)
            returned = exercise.reference(*trial)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            answers.append(Answer(tuple(wire.decode(wire.encode(np.asarray(x))) for x in outputs)))
        assert judge(exercise, answers, 1).right, exercise.name


FILES = {
    "a.txt": (b"", "a hand-in is a notebook"),
    "json.ipynb": (b"{", "it is not JSON"),
    "deep.ipynb": (b"[" * 100_000, "it is not JSON"),
    "list.ipynb": (b"[]", "no list of cells"),
    "cells.ipynb": (b'{"cells": 3}', "no list of cells"),
    "binary.py": (b"\xff\xfe", "not UTF-8"),
    "surrogates.ipynb": (b'{"cells": [{"cell_type": "code", "source": "def f(): \\ud800"}]}', "it defines no exercise"),
    "odd.ipynb": (b'{"cells": [1, null, {"cell_type": "code", "source": {"a": 1}}]}', "it defines no exercise"),
}


@pytest.mark.slow
def test_files_that_are_no_hand_in(tmp_path, capsys):
    for name, (content, _) in FILES.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "fifo.ipynb")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "folder.py").mkdir()
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(60_000_000)
    wanted = {name: message for name, (_, message) in FILES.items()} | {
        "fifo.ipynb": "is not a regular file",
        "zero.py": "is a link",
        "folder.py": "cannot read",
        "loop.py": "is a link",
        "none.py": "there is no file",
        "large.py": "is larger than 50 MB",
    }
    text = by_command(capsys, *(tmp_path / name for name in wanted), "--csv", status=1).out
    rows = {Path(row["file"]).name: row for row in rows_of(text)}
    assert {name: message in rows[name]["note"] for name, message in wanted.items()} == dict.fromkeys(wanted, True)


def test_links_are_not_followed_and_the_mark_says_so(tmp_path, capsys):
    """To a classmate's file or folder, to the teacher's file, to a folder of this process; as files or in a folder."""
    folder, anna = tmp_path / "hand-in", tmp_path / "hand-in" / "anna" / "answers.py"
    anna.parent.mkdir(parents=True)
    anna.write_text(RIGHT)
    (tmp_path / "solution.py").write_text(RIGHT)
    for name, target in {"bob": "../anna/answers.py", "carl": "../../solution.py", "dora": str(anna)}.items():
        (folder / name).mkdir()
        (folder / name / "answers.py").symlink_to(target)
    (folder / "emil").symlink_to("anna")
    (folder / "finn").symlink_to("/proc/self/cwd")
    for given in ([folder], [anna, *sorted(folder.glob("[b-e]*/*.py")), folder / "finn"]):
        out, err = by_command(capsys, *given, "--csv", "--exercises", "softmax_backward", status=1)
        rows = rows_of(out)
        assert {row["student"] for row in rows if row["percent"] == "100.0"} == {"anna"}, out
        rogues = [row for row in rows if row["student"] != "anna"]
        assert len(rogues) >= 5 and all("is a link, which is not followed" in row["note"] for row in rogues), out
        assert err.count("is a link") == len(rogues)
    (tmp_path / "link").symlink_to(folder)
    assert "name, the folder itself" in by_command(capsys, tmp_path / "link", status=1).err


@pytest.mark.slow
def test_one_file_under_two_names_is_noted_on_both(tmp_path, capsys):
    """A hard link; the teacher must find out which of the two wrote it."""
    (tmp_path / "anna.py").write_text(RIGHT)
    (tmp_path / "bob.py").hardlink_to(tmp_path / "anna.py")
    (tmp_path / "carl.py").write_text(RIGHT)
    notes = {row["student"]: row["note"] for row in rows_of(by_command(capsys, tmp_path, "--csv").out)}
    assert "the same file as" in notes["anna"] and "anna.py (a hard link)" in notes["bob"] and not notes["carl"]
    assert by_command(capsys, tmp_path).out.count("(a hard link)") == 2


def test_one_denominator_everywhere(tmp_path, capsys):
    """Without a list, what one file adds counts for all, which a warning says; --out needs the list."""
    (tmp_path / "anna.py").write_text(RIGHT)
    (tmp_path / "bob.py").write_text(RIGHT + "def relu_backward(x, dy): return 0\ndef gelu_backward(x, dy): return 0\n")
    text, err = by_command(capsys, tmp_path, "--csv")
    assert [(row["of"], row["percent"]) for row in rows_of(text)] == [("3", "33.3"), ("3", "33.3")]
    assert err.count("bob.py defines") == 2 and "only" in err and "--exercises says what counts" in err
    out = tmp_path / "marks"
    assert "--out needs --exercises" in by_command(capsys, tmp_path, "--out", out, status=2).err and not out.exists()
    text, err = by_command(capsys, tmp_path, "--out", out, "--exercises", "softmax_backward,relu_backward")
    anna = rows_of((out / "marks.csv").read_text())[0]
    assert (anna["percent"], anna["of"]) == ("50.0", "2") and "defines" not in err
    assert "50 % of 2" in text and "50 % of 2" in (out / "feedback" / "anna.txt").read_text()
    assert "50 % of 2" in (out / "moodle.csv").read_text()
    assert "Points Possible,,,,,2" in (out / "canvas.csv").read_text()


def test_the_sample_hand_in_shows_good_and_bad(capsys):
    text = by_command(capsys, NOTEBOOKS / "hand_in" / "sample.ipynb", "--json", "--seed", 7).out
    (found,) = json.loads(text)["files"]
    verdicts = {one["exercise"]: one["verdict"] for one in found["exercises"]}
    assert verdicts == {
        "matmul_backward": "partial",
        "linear_backward": "wrong",
        "softmax_forward": "wrong",
        "softmax_backward": "right",
        "attention_backward": "wrong",
        "split_heads": "wrong",
        "relu_backward": "wrong",
    }


def test_marks_feedback_and_the_documented_columns_of_moodle_and_canvas(tmp_path, capsys):
    folder, out = tmp_path / "hand-in", tmp_path / "week 3"
    folder.mkdir()
    (folder / "anna@uni.example.py").write_text(RIGHT + "\ndef relu_backward(x, dy): return dy * (x > 0)")
    (folder / "bob@uni.example.py").write_text(WRONG + "\ndef relu_backward(x, dy): raise ValueError('<script>')")
    (folder / "carl@uni.example.py").write_text("nothing")
    options = ["--exercises", "softmax_backward,relu_backward", "--out", out, "--csv", "--seed", 4]
    text = by_command(capsys, *sorted(folder.glob("*.py")), *options).out
    assert (out / "marks.csv").read_text() == text
    rows = rows_of(text)
    assert [(row["student"], row["score"], row["of"], row["percent"], row["seed"]) for row in rows] == [
        ("anna@uni.example", "2.0000", "2", "100.0", "4"),
        ("bob@uni.example", "0.0000", "2", "0.0", "4"),
        ("carl@uni.example", "0.0000", "2", "0.0", "4"),
    ]
    assert rows[2]["note"] == "it defines no exercise"
    assert sorted(path.stem for path in (out / "feedback").iterdir()) == [row["student"] for row in rows]
    feedback = (out / "feedback" / "bob@uni.example.txt").read_text()
    assert "softmax_backward  wrong" in feedback and "expected" in feedback and "seed 4" in feedback
    header, first, second, _ = csv.reader(io.StringIO((out / "moodle.csv").read_text()))
    assert header == ["Email address", "softmax_backward", "relu_backward", "Total", "Feedback"]
    assert first[:4] == ["anna@uni.example", "1.0000", "1.0000", "2.0000"]
    assert "&lt;script&gt;" in second[4] and "<script>" not in second[4]
    header, points, first, *_ = csv.reader(io.StringIO((out / "canvas.csv").read_text()))
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "week 3"]
    assert points == ["Points Possible", "", "", "", "", "2"]
    assert first == ["anna@uni.example", "", "", "anna@uni.example", "", "2.0000"]


def test_a_folder_stands_for_the_hand_ins_in_it_and_in_the_folders_of_students(tmp_path, capsys):
    for name in "anna/work.ipynb bob/work.ipynb .ipynb_checkpoints/work.ipynb bob/.old.py anna/data/deep.py".split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"cells": [{"cell_type": "code", "source": RIGHT}]}))
    (tmp_path / "anna" / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    rows = rows_of(by_command(capsys, tmp_path, "--csv").out)
    assert [(row["student"], row["percent"]) for row in rows] == [("anna", "100.0"), ("bob", "100.0")]
    said = by_command(capsys, tmp_path / "empty", status=1).err
    assert "the folder holds no notebook (.ipynb) or Python file (.py)" in said


def test_students_are_told_apart():
    assert marks.students([Path("a/anna.py"), Path("b/bob.py")]) == ["anna", "bob"]
    assert marks.students([Path("anna/07.py"), Path("bob/07.py")]) == ["anna", "bob"]
    assert marks.students([Path("x/a/07.py"), Path("y/a/07.py")]) == ["x/a/07", "y/a/07"]
    two_of_bob = [Path("anna/07.py"), Path("bob/07.py"), Path("bob/test.py"), Path("carl/07.py")]
    assert marks.students(two_of_bob) == ["anna", "bob/07", "bob/test", "carl"]
    assert marks.students([Path("a/07.py"), Path("a/07.ipynb")]) == ["a/07.py", "a/07.ipynb"]
    files = marks.feedback_files(["a/b", "a?b", "A_B", "..", "x" * 300, "\udc80"])
    assert list(files.values()) == ["a_b.txt", "a_b 2.txt", "A_B 3.txt", "_.txt", "x" * 60 + ".txt", "_ 2.txt"]


@pytest.mark.slow
def test_nothing_from_outside_reaches_a_report_as_it_is(tmp_path, capfd):
    """Terminal escapes, newlines, marks of direction and formulas, in file names and in messages."""
    name = "=1+1 \x1b[2J\u202eeve\nbob.py: 100 % of 1.py"
    message = "'x\\n\\nbob.py: 100 % of 1\\n  softmax_backward  right    1.00\\x1b[31m\\u202e'"
    (tmp_path / name).write_text(
        f"import os\nclass Odd(Exception): pass\nOdd.__name__ = Odd.__qualname__ = '=HYPERLINK(1)\\n'\n"
        "def shout():\n    for d in range(20):\n        try: os.write(d, b'bob.py: 100 % of 1\\n' * 9)\n"
        "        except OSError: pass\nx = shout()\n"
        f"def softmax_backward(y, dy): raise Odd({message}, x)"
    )
    out = tmp_path / "marks"
    for options in (["--verbose"], ["--csv", "--out", str(out), "--exercises", "softmax_backward"], ["--json"]):
        assert main(["grade", str(tmp_path / name), *options]) == 0
        text = "".join(capfd.readouterr())
        assert "\x1b" not in text and "\u202e" not in text
        assert not any(line.startswith("bob.py") for line in text.splitlines())
    for path in (*out.glob("*.csv"), *out.glob("feedback/*")):
        text = path.read_text()
        assert "\x1b" not in text and not any(line.startswith("bob.py") for line in text.splitlines())
        cells = csv.reader(io.StringIO(text)) if path.suffix == ".csv" else []
        assert not any(cell.startswith("=") for row in cells for cell in row)


@pytest.mark.slow
def test_ctrl_c_writes_what_is_done(tmp_path):
    (tmp_path / "quick.py").write_text(RIGHT)
    (tmp_path / "slow.py").write_text("def softmax_backward(y, dy):\n    while True: pass")
    command = [sys.executable, "-m", "minitransformer", "grade", str(tmp_path / "quick.py"), str(tmp_path / "slow.py")]
    command += ["--seconds", "500", "--exercises", "softmax_backward", "--out", str(tmp_path / "m")]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # where tests run in the background it is ignored
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    for line in process.stdout:
        if "quick.py: 100 %" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130 and "interrupted: 1 of 2 files graded" in err, err
    (row,) = rows_of((tmp_path / "m" / "marks.csv").read_text())
    assert (row["student"], row["score"]) == ("quick", "1.0000")


@pytest.mark.slow
def test_a_failure_of_the_grader_itself_costs_one_file(tmp_path, monkeypatch):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(RIGHT)
    judged = grading._judged
    calls = iter([True, False])

    def failing(*arguments):
        if next(calls):
            raise AssertionError("a mistake of ours")
        return judged(*arguments)

    monkeypatch.setattr(grading, "_judged", failing)
    with sandbox(["softmax_backward"], SEED) as box:
        found = list(grade_all(box, [tmp_path / "a.py", tmp_path / "b.py"], ["softmax_backward"], jobs=1))
    assert [(bool(grades.error), grades.score) for grades in found] == [(True, 0.0), (False, 1.0)]


@pytest.mark.parametrize(("options", "message"), [
    (["--exercises", "sofmax_backward"], "did you mean 'softmax_backward'?"),
    (["--json", "--csv"], "choose one"),
    (["--seconds", "0"], "greater than 0"),
    (["--seconds", "nan"], "greater than 0"),
    (["--memory", "5"], "at least 256"),
    (["--seed", "-1"], "at least 0"),
])  # fmt: skip
def test_bad_usage(tmp_path, capsys, options, message):
    path = tmp_path / "a.py"
    path.write_text(RIGHT)
    assert message in by_command(capsys, path, *options, status=2).err


def test_a_cell_full_of_magics_is_not_read_once_for_each(monkeypatch):
    parse, seen = ast.parse, []
    monkeypatch.setattr(hand_in.ast, "parse", lambda text: seen.append(text) or parse(text))
    assert len(hand_in._parsed("x = 7 % 4\n!ls\n" * 500).body) == 1000 and len(seen) < 30
