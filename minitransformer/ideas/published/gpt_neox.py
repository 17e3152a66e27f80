"""GPT-NeoX: Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", section 2.1.

A GPT-2 with rotary positions in a quarter of each head, and attention and feed-forward network side by side. Pythia
(Biderman et al. 2023) is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...core.arrays.backend import Rng
from ...core.layers import EncoderLayer, FeedForward, LayerNorm, Module, ScaledDotProduct
from ...core.models.language_model import LanguageModelConfig, LanguageModelParts
from ..after.grouped import grouped
from ..after.parallel_block import ParallelLayer
from ..after.scaled_angles import scaled_turn
from . import angles
from .decoder import decoder_of
from .family import READERS, WRITERS, Family, Found, InGguf, classes
from .fields import GENERAL, Fields, small
from .heads import TOKENS


@dataclass(frozen=True)
class GptNeoxConfig(LanguageModelConfig):
    """Sizes of a GPT-NeoX. bias: whether attention's maps have one. d_rotary: how much of a head turns; None: all.

    parallel: whether attention and feed-forward network stand side by side.
    """

    max_length: int = 2048
    activation: str = "gelu"
    tie_output: bool = False
    rotary_base: float = 10000.0
    d_rotary: int | None = None
    parallel: bool = True
    scaled_angles: ClassVar[None] = None

    @property
    def d_head(self) -> int:
        """The width of a head."""
        return self.d_model // self.n_heads

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of GPT-NeoX."""
        h, turn = self.n_heads, scaled_turn(self.rotary_base, None, self.d_rotary)

        def attention(i: int) -> Module:
            return grouped(self.d_model, h, h, bias=self.bias, rng=rng, mix=self.mix(), turn=turn)

        return decoder_of(
            self,
            rng,
            norm=self.norm,
            attention=attention,
            feed_forward=lambda i: FeedForward(self.d_model, self.d_ff, self.activation, rng=rng),
            layer=ParallelLayer if self.parallel else EncoderLayer,
        )

    def norm(self) -> LayerNorm:
        """The norm before each sub-layer."""
        return LayerNorm(self.d_model, self.norm_eps)

    def mix(self) -> ScaledDotProduct:
        """How queries, keys and values are mixed."""
        return ScaledDotProduct(dropout=self.attention_dropout)


FIELDS = f"""{GENERAL}
hidden_dropout             rate        dropout
hidden_act                 activation  activation    "gelu"
layer_norm_eps             positive    norm_eps      1e-5
attention_bias             flag        bias          true
use_parallel_residual      flag        parallel      true
"""


def _turns(fields: Fields, found: Found, *_: Any) -> Found:
    """How much of a head turns, and the base."""
    named = fields.positive("rotary_emb_base", 10000.0), fields.positive("rotary_pct", 0.25)
    turns = fields.instead(rope_theta=named[0], partial_rotary_factor=named[1])
    return unscaled(turns, found["d_model"] // max(1, found["n_heads"]))


def unscaled(fields: Fields, width: int) -> Found:
    """The fields `rotary_base` and `d_rotary`. Scaled angles are refused."""
    found = angles.read(fields, width, partial=True)
    if (scaled := found.pop("scaled_angles")) is not None:
        raise ValueError(f"rotary angles of type {scaled['kind']!r} are not supported in this family, only 'default'")
    if width % 2 and found["d_rotary"] is None:
        raise ValueError(f"a head must have an even width, since rotary positions turn pairs of numbers; got {width}")
    return found


def _written_turns(config: GptNeoxConfig) -> Found:
    rotated = (config.d_rotary or config.d_head) / config.d_head
    return {**angles.written(config), "rotary_emb_base": config.rotary_base, "rotary_pct": rotated}


NAMES = """
embed_in                              =       tokens
layers.*.(input,post_attention)_layernorm  =  stack.layers.*.(self_attention,feed_forward).norm
layers.*.attention.query_key_value    T:n_heads stack.layers.*.self_attention.sublayer.query|key|value
layers.*.attention.dense              T       stack.layers.*.self_attention.sublayer.output
layers.*.mlp.dense_(h_to_4h,4h_to_h)  T       stack.layers.*.feed_forward.sublayer.(inner,output)
final_layer_norm                      =       stack.final_norm
layers.*.attention.bias               -
layers.*.attention.masked_bias        -
layers.*.attention.rotary_emb.inv_freq  -
/embed_out                            =       output
/embed_out                            ~       tokens
"""

# llama.cpp, convert_hf_to_gguf.py, GPTNeoXModel.
GGUF = "blk.*.attn_qkv heads layers.*.attention.query_key_value"
TURNED = "rotary_emb_base = rope_theta\nrotary_pct = partial_rotary_factor"
FAMILY = Family(
    "gpt_neox", "gpt_neox", GptNeoxConfig, classes("GPTNeoX", WRITERS | READERS), FIELDS, NAMES,
    only={"is_decoder": False}, more_ours=_turns, more_theirs=_written_turns,
    adds="as GPT-2; rotary positions in a part of each head, attention and feed-forward network side by side",
    heads={TOKENS: "classifier"},
    in_gguf=InGguf(GGUF, "use_parallel_residual flag use_parallel_residual true", "gptneox", fields=TURNED),
    small=small(
        FIELDS, hidden_size=24, intermediate_size=10, rotary_pct=0.5, bos_token_id=None, eos_token_id=None
    ),
)  # fmt: skip
