"""Do kinds of positions generalise to longer texts? A model learns to copy at one length and is tested on longer ones.

The task: predict the token `BACK` places before. Only the position matters, not which tokens the text has. Training has
texts of `length` random tokens; the test has texts four times as long. Press et al. 2022, "Train Short, Test Long",
compare kinds of positions on language in this way; Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length
Generalization in Transformers", on copying and other tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import ops
from ...core.arrays.backend import Array, Pullback, to_device, to_numpy
from ...core.layers import Embedding, Encoder, InputEmbedding, LearnedPositions, Module, SinusoidalPositions
from ...core.training import AdamW, clip_gradient_norm, cosine
from ...ideas import Biased, LinearBias, RelativeBias, rotary_turn
from ...run.fast import accelerate

if TYPE_CHECKING:  # importing it at run time would import the whole catalogue
    from ...check.verify.gradients import Progress

KINDS = ("sinusoidal", "learned", "relative", "rotary", "alibi")
BACK, VOCABULARY = 4, 16
TIMES = 4  # test texts are so many times longer than training texts
_D, _HEADS, _LAYERS, _ROWS, _RATE = 64, 4, 2, 32, 3e-3


class Copier(Module):
    """A small language model with one kind of positions. ids: (B, T); logits: (B, T, VOCABULARY)."""

    def __init__(self, kind: str, longest: int, rng: np.random.Generator) -> None:
        if kind not in KINDS:
            raise ValueError(f"Copier: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        added = {
            "sinusoidal": lambda: SinusoidalPositions(_D),
            "learned": lambda: LearnedPositions(longest, _D, std=0.7, rng=rng),  # as large as sines
        }
        biases: dict[str, Any] = {
            "relative": lambda: RelativeBias(_HEADS, both_ways=False, rng=rng),
            "alibi": lambda: LinearBias(_HEADS),
        }
        bias = biases[kind]() if kind in biases else None
        self.tokens = Embedding(VOCABULARY, _D, rng=rng)
        self.embed = InputEmbedding(self.tokens, added[kind]() if kind in added else None, _D**0.5)
        self.stack = Encoder(_LAYERS, _D, _HEADS, 2 * _D, norm_order="pre", rng=rng)
        layers: list[Any] = self.stack.layers
        for attention in (layer.self_attention.sublayer for layer in layers):
            if bias is not None:
                attention.mix = Biased(bias)
            if kind == "rotary":
                attention.turn_query, attention.turn_key = rotary_turn(10000.0)

    def __call__(self, ids: Array) -> tuple[Array, Pullback]:
        """Return (logits, backward); backward(dlogits) returns None."""
        x, embed_backward = self.embed(ids)
        y, stack_backward = self.stack(x, causal=True)
        logits, unembed_backward = self.tokens.unembed(y)
        return logits, lambda dlogits: embed_backward(stack_backward(unembed_backward(dlogits)))


def copies(length: int, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(ids, wanted), each (rows, length): random tokens, and the tokens BACK places before, -100 for none."""
    ids = rng.integers(0, VOCABULARY, (rows, length))
    wanted = np.full_like(ids, -100)
    wanted[:, BACK:] = ids[:, :-BACK]
    return ids, wanted


def trained(kind: str, length: int, steps: int, seed: int = 0, progress: Progress = iter) -> tuple[Module, float]:
    """A model after so many steps on texts of this length, and the mean loss of the last tenth of the steps."""
    rng = np.random.default_rng(seed)
    model = accelerate(Copier(kind, TIMES * length, rng))
    optimizer = accelerate(AdamW(model.parameters(), _RATE, (0.9, 0.98)))
    losses = []
    for step in progress(list(range(1, steps + 1))):
        ids, wanted = (to_device(x, model.device) for x in copies(length, _ROWS, rng))
        model.zero_grad()
        logits, backward = model(ids)
        loss, loss_backward = ops.cross_entropy(logits, wanted)
        backward(loss_backward())
        clip_gradient_norm(model.parameters(), 1.0)
        optimizer.step(cosine(step, _RATE, steps // 10, steps))
        losses.append(float(loss))
    return model, float(np.mean(losses[-max(1, steps // 10) :]))


def accuracy(model: Module, length: int) -> list[float]:
    """The share of rows where the model is right, at each position from 1 to TIMES · length; 0 at the first BACK."""
    ids, wanted = copies(TIMES * length, 64, np.random.default_rng(1000))
    found = to_numpy(model(to_device(ids, model.device))[0].argmax(axis=-1))
    return (found == wanted).mean(axis=0).tolist()
