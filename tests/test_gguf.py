"""GGUF files, written by the library `gguf`: they open as the folder of the same model, or are refused in one line."""

import dataclasses
import re
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import IDS, converted, llama, write_gguf, written
from tiers import in_one

from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.ideas.after.scaled_angles.angles import llama3, plain
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.fields import Fields
from minitransformer.ideas.published.gguf import open_file
from minitransformer.models import LanguageModel, from_pretrained

YARN = {
    "kind": "yarn", "factor": 4.0, "trained": 8, "fast": 32.0, "slow": 1.0, "truncate": True, "attention": 1.25,
}  # fmt: skip
EXACT = {"embedding_factor": 3.0, "score_factor": 0.5, "update_factor": 0.25, "logit_divisor": 1.75}
HYBRID: dict[str, Any] = {"n_layers": 4, "full": (1, 3)}  # as full_attention_interval says it
LONG = {"kind": "longrope", "short": [1.0, 1.5], "long": [2.0, 5.0], "trained": 24, "attention": 1.25}


@pytest.mark.parametrize("name, changes, split", [
    ("llama", {}, True), ("llama", {"bias": True, "qkv_bias": True}, True),
    ("llama", {"tie_output": True, "n_key_heads": 1}, True),
    ("qwen2", {"window": None}, True), ("qwen2", {"window": None, "tie_output": True}, True),
    ("qwen3", {"window": None}, True), ("qwen3", {"window": None, "bias": True, "qkv_bias": True}, True),
    ("gemma2", {"query_scalar": 6, "d_head": 6, "tie_output": True}, True), ("gemma", {}, True),
    ("gemma3_text", {"query_scalar": 6, "d_head": 6, "tie_output": True, "full_every": 6, "local_base": 2e4}, True),
    ("smollm3", {"nope_every": 4, "bias": True, "qkv_bias": True, "ff_bias": True}, True),
    ("phi3", {"scaled_angles": LONG, "window": 5}, True), ("phi3", {"scaled_angles": None, "d_rotary": None}, True),
    ("mixtral", {"window": None}, True), ("qwen3_moe", {"window": None, "dense": ()}, True), ("olmoe", {}, True),
    ("olmo2", {}, True), ("olmo3", {"scaled_angles": YARN, "local_base": 500.0}, True), ("granite", EXACT, True),
    ("granitemoehybrid", EXACT | {"k": 2}, True), ("granitemoehybrid", EXACT | {"n_experts": 0}, True),
    ("lfm2", {}, True), ("qwen3_5_text", HYBRID, True), ("qwen3_next", HYBRID | {"dense": ()}, True),
    ("qwen3_next", HYBRID | {"dense": ()}, False), ("deepseek_v2", {}, True), ("deepseek_v2", {"d_query": None}, False),
    ("deepseek_v3", {"sharpness": 0.75, "scaled_angles": YARN | {"attention": 1.0}}, True),
    ("kimi_linear", {}, True), ("seed_oss", {"qkv_bias": True}, True),
])  # fmt: skip
def test_every_family_opens_from_a_file_as_from_a_folder(tmp_path: Path, name: str, changes: Any, split: bool) -> None:
    model = written(tmp_path / "model.gguf", name, changes, split)
    found = from_pretrained(tmp_path / "model.gguf")
    assert found.config == model.config
    for key, value in found.state().items():
        np.testing.assert_allclose(value, model.state()[key], rtol=0, atol=5e-7, err_msg=key)


def test_the_scores_of_gemma_2_27b_are_scaled_as_in_its_folder() -> None:
    found = {"hidden_size": 4608, "num_attention_heads": 32, "num_hidden_layers": 46, "head_dim": 128}
    assert FAMILIES["gemma2"].in_gguf.more(Fields({}), {}, found)["query_pre_attn_scalar"] == 144  # type: ignore[union-attr]


@pytest.mark.parametrize("kind, message", [
    ("stablelm", "what is missing here: a file in published/"),
    ("olmo-hybrid", "as a folder of Hugging Face's, olmo_hybrid opens"),
    ("florb", "nothing is known here about this family"),
])  # fmt: skip
def test_a_file_of_another_family_is_told_what_is_missing(tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match="must be one of bert, .*llama, .*qwen3.*" + message):
        from_pretrained(write_gguf(tmp_path / "model.gguf", llama(), architecture=kind))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1", "F16", "BF16"])
