"""OPT: Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models", section 2.1.

A GPT-2 with ReLU, whose positions begin in row 2 of their table. The model of 350 million has its norms after each
sub-layer, and a table of tokens narrower than its layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.arrays.backend import Rng
from ...core.layers import Embedding, InputEmbedding
from ...core.models.language_model import LanguageModelConfig, LanguageModelParts
from ..after.narrow_table import ProjectedEmbedding, ThenProjected
from .bart import SIDES
from .family import WRITERS, Family, Found, classes
from .fields import GENERAL, Fields, small
from .heads import ANSWERS
from .position_tables import OffsetPositions


@dataclass(frozen=True)
class OptConfig(LanguageModelConfig):
    """Sizes of an OPT. width: of the table of tokens, if it is not d_model."""

    max_length: int = 2048
    activation: str = "relu"
    width: int | None = None

    def parts(self, rng: Rng) -> LanguageModelParts:
        """The parts of OPT."""
        parts, d, width = super().parts(rng), self.d_model, self.width
        tokens, output = parts.embed.tokens, parts.output
        if width is not None:
            tokens = ProjectedEmbedding(self.vocabulary, width, d, rng)
            output = tokens if self.tie_output else Embedding(self.vocabulary, width, std=0.02, rng=rng)
            parts.stack.final_norm = ThenProjected(parts.stack.final_norm, d, width, rng)
        positions = OffsetPositions(self.max_length, d, 2, rng)
        return LanguageModelParts(InputEmbedding(tokens, positions), parts.stack, output)


FIELDS = f"""{GENERAL}
ffn_dim                    size        d_ff
dropout                    rate        dropout
activation_function        activation  activation           "relu"
enable_bias                flag        bias                 true
tie_word_embeddings        flag        tie_output           true
"""


def _ours(fields: Fields, found: Found, *_: Any) -> Found:
    width = fields.size("word_embed_proj_dim", found["d_model"])
    order = "pre" if fields.flag("do_layer_norm_before", True) else "post"
    return {"norm_order": order, "width": None if width == found["d_model"] else width}


def _theirs(config: OptConfig) -> Found:
    return {
        "do_layer_norm_before": config.norm_order == "pre", "word_embed_proj_dim": config.width or config.d_model
    }  # fmt: skip


NAMES = f"""{SIDES.replace("  SIDE", "  stack").replace("SIDE", "decoder")}
decoder.embed_tokens      =  tokens
decoder.project_in        T  tokens.projection
decoder.embed_positions   =  embed.positions
decoder.final_layer_norm  =  stack.final_norm
decoder.final_layer_norm  =  stack.final_norm.norm
decoder.project_out       T  stack.final_norm.projection
/lm_head                  =  output
/lm_head                  ~  tokens
"""
FAMILY = Family(
    "opt", "model", OptConfig, classes("OPT", WRITERS | {"ForQuestionAnswering": ANSWERS}), FIELDS, NAMES,
    only={"layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False}, more_ours=_ours,
    more_theirs=_theirs,
    adds="as GPT-2; positions from row 2 on, in the model of 350M a narrow token table and norms after each sub-layer",
    small=small(FIELDS, word_embed_proj_dim=8, pad_token_id=1, bos_token_id=None, eos_token_id=None),
    ignored="prefix layerdrop",
)  # fmt: skip
