"""Parity with PyTorch: one way to compare, and a summary of the worst difference of each subject after the run."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from minitransformer.fast import accelerate
from minitransformer.models import from_pretrained

TOLERANCE = 1e-9
os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # read when it is imported
torch.set_num_threads(1)  # as many processes run the tests as there are cores; more threads would wait for each other


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a pair runs for each of the CASES of its file; with few(named=...) the others are a sweep."""
    cases = getattr(metafunc.module, "CASES", None)
    if "pair" in metafunc.fixturenames and cases:
        few = metafunc.definition.get_closest_marker("few")
        named = {case.name for case in cases if few and few.kwargs.get("named", "") in case.name}
        given = [
            pytest.param(case, marks=pytest.mark.sweep) if named and case.name not in named else case for case in cases
        ]
        metafunc.parametrize("pair", given, ids=[case.name for case in cases], indirect=True, scope="module")


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """A case, a model of theirs with random weights, and what we open of the folder that they wrote."""
    case, folder = request.param, tmp_path_factory.mktemp("theirs")
    theirs = request.module.theirs_of(case)
    theirs.save_pretrained(folder)
    return case, theirs, from_pretrained(folder)


@pytest.fixture(params=[False, True], ids=["as written", "fast"])
def form(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """What a module or an optimiser is compared as: as it is, and as its fast twin."""
    return accelerate if request.param else lambda original: original


@pytest.fixture
def agree(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """agree(subject, what, ours, theirs): both float64, one shape, all finite, and at most 1e-9 apart anywhere."""

    def agree(subject: str, what: str, ours: Any, theirs: Any) -> None:
        ours = np.asarray(ours)
        theirs = np.asarray(theirs.detach() if hasattr(theirs, "detach") else theirs)
        assert ours.dtype == theirs.dtype == np.float64, f"{subject}: {what} is {ours.dtype}, PyTorch's {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{subject}: {what} has shape {ours.shape}, PyTorch's {theirs.shape}"
        assert np.isfinite(ours).all() and np.isfinite(theirs).all(), f"{subject}: {what} is not finite"
        difference = float(np.abs(ours - theirs).max())
        record_property("difference", (subject, what, difference))
        assert difference <= TOLERANCE, f"{subject}: {what} differs from PyTorch's by {difference:.3e}"

    return agree


def pytest_terminal_summary(terminalreporter: Any) -> None:
    # The properties of the reports, not a list of our own: several processes run the tests.
    found: dict[str, list[float]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for subject, _, difference in (value for name, value in report.user_properties if name == "difference"):
            found.setdefault(subject, []).append(difference)
    if found:
        terminalreporter.section(f"parity with PyTorch: worst absolute difference in float64 (at most {TOLERANCE:.0e})")
        for subject, differences in sorted(found.items()):
            terminalreporter.write_line(f"{subject:32} {max(differences):9.2e}   {len(differences):4} arrays")
