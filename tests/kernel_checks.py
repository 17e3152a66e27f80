"""What tests of kernels share: arrays, layers with ordinary weights, bounds on rounding, and which threads compute."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

from minitransformer.run.fast import accelerate, phases


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng((seed, *shape)).normal(size=shape)


def heads(batch: int, length: int, n_heads: int, width: int, seed: int = 0) -> np.ndarray:
    """As split_heads makes them: a view."""
    return random(batch, length, n_heads * width, seed=seed).reshape(batch, length, n_heads, width).swapaxes(1, 2)


def twin_of(layer: Any) -> Any:
    """The fast twin of a layer that gets biases that are not zero, gains that differ, and ordinary weights."""
    rng = np.random.default_rng(1)
    for _, parameter in layer.parameters():
        parameter.value[...] = 0.5 * rng.normal(size=parameter.value.shape)
    return accelerate(layer)


def require_equal(found: Iterable[Any], expected: Iterable[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def require_close(found: Iterable[Any], expected: Iterable[Any], rtol: float, atol: float) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def require_rounded_alike(found: Any, rounded: Any, exact: Any, times: float = 2.0, ulps: float = 4.0) -> None:
    """The error of each array is a few times that of the textbook's float32, or a few units of its largest number."""
    for i, (ours, textbooks, right) in enumerate(zip(found, rounded, exact, strict=True)):
        ulp = np.finfo(np.float32).eps * float(np.abs(right).max())
        error, of_textbook = (float(np.abs(x - right).max()) for x in (ours, textbooks))
        assert error <= times * of_textbook + ulps * ulp, i


def entered(patch: pytest.MonkeyPatch, module: Any, name: str, expected: int) -> set[int]:
    """The threads that enter a loop; each waits until so many have, so that none does it all before another begins."""
    loop, used, all_of_them = getattr(module, name), set(), threading.Barrier(expected)

    def noted(*arrays: Any) -> None:
        used.add(threading.get_ident())
        all_of_them.wait(30.0)
        loop(*arrays)

    patch.setattr(module, name, noted)
    return used


def require_that_it_waits(call: Callable[[], Any], begun: threading.Event, held: Any, phase: int) -> None:
    """A call whose counters are `held`, where somebody has taken a part of this phase and is slow, begins no other."""
    caller = threading.Thread(target=call)
    with np.errstate(all="ignore"):
        caller.start()
        assert begun.wait(60.0)
        wait_until(lambda: all(held[:: 2 * phases.LINE][: phase + 1]))  # the first time it compiles the loop
        caller.join(0.2)
        taken = held[:: 2 * phases.LINE].tolist()
        assert caller.is_alive()
        assert all(taken[: phase + 1])
        assert not any(taken[phase + 1 :])
        phases.done(held, phase)
        caller.join(600.0)
    assert not caller.is_alive()
