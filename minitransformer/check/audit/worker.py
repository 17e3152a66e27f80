"""Run a suite with each mistake: `python -m minitransformer.check.audit.worker suite.toml folder seconds`.

The process imports what all runs need and collects the tests of a function once. Then it forks a process for each
mistake; with JAX, one for all mistakes of a function. It writes one line of JSON for each run; what the tests print is
discarded.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from json import dumps  # a suite may replace json.dumps
from pathlib import Path
from typing import Any

import numpy as np

from ..referee.diagnosis import known_mistakes
from ..verify.mistakes import Mistake
from .replacing import CALLS, namespace_of, put_back, replace, shown
from .suite import Function, Suite, read

_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
LATE = "ran out of time"
_TOLD: list[int] = []  # the descriptor of what this process tells
Tell = Callable[[dict[str, Any]], None]
Tests = Callable[[], dict[str, Any]]  # runs the tests, and returns what became of them


def main(path: str, folder: str, limit: float) -> None:
    """Run the tests of every function of the suite, on the right version and on each mistake."""
    suite, root = read(path), Path(folder).resolve()
    os.chdir(root / suite.folder)
    sys.path[:0] = [str(Path.cwd()), *(str((root / part).resolve()) for part in suite.paths)]
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    out, quiet = os.fdopen(os.dup(1), "w"), os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(quiet, 1)
    _TOLD.append(out.fileno())

    def tell(number: int, line: dict[str, Any]) -> None:
        print(dumps({"function": number, **line}), file=out, flush=True)

    try:
        exec(suite.before, {"np": np})
        namespace = namespace_of(suite)
    except Exception as error:
        why = f"the code that runs before the tests stops with {type(error).__name__}: {error}"
        raise SystemExit(why) from error
    os.dup2(quiet, 2)
    for i, function in enumerate(suite.functions):
        if function.tests:
            _audit(suite, function, namespace, limit, functools.partial(tell, i))


def _audit(suite: Suite, function: Function, namespace: dict[str, Any], limit: float, tell: Tell) -> None:
    """Run the tests of one function, on the right version and on each mistake."""
    known = {m.name: m for op in function.ops for m in known_mistakes(op)}
    if not function.replaces:  # our own tests of an op need not find a mistake in another op that it calls
        known = {name: m for name, m in known.items() if m.target.partition(":")[2] in function.ops}
    tests = functools.partial(_tests, function)
    run = functools.partial(_run, suite, function, namespace)
    if not function.optional:
        tell({"known": len(known)})
    right = apart(limit, functools.partial(run, None, tests))
    if right["outcome"] == "passed" and function.replaces and not right["calls"]:
        right["outcome"] = "never called"
    if right["outcome"] in ("failed", LATE):
        right = _by_itself(right, apart(limit, functools.partial(_own, tests)))
    if right["outcome"] != "no tests" or not function.optional:
        tell({"right": right})
    if right["outcome"] != "passed":
        return

    def each_apart(tests: Tests) -> None:
        for mistake in known.values():
            tell(_outcome(function, mistake, apart(limit, functools.partial(run, mistake, tests))))

    # JAX starts threads with its first array, and a fork does not copy threads. So its tests are collected in the
    # process that runs them. It takes long to start, and then compiles: so it takes all mistakes in turn.
    if suite.arrays == "jax" and len(known) > 1:
        names = [*known, ""]  # at last the right version once more: no test may have left something behind

        def some(names: list[str], tell: Tell) -> None:
            def in_order(tests: Tests) -> None:
                for name in names:
                    tell(run(known.get(name), tests))

            _collected(suite, function, namespace, in_order)

        for name, result in zip(names, in_turn(limit, names, some), strict=True):
            if name:
                tell(_outcome(function, known[name], result))
        if result["outcome"] == "passed":
            return
        tell({"again": "a test left something behind, so each mistake gets a process of its own"})
    if suite.arrays == "jax":
        each_apart(tests)
    else:
        _collected(suite, function, namespace, each_apart)


def _outcome(function: Function, mistake: Mistake, result: dict[str, Any]) -> dict[str, Any]:
    """The fields of an Outcome, from what became of the tests."""
    seen = {key: result[key] for key in result.keys() & {"input", "seed", "shows"}}
    verdict, by = "survived", ""
    if result["outcome"] != "passed":
        verdict, by = "caught", result.get("by") or result["outcome"]
    elif result.get("by_design"):
        verdict = "by design"
    elif function.replaces and not seen:  # in our own op every mistake has an effect
        verdict = "no effect"
    return {"mistake": mistake.name, "sentence": mistake.sentence, "verdict": verdict, "by": by, **seen}


def _by_itself(right: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What became of the right version, or of the suite's own function if that fails too, unless nobody wrote it."""
    why = own.get("problem", "")
    if own["outcome"] == "passed" or "NotImplementedError" in why:
        return right
    why = f"{LATE}; --limit gives it more" if own["outcome"] == LATE else why or own["outcome"]
    return {"outcome": "fails by itself", "problem": why}


