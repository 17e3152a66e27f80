"""`minitransformer translate`: texts, a file or what comes in, by a trained translator."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..files import write
from ..tasks.translation import load_translator, written
from ..text.files import read_lines
from .common import UsageError, add_device


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of the command line."""
    command = commands.add_parser(
        "translate",
        help="translate sentences by a model that `train translate` or `demo` left",
        description="Translate sentences, one to a line, by beam search on the key-value cache. Without TEXT or "
        "--input they are read from standard input.",
    )
    command.add_argument("text", nargs="*", metavar="TEXT", help="sentences, each in quotes")
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="the folder of the model")
    command.add_argument("--input", type=Path, metavar="FILE", help="a file of sentences, plain or .gz")
    command.add_argument("--output", type=Path, metavar="FILE", help="where translations go (default: shown)")
    command.add_argument("--beam", type=int, default=5, metavar="N", help="1 takes the likeliest token (default: 5)")
    command.add_argument("--length-penalty", type=float, default=1.0, metavar="X", help="(default: 1.0)")
    add_device(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.text and options.input:
        raise UsageError("give TEXT or --input, not both")
    model, source, target = load_translator(options.model)
    lines = read_lines(options.input) if options.input else options.text or sys.stdin.read().splitlines()
    sentences = [source.encode(line) for line in lines]
    if not sentences or not all(sentences):
        raise UsageError("there is nothing to translate: every sentence needs at least one word")
    ids = written(model.to(options.device), sentences, options.beam, options.length_penalty)
    translations = "".join(f"{target.decode(row)}\n" for row in ids)
    if options.output:
        write(options.output, translations)
        print(f"wrote {options.output}")
    else:
        print(translations, end="")
    return 0
