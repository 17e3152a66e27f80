"""The workbooks of `minitransformer sheet`: what their formulas compute is what Python computes, whatever the inputs.

A small spreadsheet (spreadsheet.py) computes them. LibreOffice does where it is installed:

    apt-get install --no-install-recommends libreoffice-calc
    .venv/bin/pytest -m libreoffice tests/test_sheets.py
"""

import dataclasses
import functools
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from spreadsheet import Spreadsheet
from tiers import in_one

from minitransformer.cli import main
from minitransformer.school.show.sheet import workbook
from minitransformer.school.show.sheet.again import again, given_numbers
from minitransformer.school.show.sheet.blocks import Blocks, blocks_of
from minitransformer.school.show.sheet.layout import range_name, unique_names
from minitransformer.school.show.sheet.sizes import resized, sizes_of
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.school.show.stepper.page_edits import entry_of, followed
from minitransformer.school.show.stepper.recording import Recording

EDITS = 20
REFUSED = ["experts", "routing"]
WRITTEN = [name for name in EXAMPLES if name not in REFUSED]


@functools.cache
def made(name: str) -> tuple[Recording, bytes, Blocks]:
    recording = EXAMPLES[name].record()
    return recording, workbook(recording, name), blocks_of(recording, name)


class Sheet:
    """A workbook with the recording that it was made from."""

    def __init__(self, recording: Recording, content: bytes, blocks: Blocks) -> None:
        self.recording, self.content, self.blocks = recording, content, blocks
        self.book = Spreadsheet(self.content)
        self.range = {serial: range_name(name) for serial, name in unique_names(self.blocks).items()}
        self.inputs = {block.name: block for block in self.blocks.all if block.kind == "input"}

    def edit(self, seed: int) -> dict[str, np.ndarray]:
        """One number of each array of the inputs, and with it the gradient of the output, is another."""
        rng = np.random.default_rng(seed)
        numbers = given_numbers(self.recording)
        edited = {name: np.array(numbers[name]) for name in self.inputs}
        for array in edited.values():
            at = rng.integers(array.size)
            moved = array.flat[at] + rng.normal() if array.shape else abs(array.flat[at]) * 1.25  # 1.25: a setting
            array.flat[at] = round(moved, 2) if array.shape else moved
        return edited

    def differs(self, numbers: dict[str, np.ndarray], book: Spreadsheet) -> float:
        """The largest difference from what Python computes from these numbers, relative to a number above 1."""
        fresh, largest = again(self.recording, numbers), 0.0
        for block in self.blocks.all:
            array = fresh.bindings[self.recording.number_of[block.serial]][1].value.array
            wanted = np.where(np.isneginf(np.asarray(array, float)), -1e300, np.asarray(array, float)).ravel()
            found = np.array(book.numbers(self.range[block.serial]), float)
            assert found.shape == wanted.shape, block.name
            largest = max(largest, (abs(found - wanted) / np.maximum(1.0, abs(wanted))).max())
        return largest


def type_into(book: Spreadsheet, sheet: Sheet, numbers: dict[str, np.ndarray]) -> None:
    for name, array in numbers.items():
        places = book.places(sheet.range[sheet.inputs[name].serial])
        for place, number in zip(places, array.ravel(), strict=True):
            book.put(place, float(number))


def cases(names: list[str], quick: list[str]) -> list:
    """Beside the quick ones every fourth is slow, and the others are a sweep."""
    mark = [pytest.mark.sweep if i % 4 else pytest.mark.slow for i in range(len(names))]
    return [name if name in quick else pytest.param(name, marks=mark[i]) for i, name in enumerate(names)]


@pytest.mark.parametrize("name", cases(WRITTEN, ["attention", "cross-entropy"]))
def test_formulas_compute_what_python_computes_also_with_other_inputs(name: str) -> None:
    sheet = Sheet(*made(name))
    assert sheet.differs({}, sheet.book) <= 1e-12
    for block in sheet.blocks.all:  # a viewer that computes nothing shows these
        for place in sheet.book.places(sheet.range[block.serial]):
            assert abs(sheet.book.stored[place] - sheet.book.value(place)) <= 1e-12
            assert (place in sheet.book.formulas) == (block.kind in ("forward", "backward"))
    for seed in range(1 if name in ("attention", "cross-entropy") else EDITS):
        edited = sheet.edit(seed)
        type_into(sheet.book, sheet, edited)
        assert sheet.differs(edited, sheet.book) <= 1e-12
        assert sheet.differs({}, sheet.book) > 1e-3, "nothing flowed"


