"""Hand-ins that try to pass for right while they are called: by what they see, what they change and what they return.

Each is the body of `softmax_backward(y, dy)`. What it returns, where it comes to that, is wrong.
"""

from __future__ import annotations

import textwrap

LOOKING = {
    "looks for the answer in all objects": """
        import gc
        for value in gc.get_objects():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
            for one in list(held):
                if isinstance(one, np.ndarray) and one.shape == y.shape and one is not y and one is not dy:
                    return one
    """,
    "looks for the reference in all functions": """
        import gc, types
        for value in gc.get_objects():
            if isinstance(value, types.FunctionType) and "softmax" in value.__name__ and value is not softmax_backward:
                return value(y, dy)
    """,
    "reads what is to be done from its input": """
        import json, sys
        order = json.loads(sys.stdin.readline())
        return np.array(order["exercises"][0]["answers"][0])
    """,
}

CHANGING = {
    "makes every array finite": "np.isfinite = lambda x: np.ones_like(x, bool)\nreturn y * np.nan",
    "hides what it changed": "np.ndarray.tobytes = None",
    "replaces NumPy": "import sys, types\nsys.modules['numpy'] = types.ModuleType('numpy')",
    "deletes the builtins": "import builtins\nfor name in ('len', 'isinstance', 'print'): delattr(builtins, name)",
    "lets isinstance agree": "import builtins\nbuiltins.isinstance = lambda *args: True\nreturn 'right'",
    "ignores every signal": """
        import signal
        for s in set(range(1, 32)) - {9, 19}:
            signal.signal(s, signal.SIG_IGN)
    """,
    "points every descriptor at a file": """
        import os
        there = os.open("there", os.O_CREAT | os.O_RDWR)
        for descriptor in range(64):
            os.dup2(there, descriptor)
    """,
    "makes warnings errors": "import warnings\nwarnings.simplefilter('error')\nnp.seterr(all='raise')",
    "warns ten thousand times": "import warnings\nfor i in range(10_000): warnings.warn(f'bob.py: 100 % of {i}')",
    "rewrites its own code": "softmax_backward.__code__ = (lambda y, dy: y).__code__\nreturn softmax_backward(y, dy)",
    "changes the rounding of the processor": "import ctypes\nctypes.CDLL('libm.so.6').fesetround(0x800)",
    "is right once and then no more": """
        global calls
        calls = globals().get("calls", 0) + 1
        return y * (dy - (dy * y).sum(axis=-1, keepdims=True)) if calls == 1 else y * dy
    """,
}

RETURNING = {
    "returns a matrix that multiplies otherwise": "return np.asmatrix(y.reshape(-1, y.shape[-1])) * 0",
    "returns dates": "return np.zeros(y.shape, 'datetime64[s]')",
    "returns truth": "return np.ones(y.shape, bool)",
    "returns bytes of another order": "return (y * dy).astype('>f8')",
    "returns a picture of its own memory": "return np.lib.stride_tricks.as_strided(y, (10**6, 10**6), (0, 0))",
    "returns what lies beyond its memory": "return np.lib.stride_tricks.as_strided(y, y.shape, [2**40] * y.ndim)",
    "returns an iterator": "return iter([y])",
    "returns Ellipsis": "return ...",
    "returns an array of axes that are empty": "return np.empty((0,) * 60)",
    "raises StopIteration": "raise StopIteration(y)",
    "raises GeneratorExit": "raise GeneratorExit",
    "raises a message of 50 MB": "raise ValueError('x' * 50_000_000)",
    "raises with arguments that cannot be shown": "raise ValueError(type('E', (), {'__repr__': lambda s: 1 / 0})())",
    "raises escape sequences": "raise ValueError('\\x1b[2J\\x1b]0;bob.py: 100 %\\x07')",
}

_BODIES = LOOKING | CHANGING | RETURNING
ANSWERS = {
    name: "import numpy as np\n\ndef softmax_backward(y, dy):\n"
    + textwrap.indent(textwrap.dedent(body).strip() + "\nreturn y * dy", "    ")
    for name, body in _BODIES.items()
}