def _own(tests: Tests) -> dict[str, Any]:
    put_back()
    return tests()


def _run(
    suite: Suite, function: Function, namespace: dict[str, Any], mistake: Mistake | None, tests: Tests
) -> dict[str, Any]:
    """One run of the tests. If they pass despite a mistake, also an input that reveals it."""
    try:
        replace(suite, namespace)
    except (ImportError, AttributeError) as error:
        return {"outcome": "not found", "problem": str(error)}
    if mistake is None:
        return tests() | {"calls": CALLS[function.replaces]}
    with mistake.applied():
        outcome = tests()
    if outcome["outcome"] != "passed" or not function.replaces:
        return outcome
    return outcome | shown(suite, function, namespace, mistake)


class _Counts:
    """A pytest plugin that counts the tests that passed or were skipped, and notes the first that failed, and why."""

    def __init__(self) -> None:
        self.passed, self.skipped, self.failed, self.why = 0, 0, "", ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._note(report)
        self.passed += report.when == "call" and report.passed
        self.skipped += report.skipped

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (str(report.longrepr).rstrip() if crash is None else crash.message).splitlines() or [""]
            self.failed, self.why = report.nodeid, lines[-1 if crash is None else 0].removeprefix("E").strip()[:200]

    def outcome(self, status: int, said: str = "") -> dict[str, Any]:
        """What became of the tests, by the status with which pytest ended and what it said of it."""
        if status == 0 and self.passed:
            return {"outcome": "passed", "tests": self.passed, "skipped": self.skipped}
        first = f"{self.failed}: {self.why}" if self.why else self.failed
        if status == 1:
            return {"outcome": "failed", "by": self.failed, "problem": first}
        words = " ".join(said.split()).removeprefix("ERROR: ")
        problem = first or words or f"pytest ended with status {status}"
        return {"outcome": "no tests" if status in (0, 5) else "error", "problem": problem}


class _Collection:
    """A pytest plugin that calls `ask` when the tests are collected, in the place of running them."""

    def __init__(self, ask: Callable[[Tests], Any]) -> None:
        self.ask, self.complete = ask, False

    def pytest_runtestloop(self, session: Any) -> bool:
        def tests() -> dict[str, Any]:
            counts = _Counts()
            session.config.pluginmanager.register(counts)
            for item, following in itertools.pairwise([*session.items, None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if counts.failed or session.shouldstop:
                    session._setupstate.teardown_exact(None)  # or the next run of the tests finds old fixtures
                    break
            session.config.pluginmanager.unregister(counts)
            return counts.outcome(1 if counts.failed else 0)

        self.complete = True
        self.ask(tests)
        return True


def _collected(suite: Suite, function: Function, namespace: dict[str, Any], ask: Callable[[Tests], Any]) -> None:
    """Call `ask` with the tests, collected once in this process if that is possible."""
    import pytest

    replace(suite, namespace)
    collection = _Collection(ask)
    pytest.main([*_OPTIONS, "--maxfail=0", *function.tests], plugins=[collection])  # or pytest ends after one mistake
    if not collection.complete:
        ask(functools.partial(_tests, function))


def _tests(function: Function) -> dict[str, Any]:
    import pytest

    counts, said = _Counts(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(last := io.StringIO()):
        status = int(pytest.main([*_OPTIONS, *function.tests], plugins=[counts]))
    return counts.outcome(status, said.getvalue() or last.getvalue().rpartition("\n\n")[2])


def apart(limit: float, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of run, in a separate process; "ran out of time" if it takes longer than the limit."""
    return next(told_apart(limit, lambda tell: tell(run())), _died())


def in_turn(limit: float, names: list[str], run: Callable[[list[str], Tell], None]) -> Iterator[dict[str, Any]]:
    """A result for each name, from one process that takes them in turn, and as many more as hang or die.

    run(names, tell) tells one result for each of the names. limit: for each.
    """
    left = list(names)
    while left:
        late = False
        for result in told_apart(limit, functools.partial(run, left)):
            left, late = left[1:], result["outcome"] == LATE
            yield result
        if left and not late:
            left = left[1:]
            yield _died()


def told_apart(limit: float, run: Callable[[Tell], None]) -> Iterator[dict[str, Any]]:
    """What run tells, in a separate process, which ends after the last word, or if one takes longer than the limit."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        os.setsid()
        ours.close()
        for descriptor in _TOLD:  # or what the tests leave running keeps the reader waiting
            os.dup2(0, descriptor)
        with contextlib.suppress(BaseException):
            try:
                run(theirs.send)
            except BaseException:
                theirs.send({"outcome": "error", "problem": traceback.format_exc(limit=-3).strip()})
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    assert process.pid is not None
    theirs.close()
    try:
        while ours.poll(limit):
            yield ours.recv()
        yield {"outcome": LATE}
    except EOFError:  # it has ended
        return
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):  # the child and whatever it started
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()


def _died() -> dict[str, Any]:
    return {"outcome": "error", "problem": "the process died"}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
