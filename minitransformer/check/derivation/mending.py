"""The one small change that makes a wrong line right, as a question; and the known mistake that it undoes."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .comparing import Trial, both
from .edits import Edit, Edits, Spot, with_item
from .faults import Fault, OutOfTime, Unreadable
from .indexing import PLAIN
from .known_forms import known_forms, missing_matrices, pieces_of_the_text
from .rewriting import everywhere, rebuilt, times
from .tree import Call, Node, Number, Over, Partial, Product, Ref
from .values import Value

_IN_ORDER = (  # what people slip on most comes first
    Edits.signs, Edits.sums, Edits.indices, Edits.transposes, known_forms, Edits.fewer, Edits.scalars, Edits.factors,
    Edits.marks, Edits.numbers, pieces_of_the_text, Edits.other_names, Edits.terms, Edits.functions, missing_matrices,
)  # fmt: skip
_SURE = 5  # of these, what changes one place; before them nobody looks for paths
SECONDS = 0.9  # for the changes of one line, at most


@dataclass(frozen=True)
class Repair:
    """question: "Is it A_ij, not A_il?"; mistake: the name of a known one, with its sentence."""

    question: str = ""
    mistake: str = ""
    sentence: str = ""


def tightened(node: Node) -> Node:
    """P ⊙ A B read as P ⊙ (A B); the same node if it has no such product."""
    node = node.mapped(tightened)
    if isinstance(node, Product) and "" in node.marks and {"*", "⊙"} & set(node.marks) and "/" not in node.marks:
        runs: list[list[Node]] = [[node.factors[0]]]
        for mark, factor in zip(node.marks, node.factors[1:], strict=True):
            if mark in ("*", "⊙"):
                runs.append([])
            runs[-1].append(factor)
        factors = [Product(("",) * (len(run) - 1), tuple(run)) if run[1:] else run[0] for run in runs]
        return Product(tuple(mark for mark in node.marks if mark in ("*", "⊙")), tuple(factors))
    return node


def reaching(node: Node) -> Node:
    """cos (a) b read as cos(a b); the same node if it has no such product."""
    node = node.mapped(reaching)
    if isinstance(node, Product):
        for n, mark in reversed(list(enumerate(node.marks))):
            call = node.factors[n]
            if mark == "" and isinstance(call, Call) and len(call.arguments) == 1 and call.function != "sqrt":
                inside = replace(call, arguments=(times(call.arguments[0], node.factors[n + 1]),))
                factors = with_item(with_item(node.factors, n + 1), n, inside)
                return replace(node, marks=with_item(node.marks, n), factors=factors)
    return node


def by_entries(node: Node) -> Node:
    """x · y read as x ⊙ y; an equal node if there is no such product."""
    node = node.mapped(by_entries)
    if isinstance(node, Product) and "·" in node.marks:
        return replace(node, marks=tuple("⊙" if mark == "·" else mark for mark in node.marks))
    return node


def with_entries(node: Node, is_vector: Callable[[Node], bool]) -> Node:
    """x σ(x) read as x ⊙ σ(x); the same node if no two vectors stand beside each other."""
    node = node.mapped(lambda part: with_entries(part, is_vector))
    if isinstance(node, Product) and "" in node.marks:
        marks = list(node.marks)
        for n, (a, b) in enumerate(itertools.pairwise(node.factors)):
            called = any(isinstance(x, Call) for x in (*a.all, *b.all))
            marks[n] = "⊙" if marks[n] == "" and called and is_vector(a) and is_vector(b) else marks[n]
        return replace(node, marks=tuple(marks)) if marks != list(node.marks) else node
    return node


def lengths_of(node: Node, is_vector: Callable[[Node], bool]) -> Node:
    """|x| read as the length of x; the same node if no vector stands between bars."""
    node = node.mapped(lambda part: lengths_of(part, is_vector))
    bars = isinstance(node, Call) and node.function == "abs" and is_vector(node.arguments[0])
    return replace(node, function="norm") if isinstance(node, Call) and bars else node


def slash_readings(node: Node) -> Iterator[Node]:
    """a / b c read as a / (b c), a / sum_j b_j c as (a / sum_j b_j) c, P ⊙ A B as P ⊙ (A B), cos (a) b as cos(a b)."""
    for other in (tightened(node), reaching(node)):
        if other is not node:
            yield other
    for part, way in everywhere(node):
        if isinstance(part, Product):
            for n, mark in enumerate(part.marks):
                below_line = part.factors[n + 1]
                if mark == "/" and isinstance(below_line, Over) and isinstance(below_line.body, Product):
                    *first, last = below_line.body.factors  # a / sum_j b_j c read as (a / sum_j b_j) c
                    shorter = replace(below_line, body=times(*first))
                    factors = with_item(part.factors, n + 1, shorter, last)
                    marks = (*part.marks[: n + 1], "", *part.marks[n + 1 :])
                    yield rebuilt(way, replace(part, marks=marks, factors=factors))
                if mark == "/" and n + 1 < len(part.marks) and part.marks[n + 1] == "":
                    end = n + 1
                    while end < len(part.marks) and part.marks[end] == "":
                        end += 1
                    below = Product(part.marks[n + 1 : end], part.factors[n + 1 : end + 1])
                    factors = (*part.factors[: n + 1], below, *part.factors[end + 1 :])
                    yield rebuilt(way, replace(part, marks=part.marks[: n + 1] + part.marks[end:], factors=factors))


def unclear_slashes(node: Node) -> Iterator[Node]:
    """Products such as a / b c. In 1/b c, in a/2 c and before a sum, it is clear what is meant."""
    for part in node.all:
        if isinstance(part, Product):
            for n, mark in enumerate(part.marks[:-1]):
                clear = (n == 0 and isinstance(part.factors[0], Number)) or isinstance(part.factors[n + 1], Number)
                if mark == "/" and part.marks[n + 1] == "" and not clear and not isinstance(part.factors[n + 2], Over):
                    yield part


def mended(trial: Trial, left: Node, right: Node, deadline: float) -> Repair:
    """The first small change that makes the right side equal to the left."""
    now = time.monotonic()
    until = min(now + SECONDS, now + (deadline - now) * 0.6)
    fits = trial.test_of(left, right)
    edits = Edits(left, right, trial.known)
    paths = (Edit(left, f"Is what flows back through {name} missing?") for name in _lost_paths(trial, left, right))
    numbers = (edit for spot in edits.spots if (edit := _other_number(trial, left, spot)))
    with contextlib.suppress(OutOfTime):  # the line is wrong all the same
        first, others = ([kind(edits) for kind in kinds] for kinds in (_IN_ORDER[:_SURE], _IN_ORDER[_SURE:]))
        for edit in itertools.chain(*first, paths, *others[:3], numbers, *others[3:]):
            if time.monotonic() > until:
                break
            if edit.tree is left:  # a path, which has been tried
                return Repair(edit.question)
            if edit.tree != left and fits(edit.tree) and trial.compare(left, edit.tree).right:
                if mistake := _known(trial, left, right, edit):
                    from ..verify.mistakes import MISTAKES  # here, because it reads many files

                    return Repair(edit.question, mistake, MISTAKES[mistake].sentence)
                return Repair(edit.question)
    return Repair()


def _other_number(trial: Trial, left: Node, spot: Spot) -> Edit | None:
    """Another number in place of one, found from what the line gives for 0 and for 1."""
    if not isinstance(spot.part, Number):
        return None
    draw = trial.draws[0]
    with contextlib.suppress(Fault, Unreadable, np.linalg.LinAlgError), np.errstate(all="ignore"):
        p, zero, _ = both(draw, left, spot.edit(Number("0")).tree, PLAIN)
        _, one, _ = both(draw, left, spot.edit(Number("1")).tree, PLAIN)
        step = (one - zero).ravel()
        number = float(np.dot(step, (p - zero).ravel()) / np.dot(step, step)) if np.any(step) else np.nan
        if np.allclose(zero + number * (one - zero), p, rtol=1e-9) and number >= 0:
            return spot.edit(Number(f"{number:.9g}"), f"Is it {number:.9g}, not {spot.part}?")
    return None


def _lost_paths(trial: Trial, left: Node, right: Node) -> Iterator[str]:
    """The name without which the right side is the gradient: it would be right if that name were constant."""
    ref = left.bottom if isinstance(left, Partial) and isinstance(left.top, Ref) and not left.top.indices else left
    loss = str(left.top) if isinstance(left, Partial) and trial.known.rank(str(left.top)) == 0 else ""
    if not isinstance(ref, Ref) or (isinstance(left, Partial) and trial.known.rank(str(left.top))):
        return
    base = ref.name if ref is not left else trial.known.base_of(ref.name)
    held = Ref("\u2061", ref.indices)
    for name, made in reversed(trial.known.defined.items()):
        if base and name not in (base, loss) and base in trial.known.ancestors(made.tree.names):
            with contextlib.suppress(Fault, Unreadable):
                for draw in trial.draws:
                    draw.values[held.name] = Value(draw.gradient(base, loss, held=name))
                if np.any(trial.draws[0].values[held.name].array) and trial.compare(held, right).right:
                    yield name


def _known(trial: Trial, left: Node, right: Node, edit: Edit) -> str:
    """The name of the known mistake that an edit undoes, or ""."""
    if not isinstance(left, Ref):
        return ""
    base = trial.known.base_of(left.name)
    after_softmax = base is not None and any(_is_softmax(trial, name, base) for name in trial.known.defined)
    softmax = any(_is_softmax(trial, name) for name in trial.known.defined)
    scale = edit.what.startswith("1/sqrt")
    table: list[tuple[str, bool, str]] = [
        ("weighted sum", after_softmax, "softmax-no-sum"),
        ("sign", after_softmax and "sum" in edit.what, "softmax-sum-added"),
        ("factor", softmax and scale and left.name in ("dQ", "dq"), "attention-dq-not-scaled"),
        ("factor", softmax and scale and left.name in ("dK", "dk"), "attention-dk-not-scaled"),
        ("factor", after_softmax and edit.what in ("1/τ", "1/T"), "softmax-no-temperature"),
        ("transpose", softmax and left.name in ("dK", "dk"), "attention-dk-not-transposed"),
        ("transpose", softmax and left.name in ("dV", "dv"), "attention-dv-not-transposed"),
        ("into sums", edit.what in ("γ", "g") and _centres(trial), "layer-norm-gamma-outside-means"),
        ("into sums", edit.what in ("γ", "g"), "rms-norm-gamma-outside-mean"),
        ("mean term", edit.what == "shift" and _centres(trial), "layer-norm-no-shift"),
        ("mean term", edit.what == "stretch" and _centres(trial), "layer-norm-no-stretch"),
        ("factor", edit.what == "γ" and _centres(trial), "layer-norm-gamma-forgotten"),
        ("path", edit.what[:2] in ("dy", "dY"), "pre-norm-identity-dropped"),
        ("minus", softmax and trial.known.loss() is not None and base is not None, "cross-entropy-wrong-sign"),
    ]
    return next((name for kind, holds, name in table if kind == edit.kind and holds), "")


def _is_softmax(trial: Trial, name: str, of: str = "") -> bool:
    """Whether a name is defined as a softmax (of that array)."""
    tree = trial.known.defined[name].tree
    if of and of not in tree.names:
        return False
    below = [part.factors[-1] for part in tree.all if isinstance(part, Product) and "/" in part.marks]
    sums = [part for total in below if isinstance(total, Over) for part in total.all]
    return _calls("softmax", tree.all) or _calls("exp", sums)


def _calls(function: str, parts: list[Node]) -> bool:
    return any(isinstance(part, Call | Over) and part.function == function for part in parts)


def _centres(trial: Trial) -> bool:
    """Whether the text subtracts a mean."""
    return any(name in ("μ", "m", "mu", "c", "x̄") for name in trial.known.defined)
