"""`minitransformer grade`: grade the exercises in notebooks and Python files."""

import json
import sys

from tqdm import tqdm

from ..core.arrays.files import write
from ..school.course import derive, marks
from ..school.course.exercises import EXERCISES
from ..school.course.grading import Grades, drawn_seed, grade_all, hand_ins, sandbox
from ..school.course.sandbox import Limits
from . import Options, UsageError
from .common import known_as


def main(options: Options) -> int:
    if options.csv and options.json:
        raise UsageError("--csv and --json are two formats; choose one")
    if not 0 < options.seconds < 1e6:
        raise UsageError(f"--seconds must be greater than 0, got {options.seconds:g}")
    if not 256 <= options.memory < 1e9:
        raise UsageError(f"--memory must be at least 256 (MB), which Python and NumPy need, got {options.memory}")
    known, chosen = [*EXERCISES, *derive.tasks()], options.exercises
    wanted = None if chosen is None else [known_as("grade", name.strip(), known) for name in chosen.split(",")]
    if options.out is not None and wanted is None:
        raise UsageError(
            "--out needs --exercises A,B,...: without it the exercises that one file adds would count for all students"
        )
    options.files = list(dict.fromkeys(path for given in options.files for path in hand_ins(given)))
    if options.out is not None:
        (options.out / "feedback").mkdir(parents=True, exist_ok=True)  # before the work, in case this fails
    seed = drawn_seed() if options.seed is None else options.seed
    as_text = not (options.csv or options.json)
    at_once = wanted is not None or len(options.files) == 1  # otherwise only the last file tells which exercises count
    found: dict[str, Grades] = {}
    interrupted = False
    with (
        sandbox(wanted, seed, Limits(options.seconds, options.memory * 1024**2)) as box,
        tqdm(total=len(options.files), desc="grade", unit="file", leave=False, disable=None) as bar,
    ):
        if as_text:
            print(f"seed {seed}\n")
        try:
            for grades in grade_all(box, options.files, wanted):
                found[grades.file] = grades
                if as_text and at_once and not grades.error:
                    tqdm.write(f"{grades.text(options.verbose)}\n")
                    sys.stdout.flush()
                bar.update()
        except KeyboardInterrupt:
            interrupted = True
    if as_text and not at_once:
        exercises = marks.columns(found.values(), None)
        for path in filter(found.__contains__, map(str, options.files)):
            if not found[path].error:
                print(f"{found[path].over(exercises).text(options.verbose)}\n")
    return _report(options, found, wanted, seed, interrupted)


def _report(options: Options, found: dict[str, Grades], wanted: list[str] | None, seed: int, interrupted: bool) -> int:
    names = marks.students(options.files)
    places = zip(names, map(str, options.files), strict=True)
    graded = {student: found[path] for student, path in places if path in found}
    exercises = marks.columns(graded.values(), wanted)
    for alone in marks.lone(list(graded.values())) if wanted is None else ():
        print(f"minitransformer: warning: {alone}, which counts for all; --exercises says what counts", file=sys.stderr)
    graded = {student: grades.over(exercises) for student, grades in graded.items()}
    table = marks.spreadsheet(graded, exercises, seed)
    if options.json:
        files = [{"student": marks.one_line(student)} | grades.as_dict() for student, grades in graded.items()]
        print(json.dumps({"seed": seed, "files": files}, indent=1, allow_nan=False))
    elif options.csv:
        print(table, end="")
    if options.out is not None:
        write(options.out / "marks.csv", table)
        write(options.out / "moodle.csv", marks.moodle(graded, exercises))
        write(options.out / "canvas.csv", marks.canvas(graded, exercises, options.out.absolute().name))
        for student, file in marks.feedback_files(list(graded)).items():
            write(options.out / "feedback" / file, marks.feedback(student, graded[student], seed))
    for grades in graded.values():
        if grades.error:
            print(f"minitransformer: error: {grades.note}", file=sys.stderr)
    if interrupted:
        print(f"minitransformer: interrupted: {len(found)} of {len(options.files)} files graded", file=sys.stderr)
        return 130
    return 1 if any(grades.error for grades in graded.values()) else 0
