"""Folders of models that others trained: what is written reads again, and what cannot be read is said in one line."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minitransformer import text
from minitransformer.cli import main
from minitransformer.core.models.folder import save
from minitransformer.core.text.text_files import read_text
from minitransformer.core.training.corpora import LabelledCorpus
from minitransformer.ideas import published
from minitransformer.ideas.after.alibi_models import AlibiLanguageModelConfig, AlibiTransformerConfig
from minitransformer.ideas.published.bart import BartConfig
from minitransformer.ideas.published.families import EVERY, FAMILIES, Family
from minitransformer.ideas.published.family import WORDS
from minitransformer.ideas.published.fields import Fields
from minitransformer.ideas.published.unknown import UNKNOWN
from minitransformer.models import (
    Classifier,
    LanguageModel,
    LanguageModelConfig,
    MaskedLanguageModel,
    TextClassifierConfig,
    TextEncoderConfig,
    from_pretrained,
    load,
    save_pretrained,
)

IDS = np.array([[3, 1, 4, 1, 5]])


def gpt2(**changes: Any) -> LanguageModel:
    sizes = {"max_length": 8, "d_model": 6, "n_heads": 2, "d_ff": 24, "n_layers": 2} | changes
    return LanguageModel(LanguageModelConfig(11, **sizes), np.random.default_rng(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_pretrained(gpt2(), tmp_path)
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    document = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(document))


def change_tensors(folder: Path, **tensors: np.ndarray | None) -> None:
    found = load_file(folder / "model.safetensors") | tensors
    save_file({name: x for name, x in found.items() if x is not None}, folder / "model.safetensors")


def test_what_is_written_reads_again(folder: Path) -> None:
    loaded = from_pretrained(folder)
    assert isinstance(loaded, LanguageModel) and loaded.config == gpt2().config
    np.testing.assert_array_equal(loaded(IDS)[0], gpt2()(IDS)[0])


def test_an_opened_model_can_be_trained(folder: Path) -> None:
    model, twin = from_pretrained(folder), gpt2()
    for each in (model, twin):
        each.loss(IDS, IDS)[1]()
    for (name, one), (_, two) in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.value.flags.writeable and one.value.dtype == np.float32, name
        np.testing.assert_array_equal(one.grad, two.grad, err_msg=name)


@pytest.mark.parametrize("dtype", ["<f2", "bfloat16"])
def test_narrow_numbers_are_widened(folder: Path, dtype: str) -> None:
    exact = load_file(folder / "model.safetensors")
    header, data = {}, b""
    for name, x in exact.items():
        narrow = x.astype("<f2") if dtype == "<f2" else (x.view(np.uint32) >> 16).astype("<u2")
        kind, block = ("F16" if dtype == "<f2" else "BF16"), narrow.tobytes()
        header[name] = {"dtype": kind, "shape": x.shape, "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    write_raw(folder / "model.safetensors", header, data)
    model = from_pretrained(folder)
    found, wanted = model.tokens.table.value, exact["transformer.wte.weight"]
    assert found.dtype == np.float32
    if dtype == "<f2":
        np.testing.assert_array_equal(found, wanted.astype(np.float16).astype(np.float32))
    else:
        np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32) & 0xFFFF0000)


def write_raw(path: Path, header: Any, data: bytes, length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def shard(folder: Path) -> dict[str, str]:
    found = load_file(folder / "model.safetensors")
    names = sorted(found)
    where = {name: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: found[name] for name in names if where[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return where


def test_a_model_in_several_files(folder: Path) -> None:
    whole = from_pretrained(folder).state()
    shard(folder)
    for name, value in from_pretrained(folder).state().items():
        np.testing.assert_array_equal(value, whole[name])


def test_a_link_to_another_place_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").rename(folder / "blob")  # as in the cache of Hugging Face's library
    (folder / "model.safetensors").symlink_to(folder / "blob")
    assert isinstance(from_pretrained(folder), LanguageModel)


# ---- What cannot be read. Each is one error, which names what is wrong. ----


def outside(folder: Path) -> None:
    where = shard(folder)
    where["transformer.wte.weight"] = "../elsewhere.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def absolute(folder: Path) -> None:
    shard(folder)
    index = {"weight_map": {"transformer.wte.weight": "/etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def link_to_itself(name: str) -> Any:
    def make(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(folder / name)

    return make


def links_in_a_circle(folder: Path) -> None:
    file = sorted(set(shard(folder).values()))[0]
    (folder / file).unlink()
    (folder / file).symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / file)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def huge_tensor(folder: Path) -> None:
    header = {"transformer.wte.weight": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4 * 10**18]}}
    write_raw(folder / "model.safetensors", header, b"")


def cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-4])


def deep(folder: Path) -> None:
    (folder / "config.json").write_text('{"a":' * 100_000)


HOSTILE: dict[str, tuple[Any, type[Exception], str]] = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), FileNotFoundError, r"model\.safetensors is missing"),
    "no config": (lambda f: (f / "config.json").unlink(), FileNotFoundError, r"config\.json is missing"),
    "a pickle": (pickled, ValueError, r"pytorch_model\.bin .* can run any code .* weights_only=True"),
    "a folder for the weights": (
        lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()),
        ValueError,
        r"is not a regular file",
    ),
    "a link to itself": (link_to_itself("model.safetensors"), ValueError, r"a link that leads nowhere"),
    "a config linked to itself": (link_to_itself("config.json"), FileNotFoundError, r"a link that leads nowhere"),
    "links in a circle": (links_in_a_circle, FileNotFoundError, r"a link that leads nowhere"),
    "a shard outside": (outside, ValueError, r"'\.\./elsewhere\.safetensors', which is not a file of this folder"),
    "a shard by an absolute path": (absolute, ValueError, r"'/etc/passwd', which is not a file of this folder"),
    "a huge tensor": (huge_tensor, ValueError, r"cannot be read as safetensors"),
    "a file cut short": (cut, ValueError, r"cannot be read as safetensors"),
    "JSON without end": (deep, ValueError, r"config\.json cannot be read as JSON"),
    "no JSON": (lambda f: (f / "config.json").write_text("["), ValueError, r"config\.json cannot be read as JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), ValueError, r"must hold a JSON object, got list"),
    "bytes": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), ValueError, r"cannot be read as JSON"),
    "unknown family": (lambda f: change(f, model_type="mamba"), ValueError, r"model_type must be .* got 'mamba'"),
    "an invented family": (
        lambda f: change(f, model_type="florb"), ValueError, r"got .florb.; nothing is known here"
    ),
    "a family whose mathematics is missing": (
        lambda f: change(f, model_type="deberta"), ValueError, r"'deberta'; .*: separate scores for content and"
    ),
    "unknown head": (
        lambda f: change(f, architectures=["GPT2DoubleHeadsModel"]), ValueError, r"architectures must be one of"
    ),
    "another activation": (
        lambda f: change(f, activation_function="mish"), ValueError, r"activation_function 'mish' is not supported"
    ),
    "scores scaled by layer": (
        lambda f: change(f, scale_attn_by_inverse_layer_idx=True),
        ValueError,
        r"scale_attn_by_inverse_layer_idx True is not supported",
    ),
    "no width": (lambda f: change(f, n_embd=None), ValueError, r"n_embd is missing"),
    "width in words": (lambda f: change(f, n_embd="six"), ValueError, r"n_embd must be an integer .* got 'six'"),
    "width of many digits": (lambda f: change(f, n_embd=10**300), ValueError, r"n_embd must be an integer"),
    "a huge vocabulary": (lambda f: change(f, vocab_size=10**12), ValueError, r"these sizes ask for more than"),
    "a huge width": (lambda f: change(f, n_embd=10**9), ValueError, r"these sizes ask for more than"),
    "a billion layers": (lambda f: change(f, n_layer=10**9), ValueError, r"layers are more than the \d+ tensors"),
    "heads that do not divide": (lambda f: change(f, n_head=4), ValueError, r"cannot be divided into 4"),
    "a rate above 1": (lambda f: change(f, resid_pdrop=1.5), ValueError, r"resid_pdrop must be a rate"),
    "epsilon that is none": (
        lambda f: change(f, layer_norm_epsilon=float("nan")), ValueError, r"layer_norm_epsilon must be a number above 0"
    ),
    "a tensor less": (
        lambda f: change_tensors(f, **{"transformer.ln_f.bias": None}), ValueError, r"ln_f\.bias is missing"
    ),
    "a tensor more": (
        lambda f: change_tensors(f, **{"transformer.extra": np.zeros(3)}), ValueError, r"transformer\.extra is unknown"
    ),
    "a tensor of another shape": (
        lambda f: change_tensors(f, **{"transformer.ln_f.bias": np.zeros(7, np.float32)}),
        ValueError,
        r"transformer\.ln_f\.bias must have shape \(6,\), got \(7,\)",
    ),
    "integers": (
        lambda f: change_tensors(f, **{"transformer.ln_f.bias": np.zeros(6, np.int32)}),
        ValueError,
        r"transformer\.ln_f\.bias is I32; only F64, F32, F16, BF16 can be read",
    ),
    "the same tensor twice": (
        lambda f: change_tensors(f, **{"ln_f.bias": np.zeros(6, np.float32)}), ValueError, r"names for the same tensor"
    ),
    "a tied table that differs": (
        lambda f: change_tensors(f, **{"lm_head.weight": np.zeros((11, 6), np.float32)}),
        ValueError,
        r"lm_head\.weight and transformer\.wte\.weight differ, though the config says that they are tied",
    ),
}  # fmt: skip


@pytest.mark.few(12)
@pytest.mark.parametrize("what", HOSTILE)
def test_what_cannot_be_read_is_said_plainly(folder: Path, what: str) -> None:
    spoil, kind, message = HOSTILE[what]
    spoil(folder)
    tracemalloc.start()
    try:
        with pytest.raises(kind, match=message) as caught:
            from_pretrained(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert type(caught.value) is kind
    assert len(str(caught.value)) < 700
    assert peak < 20e6


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no model folder"):
        from_pretrained(tmp_path / "none")


def example(name: str, path: Path, **changes: Any) -> None:
    """Write the small model of a family."""
    config, head = FAMILIES[name].example()
    model = FAMILIES[name].build(dataclasses.replace(config, **changes), head, np.random.default_rng(0))
    save_pretrained(model, path)


_NO_ROPE = {"no_rope_layers": [1, 0], "use_bias": False, "use_sliding_window": None}  # SmolLM3's, ERNIE 4.5's


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "name, fields, message",
    [
        ("llama", {"rope_scaling": {"type": "mrope", "factor": 2.0}}, "rope_scaling of type 'mrope'"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor is missing"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 1}},
            "longrope needs original_max_position_embeddings of at least 2, got 1",
        ),
        ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "no rope_parameters beside it"),
        (
            "olmo3",
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling must have a rope_type here",
        ),
        ("olmo3", {"rope_parameters": {"full_attention": {"truncate": False}}}, "truncate False is not supported"),
        (
            "modernbert",
            {"rope_parameters": None, "rope_scaling": {"rope_type": "default"}},
            "rope_scaling .* only None",
        ),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported, only 1.0 is"),
        ("llama", {"rope_parameters": {"rope_theta": 9.0, "half": True}}, "in rope_parameters: half = True; it may"),
        ("llama", {"attention_bias": True}, "attention_bias and mlp_bias must be equal"),
        (
            "qwen2",
            {"layer_types": 3 * ["sliding_attention"]},
            "layer_types .* only \\[.sliding_attention., .sliding.* is$",
        ),
        ("smollm3", {"layer_types": 3 * ["full_attention"]}, "layer_types .* only \\[.full_attention., .full.* is$"),
        ("qwen3_5_text", {"layer_types": []}, "layer_types must be full_attention or linear_attention for each layer"),
        ("llama", {"hidden_act": "relu6"}, "hidden_act 'relu6'"),
        ("llama", {"head_dim": 3}, "head_dim must be even, since rotary positions turn pairs of numbers; got 3"),
        ("llama", _NO_ROPE, r"not understood in config.json: no_rope_layers = \[1, 0\], use_bias = False; it may"),
        ("albert", {"embedding_size": 10**9}, "these sizes ask for more than the"),
        ("mixtral", {"num_local_experts": 2**31}, "these sizes ask for more than the"),
        ("modernbert", {"num_hidden_layers": 2**31}, "2147483648 layers are more than the .* tensors of the file hold"),
        ("kimi_linear", {"num_hidden_layers": 2**31, "layer_types": None}, "2147483648 layers are more than the"),
        ("bert", {"embedding_size": 4}, "not understood in config.json: embedding_size = 4"),
        ("t5", {"dense_act_fn": "mish"}, "dense_act_fn 'mish' is not supported"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder False is not supported"),
        ("t5", {"tie_word_embeddings": False, "scale_decoder_outputs": True}, "lm_head.weight is missing, though"),
        ("qwen3", {"model_type": "qwen2_moe"}, "missing here: a gate for the expert that every token uses"),
        ("qwen2", {"use_mrope": True}, "use_mrope True is not supported, only False is"),
    ],
)
def test_what_would_change_the_mathematics_is_refused_by_name(
    tmp_path: Path, name: str, fields: dict[str, Any], message: str
) -> None:
    example(name, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == name
    change(tmp_path, _note="of no family", num_return_sequences=2, pruned_heads={}, gradient_checkpointing=False)
    from_pretrained(tmp_path)  # nothing of this changes the mathematics
    change(tmp_path, **fields)
    with pytest.raises(ValueError, match=message):
        from_pretrained(tmp_path)


def test_what_openais_files_need_is_said(tmp_path: Path) -> None:
    example("gpt_oss", tmp_path)
    change(tmp_path, quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(ValueError, match=r"missing here .* experts .* packed .*, mxfp4\)$"):
        from_pretrained(tmp_path)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_missing_head_is_not_tied_in_silence(tmp_path: Path, name: str) -> None:
    apart = {"share_embeddings": False} if FAMILIES[name].recipe is BartConfig else {}
    example(name, tmp_path, tie_output=False, **apart)
    (head,) = {
        "cls.predictions.decoder.weight",
        "lm_head.decoder.weight",
        "vocab_projector.weight",
        "predictions.decoder.weight",
        "generator_lm_head.weight",
        "embed_out.weight",
        "decoder.weight",
        "lm_head.weight",
    } & load_file(tmp_path / "model.safetensors").keys()
    change(tmp_path, tie_word_embeddings=False)
    from_pretrained(tmp_path)
    change_tensors(tmp_path, **{head: None})
    with pytest.raises(ValueError, match=head.removesuffix(".weight") + ".*is missing"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name, open_it",
    [
        ("config.json", from_pretrained),
        ("model.safetensors", from_pretrained),
        ("tokenizer.json", text.load),
        ("config.json", load),
        ("own/config.json", load),
        ("own/model.safetensors", load),
        ("own/tokenizer.json", text.load),
        ("model.gguf", from_pretrained),
        ("text.txt", read_text),
    ],
)
def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path, name: str, open_it: Any) -> None:
    """A clone without Git LFS has such files in place of those that matter."""
    save_pretrained(gpt2(), tmp_path)
    save(gpt2(), tmp_path / "own")
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 135\n")
    is_file = name.endswith(("gguf", "txt"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is a Git LFS pointer .* `git lfs pull` fetches"):
        open_it(path if is_file else path.parent)


def test_what_is_missing_advises_no_other_name() -> None:
    assert not any("write" in each or "model_type" in each for each in UNKNOWN.values())


# ---- A fuzzer over headers and configs. ----

ODD = [None, True, -1, 0, 1, 7, 10**6, 10**18, 10**40, 1.5, float("nan"), float("inf"), "", "x", "F32", "../x",
       [], [[]], [0], [-1], [10**12, 10**12], {}, {"a": 1}]  # fmt: skip


def spoiled(rng: np.random.Generator, data: bytes) -> bytes:
    """A safetensors file with one thing wrong: in its length, its header or its numbers."""
    length = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    name = str(rng.choice([name for name in header if name != "__metadata__"]))
    odd = ODD[rng.integers(len(ODD))]
    match rng.integers(9):
        case 0:
            return data[: rng.integers(len(data))]
        case 1:
            return struct.pack("<Q", int(rng.integers(2**63))) + data[8:]
        case 2:
            place = int(rng.integers(8, 8 + length))
            return data[:place] + bytes([int(rng.integers(256))]) + data[place + 1 :]
        case 3:
            header[name]["shape"] = odd
        case 4:
            header[name]["dtype"] = odd
        case 5:
            header[name]["data_offsets"] = odd
        case 6:
            header[name] = odd
        case 7:
            header[name]["data_offsets"][int(rng.integers(2))] = int(rng.integers(-10, 2**60))
        case _:
            header["\x00" * int(rng.integers(5))] = header.pop(name)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("seed", range(5))
def test_no_spoiled_header_does_more_than_raise_one_error(folder: Path, seed: int) -> None:
    rng, data = np.random.default_rng(seed), (folder / "model.safetensors").read_bytes()
    whole = from_pretrained(folder).state()
    tracemalloc.start()
    try:
        for _ in range(100):
            (folder / "model.safetensors").write_bytes(spoiled(rng, data))
            try:
                found = from_pretrained(folder).state()
            except (ValueError, FileNotFoundError) as error:
                assert "model.safetensors" in str(error) or "tensor" in str(error) or str(folder) in str(error)
                continue
            assert found.keys() == whole.keys()  # what was spoiled did not matter, such as a space in the header
            assert all(found[name].shape == whole[name].shape for name in whole)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("seed", range(4))
def test_no_spoiled_config_does_more_than_raise_one_error(folder: Path, seed: int) -> None:
    rng, document = np.random.default_rng(seed), json.loads((folder / "config.json").read_text())
    tracemalloc.start()
    try:
        for _ in range(50):
            name = str(rng.choice(list(document)))
            (folder / "config.json").write_text(json.dumps(document | {name: ODD[rng.integers(len(ODD))]}))
            try:
                assert isinstance(from_pretrained(folder), LanguageModel)
            except ValueError as error:
                assert (
                    name in str(error)
                    or "sizes" in str(error)
                    or "divided" in str(error)
                    or "layers" in str(error)
                    or "tensors do not fit" in str(error)
                    or "tied" in str(error)
                ), f"{name}: {error}"
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


# ---- Writing. ----


def test_a_model_that_no_family_has_is_refused(tmp_path: Path) -> None:
    both = {"d_model": 6, "n_heads": 2, "d_ff": 8, "n_encoder_layers": 1, "n_decoder_layers": 2}
    encoder = TextEncoderConfig(11, 9, 6, 2, 8, 2, pooler=None)
    refused = [
        (gpt2(norm_order="post"), "no family has norm_order='post'; the nearest is gpt2, with norm_order='pre'"),
        (AlibiLanguageModelConfig(11, 8, 6, 2, 24, 2).build(), "BLOOM, which has ALiBi, norms its embedding"),
        (AlibiTransformerConfig(11, 11, **both).build(), "no family has ALiBi in an encoder and a decoder"),
        (
            MaskedLanguageModel(dataclasses.replace(encoder, width=4, types=0)),
            "no family has all of this together; the nearest is distilbert, with width=None",
        ),
        (
            TextClassifierConfig(11, 9, 6, 2, 8, 2, types=0, n_classes=3).build(),
            "no family has all of this together; the nearest is distilbert, with pooler='relu'",
        ),
    ]
    for model, message in refused:
        with pytest.raises(ValueError, match="^" + re.escape(f"save_pretrained: {message}") + "$"):
            save_pretrained(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(TypeError, match=r"model must be one of .*LanguageModel.*, got dict"):
        save_pretrained({}, tmp_path)  # type: ignore[arg-type]


def test_pegasus_of_an_odd_width_is_told_so(tmp_path: Path) -> None:
    config = BartConfig(11, 11, 6, 2, 8, 1, 1, positions="halves", norm_order="pre", n_positions=9)
    save_pretrained(config.build(), tmp_path)
    change(tmp_path, d_model=5)
    with pytest.raises(
        ValueError, match="d_model must be even, since sines and cosines for the positions come in pairs"
    ):
        from_pretrained(tmp_path)


def test_what_pools_a_text_is_named_in_its_config() -> None:
    """It was True or False in earlier versions, which would now be taken for a function or for none."""
    sizes = {"d_model": 6, "n_heads": 2, "d_ff": 8, "n_layers": 1, "n_classes": 3}
    for wrong in (True, False, "silu"):
        with pytest.raises(ValueError, match=f"""activation must be "tanh", "relu" or "gelu", got {wrong!r}"""):
            TextClassifierConfig(11, **sizes, pooler=wrong).build()
    ids = np.array([[1, 2, 3]])
    model = TextClassifierConfig(11, **sizes, pooler=None).build()
    hidden = model.hidden(ids)[0]
    np.testing.assert_allclose(model.pool(hidden)[0], hidden.mean(axis=1), rtol=0, atol=1e-6)
    model = TextClassifierConfig(11, **sizes, pooler="relu").build()
    hidden = model.hidden(ids)[0]
    pooled = np.maximum(hidden[:, 0] @ model.pool.dense.weight.value + model.pool.dense.bias.value, 0.0)
    np.testing.assert_allclose(model.pool(hidden)[0], pooled, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        model(ids)[0], pooled @ model.head.weight.value + model.head.bias.value, rtol=0, atol=1e-6
    )


def test_a_published_classifier_is_saved_and_trained_as_any_classifier(tmp_path: Path) -> None:
    sizes = {"d_model": 6, "n_heads": 2, "d_ff": 8, "n_layers": 1, "max_length": 9}
    model = TextClassifierConfig(11, **sizes, n_classes=3).build(np.random.default_rng(0))
    assert isinstance(model, Classifier)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == model.config
    ids = np.array([[5, 3, 2], [7, 4, 0]])
    np.testing.assert_array_equal(again(ids, ids != 0)[0], model(ids, ids != 0)[0])
    corpus = LabelledCorpus([[5, 3, 2], [7, 4]], [0, 2], tokens=6)
    loss, backward = corpus.loss(model, np.arange(2), None)
    backward()
    np.testing.assert_allclose(loss, model.loss(ids, np.array([0, 2]), ids != 0)[0])
    assert all(np.any(parameter.grad) for name, parameter in model.parameters() if "key.bias" not in name)


def test_a_roberta_with_a_head_reads_no_pooler(tmp_path: Path) -> None:
    """The published files have one; its models with a head do not use it."""
    sizes = {"d_model": 6, "n_heads": 2, "d_ff": 8, "n_layers": 1, "max_length": 9, "types": 1}
    counting = {"position_offset": 2, "count_real": True}
    pooled = {"roberta.pooler.dense.weight": np.ones((6, 6), np.float32), "roberta.pooler.dense.bias": np.ones(6)}
    for model in (
        MaskedLanguageModel(TextEncoderConfig(11, **sizes, **counting, pooler=None)),
        TextClassifierConfig(11, **sizes, **counting, n_classes=3).build(),
    ):
        save_pretrained(model, tmp_path)
        own = {"lm_head.dense.weight", "classifier.out_proj.weight"} & load_file(tmp_path / "model.safetensors").keys()
        assert len(own) == 1 and (own == {"lm_head.dense.weight"}) == isinstance(model, MaskedLanguageModel)
        change_tensors(tmp_path, **pooled)
        again = from_pretrained(tmp_path)
        for key, value in again.state().items():
            np.testing.assert_array_equal(value, model.state()[key], err_msg=key)


# ---- Speed and memory. ----

LOAD = r"""
import re, sys, time
from pathlib import Path
from minitransformer.models import from_pretrained
def peak():  # of the memory that is really there
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before, start = peak(), time.process_time()
model = from_pretrained(sys.argv[1])
print(time.process_time() - start, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="only Linux says how much memory a process took")
def test_gpt2_small_loads_in_its_own_size_and_a_third(tmp_path: Path) -> None:
    model = LanguageModel(LanguageModelConfig(50257), np.random.default_rng(0))
    size = sum(p.value.nbytes for _, p in model.parameters())
    assert size == 4 * 124_439_808
    save_pretrained(model, tmp_path)
    del model
    found = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, env=os.environ)
    assert found.returncode == 0, found.stderr
    seconds, memory = map(float, found.stdout.split())
    assert seconds < 3.0
    assert 0.9 * size < memory < 1.3 * size
    print(f"{seconds:.2f} s, {memory / size:.3f} times the weights")


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = "\n".join(block for block in blocks if ".gguf" not in block)  # that file must be downloaded first
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["logits"].shape == (1, 5, 512)
    assert all(abs(parameter.grad).max() > 0.0 for _, parameter in names["model"].parameters())


