"""`minitransformer worksheet`: gradients to compute by hand, with the key, and the marking of completed forms."""

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.arrays.files import write
from ..school.course.derive import Derivation, tasks
from ..school.course.marks import table
from ..school.course.worksheets import KINDS, Marks, Sheet, make, mark, read_form, ruled, to_form
from ..school.course.worksheets.hand_out import FORMATS, hand_out, names, tidy_name
from . import Options, UsageError
from .common import listed, progress_bar, unknown

Formats = Mapping[str, Callable[[], str | bytes]]


def main(options: Options) -> int:
    written = [options.html, options.md, options.pdf, options.form]
    if options.kind is None:
        if any((*written, options.grade, options.class_list, options.out)):
            raise UsageError("name the kind of sheet: minitransformer worksheet KIND; without options it lists them")
        return listed([*KINDS, *tasks()])
    if options.kind in tasks():
        _derivation(tasks()[options.kind], options)
        return 0
    if options.kind not in KINDS:
        known = tasks() if options.kind.startswith("derive") else KINDS
        raise UsageError(unknown("worksheet", options.kind, list(known)))
    sizes = KINDS[options.kind].sizes
    if options.size not in sizes:
        raise UsageError(f"--size of {options.kind} must be from {sizes[0]} to {sizes[-1]}, got {options.size}")
    for wrong, message in (
        (options.csv and not options.grade, "--csv prints marks, so it needs --grade FORM"),
        (options.csv and options.json, "--csv and --json are two formats; choose one"),
        (options.out and not options.class_list, "--out needs --class FILE, the list of names"),
        (options.class_list and not (options.out or options.grade), "--class needs --out DIR, where the sheets go"),
        (options.class_list and options.student, "--class and --student exclude each other; choose one"),
        (options.grade and (any(written) or options.out), "--grade marks forms and writes no sheets; drop one of them"),
        (options.out and any(written), "--out takes --format, but not --html, --md, --pdf or --form"),
    ):
        if wrong:
            raise UsageError(message)
    if options.grade:
        return _grade(options)
    (_hand_out if options.class_list else _print)(options)
    return 0


def _print(options: Options) -> None:
    sheet = make(options.kind, options.seed, options.size, tidy_name(options.student))
    document = [(sheet, False), *([(sheet, True)] if options.answers else [])]
    formats = {name: functools.partial(written, document) for name, written in FORMATS.items()}
    _give(options, {**formats, "form": lambda: to_form(sheet)}, lambda: _as_dict(sheet, options.answers))


def _derivation(exercise: Derivation, options: Options) -> None:
    for wrong, message in (
        (options.grade, "a derivation is graded as a hand-in: minitransformer grade FILE"),
        (options.class_list or options.out, "a derivation is the same for the whole class: print one, and copy it"),
        (options.form or options.csv, "a derivation has no numbers, and so neither --form nor --csv"),
    ):
        if wrong:
            raise UsageError(f"{exercise.name}: {message}")
    about = (exercise, tidy_name(options.student), options.answers)
    formats = {name: functools.partial(written, *about) for name, written in ruled.FORMATS.items()}
    _give(options, formats, lambda: ruled.as_dict(exercise, options.answers))


def _give(options: Options, formats: Formats, as_dict: Callable[[], dict[str, Any]]) -> None:
    """Write the files that the options name; print JSON instead of their names, or the text if there are none."""
    written = [(path, make_it()) for name, make_it in formats.items() if (path := getattr(options, name))]
    for path, content in written:
        write(path, content)
    if options.json:
        print(json.dumps(as_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    elif written:
        print(*(f"wrote {path}" for path, _ in written), sep="\n")
    else:
        print(formats["md"](), end="")


def _hand_out(options: Options) -> None:
    students = names(_read(options.class_list))
    with progress_bar("worksheet", "sheet")(students) as bar:  # closed before any error message
        sheets = (make(options.kind, options.seed, options.size, student) for student in bar)
        paths = hand_out(sheets, options.out, options.format)
    print(f"wrote {len(students)} sheets, each with a form, to {options.out}")
    print(f"the answers to all of them: {paths[-1]}")


def _grade(options: Options) -> int:
    students = names(_read(options.class_list)) if options.class_list else None
    found: list[tuple[Path, Marks | None, str]] = []
    for path in options.grade:
        try:
            marks = mark(read_form(_read(path)))
            problem = _misplaced(marks.sheet, options, students)
        except (ValueError, OSError) as error:
            marks, problem = None, str(error)
        found.append((path, None if problem else marks, problem))
    if options.json:
        told = [{"error": problem} if marks is None else marks.as_dict(options.answers) for _, marks, problem in found]
        forms = [{"file": str(path)} | each for (path, _, _), each in zip(found, told, strict=True)]
        print(json.dumps({"forms": forms}, indent=1, ensure_ascii=False, allow_nan=False))
    elif options.csv:
        print(_table(found), end="")
    else:
        print("\n\n".join(marks.table(options.answers) for _, marks, _ in found if marks is not None))
    wrong = [(path, problem) for path, _, problem in found if problem]
    for path, problem in [] if options.json else wrong:
        print(f"minitransformer: {path}: {' '.join(problem.split())}", file=sys.stderr)
    return 1 if wrong else 0


def _misplaced(sheet: Sheet, options: Options, students: Sequence[str] | None) -> str:
    """Why a form does not match the sheet being marked, or "". A student may have changed the form's head."""
    wanted = f"{options.kind}, seed {options.seed}, size {options.size}"
    if sheet.label != wanted:
        return f"this form is for {sheet.label}, but {wanted} is being marked"
    if students is not None and sheet.student not in students:
        return f"the class list has no {sheet.student!r}"
    if options.student and sheet.student != tidy_name(options.student):
        return f"this form is {sheet.student!r}'s, not {options.student!r}'s"
    return ""


def _table(found: list[tuple[Path, Marks | None, str]]) -> str:
    rows = [["file", "student", "worksheet", "right", "of", "score", "follows", "error"]]
    for path, marks, problem in found:
        told: list[object] = [""] * 6
        if marks is not None:
            told = [marks.sheet.student, marks.sheet.label, marks.right, marks.blanks, f"{marks.score:.4f}"]
            told.append(sum(step.follows for step in marks.steps))
        rows.append([*map(str, [path, *told]), problem])
    return table(rows)


def _as_dict(sheet: Sheet, answers: bool) -> dict[str, Any]:
    def numbers(name: str) -> list[list[float]]:
        return [[round(float(x), 9) + 0.0 for x in row] for row in sheet.boxes(name)]

    given = [{"name": each.name, "unit": each.unit, "numbers": numbers(each.name)} for each in sheet.task.given]
    steps = []
    for step in sheet.task.steps:
        part, shape = "backward" if step.backward else "forward", list(sheet.boxes(step.name).shape)
        about = {"name": step.name, "formula": step.formula, "part": part, "unit": step.unit, "shape": shape}
        steps.append(about | ({"answers": numbers(step.name)} if answers else {}))
    return sheet.head | {"title": sheet.task.title, "notes": list(sheet.task.notes), "given": given, "steps": steps}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise OSError(f"cannot read {path}: {error.strerror or error}") from error
