"""Hand-ins that try to pass, to steal or to break grading. Each sets out to get marks for `softmax_backward` unearned.

FINDERS, MEDDLERS, SEARCHES and HARM are bodies of a function: what it returns, if it can be called, is handed in as the
exercise. ANSWERS try it while they are called, by what they see, change and return. ENDINGS, RETURNS, SLOW and STALLS
are whole files, the first two with words that the student must be told; FILES are paths, and what makes them.
"""

import json
import os
import socket
import textwrap
from collections.abc import Callable
from pathlib import Path


def bodies(group: str) -> dict[str, str]:
    """Those of a group in hostile_bodies.txt, by name."""
    text = Path(__file__).with_name("hostile_bodies.txt").read_text(encoding="utf-8")
    section = text.partition(f"\n[{group}]\n")[2].partition("\n\n[")[0]
    return dict(body.strip().split("\n", 1) for body in f"\n{section}".split("\n@ ")[1:])


FINDERS, MEDDLERS, SEARCHES, HARM = map(bodies, ("FINDERS", "MEDDLERS", "SEARCHES", "HARM"))

FORGERIES = [
    '{"answers": []}',
    '{"answers": [{"outputs": [], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"plain": 1}], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["|O", [1], "AAAA"]}], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["<f8", [-1], ""]}], "changed": 3, "problem": "", "error": ""}]}',
    '{"answers": [{"outputs": [{"array": ["<f8", [2147483647, 2147483647], ""]}], "changed": []}]}',
    '{"answers": [{"outputs": [{"array": ["<f16", [1], "AAAAAAAAAAAAAAAAAAAAAA=="]}], "changed": []}]}',
    '{"answers": [{"outputs": [{"plain": "' + "x" * 1_000_000 + '"}], "changed": [], "problem": "", "error": ""}]}',
    '{"answers": {"right": true}}',
    '{"answers": null}',
    '{"right": true}',
    "[1]",
    "null",
    "not JSON",
    "1" * 5000,
    "[" * 100_000,
    "\\n" * 500_000,
    "\\xff\\xfe",
    '{"call": 99, "args": {"tuple": []}, "mark": ""}',
    '{"call": -1, "args": {"tuple": []}, "mark": ""}',
    '{"call": 0, "args": {"function": 0}, "mark": ""}',
    '{"call": 0, "args": {"tuple": [' + ", ".join(['{"plain": 1}'] * 1000) + ']}, "mark": ""}',
    '{"failed": 3}',
    '{"failed": "\\\\u001b[2Jbob.py: 100 % of 1"}',
]
MEDDLERS |= {f"forges {i}: {forgery[:40]}": f"_to_all(b'''\\n{forgery}\\n''')" for i, forgery in enumerate(FORGERIES)}

