"""Gemma 3: Gemma Team 2025, "Gemma 3 Technical Report", section 2. A Gemma 2 with other attention.

Norms of queries and keys, which multiply by 1 + γ, in place of the cap; of six layers, five have a window and turn by
angles of a smaller base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import ScaledDotProduct
from ..after.qk_norm import qk_norm
from ..after.rotary import rotary_turn
from ..after.sandwich import OffsetRMSNorm
from . import gemma2, llama
from .decoder import within
from .family import BODY, WORDS, Family, Found, InGguf, Whole
from .fields import Fields
from .layer_kinds import FULL, SLIDING, base_of, full_every, of_kind, written_kinds


@dataclass(frozen=True)
class Gemma3Config(llama.LlamaConfig):
    """Sizes of a Gemma 3. bias: whether attention's four maps have one. query_scalar: scores are divided by its root.

    window: of all layers but every full_every-th; local_base: of the angles there. logit_cap: None for no cap.
    """

    activation: str = "gelu_tanh"
    tie_output: bool = True
    rotary_base: float = 1e6
    local_base: float = 1e4
    window: int = 4096
    full_every: int = 6
    query_scalar: int = 256
    logit_cap: float | None = None

    def is_full(self, i: int) -> bool:
        """Whether layer i sees everything."""
        return (i + 1) % self.full_every == 0

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i: after a norm, by the angles of its kind."""
        then = super().turn(i) if self.is_full(i) else rotary_turn(self.local_base)
        return qk_norm(self.d_head or 1, self.norm_eps, then=then, kind=OffsetRMSNorm)

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values: within a window, unless it is full."""
        plain = ScaledDotProduct(self.query_scalar**-0.5, self.attention_dropout)
        return plain if self.is_full(i) else within(self.window, plain)

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return gemma2.around(self)


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    """A cap of the scores stands in some files and is not used."""
    local_base = base_of(fields, SLIDING, found["d_head"], 1e4)
    return {"full_every": full_every(fields, found["n_layers"], 6), "local_base": local_base}


_IN_GGUF = """
sliding_window           size      attention.sliding_window
rope_local_base_freq     positive  rope.freq_base_swa        10000.0
final_logit_softcapping  get       final_logit_softcapping
"""
_TURNS = {
    FULL: {"rope_type": "linear", "rope_theta": 500.0, "factor": 8.0},
    SLIDING: {"rope_type": "default", "rope_theta": 50.0},
}
FAMILY = Family(
    "gemma3_text", "model", Gemma3Config, {"Gemma3TextModel": BODY, "Gemma3ForCausalLM": WORDS},
    f"{gemma2.FIELDS}{gemma2.CAP}", gemma2.NAMES,
    base=(
        lambda fields: llama.sizes(of_kind(fields, FULL, 1e6)),
        lambda config: gemma2.without_act(written_kinds(config, llama.written_sizes(config))),
    ),
    usual=gemma2.USUAL, only={"use_bidirectional_attention": False}, more_ours=_ours,
    adds="as Gemma 2 without capped scores; norms of queries and keys, other rotary angles in layers with windows",
    small=llama.SMALL | {  # a width whose root is exact, since others round it to float32
        "hidden_size": 16, "num_attention_heads": 4, "sliding_window": 3, "query_pre_attn_scalar": 5,
        "final_logit_softcapping": 2.5, "layer_types": [SLIDING, FULL], "rope_parameters": _TURNS,
    },
    ignored="attn_logit_softcapping sliding_window_size",
    whole=Whole(
        "gemma3", "Gemma3ForConditionalGeneration",
        "*vision_tower.* *multi_modal_projector.*",
        {"vocab_size": 262208, "num_attention_heads": 8, "max_position_embeddings": 131072},
    ),
    in_gguf=InGguf(gemma2.GGUF, _IN_GGUF, "gemma3", gemma2.scalar_in_gguf(62)),
)  # fmt: skip
