"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """Return once the condition holds; a time that a busy machine does not need is an error."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"it does not hold after {seconds:.0f} s"
        time.sleep(0.01)
