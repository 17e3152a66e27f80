"""`minitransformer prepare`: texts as token ids on the disk, for `train lm --data`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tqdm import tqdm

from ..core.arrays.files import read_json
from ..run.machines.locks import locked
from ..run.machines.shards import INDEX, prepare
from . import UsageError
from .outputs import folder_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Encode UTF-8 texts, one after the other, as shards of token ids. After an interruption, the same command "
        "makes only the missing shards."
    )
    command.add_argument("texts", nargs="+", type=Path, metavar="TEXT", help="plain text files, in this order")
    command.add_argument("--out", type=folder_to_write, required=True, metavar="DIR", help="the folder for the shards")
    command.add_argument("--tokenizer", choices=("characters", "bpe"), default="characters", help="(%(default)s)")
    command.add_argument("--vocabulary", type=int, default=8000, metavar="N", help="bpe tokens (default: 8000)")
    command.add_argument("--processes", type=int, default=1, metavar="N", help="parallel processes (default: 1)")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    for name in ("vocabulary", "processes"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} must be at least 1, got {getattr(options, name)}")
    for path in options.texts:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    shards = (options.texts, options.out, options.tokenizer, options.vocabulary, options.processes)
    with locked(options.out), tqdm(desc="prepare", unit="shard", disable=None) as bar:
        for done, total in prepare(*shards):
            bar.total = total
            bar.update(done - bar.n)
    index = read_json(options.out / INDEX)
    print(f"{index['tokens']:,} tokens in {len(index['shards'])} shards; train lm --data {options.out}")
    return 0
