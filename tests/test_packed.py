"""Packed weights: blocks as their library unpacks them, models as with unpacked weights, and no gradient."""

import copy
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import IDS, llama, write_gguf, written
from tiers import in_one

from minitransformer import fast
from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.cli import main
from minitransformer.ideas.published import packing, pretrained
from minitransformer.ideas.published.opening import opened_packed
from minitransformer.ideas.published.packed import PackedEmbedding, PackedLinear, PackedWeight, pack, packed_product
from minitransformer.layers import Embedding, Linear
from minitransformer.models import LanguageModel, LanguageModelConfig, from_pretrained, load, save
from minitransformer.run.fast.large_cases import drawn_rows

KINDS = [*packing.KINDS]


@in_one("kind", KINDS)
def test_every_kind_is_unpacked_as_their_library_does(kind: str) -> None:
    rows = drawn_rows(np.random.default_rng(0), kind, 3, 512)
    expected = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(packing.unpack(rows, kind), expected)
    assert packing.all_finite(rows, kind)
    for at in packing.KINDS[kind].scales or (0,):
        wrong = rows.copy()
        wrong[1, at : at + 2] = (0, 0x7C) if kind != "BF16" else (0x80, 0x7F)  # infinity
        assert not packing.all_finite(wrong, kind)


def test_eight_bits_are_the_nearest_of_255_steps_and_bfloat16_the_nearest_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(5, 45)).astype(np.float32)
    x[2] = 0.0
    found = packing.unpack(packing.pack(x, "Q8_0"), "Q8_0")
    assert found.shape == (5, 64) and not found[:, 45:].any() and not found[2].any()
    steps = np.repeat(abs(np.pad(x, ((0, 0), (0, 19))).reshape(5, 2, 32)).max(axis=-1) / 127.0, 32, axis=1)[:, :45]
    assert (abs(found[:, :45] - x) <= steps * (0.5 + 127 * 2.0**-11) + 1e-12).all()  # half a step, and a rounded scale
    near = np.array([[1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-8 + 2.0**-20, -3.0]], np.float32)
    expected = [1.0, 1.0, 1.0 + 2.0**-6, 1.0 + 2.0**-7, -3.0]  # the second and third lie midway: to the even one
    assert packing.unpack(packing.pack(near, "BF16"), "BF16")[0].tolist() == expected
    with pytest.raises(ValueError, match="kind must be one of Q8_0, BF16, got 'Q4_K'"):
        packing.pack(x, "Q4_K")


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_loops_unpack_to_the_last_bit_and_multiply(kind: str) -> None:
    from minitransformer.run.fast import packed_loops

    rng = np.random.default_rng(1)
    weight = PackedWeight(drawn_rows(rng, kind, 33, 512), kind, 512, across=True)
    numbers = np.empty((33, 512), np.float32)
    packed_loops.unpack(packed_loops.KINDS[kind], weight.rows, numbers, packed_loops.counters(1))
    np.testing.assert_array_equal(numbers, weight.value.T)
    for n in (1, 9):  # a loop, and BLAS
        x = rng.normal(size=(n, 1, 512)).astype(np.float32)
        bound = 512 * np.finfo(np.float32).eps * (abs(x) @ abs(weight.value))
        assert (abs(fast.ops.packed_product(x, weight) - x.astype(float) @ weight.value) <= bound).all()


def gpt2() -> LanguageModel:
    config = LanguageModelConfig(13, max_length=16, d_model=24, n_heads=2, d_ff=40, n_layers=2, dropout=0.0)
    return ordinary(LanguageModel(config), np.random.default_rng(0)).to(dtype="float32")  # type: ignore[no-any-return]


@in_one("weights, make", ["int8", "bfloat16"], [gpt2, llama, lambda: llama(tie_output=False)])
def test_a_packed_model_is_the_model_of_its_unpacked_weights(make: Any, weights: str) -> None:
    model = make()
    packed = pack(copy.deepcopy(model), weights)
    plain = copy.deepcopy(model)
    plain.load_state(packed.state())
    assert [*packed.state()] == [*model.state()] and packed.device == "numpy"
    kinds = {type(part) for _, part in packed.modules()}
    assert not kinds & {Linear, Embedding} and kinds >= {PackedLinear, PackedEmbedding}
    expected = plain(IDS)[0]
    np.testing.assert_allclose(packed(IDS)[0], expected, rtol=0, atol=1e-6 * abs(expected).max())
    np.testing.assert_allclose(fast.accelerate(packed)(IDS)[0], expected, rtol=0, atol=1e-5 * abs(expected).max())
    assert 0.0 < abs(expected - model(IDS)[0]).max() < 0.1 * abs(expected).max()


