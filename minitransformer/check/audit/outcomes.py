"""The outcome of audits as a table, as sentences and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .running import Outcome, Result
from .suite import Suite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Audits = list[tuple[Suite, list[Result]]]
COLOURS = {"caught": "#2a7f62", "survived": "#c8553d"}


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
