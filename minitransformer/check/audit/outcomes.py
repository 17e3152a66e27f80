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
                problem = f": {result.problem.splitlines()[-1]}" if result.problem else ""
                rows.append(f"{start} | no verdict: the right version {_happened(result.right)}{problem} | | |")
                continue
            rows.append(f"{start} | {result.tests} | {len(result.of('caught'))} | {len(result.of('survived'))} |")
        if len(results) > 1:
            tests, caught = sum(r.tests for r in results), sum(len(r.of("caught")) for r in results)
            survived = sum(len(r.of("survived")) for r in results)
            rows.append(f"| {suite.title}{at} | all | {tests} | {caught} | {survived} |")
    told = [_sentences(suite, result) for suite, results in audits for result in results if result.of("survived")]
    return "\n".join([*rows, *told])


def _happened(right: str) -> str:
    return {"failed": "fails", "not found": "was not put in place", "no tests": "ran no test"}.get(right, right)


def _sentences(suite: Suite, result: Result) -> str:
    lines = [f"\n{suite.title}, `{result.function.name}`:\n"]
    return "\n".join([*lines, *(_sentence(outcome) for outcome in result.of("survived"))])


def _sentence(outcome: Outcome) -> str:
    seed = f" with r = np.random.default_rng({outcome.seed})" if "r." in outcome.input else ""
    seen = f" Seen with `{outcome.input}`{seed}: {outcome.shows}." if outcome.input else ""
    return f"- `{outcome.mistake}`: {outcome.sentence}{seen}"


def picture(audits: Audits) -> Figure:
    """A bar for each function: of the mistakes that affect it, how many are caught and how many survive."""
    from matplotlib.figure import Figure

    rows = [
        (f"{suite.title}: {r.function.name}", r) for suite, results in audits for r in results if r.right == "passed"
    ]
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
