"""A trained model and a text that it reads, for the stepper and the viewer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.backend import to_device
from ...core.arrays.files import read_json
from ...core.generation import translate
from ...core.layers import Module
from ...core.models import Classifier, EncoderDecoder, Transformer
from ...core.models.opening import Opened, opened, with_article
from ...core.text import END
from ...ideas.published.weight_files import CONFIG
from ...run.tasks.translation import written

LONGEST = 64  # tokens of a sequence: more do not fit on a screen
_SIGNS = str.maketrans(" \n\t", "␣⏎⇥")


@dataclass(frozen=True)
class Reading:
    """ids: the text; said: what an encoder-decoder writes, without what begins and ends it.

    start: what begins it in a published model; elsewhere None.
    """

    opened: Opened[Any]
    ids: list[int]
    said: list[int]
    start: int | None = None


def visible(token: str) -> str:
    """A token as one can see it: white space alone becomes signs for it."""
    return token.translate(_SIGNS) if token.isspace() else token


def read_text(
    path: Path, text: str, device: str | None, dtype: str | None = None, least: int = 1, most: int = LONGEST
) -> Reading:
    """Open a model and encode a text for it; an encoder-decoder writes what it makes of it, too, by greedy search.

    path: the folder of a run or of a published model, or a .gguf file. dtype: of a model from a run. least: the fewest
    tokens for a model that predicts tokens; most: of any. Raises ValueError for a text of any other length, and for a
    model without layers of attention.
    """
    found: Opened[Any] = opened(path, Module)
    model, published = found.model, found.published
    if isinstance(model, EncoderDecoder) and not isinstance(model, Transformer):
        raise ValueError(f"{path} holds {with_article(type(model))}, which has no layers of attention to look into")
    model.to(device, None if published else dtype)
    ids = found.tokenizers[0].encode(text, special=True)
    if not published and isinstance(model, Classifier | Transformer):
        least = 1
    if not least <= len(ids) <= most:
        raise ValueError(f"the text must have {least} to {most} tokens, got {len(ids)}")
    if not isinstance(model, Transformer):
        return Reading(found, ids, [])
    most = min(most - 1, max(LONGEST - 1, 2 * len(ids)))
    if published:
        return _written(found, ids, most)
    said = [token for token in written(model, [ids], beam=1, max_length=most)[0] if token != END]
    return Reading(found, ids, said)


def _written(found: Opened[Any], ids: list[int], most: int) -> Reading:
    """What a published encoder-decoder writes, with the ids of its own for start and end."""
    start = read_json(found.path / CONFIG).get("decoder_start_token_id")
    ends = getattr(found.tokenizers[-1], "ends", ())
    if type(start) is not int or not ends:
        raise ValueError(
            f"{found.path}: config.json must name decoder_start_token_id and eos_token_id, with which it writes; "
            "viewer.view(model, source, target) shows ids of your own"
        )
    most = min(most, getattr(found.model.config, "n_positions", most + 1) - 1)  # the first is the start
    source = to_device(np.array([ids]), found.model.device)
    said = translate(found.model, source, start=start, end=ends[0], max_length=most, beam=1)[0]
    return Reading(found, ids, [token for token in said if token not in ends], start)
