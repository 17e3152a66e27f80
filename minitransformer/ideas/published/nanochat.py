"""nanochat: Karpathy 2025, github.com/karpathy/nanochat, gpt.py. A Llama with simpler norms and feed-forward networks.

RMSNorm without a gain, everywhere: also of the token vectors, and of queries and keys; the square of a ReLU instead of
a gate; capped logits. Its positions turn the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Array, Pullback, Rng, array_module
from ...core.layers import FeedForward
from ..after.plain_norm import PlainRMSNorm
from ..after.qk_norm import qk_norm
from ..after.rotary import RotaryPositions, rotary
from ..after.softcap import CappedOutput
from ..after.squared_relu import squared_relu
from . import llama
from .family import WRITERS_ALONE, Family, Found, classes
from .fields import Fields


class BackwardPositions(RotaryPositions):
    """Rotate by -θ: the scores see distances n - m where those of RotaryPositions see m - n. heads: (..., H, T, d)."""

    def __call__(self, heads: Array, start: int = 0, positions: Array | None = None) -> tuple[Array, Pullback]:
        """Return (turned, backward). positions: integers (..., T), where they do not count from `start`."""
        counted = array_module(heads).arange(start, start + heads.shape[-2])
        return rotary(heads, base=self.base, positions=-(counted if positions is None else positions[..., None, :]))


@dataclass(frozen=True)
class NanochatConfig(llama.LlamaConfig):
    """Sizes of a nanochat: those of a Llama. bias: whether attention's four maps have one. logit_cap: None for no cap.

    activation: of what is squared; only "relu" is known.
    """

    activation: str = "relu"
    logit_cap: float | None = 15.0

    def differs(self, rng: Rng) -> Found:
        """What differs from Llama; see `decoder`. Raises ValueError for another activation, and for scaled angles."""
        if self.activation != "relu" or self.scaled_angles is not None or self.d_rotary is not None:
            raise ValueError("a nanochat has activation 'relu', and neither scaled_angles nor d_rotary")
        then = (BackwardPositions(self.rotary_base),) * 2
        return {
            "norm": lambda: PlainRMSNorm(self.d_model, self.norm_eps),
            "turn": lambda i: qk_norm(self.d_head or 1, self.norm_eps, then=then, kind=PlainRMSNorm),
            "feed_forward": lambda i: FeedForward(self.d_model, self.d_ff, squared_relu, False, rng),
            "embedding_norm": PlainRMSNorm(self.d_model, self.norm_eps),
            "output": lambda table: table if self.logit_cap is None else CappedOutput(table, self.logit_cap),
        }


def _unscaled(fields: Fields, found: Found, *_: Any) -> Found:
    if found["scaled_angles"] is not None:
        raise ValueError("rope_parameters must be of type 'default': a nanochat has no scaled angles")
    return {}


FIELDS = """
final_logit_softcapping  positive_or_none  logit_cap  15.0
attention_bias           flag              bias       false
"""
NAMES = f"""{llama.NAMES}
layers.*.mlp.(fc1,fc2)  T  stack.layers.*.feed_forward.sublayer.(inner,output)
"""
FAMILY = Family(
    "nanochat", "model", NanochatConfig, classes("NanoChat", WRITERS_ALONE), FIELDS, NAMES,
    only={"hidden_act": "relu2"}, as_today=lambda fields: fields.instead(hidden_act="relu"), base=llama.BASE,
    more_ours=_unscaled, more_theirs=lambda config: {"hidden_act": "relu2"},
    adds="norms without a gain, of token vectors, queries and keys, too; the square of a ReLU; capped logits",
    small=llama.SMALL | {"final_logit_softcapping": 2.5},
)  # fmt: skip
