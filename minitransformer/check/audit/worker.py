"""Run a suite with each mistake: `python -m minitransformer.check.audit.worker suite.toml folder seconds`.

The process imports what all runs need, collects the tests of a function once, and then forks one process for each
mistake, with a time limit. It writes one line of JSON for each run to the file descriptor that AUDIT_OUT names; the
output of the tests is discarded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..referee.diagnosis import known_mistakes
from ..verify.catalogue import known_ops
from ..verify.mistakes import Mistake
from .suite import Function, Suite, read

DRAWS = 20
_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
Tell = Callable[[dict[str, Any]], None]
Tests = Callable[[], dict[str, Any]]  # runs the tests, and returns what became of them


def main(path: str, folder: str, limit: float) -> None:
    """Run the tests of every function of the suite, on the right version and on each mistake."""
    suite = read(path)
    os.chdir(Path(folder) / suite.folder)
    sys.path[:0] = [str(Path.cwd()), *(str(Path(folder, part).resolve()) for part in suite.paths)]
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with os.fdopen(int(os.environ["AUDIT_OUT"]), "w") as out:
        aloud = os.fdopen(os.dup(2), "w")
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.dup2(quiet, 0)

        def tell(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=out, flush=True)

        try:
            exec(suite.before, {"np": np})
            namespace = _namespace(suite)
        except Exception as error:
            print(f"the code that runs before the tests stops with {type(error).__name__}: {error}", file=aloud)
            raise SystemExit(1) from error
        for i, function in enumerate(suite.functions):
            if not function.tests:
                continue
            tests = functools.partial(_tests, function)
            right = _apart(limit, functools.partial(_run, suite, function, namespace, None, tests))
            known = list({m.name: m for op in function.ops for m in known_mistakes(op)}.values())
            if not function.replaces:  # our own tests of an op need not find a mistake in another op that it calls
                known = [m for m in known if m.target.partition(":")[2] in function.ops]
            if right["outcome"] != "no tests" or not function.optional:
                tell({"function": i, "right": right, "known": len(known)})
            if right["outcome"] != "passed":
                continue

            def ask(tests: Tests, i: int = i, function: Function = function, known: list[Mistake] = known) -> None:
                for mistake in known:
                    result = _apart(limit, functools.partial(_run, suite, function, namespace, mistake, tests))
                    tell({"function": i, "mistake": mistake.name, "sentence": mistake.sentence, **result})

            # JAX starts threads with its first array, and a fork does not copy threads. So its tests are not collected
            # here, but in the process of each mistake.
            if suite.arrays == "jax" or not _collected(suite, function, namespace, ask):
                ask(tests)


def _namespace(suite: Suite) -> dict[str, Any]:
    """The names that `call` can use."""
    more: dict[str, Any] = {"np": np, "ops": types.SimpleNamespace(**known_ops())}
    if suite.arrays == "torch":
        import torch

        torch.set_num_threads(1)
        more["torch"] = torch
    if suite.arrays == "jax":
        import jax

        more |= {"jax": jax, "jnp": jax.numpy}
    adapted = (lambda op: op) if suite.arrays == "numpy" else _library(suite.arrays).adapted
    return {name: adapted(f) for name, f in known_ops().items()} | more


def _library(arrays: str) -> Any:
    """The file that knows this library's arrays."""
    from . import jax_arrays, tensors

    return {"torch": tensors, "jax": jax_arrays}[arrays]


