"""The catalogue of checks is complete, and everything in it passes: on NumPy, on the strict device, and in float32."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from all_ops import OPS
from tiers import first_of_each, in_one

from minitransformer import ideas, layers, models, ops, parallel
from minitransformer.check.trace.calls import Pair
from minitransformer.check.trace.recorder import Recorder
from minitransformer.check.trace.values import is_float_array
from minitransformer.check.verify.catalogue import Case, Setup
from minitransformer.check.verify.catalogue.case import case as enter_case
from minitransformer.ideas import published
from minitransformer.layers import Module
from minitransformer.verify import CASES, Report

EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
FIRST_OF_EACH = pytest.mark.parametrize("case", first_of_each(CASES.values(), variants=False))
FOLDERS = [import_module(at.name) for at in walk_packages(ideas.__path__, "minitransformer.ideas.") if at.ispkg]
FOLDERS = [folder for folder in FOLDERS if folder.__name__.count(".") == 3]  # minitransformer.ideas.after.NAME
IN_FOLDERS = {name for folder in FOLDERS for name in folder.__all__}  # of ideas that have a folder of their own
# of recipes, from their modules
IN_MODULES = ("BackwardPositions", "ClampedExperts", "Compressed", "HalvesPositions", "OffsetPositions")
PUBLIC = {
    "op": [*OPS],
    "layer": [*layers.__all__, *({*ideas.__all__, *IN_FOLDERS} - OPS.keys()), *IN_MODULES],
    "model": [*models.__all__, *published.__all__, "RecurrentTranslator"],
    "collective": parallel.__all__,
}
WITHOUT_GRADIENT = {
    "op": {"sinusoidal_positions"},  # a table of constants
    # of the latter the cases of MultiHeadAttention and of parts make use
    "layer": set("Cache Cost KeyValueCache Module Parameter RollingCache StateCache".split())
    | set("Around DeltaCache LinearBias gated_attention grouped in_chunks qk_norm rotary_turn scaled_turn".split()),
    "model": set("EncoderDecoder from_pretrained load save save_pretrained".split())  # the first: what others share
    | {name for name in [*models.__all__, *published.__all__] if name.endswith("Config")},
    "collective": set("Group cut idle_share in_threads one_forward_one_backward stage_of thread_ranks".split()),
}


@functools.cache
def report_on(name: str) -> Report:
    """The report of a case in its default settings."""
    return CASES[name].run()


def without_a_case(kind: str, public_names: Iterable[str]) -> set[str]:
    covered = {case.covers for case in CASES.values() if case.kind == kind}
    return set(public_names) - WITHOUT_GRADIENT[kind] - covered


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_public_name_has_a_case(kind: str) -> None:
    assert without_a_case(kind, PUBLIC[kind]) == set()


def test_cases_are_about_public_names() -> None:
    with pytest.raises(ValueError, match="the catalogue has two cases called 'softmax'"):
        enter_case("op", "softmax", CASES["softmax"].build)
    assert {case.kind for case in CASES.values()} == PUBLIC.keys()
    for case in CASES.values():
        assert case.covers in PUBLIC[case.kind], case.name


@pytest.mark.parametrize(
    "case", first_of_each(CASES.values(), "op", variants=False)
)  # the demo checks all entries of ops
def test_case_passes(case: Case) -> None:
    """Larger arrays along random directions. test_wrong_variants.py has a quicker check of layers and models."""
    report = case.run(entrywise=8) if case.kind == "op" else case.run()
    report.assert_ok()
    assert report.max_error <= 1e-6
    assert all(row.checked for row in report.rows)


WITH_TRUTH = [case for case in CASES.values() if case.build(np.random.default_rng(0)).truth is not None]


@in_one("name", [case.name for case in WITH_TRUTH])
def test_values_are_those_of_an_independent_computation(name: str) -> None:
    assert CASES[name].build(np.random.default_rng(0)).differs() <= 1e-10


def test_collectives_positions_and_caches_have_an_independent_truth() -> None:
    names = {case.name for case in WITH_TRUTH}
    about = ("Embedding", "SinusoidalPositions", "LearnedPositions")
    wanted = [case for case in CASES.values() if case.kind == "collective" or " with a cache" in case.name]
    assert {case.name for case in wanted} <= names and {case.covers for case in CASES.values()} >= set(about)
    assert names.issuperset(about)


@pytest.mark.parametrize(("truth", "problem"), [
    (lambda x: 2.0 * x + 1e-6, "it differs by 1.0e-06 from what an independent computation gives"),
    (lambda x: 2.0 * x[:1], "it differs by inf from"),
    (lambda x: np.where(x == x.max(), np.nan, 2.0 * x), ""),
], ids=["another value", "another shape", "one number may be anything"])  # fmt: skip
def test_another_value_than_the_truth_is_wrong(truth: Any, problem: str) -> None:
    """Though the gradient is right."""
    setup = Setup(lambda x: (2.0 * x, lambda dy: 2.0 * dy), (np.array([1.0, -2.0, 3.0]),), truth=truth)
    report = Case("twice", "op", lambda _: setup).run()
    assert report.ok is not bool(problem)
    assert not problem or (report.worst.name, report.worst.problem[: len(problem)]) == ("the output", problem)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["dropout", "attention with causal mask and dropout", "EncoderLayer", "Classifier"])
def test_a_case_depends_on_its_seed_alone(name: str) -> None:
    first, again, other = (CASES[name].run(seed=seed).as_dict()["rows"] for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.few(0, slow=75)
@EVERY_CASE
def test_case_passes_on_the_strict_device(case: Case) -> None:
    """In one random direction each: NumPy checks every number. A layer's intermediates are those of its ops."""
    report = case.run(device="strict", entrywise=0, directions=1, intermediates=case.kind == "op")
    report.assert_ok()
    assert report.max_error <= 1e-6


