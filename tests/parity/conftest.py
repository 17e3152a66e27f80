"""Parity with PyTorch: one way to compare, and a summary of the worst difference of each subject after the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minitransformer.fast import accelerate

TOLERANCE = 1e-9

_worst = pytest.StashKey[dict[str, tuple[float, int]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_worst] = {}


@pytest.fixture(params=[False, True], ids=["as written", "fast"])
def form(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """What a module or an optimiser is compared as: as it is, and as its fast twin."""
    return accelerate if request.param else lambda original: original


@pytest.fixture
def agree(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """agree(subject, what, ours, theirs): both float64, one shape, all finite, and at most 1e-9 apart anywhere."""
    worst = request.config.stash[_worst]

    def agree(subject: str, what: str, ours: Any, theirs: Any) -> None:
        ours = np.asarray(ours)
        theirs = np.asarray(theirs.detach() if hasattr(theirs, "detach") else theirs)
        assert ours.dtype == theirs.dtype == np.float64, f"{subject}: {what} is {ours.dtype}, PyTorch's {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{subject}: {what} has shape {ours.shape}, PyTorch's {theirs.shape}"
        assert np.isfinite(ours).all() and np.isfinite(theirs).all(), f"{subject}: {what} is not finite"
        difference = float(np.abs(ours - theirs).max())
        before, count = worst.get(subject, (0.0, 0))
        worst[subject] = (max(before, difference), count + 1)
        record_property(f"{subject}: {what}", difference)
        assert difference <= TOLERANCE, f"{subject}: {what} differs from PyTorch's by {difference:.3e}"

    return agree


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    worst = config.stash[_worst]
    if worst:
        terminalreporter.section(f"parity with PyTorch: worst absolute difference in float64 (at most {TOLERANCE:.0e})")
        for subject, (difference, count) in sorted(worst.items()):
            terminalreporter.write_line(f"{subject:32} {difference:9.2e}   {count:4} arrays")
