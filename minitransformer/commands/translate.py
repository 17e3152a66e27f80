"""`minitransformer translate`: a trained translator translates texts, a file or standard input."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..core.arrays.files import write
from ..core.models import EncoderDecoder
from ..core.models.opening import opened
from ..core.text import END, encode_lines
from ..core.text.text_files import read_lines
from ..run.published_models import check_ids
from ..run.tasks.translation import written
from . import UsageError
from .common import add_search, add_speed, check_search, speed
from .outputs import file_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Translate sentences by beam search, with a key-value cache. Without TEXT or --input, the command "
        "reads sentences from standard input, one per line."
    )
    command.add_argument("text", nargs="*", metavar="TEXT", help="sentences, each in quotes")
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="the folder of the model")
    command.add_argument("--input", type=Path, metavar="FILE", help="a file of sentences, plain or .gz")
    command.add_argument(
        "--output", type=file_to_write, metavar="FILE", help="file for the translations (default: print them)"
    )
    add_search(command)
    add_speed(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.text and options.input:
        raise UsageError("give TEXT or --input, not both")
    check_search(options)
    found = opened(options.model, EncoderDecoder)
    check_ids(found)
    lines = read_lines(options.input) if options.input else options.text or _from_standard_input()
    empty = [str(i) for i, line in enumerate(lines, start=1) if not line.strip()]
    if empty or not lines:
        which = f" (see sentence {', '.join(empty[:5])})" if empty else ""
        raise UsageError(f"there is nothing to translate: every sentence needs at least one word{which}")
    sentences = encode_lines(found.tokenizers[0], lines, options.input)
    fast = speed(options)(found.model.to(options.device))
    search = {"early_stopping": options.early_stopping}
    ids = written(fast, sentences, options.beam, options.length_penalty, **search)
    if cut_off := sum(END not in row for row in ids):
        print(f"{cut_off} of {len(ids)} translations did not end and were cut off", file=sys.stderr)
    translations = "".join(f"{found.tokenizers[-1].decode(row)}\n" for row in ids)
    if options.output:
        write(options.output, translations)
        print(f"wrote {options.output}")
    else:
        print(translations, end="")
    return 0


def _from_standard_input() -> list[str]:
    return sys.stdin.read().removesuffix("\n").split("\n")