@pytest.mark.parametrize("name", cases(WRITTEN, ["attention"]))
def test_finite_difference_of_any_entry_agrees_with_its_gradient(name: str) -> None:
    sheet, rng = Sheet(*made(name)), np.random.default_rng(0)
    book, listed = sheet.book, [block for block in sheet.blocks.all if block.gradient]
    arrays = {block.name for block in sheet.inputs.values() if block.array.shape}
    assert {block.name for block in listed} == arrays - {sheet.blocks.of(sheet.blocks.upstream).name}
    names = unique_names(sheet.blocks)
    for block in listed:
        row, column = divmod(int(rng.integers(block.array.size)), block.array.shape[-1])
        chosen = {"chosen_array": names[block.serial], "chosen_row": row + 1.0, "chosen_column": column + 1.0}
        for cell, value in chosen.items():
            book.put(*book.places(cell), value)
        (difference,), (gradient,) = book.numbers("difference"), book.numbers("gradient")
        parts = [(sheet.blocks.of(serial).array, transposed) for serial, transposed in block.gradient]
        rows = [(part.T if transposed else part).reshape(-1, block.array.shape[-1]) for part, transposed in parts]
        wanted = sum(part[row, column] for part in rows)
        assert abs(gradient - wanted) <= 1e-12 and abs(difference - gradient) <= 1e-7 * max(1.0, abs(gradient))
        assert "yes" in shown(book)
    book.put(*book.places("chosen_row"), 99.0)
    assert "no such entry" in shown(book)


def shown(book: Spreadsheet) -> list:
    """All that the formulas of the first sheet show."""
    return [book.value(place) for place in book.formulas if place[0] == "Computed"]


def test_blanks_turn_green_when_they_are_right() -> None:
    sheet = Sheet(*made("softmax"))
    book = sheet.book
    (marks,) = [p for p, made in book.formulas.items() if p[0] == "Fill in" and made.startswith("SUM(")]
    blanks = [p for block in sheet.blocks.all if block.cells for p in book.places(sheet.range[block.serial])]
    assert book.value(marks) == 0 and f"of {len(blanks)}" in book.texts
    green = re.findall(
        r'<conditionalFormatting sqref="([A-Z0-9:]+)">.*?<formula>(\w+)=1</formula>', book.xml["Fill in"]
    )
    marked = {}  # by blank, the cell that says whether it is green: as many cells away as for the first of the range
    for cells, mark in green:
        places = book.block("Fill in", cells)
        away = book.block("Fill in", mark)[0][2] - places[0][2]
        marked |= {place: (place[0], place[1], place[2] + away) for place in places}
    for n, (_, row, column) in enumerate(blanks):
        here = ("Fill in", row, column)
        assert here not in book.given and here not in book.formulas and book.value(marked[here]) == 0
        for typed, right in (("a word", 0), (book.value(("Computed", row, column)) + 0.01, 0)):
            book.put(here, typed)
            assert book.value(marked[here]) == right
        book.put(here, round(book.value(("Computed", row, column)), 3))
        assert book.value(marked[here]) == 1 and book.value(marks) == n + 1
    assert len(marked) == len(blanks)


def test_sheet_prints_on_a4_and_has_no_macros_and_no_array_formulas() -> None:
    book = Sheet(*made("attention")).book
    assert not [name for name in book.files if "vba" in name.lower() or "external" in name.lower()]
    assert len(book.sheets) == 4
    for xml in book.xml.values():
        assert 'paperSize="9"' in xml and 'fitToHeight="0"' in xml and "<f t=" not in xml
    assert {name for name in book.names if name.startswith("_xlnm.")} == {"_xlnm.Print_Area"}
    assert {"q", "k", "v", "factor", "scores", "weights", "output", "dscores", "dq", "dk", "dv"} <= book.names.keys()


@in_one("name", ["q", "x1", "dx2", "R", "c", "r1c1", "self.w", "2d", "=cmd", "Δ", "TRUE"])
def test_names_of_ranges_are_not_addresses_or_formulas(name: str) -> None:
    made = range_name(name)
    assert re.fullmatch(r"[A-Za-z_]\w*", made, re.ASCII)
    assert not re.fullmatch(r"[A-Za-z]{1,3}\d+|[RrCc]|[Rr]\d*[Cc]\d*|TRUE|FALSE", made)


def test_text_that_begins_like_a_formula_stays_text() -> None:
    title = '=HYPERLINK("http://example.org")'
    recording = dataclasses.replace(EXAMPLES["softmax"].record(), about=title)
    book = Spreadsheet(workbook(recording, "softmax"))
    assert book.given["Computed", 1, 1] == title and not [f for f in book.formulas.values() if "HYPERLINK" in f]


@pytest.mark.slow
def test_every_example_whose_inputs_the_page_can_change_has_a_sheet() -> None:
    for name in REFUSED:
        recording = EXAMPLES[name].record()
        upstream = entry_of(recording).bound[0].name
        assert set(followed(recording, page_data(recording))) <= {upstream}, name


