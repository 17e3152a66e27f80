"""AdamW, gradient clipping and whole training steps against PyTorch in float64."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minitransformer import models
from minitransformer.training import AdamW, warmup_schedule

from .counterparts import TorchLanguageModel, TorchTransformer, blocked, copy_weights, t

pytestmark = pytest.mark.parity

Agree = Callable[..., None]


def torch_adamw(tensors: Iterable[Any], learning_rate: float, decay_vectors: bool, **options: Any) -> Any:
    """torch.optim.AdamW whose parameters of one axis decay only on demand."""
    tensors = list(tensors)
    vectors, others = ([p for p in tensors if (p.ndim == 1) == is_vector] for is_vector in (True, False))
    options = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01} | options
    decay = options.pop("weight_decay")
    groups = [
        {"params": others, "weight_decay": decay},
        {"params": vectors, "weight_decay": decay if decay_vectors else 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, **options)


SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 3, "d_ff": 20}


def train(
    agree: Agree,
    subject: str,
    form: Callable[[Any], Any],
    ours: Any,
    theirs: Any,
    our_loss: Callable[[int], Any],
    torch_loss: Callable[[int], Any],
    schedule: Callable[[int], float],
    decay_vectors: bool = False,
) -> None:
    """Ten steps on both sides from equal weights: every loss, and at the end every weight."""
    ours.to(dtype="float64")
    pairs = copy_weights(ours, theirs)
    optimizer = form(AdamW(ours.parameters(), 1.0, decay_vectors=decay_vectors))
    torch_optimizer = torch_adamw(theirs.parameters(), 1.0, decay_vectors)
    before = ours.state()
    for step in range(1, 11):
        loss, backward = our_loss(step)
        expected = torch_loss(step)
        agree(subject, f"loss at step {step}", loss, expected)

        ours.zero_grad()
        backward()
        optimizer.step(schedule(step))

        theirs.zero_grad()
        expected.backward()
        for group in torch_optimizer.param_groups:
            group["lr"] = schedule(step)
        torch_optimizer.step()
    for pair in pairs:
        agree(subject, f"{pair.name} after ten steps", pair.ours.value, pair.view(pair.theirs))
        moved = np.abs(pair.ours.value - before[pair.name]).max()
        if pair.name.endswith("key.bias"):  # the softmax ignores it, so its true gradient is zero
            assert moved < 1e-9
        else:
            assert moved > 0.01, f"{pair.name} hardly moved"


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_ten_steps_of_an_encoder_decoder(norm_order: str, form: Any, agree: Agree) -> None:
    """Three tied tables, padding on both sides, smoothed labels, the schedule of section 5.3, new batches."""
    config = models.TransformerConfig(11, 11, n_encoder_layers=2, n_decoder_layers=2, norm_order=norm_order, **SMALL)
    rng = np.random.default_rng(0)
    ours, theirs = form(models.Transformer(config, rng)), TorchTransformer(config)

    def batch(step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Three sequences of different lengths to be copied; 0 is padding and 1 starts a target."""
        rng = np.random.default_rng(step)
        source = rng.integers(2, 11, size=(3, 6)) * (np.arange(6) < np.array([[6], [4], [2]]))
        return source, np.concatenate([np.ones((3, 1), int), source[:, :-1]], axis=1), source, source != 0

    def our_loss(step: int) -> Any:
        source, target, wanted, real = batch(step)
        return ours.loss(source, target, wanted, real, target != 0, ignore_index=0, label_smoothing=0.1)

    def torch_loss(step: int) -> Any:
        source, target, wanted, real = batch(step)
        logits = theirs(t(source), t(target), blocked(real), blocked(target != 0))
        return F.cross_entropy(logits.flatten(0, 1), t(wanted).flatten(), ignore_index=0, label_smoothing=0.1)

    def schedule(step: int) -> float:
        return warmup_schedule(step, d_model=12, warmup=40)

    train(agree, f"10 steps, encoder-decoder, {norm_order}-norm", form, ours, theirs, our_loss, torch_loss, schedule)


@pytest.mark.parametrize("decay_vectors", [False, True], ids=["matrices decay", "all decay"])
def test_ten_steps_of_a_language_model(decay_vectors: bool, form: Any, agree: Agree) -> None:
    config = models.LanguageModelConfig(9, max_length=8, n_layers=2, **SMALL)
    ours, theirs = form(models.LanguageModel(config, np.random.default_rng(0))), TorchLanguageModel(config)

    def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
        """Counting up modulo 9 from anywhere."""
        start = np.random.default_rng(step).integers(9, size=(4, 1))
        ids = (start + np.arange(9)) % 9
        return ids[:, :-1], ids[:, 1:]

    def torch_loss(step: int) -> Any:
        ids, wanted = batch(step)
        return F.cross_entropy(theirs(t(ids)).flatten(0, 1), t(wanted).flatten())

    train(
        agree,
        "10 steps, language model",
        form,
        ours,
        theirs,
        lambda step: ours.loss(*batch(step)),
        torch_loss,
        lambda step: 0.02 / math.sqrt(step),
        decay_vectors,
    )