def test_the_strict_device_is_really_used() -> None:
    setup = CASES["EncoderLayer"].build(np.random.default_rng(0)).on("strict")
    assert type(setup.inputs[0]).__name__ == type(setup.options["mask"]).__name__ == "StrictArray"
    assert {type(p.value).__name__ for _, p in setup.module.parameters()} == {"StrictArray"}
    assert type(setup.f(*setup.inputs, **setup.options)[0]).__name__ == "StrictArray"


def bound_names(function: ast.FunctionDef) -> set[str]:
    """The names that a function binds to one value: arguments and assignments, not those of functions inside it.

    The names of lists, as `dothers` in `dx, *dothers = ...`, are left out.
    """
    found = {argument.arg for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.Starred):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return found


def named_pairs(function: ast.FunctionDef) -> set[str]:
    """Every `name` bound in a forward pass with a `dname` bound in the backward pass inside it."""
    pullbacks = [node for node in function.body if isinstance(node, ast.FunctionDef) and node.name == "backward"]
    gradients = set().union(*map(bound_names, pullbacks)) if pullbacks else set()
    return {name for name in bound_names(function) if "d" + name in gradients}


ROOMS = {"op": (ops,), "layer": (layers, ideas, *FOLDERS), "model": (models,)}


COVERED = {case.covers for case in CASES.values()}


def instances_of(layer: type) -> list[str]:
    """The classes that reports name where methods of this one run: itself, or those below it that cases are about."""
    if layer.__name__ in COVERED:
        return [layer.__name__]
    below = [name for each in layer.__subclasses__() for name in instances_of(each) if name in COVERED]
    return below or [layer.__name__]