def test_packed_numbers_are_what_their_library_makes_of_them(tmp_path: Path, kind: str) -> None:
    model, number = llama(), gguf.GGMLQuantizationType[kind]
    path = write_gguf(tmp_path / "model.gguf", model, number)
    found, exact = from_pretrained(path), converted(model)["blk.1.ffn_down.weight"]
    unpacked = gguf.dequantize(gguf.quantize(exact, number), number)
    np.testing.assert_array_equal(found.stack.layers[1].feed_forward.sublayer.output.weight.value.T, unpacked)
    assert found.tokens.table.value.dtype == np.float32


def test_a_model_in_several_files(tmp_path: Path) -> None:
    """As their library cuts it. A part that is missing, or another's, is named."""
    model = llama()
    whole = from_pretrained(write_gguf(tmp_path / "model.gguf", model))
    write_gguf(tmp_path / "cut.gguf", model, at_most=8)
    first, *rest = sorted(tmp_path.glob("cut-*"))
    assert [path.name for path in rest] == ["cut-00002-of-00003.gguf", "cut-00003-of-00003.gguf"]
    for name, value in from_pretrained(first).state().items():
        np.testing.assert_array_equal(value, whole.state()[name])
    with pytest.raises(ValueError, match=r"cut-00002-of-00003\.gguf is one of 3 parts; open the first"):
        from_pretrained(rest[0])
    rest[1].write_bytes(rest[0].read_bytes())
    with pytest.raises(ValueError, match=r"cut-00003-of-00003\.gguf does not say that it is part 3 of 3"):
        from_pretrained(first)
    rest[1].unlink()
    with pytest.raises(FileNotFoundError, match=r"cut-00003-of-00003\.gguf"):
        from_pretrained(first)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "model.gguf", llama())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "minitransformer\[models\]"'):
        from_pretrained(path)


def raw(n_tensors: int = 0, n_entries: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries) + rest


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


BYTES = {
    "nothing": (b"", "past its end"),
    "another kind of file": (b"PK\x03\x04" * 9, "does not begin with GGUF"),
    "version 1": (raw(version=1), r"version must be one of \(2, 3\), got 1"),
    "a count of entries": (raw(n_entries=2**60), "claims 1,152,921,504,606,846,976 entries"),
    "a long name": (raw(0, 1, struct.pack("<Q", 2**62) + bytes(99)), "past its end"),
    "a long array": (raw(0, 1, text("a") + struct.pack("<IIQ", 9, 4, 2**61) + bytes(99)), "claims"),
    "arrays in arrays": (raw(0, 1, text("a") + struct.pack("<IIQ", 9, 9, 1) * 50), "unknown type 9"),
    "an unknown kind of value": (raw(0, 1, text("a") + struct.pack("<I", 77) + bytes(9)), "unknown type 77"),
    "a name that is no text": (raw(0, 1, struct.pack("<Q", 2) + b"\xff\xfe" + bytes(9)), "utf-8"),
    "the same name twice": (raw(0, 2, (text("a") + struct.pack("<II", 4, 1)) * 2), "'a' is there twice"),
    "many axes": (raw(1, 0, text("a") + struct.pack("<I", 2**31) + bytes(99)), "1 to 4 axes, got 2147483648"),
    "a huge tensor": (raw(1, 0, text("a") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0) + bytes(99)),
     "'a' ends at byte"),
    "half a block": (raw(1, 0, text("a") + struct.pack("<IQIQ", 1, 31, 8, 0) + bytes(99)), "no whole blocks of 32"),
    "an unknown packing": (raw(1, 0, text("a") + struct.pack("<IQIQ", 1, 32, 99, 0) + bytes(99)), "is of type 99"),
    "integers": (raw(1, 0, text("a") + struct.pack("<IQIQ", 1, 32, 26, 0) + bytes(199)), "is of type I32"),
    "tensors in one place": (raw(2, 0, b"".join(text(n) + struct.pack("<IQIQ", 1, 4, 0, 0) for n in "ab") + bytes(99)),
     "'b' must begin at byte 32 of the numbers, where the one before it ends, got 0"),
    "a tensor elsewhere": (raw(1, 0, text("a") + struct.pack("<IQIQ", 1, 4, 0, 4) + bytes(99)), "at byte 0 .* got 4"),
    "an odd alignment": (raw(0, 1, text("general.alignment") + struct.pack("<II", 4, 0)),
     "general.alignment must be an integer"),
}  # fmt: skip


