"""Worksheets: the answers are right and easy to write for hundreds of seeds, and marks follow from an early slip."""

import csv
import functools
import io
import json
import random
import re

import numpy as np
import pytest
from tiers import in_one

from minitransformer.cli import main
from minitransformer.school.course.worksheets import KINDS, make, mark, page, read_form, to_form, to_html, to_markdown
from minitransformer.school.course.worksheets import kinds as worksheet_kinds
from minitransformer.school.course.worksheets.hand_out import names, tidy_name
from minitransformer.school.course.worksheets.pdf import to_pdf
from minitransformer.school.course.worksheets.sheet import UNITS, number

SEEDS = 60
ROUNDED = {"losses", "loss"}  # logarithms; all else is exact


@functools.cache
def sheets_of(kind, seeds=12):
    """Its sheets of the first seeds, over all its sizes."""
    sizes = KINDS[kind].sizes
    return [make(kind, seed, sizes[seed % len(sizes)]) for seed in range(seeds)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_agrees_with_its_formula_and_every_gradient_with_finite_differences(kind):
    for sheet in sheets_of(kind, SEEDS):
        found = list(worksheet_kinds.errors(sheet))
        by_formula = {name for name, by, _ in found if by == "formula"}
        by_difference = {name for name, by, _ in found if by == "difference"}
        assert by_formula == {step.name for step in sheet.task.steps}
        assert by_difference == {step.name for step in sheet.backward_steps}
        assert max(error for _, _, error in found) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_answer_would_be_seen(kind, which):
    """Each answer in turn is changed a little, and the check names it, or the first step that is computed from it."""
    sheet = sheets_of(kind)[which]
    right = dict(sheet.answers)
    for step in sheet.task.steps:
        for place in np.ndindex(right[step.name].shape):
            changed = right[step.name].copy()
            changed[place] += 1e-3
            sheet.__dict__["answers"] = right | {step.name: changed}
            with pytest.raises(RuntimeError, match=re.escape(f"the answer to {step.name} of {sheet.label}")):
                worksheet_kinds.require_right(sheet)
    sheet.__dict__["answers"] = right


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_humane(kind):
    for sheet in sheets_of(kind, SEEDS):
        for given in sheet.task.given:
            boxes = sheet.boxes(given.name)
            boxes = boxes[boxes != given.ignored] if given.ignored is not None else boxes
            assert (np.abs(boxes) < 100).all() and np.allclose(boxes, boxes.round(), atol=1e-9)
        for step in sheet.task.steps:
            boxes = sheet.boxes(step.name)
            assert (np.abs(boxes) < 100).all(), (sheet.label, step.name)
            if step.name not in ROUNDED:  # what is printed is the number itself, and at most four decimals long
                printed = np.array([[float(number(x)) for x in row] for row in boxes])
                assert np.allclose(printed, boxes, atol=1e-7), (sheet.label, step.name)
        before_softmax = ["scores"] if kind.startswith("attention") else []
        for name in before_softmax:
            assert np.allclose(sheet.boxes(name), sheet.boxes(name).round(), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_unequal_and_sheets_differ(kind):
    texts = {to_markdown(sheet) for sheet in sheets_of(kind, SEEDS)}
    assert len(texts) == SEEDS
    first = make(kind).task.given[0].value
    assert first.ndim == 1 or first.shape[0] != first.shape[1]


def test_the_embedding_has_a_token_twice_and_one_that_does_not_come():
    for sheet in sheets_of("embedding-backward"):
        ids = sheet.given["ids"].tolist()
        assert len(set(ids)) < len(ids) and len(set(ids)) < len(sheet.given["table"])
        assert (sheet.boxes("dtable")[[n for n in range(len(sheet.given["table"])) if n not in ids]] == 0).all()


def test_the_same_sheet_on_every_machine():
    """Fixed once and for all: a change would give every teacher a key that differs from the sheets handed out."""
    assert make("softmax-backward", 7).boxes("dy").tolist() == [[-4, 3, -5], [-2, 2, 6]]
    assert make("attention-backward", 7).boxes("v").tolist() == [[-2, 2], [-3, -3], [-2, -4]]


@in_one("kind", KINDS)
def test_a_student_s_sheet_is_their_own(kind):
    sheets = [make(kind, 7, student=name) for name in ("Ada", "Alan", "", "Ada")]
    texts = [to_markdown(sheet).replace("Ada", "").replace("Alan", "").replace("_" * 30, "") for sheet in sheets]
    assert texts[0] == texts[3] and len(set(texts)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("softmax", 0), "there is no worksheet"), (("softmax-backward", 0, 9), "size must be from 3 to 5")],
)
def test_unknown_kinds_and_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(*arguments)


