"""The same step in PyTorch, with its own TF32, autocast and scaler; and a program that only multiplies matrices."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

from .. import twins
from .card import LEARNING_RATE, TEXTS, Sizes, operations, texts
from .language_model_torch import Model

DEVICES = {"cupy": "cuda", "numpy": "cpu"}
SIDE = 8192  # size of the matrices that show the card's rate; smaller if a step has fewer operations


def prepared(sizes: Sizes) -> torch.device:
    """The device, with products in TF32 if requested."""
    device = torch.device(DEVICES[sizes.device])
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU; install a build of it with CUDA, on a machine that has a GPU")
    torch.set_float32_matmul_precision("high" if sizes.precision == "tf32" else "highest")
    return device


class OnCard(twins.Program):
    device: torch.device

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak(self) -> int | None:
        """The peak memory of the card in bytes, or None on the processor."""
        return torch.cuda.max_memory_reserved() if self.device.type == "cuda" else None


class Eager(OnCard):
    compiled = False

    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        self.device, self.half = prepared(sizes), sizes.precision == "float16"
        model = Model(sizes, weights).to(self.device)
        self.loss = torch.compile(model) if self.compiled else model
        self.texts, self.taken = torch.from_numpy(texts(sizes)), 0
        self.optimizer = twins.adamw(model.parameters(), LEARNING_RATE)
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=2.0**15, enabled=self.half)

    def run(self) -> float:
        text = self.texts[self.taken % TEXTS].to(self.device)
        self.taken += 1
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.float16) if self.half else contextlib.nullcontext():
            loss = self.loss(text[:, :-1], text[:, 1:])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.wait()
        return float(loss)

    def prove(self) -> dict[str, np.ndarray]:
        return {"losses": np.array([self.run() for _ in range(10)])}


class Compiled(Eager):
    compiled = True


class Products(OnCard):
    """About as many operations as a step has, in products of large square matrices: this shows what a card allows."""

    def __init__(self, sizes: Sizes, weights: Any) -> None:
        self.device = prepared(sizes)
        self.side = SIDE if operations(sizes) > 2.0 * SIDE**3 else round((operations(sizes) / 2.0) ** (1 / 3))
        self.times = max(1, round(operations(sizes) / (2.0 * self.side**3)))
        kind = torch.float16 if sizes.precision == "float16" else torch.float32
        self.a, self.b, self.out = (torch.ones(self.side, self.side, dtype=kind, device=self.device) for _ in range(3))

    def run(self) -> None:
        for _ in range(self.times):
            torch.mm(self.a, self.b, out=self.out)
        self.wait()

    def prove(self) -> dict[str, np.ndarray]:
        return {}
