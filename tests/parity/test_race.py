"""The race of `benchmarks.published` on a small GPT-2: who takes part writes the same tokens, who fails is left out."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks/ belongs to the checkout and is not installed

from benchmarks import published

SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 64}


def raced(folder: Path, beside: list[str]) -> int:
    published.gpt2(folder, **SIZES)
    options = argparse.Namespace(beside=beside, tokens=12, rounds=2, weights=None)
    return published.race(options, folder, [7, 450, 3, 3, 91])


def test_onnx_runtime_and_transformers_write_the_same_tokens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert raced(tmp_path, ["transformers", "onnxruntime"]) == 0
    rows = [line for line in capfd.readouterr().out.splitlines() if "tokens/s" in line]
    assert [row.split()[0] for row in rows] == ["ours", "transformers", "onnxruntime"]
    assert all(row.endswith("the same tokens") for row in rows)


def test_a_rival_that_ends_early_is_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "llama_cpp.py").write_text("raise ImportError('built for another processor')", encoding="utf-8")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=":")
    assert raced(tmp_path / "model", ["llama.cpp"]) == 0
    out, err = capfd.readouterr()
    assert "llama.cpp is left out: it ended; its error stands above" in out.splitlines()
    assert "built for another processor" in err
    assert [line.split()[0] for line in out.splitlines() if "tokens/s" in line] == ["ours"]
