"""`minitransformer prepare`: texts as token ids on the disk, for `train lm --data`."""

from tqdm import tqdm

from ..core.arrays.files import read_json
from ..run.machines.locks import locked
from ..run.tasks.shards import INDEX, prepare
from . import Options, UsageError
from .common import in_range


def main(options: Options) -> None:
    in_range(options, "vocabulary", 1)
    in_range(options, "processes", 1)
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
