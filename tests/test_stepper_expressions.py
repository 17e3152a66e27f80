"""A line of code as a small tree: what it consists of, and which part of it is bound to which name."""

from __future__ import annotations

import pytest
from tiers import in_one

from minitransformer.school.show.stepper.expressions import (  # fmt: skip
    Applied,
    Member,
    Name,
    NotExpandable,
    Number,
    Operation,
    argument_in,
    assigned,
    names,
    only_in_comprehensions,
    read,
)


def test_a_line_is_read_as_names_numbers_operations_and_calls() -> None:
    line = read("scores = (q @ k.T) * xp.exp(-1.0)")
    product = Operation("@", (Name("q"), Member(Name("k"), "T")))
    assert line.kind == "assign" and line.targets == (Name("scores", stored=True),)
    assert line.value == Operation("*", (product, Applied("exp", (Operation("negative", (Number(1.0),)),))))
    assert read("a < b < c").value == read("a < b and b < c").value != read("a < b and a < c").value
    assert read("x += y").value == read("x = x + y").value and read("x += y").kind == "change"


def test_what_a_method_and_a_function_of_a_library_read() -> None:
    for source in ("x.sum(axis=0)", "xp.sum(x, axis=0)"):
        made = read(source).value
        assert isinstance(made, Applied) and made.operands == (Name("x"),) and made.options == {"axis": Number(0)}


@in_one("source", ["if x > 0:", "for a in b:", "def f(x):", "", "no code"])
def test_the_head_of_a_compound_statement_is_no_statement(source: str) -> None:
    assert read(source).kind == "" and read(source).everything == ()


def test_which_part_of_a_line_is_bound_to_a_name() -> None:
    line = read("a, (b, c), *d = f(x), (y + z, g), h, i")
    assert assigned(line, "b", "f.b") == (Operation("+", (Name("y"), Name("z"))), ())
    assert assigned(read("a, (b, c), *d = f(x)"), "c", "f.c")[1] == (1, 1)
    assert assigned(read("if_ = g(part := x)"), "part", "f.part") == (Name("x"), ())
    with pytest.raises(NotExpandable, match=r"f\.q was not computed"):
        assigned(line, "q", "f.q")


def test_arguments_by_position_and_by_name() -> None:
    def f(a: int, b: int, *, c: int) -> None: ...

    made = read("f(x, c=y)").value
    assert isinstance(made, Applied)
    assert [argument_in(made, f.__code__, name) for name in "abc"] == [Name("x"), None, Name("y")]
    starred = read("f(*x, y)").value
    assert isinstance(starred, Applied) and argument_in(starred, f.__code__, "b") is None


def test_names_and_those_of_a_comprehension_alone() -> None:
    source = "y = [a * b for a, c in x if c]"
    assert only_in_comprehensions(source) == {"a", "c"} and only_in_comprehensions("a = [a for a in x]") == set()
    assert sorted(set(names(read(source).value))) == ["a", "b", "c", "x"]
