"""GPT-2 with random weights, reading and writing: a prefill of the prompt, then token after token on the KV cache.

Either the prefill is timed, up to the logits after the last token, or the writing of the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import threadpoolctl

from minitransformer.fast import accelerate
from minitransformer.layers import Cache
from minitransformer.models import LanguageModel, LanguageModelConfig

from .. import ours
from .counting import causal_pairs, layer_products, zipf


@dataclass(frozen=True)
class Sizes:
    timed: str  # "prefill" or "decode"
    batch: int
    prompt: int = 256
    written: int = 64
    n_layers: int = 12
    n_heads: int = 12
    width: int = 768
    vocabulary: int = 50257
    max_length: int = 1024


def text(sizes: Sizes) -> np.ndarray:
    """A prompt and its continuation, which `prove` reads token by token."""
    return zipf(np.random.default_rng(0), sizes.vocabulary, (sizes.batch, sizes.prompt + 10))


def operations(s: Sizes) -> float | None:
    """Floating-point operations of a prefill, with logits for the last token only."""
    if s.timed == "decode":
        return None
    layer = layer_products(s.batch * s.prompt, s.width, 4 * s.width, s.batch * causal_pairs(s.prompt))
    return s.n_layers * layer + 2.0 * s.batch * s.width * s.vocabulary


def traffic(s: Sizes) -> float | None:
    """Bytes that writing must read: for each token all weights (once for the batch), and the keys and values."""
    if s.timed == "prefill":
        return None
    weights = s.n_layers * 12 * s.width**2 + s.vocabulary * s.width
    positions = sum(range(s.prompt + 1, s.prompt + s.written + 1))
    return 4.0 * (s.written * weights + s.batch * 2 * s.n_layers * s.width * positions)


class Reading(ours.Program):
    """Only reads as many bytes as writing must, with all threads. This shows what the memory allows."""

    def __init__(self, sizes: Sizes, weights: Mapping[str, np.ndarray]) -> None:
        self.numbers = np.ones(int(traffic(sizes) or 0) // 4 // sizes.written, np.float32)
        self.times, self.pool = sizes.written, ThreadPoolExecutor(self.n_threads)
        threadpoolctl.threadpool_limits(1, user_api="blas")  # each thread reads its own part

    def run(self) -> None:
        for _ in range(self.times):
            list(self.pool.map(lambda part: float(part @ part), np.array_split(self.numbers, self.n_threads)))

    def prove(self) -> dict[str, np.ndarray]:
        return {}


class Timed:
    """Shared by both programs: the timed part, and the results that must agree.

    A program defines begin(ids), which starts a new cache, and advance(ids); both return the logits after the last id.
    """

    sizes: Sizes

    def begin(self, ids: Any) -> Any:
        raise NotImplementedError

    def advance(self, ids: Any) -> Any:
        raise NotImplementedError

    def prepare(self) -> None:
        if self.sizes.timed == "decode":
            self.logits = self.begin(self.ids[:, : self.sizes.prompt])

    def run(self) -> None:
        if self.sizes.timed == "prefill":
            self.logits = self.begin(self.ids[:, : self.sizes.prompt])
            return
        for _ in range(self.sizes.written):
            self.logits = self.advance(self.logits.argmax(-1)[:, None])

    def prove(self) -> dict[str, np.ndarray]:
        """Logits after the prompt and after each of ten given tokens."""
        start = self.sizes.prompt
        kept = {"prompt": self.begin(self.ids[:, :start])}
        for i in range(start, start + 10):
            kept[f"token {i - start}"] = self.advance(self.ids[:, i : i + 1])
        return {name: np.array(logits) for name, logits in kept.items()}


class Ours(Timed, ours.Program):
    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.ids = sizes, text(sizes)
        config = LanguageModelConfig(
            sizes.vocabulary, sizes.max_length, sizes.width, sizes.n_heads, 4 * sizes.width, sizes.n_layers
        )
        self.model = accelerate(LanguageModel(config, np.random.default_rng(1)))

    def weights(self) -> dict[str, np.ndarray]:
        return self.model.state()

    def begin(self, ids: np.ndarray) -> np.ndarray:
        self.cache = Cache(self.sizes.n_layers)
        return self.advance(ids)

    def advance(self, ids: np.ndarray) -> np.ndarray:
        return self.model(ids, cache=self.cache, last=True)[0][:, -1]
