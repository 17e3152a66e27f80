"""Hand-ins that try to pass for right while they are called: by what they see, what they change and what they return.

Each is the body of `softmax_backward(y, dy)`. What it returns, where it comes to that, is wrong.
"""

from __future__ import annotations

import textwrap

LOOKING = {
    "looks for the answer in the frames": """
        import sys
        frame = sys._getframe()
        while frame:
            for value in list(frame.f_locals.values()):
                if isinstance(value, np.ndarray) and value.shape == y.shape and value is not y and value is not dy:
                    return value
            frame = frame.f_back
    """,
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
    "reads the memory of its parent": """
        import os
        return np.frombuffer(open(f"/proc/{os.getppid()}/mem", "rb").read(8))
    """,
    "reads the memory of the first process": "return np.frombuffer(open('/proc/1/mem', 'rb').read(8))",
    "reads what is to be done from its input": """
        import json, sys
        order = json.loads(sys.stdin.readline())
        return np.array(order["exercises"][0]["answers"][0])
    """,
    "reads every descriptor": """
        import os
        for descriptor in range(64):
            try:
                os.set_blocking(descriptor, False)
                os.lseek(descriptor, 0, 0)
                if len(found := os.read(descriptor, 1 << 20)) >= y.nbytes:
                    return np.frombuffer(found[: y.nbytes]).reshape(y.shape)
            except OSError:
                pass
    """,
    "asks a debugger": """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        return np.array([libc.ptrace(16, pid, 0, 0) for pid in range(1, 50)])
    """,
    "looks up the seed": """
        import random
        return np.random.default_rng(random.getstate()[1][0]).normal(size=y.shape)
    """,
    "derives it numerically from a softmax that is not there": """
        from scipy.special import softmax_backward
        return softmax_backward(y, dy)
    """,
}

CHANGING = {
    "makes comparisons agree": """
        np.allclose = np.array_equal = np.isclose = lambda *args, **options: True
        np.testing.assert_allclose = lambda *args, **options: None
    """,
    "makes every array finite": "np.isfinite = lambda x: np.ones_like(x, bool)\nreturn y * np.nan",
    "makes all differences zero": "np.subtract = np.abs = lambda *args, **options: np.zeros(y.shape)",
    "hides what it changed": "np.ndarray.tobytes = None",
    "replaces NumPy": "import sys, types\nsys.modules['numpy'] = types.ModuleType('numpy')",
    "deletes the builtins": "import builtins\nfor name in ('len', 'isinstance', 'print'): delattr(builtins, name)",
    "lets isinstance agree": "import builtins\nbuiltins.isinstance = lambda *args: True\nreturn 'right'",
    "traces what calls it": """
        import sys
        def trace(frame, event, arg):
            for name in frame.f_locals:
                frame.f_locals[name] = None
            return trace
        sys.settrace(trace)
        sys.setprofile(trace)
        frame = sys._getframe()
        while frame:
            frame.f_trace = trace
            frame = frame.f_back
    """,
    "ends it politely at exit": "import atexit, os\natexit.register(os._exit, 0)",
    "sets an alarm": "import signal\nsignal.signal(14, lambda *args: 1 / 0)\nsignal.setitimer(0, 0.001, 0.001)",
    "ignores every signal": """
        import signal
        for s in set(range(1, 32)) - {9, 19}:
            signal.signal(s, signal.SIG_IGN)
    """,
    "closes every descriptor": "import os\nos.closerange(0, 256)",
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
    "leaves its folder": "import os\nos.chdir('/')\nos.rmdir('/tmp')",
    "asks for the highest priority": "import os\nos.nice(-20)\nos.sched_setscheduler(0, 1, os.sched_param(1))",
    "is right once and then no more": """
        global calls
        calls = globals().get("calls", 0) + 1
        return y * (dy - (dy * y).sum(axis=-1, keepdims=True)) if calls == 1 else y * dy
    """,
}

RETURNING = {
    "returns an array of which all is masked": "return np.ma.masked_all(y.shape)",
    "returns a matrix that multiplies otherwise": "return np.asmatrix(y.reshape(-1, y.shape[-1])) * 0",
    "returns dates": "return np.zeros(y.shape, 'datetime64[s]')",
    "returns truth": "return np.ones(y.shape, bool)",
    "returns bytes of another order": "return (y * dy).astype('>f8')",
    "returns a picture of its own memory": "return np.lib.stride_tricks.as_strided(y, (10**6, 10**6), (0, 0))",
    "returns what lies beyond its memory": "return np.lib.stride_tricks.as_strided(y, y.shape, [2**40] * y.ndim)",
    "returns a dictionary": "return {'dx': y}",
    "returns an iterator": "return iter([y])",
    "returns the module": "return np",
    "returns Ellipsis": "return ...",
    "returns an array of axes that are empty": "return np.empty((0,) * 60)",
    "raises StopIteration": "raise StopIteration(y)",
    "raises GeneratorExit": "raise GeneratorExit",
    "raises a message of 50 MB": "raise ValueError('x' * 50_000_000)",
    "raises errors in a circle": "a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a",
    "raises with arguments that cannot be shown": "raise ValueError(type('E', (), {'__repr__': lambda s: 1 / 0})())",
    "raises escape sequences": "raise ValueError('\\x1b[2J\\x1b]0;bob.py: 100 %\\x07')",
}

_BODIES = LOOKING | CHANGING | RETURNING
ANSWERS = {
    name: "import numpy as np\n\ndef softmax_backward(y, dy):\n"
    + textwrap.indent(textwrap.dedent(body).strip() + "\nreturn y * dy", "    ")
    for name, body in _BODIES.items()
}