# ---- Pages. ----


def every_size():
    return [make(kind, 11, size) for kind, about in KINDS.items() for size in about.sizes]


def test_every_sheet_and_every_key_fits_on_a_page_in_one_layout():
    for sheet in every_size():
        blank, key = page(sheet), page(sheet, key=True)
        assert blank.scale == key.scale >= 0.7
        shown = {block.name for _, lines in blank.sections for line in lines for block in line}
        assert shown == {*sheet.given, *sheet.answers}


@pytest.mark.slow
def test_pdf_has_a_page_for_each():
    sheet = make("attention-backward", 7, student="Zoë Łukasiewicz $x_1$")
    pdf = to_pdf([page(sheet), page(sheet, key=True), page(make("embedding-backward", 1))])
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\b", pdf)) == 3
    assert len(re.findall(rb"/MediaBox \[ 0 0 595\.\d+ 841\.\d+ \]", pdf)) == 3  # A4
    assert pdf == to_pdf([page(sheet), page(sheet, key=True), page(make("embedding-backward", 1))])


def test_a_name_that_the_pdf_cannot_show_is_refused():
    with pytest.raises(ValueError, match="has no '王'"):
        to_pdf([page(make("softmax-backward", 1, student="王"))])


def test_html_holds_what_it_should_and_no_markup_of_a_name():
    sheet = make("attention-backward", 7, student='<script>alert("x")</script>&')
    html = to_html([page(sheet), page(sheet, key=True)])
    assert html.count("<article") == 2 and "<script" not in html and "&lt;script&gt;" in html
    assert not re.search(r"https?://|<link|<img|@import|url\(", html)
    tables = re.findall(r'<table class="(\w+)"', html)
    n_given, n_steps = len(sheet.given), len(sheet.answers)
    assert [tables.count(kind) for kind in ("given", "blank", "answer")] == [2 * n_given, n_steps, n_steps]
    blanks = "".join(re.findall(r'<table class="blank".*?</table>', html, re.S))
    assert blanks.count("<td></td>") == sum(answer.size for answer in sheet.answers.values())
    answers = re.findall(r"<td>([^<]+)</td>", "".join(re.findall(r'<table class="answer".*?</table>', html, re.S)))
    wanted = [x for step in sheet.task.steps for x in sheet.boxes(step.name).flat]
    assert [float(text.replace("−", "-")) for text in answers] == pytest.approx(wanted)


def test_markdown_shows_a_blank_for_every_answer_and_no_markup_of_a_name():
    sheet = make("layer-norm-backward", 3, student="*Ada* <b>")
    text = to_markdown(sheet)
    assert text.count("____") == sum(answer.size for answer in sheet.answers.values())
    assert r"\*Ada\* \<b\>" in text
    for step in sheet.task.steps:
        assert f"**{step.formula}**" in text


# ---- Forms and marks. ----


def filled(sheet, values):
    """A form with these numbers in the boxes."""
    lines = to_form(sheet).partition("# Replace each")[0].splitlines()
    for step in sheet.task.steps:
        boxes = np.atleast_2d(values[step.name]) / UNITS[step.unit]
        lines += [f"{step.name}:", *(" ".join("_" if np.isnan(x) else f"{x:.5f}" for x in row) for row in boxes)]
    return "\n".join(lines)


