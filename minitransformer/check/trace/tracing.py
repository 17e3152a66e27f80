"""Follow running ops, layers and models from outside, and replace a value inside them; their code knows nothing of it.

`sys.settrace` reports every call, line and return. The traced code is that in ops/, layers/, models/, ideas/ and
published/, and in the file of the function under study. A Recorder (recorder.py) records what the calls bind to names.
A Replacement runs the function again and replaces one such value the moment it is bound, to take a finite difference
with respect to it.

Our functions return their pullback, so the tracer knows which forward call it belongs to. In other code the two are
separate functions, linked by a shared object: the `ctx` of a torch.autograd.Function, the cache that forward returns
and backward receives, or the object whose methods they are. A function with the attribute `separate` is traced by this
link, whichever file of the user its code is in.
"""

import functools
import importlib.metadata
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...core.arrays.backend import Array
from ...core.layers import Module
from ...core.ops.random_numbers import uniform
from .calls import Pair
from .values import as_numpy, is_float_array, like

_PACKAGE = Path(__file__).parents[2]  # not resolved: code objects keep the path they were imported by
_ROOMS = tuple(str(_PACKAGE / place) for place in ("core/ops", "core/layers", "core/models", "ideas"))
_NO_STEPS = inspect.getfile(Module), inspect.getfile(uniform)  # checks, lists of parameters, the bits of a hash
_LIBRARIES = (str(_PACKAGE), sysconfig.get_path("stdlib"), "<frozen", "<string>")
_OF_ARRAYS = ("numpy", "cupy", "torch", "jax", "jaxlib")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_HIDDEN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def textbook_of(f: Any) -> Any:
    """The textbook form of f: the original of a fast twin, or of a fast twin's method; else f itself."""
    if inspect.ismethod(f):
        return getattr(getattr(f.__self__, "textbook", f.__self__), f.__name__)
    return getattr(f, "textbook", f)


def _file_of(f: Any) -> str:
    """The file that holds the code of f: calls into it are traced, too, like those into layers."""
    f = inspect.unwrap(f) if callable(f) else f
    while hasattr(f, "func"):  # functools.partial
        f = inspect.unwrap(f.func)
    f = f if hasattr(f, "__code__") else type(f).__call__  # for a module: its class's __call__
    code = getattr(f, "__code__", None)
    return code.co_filename if code is not None else ""


@functools.lru_cache(maxsize=4096)
def of_a_user(filename: str, module: Any) -> bool:
    """Whether a module's file lies outside Python's libraries, the installed ones and this package.

    An installed package may be in any folder, as after `pip install --target`. Pip's RECORD beside it tells it from a
    package of the user. The libraries whose arrays we take are never the user's, even as a clone without a RECORD.
    """
    if filename.startswith(_LIBRARIES) or any(part in filename for part in _INSTALLED):
        return False
    package = str(module).partition(".")[0]
    path = Path(filename)
    root = next((folder for folder in path.parents if (folder / package) in path.parents), path.parent)
    return package not in _OF_ARRAYS and not _has_record(str(root), package)


@functools.lru_cache(maxsize=4096)
def _has_record(root: str, package: str) -> bool:
    """Whether a distribution installed in this folder has a file of the package."""
    records = (each.read_text("RECORD") or "" for each in importlib.metadata.distributions(path=[root]))
    return any(line.startswith((f"{package}/", f"{package}.py,")) for each in records for line in each.splitlines())


def function_of(ctx: Any) -> Any:
    """The class derived from torch.autograd.Function whose context this is; None for any other object."""
    return getattr(type(ctx), "_forward_cls", None)


def arguments_of(frame: types.FrameType) -> Iterator[Any]:
    """The arguments of a call."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        if name in frame.f_locals:
            yield frame.f_locals[name]


def token_in(result: Any) -> Any:
    """What forward returned for backward next to its output, if only these two hold it; otherwise None."""
    token = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    common = isinstance(token, bool | int | float | str) or callable(token) or (isinstance(token, tuple) and not token)
    return None if common else token


def newly_bound(held: dict[str, Any], frame_locals: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names that hold another object than in `held`, which is brought up to date."""
    for name, value in list(frame_locals.items()):
        if name not in held or held[name] is not value:
            held[name] = value
            yield name, value


def claimed_pullback(result: Any, code: types.CodeType) -> types.FunctionType | None:
    """The pullback in `result = (y, pullback)` if this very call made it, claimed for this call; else None.

    The pullback gets a code object of its own, which identifies it when it runs. Without that, all pullbacks made by
    the same line of source would share one code object.
    """
    pullback = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    while callable(pullback) and pullback is not (
        inner := getattr(pullback, "__wrapped__", getattr(pullback, "func", pullback))
    ):
        pullback = inner  # inside a decorator or a functools.partial
    if isinstance(pullback, types.FunctionType) and any(pullback.__code__ is const for const in code.co_consts):
        pullback.__code__ = pullback.__code__.replace()
        return pullback
    return None


def label_of(frame: types.FrameType) -> str:
    """The name of the op, or of the module's class: "attention", "EncoderLayer", "Residual._pre"."""
    code = frame.f_code
    owner, name = frame.f_locals.get("self"), code.co_name
    if owner is None:
        context = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        function = function_of(context)
        return function.__name__ if function is not None and name in ("forward", "backward") else name
    return type(owner).__name__ if name in ("__call__", "forward") else f"{type(owner).__name__}.{name}"


def is_watched() -> bool:
    """Whether somebody follows the lines that run now."""
    return isinstance(getattr(sys.gettrace(), "__self__", None), Traced)


class Traced:
    """Sets the trace function, and afterwards restores the previous one (a debugger's, a coverage tool's)."""

    def __init__(self, f: Any) -> None:
        self._file = _file_of(f)
        self._separate = getattr(f, "separate", False)

    def __enter__(self) -> Any:
        self._previous = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._previous)

    def _wants(self, frame: types.FrameType) -> bool:
        """Whether to follow this call. Comprehensions and generators belong to the statement that runs them."""
        code, name = frame.f_code, frame.f_code.co_filename
        ours = of_a_user(name, frame.f_globals.get("__name__")) if self._separate else name == self._file
        if not ours and not name.startswith(_ROOMS):
            return False
        if name in _NO_STEPS:
            return False
        return not code.co_flags & _HIDDEN and (code.co_name[0] != "<" or code.co_name == "<lambda>")

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        raise NotImplementedError


class Replacement(Traced):
    """Replaces one bound value, found by its place in a recording, with `change(value)`; the function then goes on."""

    def __init__(self, f: Any, pair: Pair, change: Callable[[Array], Array]) -> None:
        super().__init__(f)
        self._pair, self._change = pair, change
        self._code, self._name = pair.code, pair.code.co_name if pair.code else ""
        self._calls = self._bindings = 0
        self._held: Any = None
        self.done = False

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code is not self._code and (code.co_name != self._name or code != self._code):
            return None  # every call comes here, and to compare two codes takes long
        self._calls += 1
        return self._exchange(frame, event, arg) if self._calls - 1 == self._pair.turn else None

    def _exchange(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        frame_locals = frame.f_locals  # read once: before Python 3.13 a second look would undo the change
        value = frame_locals.get(self._pair.name, self._held)
        if value is not self._held and is_float_array(as_numpy(value)):
            if self._bindings == self._pair.occurrence:
                frame_locals[self._pair.name] = like(self._change(as_numpy(value)), value)
                self._held = None
                self.done = True
                sys.settrace(None)
                return None
            self._bindings += 1
        self._held = value
        return self._exchange
