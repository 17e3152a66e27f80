"""Gemma 2: Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2.

Capped scores and logits, norms before and after each sub-layer, a window in layers 1, 3, 5, ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Residual, ScaledDotProduct
from ..after.sandwich import Normed, OffsetRMSNorm
from ..after.softcap import CappedOutput, SoftCapped
from . import gemma, llama
from .decoder import within
from .family import WRITERS, Family, Found, InGguf, classes
from .fields import Fields
from .heads import TOKENS
from .layer_kinds import kinds


@dataclass(frozen=True)
class Gemma2Config(llama.LlamaConfig):
    """Sizes of a Gemma 2. bias: whether attention's four maps have one. query_scalar: scores are divided by its root.

    score_cap, logit_cap: None for no cap. window: the window of layers 1, 3, 5, ...
    """

    activation: str = "gelu_tanh"
    tie_output: bool = True
    window: int | None = 4096
    query_scalar: int = 256
    score_cap: float | None = 50.0
    logit_cap: float | None = 30.0

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values."""
        how = self.query_scalar**-0.5, self.attention_dropout
        capped = ScaledDotProduct(*how) if self.score_cap is None else SoftCapped(self.score_cap, *how)
        return capped if i % 2 else within(self.window, capped)

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return around(self)


def around(sizes: Any) -> dict[str, Any]:
    """What Gemma 2 and 3 have around attention and the feed-forward networks, for `decoder`."""

    def norm() -> OffsetRMSNorm:
        return OffsetRMSNorm(sizes.d_model, sizes.norm_eps)

    return {
        "norm": norm,
        "residual": lambda sublayer: Residual(Normed(sublayer, norm()), norm(), "pre", sizes.dropout),
        "scale": sizes.d_model**0.5,
        "output": lambda table: table if sizes.logit_cap is None else CappedOutput(table, sizes.logit_cap),
        "ff_bias": False,
    }


USUAL = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True}
FIELDS = """
hidden_activation        activation  activation      "gelu_pytorch_tanh"
sliding_window           size        window
query_pre_attn_scalar    size        query_scalar    256
attention_bias           flag        bias            false
"""
CAP = "final_logit_softcapping positive_or_none logit_cap"
_CAPS = f"""
attn_logit_softcapping positive_or_none score_cap 50.0
{CAP} 30.0
"""


def _kinds(fields: Fields, found: Found, *_: Any) -> Found:
    fields.only(layer_types=kinds(found["n_layers"], 2))
    return {}


def without_act(sizes: Found) -> Found:
    """A config.json in which the activation has another name than Llama's."""
    return {name: value for name, value in sizes.items() if name != "hidden_act"}


NAMES = f"""{llama.NAMES.replace("sublayer", "sublayer.sublayer")}
layers.*.post_attention_layernorm    =  stack.layers.*.self_attention.sublayer.norm
layers.*.pre_feedforward_layernorm   =  stack.layers.*.feed_forward.norm
layers.*.post_feedforward_layernorm  =  stack.layers.*.feed_forward.sublayer.norm
"""
GGUF = f"""{gemma.GGUF}
blk.*.(post_attention,ffn,post_ffw)_norm  plus1  layers.*.(post_attention,pre_feedforward,post_feedforward)_layernorm
"""


def scalar_in_gguf(n_layers: int) -> Callable[[Fields, Any, Found], Found]:
    """What the scores are divided by: llama.cpp knows the model of 27B, where it is another, by its layers."""

    def scalar(fields: Fields, stored: Any, config: Found) -> Found:
        by_model = config["hidden_size"] // config["num_attention_heads"]
        return {"query_pre_attn_scalar": by_model if config["num_hidden_layers"] == n_layers else config["head_dim"]}

    return scalar


_IN_GGUF = """
sliding_window           size      attention.sliding_window  4096
attn_logit_softcapping   positive  attn_logit_softcapping    50.0
final_logit_softcapping  positive  final_logit_softcapping   30.0
"""
FAMILY = Family(
    "gemma2", "model", Gemma2Config, classes("Gemma2", WRITERS | {"ForTokenClassification": TOKENS}),
    FIELDS + _CAPS, NAMES,
    base=(llama.sizes, lambda config: without_act(llama.written_sizes(config))), usual=USUAL,
    only={"use_bidirectional_attention": False}, more_ours=_kinds,
    adds="softcapped scores and logits, norms before and after each sub-layer, a window in every second layer",
    small=llama.SMALL | {  # a width whose root is exact, since others round it to float32
        "hidden_size": 16, "num_attention_heads": 4, "sliding_window": 3, "query_pre_attn_scalar": 5,
        "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5,
    },
    ignored="sliding_window_size",
    in_gguf=InGguf(GGUF, _IN_GGUF, more=scalar_in_gguf(46)),
)  # fmt: skip
