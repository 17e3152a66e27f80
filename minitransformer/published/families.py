"""Families of published models. Each has a translation of its config, in both directions, and a table of names."""

from . import albert, bart, bert, distilbert, gemma2, gpt2, gpt_oss, llama, qwen3, roberta, t5
from .family import Family

_ENCODERS = bert.FAMILY, roberta.FAMILY, distilbert.FAMILY, albert.FAMILY
_WRITERS = gpt2.FAMILY, llama.LLAMA, llama.MISTRAL, llama.QWEN2, qwen3.FAMILY, gemma2.FAMILY, gpt_oss.FAMILY
_TRANSLATORS = t5.FAMILY, bart.BART, bart.PEGASUS, bart.MARIAN
FAMILIES: dict[str, Family] = {family.model_type: family for family in _ENCODERS + _WRITERS + _TRANSLATORS}

__all__ = ["FAMILIES", "Family"]
