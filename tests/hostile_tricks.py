"""More hand-ins that try to pass, to steal or to break grading, in the forms of hostile_hand_ins.py; and such files."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from hostile_hand_ins import RIGHT, F

SEARCHES = {  # bodies of a function, see hostile_hand_ins.attack
    "walks through every prefix of Python": """
        import os, site, sys, sysconfig
        places = [sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()]
        for place in [*places, "/usr/local/src", "/usr/src", "/opt", "/srv", "/home", "/root"]:
            for folder, _, files in os.walk(place):
                for name in files:
                    text = open(os.path.join(folder, name), errors="replace").read() if name.endswith(".py") else ""
                    if "def softmax_backward" in text:
                        return _taken_from(text)
    """,
    "asks the metadata where the package is": """
        import importlib.metadata as m
        for one in m.distributions():
            for file in one.files or ():
                if str(file).endswith("exercises/softmax.py"):
                    return _taken_from(file.locate().read_text())
    """,
    "opens wheels and archives": """
        import glob, zipfile
        for path in glob.glob("/**/*.whl", recursive=True) + glob.glob("/**/*.zip", recursive=True):
            for name in zipfile.ZipFile(path).namelist():
                if name.endswith("exercises/softmax.py"):
                    return _taken_from(zipfile.ZipFile(path).read(name).decode())
    """,
    "reads compiled modules": """
        import glob, marshal, types
        for path in glob.glob("/**/softmax*.pyc", recursive=True):
            for x in marshal.loads(open(path, "rb").read()[16:]).co_consts:
                if getattr(x, "co_name", "") == "softmax_backward":
                    return types.FunctionType(x, {})
    """,
    "becomes root again": """
        import ctypes, os
        for call in (os.setuid, os.setgid, os.seteuid, os.setegid):
            try: call(0)
            except OSError: pass
        ctypes.CDLL(None).prctl(8, 1)
        return _taken_from(open(CLASSMATE).read())
    """,
    "reads the memory of the runner": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        for pid in (1, 2, 3, os.getppid()):
            if libc.ptrace(16, pid, 0, 0) == 0:
                return lambda y, dy: y * (dy - (dy * y).sum(axis=-1, keepdims=True))
        for line in open(f"/proc/{os.getppid()}/maps"):
            pass
    """,
    "reads whatever descriptor was left open": """
        import os
        for descriptor in range(3, 256):
            try: text = os.pread(descriptor, 2**20, 0).decode(errors="replace")
            except OSError: continue
            if "def softmax_backward" in text and "reference" in text:
                return _taken_from(text)
    """,
}

HARM = {  # bodies of a function
    "forges when the interpreter ends": """
        import atexit
        forged = b'\\n{"answers": [], "right": true}\\n{"done": "softmax_backward", "status": 0}\\n'
        atexit.register(_to_all, forged, 3, 64)
    """,
    "forges from a thread while the answers are sent": """
        import threading
        def forge():
            while True:
                _to_all(b'\\n{"answers": [{"outputs": [], "changed": [], "problem": "", "error": ""}]}', 3, 12)
        threading.Thread(target=forge, daemon=True).start()
    """,
    "says done before it is": """
        import time
        _to_all(b'\\n{"done": "softmax_backward", "status": 0}\\n', 3, 12)
        time.sleep(1.0)
    """,
    "floods the channel": """
        for _ in range(40): _to_all(b"{" * 2**20, 3, 12)
    """,
    "closes every descriptor": "import os\nos.closerange(0, 4096)",
    "puts another program in its place": """
        import os, sys
        code = "import os\\nfor d in range(3, 12):\\n try: os.write(d, b'{1}')\\n except OSError: pass"
        os.execv(sys.executable, [sys.executable, "-I", "-c", code])
    """,
    "raises in whatever runs": """
        import signal
        def strike(*_): raise MemoryError("from a signal")
        signal.signal(signal.SIGALRM, strike)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    """,
    "traces its caller": """
        import sys
        def trace(frame, event, arg):
            for name in ("answers", "function", "message", "outputs", "problem"):
                frame.f_locals.pop(name, None)
            frame.f_trace_opcodes = True
            return trace
        frame = sys._getframe()
        while frame: frame.f_trace, frame = trace, frame.f_back
        sys.settrace(trace)
    """,
    "removes all modules": "import sys\nsys.modules.clear()",
    "comes back when it is killed": """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                os.setsid()
                while True:
                    if os.fork() == 0: continue
                    try: os.wait()
                    except OSError: pass
    """,
    "uses up the inodes": """
        import os
        for i in range(10**6):
            os.mkdir(f"/tmp/{i}")
    """,
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
