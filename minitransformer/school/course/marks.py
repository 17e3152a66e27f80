"""The marks of a class as tables: for a spreadsheet, and in the forms that Moodle and Canvas import.

A student's name is the file name without its ending. If two files have the same name, it is the folder's name, followed
by the file's if there are two in the folder. So files that are named after the students need no further list.
"""

import csv
import html
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .grading import Grades, one_line


def students(paths: Sequence[Path]) -> list[str]:
    """The name of the student for each file; no two are equal.

    Somebody who hands in two files changes only the names of these two.
    """
    names = [path.stem for path in paths]
    if len(set(names)) == len(names):
        return names
    names = [path.absolute().parent.name if path.suffix else path.name for path in paths]  # or a link to a folder
    for longer in (
        [f"{name}/{path.stem}" for name, path in zip(names, paths, strict=True)],
        [str(path.with_suffix("")) for path in paths],
        [str(path) for path in paths],
    ):
        count = Counter(names)
        names = [name if count[name] == 1 else other for name, other in zip(names, longer, strict=True)]
    return names


def columns(graded: Iterable[Grades], exercises: Sequence[str] | None) -> list[str]:
    """The exercises that count, for every hand-in: those given, otherwise all that anybody handed in."""
    names = [grade.exercise for grades in graded for grade in grades.grades] if exercises is None else exercises
    return list(dict.fromkeys(names))


def lone(graded: Sequence[Grades]) -> list[str]:
    """A sentence for each exercise that only one of several hand-ins defines: without a list it counts for all."""
    definers: dict[str, list[str]] = {}
    for grades in graded:
        for grade in grades.grades:
            definers.setdefault(grade.exercise, []).append(one_line(grades.file))
    return [f"only {one[0]} defines {name}" for name, one in definers.items() if len(one) == 1 < len(graded)]


def spreadsheet(graded: dict[str, Grades], exercises: list[str], seed: int) -> str:
    """One row for each student: the total, the exercises, the seed of the inputs, and why there are no marks."""
    rows = [["student", "file", "score", "of", "percent", *exercises, "seed", "note"]]
    for student, grades in graded.items():
        scores = _scores(grades, exercises)
        total = sum(scores)
        percent = 100.0 * total / len(exercises) if exercises else 0.0
        head = [student, one_line(grades.file), f"{total:.4f}", str(len(exercises)), f"{percent:.1f}"]
        rows.append([*head, *(f"{score:.4f}" for score in scores), str(seed), grades.note])
    return table(rows)


def moodle(graded: dict[str, Grades], exercises: list[str]) -> str:
    """For Moodle, Grades > Import > CSV file: columns for the user, the points, the total and the feedback.

    Map "Username" (or "Email address", if all names are addresses) to the user and the others to grade items. The
    feedback belongs to the total, because Moodle drops the grades of an item whose feedback comes alone
    (https://docs.moodle.org/405/en/Grade_import).
    """
    user = "Email address" if graded and all("@" in student for student in graded) else "Username"
    rows = [[user, *exercises, "Total", "Feedback"]]
    for student, grades in graded.items():
        scores = _scores(grades, exercises)
        said = html.escape(grades.text()).replace("\n", "<br>")  # Moodle shows it as HTML
        rows.append([student, *(f"{score:.4f}" for score in scores), f"{sum(scores):.4f}", said])
    return table(rows)


def canvas(graded: dict[str, Grades], exercises: list[str], title: str) -> str:
    """For Canvas, Grades > Import: its five columns, one assignment, and the row of possible points.

    Canvas finds a student by the login, because ID and SIS User ID are empty
    (https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807).
    """
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", title]]
    rows.append(["Points Possible", "", "", "", "", str(len(exercises))])
    for student, grades in graded.items():
        rows.append([student, "", "", student, "", f"{sum(_scores(grades, exercises)):.4f}"])
    return table(rows)


def feedback_files(students: Sequence[str]) -> dict[str, str]:
    """The name of each student's file: letters, digits and a few signs. No two are equal, even ignoring case."""
    files: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        plain = re.sub(r"[^\w.@ +-]", "_", student)[:60].strip(". ") or "_"
        file = next(
            name for i in itertools.count(1) if (name := plain if i == 1 else f"{plain} {i}").lower() not in taken
        )
        taken.add(file.lower())
        files[student] = f"{file}.txt"
    return files


def feedback(student: str, grades: Grades, seed: int) -> str:
    """The feedback to a student: all remarks on each exercise."""
    return f"{one_line(student)}\n\n{grades.text(verbose=True)}\n\n(seed {seed})\n"


def _scores(grades: Grades, exercises: list[str]) -> list[float]:
    found = {grade.exercise: grade.score for grade in grades.grades}
    return [found.get(name, 0.0) for name in exercises]


def table(rows: list[list[str]]) -> str:
    """The rows as CSV that a spreadsheet shows as it is."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([[_cell(text) for text in row] for row in rows])
    return target.getvalue()


def _cell(text: str) -> str:
    """The text so that a spreadsheet shows it as it is: one that begins with =, +, - or @ would be a formula."""
    text = one_line(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