@pytest.mark.parametrize("name", cases(REFUSED, ["experts"]))
def test_other_examples_are_refused_with_the_lines_in_a_sentence(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "sheet.xlsx"
    assert main(["sheet", name, "--out", str(path)]) == 1
    error = capsys.readouterr().err
    assert f"{name} cannot be written as formulas" in error and re.search(r"line \d+ of \w+\.py, `", error)
    assert "is found by sorting, and jumps with them: no sum or product of them gives it" in error
    assert error.count("\n") == 1 and not path.exists()


def test_command_writes_a_sheet_of_other_sizes(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sheet", "softmax", "--size", "N1=3", "--size", "N2=1", "--seed", "2"]) == 0
    book = Spreadsheet(tmp_path / "softmax.xlsx")
    assert len(book.places("x")) == 3 and book.numbers("y") == [1.0] * 3 and "N1 = 3, N2 = 1" in book.texts[0]
    before = (tmp_path / "softmax.xlsx").read_bytes()
    assert main(["sheet", "softmax", "--size", "N1=3", "--size", "N2=1", "--seed", "2"]) == 0
    assert (tmp_path / "softmax.xlsx").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.xlsx"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["softmax", "--size", "D=3"], "softmax has N1=2, N2=3; got D=3"),
        (["softmax", "--size", "N1=17"], "from 1 to 16, got N1=17"),
        (["softmax", "--size", "N1"], "such as T_q=3, got 'N1'"),
        (["worked-example", "--size", "T=3"], "has no size that can be changed"),
        (["softmax", "--out", "sheet.ods"], "must end in .xlsx"),
        (["softmacks"], "softmax"),
    ],
)
def test_bad_arguments_of_the_command(arguments: list[str], told: str, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sheet", *arguments]) != 0
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


def test_without_the_extra_the_error_names_it(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    assert main(["sheet", "softmax", "--out", str(tmp_path / "softmax.xlsx")]) == 1
    assert 'pip install "minitransformer[sheet]"' in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.few(0, slow=5)
@pytest.mark.parametrize("name", [name for name in WRITTEN if sizes_of(EXAMPLES[name])])
def test_other_sizes_compute_as_well(name: str) -> None:
    sizes = sizes_of(EXAMPLES[name])
    recording = resized(EXAMPLES[name], name, {x: n + 1 + (x == "k") for x, n in sizes.items()}).record()  # k is odd
    sheet = Sheet(recording, workbook(recording, name), blocks_of(recording, name))
    assert sheet.differs({}, sheet.book) <= 1e-12
    assert sizes_of(resized(EXAMPLES[name], name, {letter: 2 for letter in sizes})) == {letter: 2 for letter in sizes}


# ---- LibreOffice. ----

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item>
</oor:items>
"""  # compute all formulas when a file is opened


def typed(sheet: Sheet, numbers: dict[str, np.ndarray]) -> bytes:
    """The file of a sheet in which numbers were typed, and no formula has a result."""
    new = {}
    for name, array in numbers.items():
        places = sheet.book.places(sheet.range[sheet.inputs[name].serial])
        new |= {(row, column): x for (_, row, column), x in zip(places, array.ravel().tolist(), strict=True)}
    book, edited = zipfile.ZipFile(io.BytesIO(sheet.content)), io.BytesIO()

    def put(found: re.Match[str]) -> str:
        place = next(p for p in sheet.book.block("Computed", found[2]))[1:]
        return f"{found[1]}<v>{new[place]!r}</v>" if place in new else found[0]

    with zipfile.ZipFile(edited, "w", zipfile.ZIP_DEFLATED) as file:
        for name in book.namelist():
            text = book.read(name)
            if name.startswith("xl/worksheets/"):
                xml = re.sub(r"(</f>)<v>[^<]*</v>", r"\1<v>7</v>", text.decode())
                if name.endswith("sheet1.xml"):
                    xml = re.sub(r'(<c r="([A-Z]+\d+)"[^>]*>)<v>[^<]*</v>', put, xml)
                text = xml.encode()
            file.writestr(name, text)
    return edited.getvalue()


@pytest.mark.slow
@pytest.mark.libreoffice
@pytest.mark.skipif(
    shutil.which("soffice") is None,
    reason="needs LibreOffice: apt-get install --no-install-recommends libreoffice-calc",
)
@pytest.mark.parametrize("name", WRITTEN)
def test_libreoffice_computes_what_python_computes_before_and_after_edits(name: str, tmp_path: Path) -> None:
    sheet, profile = Sheet(*made(name)), tmp_path / "profile" / "user"
    profile.mkdir(parents=True)
    (profile / "registrymodifications.xcu").write_text(PROFILE)
    edits = [{}, *(sheet.edit(seed) for seed in range(EDITS))]
    for n, numbers in enumerate(edits):
        (tmp_path / f"{n}.xlsx").write_bytes(typed(sheet, numbers))
    files = [str(tmp_path / f"{n}.xlsx") for n in range(len(edits))]
    command = ["soffice", f"-env:UserInstallation=file://{profile.parent}", "--headless", "--convert-to", "xlsx"]
    subprocess.run([*command, "--outdir", str(tmp_path / "out"), *files], check=True, capture_output=True, timeout=300)
    for n, numbers in enumerate(edits):
        computed = Spreadsheet(tmp_path / "out" / f"{n}.xlsx")
        computed.formulas.clear()  # what LibreOffice found
        computed.given = computed.stored
        assert sheet.differs(numbers, computed) <= 1e-12
        assert "yes" in [x for (where, *_), x in computed.stored.items() if where == "Computed"]
