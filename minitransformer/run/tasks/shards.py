"""Texts as token ids on the disk: for more text than fits into memory.

DIR/
    tokenizer.json
    plan.json                    the texts with their SHA-256, and how they were cut into pieces
    00000.npy, 00000.json        the token ids of a piece, memory-mapped by readers; how many, and their SHA-256
    shards.json                  all shards in order; written last, so a folder that has it is complete

A piece is about PIECE bytes of a text and ends at the end of a line. Byte-pair encoding treats its start like the start
of a text. A shard is complete as soon as its .json exists, so a second call after a crash makes only the missing ones.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.files import read_json, write, write_npy
from ...core.text.tokenizer import BytePairTokenizer, CharacterTokenizer, Tokenizer, read_tokenizer

PIECE = 4 << 20  # bytes
INDEX, TOKENIZER, _PLAN = "shards.json", "tokenizer.json", "plan.json"
_FORMAT = 1
_SAMPLE = 16 << 20  # bytes at the start, from which the merges of bpe are learned


def prepare(
    texts: Sequence[Path], folder: Path, tokenizer: str = "characters", vocabulary: int = 8000, processes: int = 1
) -> Iterator[tuple[int, int]]:
    """Turn texts into shards; yields (shards done, shards in all) after each. `folder` exists.

    Raises ValueError for a text that is compressed or not UTF-8, and if the folder holds shards of other texts.
    """
    pieces, digests, alphabet = [], [], set[str]()
    for path in texts:
        if path.suffix == ".gz":
            raise ValueError(f"{path} is compressed, so it cannot be read from the middle; decompress it first")
        starts, digest = [0], hashlib.sha256()
        for block in _blocks(path):
            digest.update(block)
            alphabet.update(_decoded(block, path, starts[-1]))
            starts.append(starts[-1] + len(block))
        pieces += [(str(path.resolve()), *ends) for ends in itertools.pairwise(starts)]
        digests.append(digest.hexdigest())
    if not pieces:
        raise ValueError(f"{', '.join(map(str, texts))}: there is no text in it; give a file that has some")
    plan = {"format": _FORMAT, "texts": digests, "tokenizer": tokenizer, "vocabulary": vocabulary, "piece": PIECE}
    if (folder / _PLAN).exists():
        if read_json(folder / _PLAN) != plan:
            raise ValueError(f"{folder} was prepared from other texts or with other options; choose another folder")
    else:
        write(folder / _PLAN, json.dumps(plan, indent=1) + "\n")
    if not (folder / TOKENIZER).exists():
        made: Tokenizer = (
            BytePairTokenizer.train(_sample(texts), vocabulary)
            if tokenizer == "bpe"
            else CharacterTokenizer.train(sorted(alphabet))
        )
        made.save(folder / TOKENIZER)
    missing = [number for number in range(len(pieces)) if not (folder / f"{number:05d}.json").exists()]
    done = len(pieces) - len(missing)
    yield done, len(pieces)
    for _ in _each_encoded([(folder, number, *pieces[number]) for number in missing], processes):
        done += 1
        yield done, len(pieces)
    shards = [read_json(folder / f"{number:05d}.json") for number in range(len(pieces))]
    index = {"format": _FORMAT, "tokens": sum(shard["tokens"] for shard in shards), "shards": shards}
    write(folder / INDEX, json.dumps(index, indent=1) + "\n")


def _each_encoded(tasks: list[tuple[Any, ...]], processes: int) -> Iterator[None]:
    """Call _encode(*task) for every task, here or in several processes; yields after each."""
    if min(processes, len(tasks)) <= 1:
        for task in tasks:
            _encode(*task)
            yield
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed  # here: a browser has no processes

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(tasks)), context, _end_with_parent) as pool:
        futures = [pool.submit(_encode, *task) for task in tasks]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when the one that started it ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _blocks(path: Path) -> Iterator[bytes]:
    """The pieces of a file: each has at least PIECE bytes and ends with the line."""
    with path.open("rb") as file:
        while block := file.read(PIECE):
            yield block + file.readline()


def _decoded(block: bytes, path: Path, start: int) -> str:
    """The text of a piece, as `files.read_text` reads it."""
    try:
        text = block.decode("utf-8-sig" if start == 0 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {start + error.start:,} is not UTF-8 ({error.reason}); convert it") from error
    if "\0" in text:
        raise ValueError(f"{path} has a byte 0 after byte {start:,}, which no text contains; give a text")
    return text.replace("\r\n", "\n")


def _sample(texts: Sequence[Path]) -> list[str]:
    lines: list[str] = []
    size = 0
    for path in texts:
        start = 0
        for block in _blocks(path):
            if size >= _SAMPLE:
                return lines
            lines += _decoded(block, path, start).splitlines(keepends=True)
            start, size = start + len(block), size + len(block)
    return lines


def _encode(folder: Path, number: int, path: str, start: int, stop: int) -> None:
    """Write one shard, in a process of its own."""
    tokenizer = read_tokenizer(folder / TOKENIZER)
    with open(path, "rb") as file:
        file.seek(start)
        text = _decoded(file.read(stop - start), Path(path), start)
    ids = np.array(tokenizer.encode(text), dtype=np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    write_npy(folder / f"{number:05d}.npy", ids)
    about = {"file": f"{number:05d}.npy", "tokens": len(ids), "sha256": hashlib.sha256(ids.tobytes()).hexdigest()}
    write(folder / f"{number:05d}.json", json.dumps(about) + "\n")


class Shards:
    """The token ids of a prepared folder, or a stretch of them, as one sequence that stays on the disk."""

    def __init__(self, folder: Path) -> None:
        path = folder / INDEX
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} is not a prepared folder: {INDEX} is missing; run minitransformer prepare"
            )
        self._arrays: list[np.ndarray] = []
        for shard in read_json(path)["shards"]:
            try:
                array = np.load(folder / shard["file"], mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise ValueError(f"{folder / shard['file']} cannot be read: {error}") from error
            if array.shape != (shard["tokens"],):
                raise ValueError(f"{folder / shard['file']} must have {shard['tokens']} tokens, got {array.shape}")
            self._arrays.append(array)
        self._ends = np.cumsum([len(array) for array in self._arrays]).tolist()
        self.start, self.stop = 0, self._ends[-1]

    def part(self, start: int, stop: int) -> Shards:
        """The stretch from start to stop."""
        other = object.__new__(Shards)
        other._arrays, other._ends = self._arrays, self._ends
        other.start, other.stop = self.start + start, self.start + stop
        return other

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, some: slice) -> np.ndarray:
        """The ids of a slice with step 1, as int64."""
        begin, end, _ = some.indices(len(self))
        begin, end, found = begin + self.start, end + self.start, []
        shard = bisect.bisect_right(self._ends, begin)
        while begin < end:
            first = self._ends[shard] - len(self._arrays[shard])
            found.append(self._arrays[shard][begin - first : end - first])
            begin, shard = self._ends[shard], shard + 1
        return np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64, copy=False)
