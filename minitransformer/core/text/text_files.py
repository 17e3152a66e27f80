"""Text files: lines, pairs of lines, labelled lines; plain or compressed by gzip (.gz), in UTF-8."""

import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..arrays.files import check_content

_MOST = 1 << 30  # bytes of a text; the text and its tokens are kept in memory
_PIECE = 1 << 20


def read_text(path: Path) -> str:
    """The whole text of a file. Raises OSError if the file cannot be read, and ValueError if it is not UTF-8 text or,
    after decompression, longer than 1 GiB.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    check_content(path)
    try:
        with path.open("rb") as file:
            content = _read(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as gzip: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1  # in the object, whose byte order mark is removed
        raise ValueError(
            f"{path}, line {line}: the bytes are not UTF-8 ({error.reason}); convert the file first, "
            "for example: iconv -f latin1 -t utf-8"
        ) from error
    if text.endswith("\0"):
        line = text.count("\n") + 1
        raise ValueError(f"{path}, line {line}: byte {len(content) - 1:,} is 0, which no text contains; give a text")
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text.replace("\r\n", "\n")


def _read(file: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    """The bytes of a file, up to the first zero, which no text contains."""
    content = io.BytesIO()
    while piece := file.read(_PIECE):
        before, zero, _ = piece.partition(b"\0")
        content.write(before + zero)
        if zero:
            break
        if content.tell() > _MOST:
            raise ValueError(f"{path} is longer than the limit of {_MOST:,} bytes; give a part of it")
    return content.getvalue()


def read_lines(path: Path, also: str = "") -> list[str]:
    """The lines of a file. Raises ValueError, which names the empty lines and what to remove, if there are any."""
    lines = read_text(path).removesuffix("\n").split("\n")
    empty = [i for i, line in enumerate(lines, start=1) if not line.strip()]
    if empty:
        raise ValueError(f"{path} has empty lines ({_numbers(empty)}); remove them{also}")
    return lines


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """Sentence pairs from two aligned files: line i of one belongs to line i of the other.

    Raises ValueError if the files differ in length or have empty lines.
    """
    both = ", and the matching lines of the other file"
    sources, targets = read_lines(source, both), read_lines(target, both)
    if len(sources) != len(targets):
        raise ValueError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}; line i of one must belong to line i "
            "of the other"
        )
    return list(zip(sources, targets, strict=True))


def read_labelled(path: Path) -> list[tuple[str, str]]:
    """(label, text) from lines of the form label, tab, text. Raises ValueError, which names the lines without a tab."""
    parts = [line.partition("\t") for line in read_lines(path)]
    wrong = [i for i, (label, _, text) in enumerate(parts, start=1) if not (label.strip() and text.strip())]
    if wrong:
        raise ValueError(f"{path}: every line must be a label, a tab and a text; see {_numbers(wrong)}")
    return [(label.strip(), text) for label, _, text in parts]


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:5]))
    return f"line{'s' if len(lines) > 1 else ''} {shown}{f' and {len(lines) - 5} more' if len(lines) > 5 else ''}"
