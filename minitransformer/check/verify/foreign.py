"""What the checker does differently for functions that others wrote: see check/referee/other_forms.py."""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..trace.values import as_array, host_copy, is_float_array, same_numbers
from . import arguments as given
from .slopes import COARSE


class _Closeness(NamedTuple):
    """How a dtype rounds, a step that rounds little in it, and the accuracy that differences then have."""

    eps: float
    step: float
    rtol: float


_CLOSENESS = {
    "float32": _Closeness(2.0**-23, 1e-2, 0.01),
    "float16": _Closeness(2.0**-10, 2.0**-4, 0.05),
    "bfloat16": _Closeness(2.0**-7, 2.0**-3, 0.1),
}


def copied_array(x: Any) -> Any:
    """The numbers of a tensor of PyTorch or of an array of JAX as an array of NumPy; any other value unchanged."""
    array = as_array(x)
    if array is x:
        return x
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array.copy()


def arrays_for(f: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with NumPy's arrays in place of tensors. Raises TypeError if no adapter has made f one of ours."""
    leaves = [leaf for x in inputs for _, leaf in given.leaves_of("", x)]
    if any(getattr(leaf, "is_meta", False) for leaf in leaves):
        raise ValueError(f"verify: {given.name_of(f)} is given a tensor on the device meta, which has no numbers")
    other = next((leaf for leaf in leaves if copied_array(leaf) is not leaf), None)
    if other is not None and not is_separate(f):
        adapter = "from_torch" if type(other).__module__.startswith("torch") else "from_jax"
        raise TypeError(f"verify: {given.name_of(f)} is given a {type(other).__name__}; wrap it: verify.{adapter}(f)")
    return tuple(given.with_leaves(x, copied_array) for x in inputs)


def trait(f: Any, name: str, otherwise: Any) -> Any:
    """What an adapter notes of the function that it has made: see check/referee/other_forms.py.

    precision: the dtype in which f computes, whatever it is given; at_work(inputs, options): lets it see f run once, to
    find its gradients; found: where; held: numbers that a module computes with and does not learn; left_out: what it
    did not check, and why; stopped: a sentence, if f keeps gradients from flowing back; as_given: how it runs in the 16
    bits of the caller's arrays.
    """
    return getattr(given.inside_partial(f), name, otherwise) if is_separate(f) else otherwise


def is_separate(f: Any) -> bool:
    """Whether an adapter made f of a function of others."""
    return bool(getattr(given.inside_partial(f), "separate", False))


def precision_of(f: Any) -> str:
    """The dtype in which f computes: float64, float32, float16 or bfloat16."""
    return str(trait(f, "precision", "float64"))


def eps_of(f: Any, dtype: str = "") -> float:
    """How this dtype rounds, or that in which f computes."""
    closeness = _CLOSENESS.get(dtype or precision_of(f))
    return closeness.eps if closeness else float(np.finfo(np.float64).eps)


def rounded_like(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function that rounds numbers to those of a dtype, and leaves them what they are."""
    scale = 2.0 / _CLOSENESS[dtype].eps

    def rounded(x: np.ndarray) -> np.ndarray:
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.round(mantissa * scale) / scale, exponent)

    return rounded


def least_rtol(eps: float) -> float:
    """How far apart two results may be and still count as equal, if f rounds by eps: 0.001 in float32."""
    return 3.0 * math.sqrt(eps) if eps > COARSE else 0.0


def as_close_as_it_computes(f: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, coarser where f computes in less than float64."""
    closeness = _CLOSENESS.get(precision_of(f))
    if closeness is None:
        return settings
    step, rtol = max(settings["step"], closeness.step), max(settings["rtol"], closeness.rtol)
    return settings | {"step": step, "rtol": rtol, "eps": closeness.eps}


def how_close(f: Any, precision: float) -> str:
    """What the check cannot see, because of how f rounds, relative to its output; "" if it computes in float64."""
    closeness = _CLOSENESS.get(precision_of(f))
    if closeness:
        return f"It computes in {precision_of(f)}: errors below {closeness.rtol:.0%} of a gradient are not seen."
    if precision <= COARSE:
        return ""
    inside = ", as code that computes in float32 inside does" if precision > 1e-9 else ""
    close = f"errors below {min(1e3 * precision, 0.1):.1g} of a gradient are not seen"
    return f"It rounds by about {precision:.0e} of its output{inside}: {close}."


def why_unsteady(name: str, run: Callable[[], np.ndarray]) -> str:
    """Why a function gives a different output each time it runs, and what to do."""
    start = f"{name} gives a different output each time it runs, so its differences mean nothing; "
    first, second = run(), run()
    if first.shape != second.shape:
        return f"{start}even its shape changes, from {first.shape} to {second.shape}"
    if _is_random(run):
        return (
            f"{start}it draws random numbers of its own: pass its random generator as an argument, so that every run "
            "starts from the same state, or switch them off, as module.eval() does with dropout; if it draws its "
            "parameters when it is first called, call it once before"
        )
    return (
        f"{start}it keeps state from run to run, as a generator does: pass its random generator as an argument, "
        "or its other state, so that every run starts from the same"
    )


def why_unlike(run: Callable[[], list[tuple[str, Any]]]) -> str:
    """Why a backward gives another gradient when it is called again, and what to do. run: its gradients, with names."""

    def joined() -> np.ndarray:
        with np.errstate(all="ignore"):  # what a backward keeps may grow from call to call
            return np.concatenate([np.ravel(host_copy(x)) for _, x in run() if is_float_array(x)])

    if _is_random(joined):
        why = "it draws random numbers of its own: draw them in forward, and keep them"
    else:
        why = "it keeps state from call to call, as a generator does: it may only read what forward kept"
    return f"backward gives a different gradient when called again; {why}"


def _is_random(run: Callable[[], np.ndarray]) -> bool:
    """Whether results depend on the state of random generators alone: the global ones, and new ones without a seed.

    Seeds 0, 1, 1, 0 tell random numbers from a state that alternates, or changes only once.
    """
    a, b, c, d = (_seeded(run, seed) for seed in (0, 1, 1, 0))
    return bool(same_numbers(a, d) and same_numbers(b, c) and not same_numbers(a, b))


def _seeded(run: Callable[[], np.ndarray], seed: int) -> np.ndarray:
    """The result of one run in which random generators start from this seed; afterwards they are restored."""
    torch: Any = sys.modules.get("torch")
    new: Any = np.random.bit_generator  # its randbits, if this NumPy has it, seeds the generators that are given none
    numbers, own, randbits = np.random.get_state(), random.getstate(), getattr(new, "randbits", None)  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    new.randbits = lambda bits: seed
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())) if torch else contextlib.nullcontext():
            if torch:
                torch.manual_seed(seed)
            return host_copy(run())
    finally:
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(own)
        new.randbits = randbits
