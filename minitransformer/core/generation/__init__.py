"""Writing with a trained model: greedy, sampled and beam search, batched, on the key-value cache.

    greedy(model, source, ...)      translate(model, source, ...)      generate(model, prompts, ...)

combine two independent parts. A prefix is the text that a model has read: `Translation` for an encoder-decoder,
`Continuation` for a language model. There are two ways to continue a prefix: `write`, with a function that chooses the
next token (`most_probable`, `Sampler`), and `beam_search`.
"""

from collections.abc import Sequence

import numpy as np

from ..arrays.backend import Array, array_module
from ..arrays.boundary import check_integers, check_sizes
from ..models import EncoderDecoder, LanguageModel
from .beam import Hypothesis, beam_search
from .choosing import Choose, Sampler, most_probable
from .prefix import Continuation, Prefix, Translation
from .writing import stream, write

__all__ = [
    "Choose",
    "Continuation",
    "Hypothesis",
    "Prefix",
    "Sampler",
    "Translation",
    "beam_search",
    "generate",
    "greedy",
    "most_probable",
    "stream",
    "translate",
    "write",
]


def greedy(
    model: EncoderDecoder, source: Array, source_mask: Array | None, start: int, end: int, max_length: int
) -> np.ndarray:
    """Translate a batch; each step takes the most probable token.

    source: (B, T_src); source_mask: (B, T_src), True where a token is real. Returns ids (B, T) on the host with T up to
    max_length, without `start`. After its `end` a sentence is padded with `end`.
    """
    prefix, prompts = _translation("greedy", model, source, source_mask, start, end, max_length)
    written = write(prefix, prompts, max_length, end=end)
    ids = np.full((len(written), max(map(len, written))), end, dtype=np.int64)
    for row, tokens in zip(ids, written, strict=True):
        row[: len(tokens)] = tokens
    return ids


def translate(
    model: EncoderDecoder,
    source: Array,
    source_mask: Array | None = None,
    *,
    start: int,
    end: int,
    max_length: int,
    beam: int = 5,
    length_penalty: float = 1.0,
    early_stopping: bool = True,
    penalty: str = "length",
) -> list[list[int]]:
    """Translate a batch by beam search. Returns the best hypothesis for each sentence: ids without `start`.

    source, source_mask: (B, T_src), as for `greedy`; beam=1 equals `greedy`. The last id is `end`, unless a hypothesis
    was cut off at max_length tokens. For all hypotheses, their scores, and the other options, see `beam_search`.
    """
    prefix, prompts = _translation("translate", model, source, source_mask, start, end, max_length)
    found = beam_search(prefix, prompts, max_length, beam, length_penalty, end, early_stopping, penalty)
    return [best.tokens for best, *_ in found]


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    choose: Choose = most_probable,
    end: int | None = None,
) -> list[list[int]]:
    """Continue each prompt by up to n_new tokens, or until `end`. Returns the new tokens, including `end`.

    prompts: lists of ids, of any lengths from 1; texts longer than the model's context: see `Continuation`.
    choose: `most_probable`, or a `Sampler`.
    """
    return write(Continuation(model), prompts, n_new, choose, end)


def _translation(
    where: str, model: EncoderDecoder, source: Array, source_mask: Array | None, start: int, end: int, max_length: int
) -> tuple[Translation, list[list[int]]]:
    if not isinstance(model, EncoderDecoder):
        raise TypeError(f"{where}: model must be an encoder-decoder, such as a Transformer, got {type(model).__name__}")
    check_sizes(where, max_length=max_length)
    check_integers(where, start=start, end=end)
    n_tokens = model.config.target_vocabulary
    if not (0 <= start < n_tokens and 0 <= end < n_tokens):
        raise ValueError(f"{where}: start and end must be from 0 to {n_tokens - 1}, got {start} and {end}")
    array_module(source)  # raises TypeError if source is not an array
    return Translation(model, source, source_mask), [[start]] * len(source)
