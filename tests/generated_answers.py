"""Answers to the exercises of the course, made from the reference solutions: right ones and wrong ones.

A right answer is the reference after some rewrites that change rounding at most. A wrong one is the reference after an
edit, kept only where its outputs really differ: on inputs that are drawn here, wider than those of the checker.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import erf

from minitransformer.course import EXERCISES, Exercise
from minitransformer.course.comparison import TOLERANCE, near, scales

Rule = Callable[[ast.AST, np.random.Generator], ast.AST | None]


# What a rewritten formula calls.


def by_matmul(a: Any, b: Any) -> Any:
    return np.matmul(a, b)


def by_einsum(a: Any, b: Any) -> Any:
    return np.einsum("...ij,...jk->...ik", a, b) if np.ndim(a) > 1 and np.ndim(b) > 1 else np.dot(a, b)


def by_rows(a: Any, b: Any) -> Any:
    if np.ndim(a) == np.ndim(b) == 2:
        return np.array([[sum(x * y for x, y in zip(row, column, strict=True)) for column in b.T] for row in a])
    if np.ndim(a) == np.ndim(b) == 3:
        return np.stack([by_rows(x, y) for x, y in zip(a, b, strict=True)])
    return np.matmul(a, b)


def by_broadcasting(a: Any, b: Any) -> Any:
    if np.ndim(a) < 2 or np.ndim(b) < 2:
        return a @ b
    return (a[..., :, :, None] * b[..., None, :, :]).sum(axis=-2)


def transposed(x: Any) -> Any:
    return np.transpose(x)


def transposed_copy(x: Any) -> Any:
    return np.ascontiguousarray(x.T)


def exchanged_copy(x: Any, i: int, j: int) -> Any:
    axes = list(range(x.ndim))
    axes[i], axes[j] = axes[j], axes[i]
    return np.array(x.transpose(axes))


def added_up(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum, one term after the other."""
    axes = tuple(range(np.ndim(x))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for i in sorted((i % np.ndim(x) for i in axes), reverse=True):
        x = functools.reduce(operator.add, np.moveaxis(np.asarray(x), i, 0))
        x = np.expand_dims(x, i) if keepdims else x
    return x


def mean_of(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / (np.size(x) / np.size(total))


def single(x: Any) -> Any:
    """Rounded to float32, and float64 again, as where NumPy promotes; anything but an array of floats is unchanged."""
    return x.astype(np.float32).astype(x.dtype) if getattr(x, "dtype", np.dtype(bool)).kind == "f" else x


def singles(x: Any) -> Any:
    """In float32, with what is in a dictionary."""
    if isinstance(x, dict):
        return {key: singles(value) for key, value in x.items()}
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


def column_by_column(x: Any) -> Any:
    return np.array(x, order="F")


def every_second(x: Any) -> Any:
    """The same numbers, at every second place of memory."""
    x = np.asarray(x)
    room = np.zeros((*x.shape, 2), x.dtype)
    room[..., 0] = x
    return room[..., 0]


def read_only(x: Any) -> Any:
    x = np.array(x)
    x.flags.writeable = False
    return x


HELPERS = {
    f.__name__: f
    for f in (
        by_matmul,
        by_einsum,
        by_rows,
        by_broadcasting,
        transposed,
        transposed_copy,
        exchanged_copy,
        added_up,
        mean_of,
        single,
    )
}


def call(name: str, *args: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    function = ast.parse(name, mode="eval").body
    return ast.Call(function, list(args), keywords or [])


def binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.BinOp:
    return ast.BinOp(left, op, right)


def is_method(node: ast.AST, *names: str) -> bool:
    """Whether the node is x.name(...) for an array x."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "np")
    )


# Rewrites that change rounding at most.


def commute(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        return binary(node.right, node.op, node.left)
    return None


def associate(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        inner = node.left
        if isinstance(inner, ast.BinOp) and type(inner.op) is type(node.op):
            return binary(inner.left, node.op, binary(inner.right, node.op, node.right))
    return None


def distribute(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.BinOp):
        inner = node.right
        if isinstance(inner.op, ast.Add | ast.Sub):
            products = (binary(copy.deepcopy(node.left), ast.Mult(), one) for one in (inner.left, inner.right))
            return binary(next(products), inner.op, next(products))
    return None


def add_the_negative(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return binary(ast.UnaryOp(ast.USub(), node.right), ast.Add(), node.left)
    return None


def multiply_by_inverse(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return binary(node.left, ast.Mult(), binary(ast.Constant(1.0), ast.Div(), node.right))
    return None


def another_product(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        names = ("by_matmul", "by_einsum", "by_rows", "by_broadcasting")
        return call(str(rng.choice(names)), node.left, node.right)
    return None


def transpose_both(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    """a @ b as (bᵀ @ aᵀ)ᵀ, for matrices: where one of the two is written as x.T."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        sides = (node.left, node.right)
        if any(isinstance(one, ast.Attribute) and one.attr == "T" for one in sides[:1]):
            flipped = [ast.Attribute(one, "T", ast.Load()) for one in reversed(sides)]
            return ast.Attribute(binary(flipped[0], ast.MatMult(), flipped[1]), "T", ast.Load())
    return None


def another_transpose(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return call(str(rng.choice(("transposed", "transposed_copy", "np.transpose"))), node.value)
    if is_method(node, "swapaxes"):
        return call(str(rng.choice(("np.swapaxes", "exchanged_copy"))), node.func.value, *node.args)
    return None


def another_reduction(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    names = {"sum": ("np.sum", "added_up"), "mean": ("np.mean", "mean_of"), "max": ("np.max", "np.amax")}
    if is_method(node, *names) and not node.args:
        return call(str(rng.choice(names[node.func.attr])), node.func.value, keywords=node.keywords)
    return None


def as_function(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if is_method(node, "reshape") and not any(isinstance(one, ast.Starred) for one in node.args):
        shape = ast.Tuple(node.args, ast.Load()) if len(node.args) > 1 else node.args[0]
        return call("np.reshape", node.func.value, shape)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "abs":
        return call("np.absolute", *node.args)
    return None


def another_function(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.sqrt":
        return binary(node.args[0], ast.Pow(), ast.Constant(0.5))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.exp":
        return call("np.exp2", binary(node.args[0], ast.Mult(), ast.Constant(float(np.log2(np.e)))))
    return None


def turn_comparison(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    turned = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in turned:
        return ast.Compare(node.comparators[0], [turned[type(node.ops[0])]()], [node.left])
    return None


def in_single_precision(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Assign):
        return ast.Assign(node.targets, call("single", node.value))
    return None


def swap_statements(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    """Swap two adjacent assignments where neither reads or writes what the other writes."""
    if not isinstance(node, ast.FunctionDef):
        return None
    for i in rng.permutation(max(len(node.body) - 1, 0)):
        first, second = node.body[i : i + 2]
        if not isinstance(first, ast.Assign) or not isinstance(second, ast.Assign):
            continue
        names = [[n for n in ast.walk(one) if isinstance(n, ast.Name)] for one in (first, second)]
        written = [{n.id for n in one if isinstance(n.ctx, ast.Store)} for one in names]
        used = [{n.id for n in one} for one in names]
        if any(isinstance(t, ast.Subscript) for one in (first, second) for t in one.targets):
            continue
        if not written[0] & used[1] and not written[1] & used[0]:
            body = [*node.body[:i], second, first, *node.body[i + 2 :]]
            return ast.FunctionDef(node.name, node.args, body, [])
    return None


REWRITES: tuple[Rule, ...] = (
    commute,
    associate,
    distribute,
    add_the_negative,
    multiply_by_inverse,
    another_product,
    transpose_both,
    another_transpose,
    another_reduction,
    as_function,
    another_function,
    turn_comparison,
    in_single_precision,
    swap_statements,
)
EXACT_REWRITES = tuple(rule for rule in REWRITES if rule is not in_single_precision)


# Edits that make an answer wrong, or may.


def drop_operand(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp):
        return (node.left, node.right)[rng.integers(2)]
    return None


def other_operator(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        ops = [op for op in (ast.Add, ast.Sub, ast.Mult, ast.Div) if not isinstance(node.op, op)]
        return binary(node.left, ops[rng.integers(len(ops))](), node.right)
    return None


def exchange_operands(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    return binary(node.right, node.op, node.left) if isinstance(node, ast.BinOp) else None


def other_constant(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        values = (0, 1, 2, node.value + 1, node.value - 1, 2 * node.value, node.value / 2 if node.value % 2 else 3)
        return ast.Constant(values[rng.integers(len(values))])
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return None


def other_method(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if is_method(node, "sum", "mean", "max"):
        others = [name for name in ("sum", "mean", "max", "min", "prod", "std") if name != node.func.attr]
        return ast.Call(ast.Attribute(node.func.value, str(rng.choice(others)), ast.Load()), node.args, node.keywords)
    return None


def other_axis(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.keyword) and node.arg == "axis":
        return ast.keyword(
            "axis", ast.parse(str(rng.choice(("-1", "-2", "0", "1", "None", "(0, 1)"))), mode="eval").body
        )
    return None


def drop_keyword(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Call) and node.keywords:
        i = rng.integers(len(node.keywords))
        return ast.Call(node.func, node.args, [*node.keywords[:i], *node.keywords[i + 1 :]])
    return None


def drop_call(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    """f(x) as x, and x.f() and x.T as x."""
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return node.value
    if isinstance(node, ast.Call):
        inner = [*node.args[:1], *([node.func.value] if is_method(node, "sum", "swapaxes", "reshape") else [])]
        return inner[rng.integers(len(inner))] if inner else None
    return None


def other_name(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    """Another of the names of the function, which the caller has put into NAMES."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in NAMES:
        return ast.Name(str(rng.choice(NAMES)), ast.Load())
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.Constant(str(rng.choice(KEYS)))
    return None


def other_comparison(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.Compare):
        ops = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
        return ast.Compare(node.left, [ops[rng.integers(len(ops))]()], node.comparators)
    return None


def other_order(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    """Of what is returned, or of the arguments of a call."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        elements = node.value.elts
        return ast.Return(ast.Tuple([elements[i] for i in rng.integers(len(elements), size=len(elements))], ast.Load()))
    if isinstance(node, ast.Call) and len(node.args) > 1:
        return ast.Call(node.func, [node.args[i] for i in rng.permutation(len(node.args))], node.keywords)
    return None


def drop_statement(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    return ast.Pass() if isinstance(node, ast.Expr | ast.AugAssign) else None


def negate(node: ast.AST, rng: np.random.Generator) -> ast.AST | None:
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        return node.operand
    return ast.UnaryOp(ast.USub(), node) if isinstance(node, ast.BinOp | ast.Call) else None


EDITS: tuple[Rule, ...] = (
    drop_operand,
    other_operator,
    exchange_operands,
    other_constant,
    other_method,
    other_axis,
    drop_keyword,
    drop_call,
    other_name,
    other_comparison,
    other_order,
    drop_statement,
    negate,
)
NAMES: list[str] = []
KEYS: list[str] = []


Change = Callable[[np.ndarray], Any]


def of_floats(change: Change) -> Change:
    """The change for arrays of floats alone."""
    return lambda x: change(np.asarray(x)) if np.asarray(x).dtype.kind == "f" else x


def nudged(x: np.ndarray) -> np.ndarray:
    x = np.array(x)
    x[(-1,) * x.ndim] += 2e-3 * abs(x).max()
    return x


def last_row_zero(x: np.ndarray) -> np.ndarray:
    x = np.array(x)
    x[(-1,) * min(x.ndim, 1)] = 0
    return x


CHANGES: dict[str, Change] = {
    "clipped": of_floats(lambda x: np.clip(x, -1.0, 1.0)),
    "rounded": of_floats(lambda x: np.round(x, 2)),
    "nudged": of_floats(nudged),
    "times 1.001": of_floats(lambda x: 1.001 * x),
    "negative": of_floats(np.negative),
    "plus 0.01": of_floats(lambda x: x + 0.01),
    "tanh": of_floats(np.tanh),
    "absolute": abs,
    "squeezed": np.squeeze,
    "zero": np.zeros_like,
    "reversed": lambda x: x[::-1] if np.ndim(x) else x,
    "reversed along the last axis": lambda x: x[..., ::-1] if np.ndim(x) else x,
    "rolled": lambda x: np.roll(x, 1, axis=-1) if np.ndim(x) else x,
    "sorted": lambda x: np.sort(x, axis=-1) if np.ndim(x) else x,
    "its last row zero": last_row_zero,
    "inverted": lambda x: ~x if np.asarray(x).dtype.kind == "b" else x,
    "first row everywhere": lambda x: np.broadcast_to(x[:1], x.shape) if np.ndim(x) else x,
    "at most 2": lambda x: np.minimum(x, 2) if np.asarray(x).dtype.kind == "i" else x,
    "at least 2": lambda x: max(x, 2) if isinstance(x, int) else x,
    "one more": lambda x: x + 1 if isinstance(x, int) else x,
    "the usual number": lambda x: 0.1 if isinstance(x, float) else 4 if isinstance(x, int) else x,
    "the other usual number": lambda x: 0.9 if isinstance(x, float) else 1 if isinstance(x, int) else x,
}


def with_changed_output(f: Callable[..., Any], change: Change, i: int) -> Callable[..., Any]:
    def g(*inputs: Any) -> Any:
        returned = f(*inputs)
        if not isinstance(returned, tuple):
            return change(returned)
        return tuple(change(x) if j == i % len(returned) else x for j, x in enumerate(returned))

    return g


def with_changed_input(f: Callable[..., Any], change: Change, i: int) -> Callable[..., Any]:
    def g(*inputs: Any) -> Any:
        given = list(inputs)
        x = given[i % len(given)]
        if isinstance(x, dict):
            key = sorted(x)[i % len(x)]
            given[i % len(given)] = x | ({} if callable(x[key]) else {key: change(x[key])})
        elif not callable(x):
            given[i % len(given)] = change(x)
        return f(*given)

    return g


# Drawing answers.


@functools.cache
def source_of(name: str) -> ast.Module:
    """The reference and the references that it calls, without types."""
    needed = [name]
    for one in needed:
        for node in ast.walk(ast.parse(EXERCISES[one].solution())):
            if isinstance(node, ast.Name) and node.id in EXERCISES and node.id not in needed:
                needed.append(node.id)
    tree = ast.parse("\n".join(EXERCISES[one].solution() for one in reversed(needed)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return tree


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def changed(tree: ast.Module, rules: tuple[Rule, ...], rng: np.random.Generator) -> ast.Module:
    """A copy of the tree with one of the rules applied at one place, unless none is found to apply."""
    tree = copy.deepcopy(tree)
    nodes = list(ast.walk(tree))
    for _ in range(1000):
        node, rule = nodes[rng.integers(len(nodes))], rules[rng.integers(len(rules))]
        new = rule(node, rng)
        if new is not None:
            return ast.fix_missing_locations(_Replace(node, new).visit(tree))
    return tree


def function(tree: ast.Module, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"np": np, "erf": erf, **HELPERS}
    exec(compile(tree, "<answer>", "exec"), namespace)
    return namespace[name]


def right_answers(exercise: Exercise, rng: np.random.Generator) -> Iterator[tuple[Callable[..., Any], str]]:
    """Endless right answers, each with its source."""
    while True:
        tree = source_of(exercise.name)
        for _ in range(rng.integers(1, 7)):
            tree = changed(tree, REWRITES, rng)
        f = function(tree, exercise.name)
        inputs = singles if rng.random() < 0.3 else lambda x: x
        several = list if rng.random() < 0.5 else tuple
        array = (np.asarray, column_by_column, every_second, read_only)[rng.integers(4)]

        def g(*given: Any, f: Any = f, inputs: Any = inputs, several: Any = several, array: Any = array) -> Any:
            returned = f(*map(inputs, given))
            return several(map(array, returned)) if isinstance(returned, tuple) else array(returned)

        with_signature(g, exercise)
        yield g, f"{ast.unparse(tree)}\n# inputs: {inputs.__name__}, arrays: {array.__name__}"


def wrong_answers(exercise: Exercise, rng: np.random.Generator) -> Iterator[tuple[Callable[..., Any], str]]:
    """Endless answers whose outputs differ from the reference's, each with its source."""
    inputs = wide_inputs(exercise, rng)
    rights = [outputs(exercise.reference, one) for one in inputs]
    tree = source_of(exercise.name)
    NAMES[:] = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})
    NAMES[:] = [name for name in NAMES if name not in ("np", "erf", *EXERCISES)]
    KEYS[:] = sorted({n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)})
    while True:
        tree, label = source_of(exercise.name), ""
        if rng.random() < 0.3:
            change, i = str(rng.choice(list(CHANGES))), int(rng.integers(60))
            place, which = (("output", with_changed_output), ("input", with_changed_input))[rng.integers(2)]
            f, label = which(function(tree, exercise.name), CHANGES[change], i), f"\n# {place} {i} {change}"
        else:
            for _ in range(rng.choice([1, 1, 1, 2])):
                tree = changed(tree, EDITS, rng)
            for _ in range(rng.choice([0, 0, 1, 2])):
                tree = changed(tree, EXACT_REWRITES, rng)
            try:
                f = function(tree, exercise.name)
            except (SyntaxError, ValueError, TypeError):
                continue
        if differs(f, inputs, rights):
            with_signature(f, exercise)
            yield f, ast.unparse(tree) + label


def with_signature(f: Any, exercise: Exercise) -> None:
    f.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in exercise.arguments]
    )


def outputs(f: Callable[..., Any], inputs: tuple[Any, ...]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        returned = f(*copy.deepcopy(inputs))
    return [np.asarray(x) for x in (returned if isinstance(returned, tuple | list) else (returned,))]


def differs(f: Callable[..., Any], inputs: list[tuple[Any, ...]], rights: list[list[np.ndarray]]) -> bool:
    """Whether f gives, on some of the inputs, something other than the right values and their rounding.

    What fails on the first input, or gives arrays of other shapes there, is too easy a case to be of interest.
    """
    for i, (one, right) in enumerate(zip(inputs, rights, strict=True)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = outputs(f, one)
        except Exception:
            return i > 0
        if len(got) != len(right):
            return i > 0
        for a, b in zip(got, right, strict=True):
            if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
                return i > 0
            if b.dtype.kind != "f":
                if (a != b).any():
                    return True
                continue
            (scale,) = scales([b])
            with np.errstate(invalid="ignore"):
                if not near(a, b, 20.0 * TOLERANCE * scale).all():
                    return True
    return False


# Inputs for telling wrong from right: those of other seeds, and these with other magnitudes, zeros and numbers.

FREE_ARRAYS = "x a b dc w dy gain logits q k v doutput heads w_q w_k w_v w_o gamma beta down up w_1 b_1 w_2 theta g m "
FREE_ARRAYS += "table hidden dembedded dlogits keys values scores"
NUMBERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "h": lambda rng: float(rng.uniform(0.02, 0.5)),
    "temperature": lambda rng: float(np.exp(rng.uniform(-2.0, 2.0))),
    "epsilon": lambda rng: float(rng.uniform(0.0, 1.0)),
    "radius": lambda rng: int(rng.integers(0, 15)),
    "rate": lambda rng: float(rng.uniform(0.0, 0.95)),
    "eps": lambda rng: float(np.exp(rng.uniform(-14.0, 0.0))),
    "base": lambda rng: float(np.exp(rng.uniform(1.0, 10.0))),
    "t": lambda rng: int(np.exp(rng.uniform(0.0, 7.0))),
    "learning_rate": lambda rng: float(np.exp(rng.uniform(-9.0, 0.0))),
    "beta1": lambda rng: float(rng.uniform(0.1, 0.99)),
    "beta2": lambda rng: float(rng.uniform(0.1, 0.999)),
    "d_model": lambda rng: int(rng.integers(1, 2000)),
    "warmup": lambda rng: int(rng.integers(1, 5000)),
    "length": lambda rng: int(rng.integers(1, 60)),
    "width": lambda rng: 2 * int(rng.integers(1, 9)),
}


def wide_inputs(exercise: Exercise, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    wide = []
    for seed in rng.integers(1 << 40, 1 << 41, size=2):
        for trial in exercise.trials(int(seed)):
            wide.append(trial)
            wide.append(tuple(widened(name, x, rng) for name, x in zip(exercise.arguments, trial, strict=True)))
    if exercise.name == "local_mask":
        wide += [(int(t), int(radius)) for t, radius in rng.integers(1, 15, size=(20, 2))]
    return wide


def widened(name: str, x: Any, rng: np.random.Generator) -> Any:
    if name in NUMBERS and isinstance(x, int | float):
        return NUMBERS[name](rng)
    if name in FREE_ARRAYS.split() and isinstance(x, np.ndarray) and x.dtype.kind == "f":
        return np.where(rng.random(x.shape) < 0.1, 0.0, x * 10.0 ** rng.uniform(-2.0, 0.5))
    return x
