"""Published models by name: their sizes, their numbers of parameters, and what the papers say.

Nothing is allocated: a model is built from zeros that take no memory, and the sizes of its arrays are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.layers.unread import Unread
from .families import FAMILIES
from .family import BODY, WORDS, Pretrained
from .fields import Fields

# Those tensors of the published models that the config depends on. Their numbers are never read.
_POOLERS: Any = {"pooler.dense.weight": None, "pooler.weight": None}


@dataclass(frozen=True)
class Preset:
    """A published model.

    family and fields: as in its config.json; said: the number of parameters in its paper or documentation; why: the
    reason why it differs from our count, or nothing; head: the head that is counted with the body.
    """

    family: str
    fields: Mapping[str, Any]
    said: str
    why: str
    head: str = BODY

    def build(self) -> Pretrained:
        """The model, with zeros for parameters that take no memory: for inspection, not for computing."""
        family = FAMILIES[self.family]
        return family.build(family.read(Fields(self.fields), self.head, _POOLERS), self.head, Unread())

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.value.size for _, parameter in self.build().parameters())


def _bert(width: int, heads: int, layers: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    common = {"vocab_size": 30522, "max_position_embeddings": 512, "num_hidden_layers": layers}
    return sizes | rates | common | more


def _gpt2(width: int, heads: int, layers: int, said: str, in_table: str) -> Preset:
    sizes = {"n_embd": width, "n_head": heads, "n_layer": layers, "resid_pdrop": 0.1, "attn_pdrop": 0.1}
    sizes |= {"vocab_size": 50257, "n_positions": 1024}
    why = f"rounded; the paper's table says {in_table}, a count its authors corrected"
    return Preset("gpt2", sizes, said, why, WORDS)


def _bart(width: int, heads: int, layers: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    sides = {
        f"{side}_{size}": value
        for side in ("encoder", "decoder")
        for size, value in {"layers": layers, "attention_heads": heads, "ffn_dim": 4 * width}.items()
    }
    common = {"vocab_size": vocabulary, "d_model": width, "max_position_embeddings": 1024, "dropout": 0.1}
    return sides | common | more


def _t5(width: int, heads: int, layers: int) -> dict[str, Any]:
    sizes = {"d_model": width, "num_heads": heads, "num_layers": layers, "d_ff": 4 * width}
    return sizes | {"vocab_size": 32128, "d_kv": 64, "dropout_rate": 0.1}


PRESETS: dict[str, Preset] = {
    "bert-base": Preset("bert", _bert(768, 12, 12), "110M", "rounded up"),
    "bert-large": Preset("bert", _bert(1024, 16, 24), "340M", "rounded up to tens of millions"),
    "distilbert": Preset(
        "distilbert", {
            "vocab_size": 30522, "max_position_embeddings": 512, "dim": 768, "n_heads": 12, "hidden_dim": 3072,
            "n_layers": 6, "dropout": 0.1, "attention_dropout": 0.1,
        }, "66M", "rounded",
    ),
    "roberta-base": Preset(
        "roberta",
        _bert(768, 12, 12, vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5),
        "125M", "rounded",
    ),
    "albert-base": Preset(
        "albert", _bert(768, 12, 12, vocab_size=30000, embedding_size=128),
        "12M", "rounded up; its one layer is counted once and used 12 times",
    ),
    "gpt2": _gpt2(768, 12, 12, "124M", "117M"),
    "gpt2-medium": _gpt2(1024, 16, 24, "355M", "345M"),
    "gpt2-large": _gpt2(1280, 20, 36, "774M", "762M"),
    "t5-small": Preset("t5", _t5(512, 8, 6), "60M", "rounded", WORDS),
    "t5-base": Preset("t5", _t5(768, 12, 12), "220M", "rounded to tens of millions", WORDS),
    "bart-base": Preset("bart", _bart(768, 12, 6, 50265), "140M", "rounded", WORDS),
    "bart-large": Preset("bart", _bart(1024, 16, 12, 50265), "400M", "rounded to hundreds of millions", WORDS),
    "pegasus-large": Preset(
        "pegasus", _bart(1024, 16, 16, 96103, activation_function="relu", scale_embedding=True),
        "568M", "rounded down; sines and cosines are not learned, and not counted", WORDS,
    ),
    "smollm2-135m": Preset(
        "llama", {
            "vocab_size": 49152, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
            "intermediate_size": 1536, "num_hidden_layers": 30, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True,
        }, "135M", "rounded up", WORDS,
    ),
    "gemma3-270m": Preset(
        "gemma3_text", {
            "vocab_size": 262144, "hidden_size": 640, "num_attention_heads": 4, "num_key_value_heads": 1,
            "head_dim": 256, "intermediate_size": 2048, "num_hidden_layers": 18, "max_position_embeddings": 32768,
            "sliding_window": 512, "query_pre_attn_scalar": 256,
        }, "270M", "rounded up; two thirds of them are the table of its 262,144 tokens", WORDS,
    ),
}  # fmt: skip
