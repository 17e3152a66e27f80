"""Ten steps of the whole encoder-decoder beside PyTorch: every loss, every gradient, every weight, in float64.

Both sides begin with the same weights and then train by themselves: nothing is copied over between steps, so a
difference would grow. One table serves source, target and logits; both sides of the batch are padded, each to its own
lengths; labels are smoothed by 0.1; gradients are clipped and the rate follows the inverse square root.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minitransformer import models
from minitransformer.training import SGD, Adam, AdamW, clip_gradient_norm, inverse_sqrt

from .counterparts import TorchTransformer, blocked, copy_weights, t

pytestmark = pytest.mark.parity

Agree = Callable[..., None]

PAD, START, VOCABULARY = 0, 1, 13
LIMIT = 1.0  # of the norm of all gradients
WARMUP = 4

# Each with the peak of its schedule. Key biases, which the softmax ignores, have gradients that are all rounding error;
# Adam divides that by ε, which is why the paper's 1e-9 would enlarge them almost to the tolerance.
OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "SGD": (lambda p: SGD(p, 1.0, momentum=0.9), lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), 0.2),
    "Adam": (
        lambda p: Adam(p, 1.0, betas=(0.9, 0.98)),
        lambda p: torch.optim.Adam(p, lr=1.0, betas=(0.9, 0.98)),
        0.02,
    ),
    "AdamW": (
        lambda p: AdamW(p, 1.0, decay_vectors=True),
        lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0.01),
        0.02,
    ),
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


@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
def test_ten_steps_with_every_gradient(optimizer_name: str, norm_order: str, form: Any, agree: Agree) -> None:
    subject = f"10 steps, {optimizer_name}, {norm_order}-norm"
    config = models.TransformerConfig(
        VOCABULARY,
        VOCABULARY,
        d_model=12,
        n_heads=3,
        d_ff=20,
        n_encoder_layers=2,
        n_decoder_layers=2,
        norm_order=norm_order,
        share_embeddings=True,
        tie_output=True,
    )
    ours = form(models.Transformer(config, np.random.default_rng(0)).to(dtype="float64"))
    theirs = TorchTransformer(config)
    pairs = copy_weights(ours, theirs)
    tables = [name for name, p in ours.parameters() if p.value.shape == (VOCABULARY, 12)]
    assert len(tables) == 1 and theirs.source is theirs.target is theirs.output
    make, make_torch, peak = OPTIMIZERS[optimizer_name]
    optimizer, torch_optimizer = form(make(ours.parameters())), make_torch(theirs.parameters())
    before, clipped, compared = ours.state(), 0, 0

    for step in range(1, 11):
        source, target, wanted = batch(step)
        real, target_real = source != PAD, target != PAD
        assert not real.all() and not target_real.all()
        loss, backward = ours.loss(source, target, wanted, real, target_real, PAD, label_smoothing=0.1)
        logits = theirs(t(source), t(target), blocked(real), blocked(target_real))
        expected = F.cross_entropy(logits.flatten(0, 1), t(wanted).flatten(), ignore_index=PAD, label_smoothing=0.1)
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
    config = models.TransformerConfig(VOCABULARY, VOCABULARY, d_model=12, n_heads=3, d_ff=20)
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
