"""Grade hand-ins: every exercise that a hand-in defines, each in a process of its own.

That process (sandbox.py) gets the inputs and returns arrays. They are compared with the reference here, where nothing
that a hand-in does has any effect.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import derive
from .checking import judge
from .derive import handed_in
from .exercises import EXERCISES
from .result import Result
from .sandbox import Attempt, Limits, Sandbox, Stopped

_KINDS = (".ipynb", ".py")
_LARGEST = 50_000_000  # bytes; a notebook with many pictures has a few million


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise. verdict: "right", "partial", "wrong", "missing". result: if there were answers.

    problems: the failures of statements that the exercise needs.
    """

    exercise: str
    verdict: str
    score: float
    message: str
    result: Result | None = None
    problems: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The message in one line."""
        return one_line(self._summary())

    def _summary(self) -> str:
        if self.verdict == "right":
            return ""
        if self.result is None:
            return self.message.partition("\n")[0]
        if self.result.problem:
            return (self.result.error or self.result.problem).strip().splitlines()[-1]
        if self.result.mistake:
            explained = [output.explanation for output in self.result.outputs if output.explanation]
            return f"{self.result.mistake}: {explained[0]}" if explained else self.result.mistake
        wrong = [output for output in self.result.outputs if not output.right]
        said = [(output.name, output.problem or output.remark or "an unknown mistake") for output in wrong]
        return "; ".join(f"{name}: {what}" for name, what in said)

    def as_dict(self) -> dict[str, Any]:
        """The grade as JSON types."""
        head = {"exercise": self.exercise, "verdict": self.verdict, "score": self.score, "summary": self.summary}
        result = None if self.result is None else self.result.as_dict()
        return head | {"message": self.message, "result": result, "problems": list(self.problems)}


@dataclass(frozen=True)
class Grades:
    """The grades of a hand-in, in the order of the course.

    error: why it could not be graded. problems: the cells that are not valid Python. doubt: what the teacher should
    look at, in words.
    """

    file: str
    grades: tuple[Grade, ...] = ()
    error: str = ""
    problems: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def score(self) -> float:
        """The mean over the exercises; 0 if there are none."""
        return sum(grade.score for grade in self.grades) / len(self.grades) if self.grades else 0.0

    @property
    def note(self) -> str:
        """Why there are no grades, or what is doubtful about them, in one line; usually empty."""
        if self.error:
            return one_line(self.error)
        if all(grade.verdict == "missing" for grade in self.grades):
            missing = {grade.exercise: grade.message for grade in self.grades}
            said = [f"{name}: {why}" for name, why in missing.items() if why != _why_missing(name, False)]
            return one_line("; ".join(["it defines no exercise", *self.problems, *said]))
        return one_line(self.doubt)

    def over(self, exercises: Sequence[str]) -> Grades:
        """The grades for exactly these exercises, those that were not handed in as "missing". Errors stay as they are.

        So the scores of a whole class are out of the same total.
        """
        if self.error:
            return self
        found = {grade.exercise: grade for grade in self.grades}
        grades = [found.get(name) or Grade(name, "missing", 0.0, _why_missing(name, False)) for name in exercises]
        return replace(self, grades=tuple(grades))

    def as_dict(self) -> dict[str, Any]:
        """The grades as JSON types."""
        exercises = [grade.as_dict() for grade in self.grades]
        head = {"file": one_line(self.file), "score": self.score, "error": self.error}
        return head | {"problems": list(self.problems), "exercises": exercises}

    def text(self, verbose: bool = False) -> str:
        """A line for each exercise; with `verbose` all remarks on it, indented."""
        name = one_line(self.file)
        if self.error or not self.grades:
            return f"{name}: {self.note}"
        width = max(len(grade.exercise) for grade in self.grades)
        lines = [f"{name}: {100 * self.score:.0f} % of {len(self.grades)}"]
        lines += [f"  {self.note}"] if self.note else []
        for grade in self.grades:
            line = f"  {grade.exercise:<{width}}  {grade.verdict:<7}  {grade.score:4.2f}  {grade.summary}"
            lines.append(line.rstrip())
            if verbose and grade.verdict != "right":
                said = [*grade.message.splitlines(), *(f"could not be run: {problem}" for problem in grade.problems)]
                lines += [f"      {one_line(line, strip=False)}".rstrip() for line in said]
        told = {grade.message for grade in self.grades}
        return "\n".join([*lines, *(f"  {one_line(problem)}" for problem in self.problems if problem not in told)])

    __str__ = text


def one_line(text: str, strip: bool = True) -> str:
    """A text from outside as one line for a terminal: unprintable characters are written as escapes."""
    text = " ".join(text.split()) if strip else text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def hand_ins(path: Path) -> list[Path]:
    """The hand-ins in a folder and its subfolders, except hidden ones; for any other path, the path itself.

    Links are listed but not followed: see `_read`.
    """
    if path.is_symlink() or not path.is_dir():
        return [path]
    found = []
    for one in _listed(path):
        if one.is_symlink() or not one.is_dir():
            found += [one] if one.suffix in _KINDS or one.is_dir() else []
        else:
            found += [inner for inner in _listed(one) if inner.suffix in _KINDS]
    return found or [path]


def _listed(folder: Path) -> list[Path]:
    """The visible entries of a folder, in order; for an unreadable folder, the folder itself."""
    try:
        return sorted(one for one in folder.iterdir() if one.name[0] != ".")
    except OSError:
        return [folder]


def sandbox(exercises: Sequence[str] | None = None, seed: int | None = None, limits: Limits | None = None) -> Sandbox:
    """The sandbox in which `grade_all` runs hand-ins, a context manager, which raises isolation.Missing on entry.

    Raises ValueError for an unknown exercise.
    """
    unknown = [name for name in exercises or () if name not in (*EXERCISES, *derive.tasks())]
    if unknown:
        raise ValueError(f"there is no exercise {unknown[0]!r}; minitransformer.course.exercises() lists them")
    wanted = [one for name, one in EXERCISES.items() if exercises is None or name in exercises]
    return Sandbox(wanted, drawn_seed() if seed is None else seed, limits or Limits())


def drawn_seed() -> int:
    """An unpredictable seed, so that nobody can prepare a table of answers for it."""
    return secrets.randbelow(2**31)


def grade_all(
    box: Sandbox, paths: Sequence[Path], exercises: Sequence[str] | None = None, jobs: int | None = None
) -> Iterator[Grades]:
    """Grade hand-ins, several at once, and yield the grades of each as soon as it is done.

    exercises: the exercises that count; one that a hand-in does not define is "missing". Without this list all that a
    hand-in defines are graded. jobs: the number of hand-ins at once (default: one for each core).
    """
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    doubts = _same_files(paths)
    try:
        for done in as_completed([pool.submit(_graded, box, path, exercises) for path in paths]):
            grades = done.result()
            yield replace(grades, doubt=doubts.get(grades.file, ""))
    finally:
        box.stop()
        pool.shutdown(cancel_futures=True)


def _graded(box: Sandbox, path: Path, exercises: Sequence[str] | None) -> Grades:
    try:
        data = _read(path)
        outcome = box.run(one_line(path.name), data)
        if outcome.unreadable:
            raise ValueError(f"{path}: {outcome.unreadable}")
        grades = []
        assigned = [name for name, attempt in outcome.attempts.items() if attempt.assigned and not attempt.answers]
        for name in EXERCISES:
            if name in outcome.attempts and name not in assigned:
                grades.append(_judged(name, outcome.attempts[name], box.seed))
            elif name in outcome.broken and (exercises is None or name in exercises):
                grades.append(Grade(name, "wrong", 0.0, outcome.broken[name]))
            elif exercises is not None and name in exercises:
                grades.append(Grade(name, "missing", 0.0, _why_missing(name, name in assigned)))
        grades += _derivations(box, path.name, data, exercises)
        problems = [*outcome.problems, *(f"{name}: {_why_missing(name, True)}" for name in assigned if not grades)]
        return Grades(str(path), tuple(grades), problems=tuple(problems))
    except Stopped:
        return Grades(str(path), error=f"{path}: grading was stopped")
    except Exception as error:  # whatever one hand-in causes, the others are graded
        return Grades(str(path), error=str(error) if isinstance(error, ValueError | OSError) else f"{path}: {error!r}")


def _derivations(box: Sandbox, file: str, data: bytes, exercises: Sequence[str] | None) -> list[Grade]:
    """The grades of the derivations: of those that count, or of all that were handed in."""
    wanted = [name for name in derive.tasks() if exercises is None or name in exercises]
    found = {name: text for name, text in handed_in.answers(file, data).items() if name in wanted} if wanted else {}
    marked = handed_in.marks(found, box.desk)
    grades = []
    for name in wanted:
        if name in marked:
            right, score, message = (marked[name][part] for part in ("right", "score", "message"))
            grades.append(Grade(name, "right" if right else "partial" if score else "wrong", score, message))
        elif exercises is not None:
            grades.append(Grade(name, "missing", 0.0, _why_missing(name, False)))
    return grades


def _why_missing(name: str, assigned: bool) -> str:
    return f"it is assigned, not defined: write def {name}(...)" if assigned else "the hand-in does not define it"


def _judged(name: str, attempt: Attempt, seed: int) -> Grade:
    problems = tuple(attempt.problems)
    if attempt.stopped:
        return Grade(name, "wrong", 0.0, attempt.stopped, None, problems)
    with np.errstate(all="ignore"):  # the answers may contain anything
        result = judge(EXERCISES[name], attempt.answers, seed)
    verdict = "right" if result.right else "partial" if result.score else "wrong"
    return Grade(name, verdict, result.score, str(result), result, problems)


def _same_files(paths: Sequence[Path]) -> dict[str, str]:
    """For hand-ins that are one file under several names (hard links), the other names. They do not say who copied."""
    alike: dict[tuple[int, int], list[str]] = {}
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError):
            found = path.stat(follow_symlinks=False)
            if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
                alike.setdefault((found.st_dev, found.st_ino), []).append(str(path))
    return {
        name: f"it is the same file as {', '.join(other for other in names if other != name)} (a hard link)"
        for names in alike.values()
        for name in names
        if len(names) > 1
    }


def _read(path: Path) -> bytes:
    """The content of a file. Raises ValueError for a file that is not a hand-in, and OSError for an unreadable one.

    Neither the file nor its folder may be a link: it could lead to a classmate's file, or to the teacher's.
    """
    for one in (path, path.parent):
        if one.is_symlink():
            what = "the folder itself" if one.is_dir() else "the file itself"
            raise ValueError(f"{path}: {one.name} is a link, which is not followed; hand in, or name, {what}")
    if path.is_dir():
        raise ValueError(f"cannot read {path}: the folder holds no notebook (.ipynb) or Python file (.py)")
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    if path.suffix not in _KINDS:
        raise ValueError(f"{path}: a hand-in is a notebook, .ipynb, or a Python file, .py")
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW  # opening a FIFO would wait for its writer
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise OSError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > _LARGEST:
        raise ValueError(f"{path} is larger than {_LARGEST // 1_000_000} MB")
    return data