def test_a_packed_model_is_saved_unpacked(tmp_path: Path) -> None:
    packed = pack(gpt2(), "int8")
    save(packed, tmp_path / "model")
    state = load(tmp_path / "model").state()
    assert all(np.array_equal(state[name], value) for name, value in packed.state().items())


def test_packed_weights_have_no_gradient_and_are_not_set() -> None:
    model = pack(gpt2(), "int8")
    _, backward = model.loss(IDS[:, :-1], IDS[:, 1:])
    with pytest.raises(ValueError, match="has no backward pass; open it without packing"):
        backward()
    with pytest.raises(ValueError, match="has no gradient; open the model without packing"):
        model.zero_grad()
    for change in (lambda: model.to(dtype="float64"), lambda: model.load_state(model.state())):
        with pytest.raises(ValueError, match=r"only read|read-only"):
            change()
    assert model.to("numpy") is model
    head = model.stack.layers[0].self_attention.sublayer.query.part(columns=slice(0, 12))
    assert type(head) is Linear and head.weight.value.shape == (24, 12)
    with pytest.raises(ValueError, match=r"must be one of int8, bfloat16, got 'int4'"):
        pack(gpt2(), "int4")
    with pytest.raises(ValueError, match=r"float64, device=numpy\); convert it first"):
        pack(gpt2().to(dtype="float64"), "int8")
    with pytest.raises(ValueError, match="ids must be from 0 to 12"):
        model(np.array([[13]]))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "BF16"])
def test_a_file_opens_packed_as_it_opens_unpacked(tmp_path: Path, kind: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", llama(), gguf.GGMLQuantizationType[kind])
    plain, packed = from_pretrained(path), pretrained.of_file(path, packed=True)
    for name, value in plain.state().items():
        np.testing.assert_array_equal(packed.state()[name], value, err_msg=name)
    assert type(packed.tokens.table) is PackedWeight and packed.tokens.table.kind == kind
    expected = plain(IDS)[0]
    np.testing.assert_allclose(packed(IDS)[0], expected, rtol=0, atol=1e-6 * abs(expected).max())


def test_rows_of_three_maps_in_one_tensor_stay_packed(tmp_path: Path) -> None:
    path, plain_turn = tmp_path / "model.gguf", {"scaled_angles": None, "d_rotary": None}
    written(path, "phi3", plain_turn, quantized=gguf.GGMLQuantizationType.BF16)
    plain, packed = from_pretrained(path), pretrained.of_file(path, packed=True)
    attention = packed.stack.layers[0].self_attention.sublayer
    assert type(attention.key) is PackedLinear and (attention.query.d_out, attention.key.d_out) == (24, 8)
    for name, value in plain.state().items():
        np.testing.assert_array_equal(packed.state()[name], value, err_msg=name)


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", llama(), gguf.GGMLQuantizationType.Q8_0)
    from minitransformer.ideas.published.gguf import open_file

    spoiled = bytearray(path.read_bytes())
    at = open_file(path).tensors["blk.1.ffn_down.weight"].start
    spoiled[at : at + 2] = b"\x00\x7e"
    path.write_bytes(spoiled)
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        pretrained.of_file(path, packed=True)


def test_what_cannot_be_packed_is_said_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"is no \.gguf file, whose weights are packed; pack them as int8 or bf"):
        opened_packed(tmp_path, LanguageModel)
    assert main(["generate", "--model", str(tmp_path), "--weights", "packed"]) == 1
    assert "is no .gguf file" in capsys.readouterr().err
    weight = PackedWeight(packing.pack(np.ones((2, 32), np.float32), "Q8_0"), "Q8_0", 32, across=True)
    np.testing.assert_allclose(packed_product(np.ones((1, 32), np.float32), weight), 32.0, rtol=1e-3)
    assert repr(weight) == "PackedWeight(Q8_0, 68 bytes)"
