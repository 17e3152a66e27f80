"""What holds for all tests: one BLAS thread, and which cases are quick.

The matrices of the tests are small, and threads of OpenBLAS that wait for each other spin: on a machine that is busy
with other things as well, two of them made the training of the demo five times slower than one. OpenBLAS reads the
variable when NumPy is imported, so it is set here, before any test module is. Runs whose bits are compared begin with
compiled loops.
"""

import gc
import os
from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MINITRANSFORMER_COMPILE", "first")
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of a test with `in_one` (tiers.py) are one item, unless the command line names one of them."""
    cases = getattr(metafunc.function, "cases", None)
    if cases is not None:
        named = any(f"::{metafunc.function.__name__}[" in argument for argument in metafunc.config.args)
        metafunc.parametrize("case", list(cases) if named else ["all"], ids=list(cases) if named else ["all"])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """run(*arguments, status=0) -> what a command printed on stdout, or the one line of its complaint."""

    def run(*arguments: object, status: int = 0) -> str:
        from minitransformer.cli import main

        assert main([str(argument) for argument in arguments]) == status
        out, err = capsys.readouterr()
        if status:
            assert err.startswith("minitransformer: error: ") and err.count("\n") == 1
        return err if status else out

    return run


def pytest_collection_finish() -> None:
    """What is collected lives as long as the run, so the garbage collector need not look at it again and again."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked few(n, slow=m) that are neither slow nor a sweep, n, spread evenly, stay so; of the
    others m become slow, or all of them, and the rest a sweep. The long tests come first, so that none runs alone in
    the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    cases = defaultdict(list)
    for item in items:
        rest = item.get_closest_marker("slow") or item.get_closest_marker("sweep")
        if item.get_closest_marker("few") and not rest:
            cases[item.nodeid.partition("[")[0]].append(item)
    for same in cases.values():
        few = same[0].get_closest_marker("few")
        quick = _spread(few.args[0], len(same))
        others = [item for i, item in enumerate(same) if i not in quick]
        slow = _spread(few.kwargs.get("slow", len(others)), len(others))
        for i, item in enumerate(others):
            item.add_marker(pytest.mark.slow if i in slow else pytest.mark.sweep)


def _spread(n: int, of: int) -> set[int]:
    """n indices below `of`, spread evenly."""
    return {i * of // n for i in range(n)}
