"""The first half of a check: run a student's function on the trials of an exercise, and record what it returns.

Nothing here knows the right answer, so this part can run in a process of its own.
"""

from __future__ import annotations

import copy
import inspect
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # a hand-in runs without the exercises and the rest of the package
    from .exercise import Exercise

_NOT_THE_STUDENTS = (str(Path(__file__).parent), str(Path(np.__file__).parent), "<__array_function__")

NOT_WRITTEN = "Your function is not written yet."
_OTHER_LIBRARIES = ("torch", "jax", "jaxlib", "tensorflow")


@dataclass(frozen=True)
class Answer:
    """What a function returned on one trial: for each output an array, or a description of what came instead.

    problem: why there are no outputs at all, in words; error: the traceback, if that is the reason. inputs: the
    arguments as they were afterwards. repeated: the names of arguments that were called more than once.
    """

    outputs: tuple[np.ndarray | str, ...] = ()
    problem: str = ""
    error: str = ""
    inputs: tuple[Any, ...] = ()
    repeated: tuple[str, ...] = ()


def no_array(x: Any) -> np.ndarray:
    """Raise TypeError: x belongs to no known array library."""
    raise TypeError(f"a {type(x).__name__} is not an array")


def collect(
    exercise: Exercise, f: Callable[..., Any], seed: int = 0, to_numpy: Callable[[Any], np.ndarray] = no_array
) -> list[Answer]:
    """The answers of f on the exercise's trials, up to the first that has a problem. f gets copies of the inputs.

    to_numpy brings arrays of other libraries to the host, and raises TypeError for anything but an array.
    """
    if not callable(f):
        raise TypeError(
            f"check: the second argument must be the function itself, got {type(f).__name__}; "
            f"write check({exercise.name!r}, {exercise.name}), without calling it"
        )
    misfit = signature_misfit(exercise.arguments, f)
    if misfit:
        return [Answer(problem=misfit)]
    answers = []
    for inputs in exercise.trials(seed):
        answers.append(_answer(exercise, f, inputs, to_numpy))
        if answers[-1].problem:
            break
    return answers


def is_pullback(name: str) -> bool:
    """Whether the argument of this name is a pullback, or a dictionary of them."""
    return name.endswith(("backward", "pullbacks"))


def _answer(
    exercise: Exercise, f: Callable[..., Any], inputs: tuple[Any, ...], to_numpy: Callable[[Any], np.ndarray]
) -> Answer:
    given = copy.deepcopy(inputs)
    calls: list[tuple[str, str]] = []
    given = tuple(
        _noting_calls(x, name, calls) if is_pullback(name) else x
        for name, x in zip(exercise.arguments, given, strict=True)
    )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = f(*given)
    except NotImplementedError:
        return Answer(problem=NOT_WRITTEN)
    except (Exception, SystemExit) as error:
        problem = f"Your function stops with an error for {described(exercise, inputs)}:"
        return Answer(problem=reordered(exercise.arguments, f) or problem, error=_students_traceback(error))
    problem = _not_the_outputs(exercise.outputs, returned)
    if problem:
        return Answer(problem=problem)
    values = returned if len(exercise.outputs) > 1 else (returned,)
    repeated = tuple(name for name, key in set(calls) if calls.count((name, key)) > 1)
    return Answer(tuple(_as_array(value, to_numpy) for value in values), inputs=given, repeated=repeated)


def _noting_calls(x: Any, name: str, calls: list[tuple[str, str]], key: str = "") -> Any:
    """The pullback x, or the dictionary of pullbacks x; each call adds the argument's name and its key to `calls`."""
    if isinstance(x, dict):
        return {key: _noting_calls(one, name, calls, key) for key, one in x.items()}

    def noting(*gradients: Any) -> Any:
        calls.append((name, key))
        return x(*gradients)

    return noting


def signature_misfit(arguments: tuple[str, ...], f: Callable[..., Any]) -> str:
    """What is wrong with f's signature, if it does not take these arguments."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return ""  # some built-in functions have no signature
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"Your function is called with ({', '.join(arguments)}), but it takes {signature}."
    return ""


def reordered(arguments: tuple[str, ...], f: Callable[..., Any]) -> str:
    """What to say if f takes the arguments in another order, which its own names for them show; otherwise ""."""
    try:
        names = tuple(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return ""
    if names == arguments or sorted(names) != sorted(arguments):
        return ""
    return (
        f"Your function takes its arguments in another order, {', '.join(names)}, and stops with an error. It is "
        f"called with {', '.join(arguments)}: write def ...({', '.join(arguments)})."
    )


def _students_traceback(error: BaseException) -> str:
    """The part of the traceback in the student's own code."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_STUDENTS)
    ]
    shown = frames if len(frames) <= 8 else [*frames[:4], *frames[-4:]]  # an endless recursion is long
    lines = traceback.format_list(shown) + traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip()


def _not_the_outputs(names: tuple[str, ...], returned: Any) -> str:
    """A description of the returned value, if it is not one value for each output."""
    if returned is None:
        return "Your function returned None; is a `return` missing?"
    if len(names) == 1:
        if not isinstance(returned, tuple):
            return ""
        comma = "; is there an extra comma after `return`?" if len(returned) == 1 else ""
        return f"Your function returned a tuple of {len(returned)}; it must return only {names[0]}{comma}"
    wanted = f"the {len(names)} values {', '.join(names)}"
    if isinstance(returned, np.ndarray):
        return f"Your function returned one array of shape {returned.shape}; it must return {wanted}"
    if not isinstance(returned, tuple | list):
        return f"Your function returned one {type(returned).__name__}; it must return {wanted}"
    if len(returned) != len(names):
        values = "1 value" if len(returned) == 1 else f"{len(returned)} values"
        return f"Your function returned {values}; it must return {wanted}"
    return ""


def _as_array(value: Any, to_numpy: Callable[[Any], np.ndarray]) -> np.ndarray | str:
    if value is None:
        return "it is None"
    if isinstance(value, list | tuple):
        return f"it is a {type(value).__name__}; make it an array: np.array(...)"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.array(float(value))
    if isinstance(value, np.ndarray | np.generic):
        array = np.array(value)
        return array.astype(np.float64) if array.dtype.char == "g" else array  # long double is wider, and not portable
    try:
        return np.array(to_numpy(value))  # computed on a GPU
    except TypeError:
        library = type(value).__module__.partition(".")[0]
        if library in _OTHER_LIBRARIES:
            return f"it is a {type(value).__name__} of {library}; the exercises are in NumPy: write all of it with np"
        return f"it is a {type(value).__name__}, but must be an array"


def described(exercise: Exercise, inputs: tuple[Any, ...]) -> str:
    """The inputs of a trial in one line: arrays by their shape, numbers by their value."""
    return ", ".join(_described(name, x) for name, x in zip(exercise.arguments, inputs, strict=True))


def _described(name: str, x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{name} {x.shape}"
    if isinstance(x, dict):
        arrays = {key: value for key, value in x.items() if isinstance(value, np.ndarray)}
        return f"{name} {{{', '.join(_described(key, value) for key, value in arrays.items())}}}" if arrays else name
    return name if callable(x) else f"{name} = {x:.6g}"
