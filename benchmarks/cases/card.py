"""A training step of GPT-2 124M on a graphics card, in float32, in TF32 or in float16: everything stays on the card.

The same programs run on the processor, without TF32; the tests do this with small sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minitransformer.core.arrays.backend import get_device, multiply_in_tf32
from minitransformer.core.training.corpora import TextCorpus
from minitransformer.fast import accelerate
from minitransformer.run.machines.pieces import InPieces
from minitransformer.run.machines.precision import FIRST_SCALE, MixedPrecision, next_scale
from minitransformer.training import AdamW, Workers

from .. import ours
from .counting import zipf
from .language_model import model
from .language_model import operations as operations

LEARNING_RATE = 1e-4
TEXTS = 10  # batches


@dataclass(frozen=True)
class Sizes:
    precision: str  # "float32", "tf32" or "float16"
    batch: int = 8
    length: int = 1024
    n_layers: int = 12
    n_heads: int = 12
    width: int = 768
    vocabulary: int = 50257
    dropout: float = 0.0
    device: str = "cupy"  # or "numpy": our names; card_torch.py knows PyTorch's


def texts(sizes: Sizes) -> np.ndarray:
    """(TEXTS, batch, length + 1) ids: the model reads each row without its last id, and predicts all but the first."""
    return zipf(np.random.default_rng(0), sizes.vocabulary, (TEXTS, sizes.batch, sizes.length + 1))


class Ours(ours.Program):
    """With float16 as in the training loop: a scaled loss, master weights, and skipped steps."""

    def __init__(self, sizes: Sizes) -> None:
        self.device = get_device(sizes.device)
        if sizes.precision == "tf32":
            multiply_in_tf32(sizes.device)
        self.model = model(sizes).to(sizes.device)
        self.half = sizes.precision == "float16"
        self.workers = Workers(accelerate(MixedPrecision(self.model) if self.half else self.model))
        self.optimizer = InPieces(accelerate(AdamW(self.model.parameters(), LEARNING_RATE)), self.workers.share_out)
        self.corpus = TextCorpus(texts(sizes).reshape(-1), sizes.length, sizes.batch)
        self.scale, self.good_steps, self.taken = FIRST_SCALE if self.half else 1.0, 0, 0

    def weights(self) -> dict[str, np.ndarray]:
        return self.model.state()

    def run(self) -> float:
        first = self.taken % TEXTS * self.corpus.rows
        starts = np.arange(first, first + self.corpus.rows) * (self.corpus.length + 1)
        loss = self.workers.loss_and_gradients(self.corpus, [starts], [self.taken], self.scale)
        finite = not self.half or math.isfinite(self.workers.gradient_norm())
        if finite:
            if self.half:
                self.workers.scale_gradients(1.0 / self.scale)
            self.optimizer.step()
        if self.half:
            self.scale, self.good_steps = next_scale(self.scale, self.good_steps, finite)
        self.taken += 1
        if self.device.name == "cupy":
            self.device.xp.cuda.Device().synchronize()
        return loss

    def prove(self) -> dict[str, np.ndarray]:
        return {"losses": np.array([self.run() for _ in range(10)])}

    def peak(self) -> int | None:
        """The peak memory of the card in bytes, or None on the processor."""
        if self.device.name != "cupy":
            return None
        return int(self.device.xp.get_default_memory_pool().total_bytes())  # the pool returns no memory
