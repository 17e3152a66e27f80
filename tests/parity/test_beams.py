"""Parity with Hugging Face's beam search: both rules of stopping, every text of a beam and its score."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from minitransformer.generation import Continuation, Translation, beam_search
from minitransformer.ideas.published.bart import BartConfig
from minitransformer.models import LanguageModel, LanguageModelConfig, save_pretrained

START, END = 1, 2
SIZES = {"d_model": 12, "n_heads": 3, "d_ff": 20}


def lively(model: Any, seed: int, size: float = 0.4) -> Any:
    """With weights that make some texts end soon and others late."""
    rng = np.random.default_rng(seed)
    for _, parameter in model.parameters():
        parameter.value = parameter.value + rng.normal(0.0, size, parameter.value.shape)
    return model.to(dtype="float64")


@pytest.mark.parametrize("kind", ["continuation", "translation"])
@pytest.mark.parametrize("early", [True, False])
def test_every_text_of_a_beam_and_its_score_are_theirs(kind: str, early: bool, tmp_path: Path) -> None:
    """Theirs adds up in float32, so texts with scores that close may come in a different order; none did."""
    n, cut_off, ended, lengths = 0, 0, 0, set()
    for seed in range(3):
        folder = tmp_path / str(seed)
        if kind == "continuation":
            model = lively(
                LanguageModel(LanguageModelConfig(11, 32, **SIZES, n_layers=1), np.random.default_rng(seed)), seed
            )
            save_pretrained(model, folder, eos_token_id=END, pad_token_id=0)
            theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        else:
            layers = {"n_encoder_layers": 1, "n_decoder_layers": 1}
            marian = {"positions": "halves", "scale_embedding": True, "activation": "relu"}
            model = lively(
                BartConfig(11, 11, **SIZES, **layers, **marian).build(np.random.default_rng(seed)), seed, 0.7
            )
            special = {"eos_token_id": END, "pad_token_id": 0, "decoder_start_token_id": START}
            save_pretrained(model, folder, **special)
            theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()
        for prompt in ([3, 5, 4], [7], [9, 9, 4, 8, 3, 10]):
            for beam, alpha, n_new in ((2, 1.0, 5), (3, 0.6, 8), (5, 0.0, 8), (4, 2.0, 12)):
                found = theirs.generate(
                    torch.tensor([prompt]),
                    num_beams=beam,
                    num_return_sequences=beam,
                    length_penalty=alpha,
                    max_new_tokens=n_new,
                    early_stopping=early,
                    do_sample=False,
                    return_dict_in_generate=True,
                    output_scores=True,
                )
                if isinstance(model, LanguageModel):
                    (ours,) = beam_search(Continuation(model), [prompt], n_new, beam, alpha, END, early)
                else:
                    prefix = Translation(model, np.array([prompt]))
                    (ours,) = beam_search(prefix, [[START]], n_new, beam, alpha, END, early)
                skip = len(prompt) if isinstance(model, LanguageModel) else 1
                texts = [row[skip:] for row in found.sequences.tolist()]
                texts = [row[: row.index(END) + 1] if END in row else row for row in texts]
                assert [each.tokens for each in ours] == texts
                np.testing.assert_allclose([h.score for h in ours], found.sequences_scores, rtol=0, atol=1e-5)
                n += 1
                ended += sum(END in h.tokens for h in ours)
                cut_off += sum(END not in h.tokens for h in ours)
                lengths |= {len(h.tokens) for h in ours}
    assert n == 36 and ended > 10 and cut_off > 10 and len(lengths) > 5
