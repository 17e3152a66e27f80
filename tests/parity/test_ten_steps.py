"""Ten steps of whole models beside PyTorch: every loss, every gradient, every weight, in float64.

Both sides begin with the same weights and then train by themselves: nothing is copied over between steps, so a
difference would grow. Gradients are clipped and the rate follows the inverse square root. In the encoder-decoder one
table serves source, target and logits; both sides of the batch are padded, each to its own lengths; labels are smoothed
by 0.1.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minitransformer import models
from minitransformer.training import SGD, Adam, AdamW, clip_gradient_norm, inverse_sqrt

from .counterparts import TorchLanguageModel, TorchTransformer, blocked, copy_weights, t

Agree = Callable[..., None]

PAD, START, VOCABULARY = 0, 1, 13
SMALL: dict[str, Any] = {"d_model": 12, "n_heads": 3, "d_ff": 20}
LIMIT = 1.0  # of the norm of all gradients
WARMUP = 4


# Each with the peak of its schedule. Key biases, which the softmax ignores, have gradients that are all rounding error;
# Adam divides that by ε, which is why the paper's 1e-9 would enlarge them almost to the tolerance.
def torch_adamw(tensors: Iterable[Any]) -> Any:
    """torch.optim.AdamW whose parameters of one axis do not decay."""
    tensors = list(tensors)
    vectors, others = ([p for p in tensors if (p.ndim == 1) == is_vector] for is_vector in (True, False))
    groups = [{"params": others, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1.0)


OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "SGD": (lambda p: SGD(p, 1.0, momentum=0.9), lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), 0.2),
    "Adam": (lambda p: Adam(p, 1.0, betas=(0.9, 0.98)), lambda p: torch.optim.Adam(p, lr=1.0, betas=(0.9, 0.98)), 0.02),
    "AdamW": (
        lambda p: AdamW(p, 1.0, decay_vectors=True),
        lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0.01),
        0.02,
    ),
    "AdamW, matrices alone decay": (lambda p: AdamW(p, 1.0), torch_adamw, 0.02),
}


def batch(step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """source (4, 7), target (4, 6) and wanted (4, 6), new at each step; every row but the first is padded."""
    rng = np.random.default_rng(step)
    source = rng.integers(2, VOCABULARY, size=(4, 7)) * (np.arange(7) < np.array([[7], [5], [3], [1]]))
    wanted = rng.integers(2, VOCABULARY, size=(4, 6)) * (np.arange(6) < np.array([[6], [2], [5], [3]]))
    target = np.concatenate([np.full((4, 1), START), wanted[:, :-1]], axis=1)
    return source, target, wanted


def torch_clip(parameters: list[Any]) -> Any:
    """The formula of clip_grad_norm_ without the 1e-6 that it adds to the norm, which would be a difference."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    if norm > LIMIT:
        for p in parameters:
            p.grad *= LIMIT / norm
    return norm


Loss = Callable[[int], Any]


def encoder_decoder(form: Any, norm_order: str) -> tuple[Any, Any, Loss, Loss]:
    """Ours and theirs, and the loss of each at a step."""
    options = {"share_embeddings": True, "tie_output": True, "norm_order": norm_order}
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 2, **SMALL}
    config = models.TransformerConfig(VOCABULARY, VOCABULARY, **sizes, **options)
    ours = form(models.Transformer(config, np.random.default_rng(0)).to(dtype="float64"))
    theirs = TorchTransformer(config)
    tables = [name for name, p in ours.parameters() if p.value.shape == (VOCABULARY, 12)]
    assert len(tables) == 1 and theirs.source is theirs.target is theirs.output

    def our_loss(step: int) -> Any:
        source, target, wanted = batch(step)
        real, target_real = source != PAD, target != PAD
        assert not real.all() and not target_real.all()
        return ours.loss(source, target, wanted, real, target_real, PAD, label_smoothing=0.1)

    def torch_loss(step: int) -> Any:
        source, target, wanted = batch(step)
        logits = theirs(t(source), t(target), blocked(source != PAD), blocked(target != PAD))
        return F.cross_entropy(logits.flatten(0, 1), t(wanted).flatten(), ignore_index=PAD, label_smoothing=0.1)

    return ours, theirs, our_loss, torch_loss


