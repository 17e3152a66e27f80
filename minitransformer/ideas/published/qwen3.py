"""Qwen3: Yang et al. 2025, "Qwen3 Technical Report", section 2. A Llama whose queries and keys have norms.

RMSNorm of each head's queries and keys, before the rotation, in place of Qwen2's biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ..after.qk_norm import qk_norm
from . import llama
from .family import READERS, WRITERS, Family, Found, InGguf, classes
from .heads import ANSWERS


@dataclass(frozen=True)
class Qwen3Config(llama.LlamaConfig):
    """Sizes of a Qwen3: those of a Llama. bias: whether attention's four maps have one."""

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i, after a norm."""
        return qk_norm(self.d_head or 1, self.norm_eps, then=super().turn(i))

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return {"ff_bias": False}


FAMILY = Family(
    "qwen3", "model", Qwen3Config, classes("Qwen3", WRITERS | READERS), llama.BIAS, llama.NAMES, base=llama.BASE,
    usual={"head_dim": 128}, more_ours=llama.window_of_qwen, more_theirs=llama.written_window,
    adds="as Llama; norms of queries and keys",
    small=llama.SMALL | llama.WINDOW_OF_QWEN,
    prefixes={ANSWERS: "transformer"},
    in_gguf=InGguf(table=llama.BIAS_IN_GGUF),
)  # fmt: skip
