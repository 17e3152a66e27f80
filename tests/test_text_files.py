"""Text files: read the same plain and compressed, and refused with the file and the line."""

import gzip
import io

import pytest

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


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
@pytest.mark.parametrize(
    "content",
    ["eins\nzwei drei\n", "eins\nzwei drei", "eins\r\nzwei drei\r\n", "\ufeffeins\nzwei drei\n"],
    ids=["plain", "no last newline", "Windows", "byte order mark"],
)
def test_lines_are_the_same_from_every_system(file, name, content):
    assert read_lines(file(content, name)) == ["eins", "zwei drei"]


def test_only_a_newline_ends_a_line(file):
    """Otherwise line i of one file would not be line i of the other."""
    line = "a\u2028b\x0bc\x0cd\x85e"
    assert read_lines(file(f"{line}\nzwei\n")) == [line, "zwei"]


def test_pairs_are_line_by_line(file):
    assert read_pairs(file("a\nb b\n"), file("A\nB\n", "b.txt.gz")) == [("a", "A"), ("b b", "B")]


def test_files_of_unequal_length_are_refused_with_both_lengths(file):
    one, other = file("a\nb\nc\n"), file("A\nB\n", "b.txt")
    with pytest.raises(ValueError) as caught:
        read_pairs(one, other)
    assert f"{one} has 3 lines and {other} has 2" in str(caught.value)


@pytest.mark.parametrize(
    "content, said",
    [
        ("a\n\nc\n", "(line 2)"),
        ("a\n \t\nc\n\n", "(lines 2, 4)"),
        ("\n" * 8 + "a\n", "(lines 1, 2, 3, 4, 5 and 3 more)"),
    ],
)
def test_empty_lines_are_named(file, content, said):
    path = file(content)
    with pytest.raises(ValueError) as caught:
        read_lines(path)
    assert f"{path} has empty lines {said}" in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n\n", " \n", "\ufeff"])
@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
@pytest.mark.parametrize("read", [read_text, read_lines, read_labelled])
def test_an_empty_file_is_refused(file, content, name, read):
    path = file(content, name)
    with pytest.raises(ValueError) as caught:
        read(path)
    assert str(caught.value) == f"{path} is empty"


def test_a_file_of_no_bytes_that_should_be_compressed_is_empty(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.gz is empty"):
        read_text(tmp_path / "a.gz")


@pytest.mark.parametrize(
    "content, line",
    [
        ("eins\nzwei\nfünf\n".encode("latin-1"), 3),
        (b"\xff\xfea\x00", 1),  # UTF-16
        (b"\xef\xbb\xbfab\n\xff\n", 2),  # a byte order mark, then UTF-8, then not
        (b"ab\xc3", 1),  # a character that is cut off
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_a_wrong_encoding_is_refused_with_the_line(file, content, line, name):
    path = file(content, name)
    with pytest.raises(ValueError) as caught:
        read_text(path)
    assert str(caught.value).startswith(f"{path}, line {line}: the bytes are not UTF-8 (")
    assert "iconv" in str(caught.value)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"no" + b[2:], lambda b: b[:12] + b"\xff" * 9 + b[21:]])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    whole = gzip.compress(b"eins\nzwei\ndrei\nvier\n" * 20)
    (tmp_path / "a.gz").write_bytes(damage(whole))
    with pytest.raises(ValueError, match=r"a\.gz cannot be read as gzip"):
        read_text(tmp_path / "a.gz")


@pytest.mark.parametrize("name", ["none.txt", "none.gz", ""])
def test_a_missing_file_or_a_folder_is_named(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        read_text(tmp_path / name)
    assert str(caught.value) == f"there is no file {tmp_path / name}"


def test_labelled_lines_are_parted_at_the_first_tab(file):
    assert read_labelled(file("odd\tone two\n even \tthree\tfour\n")) == [("odd", "one two"), ("even", "three\tfour")]


def test_lines_without_label_or_text_are_named(file):
    path = file("odd\tone\nodd one\n\tone\nodd\t \n")
    with pytest.raises(ValueError) as caught:
        read_labelled(path)
    assert str(caught.value) == f"{path}: every line must be a label, a tab and a text; see lines 2, 3, 4"


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_what_is_no_text_is_refused_at_its_first_zero(file, name):
    with pytest.raises(ValueError, match=rf"{name}, line 2: byte 11 is 0, which no text contains; give a text"):
        read_text(file(b"some words\n" + bytes(5 << 20), name))


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