def language_model(form: Any) -> tuple[Any, Any, Loss, Loss]:
    """It learns to count up modulo 9 from anywhere."""
    config = models.LanguageModelConfig(9, max_length=8, n_layers=2, **SMALL)
    ours = form(models.LanguageModel(config, np.random.default_rng(0)).to(dtype="float64"))
    theirs = TorchLanguageModel(config)

    def counted(step: int) -> tuple[np.ndarray, np.ndarray]:
        ids = (np.random.default_rng(step).integers(9, size=(4, 1)) + np.arange(9)) % 9
        return ids[:, :-1], ids[:, 1:]

    def torch_loss(step: int) -> Any:
        ids, wanted = counted(step)
        return F.cross_entropy(theirs(t(ids)).flatten(0, 1), t(wanted).flatten())

    return ours, theirs, lambda step: ours.loss(*counted(step)), torch_loss


MODELS: dict[str, Callable[[Any], tuple[Any, Any, Loss, Loss]]] = {
    "post-norm": functools.partial(encoder_decoder, norm_order="post"),
    "pre-norm": functools.partial(encoder_decoder, norm_order="pre"),
    "language model": language_model,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
def test_ten_steps_with_every_gradient(optimizer_name: str, model: str, form: Any, agree: Agree) -> None:
    subject = f"10 steps, {optimizer_name}, {model}"
    ours, theirs, our_loss, torch_loss = MODELS[model](form)
    pairs = copy_weights(ours, theirs)
    make, make_torch, peak = OPTIMIZERS[optimizer_name]
    optimizer, torch_optimizer = form(make(ours.parameters())), make_torch(theirs.parameters())
    before, clipped, compared = ours.state(), 0, 0

    for step in range(1, 11):
        (loss, backward), expected = our_loss(step), torch_loss(step)
        agree(subject, f"loss at step {step}", loss, expected)

        ours.zero_grad()
        backward()
        theirs.zero_grad()
        expected.backward()
        for pair in pairs:
            agree(subject, f"gradient of {pair.name} at step {step}", pair.ours.grad, pair.view(pair.theirs.grad))
            compared += 1

        norm = clip_gradient_norm(ours.parameters(), LIMIT)
        agree(subject, f"norm at step {step}", norm, torch_clip(list(theirs.parameters())))
        clipped += norm > LIMIT
        rate = inverse_sqrt(step, peak, WARMUP)
        for group in torch_optimizer.param_groups:
            group["lr"] = peak * min(step / WARMUP, (WARMUP / step) ** 0.5)
        optimizer.step(rate)
        torch_optimizer.step()
        for pair in pairs:
            agree(subject, f"{pair.name} after step {step}", pair.ours.value, pair.view(pair.theirs))

    assert compared == 10 * len(before) == 10 * len(list(ours.parameters()))
    assert clipped > 0
    for pair in pairs:
        moved = np.abs(pair.ours.value - before[pair.name]).max()
        if not pair.name.endswith("key.bias"):  # the softmax ignores it, so its true gradient is zero
            assert moved > 1e-3, f"{pair.name} hardly moved"


def test_a_padded_position_would_be_noticed(agree: Agree) -> None:
    """The comparison notices: without one of the masks, on our side only, losses differ."""
    config = models.TransformerConfig(VOCABULARY, VOCABULARY, **SMALL)
    ours = models.Transformer(config, np.random.default_rng(0)).to(dtype="float64")
    theirs = TorchTransformer(config)
    copy_weights(ours, theirs)
    source, target, wanted = batch(1)
    logits = theirs(t(source), t(target), blocked(source != PAD), blocked(target != PAD))
    expected = F.cross_entropy(logits.flatten(0, 1), t(wanted).flatten(), ignore_index=PAD, label_smoothing=0.1)
    masks = (source != PAD, target != PAD)
    agree("a mask left out", "loss", ours.loss(source, target, wanted, *masks, PAD, 0.1)[0], expected)
    without_mask = ours.loss(source, target, wanted, None, masks[1], PAD, 0.1)[0]
    without_padding = ours.loss(source, target, wanted, *masks, label_smoothing=0.1)[0]
    without_smoothing = ours.loss(source, target, wanted, *masks, PAD)[0]
    for wrong in (without_mask, without_padding, without_smoothing):
        assert abs(float(wrong) - float(expected.detach())) > 1e-3