RIGHT = "\ndef softmax_backward(y, dy):\n    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))\n"
F = "def softmax_backward(y, dy):\n    "
ENDINGS = {
    "exits in the function": (f"import os\n{F}os._exit(7)", "ended before it gave an answer"),
    "exits politely": (f"import sys\n{F}sys.exit(0)", "SystemExit"),
    "crashes": (f"import os\n{F}os.abort()", "ended by SIGABRT"),
    "reads address 0": (f"import ctypes\n{F}ctypes.string_at(0)", "ended by SIGSEGV"),
    "raises what is no Exception": (f"class E(BaseException): 0\n{F}raise E", "E: "),
    "raises what cannot be shown": (
     f"class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\n{F}raise E",
     "E: <exception str() failed>"),
    "raises with a name that is no text": (
     f"class M(type):\n    __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): 0\n{F}raise E",
     "stops with an error"),
    "raises a forged block": (f"{F}raise ValueError('x\\n\\nbob.py: 100 % of 1\\n  softmax_backward  right    1.00')",
     "stops with an error"),
    "takes all memory": (f"{F}return bytearray(10**13)", "MemoryError"),
    "recurses": (f"{F}return softmax_backward(y, dy)", "RecursionError"),
    "recurses where Python cannot see it": (
        "import sys\nlimit = sys.setrecursionlimit(10**8)\nclass C:\n"
        f"    def __getattr__(self, n): return getattr(self, n)\n{F}return limit or C().x",
        "",
    ),
    "forks without end": (f"import os\n{F}while True: os.fork()", ""),
    "starts threads without end": (
     f"import threading, time\n{F}while True: threading.Thread(target=time.sleep, args=(600,)).start()", ""),
    "is no function": ("softmax_backward = 3", "assigned, not defined"),
    "is a coroutine": ("async def softmax_backward(y, dy): return y", "it is a coroutine"),
    "is a generator": (f"{F}yield y", "it is a generator"),
    "returns objects": (f"import numpy as np\n{F}return np.array([print, {{}}], dtype=object)", "an array of object"),
    "returns a liar": (
        "class Liar:\n    def __eq__(self, other): return True\n    __array_priority__ = 1e9\n    shape = (1,)\n"
        f"{F}return Liar()",
        "it is a Liar",
    ),
    "returns NaN": (f"{F}return y * float('nan')", "NaN"),
    "returns complex numbers": (f"{F}return y * dy * 1j", "complex128"),
    "returns texts": (f"{F}return dy.astype(str)", "numbers were expected"),
    "returns far too much": (f"import numpy as np\n{F}return np.zeros((400, 400))", "far more numbers than expected"),
    "returns what is as large as a page of memory": (f"import numpy as np\n{F}return np.broadcast_to(1.0, (2**40,))",
     ""),
    "returns a container in itself": (f"{F}x = []; x.append(x); return x", "it is a list"),
    "changes its inputs": (f"{F}r = y * dy; y *= 0; dy[:] = 0; return r", "in place"),
    "is nested deeply": ("x = " + "(" * 5000 + ")" * 5000 + RIGHT, "Error"),
    "has 1600 elifs": (f"{F}if y is 0: pass\n" + "".join(f"    elif y is {i}: pass\n" for i in range(1600)), ""),
    "has a number of 10,000 digits": (f"x = {'9' * 10_000}\n{F}return x", "SyntaxError"),
    "has a NUL": (f"x = '\0'\n{F}return y", "Error"),
    "is 5 MB of x=1": ("x=1\n" * 1_250_000 + f"{F}return x", "characters of code"),
    "names an unknown encoding": (f"# coding: utf-99\n{F}return y", ""),
}  # fmt: skip
SLOW = {  # they end by the clock
    "loops at the top": f"def f():\n    while True: pass\nx = f()\n{F}return x",
    "loops in the function": f"{F}while True: pass",
    "sleeps and refuses to end": (
        f"import time, signal\ndef f():\n    for s in (15, 14, 24): signal.signal(s, 1)\n    time.sleep(500)\nx = f()\n"
        f"{F}return x"
    ),
    "leaves its group and loops": f"import os\n{F}if os.fork() == 0: os.setsid()\n    while True: pass",
    "calculates a tower": f"{F}return 9**9**9",
}
ENDINGS["stops its parent"] = (  # the first process of a namespace cannot be stopped from within
    f"import os, signal\n{F}os.kill(os.getppid(), signal.SIGSTOP)\n    os._exit(0)",
    "",
)