@in_one("what", BYTES)
def test_what_is_no_whole_file_is_said_plainly(tmp_path: Path, what: str) -> None:
    content, message = BYTES[what]
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        from_pretrained(tmp_path / "model.gguf")
    assert str(tmp_path) in str(caught.value) and len(str(caught.value)) < 500


LLAMA = converted(llama())
METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architecture": "mamba"}, "what is missing here: Mamba's selective state space"),
    "a field that nobody reads": ({"llama__logit_scale": 0.5}, r"not understood in the metadata: llama.logit_scale"),
    "layers that do not attend": ({"llama__attention__head_count_kv": [2, 0]},
     r"in the metadata: llama.attention.head_count_kv = \[2, 0\]"),
    "heads of another number of layers": ({"llama__attention__head_count_kv": [2]}, "a number for each layer"),
    "a last layer that predicts nothing further": ({"llama__nextn_predict_layers": 1}, "blk.1 is a layer like the"),
    "experts of another family": ({"architecture": "qwen2", "qwen2__expert_count": 8},
     "in the metadata: qwen2.expert_count = 8"),
    "stretched rotations": ({"llama__rope__scaling__type": "dynamic"}, "'dynamic' is not supported"),
    "a part of the head rotated": ({"llama__rope__dimension_count": 8}, "rope.dimension_count over .* head, 0.5 is"),
    "a part of a model": ({"split__count": 3}, "is one of 3 parts; open the first, NAME-00001-of-00003.gguf"),
    "one kind of layers in place of each": (
        {"architecture": "olmo2", "olmo2__attention__sliding_window": 4, "olmo2__attention__sliding_window_pattern": 4},
        "sliding_window_pattern must say of each layer",
    ),
    "no width": ({"llama__embedding_length": None}, "llama.embedding_length is missing"),
    "width in words": ({"llama__embedding_length": "64"}, "llama.embedding_length must be an integer"),
    "no epsilon": ({"llama__attention__layer_norm_rms_epsilon": None}, "epsilon is missing"),
    "epsilon that is none": ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, "must be a number above 0"),
    "no heads": ({"llama__attention__head_count": 0}, "head_count must be an integer from 1"),
    "more heads than numbers": ({"llama__attention__head_count": 65}, "at most llama.embedding_length"),
    "heads of odd width": ({"llama__attention__head_count": 64, "llama__rope__dimension_count": None}, "must be even"),
    "a billion layers": ({"llama__block_count": 10**9}, "layers are more than"),
    "a huge feed-forward network": ({"llama__feed_forward_length": 2**31}, "these sizes ask for more"),
    "a tensor less": ({"tensors": {n: x for n, x in LLAMA.items() if "1.ffn_up" not in n}}, "blk.1.ffn_up.weight is"),
    "a tensor more": ({"tensors": LLAMA | {"rope_more.weight": np.ones(8, np.float32)}}, "rope_more.weight is unknown"),
    "factors of other pairs": ({"tensors": LLAMA | {"rope_freqs.weight": np.ones(3, np.float32)}},
     "rope_freqs.weight must .* of the 8 pairs"),
    "a pair that does not turn": ({"tensors": LLAMA | {"rope_freqs.weight": np.eye(1, 8, dtype=np.float32)[0]}},
     "weight must have a number above"),
    "a tensor of another shape": ({"tensors": LLAMA | {"output_norm.weight": np.ones(8, np.float32)}},
     r"output_norm.weight must have .* \(64,\)"),
    "one tensor by two names": ({"tensors": LLAMA | {"model.norm.weight": np.ones(64, np.float32)}},
     "names for the same tensor"),
    "numbers that are none": ({"tensors": LLAMA | {"output_norm.weight": np.full(64, np.nan, np.float32)}},
     ": output_norm.weight contains"),
    "numbers of another type": ({"tensors": LLAMA | {"output_norm.weight": np.ones(64)}},
     "is of type F64, .* must be F32, F16, or packed, such"),
    "no tokens": ({"tensors": {"output_norm.weight": LLAMA["output_norm.weight"]}}, "token_embd.weight must be"),
}  # fmt: skip


