"""GGUF files of small models: Hugging Face opens each file as we do, and computes the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf_files import written

from minitransformer.models import from_pretrained

IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])


@pytest.mark.parametrize("name, changes", [  # they read neither key_length of a Llama nor the caps of a Gemma 2
    ("llama", {"d_head": 2}), ("qwen2", {"window": None, "d_head": 2}), ("qwen3", {"window": None, "d_head": 128}),
    ("phi3", {"scaled_angles": None, "d_rotary": None, "vocabulary": 32001}),  # their default for padding is 32000
    ("gemma2", {"query_scalar": 4, "tie_output": True, "score_cap": 50.0, "logit_cap": 30.0, "window": 4096}),
])  # fmt: skip
def test_they_open_the_file_as_the_same_model(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    path = tmp_path / "model.gguf"
    written(path, name, {"norm_eps": 1e-6} | changes)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name).eval()
    for layer in theirs.model.layers if name == "gemma2" else ():
        layer.self_attn.scaling = 0.5  # a .gguf file does not say it; they take that of another size
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IDS)).logits.numpy()
    np.testing.assert_allclose(from_pretrained(path)(IDS)[0], expected, rtol=0, atol=1e-4)
