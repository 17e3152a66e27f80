"""RoBERTa: Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".

It is BERT (section 2.2) with other data and heads. Positions count only the real tokens: the first is in row padding
id + 1 of the position table. CamemBERT (Martin et al. 2020) and XLM-R (Conneau et al. 2020) are of other languages.
"""

from dataclasses import replace

from . import bert
from .family import BODY, CLASSES, ENCODERS, MASKED, Family, Found, Stored, classes
from .fields import Fields
from .text_encoder import TextClassifierConfig, TextEncoderConfig


def _ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    padding = fields.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < found["max_length"] - 1:
        raise ValueError(f"pad_token_id must be a row of the position table, but not the last; got {padding!r}")
    if head == MASKED and found["activation"] != "gelu":
        raise ValueError("hidden_act must be gelu, because RoBERTa's head uses it")
    own: Found = {"max_length": found["max_length"] - padding - 1, "position_offset": padding + 1, "count_real": True}
    return own | (bert.pooler(fields, found, head, stored) if head == BODY else {"pooler": None})


def _theirs(config: TextEncoderConfig) -> Found:
    rows = config.max_length + config.position_offset
    return {"max_position_embeddings": rows, "pad_token_id": config.position_offset - 1}


MASKED_NAMES = """
/HEAD.dense       T  dense
/HEAD.layer_norm  =  norm
pooler.dense      -
"""
CLASSES_NAMES = """
/classifier.dense                              T  pool.dense
"""


def names(config: TextEncoderConfig) -> str:
    """The table of names."""
    own = CLASSES_NAMES if isinstance(config, TextClassifierConfig) else bert.POOLER
    return bert.NAMES + own + bert.masked(config, "lm_head", MASKED_NAMES)


_ROBERTA = Family(
    "roberta", "roberta", TextEncoderConfig, classes("Roberta", ENCODERS), bert.FIELDS, names,
    only=bert.ONE_SIDED, more_ours=_ours, more_theirs=_theirs,
    adds="as BERT; positions that count the real tokens, from the padding's id + 1",
    small=bert.SMALL,
    heads={CLASSES: "classifier.out_proj"},
)  # fmt: skip
_OTHERS: Found = {"adds": "as RoBERTa; other languages"}
FAMILIES = (
    _ROBERTA,
    replace(_ROBERTA, model_type="camembert", architectures=classes("Camembert", ENCODERS), **_OTHERS),
    replace(_ROBERTA, model_type="xlm-roberta", architectures=classes("XLMRoberta", ENCODERS), **_OTHERS),
)
