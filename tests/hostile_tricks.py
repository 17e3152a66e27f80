"""More hand-ins that try to pass, to steal or to break grading, in the forms of hostile_hand_ins.py; and such files."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from hostile_hand_ins import RIGHT, F, bodies

SEARCHES = bodies("SEARCHES")

HARM = bodies("HARM")

RETURNS = {  # whole files, and words that the student is told
    "returns a subclass that rewrites its bytes": (
        "import numpy as np\nclass A(np.ndarray):\n    def tobytes(self, *a): return b''\n"
        "    def __array_finalize__(self, o): pass\n    shape = property(lambda s: (1,))\n"
        f"{F}return (y * dy).view(A)",
        "",
    ),
    "returns a masked array": (f"import numpy as np\n{F}return np.ma.masked_array(y * dy, mask=True)", "dx"),
    "returns a memory map": (
        f"import numpy as np\n{F}m = np.memmap('/tmp/m', 'f8', 'w+', shape=y.shape); m[:] = y; return m",
        "",
    ),
    "hangs no signature": (
        "class M:\n    __signature__ = property(lambda s: exit(0))\n    def __call__(self, *a): return 1\n"
        f"m = lambda f: M()\n@m\n{F}return y",
        "",
    ),
    "raises with a repr that raises": (
        f"class E(Exception):\n    def __repr__(self): raise self\n    def __str__(self): return 3\n{F}raise E(E())",
        "stops with an error",
    ),
    "raises a group of itself": (
        f"{F}e = ValueError('x' * 10**6)\n    e.__cause__ = e\n    raise ExceptionGroup('g' * 10**6, [e] * 1000)",
        "stops with an error",
    ),
    "hides its code in UTF-7": (f"# coding: utf-7\nx = '+AFs-'\n{F}return y", ""),
    "is encoded as no text": (f"# coding: rot13\n{F}return y", "not ROT13 text"),
    "hides in look-alike letters": (RIGHT.replace("backward(", "backw\u0430rd("), "does not define it"),
    "hides lines by a carriage return": (f"{F}# \r    return y", ""),
    "is a comprehension of depth 100": (f"x = {'[' * 99}1{' for _ in [1]]' * 99}\n{F}return y", ""),
}
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
