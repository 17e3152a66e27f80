"""Folders as they are published: numbers of 8 bits, parts of models that read images too, layers for training alone."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiers import in_one

from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.cli import main
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.fp8 import _NUMBERS
from minitransformer.ideas.published.text_part import LeftOut
from minitransformer.models import from_pretrained, save_pretrained

IDS = np.array([[3, 1, 4, 1, 5]])


def folder(path: Path, name: str) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    """A small model of a family in a folder: the model, its config.json and its tensors."""
    config, _ = FAMILIES[name].example()
    model = ordinary(config.build(), np.random.default_rng(0)).to(dtype="float32")
    save_pretrained(model, path)
    return model, json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors")


def rewrite(path: Path, document: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    (path / "config.json").write_text(json.dumps(document))
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize("name, inside, outside, older", [
    ("qwen3_5_text", "qwen3_5", "model.visual.blocks.0.attn.proj.weight", False),
    ("gemma3_text", "gemma3", "vision_tower.vision_model.head.weight", True),
])  # fmt: skip
def test_the_part_for_texts_of_a_model_that_reads_images(
    tmp_path: Path, name: str, inside: str, outside: str, older: bool
) -> None:
    model, document, tensors = folder(tmp_path, name)
    whole = FAMILIES[name].whole
    assert whole is not None and whole.model_type == inside
    tied = document.pop("tie_word_embeddings")
    prefix = "language_model.model." if older else "model.language_model."
    tensors = {key.replace("model.", prefix, 1): x for key, x in tensors.items()}
    outer = {"model_type": inside, "architectures": [whole.architecture], "text_config": document}
    more = {"tie_word_embeddings": tied, "vision_config": {"depth": 2}, "image_token_id": 7}
    rewrite(tmp_path, outer | more, tensors | {outside: np.ones(3, np.float32)})
    with pytest.warns(LeftOut, match=f"left out: 1 tensor of images, such as {outside}"):
        found = from_pretrained(tmp_path)
    assert found.config == model.config
    np.testing.assert_array_equal(found(IDS)[0], model(IDS)[0])
    rewrite(tmp_path, outer | more | {"text_config": None}, tensors)
    with pytest.raises(ValueError, match=r"config\.json: text_config must be an object, got 'None'"):
        from_pretrained(tmp_path)


def test_layers_that_serve_training_alone_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, document, tensors = folder(tmp_path, "deepseek_v3")
    extra = f"model.layers.{model.config.n_layers}.eh_proj.weight"
    rewrite(tmp_path, document | {"num_nextn_predict_layers": 1}, tensors | {extra: np.ones(3, np.float32)})
    sentence = f"left out: 1 tensor for training alone, such as {extra}"
    with pytest.warns(LeftOut, match=sentence):
        found = from_pretrained(tmp_path)
    np.testing.assert_array_equal(found(IDS)[0], model(IDS)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["generate", "--model", str(tmp_path), "a"]) == 1  # it has no tokenizer
    assert capsys.readouterr().err.startswith(f"minitransformer: {sentence}\nminitransformer: error: ")


# Of Micikevicius et al. 2022, table 1: the largest number, the smallest normal one, the largest and smallest below it.
@in_one(
    "bits, number",
    [
        (0b0_1111_110, 448.0),
        (0b0_0001_000, 2.0**-6),
        (0b0_0000_111, 0.875 * 2.0**-6),
        (0b1_0000_001, -(2.0**-9)),
        (0b0_0000_000, 0.0),
        (0b1_0111_100, -1.5),
    ],
)
def test_numbers_of_8_bits(bits: int, number: float) -> None:
    assert _NUMBERS[bits] == number
    assert np.isnan(_NUMBERS[[0x7F, 0xFF]]).all() and np.isfinite(_NUMBERS).sum() == 254


def packed(path: Path, tensors: dict[str, np.ndarray], block: tuple[int, int]) -> dict[str, np.ndarray]:
    """Write the matrices of layers in 8 bits with random scales. Returns the numbers that they stand for."""
    rng, stored, meant = np.random.default_rng(0), {}, {}
    for name, x in tensors.items():
        meant[name] = stored[name] = x
        if x.ndim == 2 and "layers" in name and "norm" not in name and "gate.weight" not in name:
            bits = rng.integers(0, 255, x.shape).astype(np.uint8)
            bits[(bits & 127) == 127] = 0
            rows, columns = (-(-n // size) for n, size in zip(x.shape, block, strict=True))
            scales = rng.uniform(1e-4, 1e-3, (rows, columns)).astype(np.float32)
            stored[name], stored[f"{name}_scale_inv"] = bits, scales
            meant[name] = _NUMBERS[bits] * np.kron(scales, np.ones(block, np.float32))[: x.shape[0], : x.shape[1]]
    save_file(stored, path)
    content = path.read_bytes()  # the library's arrays have no such type: the header alone says it
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b'"dtype":"U8"', b'"dtype":"F8_E4M3"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    return meant


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [4, 3]}


def test_a_folder_of_8_bits(tmp_path: Path) -> None:
    """The blocks do not divide the matrices."""
    _, document, tensors = folder(tmp_path, "deepseek_v3")
    rewrite(tmp_path, document | {"quantization_config": FP8}, tensors)
    meant = packed(tmp_path / "model.safetensors", tensors, (4, 3))
    found = from_pretrained(tmp_path)
    save_pretrained(found, tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == meant.keys() and any((meant[name] != tensors[name]).any() for name in meant)
    for name, x in again.items():
        np.testing.assert_allclose(x, meant[name], rtol=1e-6, atol=0, err_msg=name)
    odd = {"weight_block_size": [5, 3]}, {"weight_block_size": None}, {"quant_method": "gptq"}, {"fmt": "e5m2"}
    for changes in odd:
        (tmp_path / "config.json").write_text(json.dumps(document | {"quantization_config": FP8 | changes}))
        message = "must have scales of shape" if changes == odd[0] else "quantization_config"
        with pytest.raises(ValueError, match=message):
            from_pretrained(tmp_path)


def test_a_folder_of_bfloat16_is_written_as_such(tmp_path: Path) -> None:
    """What was read so is written so, bit for bit. Of two nearest numbers the even one is taken."""
    model, _, _ = folder(tmp_path / "wide", "qwen3")
    table = model.tokens.table.value
    table[0, :4] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF80FFFF], np.uint32).view(np.float32)
    save_pretrained(model, tmp_path / "narrow", dtype="bfloat16")
    found = from_pretrained(tmp_path / "narrow")
    bits = found.tokens.table.value.view(np.uint32)
    assert [hex(n) for n in bits[0, :4]] == ["0x3f800000", "0x3f820000", "0x3f810000", "0xbf810000"]
    for name, value in found.state().items():
        np.testing.assert_allclose(value, model.state()[name], rtol=2.0**-8, atol=0, err_msg=name)
    save_pretrained(found, tmp_path / "again", dtype="bfloat16")
    written = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("wide", "narrow", "again")]
    assert written[1] == written[2] and len(written[0]) > 1.5 * len(written[1])
    table[0, 0] = 3.4e38
    with pytest.raises(ValueError, match="too large for bfloat16"):
        save_pretrained(model, tmp_path / "large", dtype="bfloat16")
