"""Files as they are published: Hugging Face opens them as we do, or computes the same from the unpacked numbers."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from gguf_files import written
from safetensors.torch import load_file, save_file

from minitransformer import text
from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.ideas.published.families import EVERY
from minitransformer.ideas.published.fp8 import _NUMBERS
from minitransformer.ideas.published.text_part import LeftOut
from minitransformer.models import from_pretrained, save_pretrained

IDS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])


def test_numbers_of_8_bits_are_theirs() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(_NUMBERS, theirs)


def test_a_deepseek_of_8_bits(tmp_path: Path) -> None:
    """Packed with their type, in blocks of 128 that do not divide the widths; theirs has the unpacked numbers."""
    fields = dict(EVERY["deepseek_v3"].small) | {"hidden_size": 130, "intermediate_size": 131}
    torch.manual_seed(0)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**fields)).save_pretrained(folder)
    tensors, stored = load_file(plain / "model.safetensors"), {}
    for name, x in tensors.items():
        stored[name] = x
        if x.ndim == 2 and "proj" in name:
            scale = torch.ones(*(-(-n // 128) for n in x.shape))
            small = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
            for i, j in itertools.product(*(range(n) for n in scale.shape)):
                part = slice(128 * i, 128 * (i + 1)), slice(128 * j, 128 * (j + 1))
                scale[i, j] = x[part].abs().max() / 448.0
                small[part] = (x[part] / scale[i, j]).to(torch.float8_e4m3fn)
                x[part] = small[part].float() * scale[i, j]
            stored[name], stored[f"{name}_scale_inv"] = small, scale
    save_file(tensors, plain / "model.safetensors", {"format": "pt"})
    save_file(stored, packed / "model.safetensors", {"format": "pt"})
    document = json.loads((packed / "config.json").read_text())
    document["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
    (packed / "config.json").write_text(json.dumps(document))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(plain).eval()
    theirs.config._experts_implementation = "eager"  # the others take no odd widths
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IDS)).logits.numpy()
    np.testing.assert_allclose(from_pretrained(packed)(IDS)[0], expected, rtol=0, atol=1e-5)


_CAT = {"40": {"content": "cat", "lstrip": False, "rstrip": False, "normalized": False, "special": True}}


@pytest.mark.parametrize("file, about", [
    ("tokenizer_config.json", {"bos_token": "cat"}),
    ("tokenizer_config.json", {"additional_special_tokens": ["mat", "cat"]}),
    ("tokenizer_config.json", {"extra_special_tokens": {"x_token": "cat"}}),
    ("tokenizer_config.json", {"added_tokens_decoder": _CAT}),
    ("special_tokens_map.json", {"pad_token": {"content": "cat", "lstrip": False, "rstrip": False}}),
], ids=lambda each: str(each)[:40])  # fmt: skip
def test_a_token_is_special_wherever_a_folder_says_so(tmp_path: Path, file: str, about: dict[str, Any]) -> None:
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "the", "cat", "mat", "on", "##s"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.decoder = tokenizers.decoders.WordPiece()
    model.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for name in dict.fromkeys(["tokenizer_config.json", file]):
        found = about if name == file else {}
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"} if name == "tokenizer_config.json" else {}
        (tmp_path / name).write_text(json.dumps(kind | found))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), text.load(tmp_path)
    ids = ours.encode("the cats on the mat", special=True)
    assert ids == theirs.encode("the cats on the mat") and ids[:2] == [1, 2]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) and "cat" not in ours.decode(ids)


VISION: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 12},
    "gemma3_text": {
        "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 28,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VISION)
def test_the_part_for_texts_of_their_folder(tmp_path: Path, name: str) -> None:
    """As their class for images and texts writes it; it gets a text alone."""
    whole, fields = EVERY[name].whole, EVERY[name].small | {"final_logit_softcapping": None}  # that class has none
    assert whole is not None
    kind = transformers.CONFIG_MAPPING[whole.model_type]
    config = kind(text_config=fields, vision_config=VISION[name], tie_word_embeddings=False)
    torch.manual_seed(0)
    theirs = getattr(transformers, whole.architecture)(config).eval()
    theirs.save_pretrained(tmp_path)
    with pytest.warns(LeftOut, match="left out: [0-9]+ tensors of images, such as "):
        ours = from_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs(input_ids=torch.from_numpy(IDS)).logits.numpy()
    np.testing.assert_allclose(ours(IDS)[0], expected, rtol=0, atol=1e-5)


def test_they_open_a_file_of_experts(tmp_path: Path) -> None:
    """They read no width of an expert, so it has their default."""
    written(tmp_path / "model.gguf", "qwen3_moe", {"window": None, "dense": (), "d_expert": 768})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf").eval()
    theirs.config._experts_implementation = "eager"
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IDS)).logits.numpy()
    np.testing.assert_allclose(from_pretrained(tmp_path / "model.gguf")(IDS)[0], expected, rtol=0, atol=1e-4)


def test_they_open_what_we_write_in_bfloat16(tmp_path: Path) -> None:
    model = ordinary(EVERY["qwen3"].example()[0].build(), np.random.default_rng(0)).to(dtype="float32")
    save_pretrained(model, tmp_path, dtype="bfloat16")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.dtype == torch.bfloat16
    rounded = torch.from_numpy(model.tokens.table.value).bfloat16()
    assert torch.equal(theirs.model.embed_tokens.weight, rounded)