def _apart(limit: float, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of run, in a separate process; "ran out of time" if it takes longer than the limit."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read_end)
        try:
            result = run()
        except BaseException:
            result = {"outcome": "error", "problem": traceback.format_exc(limit=-3).strip()}
        with contextlib.suppress(BaseException), os.fdopen(write_end, "w") as out:
            json.dump(result, out)
        os._exit(0)
    os.close(write_end)
    os.set_blocking(read_end, False)
    end, text = time.monotonic() + limit, b""
    while time.monotonic() < end:
        try:
            part = os.read(read_end, 1 << 16)
        except BlockingIOError:
            time.sleep(0.005)
            continue
        if not part:
            break
        text += part
    os.close(read_end)
    with contextlib.suppress(ProcessLookupError):  # the child and whatever it started
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if time.monotonic() >= end:
        return {"outcome": "ran out of time"}
    return json.loads(text) if text else {"outcome": "error", "problem": "the process died"}


def _run(
    suite: Suite, function: Function, namespace: dict[str, Any], mistake: Mistake | None, tests: Tests
) -> dict[str, Any]:
    """One run of the tests. If they pass despite a mistake, also an input that reveals it."""
    if mistake is None or suite.arrays == "jax":
        try:
            _replace(suite, namespace)
        except (ImportError, AttributeError) as error:
            return {"outcome": "not found", "problem": str(error)}
    if mistake is None:
        return tests()
    with mistake.applied():
        outcome = tests()
    if outcome["outcome"] != "passed" or not function.replaces:
        return outcome
    return outcome | _shown(suite, function, namespace, mistake)


def _collected(suite: Suite, function: Function, namespace: dict[str, Any], ask: Callable[[Tests], None]) -> bool:
    """Collect the tests in this process, and call ask with a function that runs them. Whether that was possible."""
    import pytest

    _replace(suite, namespace)
    collection = _Collection(ask)
    pytest.main([*_OPTIONS, *function.tests], plugins=[collection])
    return collection.complete


def _replace(suite: Suite, namespace: dict[str, Any]) -> None:
    """Replace every function of the suite by ours, because the tests of one may call another."""
    for function in suite.functions:
        if function.replaces:
            module, _, path = function.replaces.partition(":")
            holder = importlib.import_module(module)
            *outer, name = path.split(".")
            for part in outer:
                holder = getattr(holder, part)
            getattr(holder, name)  # it must be there
            setattr(holder, name, _made(function, namespace))


def _made(function: Function, namespace: dict[str, Any]) -> Any:
    scope = dict(namespace)
    if "\n" not in function.call.strip():
        return eval(function.call, scope)
    exec(function.call, scope)
    return scope["replacement"]


class _Counts:
    """A pytest plugin that counts the tests that passed."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
        self.passed += report.when == "call" and report.passed

    def outcome(self, status: int) -> dict[str, Any]:
        """What became of the tests, by the status with which pytest ended."""
        if status == 0 and self.passed:
            return {"outcome": "passed", "tests": self.passed}
        if status == 1:
            return {"outcome": "failed", "by": self.failed}
        return {"outcome": "no tests" if status in (0, 5) else "error", "problem": f"pytest ended with status {status}"}


class _Collection:
    """A pytest plugin that calls ask when the tests are collected, in the place of running them."""

    def __init__(self, ask: Callable[[Tests], None]) -> None:
        self.ask, self.complete = ask, False

    def pytest_runtestloop(self, session: Any) -> bool:
        def tests() -> dict[str, Any]:
            counts = _Counts()
            session.config.pluginmanager.register(counts)
            for item, following in itertools.pairwise([*session.items, None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
            return counts.outcome(1 if session.testsfailed else 0)

        self.complete = True
        self.ask(tests)
        return True


def _tests(function: Function) -> dict[str, Any]:
    import pytest

    counts = _Counts()
    return counts.outcome(int(pytest.main([*_OPTIONS, *function.tests], plugins=[counts])))


def _shown(suite: Suite, function: Function, namespace: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    """An input where the function with the mistake differs from the right one, and how; empty if none is found."""
    for text, seed in _trials(function):
        with np.errstate(all="ignore"):
            right = _results(suite, function, namespace, text, seed)
            try:
                with mistake.applied():
                    wrong = _results(suite, function, namespace, text, seed)
            except Exception as error:
                return {"input": text, "seed": seed, "shows": f"it stops with {type(error).__name__}"}
        for name, a in right.items():
            b = wrong.get(name)
            if b is None or b.shape != a.shape:
                return {"input": text, "seed": seed, "shows": f"{name} has a different shape or is missing"}
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return {"input": text, "seed": seed, "shows": f"{name} is not finite where it should be"}
            finite = np.isfinite(a)
            apart = float(abs(a[finite] - b[finite]).max(initial=0.0))
            size = float(abs(a[finite]).max(initial=0.0))
            if apart > 1e-3 * size + 1e-6:
                return {
                    "input": text,
                    "seed": seed,
                    "shows": f"{name} is off by {apart:.2g}, its largest is {size:.2g}",
                }
    return {}


def _trials(function: Function) -> Iterator[tuple[str, int]]:
    yield from ((text, seed) for text in function.inputs for seed in range(DRAWS))


def _results(
    suite: Suite, function: Function, namespace: dict[str, Any], text: str, seed: int
) -> dict[str, np.ndarray]:
    """The outputs and gradients of the function on one input, by name."""
    scope = dict(namespace)
    inputs = eval(text, scope | {"r": np.random.default_rng(seed)})
    made = _made(function, namespace)
    if function.probe:
        exec(function.probe, scope)
        found = {name: np.asarray(x, np.float64) for name, x in scope["probe"](made, *inputs).items()}
        return {name: x for name, x in found.items() if function.gradients or name.startswith("the ")}
    if suite.arrays != "numpy":
        of_each: dict[str, np.ndarray] = _library(suite.arrays).results(
            made, inputs, seed if function.gradients else None
        )
        return of_each
    returned = made(*inputs)
    returned = returned if isinstance(returned, tuple) else (returned,)
    arrays = [x for x in returned if isinstance(x, np.ndarray | float | np.floating)]
    return {f"output {i}" if i else "the output": np.asarray(x, np.float64) for i, x in enumerate(arrays)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
