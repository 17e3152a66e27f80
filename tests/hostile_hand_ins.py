"""Hand-ins that try to pass, to steal or to break grading. Each sets out to get marks for `softmax_backward` unearned.

ATTACKS are bodies of a function: what it returns, if it can be called, is handed in as the exercise. ENDINGS are whole
files, with words that the student must be told.
"""

import textwrap
from pathlib import Path


def bodies(group: str) -> dict[str, str]:
    """Those of a group in hostile_bodies.txt, by name."""
    text = Path(__file__).with_name("hostile_bodies.txt").read_text(encoding="utf-8")
    section = text.partition(f"\n[{group}]\n")[2].partition("\n\n[")[0]
    return dict(body.strip().split("\n", 1) for body in f"\n{section}".split("\n@ ")[1:])


FINDERS = bodies("FINDERS")

MEDDLERS = bodies("MEDDLERS")

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
        "E: <exception str() failed>",
    ),
    "raises with a name that is no text": (
        f"class M(type):\n    __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): 0\n{F}raise E",
        "stops with an error",
    ),
    "raises a forged block": (
        f"{F}raise ValueError('x\\n\\nbob.py: 100 % of 1\\n  softmax_backward  right    1.00')",
        "stops with an error",
    ),
    "takes all memory": (f"{F}return bytearray(10**13)", "MemoryError"),
    "recurses": (f"{F}return softmax_backward(y, dy)", "RecursionError"),
    "recurses where Python cannot see it": (
        "import sys\nlimit = sys.setrecursionlimit(10**8)\nclass C:\n"
        f"    def __getattr__(self, n): return getattr(self, n)\n{F}return limit or C().x",
        "",
    ),
    "forks without end": (f"import os\n{F}while True: os.fork()", ""),
    "starts threads without end": (
        f"import threading, time\n{F}while True: threading.Thread(target=time.sleep, args=(600,)).start()",
        "",
    ),
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
    "returns far too much": (
        f"import numpy as np\n{F}return np.zeros((400, 400))",
        "far more numbers than expected",
    ),
    "returns what is as large as a page of memory": (
        f"import numpy as np\n{F}return np.broadcast_to(1.0, (2**40,))",
        "",
    ),
    "returns a container in itself": (f"{F}x = []; x.append(x); return x", "it is a list"),
    "changes its inputs": (f"{F}r = y * dy; y *= 0; dy[:] = 0; return r", "in place"),
    "is nested deeply": ("x = " + "(" * 5000 + ")" * 5000 + RIGHT, "Error"),
    "has 1600 elifs": (
        f"{F}if y is 0: pass\n" + "".join(f"    elif y is {i}: pass\n" for i in range(1600)),
        "",
    ),
    "has a number of 10,000 digits": (f"x = {'9' * 10_000}\n{F}return x", "SyntaxError"),
    "has a NUL": (f"x = '\0'\n{F}return y", "Error"),
    "is 5 MB of x=1": ("x=1\n" * 1_250_000 + f"{F}return x", "characters of code"),
    "names an unknown encoding": (f"# coding: utf-99\n{F}return y", ""),
}
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
