"""No compiled loop reads or writes outside its arrays, whatever it gets: loop_fuzz.py, in a process of its own.

Numba looks at every index only in code that it compiles under NUMBA_BOUNDSCHECK=1. That code is kept in pytest's cache,
since to compile it takes a minute.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def fuzzed(seed: int, draws: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kept = request.config.cache.mkdir("loops-with-bounds-checked")
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(kept)}
    script, noted = Path(__file__).with_name("loop_fuzz.py"), tmp_path / "draws.txt"
    with noted.open("w") as stderr:
        run = [sys.executable, script, str(seed), str(draws)]
        try:
            code = subprocess.run(run, env=environment, stdout=stderr, stderr=stderr, timeout=1800).returncode
        except subprocess.TimeoutExpired:  # after an error in one thread others may wait for it
            code = None
    assert code == 0, f"exit status {code}\n{noted.read_text()[-3000:]}"


@pytest.mark.slow
@pytest.mark.long
def test_no_loop_leaves_its_arrays(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fuzzed(0, 350, request, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_loop_leaves_its_arrays_in_many_draws(seed: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fuzzed(seed, 700, request, tmp_path)