@in_one("what", METADATA)
def test_what_is_no_llama_is_said_plainly(tmp_path: Path, what: str) -> None:
    options, message = METADATA[what]
    path = write_gguf(tmp_path / "model.gguf", llama(), **options)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            from_pretrained(path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert str(caught.value).count(str(path)) == 1 and len(str(caught.value)) < 700
    assert not re.search(r"config|folder|self_attn|mlp|head_dim|partial_|hidden_size", str(caught.value))


def test_a_file_that_is_no_gguf_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=r"give the folder of the model, or a \.gguf file"):
        from_pretrained(tmp_path / "model.bin")
    with pytest.raises(FileNotFoundError, match="there is no"):
        from_pretrained(tmp_path / "none.gguf")


def spoiled(rng: np.random.Generator, data: bytes, header: int) -> bytes:
    """A file with one thing wrong: cut short, or with other bytes in its header."""
    if rng.random() < 0.3:
        return data[: rng.integers(len(data))]
    place, n = int(rng.integers(header)), int(rng.choice([1, 4, 8]))
    odd = rng.bytes(n) if rng.random() < 0.5 else rng.choice([0, 1, 2**16, 2**31 - 1]).astype("<u8").tobytes()[:n]
    return data[:place] + odd + data[place + n :]


@pytest.mark.few(0, slow=1)
@pytest.mark.parametrize("seed", range(4))
def test_no_spoiled_file_does_more_than_raise_one_error(tmp_path: Path, seed: int) -> None:
    path = write_gguf(tmp_path / "model.gguf", llama(), tokenizer__ggml__tokens=["a", "b", "cd"])
    data, whole = path.read_bytes(), from_pretrained(path).state()
    header = min(tensor.start for tensor in open_file(path).tensors.values())
    rng = np.random.default_rng(seed)
    refused = 0
    tracemalloc.start()
    try:
        for _ in range(100):
            path.write_bytes(spoiled(rng, data, header))
            try:
                found = from_pretrained(path).state()
            except ValueError as error:
                assert str(path) in str(error) and len(str(error)) < 700
                refused += 1
                continue
            assert all(value.shape == whole[name].shape for name, value in found.items())
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert refused > 50


def test_a_file_that_says_nothing_of_the_base_of_the_angles_has_that_of_the_paper(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", llama(), llama__rope__freq_base=None)
    assert from_pretrained(path).config.rotary_base == 10000.0 != llama().config.rotary_base


def test_angles_scaled_by_1_are_not_scaled(tmp_path: Path) -> None:
    model = llama()
    ones = {"rope_freqs.weight": np.ones(8, np.float32)}
    found = from_pretrained(write_gguf(tmp_path / "model.gguf", model, tensors=converted(model) | ones))
    np.testing.assert_array_equal(found(IDS)[0], model(IDS)[0])


def test_layers_that_predict_further_tokens_are_not_read(tmp_path: Path) -> None:
    """LLM_TENSOR_NEXTN_EH_PROJ of llama.cpp: each such layer has it."""
    model, more = llama(), {"blk.2.nextn.eh_proj.weight": np.ones((64, 128), np.float32)}
    sizes: dict[str, Any] = {"llama__block_count": 3, "llama__nextn_predict_layers": 1}
    found = from_pretrained(write_gguf(tmp_path / "model.gguf", model, tensors=converted(model) | more, **sizes))
    assert found.config.n_layers == 2


def test_a_llama_3_has_its_angles_in_factors(tmp_path: Path) -> None:
    """As convert_hf_to_gguf.py writes them: how many times more slowly each pair turns than without scaling."""
    scaled = {"kind": "llama3", "factor": 8.0, "trained": 64, "low": 1.0, "high": 4.0}
    config = dataclasses.replace(llama().config, scaled_angles=scaled)
    model = ordinary(config.build(), np.random.default_rng(0)).to(dtype="float32")
    width, base = config.d_head, config.rotary_base
    factors = plain(base, width)[0] / llama3(base, width, factor=8.0, trained=64)[0]
    assert len(set(factors)) > 3
    stored = {"rope_freqs.weight": factors.astype(np.float32)}
    found = from_pretrained(write_gguf(tmp_path / "model.gguf", model, tensors=converted(model) | stored))
    assert type(found) is LanguageModel
    ids = np.array([[5, 6, 7, 8] * 7])
    np.testing.assert_allclose(found(ids)[0], model(ids)[0], rtol=0, atol=2e-4)
