"""The findings of the checker, and how it reports them to a student."""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from .collecting import NOT_WRITTEN


class Entry(NamedTuple):
    """A wrong entry of an output."""

    place: tuple[int, ...]
    expected: float
    got: float


@dataclass(frozen=True)
class Output:
    """One output of a student's function.

    problem: what is wrong with it as an array, apart from its numbers. where: the first inputs on which it was wrong;
    wrong: how many of its `size` entries were wrong there; entries: the first of these. right_trials: on how many of
    the `trials` it was right. mistake: the known mistake (or two, "one + other") that reproduces it on all trials.
    remark: any other obvious feature. unknown: there are numbers, but neither mistake nor remark explains them.
    """

    name: str
    right: bool
    problem: str = ""
    where: str = ""
    size: int = 0
    entries: tuple[Entry, ...] = ()
    wrong: int = 0
    right_trials: int = 0
    trials: int = 0
    mistake: str | None = None
    explanation: str = ""
    unknown: bool = False
    remark: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The output as JSON types."""
        entries = [
            {"index": list(e.place), "expected": _finite(e.expected), "got": _finite(e.got)} for e in self.entries
        ]
        return asdict(self) | {"entries": entries}

    def lines(self) -> list[str]:
        """What is wrong with it, and where, without the mistake."""
        how_many = f"{self.wrong} of {self.size} entries differ" if self.size > 1 else "wrong"
        first = self.problem or how_many
        often = 2 * self.right_trials > self.trials
        return [
            f"{self.name}: {first}",
            *([f"    for {self.where}"] if self.where else []),
            *([f"    (right for {self.right_trials} of the {self.trials} inputs tried)"] if often else []),
            *(
                f"    {_place(self.name, e.place)}: {_number(e.got)}, expected {_number(e.expected)}"
                for e in self.entries
            ),
            *(["    ..."] if self.wrong > len(self.entries) else []),
        ]


@dataclass(frozen=True, repr=False)
class Result:
    """The answer to an attempt: `.right`, `.score` from 0 to 1, `.mistake`; `str()` is what a student reads.

    changed: the inputs that the function changed in place; repeated: the pullbacks (or dictionaries of pullbacks) that
    it called more than once. problem: why there is no output; error: the traceback of the student's code, if that is
    the reason. order: the outputs in the order returned, if they are right but in the wrong order.
    """

    name: str
    outputs: tuple[Output, ...]
    changed: tuple[str, ...] = ()
    problem: str = ""
    error: str = ""
    order: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether every output is right, no input was changed, and no pullback was called twice."""
        return not (self.problem or self.changed or self.repeated) and all(output.right for output in self.outputs)

    @property
    def score(self) -> float:
        """The share of the outputs that are right; half of that if an input was changed or a pullback called twice."""
        share = sum(output.right for output in self.outputs) / len(self.outputs)
        return share / 2 if self.changed or self.repeated else share

    @property
    def mistake(self) -> str | None:
        """The name of the first known mistake that explains a wrong output; None if none does, or nothing is wrong.

        If the values are right, it can be "changes-input", "repeats-pullback" or, for the wrong order, "wrong-order".
        """
        if self.order:
            return "wrong-order"
        if (self.changed or self.repeated) and all(output.right for output in self.outputs):
            return "changes-input" if self.changed else "repeats-pullback"
        return next((output.mistake for output in self.outputs if output.mistake), None)

    def __getitem__(self, name: str) -> Output:
        for output in self.outputs:
            if output.name == name:
                return output
        raise KeyError(
            f"{self.name} has no output {name!r}; it has {', '.join(output.name for output in self.outputs)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON types."""
        judged = {"right": self.right, "score": self.score, "mistake": self.mistake, "message": str(self)}
        return asdict(self) | judged | {"outputs": [output.as_dict() for output in self.outputs]}

    def __str__(self) -> str:
        said = [f"\n{textwrap.fill(sentence, 100, break_on_hyphens=False)}" for sentence in self.sentences]
        return "\n".join([self.verdict, *said, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = "#1a7f37" if self.right else "#b35900"
        verdict, details = html.escape(self.verdict), html.escape("\n".join(self.details))
        said = "".join(f"<p><b>{html.escape(sentence)}</b></p>" for sentence in self.sentences)
        shown = f'<pre style="white-space: pre-wrap">{details}</pre>' if details else ""
        return f'<p style="color: {colour}"><b>{verdict}</b></p>{said}{shown}'

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if self.right:
            return f"{self.name}: right."
        if self.problem == NOT_WRITTEN:
            return f"{self.name}: no answer yet."
        if self.error:
            return f"{self.name}: stops with an error."
        right = [output.name for output in self.outputs if output.right]
        if len(right) == len(self.outputs):
            done = f"changed your input {', '.join(self.changed)}" if self.changed else "called a pullback twice"
            return f"{self.name}: the values are right, but you {done}."
        if self.problem or len(self.outputs) == 1:
            return f"{self.name}: not right yet."
        return f"{self.name}: {len(right)} of {len(self.outputs)} right{': ' if right else ''}{', '.join(right)}."

    @property
    def sentences(self) -> list[str]:
        """What is wrong, in words: each known mistake once, what the numbers show otherwise, what else to change."""
        said = []
        wrong = [output for output in self.outputs if not output.right and not self.problem]
        if self.order:
            returned, wanted = ", ".join(self.order), ", ".join(output.name for output in self.outputs)
            said.append(f"The values are right, but in another order: you return {returned}. Return {wanted}.")
            wrong = []
        for mistake in dict.fromkeys(output.mistake for output in wrong if output.mistake):
            alike = [output for output in wrong if output.mistake == mistake]
            of = f" in {_listed([output.name for output in alike])}" if len(self.outputs) > 1 else ""
            what = "Two mistakes" if " + " in mistake else "The mistake"
            said.append(f"{what}{of}: {alike[0].explanation}")
        for remark in dict.fromkeys(output.remark for output in wrong if output.remark):
            said.append(f"{_listed([output.name for output in wrong if output.remark == remark])}: {remark}")
        unknown = [output.name for output in wrong if output.unknown]
        if unknown:
            which = f"this {unknown[0]}" if len(unknown) == 1 else f"these {_listed(unknown)}"
            said.append(f"An unknown mistake: none of the known ones gives {which}.")
        if len(unknown) > 1:
            said[-1] += " They may have one cause: look first at the values from which all of them are computed."
        for name in self.changed:
            said.append(
                f"Your function changes {name} in place (+=, or an assignment to its entries). It belongs to the "
                "caller, who may still need it: make a new array instead."
            )
        for name in self.repeated:
            which = name if name.endswith("backward") else f"a function in {name}"
            said.append(
                f"Your function calls {which} more than once. Each call adds to the gradients of its parameters: call "
                "it once, and keep what it returns."
            )
        return said

    @property
    def details(self) -> list[str]:
        """The lines below: the error of the student's code, or the numbers of each wrong output."""
        if self.problem:
            return [self.problem, *([self.error] if self.error else [])]
        wrong = [output for output in self.outputs if not (output.right or self.order)]
        return [line for output in wrong for line in ("", *output.lines())]


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _place(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _number(value: float) -> str:
    return str(value) if isinstance(value, bool) else f"{value + 0.0:.6g}"


def _finite(number: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON does not have."""
    return number if math.isfinite(number) else None
