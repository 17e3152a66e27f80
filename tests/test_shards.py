"""Texts prepared as shards: the same tokens and the same training as from the text, and resumed where it stopped."""

import hashlib
import json

import numpy as np
import pytest

from minitransformer.cli import main
from minitransformer.core.training.corpora import TextCorpus
from minitransformer.run.machines.run_folder import read_log
from minitransformer.run.tasks import shards
from minitransformer.text import load as load_tokenizer

SMALL = "--n-layers 1 --d-model 8 --n-heads 2 --d-ff 8 --max-length 8 --batch-rows 4 --warmup 1 --steps 4".split()


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "PIECE", 1000)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{n} süße foxes jump over {n * n} dogs\n" for n in range(120)), encoding="utf-8")
    return path


def of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.glob("0*")}


@pytest.mark.slow
def test_shards_have_the_tokens_of_the_text_and_training_on_them_its_losses(tmp_path, text, capsys):
    folder = tmp_path / "data"
    assert main(["prepare", str(text), "--out", str(folder), "--processes", "2"]) == 0
    assert " tokens in 5 shards" in capsys.readouterr().out
    ids, wanted = shards.Shards(folder), text.read_text(encoding="utf-8")
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    assert tokenizer.decode(ids[:]) == wanted and len(ids) == len(wanted)
    for start, stop in ((0, 5), (990, 1020), (3, 3), (0, len(ids)), (len(ids) - 3, len(ids) + 9)):
        assert tokenizer.decode(ids.part(2, len(ids))[start:stop]) == wanted[2:][start:stop]
    for shard in json.loads((folder / "shards.json").read_text())["shards"]:
        array = np.load(folder / shard["file"], mmap_mode="r")
        assert shard["sha256"] == hashlib.sha256(array.tobytes()).hexdigest() and array.dtype == np.uint16
    for name, source in (("text", text), ("data", folder)):
        assert main(["train", "lm", f"--{name}", str(source), "--out", str(tmp_path / name / "run"), *SMALL]) == 0
    losses = [[r.get("loss", r.get("validation_loss")) for r in read_log(tmp_path / name / "run" / "log.jsonl")]
              for name in ("text", "data")]  # fmt: skip
    assert losses[0] == losses[1] and len(losses[0]) == 5
    assert (
        main(["train", "lm", "--text", str(text), "--data", str(folder), "--out", str(tmp_path / "both"), *SMALL]) == 1
    )
    assert "text or data, not both" in capsys.readouterr().err


def test_a_slice_goes_over_the_ends_of_shards_and_starts_where_its_part_does(tmp_path):
    for i, ids in enumerate(([0, 1, 2], [3], [4, 5, 6, 7])):
        np.save(tmp_path / f"{i}.npy", np.array(ids, np.uint16))
    listed = [{"file": f"{i}.npy", "tokens": n} for i, n in enumerate((3, 1, 4))]
    (tmp_path / shards.INDEX).write_text(json.dumps({"shards": listed}))
    for first in range(8):
        part = shards.Shards(tmp_path).part(first, 8)
        for start in range(9):
            for stop in range(9):
                assert part[start:stop].tolist() == list(range(first, 8))[start:stop]


def test_tokens_take_two_bytes_where_they_fit_and_merges_are_learned_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "PIECE", 1000)
    monkeypatch.setattr(shards, "_SAMPLE", 1500)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{chr(0x4E00 + n)}{chr(0x5E00 + n)}\n" for n in range(400)), encoding="utf-8")
    (tmp_path / "data").mkdir()
    list(shards.prepare([path], tmp_path / "data"))
    assert len(load_tokenizer(tmp_path / "data" / "tokenizer.json")) > 256
    assert {np.load(file).dtype for file in (tmp_path / "data").glob("*.npy")} == {np.dtype(np.uint16)}
    assert 1500 <= sum(len(line.encode()) for line in shards._sample([path])) < 2100  # two pieces of three


def test_what_is_missing_is_made_and_nothing_else(tmp_path, text):
    command = ["prepare", str(text), "--out", str(tmp_path / "data")]
    assert main(command) == 0
    whole = of(tmp_path / "data")
    (tmp_path / "data" / "00002.json").unlink()
    (tmp_path / "data" / "shards.json").unlink()
    assert main(command) == 0
    again = of(tmp_path / "data")
    assert {name: content for name, (content, _) in again.items()} == {
        name: content for name, (content, _) in whole.items()
    }
    assert {name for name in whole if whole[name] != again[name]} == {"00002.npy", "00002.json"}


def test_what_cannot_be_prepared_is_refused_in_one_line(tmp_path, text, capsys):
    def complaint(*arguments, status=1):
        assert main(["prepare", *map(str, arguments), "--out", str(tmp_path / "data")]) == status
        err = capsys.readouterr().err
        assert err.startswith("minitransformer: error: ") and err.count("\n") == 1
        return err

    latin, zero, empty = (tmp_path / name for name in ("latin.txt", "zero.txt", "empty.txt"))
    latin.write_bytes(b"gr\xfc\xdfe\n")
    zero.write_bytes(b"a\0b\n")
    empty.write_bytes(b"")
    assert "byte 2 is not UTF-8" in complaint(latin)
    assert "a byte 0" in complaint(zero)
    assert "there is no text" in complaint(empty)
    assert "there is no file" in complaint(tmp_path / "none.txt", status=2)
    assert "--processes must be at least 1, got 0" in complaint(text, "--processes", 0, status=2)
    assert not (tmp_path / "data").exists()
    assert main(["prepare", str(text), "--out", str(tmp_path / "data")]) == 0
    capsys.readouterr()
    text.write_text("another text\n")
    assert "prepared from other texts" in complaint(text)
    (tmp_path / "data" / "00001.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"00001.npy cannot be read"):
        shards.Shards(tmp_path / "data")
    with pytest.raises(FileNotFoundError, match=r"shards.json is missing; run minitransformer prepare"):
        shards.Shards(tmp_path)


def test_batches_of_windows_are_those_of_one_draw():
    corpus = TextCorpus(list(range(1000)), length=5, rows=3)
    wanted = np.random.default_rng(4).integers(0, 995, (66, 3))
    batches = corpus.batches(np.random.default_rng(4))
    assert len(batches) == 66 and np.array_equal(list(batches), wanted)
    for i in (65, 3, 40, 39, 0):
        assert np.array_equal(batches[i], wanted[i])
    for n in (11, 12, 16, 17, 31, 32):
        windows = list(TextCorpus(list(range(n)), length=5, rows=2).batches(None))
        starts = np.concatenate(windows)
        assert starts.tolist() == list(range(0, n - 1, 5))
        assert all(len(each) <= 2 for each in windows)
        assert all(start + 5 < n for each in windows if len(each) > 1 for start in each)
