"""Writing with a trained model, token by token on the key-value cache: the prefix is never run again."""

from __future__ import annotations

import numpy as np

from .backend import Array, array_module, to_numpy
from .boundary import check_integers, check_sizes
from .layers import Cache
from .models import Transformer


def greedy(
    model: Transformer, source: Array, source_mask: Array | None, start: int, end: int, max_length: int
) -> np.ndarray:
    """Translate a batch, each time taking the most probable token.

    source: (B, T_src); source_mask: (B, T_src), True where a token is real. Returns ids (B, T) on the host with T up to
    max_length, without `start`; after its `end` a sentence is filled up with `end`.
    """
    check_sizes("greedy", max_length=max_length)
    check_integers("greedy", start=start, end=end)
    n_tokens = model.config.target_vocabulary
    if not (0 <= start < n_tokens and 0 <= end < n_tokens):
        raise ValueError(f"greedy: start and end must be from 0 to {n_tokens - 1}, got {start} and {end}")
    xp = array_module(source)
    memory = model.encode(source, source_mask)[0]
    cache = Cache(model.config.n_decoder_layers)
    token = xp.full((source.shape[0], 1), start, dtype=np.int64)
    finished = xp.zeros(source.shape[0], dtype=bool)
    written = []
    for _ in range(max_length):
        logits = model.decode(token, memory, source_mask, cache=cache)[0]
        token = xp.where(finished, end, logits[:, -1].argmax(axis=-1))[:, None]
        written.append(token)
        finished = finished | (token[:, 0] == end)
        if bool(finished.all()):
            break
    return to_numpy(xp.concatenate(written, axis=1))
