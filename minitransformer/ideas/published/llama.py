"""Llama: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2; and four others.

Llama 3 (Grattafiori et al. 2024, section 3.2) shares heads of keys and has a larger base of rotary angles, which 3.1
scales. Mistral (Jiang et al. 2023, section 2) attends within a window, and Qwen2 (Yang et al. 2024, section 2.2) adds
biases to queries, keys and values. Ministral is a Mistral, and Seed-OSS a Qwen2, under a name of its own. Everything
else is the same, including the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import ScaledDotProduct
from ...core.models.language_model import LanguageModel, LanguageModelParts
from ..after.scaled_angles import scaled_turn
from ..after.scaled_angles.angles import follow_length
from . import angles
from .decoder import DecoderSizes, decoder, within
from .family import READERS, WRITERS, Family, Found, InGguf, classes
from .fields import GENERAL, Fields, small, written
from .heads import ANSWERS
from .layer_kinds import FULL, SLIDING
from .rereading import RereadingLanguageModel

LLAMA = GENERAL + "rms_norm_eps positive norm_eps 1e-6"
FIELDS = LLAMA + "\nnum_key_value_heads size n_key_heads n_heads"


@dataclass(frozen=True)
class LlamaConfig(DecoderSizes):
    """Sizes of a Llama, Mistral or Qwen2. n_key_heads and d_head: n_heads and d_model / n_heads unless given."""

    n_key_heads: int | None = None  # the query heads share them
    d_head: int | None = None
    qkv_bias: bool | None = None  # for queries, keys and values; None: like `bias`
    d_rotary: int | None = None  # how many numbers of each head are rotated; None: all
    window: int | None = None  # how many tokens attention sees, including the current one

    def __post_init__(self) -> None:
        super().__post_init__()
        meant = {"n_key_heads": self.n_heads, "d_head": self.d_model // max(1, self.n_heads), "qkv_bias": self.bias}
        for name, value in meant.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def build(self, rng: Rng | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return (RereadingLanguageModel if follow_length(self.scaled_angles) else LanguageModel)(self, rng)

    def turn(self, i: int = 0) -> Any:
        """What turns queries and keys in layer i."""
        return scaled_turn(self.rotary_base, self.scaled_angles, self.d_rotary)

    def mix(self, i: int) -> Any:
        """How layer i mixes queries, keys and values."""
        return within(self.window, ScaledDotProduct(dropout=self.attention_dropout))

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of Llama, or of a family that differs from it."""
        return decoder(self, rng, **self.differs(rng))

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`."""
        return {}


def sizes(fields: Fields, partial: bool = False) -> Found:
    """What the config.json of every family like Llama has, under our names. partial: see `angles.read`."""
    found = fields.read(FIELDS)
    width = fields.size("head_dim", max(1, found["d_model"] // found["n_heads"]))
    return {**found, "d_head": width, **angles.read(fields, width, partial)}


def written_sizes(config: LlamaConfig) -> Found:
    """The fields of a config.json that every family like Llama has."""
    return {**written(config, FIELDS), "head_dim": config.d_head, **angles.written(config)}


BASE = sizes, written_sizes
BIAS = "attention_bias flag bias false"
BIASES: dict[str, Any] = {  # in families in which all maps have one, or none has
    "fields": BIAS,
    "more_ours": lambda fields, found, head, stored: all_or_none(fields, found["bias"]),
    "more_theirs": lambda config: {"mlp_bias": config.bias},
}
WINDOW = "sliding_window size_or_none window"


def all_or_none(fields: Fields, bias: bool) -> Found:
    """Require that all maps have biases, or none has."""
    if bias != fields.flag("mlp_bias", False):
        raise ValueError("attention_bias and mlp_bias must be equal: here either all maps have biases or none do")
    return {}


def window_of_qwen(fields: Fields, *_: Any) -> Found:
    """The window of all layers of a Qwen, if it has one."""
    fields.only(use_mrope=False)
    window, whole = fields.size_or_none("sliding_window"), fields.get("max_window_layers", 28)
    if not fields.flag("use_sliding_window", False):
        window = None
    if window is not None and whole != 0:
        raise ValueError("use_sliding_window needs max_window_layers 0: here all layers have the window")
    return of_one_kind(fields, {"window": window})


def of_one_kind(fields: Fields, found: Found, *_: Any) -> Found:
    """Require that all layers have a window, or none has. A config without layer_types means this too."""
    kind = FULL if found["window"] is None else SLIDING
    fields.only(layer_types=[kind] * fields.size("num_hidden_layers"))
    return found


def written_window(config: LlamaConfig) -> Found:
    """The window of a Qwen, as its config.json has it."""
    return {
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": config.n_layers if config.window is None else 0,
        "layer_types": [FULL if config.window is None else SLIDING] * config.n_layers,
    }


def biases_of_seed_oss(fields: Fields, found: Found, *_: Any) -> Found:
    """Require that the feed-forward networks have biases where attention's output has one."""
    fields.only(mlp_bias=found["bias"])
    return {}


BIAS_IN_GGUF = "attention_bias there blk.0.attn_output.bias"
BIASES_IN_GGUF = f"{BIAS_IN_GGUF}\nmlp_bias there blk.0.ffn_up.bias"
BIASES_OF_SEED_OSS = """
attention_bias      flag  qkv_bias  true
attention_out_bias  flag  bias      false
"""

IGNORED = "is_llama_config max_sequence_length"
# Those of all families like Llama: a line is skipped where a model has no such part.
NAMES = """
embed_tokens                       =  tokens
layers.*.(input,post_attention)_layernorm  =  stack.layers.*.(self_attention,feed_forward).norm
layers.*.self_attn.(q,k,v,o)_proj  T  stack.layers.*.self_attention.sublayer.(query,key,value,output)
layers.*.self_attn.(q,k)_norm           =  stack.layers.*.self_attention.sublayer.turn_(query,key).norm
layers.*.mlp.(gate,up,down)_proj   T  stack.layers.*.feed_forward.sublayer.(gate,inner,output)
norm                               =  stack.final_norm
layers.*.self_attn.rotary_emb.inv_freq  -
/lm_head                                =  (output,output.tokens)
/lm_head                           ~  tokens
"""


PAIRED = "blk.*.attn_(q,k) halves layers.*.self_attn.(q,k)_proj"
SMALL = small(
    FIELDS, num_attention_heads=6, num_key_value_heads=2, head_dim=4, bos_token_id=None, eos_token_id=None,
    pad_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
)  # fmt: skip
USUAL_IN_MISTRAL = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096}
WINDOW_OF_QWEN = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
FAMILIES = (
    Family(
        "llama", "model", LlamaConfig, classes("Llama", WRITERS | READERS), names=NAMES, base=BASE, **BIASES,
        only={"pretraining_tp": 1, "rope_interleaved": False},
        adds="rotary positions, shared key heads, RMSNorm, gated feed-forward networks",
        small=SMALL,
        prefixes={ANSWERS: "transformer"},
        ignored=IGNORED,
        in_gguf=InGguf(PAIRED, BIASES_IN_GGUF),
    ),
    Family(
        "mistral", "model", LlamaConfig, classes("Mistral", WRITERS | READERS), WINDOW, NAMES, base=BASE,
        usual=USUAL_IN_MISTRAL,
        adds="as Llama; a window",
        small=SMALL | {"sliding_window": 3},
    ),
    Family(
        "ministral", "model", LlamaConfig, classes("Ministral", WRITERS | READERS), WINDOW, NAMES, base=BASE,
        usual=USUAL_IN_MISTRAL,
        more_ours=of_one_kind,  # it lists the kinds of its layers
        adds="as Mistral",
        small=SMALL | {"sliding_window": 3},
        prefixes={ANSWERS: "transformer"},
    ),
    Family(
        "seed_oss", "model", LlamaConfig, classes("SeedOss", WRITERS | READERS), BIASES_OF_SEED_OSS, NAMES, base=BASE,
        usual={"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 524288},
        only={"pretraining_tp": 1}, more_ours=biases_of_seed_oss,
        more_theirs=lambda config: {"mlp_bias": config.bias},
        adds="as Qwen2",
        small=SMALL | {"attention_bias": True},
        in_gguf=InGguf(
            "blk.*.post_attention_norm = layers.*.post_attention_layernorm",
            "attention_bias there blk.0.attn_q.bias\nattention_out_bias there blk.0.attn_output.bias",
        ),
        prefixes={ANSWERS: "transformer"},
    ),
    Family(
        "qwen2", "model", LlamaConfig, classes("Qwen2", WRITERS | READERS), "", NAMES, base=BASE,
        more_ours=lambda fields, *_: {"qkv_bias": True, **window_of_qwen(fields)}, more_theirs=written_window,
        adds="as Llama; biases of queries, keys and values",
        small=SMALL | WINDOW_OF_QWEN,
        prefixes={ANSWERS: "transformer"},
        in_gguf=InGguf(),
    ),
)  # fmt: skip
