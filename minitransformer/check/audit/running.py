"""Run the worker for a suite, collect its results, and show them as a table, as sentences and as a picture."""

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
from typing import TYPE_CHECKING, Any

from .suite import Function, Suite, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"caught": "#2a7f62", "survived": "#c8553d"}


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
    where = [str(Path(each).resolve()) for each in (path, folder)]
    command = [sys.executable, "-m", f"{__package__}.worker", *where, str(limit)]
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdin=nothing, stdout=pipe, stderr=pipe, text=True) as worker:
        assert worker.stdout and worker.stderr
        try:
            for line in worker.stdout:
                _note(results, json.loads(line), progress)
        except (ValueError, LookupError, TypeError):  # a test wrote in the worker's place
            worker.kill()
        except BaseException:
            worker.kill()
            raise
        said = worker.stderr.read().strip()
    if worker.returncode:
        for result in results:
            if result.right == "not run" or (result.right == "passed" and len(result.outcomes) < result.known):
                result.right, result.problem = "error", said.splitlines()[-1] if said else "the worker stopped"
    return suite, [r for r in results if r.function.tests and not (r.function.optional and r.right == "not run")]


def _note(results: list[Result], line: dict[str, Any], progress: Callable[[str], None]) -> None:
    """Write a line of the worker into the result of its function, and say so."""
    result = results[line.pop("function")]
    match line:
        case {"known": known}:
            result.known, said = known, f"{known} known mistakes"
        case {"right": right}:
            result.right, result.problem = right["outcome"], right.get("problem", "")
            result.tests, result.skipped, result.calls = (right.get(key, 0) for key in ("tests", "skipped", "calls"))
            said = f"right version: {result.right}"
        case {"again": why}:
            result.outcomes.clear()
            said = f"once more: {why}"
        case _:
            result.outcomes.append(outcome := Outcome(**line))
            said = f"{len(result.outcomes)} of {result.known}: {outcome.mistake}: {outcome.verdict}"
    progress(f"{result.function.name}: {said}")


Audits = list[tuple[Suite, list[Result]]]


def table(audits: Audits) -> str:
    """A Markdown table with a row for each function and one for the whole suite; below it, a sentence per survivor."""
    rows = ["| suite | function | tests | caught | survived |", "| --- | --- | --- | --- | --- |"]
    for suite, results in audits:
        at = f" at {suite.commit[:10]}" if suite.commit else ""
        for result in results:
            start = f"| {suite.title}{at} | `{result.function.name}` ({', '.join(result.function.ops)})"
            if result.right != "passed":
                rows.append(f"{start} | no verdict: {_happened(result)} | | |")
                continue
            found = f"{len(result.of('caught'))} | {len(result.of('survived'))}"
            tests = f"{result.tests} ({result.skipped} skipped)" if result.skipped else result.tests
            rows.append(f"{start} | {tests} | {found if _asked(result) else 'nothing was asked |'} |")
        asked = [result for result in results if result.right == "passed" and _asked(result)]
        if len(asked) > 1:
            name = "all" if len(asked) == len(results) else "all that were asked"
            tests, caught = sum(r.tests for r in asked), sum(len(r.of("caught")) for r in asked)
            survived = sum(len(r.of("survived")) for r in asked)
            rows.append(f"| {suite.title}{at} | {name} | {tests} | {caught} | {survived} |")
    for suite, result in [(suite, result) for suite, results in audits for result in results]:
        name, passes = f"\n{suite.title}, `{result.function.name}`:", result.of("survived", "by design")
        rows += [f"{name}\n", *map(_sentence, passes)] if passes else []
        if result.right == "passed" and not _asked(result):
            ops = ", ".join(result.function.ops)
            rows += [f"{name} nothing was asked: no mistake of {ops} shows here. That says nothing about the tests."]
    return "\n".join(rows)


def _happened(result: Result) -> str:
    problem = f": {result.problem.splitlines()[-1]}" if result.problem else ""
    if result.right == "fails by itself":
        return f"the suite fails by itself, without our code{problem}"
    words = {"failed": "fails", "not found": "was not put in place", "no tests": "ran no test", "error": "does not run"}
    words["never called"] = "passes, but the tests never call it"
    return f"the right version {words.get(result.right, result.right)}{problem}"


def _asked(result: Result) -> bool:
    """Whether any mistake could show."""
    return any(outcome.verdict != "no effect" for outcome in result.outcomes)


def _sentence(outcome: Outcome) -> str:
    seed = f" with r = np.random.default_rng({outcome.seed})" if "r." in outcome.input else ""
    seen = f" Seen with `{outcome.input}`{seed}: {outcome.shows}." if outcome.input else ""
    design = " It is no survivor: the suite's own function does the same." if outcome.verdict == "by design" else ""
    return f"- `{outcome.mistake}`: {outcome.sentence}{seen}{design}"


def picture(audits: Audits) -> Figure:
    """A bar for each function: of the mistakes that affect it, how many are caught and how many survive."""
    from matplotlib.figure import Figure

    rows = [(f"{suite.title}: {r.function.name}", r) for suite, results in audits for r in results if _asked(r)]
    figure = Figure(figsize=(9.0, 1.2 + 0.3 * max(len(rows), 1)), layout="constrained")
    axes = figure.subplots()
    ends = [0] * len(rows)
    for verdict, colour in COLOURS.items():
        sizes = [len(result.of(verdict)) for _, result in rows]
        bars = axes.barh(range(len(rows)), sizes, left=ends, color=colour, label=verdict)
        axes.bar_label(bars, [str(n) if n else "" for n in sizes], label_type="center", color="white", fontsize=8)
        ends = [end + n for end, n in zip(ends, sizes, strict=True)]
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("known mistakes in the function's place")
    axes.legend(loc="lower right")
    return figure
