"""Parity with Hugging Face of the heads that read a text: classes, classes of tokens, answers, replaced tokens, T5's.

Each architecture of each family that is found, in the family's small model.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from minitransformer.core.models.language_model import positions_of
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import CLASSES, ENCODER, ENCODERS, WORDS
from minitransformer.ideas.published.heads import ANSWERS, HEADS, REPLACED, TOKENS
from minitransformer.models import Classifier, LanguageModel, from_pretrained, save_pretrained
from minitransformer.run.published_models import sentence_vectors

from . import test_pretrained as published
from .test_pretrained import Case, in_float64, t, theirs_of  # noqa: F401  # a fixture, and what pairs are made with

N = 3  # classes
BY_END, END = ("t5", "mt5", "bart", "mbart"), 9  # theirs decide by the last of these; ours, but mBART's, by the last
_MEAN = {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True}


def _cases() -> list[Case]:
    found = []
    for family in FAMILIES.values():
        decoder = WORDS in family.architectures.values()
        for architecture, head in family.architectures.items():
            if head in (ENCODER, *HEADS) or (head == CLASSES and (decoder or family.model_type == "modernbert")):
                sizes = {"num_labels": 2 if head == ANSWERS else N, "pad_token_id": published.PAD}
                if family.model_type in BY_END:
                    sizes["eos_token_id"] = END
                if family.model_type == "gpt2":
                    sizes["tie_word_embeddings"] = False  # it has no table of logits to tie
                found.append(Case(f"{family.model_type} {head}", architecture, dict(family.small) | sizes))
    odd = {"hidden_size": 20, "num_attention_heads": 2, "num_hidden_layers": 4, "num_labels": N}
    modern = dict(FAMILIES["modernbert"].small) | odd | _MEAN
    found.append(Case("modernbert mean, biases", "ModernBertForSequenceClassification", modern))
    apart = dict(FAMILIES["bart"].small) | {"tie_word_embeddings": False, "num_labels": N, "eos_token_id": END}
    found.append(Case("bart two tables", "BartForSequenceClassification", apart))
    found.append(Case("mbart two tables", "MBartForQuestionAnswering", apart | {"num_labels": 2}))
    return found


CASES = _cases()


def logits_of(found: Any) -> Any:
    """Their logits, (B, T, 2) of an answer."""
    return found.logits if hasattr(found, "logits") else torch.stack([found.start_logits, found.end_logits], dim=-1)


def run(case: Case, theirs: Any, ours: Any, side: str) -> Any:
    """Their loss and output, ours, and our backward pass."""
    rng = np.random.default_rng(7)
    mask = published.MASKS[side]
    reads_first = isinstance(ours, Classifier) and getattr(ours.config, "pooling", "") == "cls"
    if side == "left" and reads_first:
        mask = mask[:, ::-1]
    ids = published.draw_ids(rng, (3, 7) if mask is None else mask.shape)
    real = np.ones(ids.shape, bool) if mask is None else mask
    ids[~real] = published.PAD
    if case.architecture.endswith("ForSequenceClassification") and case.model_type in BY_END:
        ids[ids == END] -= 1
        behind = case.model_type == "mbart"  # where the language stands
        ids[range(len(ids)), [int(np.flatnonzero(row)[-1 - behind :][0]) for row in real]] = END
    options = {} if mask is None else {"attention_mask": t(mask.astype(int))}
    if case.model_type == "mbart":  # theirs take the wrong first token where the padding is on the left
        last = [int(np.flatnonzero(row)[-1]) for row in real]
        options["decoder_input_ids"] = t(np.concatenate([ids[range(len(ids)), last][:, None], ids[:, :-1]], axis=1))
    if case.model_type in ("gpt2", "opt") and mask is not None:  # theirs count all tokens, if they are not told
        options["position_ids"] = t(positions_of(mask))
    found = theirs(t(ids), **options)
    if case.architecture.endswith("EncoderModel"):
        hidden, backward = ours(ids, mask)
        return published.summed(found.last_hidden_state, hidden, real, backward, rng)
    logits, _ = ours(ids, mask)
    given = logits_of(found)
    if isinstance(ours, Classifier):
        labels = rng.integers(0, N, len(ids))
        loss, backward = ours.loss(ids, labels, mask)
        return (F.cross_entropy(given, t(labels)), given), (loss, logits), backward
    if ours.config.head == TOKENS:
        wanted = np.where(real & (rng.random(ids.shape) < 0.7), rng.integers(0, N, ids.shape), -100)
        wanted[0, 0] = 1
        loss, backward = ours.loss(ids, wanted, mask)
        return (published.entropy(given, wanted), given[t(real)]), (loss, logits[real]), backward
    if ours.config.head == REPLACED:
        wanted = np.where(real, rng.integers(0, 2, ids.shape), -100)
        loss, backward = ours.loss(ids, wanted, mask)
        options["labels"] = t(np.where(real, wanted, 0))
        return (theirs(t(ids), **options).loss, given[t(real)]), (loss, logits[real]), backward
    starts = [int(np.flatnonzero(row)[0]) for row in real]
    ends = [int(np.flatnonzero(row)[-1]) for row in real]
    wanted = np.array([starts, ends]).T
    if mask is not None:  # one that does not count; theirs have no number for that
        wanted[-1] = -100
    loss, backward = ours.loss(ids, wanted, mask)
    hidden_places = given.masked_fill(t(~real)[..., None], -torch.inf)  # ours leave padding out
    their_loss = sum(F.cross_entropy(hidden_places[..., i], t(wanted[:, i])) for i in range(2)) / 2
    if mask is None:
        options = {"start_positions": t(wanted[:, 0]), "end_positions": t(wanted[:, 1])}
        assert abs(float(theirs(t(ids), **options).loss.detach()) - float(loss)) < published.OUTPUT
    return (their_loss, given[t(real)]), (loss, logits[real]), backward


@pytest.mark.parametrize("side", ["no mask", "right", "left"])
def test_outputs_and_every_gradient_are_theirs(pair: Any, side: str) -> None:
    rest = published.require_alike(pair, run(*pair, side), our_gradients)
    assert not any(gradient.any() for gradient in rest.values())


def our_gradients(case: Case, theirs: Any, ours: Any) -> dict[str, np.ndarray]:
    family = FAMILIES[case.model_type]
    head = family.architectures[case.architecture]
    prefix = family.before_body(head)
    values = {name: parameter.value for name, parameter in ours.parameters()}
    try:
        for _, parameter in ours.parameters():
            parameter.value = parameter.grad
        layout = family.layout(ours, prefix and f"{prefix}.").as_in({name for name, _ in theirs.named_parameters()})
        found = {place.theirs: place.read() for place in layout.places}
        if case.model_type in ("bart", "mbart"):  # their decoder reads padding, but its vector is not trained
            shared = "model.shared.weight"
            found[shared if shared in found else "model.decoder.embed_tokens.weight"][published.PAD] = 0.0
        return found
    finally:
        for name, parameter in ours.parameters():
            parameter.value = values[name]


def test_what_we_save_opens_there_and_here_as_the_same_model(pair: Any, tmp_path: Path) -> None:
    case, _, ours = pair
    save_pretrained(ours, tmp_path, pad_token_id=published.PAD, eos_token_id=END)
    kind = transformers.AutoConfig.from_pretrained(tmp_path).architectures[0]
    again, report = getattr(transformers, kind).from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
    again.config._experts_implementation = "eager"
    published.exact_gelu(again)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    here, ids = from_pretrained(tmp_path), published.draw_ids(np.random.default_rng(5), (2, 7))
    ids[ids == END], ids[:, -1] = END - 1, END
    assert type(here) is type(ours) and here.config == ours.config
    np.testing.assert_array_equal(here(ids)[0], ours(ids)[0])
    found = again.eval()(t(ids))
    expected = found.last_hidden_state if case.architecture.endswith("EncoderModel") else logits_of(found)
    np.testing.assert_allclose(ours(ids)[0], expected.detach(), rtol=0, atol=published.OUTPUT)


class Digits:
    """A tokenizer whose texts are their ids."""

    def encode(self, text: str, special: bool = False) -> list[int]:
        return [int(each) for each in text]


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if WORDS in family.architectures.values()])
def test_the_vector_of_a_text_is_of_its_last_token(name: str, tmp_path: Path) -> None:
    """As Qwen3-Embedding's documents compute it, padded on the left; here the padding is on the right."""
    family = FAMILIES[name]
    case = Case(name, next(each for each, head in family.architectures.items() if head == WORDS), dict(family.small))
    theirs = theirs_of(case)
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    if not isinstance(ours, LanguageModel):
        return
    texts = ["3745", "8", "53746"]
    mask = np.arange(5) >= 5 - np.array([[len(text)] for text in texts])
    ids = t([[0] * (5 - len(text)) + [int(each) for each in text] for text in texts])
    given = {"attention_mask": t(mask.astype(int)), "position_ids": t(positions_of(mask))}
    last = theirs.base_model(ids, **given).last_hidden_state[:, -1]
    expected = F.normalize(last, dim=1).detach()
    np.testing.assert_allclose(sentence_vectors(ours, Digits(), texts), expected, rtol=0, atol=published.OUTPUT)


def test_the_cases_have_every_head() -> None:
    heads = {case.name.split()[1] for case in CASES}
    assert heads >= {CLASSES, ENCODER, *HEADS} and len(CASES) > 30
    assert set(ENCODERS.values()) >= {TOKENS, ANSWERS}
