"""Mamba-2: Dao and Gu 2024, "Transformers are SSMs", section 7. State spaces alone: nothing attends.

Each layer is one state space with a gate, and has no feed-forward network. What a text leaves behind has the same size
however long the text is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Module, RMSNorm
from ...core.models.language_model import LanguageModel, LanguageModelParts
from ..after.mamba2 import Mamba2
from .decoder import decoder_of
from .family import WRITERS_ALONE, Family, Found, InGguf, Stored, classes
from .fields import Fields


@dataclass(frozen=True)
class Mamba2Config:
    """Sizes of a Mamba-2. n_states: heads, together expand times as wide as d_model; they share n_groups of keys.

    d_state: width of a key; kernel, conv_bias: of the convolution; state_bias: of the other maps.
    """

    vocabulary: int
    max_length: int = 2048
    d_model: int = 4096
    n_layers: int = 64
    n_states: int = 128
    d_state: int = 128
    n_groups: int = 8
    expand: int = 2
    kernel: int = 4
    conv_bias: bool = True
    state_bias: bool = False
    activation: str = "silu"
    norm_eps: float = 1e-5
    dropout: float = 0.0
    tie_output: bool = False
    recompute: bool = False

    def build(self, rng: Rng | None = None) -> LanguageModel:
        """The model of these sizes, untrained."""
        return LanguageModel(self, rng)

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of Mamba-2."""
        return decoder_of(
            self, rng, norm=lambda: RMSNorm(self.d_model, self.norm_eps), attention=lambda i: mixer(self, rng)
        )  # fmt: skip


def mixer(config: Any, rng: Rng) -> Module:
    """A state space of these sizes."""
    width, rest = divmod(config.expand * config.d_model, config.n_states)
    if rest:
        raise ValueError(f"{config.n_states} heads of Mamba-2 do not divide {config.expand} times {config.d_model}")
    sizes = config.n_states, width, config.d_state, config.n_groups, config.kernel
    how = config.norm_eps, config.activation, config.state_bias, config.conv_bias
    return Mamba2(config.d_model, *sizes, *how, rng=rng)


FIELDS = """
vocab_size               size        vocabulary
max_position_embeddings  size        max_length  2048
hidden_size              size        d_model     4096
num_hidden_layers        size        n_layers    64
num_heads                size        n_states    128
state_size               size        d_state     128
n_groups                 size        n_groups    8
expand                   size        expand      2
conv_kernel              size        kernel      4
use_conv_bias            flag        conv_bias   true
use_bias                 flag        state_bias  false
hidden_act               activation  activation  "silu"
layer_norm_epsilon       positive    norm_eps    1e-5
tie_word_embeddings      flag        tie_output  false
"""
_ENDLESS = float("inf"), {"__float__": "Infinity"}  # as JSON has it, and as the library writes it


def with_any_step(fields: Fields) -> Fields:
    """Require that a step may have any length."""
    if fields.get("time_step_limit") not in (None, *([0.0, endless] for endless in _ENDLESS)):
        raise ValueError("time_step_limit must be from 0 to infinity: steps are not clipped here")
    return fields


def head_width(fields: Fields, name: str, found: Found) -> Found:
    """Require the width that a head has with these sizes."""
    fields.only(**{name: found["expand"] * found["d_model"] // found["n_states"]})
    return {}


MIXER = """
layers.*.mixer.in_proj                 T     stack.layers.*.self_attention.sublayer.gate|inner|write|read|step
layers.*.mixer.conv1d.weight           taps  stack.layers.*.self_attention.sublayer.convolution.weight
layers.*.mixer.conv1d.bias             =     stack.layers.*.self_attention.sublayer.convolution.bias
layers.*.mixer.(A_log,dt_bias,D,norm)  =     stack.layers.*.self_attention.sublayer.(log_rate,shift,skip,norm)
layers.*.mixer.out_proj                T     stack.layers.*.self_attention.sublayer.last
"""
NAMES = f"""{MIXER}
embeddings     =   tokens
embedding      |=  tokens
layers.*.norm  =   stack.layers.*.self_attention.norm
norm_f         =   stack.final_norm
/lm_head       =   output
/lm_head       ~   tokens
"""
# llama.cpp, convert_hf_to_gguf.py, Mamba2Model.
MIXER_IN_GGUF = """
blk.*.ssm_in             =         layers.*.mixer.in_proj
blk.*.ssm_conv1d.weight  taps      layers.*.mixer.conv1d.weight
blk.*.ssm_conv1d.bias    =         layers.*.mixer.conv1d.bias
blk.*.ssm_a              flat+log  layers.*.mixer.A_log
blk.*.ssm_d              flat      layers.*.mixer.D
blk.*.ssm_dt.bias        =         layers.*.mixer.dt_bias
blk.*.ssm_norm           flat      layers.*.mixer.norm
blk.*.ssm_out            =         layers.*.mixer.out_proj
"""


STATES_IN_GGUF = """
num_heads      size   ssm.time_step_rank
state_size     size   ssm.state_size
n_groups       size   ssm.group_count
conv_kernel    size   ssm.conv_kernel
use_conv_bias  there  *ssm_conv1d.bias
use_bias       there  *ssm_in.bias
"""


def _in_gguf(fields: Fields, stored: Stored, config: Found) -> Found:
    """The width of the states. Nothing attends: a file says 0 for what there is not."""
    fields.only(**{"mamba2.attention.head_count": 0, "mamba2.feed_forward_length": 0})
    width = fields.size("mamba2.ssm.inner_size")
    return {"expand": width // config["hidden_size"], "head_dim": width // fields.size("mamba2.ssm.time_step_rank")}


FAMILY = Family(
    "mamba2", "backbone", Mamba2Config, classes("Mamba2", WRITERS_ALONE), FIELDS, NAMES,
    as_today=with_any_step, usual={"head_dim": 64},
    more_ours=lambda fields, found, *_: head_width(fields, "head_dim", found),
    more_theirs=lambda config: {"head_dim": config.expand * config.d_model // config.n_states},
    adds="state spaces in place of attention, no feed-forward networks",
    small={
        "vocab_size": 13, "hidden_size": 12, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 6, "state_size": 5,
        "n_groups": 2, "conv_kernel": 3, "layer_norm_epsilon": 1e-2, "max_position_embeddings": 32,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    },
    in_gguf=InGguf(MIXER_IN_GGUF, STATES_IN_GGUF, more=_in_gguf),
    ignored="chunk_size residual_in_fp32 rescale_prenorm_residual time_step_*",
)  # fmt: skip
