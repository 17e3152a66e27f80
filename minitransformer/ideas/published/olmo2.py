"""OLMo 2: OLMo Team 2024, "2 OLMo 2 Furious", section 3. A Llama with its norms elsewhere.

The norm of a sub-layer stands after it, inside the residual connection, and queries and keys have a norm over all heads
together, before the rotation.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays.backend import Rng
from ...core.layers import RMSNorm
from ..after.sandwich import Normed, NormedUpdate
from . import llama
from .family import WRITERS, Family, Found, InGguf, classes


@dataclass(frozen=True)
class Olmo2Config(llama.LlamaConfig):
    """Sizes of an OLMo 2: those of a Llama. bias: whether attention's four maps have one."""

    norm_eps: float = 1e-5

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""

        def norm(width: int = self.d_model) -> RMSNorm:
            return RMSNorm(width, self.norm_eps)

        return {
            "norm": norm,
            "ff_bias": False,
            "residual": lambda sublayer: NormedUpdate(sublayer, norm(), self.dropout),
            "around_maps": lambda part: Normed(part, norm(part.d_out)),
        }


NAMES = f"""{llama.NAMES}
layers.*.self_attn.(q,k)_proj                    T  stack.layers.*.self_attention.sublayer.(query,key).sublayer
layers.*.self_attn.(q,k)_norm                    =  stack.layers.*.self_attention.sublayer.(query,key).norm
layers.*.post_(attention,feedforward)_layernorm  =  stack.layers.*.(self_attention,feed_forward).norm
"""
GGUF = "blk.*.post_(attention,ffw)_norm = layers.*.post_(attention,feedforward)_layernorm"
FAMILY = Family(
    "olmo2", "model", Olmo2Config, classes("Olmo2", WRITERS), llama.BIAS, NAMES, base=llama.BASE,
    usual={"rms_norm_eps": 1e-5}, only={"sliding_window": None},
    adds="as Llama; norms after each sub-layer, and of the queries and keys of all heads together",
    small=llama.SMALL,
    in_gguf=InGguf(GGUF),
)  # fmt: skip
