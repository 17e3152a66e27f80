"""`minitransformer prepare`: texts as token ids on the disk, for `train lm --data`."""

from __future__ import annotations

import argparse

from tqdm import tqdm

from ..core.arrays.files import read_json
from ..run.machines.locks import locked
from ..run.tasks.shards import INDEX, prepare
from . import UsageError


def main(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
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
