"""Parity with Hugging Face on scaled rotary angles: frequencies, and families with each kind, in odd shapes.

The tests are those of test_pretrained.py, with other cases.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minitransformer.core.models.language_model import positions_of
from minitransformer.ideas.after.scaled_angles import ScaledRotary
from minitransformer.ideas.published import angles
from minitransformer.ideas.published.fields import Fields
from minitransformer.models import from_pretrained

from .test_pretrained import (  # fixtures, and tests that run here with the cases below
    _LLAMA,
    GRADIENT,
    OUTPUT,
    ROUNDING,
    Case,
    draw_ids,
    in_float64,  # noqa: F401
    our_gradients,
    run,
    t,
    test_greedy_search_writes_the_same_with_and_without_a_cache,  # noqa: F401
    test_outputs_and_every_gradient_are_theirs,  # noqa: F401
    test_what_we_save_opens_there_and_here_as_the_same_model,  # noqa: F401
    theirs_of,
)

LINEAR = {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 3.0}
YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 8}
GPT_OSS = YARN | {"truncate": False, "beta_fast": 8.0, "beta_slow": 0.5, "original_max_position_embeddings": 24}
DEEPSEEK = YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "original_max_position_embeddings": 16}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 20,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 300.0, "short_factor": [1.0, 1.1, 1.3, 2.0],
    "long_factor": [1.0, 2.0, 5.0, 9.0], "original_max_position_embeddings": 9,
}  # fmt: skip
_WIDE = _LLAMA | {"head_dim": 8, "num_key_value_heads": 2, "pad_token_id": None}
_PHI = _LLAMA | {"pad_token_id": None, "num_key_value_heads": 3, "hidden_size": 48, "num_hidden_layers": 3}

CASES = [
    Case("llama words llama3", "LlamaForCausalLM", _WIDE | {"rope_parameters": LLAMA_3, "tie_word_embeddings": True}),
    # Without a head: their Llama keeps the keys of a short text as it grows long, where their Phi-3 reads it again.
    Case("llama body longrope", "LlamaModel", _WIDE | {"rope_parameters": LONG | {"factor": 1.5}}),
    Case("llama body yarn", "LlamaModel", _WIDE | {"rope_parameters": DEEPSEEK}),
    Case("mistral words linear", "MistralForCausalLM", _WIDE | {"rope_parameters": LINEAR, "sliding_window": None}),
    Case("qwen3 words yarn window", "Qwen3ForCausalLM",
         _WIDE | {"rope_parameters": YARN, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
    Case("gpt_oss words yarn", "GptOssForCausalLM",
         _WIDE | {"rope_parameters": GPT_OSS, "sliding_window": 3, "num_local_experts": 4, "num_experts_per_tok": 2}),
    Case("phi3 words all of each head", "Phi3ForCausalLM",
         _PHI | {"rope_parameters": LONG, "original_max_position_embeddings": 9}),
    Case("phi3 words three quarters, window tied", "Phi3ForCausalLM",
         _PHI | {"sliding_window": 3, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 10,
                 "tie_word_embeddings": True, "num_key_value_heads": 1,
                 "rope_parameters": LONG | {"short_factor": [1.0, 1.2, 3.0], "long_factor": [2.0, 3.0, 4.0],
                                            "attention_factor": 1.25}}),
    Case("phi3 body a quarter, one base", "Phi3Model", _PHI | {"partial_rotary_factor": 0.25, "sliding_window": 5}),
]  # fmt: skip


@pytest.mark.parametrize("theta", [300.0, 1e4, 1e6])
@pytest.mark.parametrize(
    "turn",
    [LINEAR, DYNAMIC, YARN, GPT_OSS, GPT_OSS | {"truncate": None}, DEEPSEEK, LLAMA_3, LONG],
    ids=lambda turn: turn["rope_type"],
)
def test_frequencies(turn: dict[str, Any], theta: float) -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "head_dim": 8, "max_position_embeddings": 32}
    config = transformers.LlamaConfig(**sizes, rope_parameters=turn | {"rope_theta": theta})
    ours = angles.read(Fields(config.to_dict()), 8)
    part = ScaledRotary(ours["rotary_base"], ours["scaled_angles"])
    for length in (5, 9, 10, 32, 33, 77):
        expected, factor = ROPE_INIT_FUNCTIONS[turn["rope_type"]](config, seq_len=length)
        found, m = part.angles(theta, 8, **({} if part.follows is None else {"length": length}))
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert abs(m - factor) < 1e-14


@pytest.fixture
def double_by_default() -> Iterator[None]:
    """Their stretch, of integers, has torch's default dtype."""
    before = torch.get_default_dtype()  # not torch.float32, which means float64 here
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("side", ["no mask", "right", "13 tokens"])
def test_dynamic_angles_of_one_call(side: str, tmp_path: Path, double_by_default: None) -> None:
    """Theirs remember the longest text so far, so each call has a new model."""
    case = Case("llama", "LlamaForCausalLM", _WIDE | {"rope_parameters": DYNAMIC, "max_position_embeddings": 5})
    theirs = theirs_of(case)
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    assert ours.config.max_length == 15
    (their_loss, expected), (_, found), backward = run(case, theirs, ours, side)
    np.testing.assert_allclose(found, expected.detach(), rtol=0, atol=OUTPUT)
    their_loss.backward()
    backward()
    gradients = our_gradients(case, theirs, ours)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(gradients.pop(name), parameter.grad, rtol=ROUNDING, atol=GRADIENT, err_msg=name)
    assert not gradients


def test_a_text_in_a_batch_has_its_own_angles_by_design(tmp_path: Path) -> None:
    """Theirs follow the longest text of the batch; ours are, for each text, those that theirs has for it alone."""
    theirs = theirs_of(CASES[6])
    theirs.save_pretrained(tmp_path)
    mask = np.array([[1] * 11, [0] * 6 + [1] * 5], bool)
    ids, at = draw_ids(np.random.default_rng(0), (2, 11)), positions_of(mask)
    found, _ = from_pretrained(tmp_path)(ids, mask=mask, positions=at)
    expected = theirs(t(ids[1:, 6:])).logits.detach().numpy()
    np.testing.assert_allclose(found[1:, 6:], expected, rtol=0, atol=OUTPUT)
    together = theirs(t(ids), attention_mask=t(mask.astype(int)), position_ids=t(at)).logits.detach().numpy()
    np.testing.assert_allclose(found[0], together[0], rtol=0, atol=OUTPUT)
    assert abs(together[1:, 6:] - expected).max() > 1e-3