def marked(sheet, values):
    return mark(read_form(filled(sheet, values)))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_key_gets_full_marks_and_an_empty_form_none(kind):
    for sheet in sheets_of(kind):
        full, empty = mark(read_form(to_form(sheet, filled=True))), mark(read_form(to_form(sheet)))
        assert full.score == 1.0 and all(step.verdict == "right" for step in full.steps)
        assert empty.right == 0 and all(step.verdict == "not answered" for step in empty.steps)
        assert full.blanks == sum(answer.size for answer in sheet.answers.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_slip_costs_its_own_marks_alone(kind):
    """At every step in turn: some entries are wrong there, and all that comes after is computed from them."""
    chance = random.Random(kind)
    for sheet in sheets_of(kind)[:12]:
        for k, slipped in enumerate(sheet.task.steps):
            values = dict(sheet.given)
            for i, step in enumerate(sheet.task.steps):
                values[step.name] = np.array(step.computed(values), dtype=float)
                if i == k:
                    places = list(np.ndindex(values[step.name].shape))
                    wrong = chance.sample(places, chance.randint(1, len(places)))
                    for place in wrong:  # not 0, which the sums of weights and deviations must not become
                        values[step.name][place] += UNITS[step.unit] * (1 + chance.randint(0, 2))
            if not all(np.isfinite(value).all() for value in values.values()):
                continue
            marks = marked(sheet, values)
            assert marks.right == marks.blanks - len(wrong), (sheet.label, slipped.name, str(marks))
            for step, found in zip(sheet.task.steps, marks.steps, strict=True):
                differs = ~np.isclose(
                    values[step.name], sheet.answers[step.name], rtol=0.0, atol=1.1e-3 * UNITS[step.unit]
                )
                if step is slipped:
                    assert {tuple(place) for place in found.wrong} == {
                        (1, 1)
                        if place == ()
                        else (1, place[0] + 1)
                        if len(place) == 1
                        else (place[0] + 1, place[1] + 1)
                        for place in wrong
                    }
                elif differs.any():
                    assert found.follows == differs.sum() and "follows from your earlier slip" in found.verdict
                else:
                    assert (found.verdict, found.follows) == ("right", 0)


@pytest.mark.parametrize("everywhere", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_one_number_in_every_blank_earns_what_is_so_in_the_key(kind, everywhere):
    for sheet in sheets_of(kind)[:3]:
        units = {step.name: UNITS[step.unit] for step in sheet.task.steps}
        values = {name: np.full(x.shape, everywhere * units[name]) for name, x in sheet.answers.items()}
        right = sum((abs(x - values[name]) <= 1.2e-3 * units[name]).sum() for name, x in sheet.answers.items())
        assert marked(sheet, values).right <= right


def test_a_slip_and_then_the_key_s_numbers_are_right_as_well():
    sheet = make("attention-backward", 7)
    values = dict(sheet.answers) | {"weights": sheet.answers["weights"] + 0.1}
    marks = marked(sheet, values)
    assert marks.right == marks.blanks - values["weights"].size


def test_what_is_left_blank_is_taken_from_the_key_by_what_follows():
    sheet = make("softmax-backward", 7)
    values = {name: np.array(value) for name, value in sheet.answers.items()}
    values["y"][0, :] = np.nan
    marks = marked(sheet, values)
    verdicts = {step.name: step.verdict for step in marks.steps}
    assert (marks.right, verdicts["y"]) == (marks.blanks - 3, "3 left blank")
    assert {verdict for name, verdict in verdicts.items() if name != "y"} == {"right"}


def test_rounding_to_three_decimals_is_right_and_to_one_is_not():
    sheet = make("cross-entropy-backward", 3)
    for decimals, right in ((3, True), (1, False)):
        values = {name: np.round(np.asarray(value), decimals) for name, value in sheet.answers.items()}
        assert (marked(sheet, values).score == 1.0) is right


def test_a_slip_that_makes_a_total_zero_breaks_nothing():
    sheet = make("softmax-backward", 7)
    values = dict(sheet.answers) | {"total": np.zeros((2, 1))}
    marks = marked(sheet, values)
    assert marks.right == marks.blanks - 2
    json.dumps(marks.as_dict(expected=True), allow_nan=False)


def test_expected_numbers_are_those_after_the_slip():
    sheet = make("matmul-backward", 1)
    values = {name: np.array(value) for name, value in sheet.answers.items()}
    values["dW"][1, 2] += 3
    marks = marked(sheet, values)
    assert "wrong at row 2 column 3" in str(marks) and "expected" not in str(marks)
    assert f"expected there: {number(sheet.answers['dW'][1, 2])}" in marks.table(expected=True)


@in_one("text, value", [("3", 3), ("-0.25", -0.25), ("−0.25", -0.25), ("1/3", 1 / 3), (".5", 0.5), ("+2.", 2)])
def test_numbers_that_a_form_may_hold(text, value):
    sheet = make("softmax-backward", 7)
    form = to_form(sheet).replace("  _  _  _", f"{text}, _ _  # a remark", 1)
    assert read_form(form).values["E"][0, 0] == pytest.approx(value)


@in_one(
    "old, new, message",
    [
        ("worksheet: softmax-backward", "worksheet: nothing", "there is no worksheet 'nothing'"),
        ("worksheet: softmax-backward", "", "its line `worksheet: ...` is missing"),
        ("seed: 7", "seed: seven", "seed must be a whole number, got 'seven'"),
        ("seed: 7", "seed: 99999999999999999999", "seed must be a whole number"),
        ("size: 3", "size: 30", "size must be from 3 to 5"),
        ("  _  _  _", "  1  2", "line 9: a row of E has 3 numbers, got 2"),
        ("  _  _  _", "  1  2  3\n 4 5 6", "E has 2 rows, got 3"),
        ("  _  _  _", "  1  nan  3", "'nan' is not a number"),
        ("  _  _  _", "  1  1e999  3", "'1e999' is not a number"),
        ("  _  _  _", "  1  1/0  3", "divides by zero"),
        ("  _  _  _", "  1  3,5", "line 9: a row of E has 3 numbers, got 3"),
        ("  _  _  _", "  1  __import__('os')  3", "is not a number"),
        ("E:", "F:", "has no step 'F'"),
        ("total:", "E:", "E: occurs twice"),
        ("E:", "1 2 3", "line 8: expected the name of a step"),
    ],
)
def test_forms_that_cannot_be_read(old, new, message):
    form = to_form(make("softmax-backward", 7))
    assert old in form
    if "got 3" in message and "row of" in message:  # a decimal comma makes two numbers of one, and is seen by the count
        form, message = form.replace(old, "  1,5  2  3", 1), "a row of E has 3 numbers, got 4"
    with pytest.raises(ValueError, match=re.escape(message)):
        read_form(form.replace(old, new, 1))


def test_what_is_no_form_at_all():
    for text in ("", "\0", "[" * 1000, "x" * 200_000, '{"a": 1}'):
        with pytest.raises(ValueError):
            read_form(text)


# ---- The class. ----


def test_names_of_a_class_list():
    assert names("\ufeff".strip("\ufeff") + "Ada \n\n# a remark\n  Jose\u0301   Garc\u00eda\n") == [
        "Ada",
        "José García",
    ]
    assert tidy_name("a\x1b[31m\tb\u202e") == "a [31m b"
    for text, message in (("", "no names"), ("# x\n", "no names"), ("Ada\n Ada\n", "twice")):
        with pytest.raises(ValueError, match=message):
            names(text)


def run(capsys, *arguments):
    try:
        status = main(["worksheet", *map(str, arguments)])
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def test_a_class_gets_a_folder(tmp_path, capsys):
    listed = tmp_path / "names.txt"
    listed.write_text("Ada L.\nada l\n../../etc\nanswer-key\n\U0001f600\n", encoding="utf-8")
    out = tmp_path / "out"
    arguments = ("softmax-backward", "--seed", 5, "--class", listed, "--out", out, "--format", "html")
    status, text, err = run(capsys, *arguments)
    assert (status, err) == (0, "") and "wrote 5 sheets" in text
    stems = ["Ada-L", "ada-l-2", "etc", "answer-key-2", "student"]
    files = {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}
    assert set(files) == {f"{stem}.{form}" for stem in stems for form in ("html", "txt")} | {"answer-key.html"}
    assert files["answer-key.html"].count("<article") == 5 and files["Ada-L.html"].count("<article") == 1
    run(capsys, *arguments)
    assert files == {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}
    forms = [out / f"{stem}.txt" for stem in stems]
    sheet = make("softmax-backward", 5, student="Ada L.")
    forms[0].write_text(to_form(sheet, filled=True), encoding="utf-8")
    grade = ("softmax-backward", "--seed", 5, "--class", listed, "--grade", *forms)
    status, text, _ = run(capsys, *grade, "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert status == 0 and [row["student"] for row in rows] == [
        "Ada L.",
        "ada l",
        "../../etc",
        "answer-key",
        "\U0001f600",
    ]
    assert [row["score"] for row in rows] == ["1.0000", "0.0000", "0.0000", "0.0000", "0.0000"]
    status, _, err = run(capsys, *arguments)
    assert status == 1 and "Ada-L.txt is not the blank form of these sheets" in err
    assert forms[0].read_text(encoding="utf-8") == to_form(sheet, filled=True)


# ---- The command. ----


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sheet_on_the_screen(capsys, kind):
    status, out, err = run(capsys, kind, "--seed", 7)
    assert (status, err) == (0, "") and out == to_markdown(make(kind, 7))
    status, out, _ = run(capsys, kind, "--seed", 7, "--answers")
    assert out == to_markdown(make(kind, 7)) + "\n---\n\n" + to_markdown(make(kind, 7), key=True)


def test_files_are_written(tmp_path, capsys):
    paths = {name: tmp_path / f"sheet.{name}" for name in ("html", "md", "pdf", "form")}
    options = [text for name, path in paths.items() for text in (f"--{name}", path)]
    status, out, _ = run(capsys, "attention-backward", "--seed", 7, "--size", 4, "--answers", *options)
    assert status == 0 and out == "".join(f"wrote {paths[name]}\n" for name in ("pdf", "html", "md", "form"))
    assert paths["html"].read_text(encoding="utf-8").count("<article") == 2
    assert len(re.findall(rb"/Type /Page\b", paths["pdf"].read_bytes())) == 2
    assert paths["form"].read_text(encoding="utf-8") == to_form(make("attention-backward", 7, 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths.values())


def test_json_holds_the_sheet_and_its_answers_only_when_asked(capsys):
    sheet = json.loads(run(capsys, "layer-norm-backward", "--json")[1])
    assert "answers" not in json.dumps(sheet) and sheet["steps"][0]["shape"] == [2, 1]
    key = json.loads(run(capsys, "layer-norm-backward", "--json", "--answers")[1])
    assert key["steps"][-1]["answers"] == make("layer-norm-backward").boxes("dx").round(9).tolist()


def test_a_form_is_graded(tmp_path, capsys):
    sheet = make("softmax-backward", 7)
    values = {name: np.array(value) for name, value in sheet.answers.items()}
    values["total"][0] += 10  # 20 in place of 10; the rest of the row follows
    values["y"][0] /= 2
    path = tmp_path / "form.txt"
    path.write_text(filled(sheet, values), encoding="utf-8")
    status, out, err = run(capsys, "softmax-backward", "--seed", 7, "--grade", path)
    assert (status, err) == (0, "")
    assert "total   1 of  2  wrong at row 1 column 1" in out
    assert "y       6 of  6  right, follows from your earlier slip" in out
    status, out, _ = run(capsys, "softmax-backward", "--seed", 7, "--grade", path, "--json", "--answers")
    (form,) = json.loads(out)["forms"]
    assert form["steps"][1]["expected"] == ["10"]


def test_forms_of_another_sheet_are_refused_and_the_others_graded(tmp_path, capsys):
    contents = {
        "good": to_form(make("softmax-backward", 7, student="Ada"), filled=True),
        "other": to_form(make("softmax-backward", 8, student="Ada"), filled=True),
        "stranger": to_form(make("softmax-backward", 7, student="Eve"), filled=True),
        "broken": "nothing",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    listed = tmp_path / "names.txt"
    listed.write_text("Ada\n")
    paths = [tmp_path / name for name in (*contents, "absent")]
    arguments = ("softmax-backward", "--seed", 7, "--class", listed, "--grade", *paths)
    status, out, err = run(capsys, *arguments)
    assert status == 1 and out.count("100 %") == 1 and err.count("\n") == 4
    for part in (
        "this form is for softmax-backward, seed 8",
        "the class list has no 'Eve'",
        "broken: line 1",
        "cannot read",
    ):
        assert part in err
    forms = json.loads(run(capsys, *arguments, "--json")[1])["forms"]
    assert ["error" in form for form in forms] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["softmax"], "did you mean 'softmax-backward'?"),
        (["softmax-backward", "--size", "9"], "must be from 3 to 5, got 9"),
        (["softmax-backward", "--seed", "-1"], "at least 0"),
        (["softmax-backward", "--csv"], "needs --grade"),
        (["--grade", "anna.txt"], "name the kind of sheet"),
        (["--pdf", "sheet.pdf"], "name the kind of sheet"),
        (["softmax-backward", "--out", "x"], "needs --class"),
        (["softmax-backward", "--class", "x"], "needs --out"),
        (["softmax-backward", "--class", "x", "--out", "y", "--pdf", "z"], "takes --format"),
        (["softmax-backward", "--class", "x", "--out", "y", "--student", "z"], "choose one"),
        (["softmax-backward", "--grade", "x", "--pdf", "z"], "writes no sheets"),
    ],
)
def test_bad_usage(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1


def test_a_file_that_cannot_be_written(tmp_path, capsys):
    status, _, err = run(capsys, "softmax-backward", "--html", tmp_path / "absent" / "a.html")
    assert status == 2 and "there is no folder" in err and err.count("\n") == 1
