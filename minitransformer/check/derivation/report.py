"""What the check of a derivation found, line by line."""

import html
from dataclasses import dataclass, field
from typing import Any

VERDICTS = {"given": "", "words": "", "defines": "·", "right": "✓", "wrong": "✗", "follows": "↳", "unreadable": "?"}


_UNCHECKED = "Nothing is checked here"


@dataclass(frozen=True)
class Numbers:
    """The entry with the largest gap: where, what the line gives there, and what is right."""

    where: str
    typed: float
    right: float

    def __str__(self) -> str:
        return f"{self.where}: the line gives {self.typed:.6g}, right is {self.right:.6g}"


@dataclass(frozen=True)
class Line:
    """A line of the text.

    verdict: "right", "wrong", "follows" (from a line that is wrong, and right apart from that), "defines", "given",
    "words" (nothing to check) or "unreadable". message: a sentence or two, "" if there is nothing to say. repair: the
    change that makes the line right, as a question. mistake: the name of a known mistake, as in `verify.mistakes`.
    """

    number: int
    text: str
    verdict: str
    message: str = ""
    numbers: Numbers | None = None
    repair: str = ""
    mistake: str = ""

    def __str__(self) -> str:
        told = f"{self.number:>3} {VERDICTS[self.verdict] or ' '} {self.text}"
        return told + "".join(f"\n      {part}" for part in self.sentences())

    def sentences(self) -> list[str]:
        """What is said about the line."""
        at = f"At {self.numbers}." if self.numbers else ""
        return [part for part in (self.message, at, self.repair) if part]


@dataclass(frozen=True, repr=False)
class DerivationReport:
    """The outcome of `verify.derivation`: `.ok`, `.first_wrong`, `.lines`; `str()`, and a table in a notebook."""

    lines: tuple[Line, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        """Whether something was checked, every line could be read, and all are right."""
        verdicts = {line.verdict for line in self.lines}
        return "right" in verdicts and not verdicts & {"wrong", "follows", "unreadable"}

    @property
    def first_wrong(self) -> int | None:
        """The number of the first wrong line, as typed, from 1; None if no line is wrong."""
        return next((line.number for line in self.lines if line.verdict == "wrong"), None)

    def assert_ok(self) -> None:
        """Raise AssertionError, with the report, unless `ok`."""
        if not self.ok:
            raise AssertionError(str(self))

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict for JSON."""
        lines = [{**vars(line), "numbers": None if line.numbers is None else vars(line.numbers)} for line in self.lines]
        return {"ok": self.ok, "first_wrong": self.first_wrong, "lines": lines}

    def summary(self) -> str:
        """The outcome in a sentence."""
        told = [] if self.first_wrong is None else [f"line {self.first_wrong} is wrong"]
        if unread := self._with("unreadable"):
            told.append(f"cannot be read: {_lines(unread)}")
        n = len(self._with("right"))
        right = f"all {n} equations are right" if n > 1 else "the equation is right" if n else "nothing to check"
        told = told or [right]
        if unchecked := [line for line in self._with("defines") if _UNCHECKED in line.message]:
            told.append(f"a name like a gradient, not checked: {_lines(unchecked)}")
        return f"derivation: {'; '.join(told)}"

    def _with(self, verdict: str) -> list[Line]:
        return [line for line in self.lines if line.verdict == verdict]

    def _shown(self) -> list[Line]:
        """The lines of which something is said."""
        return [line for line in self.lines if line.verdict != "words" or line.message]

    def taken(self) -> str:
        """Which lines define something: they are taken as given, so a wrong softmax there is not found."""
        defined = self._with("defines")
        return f"Definitions are taken as given: {_lines(defined)}." if defined else ""

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.summary(), *map(str, self._shown()), self.taken()]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = ""
        for line in self._shown():
            told = "<br>".join(html.escape(part) for part in line.sentences())
            verdict = f"{VERDICTS[line.verdict]} {line.verdict}"
            cells = (line.number, verdict, f"<code>{html.escape(line.text)}</code>", told)
            rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        heads = "".join(f"<th>{head}</th>" for head in ("line", "verdict", "equation", ""))
        return f"<p>{html.escape(self.summary())}</p><table><tr>{heads}</tr>{rows}</table><p>{self.taken()}</p>"


def _lines(lines: list[Line]) -> str:
    """Their numbers: "line 3", "lines 3, 5"."""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(str(line.number) for line in lines)}"
