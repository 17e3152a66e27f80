"""Functions of JAX as functions of our form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, to_numpy
from ..trace.recorder import Recorder
from ..trace.tracing import is_watched
from ..trace.values import is_array, is_float_array
from ..verify import arguments as given
from ..verify import foreign
from .other_forms import Foreign, Inputs, library, nothing_returned, of_our_form, ran, require_width
from .results import size

_HELD = "which f holds; give it by position, or the module itself"


def from_jax(f: Callable[..., Any], dtype: str = "float64") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), that runs f on jax arrays.

    f: any function of jax arrays that returns one, or several, also with jax.custom_vjp or jax.jit; backward is its
    jax.vjp, and several outputs come back as one long array. Second derivatives are not checked. An argument may be a
    dict, list or other pytree of arrays, as parameters often are. If f is itself a pytree, as a module of Equinox or
    of Flax's nnx, its arrays are checked as parameters; the report names those that f holds elsewhere.

    It runs in float64, which is enabled in JAX for the call. `step` shows the lines of f and of a custom_vjp, except
    those that jax.jit compiles; a check compiles f, unless such a line names a gradient. dtype: "float32", "float16" or
    "bfloat16" for code that takes nothing else; it is then checked as closely as that allows. Raises ImportError
    without jax, and later ValueError or TypeError if f does not run, or returns no array.
    """
    jax = library("jax", "jax")
    if not callable(f):
        raise TypeError(f"from_jax: expected a function, got {f!r}")
    single = dtype != "float64"
    tree = {} if jax.tree_util.all_leaves((f,)) else dict(given.leaves_of("", f))
    learned = {key.lstrip("."): array for key, x in tree.items() if is_float_array(array := foreign.copied_array(x))}

    def to_jax(x: Any) -> Any:
        if not is_array(x):
            return given.fresh(x)  # each run begins with the same state of a generator
        x = np.array(to_numpy(x))
        array = jax.numpy.asarray(x)
        return array.astype(dtype) if single and x.dtype.kind == "f" else array

    def back(x: Any) -> np.ndarray:
        array = np.array(x)  # NumPy widens it: JAX may have no float64 here
        return array.astype(np.float64) if single and jax.numpy.issubdtype(x.dtype, jax.numpy.floating) else array

    def joined(returned: Any) -> Any:
        """The floating-point outputs as one array: the only one as it is, several end to end."""
        leaves = [x for x in jax.tree_util.tree_leaves(returned) if hasattr(x, "dtype")]
        floats = [x for x in leaves if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)]
        if not floats:
            raise nothing_returned(made.__name__, returned)
        made.shapes = [x.shape for x in floats]
        return floats[0] if len(floats) == 1 else jax.numpy.concatenate([x.ravel() for x in floats])

    def call(inputs: tuple[Any, ...], values: dict[str, Array], options: dict[str, Any]) -> Any:
        name, all_inputs = made.__name__, (*inputs, values)
        with _float64(jax, not single):
            arrays = Inputs(inputs, values, to_jax)

            def returned_for(*leaves: Any) -> Any:
                rest, names = iter(leaves), iter(tree)

                def leaf(x: Any) -> Any:
                    return next(rest) if is_float_array(x) else to_jax(x)

                *own, now = [given.with_leaves(x, leaf) for x in all_inputs]
                at_work = given.with_leaves(f, lambda x: now.get(next(names).lstrip("."), x)) if learned else f
                return at_work(*own, **{key: given.with_leaves(x, to_jax) for key, x in options.items()})

            def of_leaves(*leaves: Any) -> Any:
                return joined(returned_for(*leaves))

            def pulled(dy: Any, *leaves: Any) -> Any:
                again, pull = ran(name, "the forward pass of its vjp", lambda: jax.vjp(of_leaves, *leaves))
                if again.shape != dy.shape:
                    how = f"even its shape changes, from {dy.shape} to {again.shape}"
                    raise ValueError(f"{name} gives a different output each time it runs; {how}")
                return again, ran(name, "backward", lambda: pull(dy.astype(again.dtype)))

            fast, fast_pulled = compiled.of(of_leaves, pulled, arrays.leaves, all_inputs, options)
            slow = fast is of_leaves
            watched = ran(name, "forward", lambda: returned_for(*arrays.leaves)) if slow or is_watched() else None
            y = back(joined(watched) if slow else fast(*arrays.leaves))
        require_width(name, y, all_inputs, single, "from_jax")

        def backward(dy: Array) -> Any:
            with _float64(jax, not single):
                dy = to_jax(dy)
                if is_watched() and fast_pulled is not pulled:
                    pulled(dy, *arrays.leaves)
                again, grads = fast_pulled(dy, *arrays.leaves)
                if not _alike(back(again), y, dtype) and _alike(back(of_leaves(*arrays.leaves)), y, dtype):
                    raise ValueError(
                        f"{name}: the forward pass of its custom_vjp returns another output than the function"
                    )
            return arrays.gradients(map(back, grads))

        return y, backward

    made: Any = Foreign(f, f, call, dtype, learned) if learned else of_our_form(f, call, dtype)
    compiled = _Compiled(jax, made)
    made.at_work = compiled.where_nothing_is_named
    return made


