"""Name a mistake by its effect: run a function and every known mistake of an op, and compare all results.

    verify.diagnose(f, "attention")                          on the inputs that the catalogue has for the op
    verify.diagnose(f, "attention", q, k, v, causal=True)    on these inputs

A mistake is named if the function's output and all its gradients equal those of the op with this mistake. On other
inputs the two may differ; inputs of unequal sizes distinguish mistakes best. On inputs of the caller, the conventions
of others are tried as well: see conventions.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...core.arrays.backend import array_module
from ...core.layers import Module
from ..trace.values import host_copy, is_array
from ..verify import arguments as given
from ..verify import foreign
from ..verify.catalogue import CASES, known_ops
from ..verify.mistakes import Mistake
from ..verify.one_thread import one_blas_thread
from .conventions import readings
from .readings import Op
from .results import OUTPUT, Candidate, Comparison, Trial, fails, of_output, parts, reachable, singles

# These compute the same in another way, which allows other mistakes.
_OTHER_WAYS = {"attention": "flash_attention", "flash_attention": "attention"}
_TILES = (1, 2, 3, 4, 8, 16, 32, 64, 128)
_READ = 8  # in so many readings of a call whose output differs in all of them, mistakes are looked for
# More inputs than the catalogue's, which has none for ops without a gradient, and none for which exp overflows.
_MORE: dict[str, Callable[[np.random.Generator], Any]] = {
    "sinusoidal_positions": lambda r: [((7, 6), {}), ((4, 10), {"base": 50.0})],
    "softmax": lambda r: [((r.normal(size=(3, 4)) + 800.0,), {})],
    "attention": lambda r: [
        ((r.normal(size=(2, 3, 4)), r.normal(size=(2, 5, 4)), r.normal(size=(2, 5, 6))), {"causal": True}),
        ((r.normal(size=(3, 4)) * 300.0, r.normal(size=(5, 4)) * 10.0, r.normal(size=(5, 2))), {}),
    ],
}


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    mistakes: those with the same results as the function, the op's own first; empty if the function is right or its
    mistake is unknown. shared: what they explain: "all", every result; "the output" alone; or "each its part", where
    it takes all of these mistakes to explain the gradients. differing: the names of the results that differ from the
    right ones, such as "the output", "dk". trials: on how many inputs the function ran; tried: how many known mistakes
    it was compared with. conventions: how the call was read, in words. gap: by how much the output is off, and where.
    remark: anything else about the results.
    """

    name: str
    op: str
    mistakes: tuple[Mistake, ...]
    differing: tuple[str, ...]
    trials: int
    tried: int
    shared: str = "all"
    conventions: tuple[str, ...] = ()
    gap: str = ""
    remark: str = ""

    @property
    def right(self) -> bool:
        """Whether the function does what the op does."""
        return not self.differing

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as a dict for JSON."""
        known = [{"name": mistake.name, "sentence": mistake.sentence} for mistake in self.mistakes]
        lists = {"differing": list(self.differing), "conventions": list(self.conventions)}
        return {**vars(self), **lists, "mistakes": known, "right": self.right}

    def __str__(self) -> str:
        where = "on these inputs" if self.trials == 1 else f"on {self.trials} inputs"
        read = f", where {' and '.join(self.conventions)}" if self.conventions else ""
        if self.right:
            return ". ".join(filter(None, [f"{self.name} does what {self.op} does {where}{read}", self.remark]))
        which = " and ".join(filter(None, [", ".join(self.differing[:-1]), self.differing[-1]]))
        start = f"{self.name} differs from {self.op} in {which}{read}"
        if not self.mistakes:
            ending = "".join(f". {said.rstrip('.')}" for said in (self.gap, self.remark) if said)
            return f"{start}; none of the {self.tried} known mistakes does the same{ending}"
        joint = "\n  and " if self.shared == "each its part" else "\n  or  "
        told = joint.join(f"{mistake.name}: {mistake.sentence}" for mistake in self.mistakes[:3])
        does = "Its output is that of" if self.shared == OUTPUT else "It does what"
        return f"{start}. {does} a known mistake{' does' if self.shared != OUTPUT else ''} {where}:\n      {told}"


@one_blas_thread
def diagnose(f: Callable[..., Any], op: str, *inputs: Any, seed: int = 0, **options: Any) -> Diagnosis:
    """Which known mistake of the op f has, if any. Compares `f(*inputs, **options)` with the op, right and wrong.

    f: a function of our form, (*arrays) -> (output, backward), such as `from_torch`, `from_jax` and `from_pair` return;
    the parameters of a module are arguments of the op. An option that f does not take is passed only to the op, for
    example where f is always causal. Without inputs, those of the catalogue are drawn from the seed, as many as f
    takes. A function that computes in float32 is compared to four digits.

    During the call the mistakes run in all threads. Raises ValueError for an unknown op, if f runs on none of the
    inputs, and if the op cannot be called with such arguments; TypeError if f returns something else.
    """
    if op not in (all_ops := known_ops()):
        raise ValueError(f"diagnose: there is no op {op!r}; expected one of {', '.join(sorted(all_ops))}")
    if not inputs:
        trials = [Trial(*each, each[1], seed) for each in _drawn(op, seed) if _takes(f, each[0], *each[1])]
        trials, others = _where_it_runs(f, trials)
        return _Search(f, op, trials, others).plain()
    of_f = {key: x for key, x in options.items() if _takes(f, inputs, key, others=True)}
    run, names, own = with_parameters(f, inputs, seed)
    keyed = {key: of_f.pop(key) for key, x in options.items() if key in of_f and is_array(foreign.copied_array(x))}
    trial = Trial((*inputs, *own, *keyed.values()), of_f, {k: x for k, x in options.items() if k not in keyed}, seed)
    names = [*names, *keyed]
    trials, _ = _where_it_runs(_by_position(run, list(keyed)), [trial], names)
    return _Search(f, op, trials, []).read(names, len(inputs))


def _by_position(f: Op, keys: list[str]) -> Op:
    """f with the arguments of these names at the end of the others, so that conventions are tried for them as well."""

    @functools.wraps(f, updated=())
    def run(*arguments: Any, **options: Any) -> Any:
        n = len(arguments) - len(keys)
        return f(*arguments[:n], **dict(zip(keys, arguments[n:], strict=True)), **options)

    return run if keys else f


def known_mistakes(op: str, seed: int = 0) -> list[Mistake]:
    """The known mistakes in what an op calls, with the inputs and options that the catalogue has for it."""
    right = known_ops()[op]
    return reachable(right, [Trial(*each, each[1], seed) for each in _drawn(op, seed)])


def with_parameters(f: Op, inputs: tuple[Any, ...], seed: int) -> tuple[Op, list[str], list[np.ndarray]]:
    """f as a function of its inputs and its own parameters, the names of both, and numbers for the parameters.

    A parameter whose entries are all equal, as γ and β are at first, would hide mistakes: it gets random numbers.
    """
    module = given.owner_of(f)
    names = given.input_names(f, inputs)
    owned = list(module.parameters()) if isinstance(module, Module) else []
    if not owned:
        return f, names, []
    rng = np.random.default_rng((seed, 5))

    def numbers(x: Any) -> np.ndarray:
        x = host_copy(x).astype(np.float64)
        return x + rng.normal(0.0, 0.5, x.shape) if x.size and np.ptp(x) == 0.0 else x

    @functools.wraps(f, updated=())
    def run(*arguments: Any, **options: Any) -> Any:
        parameters = arguments[len(arguments) - len(owned) :]

        def with_these(call: Callable[[], Any]) -> Any:
            values = iter(parameters)
            with given.parameters_as(lambda _: next(values), *(parameter for _, parameter in owned)):
                for _, parameter in owned:
                    parameter.grad = array_module(parameter.value).zeros(parameter.value.shape)
                return call(), [parameter.grad for _, parameter in owned]

        (y, backward), _ = with_these(lambda: f(*arguments[: len(arguments) - len(owned)], **options))

        def pullback(dy: Any) -> tuple[Any, ...]:
            dx, gradients = with_these(lambda: backward(dy))
            return (*(dx if isinstance(dx, tuple) else () if dx is None else (dx,)), *gradients)

        return y, pullback

    return run, [*names, *(name for name, _ in owned)], [numbers(parameter.value) for _, parameter in owned]


class _Search:
    """The search for the reading in which f is right or, if there is none, for the mistake that explains f."""

    def __init__(self, f: Op, op: str, trials: list[Trial], others: list[Trial]) -> None:
        self.f, self.op, self.trials, self.others = f, op, trials, others
        self.right_op = known_ops()[op]
        self.tried: set[str] = set()

    def plain(self) -> Diagnosis:
        """Compare the calls as they are."""
        return self._explained([Candidate(self.f, self.right_op, None, self.trials)])

    def read(self, names: list[str], n_inputs: int) -> Diagnosis:
        """Compare one call in all its readings. Raises ValueError if there is none."""
        (trial,) = self.trials
        problem = "it takes other arguments"
        for group in readings(self.right_op, names, list(trial.inputs), n_inputs, trial.found[OUTPUT]):
            found: list[Candidate] = []
            for reading in group:
                try:
                    candidate = Candidate(self.f, self.right_op, reading, self.trials)
                except Exception as error:  # the op does not take such arguments
                    problem = problem if reading.told else str(error)
                    continue
                if not candidate.differing:
                    return self._told(candidate)
                if candidate.fits:
                    found.append(candidate)
                elif not reading.told:
                    shapes = np.shape(trial.found[OUTPUT]), np.shape(candidate.right[0][OUTPUT])
                    problem = f"it returns an array of shape {shapes[0]}, {self.op} one of shape {shapes[1]}"
            if found:
                return self._explained(found)
        raise ValueError(f"diagnose: {given.name_of(self.f)} cannot be compared with {self.op}: {problem}")

    def _explained(self, candidates: list[Candidate]) -> Diagnosis:
        right = next((one for one in candidates if not one.differing), None)
        if right is not None:
            return self._told(right)
        alike = [one for one in candidates if OUTPUT not in one.differing]
        fewest = min((len(one.differing) for one in alike), default=0)
        kept = [one for one in alike if len(one.differing) == fewest] or candidates[:_READ]
        plain = [one for one in candidates[:1] if kept[0].conventions and not one.conventions]
        for explain, shared in ((singles, "all"), (parts, "each its part"), (of_output, OUTPUT)):
            for candidate in [*plain, *kept] if explain is singles else kept:  # a mistake needs no convention besides
                for way in self._ways(candidate):
                    known = reachable(candidate.around(way), self.trials)
                    self.tried |= {mistake.name for mistake in known}
                    if found := explain(candidate, way, known):
                        return self._told(candidate, self._best(candidate, way, found), shared)
        nearest = min(kept, key=lambda one: one.gap)
        return self._told(nearest, remark=nearest.exchanged())

    def _best(self, candidate: Candidate, way: Op, found: list[Mistake]) -> list[Mistake]:
        """Where f does not run, a mistake that does not run either is a better match."""
        failures = [
            sum(fails(mistake.inside(candidate.around(way)), trial) for trial in self.others) for mistake in found
        ]
        return [mistake for mistake, n in zip(found, failures, strict=True) if n == max(failures)]

    def _told(
        self, candidate: Candidate, mistakes: list[Mistake] | None = None, shared: str = "all", remark: str = ""
    ) -> Diagnosis:
        return Diagnosis(
            given.name_of(self.f),
            self.op,
            tuple(mistakes or ()),
            candidate.differing,
            len(self.trials),
            len(self.tried),
            shared,
            candidate.conventions,
            candidate.told() if OUTPUT in candidate.differing else "",
            " ".join(filter(None, [candidate.remark, remark])),
        )

    def _ways(self, candidate: Candidate) -> Iterator[Op]:
        """The op, then other ways to compute the same, if their results agree on all trials."""
        yield self.right_op
        other = known_ops().get(_OTHER_WAYS.get(self.op, ""))
        if other is None:
            return
        longest = max((x.shape[-2] for trial in self.trials for x in trial.inputs[:2] if np.ndim(x) > 1), default=0)
        for way in (
            [partial(other, tile=tile) for tile in _TILES if tile <= longest] if self.op == "attention" else [other]
        ):
            try:
                results = [trial.of_op(candidate.around(way)) for trial in self.trials]
            except Exception:  # for example, it needs a mask of another rank
                continue
            pairs = [Comparison(one, right, way) for one, right in zip(results, candidate.right, strict=True)]
            if not any(pair.differing() for pair in pairs):
                yield way


def _takes(f: Callable[..., Any], inputs: Any, *names: str, others: bool = False) -> bool:
    """Whether f can be called with these inputs and options of these names. others: it may require more than these."""
    try:
        signature = inspect.signature(f)
        (signature.bind_partial if others else signature.bind)(*inputs, **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return not names
    return True


def _drawn(op: str, seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(inputs, options) of each case that the catalogue has for the op."""
    yield from _MORE.get(op, lambda r: [])(np.random.default_rng(seed))
    for case in CASES.values():
        if case.kind == "op" and case.covers == op:
            setup = case.build(np.random.default_rng(seed))
            yield setup.inputs, setup.options


def _where_it_runs(
    f: Callable[..., Any], trials: list[Trial], names: list[str] | None = None
) -> tuple[list[Trial], list[Trial]]:
    """The trials on which f runs, with its results, and the other trials. Raises ValueError if it never runs."""
    ran: list[Trial] = []
    others: list[Trial] = []
    problem = "it takes different arguments from the op"
    for trial in trials:
        trial.names = names or given.input_names(f, trial.inputs)
        try:
            trial.found = trial.of(f)
            ran.append(trial)
        except Exception as error:  # a function of someone else may raise anything
            if isinstance(error, TypeError) and "must return" in str(error):
                raise
            problem = f"{type(error).__name__}: {error}"
            others.append(trial)
    if not ran:
        raise ValueError(f"diagnose: {given.name_of(f)} runs on none of the inputs: {problem}")
    return ran, others
