"""Start the worker for a suite, and collect its results."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .suite import Function, Suite, read


@dataclass(frozen=True)
class Outcome:
    """The verdict on one mistake: "caught" or "survived"; "by design" if it survives, and the suite's own function does
    the same; "no effect" where it changes nothing in this function.

    by: the test that failed, or what stopped. input, seed, shows: what passes at an input that reveals it, and how.
    """

    mistake: str
    sentence: str
    verdict: str
    by: str = ""
    input: str = ""
    seed: int = 0
    shows: str = ""


@dataclass
class Result:
    """One function of a suite: whether the tests accept the right version, and their verdict on each mistake."""

    function: Function
    right: str = "not run"  # "passed", or what happened instead
    problem: str = ""
    tests: int = 0
    skipped: int = 0
    calls: int = 0  # of our ops, where they replace a function of the suite
    known: int = 0  # mistakes
    outcomes: list[Outcome] = field(default_factory=list)

    def of(self, *verdicts: str) -> list[Outcome]:
        """The outcomes with these verdicts."""
        return [outcome for verdict in verdicts for outcome in self.outcomes if outcome.verdict == verdict]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self) | {"function": self.function.name, "ops": self.function.ops}


def audit(
    path: str | Path, folder: str | Path, limit: float = 60.0, progress: Callable[[str], None] = lambda line: None
) -> tuple[Suite, list[Result]]:
    """Run the suite that a TOML file describes, in its folder, with every known mistake of its ops.

    limit: seconds that one run of the tests may take. progress is called before the first run of a function and after
    each. Raises ValueError for a file or folder that cannot be used, and ImportError without the library of its arrays.
    The result says if a suite fails on the right version or by itself, hangs, never calls the function, or has none.
    """
    suite = read(path)
    if importlib.util.find_spec(suite.arrays) is None:
        raise ImportError(
            f'audit: {path} says arrays = "{suite.arrays}", and {suite.arrays} is not installed: '
            f'pip install "minitransformer[{suite.arrays}]"'
        )
    if not Path(folder, suite.folder).is_dir():
        raise ValueError(
            f"audit: there is no folder {Path(folder, suite.folder)}; fetch {suite.repository or 'it'} first"
        )
    if not hasattr(os, "fork"):
        raise ValueError("audit: each run needs a forked process, but this system cannot fork")
    results = [Result(function) for function in suite.functions]
    read_end, write_end = os.pipe()
    where = [str(Path(each).resolve()) for each in (path, folder)]
    command = [sys.executable, "-m", f"{__package__}.worker", *where, str(limit)]
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"AUDIT_OUT": str(write_end), "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    with subprocess.Popen(
        command, pass_fds=[write_end], env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as worker:
        os.close(write_end)
        try:
            with os.fdopen(read_end) as lines:
                for line in lines:
                    _note(results, json.loads(line), progress)
        except BaseException:
            worker.kill()
            raise
        said = (worker.stderr.read() if worker.stderr else "").strip()
    if worker.returncode:
        for result in results:
            if result.right == "not run":
                result.right, result.problem = "error", said.splitlines()[-1] if said else "the worker stopped"
    return suite, [r for r in results if r.function.tests and not (r.function.optional and r.right == "not run")]


def _note(results: list[Result], line: dict[str, Any], progress: Callable[[str], None]) -> None:
    result = results[line["function"]]
    name = result.function.name
    if "known" in line:
        result.known = line["known"]
        progress(f"{name}: {result.known} known mistakes")
        return
    if "right" in line:
        right = line["right"]
        result.right, result.problem = right["outcome"], right.get("problem", "")
        result.tests, result.skipped, result.calls = (right.get(key, 0) for key in ("tests", "skipped", "calls"))
        progress(f"{name}: right version: {result.right}")
        return
    if "again" in line:
        result.outcomes.clear()
        progress(f"{name}: once more: {line['again']}")
        return
    passed = line["outcome"] == "passed"
    shown = line.get("input") or not result.function.replaces  # in our own op every mistake has an effect
    verdict = "caught" if not passed else "no effect" if not shown else "survived"
    verdict = "by design" if line.get("by_design") else verdict
    by = "" if passed else line.get("by") or line["outcome"]
    seen = (line.get("input", ""), line.get("seed", 0), line.get("shows", ""))
    outcome = Outcome(line["mistake"], line["sentence"], verdict, by, *seen)
    result.outcomes.append(outcome)
    progress(f"{name}: {len(result.outcomes)} of {result.known}: {outcome.mistake}: {verdict}")