class _Compiled:
    """A function of JAX and its vjp, compiled for each kind of arguments: an op that runs alone may compile each time.

    kept: None where they run as they are, so that their lines are seen.
    """

    def __init__(self, jax: Any, made: Any) -> None:
        self._jax, self._made = jax, made
        self._kept: dict[Any, Any] | None = None
        self._last: tuple[Callable[..., Any], list[Any]] = (lambda: None), []

    def of(self, run: Any, pulled: Any, leaves: list[Any], inputs: Any, options: Any) -> tuple[Any, Any]:
        """Both functions of floating-point leaves, compiled if they are to be. inputs, options: all of f's."""
        self._last = run, leaves
        if self._kept is None:
            return run, pulled
        try:
            kind = tuple(_kind(x) for _, x in given.leaves_of("", [np.empty(0), *inputs, options]))
            fast, fast_pulled = self._kept.setdefault(kind, (self._jax.jit(run), self._jax.jit(pulled)))
        except TypeError:  # an argument that cannot be told from others
            return run, pulled
        return self._or_else(fast, run), self._or_else(fast_pulled, pulled)

    def _or_else(self, fast: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*leaves: Any) -> Any:
            try:
                return fast(*leaves)
            except Exception:  # as where a number decides what comes next
                self._kept = None
                return plain(*leaves)

        return attempt

    def where_nothing_is_named(self, inputs: list[Any], options: dict[str, Any]) -> None:
        """Compile from now on, if no line of f binds the gradient of a name, and f returns the same when compiled."""
        self._kept, recorder = None, Recorder(self._made)
        with contextlib.suppress(Exception), np.errstate(all="ignore"):  # if it does not run, the check says why
            with recorder:
                y, pull = self._made(*inputs, **options)
            with _float64(self._jax, self._made.precision == "float64"):
                found = _held(self._jax, self._jax.make_jaxpr(self._last[0])(*self._last[1]))
            self._made.left_out = {f"an array of shape {x.shape}": _HELD for x in found}
            dy, recorder.in_forward = np.random.default_rng(0).normal(size=y.shape), False
            with recorder:
                dx = pull(dy)
            if recorder.pairs():
                return
            self._kept = {}
            again, pull = self._made(*inputs, **options)
            pairs = zip(given.float_leaves([y, dx]), given.float_leaves([again, pull(dy)]), strict=True)
            if not all(_alike(one, other, self._made.precision) for one, other in pairs):
                self._kept = None


def _held(jax: Any, program: Any) -> Iterator[Any]:
    """The floating-point arrays of JAX that a program holds, as one does that closes over its parameters."""
    yield from (
        x
        for x in program.consts
        if isinstance(x, jax.Array) and x.ndim and jax.numpy.issubdtype(x.dtype, jax.numpy.floating)
    )
    for step in program.eqns:
        for part in step.params.values():
            yield from _held(jax, part) if hasattr(part, "consts") and hasattr(part, "eqns") else ()


def _kind(x: Any) -> Any:
    """What a compiled function depends on: the form of a floating-point array, and all of any other value."""
    if isinstance(x, np.random.Generator):
        raise TypeError
    if not is_array(x):
        hash(x)
        return type(x), x
    return x.shape, str(x.dtype), b"" if is_float_array(x) else to_numpy(x).tobytes()


def _alike(one: np.ndarray, other: np.ndarray, dtype: str) -> bool:
    rtol = max(1e-5, foreign.least_rtol(foreign.eps_of(None, dtype)))  # two formulas of one number round differently
    return one.shape == other.shape and np.allclose(one, other, rtol, 0.1 * rtol * size(other), equal_nan=True)


def _float64(jax: Any, wide: bool) -> contextlib.AbstractContextManager[Any]:
    """Inside this context JAX computes in float64 if its arrays are float64, or has no such numbers."""
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    context: contextlib.AbstractContextManager[Any] = enable(wide)
    return context