def test_every_file_of_a_family_is_found() -> None:
    """Families are found by a line of their file; a file that writes that line in another way would be missed."""
    modules = [importlib.import_module(f"{published.__name__}.{m.name}") for m in iter_modules(published.__path__)]
    there = [x for module in modules for x in vars(module).values() if isinstance(x, Family)]
    assert {family.model_type for family in there} <= EVERY.keys() and len(FAMILIES) >= 15


def test_the_command_lists_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--families"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EVERY)


@pytest.mark.parametrize(("fields", "scale"), [({}, 0.25), ({"scale_decoder_outputs": False}, 1.0)])
def test_t5_scales_its_logits_by_the_root_of_the_width_unless_the_file_says_not_to(fields: Any, scale: float) -> None:
    family = FAMILIES["t5"]
    config = family.read(Fields({**family.small, "d_model": 16, **fields}), WORDS, {})
    model = config.build(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(2, 16)).astype(np.float32)
    np.testing.assert_allclose(
        model.output.unembed(x)[0], scale * x @ model.target_tokens.table.value.T, rtol=1e-4, atol=1e-4
    )


def test_roberta_knows_padding_by_its_id() -> None:
    config = TextEncoderConfig(11, 9, 6, 2, 8, 1, types=0, position_offset=3, count_real=True)
    model = MaskedLanguageModel(config, np.random.default_rng(0))
    ids = np.array([[5, 6, 7, 2, 2], [2, 4, 3, 9, 8]])
    np.testing.assert_array_equal(model(ids)[0], model(ids, ids != 2)[0])
    assert abs(model(ids)[0] - model(ids, np.ones(ids.shape, bool))[0]).max() > 1e-3
    sizes = dataclasses.asdict(config) | {"pooler": None}  # the mean over the real tokens
    classifier = TextClassifierConfig(**sizes, n_classes=3).build(np.random.default_rng(0))
    np.testing.assert_array_equal(classifier(ids)[0], classifier(ids, ids != 2)[0])