ANSWERS = {
    name: "import numpy as np\n\ndef softmax_backward(y, dy):\n"
    + textwrap.indent(textwrap.dedent(body).strip() + "\nreturn y * dy", "    ")
    for group in ("LOOKING", "CHANGING", "RETURNING")
    for name, body in bodies(group).items()
}
RETURNS = {  # whole files, and words that the student is told
    "returns a subclass that rewrites its bytes": (
        "import numpy as np\nclass A(np.ndarray):\n    def tobytes(self, *a): return b''\n"
        "    def __array_finalize__(self, o): pass\n    shape = property(lambda s: (1,))\n"
        f"{F}return (y * dy).view(A)",
        "",
    ),
    "returns a masked array": (f"import numpy as np\n{F}return np.ma.masked_array(y * dy, mask=True)", "dx"),
    "returns a memory map": (
     f"import numpy as np\n{F}m = np.memmap('/tmp/m', 'f8', 'w+', shape=y.shape); m[:] = y; return m", ""),
    "hangs no signature": (
        "class M:\n    __signature__ = property(lambda s: exit(0))\n    def __call__(self, *a): return 1\n"
        f"m = lambda f: M()\n@m\n{F}return y",
        "",
    ),
    "raises with a repr that raises": (
     f"class E(Exception):\n    def __repr__(self): raise self\n    def __str__(self): return 3\n{F}raise E(E())",
     "stops with an error"),
    "raises a group of itself": (
     f"{F}e = ValueError('x' * 10**6)\n    e.__cause__ = e\n    raise ExceptionGroup('g' * 10**6, [e] * 1000)",
     "stops with an error"),
    "hides its code in UTF-7": (f"# coding: utf-7\nx = '+AFs-'\n{F}return y", ""),
    "is encoded as no text": (f"# coding: rot13\n{F}return y", "'rot13' is not a text encoding"),
    "hides in look-alike letters": (RIGHT.replace("backward(", "backw\u0430rd("), "does not define it"),
    "hides lines by a carriage return": (f"{F}# \r    return y", ""),
    "is a comprehension of depth 100": (f"x = {'[' * 99}1{' for _ in [1]]' * 99}\n{F}return y", ""),
}  # fmt: skip
STALLS = {  # whole files that end by the clock
    "stops itself": f"import os, signal\n{F}os.kill(os.getpid(), signal.SIGSTOP)",
    "has a message that never ends": (
        f"class E(Exception):\n    def __str__(self):\n        while True: pass\n{F}raise E"
    ),
    "ignores the end of its processor time": (
        f"import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\n"
        f"used = signal.alarm(0)\n{F}while True: used"
    ),
}


def _long(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 * 1024**3)


def _socket(path: Path) -> None:
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


# Paths in a folder of hand-ins, and what makes them. `right/answers.py` there is a classmate's right hand-in.
FILES: dict[str, Callable[[Path], object]] = {
    "linked/answers.py": lambda path: path.symlink_to("../right/answers.py"),
    "absolute/answers.py": lambda path: path.symlink_to(path.parents[1] / "right" / "answers.py"),
    "chain/answers.py": lambda path: (path.symlink_to("b"), path.with_name("b").symlink_to("../right/answers.py")),
    "folder": lambda path: path.symlink_to("right"),
    "process": lambda path: path.symlink_to("/proc/self/cwd"),
    "descriptor/answers.py": lambda path: path.symlink_to("/dev/stdin"),
    "random/answers.py": lambda path: path.symlink_to("/dev/urandom"),
    "nowhere/answers.py": lambda path: path.symlink_to("/does/not/exist"),
    "itself/answers.py": lambda path: path.symlink_to("answers.py"),
    "pipe/answers.py": os.mkfifo,
    "socket/answers.py": _socket,
    "sparse/answers.py": _long,
    "empty/answers.py": Path.touch,
    "-rf/--help.py": lambda path: path.write_text("x = 1"),
    "new\nline/answers\x1b[2J.py": lambda path: path.write_text("x = 1"),
    "utf16/answers.py": lambda path: path.write_bytes(RIGHT.encode("utf-16")),
    "folder.py/answers.py": lambda path: path.write_text("x = 1"),
    "cells/answers.ipynb": lambda path: path.write_text(
        json.dumps({"cells": [{"cell_type": "code", "source": [[[1]], None, {"a": RIGHT}]}, {"cell_type": "code"}, 7]})
    ),
}


def attack(body: str, **places: object) -> str:
    """A hand-in that calls the attack, and hands in what it returns; or else a wrong answer."""
    given = "".join(f"{name} = {value!r}\n" for name, value in places.items())
    code = textwrap.indent(textwrap.dedent(body).strip(), "        ")
    return f"""{given}
import os

def _closed(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False

def _to_all(text, first=3, end=20):
    for descriptor in range(first, end):
        try:
            os.write(descriptor, text)
        except OSError:
            pass

def _taken_from(text):
    scope = {{"Array": object}}
    exec(text[text.index("def softmax_backward") :].split("\\n\\n\\n")[0], scope)
    return scope["softmax_backward"]

def attack():
    try:
{code}
    except BaseException:
        pass

stolen = attack()

def softmax_backward(y, dy):
    return stolen(y, dy) if callable(stolen) else y * dy
"""