def functions_in(module: ModuleType) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(label as in a report, function) for every function and method in the sources of a package."""
    sources = {inspect.getmodule(inspect.unwrap(getattr(module, name))) for name in module.__all__}
    for source in sorted(sources, key=lambda source: source.__name__):
        for node in ast.parse(inspect.getsource(source)).body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
                for label, method in itertools.product(instances_of(getattr(source, node.name)), methods):
                    yield label if method.name == "__call__" else f"{label}.{method.name}", method


PAIRS = [
    ("op" if label in OPS else kind, label, name)
    for kind, rooms in ROOMS.items()  # collectives run on threads of their own; their x is the input of a case
    for module in rooms
    for label, function in functions_in(module)
    for name in sorted(named_pairs(function))
]


@functools.cache
def label_of(case: Case) -> str:
    """What a report would call the function whose inputs a case checks, were it called by another: "Model.loss"."""
    f = case.build(np.random.default_rng(0)).f
    return f"{type(f.__self__).__name__}.{f.__name__}" if inspect.ismethod(f) else case.covers


@functools.cache
def rows_that_are_checked(name: str) -> list[tuple[str, str]]:
    """(kind, name) of the inputs and intermediates in the report of a case, without their finite differences."""
    intermediates: list[tuple[str, str]] = []

    def names_alone(checks: list[Any]) -> tuple[()]:
        pairs = [check.args[0] for check in checks if isinstance(check.args[0], Pair)]
        intermediates.extend(("intermediate", pair.title) for pair in pairs)
        return ()

    report = CASES[name].run(progress=names_alone, entrywise=0)
    return [(row.kind, row.name) for row in report.rows] + intermediates


def rows_of(label: str, name: str) -> Iterator[str]:
    """The rows, in any report, of this local variable: an intermediate, or an input of what a case is about."""
    title = re.compile(re.escape(label) + r"(#\d+)?\." + re.escape(name) + r"(\[\d+\])?")
    for case in sorted(CASES.values(), key=lambda case: case.covers != label.partition(".")[0]):  # these first
        for kind, row in rows_that_are_checked(case.name):
            is_input = kind == "input" and row == name and label_of(case) == label
            if is_input or title.fullmatch(row):
                yield f"{case.name}: {row}"


@pytest.mark.slow
@in_one("kind, label, name", PAIRS)  # in one, since they look through the same reports
def test_every_named_gradient_is_checked_somewhere(kind: str, label: str, name: str) -> None:
    assert any(rows_of(label, name)), (
        f"{label} binds {name} and d{name}, but no report of the catalogue has a row for them"
    )


def test_what_a_list_of_gradients_holds_is_checked() -> None:
    assert report_on("Linear")["bias"].kind == "parameter"
    assert report_on("Residual around cross-attention")["others[0]"].kind == "input"


def in_dtype(setup: Setup, dtype: str) -> Setup:
    if setup.module is not None:
        setup.module.to(dtype=dtype)
    inputs = tuple(x.astype(dtype) if is_float_array(x) else x for x in setup.inputs)
    return Setup(setup.f, inputs, setup.options, setup.module)


def run_in(case: Case, dtype: str, record: bool = True) -> tuple[dict[str, Any], Recorder]:
    """Output and gradients by name, and every floating-point array that an op, layer or model bound on the way."""
    rng = np.random.default_rng(0)
    setup = in_dtype(case.build(rng), dtype)
    recording = Recorder(setup.f)
    with recording if record else contextlib.nullcontext():
        y, backward = setup.f(*setup.inputs, **setup.options)
    recording.in_forward = False
    with recording if record else contextlib.nullcontext():
        returned = backward(rng.normal(size=y.shape).astype(dtype) if y.shape else np.array(1.5, dtype))
    results = {"output": y}
    returned = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    results |= {f"gradient of input {i}": gradient for i, gradient in enumerate(returned)}
    if isinstance(setup.module, Module):
        results |= {f"gradient of {name}": parameter.grad for name, parameter in setup.module.parameters()}
    return results, recording


@pytest.mark.few(53)
@FIRST_OF_EACH
def test_float32_stays_float32_and_agrees_with_float64(case: Case) -> None:
    """Also inside: `grad +=` would hide that a float64 gradient was added to a float32 one.

    Only constants are computed in float64 and then rounded: the sinusoidal table, and the turns of rotary positions.
    """
    single, recording = run_in(case, "float32")
    constants = ("sinusoidal_positions", "_turns", "ScaledRotary._turns", "plain", "yarn", "longrope")
    for call in (call for call in recording.calls if call.name not in constants):
        for binding in (b for groups in call.bound.values() for group in groups for b in group):
            assert binding.value.dtype == "float32", binding.title
    double, _ = run_in(case, "float64", record=False)
    assert single.keys() == double.keys()
    for name, expected in double.items():
        assert (single[name].dtype, expected.dtype) == (np.float32, np.float64), name
        error = np.abs(single[name] - expected) / (1.0 + np.abs(expected))
        assert error.max() <= 3e-4, f"{name}: {error.max():.1e}"
