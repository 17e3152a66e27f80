"""A trained model and a text that it reads, for the stepper and the viewer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.layers import Module
from ...core.models import Classifier, EncoderDecoder, Transformer
from ...core.models.opening import Opened, opened
from ...core.text import END
from ...run.tasks.translation import written

LONGEST = 64  # tokens of a sequence: more do not fit on a screen


@dataclass(frozen=True)
class Reading:
    """ids: the text; said: what a translator from a run makes of it, without <start> and <end>."""

    opened: Opened[Any]
    ids: list[int]
    said: list[int]


def read_text(path: Path, text: str, device: str | None, dtype: str | None = None, least: int = 1) -> Reading:
    """Open a model and encode a text for it; a translator from a run translates it, too, by greedy search.

    path: the folder of a run or of a published model, or a .gguf file. dtype: of a model from a run. least: the fewest
    tokens for a model that predicts tokens. Raises ValueError for a text of any other length, and for a model without
    layers of attention.
    """
    found: Opened[Any] = opened(path, Module)
    model, published = found.model, found.published
    if isinstance(model, EncoderDecoder) and not isinstance(model, Transformer):
        raise ValueError(f"{path} holds a {type(model).__name__}, which has no layers of attention to look into")
    model.to(device, None if published else dtype)
    ids = found.tokenizers[0].encode(text, special=True)
    if not published and isinstance(model, Classifier | Transformer):
        least = 1
    if not least <= len(ids) <= LONGEST:
        raise ValueError(f"the text must have {least} to {LONGEST} tokens, got {len(ids)}")
    said: list[int] = []
    if isinstance(model, Transformer) and not published:
        said = [token for token in written(model, [ids], beam=1, max_length=LONGEST - 1)[0] if token != END]
    return Reading(found, ids, said)
