"""Text files: read the same plain and compressed, and refused with the file and the line."""

import gzip
import io
import re

import pytest
from tiers import in_one

from minitransformer.core.text import text_files
from minitransformer.core.text.text_files import read_labelled, read_lines, read_pairs, read_text


@pytest.fixture
def file(tmp_path):
    """file(content, name="a.txt") -> the path of a file with this content, compressed if the name ends in .gz."""

    def file(content, name="a.txt"):
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return file


def test_a_text_is_read_as_it_is_plain_or_compressed(file):
    text = "Zwölf Hunde.\n\n  und\tmehr \u2028 \x0c zuletzt"
    assert read_text(file(text)) == read_text(file(text, "a.txt.gz")) == text


@in_one("name, end", ["a.txt", "a.gz"], ["\n", "", "\r\n"])
def test_lines_are_the_same_from_every_system(file, name, end):
    between = end or "\n"
    for mark in ("", "\ufeff"):  # a byte order mark
        assert read_lines(file(f"{mark}eins{between}zwei drei{end}", name)) == ["eins", "zwei drei"]


def test_only_a_newline_ends_a_line(file):
    """Otherwise line i of one file would not be line i of the other."""
    line = "a\u2028b\x0bc\x0cd\x85e"
    assert read_lines(file(f"{line}\nzwei\n")) == [line, "zwei"]


def test_pairs_are_line_by_line(file):
    assert read_pairs(file("a\nb b\n"), file("A\nB\n", "b.txt.gz")) == [("a", "A"), ("b b", "B")]


NOT_UTF8 = r", line {}: the bytes are not UTF-8 \(.*iconv"
REFUSED = [  # who reads it, the bytes, and what is said after the file's name
    (read_lines, b"a\n\nc\n", r" has empty lines \(line 2\)"),
    (read_lines, b"a\n \t\nc\n\n", r" has empty lines \(lines 2, 4\)"),
    (read_lines, b"\n" * 8 + b"a\n", r" has empty lines \(lines 1, 2, 3, 4, 5 and 3 more\)"),
    (read_labelled, b"odd\tone\nodd one\n\tone\nodd\t \n", ": every line must be a label, .* see lines 2, 3, 4$"),
    (read_text, "eins\nzwei\nfünf\n".encode("latin-1"), NOT_UTF8.format(3)),
    (read_text, b"\xff\xfea\x00", NOT_UTF8.format(1)),  # UTF-16
    (read_text, b"\xef\xbb\xbfab\n\xff\n", NOT_UTF8.format(2)),  # a byte order mark, then UTF-8, then not
    (read_text, b"ab\xc3", NOT_UTF8.format(1)),  # a character that is cut off
    (read_text, b"some words\n" + bytes(5 << 20), ", line 2: byte 11 is 0, which no text contains; give a text"),
    *((read, empty, " is empty$") for read in (read_text, read_lines, read_labelled)
      for empty in (b"", b"\n\n", b" \n", b"\xef\xbb\xbf")),
]  # fmt: skip


@in_one("name, case", ["a.txt", "a.gz"], range(len(REFUSED)))
def test_what_cannot_be_read_is_refused_with_the_file_and_the_line(file, name, case):
    read, content, said = REFUSED[case]
    path = file(content, name)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}{said}"):
        read(path)


def test_files_of_unequal_length_are_refused_with_both_lengths(file):
    one, other = file("a\nb\nc\n"), file("A\nB\n", "b.txt")
    with pytest.raises(ValueError, match=f"{one} has 3 lines and {other} has 2"):
        read_pairs(one, other)


def test_a_missing_file_or_a_folder_is_named(tmp_path):
    for name in ("none.txt", "none.gz", ""):
        with pytest.raises(FileNotFoundError, match=f"^there is no file {tmp_path / name}$"):
            read_text(tmp_path / name)


def test_a_file_of_no_bytes_that_should_be_compressed_is_empty(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.gz is empty"):
        read_text(tmp_path / "a.gz")


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"no" + b[2:], lambda b: b[:12] + b"\xff" * 9 + b[21:]])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    whole = gzip.compress(b"eins\nzwei\ndrei\nvier\n" * 20)
    (tmp_path / "a.gz").write_bytes(damage(whole))
    with pytest.raises(ValueError, match=r"a\.gz cannot be read as gzip"):
        read_text(tmp_path / "a.gz")


def test_labelled_lines_are_parted_at_the_first_tab(file):
    assert read_labelled(file("odd\tone two\n even \tthree\tfour\n")) == [("odd", "one two"), ("even", "three\tfour")]


def test_what_is_no_text_is_read_no_further(tmp_path):
    zeros = io.BytesIO(b"some words\n" + bytes(50 << 20))
    assert text_files._read(zeros, tmp_path) == b"some words\n\0"
    assert zeros.tell() == 1 << 20


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_a_text_that_is_too_long_is_refused(file, name, monkeypatch):
    monkeypatch.setattr(text_files, "_MOST", 3 << 20)
    assert len(read_text(file("abc\n" * (3 << 18), name))) == 3 << 20
    with pytest.raises(ValueError, match=rf"{name} is longer than the limit of 3,145,728 bytes"):
        read_text(file("abc\n" * (3 << 18) + "\n", name))
