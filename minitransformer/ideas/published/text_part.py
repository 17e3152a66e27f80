"""Folders that hold more than a model of texts: its part for texts is opened, and a sentence says what is left out.

    text_config               the config.json of the part, inside that of the whole
    model.language_model.*    its tensors; in older files language_model.model.*
    lm_head                   its head lies outside

What serves training alone, such as layers that predict a second token, is left out likewise.
"""

import fnmatch
import re
import warnings
from collections.abc import Mapping
from typing import Any

from .families import FAMILIES, Family
from .weight_files import Tensor

_WHOLES = {family.whole.model_type: (family, family.whole) for family in FAMILIES.values() if family.whole}
_TIED = "tie_word_embeddings"


class LeftOut(UserWarning):
    """Something in a folder is not read."""


def config_of_text(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config.json of the part for texts, or the document itself, if it is that of a model of texts."""
    if (kind := str(document.get("model_type"))) not in _WHOLES:
        return document
    family, whole = _WHOLES[kind]
    inside, named = document.get("text_config"), document.get("architectures")
    if not isinstance(inside, dict):
        raise ValueError(f"text_config must be an object, got {str(inside)[:40]!r}")
    if named not in (None, [whole.architecture]):
        raise ValueError(f"architectures must be ['{whole.architecture}'], got {str(named)[:80]}")
    words = next(name for name, head in family.architectures.items() if head == "words")
    tied = {_TIED: document[_TIED]} if _TIED in document else {}
    of_part = {"model_type": family.model_type, "architectures": [words]}
    return {**whole.defaults, **inside, **tied, **of_part}


def tensors_of_text(found: Mapping[str, Tensor], document: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of the part for texts, as a folder of it alone names them. document: the config.json of the whole."""
    if (kind := str(document.get("model_type"))) not in _WHOLES:
        return dict(found)
    kept = left_out(found, _WHOLES[kind][1].rest, "of images")
    return {re.sub(r"^language_model\.(?=lm_head\.)", "", _plain(name)): x for name, x in kept.items()}


def _plain(name: str) -> str:
    return re.sub(r"^(model\.language_model|language_model\.model)\.", "model.", name)


def left_out(found: Mapping[str, Tensor], patterns: str, what: str) -> dict[str, Tensor]:
    """The tensors whose names fit none of the patterns. A LeftOut warning says how many others there are."""
    rest = {name: x for name, x in found.items() if any(fnmatch.fnmatchcase(name, each) for each in patterns.split())}
    if rest:
        count = "1 tensor" if len(rest) == 1 else f"{len(rest)} tensors"
        warnings.warn(f"left out: {count} {what}, such as {next(iter(rest.values())).name}", LeftOut, stacklevel=2)
    return {name: tensor for name, tensor in found.items() if name not in rest}


def without_training(family: Family, config: Any, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without those that serve training alone."""
    return left_out(stored, family.for_training(config), "for training alone")
