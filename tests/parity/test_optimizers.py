"""Optimisers, clipping and schedules, each step by step against PyTorch in float64, to 1e-12."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from minitransformer.layers import Parameter
from minitransformer.training import (
    SGD,
    Adam,
    AdamW,
    Muon,
    clip_gradient_norm,
    constant,
    cosine,
    inverse_sqrt,
    warmup_schedule,
)

from .counterparts import t

SHAPES = {"weight": (3, 4), "bias": (4,), "table": (5, 2, 3), "gain": (2,)}
STEPS = 50
Agree = Callable[..., None]


@pytest.fixture
def closely(agree: Agree) -> Agree:
    """As agree, and to 1e-12, relative or absolute."""

    def closely(subject: str, what: str, ours: Any, theirs: Any) -> None:
        agree(subject, what, ours, theirs)
        theirs = theirs.detach().numpy() if hasattr(theirs, "detach") else theirs
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=f"{subject}: {what}")

    return closely


def pair() -> tuple[dict[str, Parameter], dict[str, Any]]:
    """The same parameters here and there."""
    rng = np.random.default_rng(0)
    ours = {name: Parameter(rng.normal(size=shape)) for name, shape in SHAPES.items()}
    return ours, {name: torch.nn.Parameter(t(p.value)) for name, p in ours.items()}


def draw_gradients(ours: dict[str, Parameter], theirs: dict[str, Any], rng: np.random.Generator) -> None:
    """From 1e-8 to 1e3, new at each step; the first entry of each parameter is always zero."""
    for name, p in ours.items():
        p.grad[...] = rng.normal(size=p.value.shape) * 10.0 ** rng.uniform(-8, 3, size=p.value.shape)
        p.grad.flat[0] = 0.0
        theirs[name].grad = t(p.grad)


def rates_of(make: Callable[[Any], Any], peak: float, steps: int = STEPS) -> Iterator[float]:
    """The learning rates that one of PyTorch's schedulers gives the steps 1, 2, ..., from the base rate `peak`."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    scheduler = make(optimizer)
    for _ in range(steps):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()


OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "SGD": (lambda p: SGD(p, 0.02), lambda p: torch.optim.SGD(p, lr=0.02)),
    "SGD, momentum 0.9": (lambda p: SGD(p, 0.02, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "Adam": (lambda p: Adam(p, 0.02), lambda p: torch.optim.Adam(p, lr=0.02)),
    "Adam, other options": (
        lambda p: Adam(p, 0.02, betas=(0.7, 0.98), eps=1e-4),
        lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.7, 0.98), eps=1e-4),
    ),
    "AdamW": (lambda p: AdamW(p, 0.02, decay_vectors=True), lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.01)),
    "AdamW, other options": (
        lambda p: AdamW(p, 0.02, betas=(0.7, 0.98), eps=1e-4, weight_decay=0.3, decay_vectors=True),
        lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.7, 0.98), eps=1e-4, weight_decay=0.3),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_of_an_optimizer(name: str, form: Any, closely: Agree) -> None:
    """First at its own rate, then at those of a schedule."""
    ours, theirs = pair()
    make, make_torch = OPTIMIZERS[name]
    optimizer, torch_optimizer = form(make(ours.items())), make_torch(theirs.values())
    rng = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        draw_gradients(ours, theirs, rng)
        rate = None if step <= STEPS // 2 else inverse_sqrt(step, 0.1, 30)
        if rate is not None:
            for group in torch_optimizer.param_groups:
                group["lr"] = rate
        optimizer.step(rate)
        torch_optimizer.step()
        for parameter, p in ours.items():
            closely(name, f"{parameter} after step {step}", p.value, theirs[parameter])


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6)])
def test_every_step_of_muon(shape: tuple[int, int], form: Any, agree: Agree, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's products are in bfloat16; here they stay in float64. Its weights are (out, in), ours (in, out)."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    rng = np.random.default_rng(0)
    ours, bias = Parameter(rng.normal(size=shape)), Parameter(rng.normal(size=3))
    theirs, torch_bias = torch.nn.Parameter(t(ours.value.T)), torch.nn.Parameter(t(bias.value))
    optimizer = form(Muon([("weight", ours), ("bias", bias)], 0.02, weight_decay=0.1))
    of_maps = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    of_rest = torch.optim.AdamW([torch_bias], lr=0.02, weight_decay=0.0)
    for step in range(1, STEPS + 1):
        ours.grad[...], bias.grad[...] = rng.normal(size=shape), rng.normal(size=3)
        theirs.grad, torch_bias.grad = t(ours.grad.T), t(bias.grad)
        for each in (optimizer, of_maps, of_rest):
            each.step()
        agree("Muon", f"weight after step {step}", ours.value, theirs.T)
        agree("Muon", f"bias after step {step}", bias.value, torch_bias)


@pytest.mark.parametrize("limit", [0.5, 1e9])
def test_every_step_of_clipping(limit: float, closely: Agree) -> None:
    """clip_grad_norm_ divides by norm + 1e-6 where the formula has norm; that factor is taken out here."""
    ours, theirs = pair()
    optimizer, torch_optimizer = SGD(ours.items(), 0.02, 0.9), torch.optim.SGD(theirs.values(), lr=0.02, momentum=0.9)
    rng = np.random.default_rng(2)
    for step in range(1, STEPS + 1):
        draw_gradients(ours, theirs, rng)
        norm = clip_gradient_norm(ours.items(), limit)
        torch_norm = torch.nn.utils.clip_grad_norm_(theirs.values(), limit)
        closely("clip_gradient_norm", f"norm at step {step}", norm, torch_norm)
        if limit < torch_norm:
            for p in theirs.values():
                p.grad *= (torch_norm + 1e-6) / torch_norm
        optimizer.step()
        torch_optimizer.step()
        for parameter, p in ours.items():
            closely("clip_gradient_norm", f"gradient of {parameter} at step {step}", p.grad, theirs[parameter].grad)
            closely("clip_gradient_norm", f"{parameter} after step {step}", p.value, theirs[parameter])


PEAK, WARMUP, TOTAL, FLOOR = 0.3, 12, 50, 0.02


def up_and_down(epoch: int) -> float:
    step = epoch + 1
    return step / WARMUP if step < WARMUP else (WARMUP / step) ** 0.5


def equation_3(epoch: int) -> float:
    """Of Vaswani et al. 2017, as it is written there."""
    return 512**-0.5 * min((epoch + 1) ** -0.5, (epoch + 1) * WARMUP**-1.5)


SCHEDULES = {  # ours, and the factor of theirs, which LambdaLR counts from 0, with its base rate
    "constant": (lambda step: constant(step, PEAK), lambda epoch: 1.0, PEAK),
    "inverse_sqrt": (lambda step: inverse_sqrt(step, PEAK, WARMUP), up_and_down, PEAK),
    "warmup_schedule": (lambda step: warmup_schedule(step, 512, WARMUP), equation_3, 1.0),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_step_of_a_schedule(name: str, closely: Agree) -> None:
    rate_of, factor, base = SCHEDULES[name]
    expected = rates_of(lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor), base)
    for step, rate in enumerate(expected, start=1):
        closely("schedules", f"{name} at {step}", rate_of(step), rate)


def test_every_step_of_the_cosine_schedule(closely: Agree) -> None:
    """LinearLR up to the peak at step WARMUP, and from there CosineAnnealingLR down to the floor at step TOTAL."""
    up = rates_of(
        lambda optimizer: torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1 / WARMUP, end_factor=1.0, total_iters=WARMUP - 1
        ),
        PEAK,
        WARMUP,
    )
    down = rates_of(
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=TOTAL - WARMUP, eta_min=FLOOR),
        PEAK,
        TOTAL - WARMUP + 1,
    )
    seen = 0
    for first, rates in ((1, up), (WARMUP, down)):
        for step, rate in enumerate(rates, start=first):
            closely("schedules", f"cosine at {step}", cosine(step, PEAK, WARMUP, TOTAL, FLOOR), rate)
            seen += 1
    assert seen == TOTAL + 1  # the peak is the last of one and the first of the other
    assert math.isclose(cosine(TOTAL, PEAK, WARMUP, TOTAL, FLOOR), FLOOR)
