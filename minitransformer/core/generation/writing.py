"""Writing token by token: one text as it comes, or a batch in lock-step, every step reading one token of each text."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from ..arrays.backend import device_of, to_device, to_numpy
from ..arrays.boundary import check_finite, check_kind, check_sizes
from .choosing import Choose, most_probable
from .prefix import Prefix, check_end, laid_out


def write(
    prefix: Prefix, prompts: Sequence[Sequence[int]], n_new: int, choose: Choose = most_probable, end: int | None = None
) -> list[list[int]]:
    """Continue each prompt by up to n_new tokens. Returns the new tokens, including the `end` that stopped a text.

    The prompts may have different lengths and need no padding. All are first read up to the length of the shortest.
    From there on, a longer prompt supplies its own next token instead of a chosen one, until it is used up. A finished
    text leaves the batch.
    """
    check_sizes("write", n_new=n_new)
    check_kind("write", "choose", choose, Callable, "; give most_probable or a Sampler")
    last = check_end("write", end, prefix.vocabulary)
    texts, lengths = laid_out("write", prompts, n_new, prefix.vocabulary)
    stops = lengths + n_new
    rows = np.arange(len(texts))  # the texts that are still being written
    position = int(lengths.min())
    logits = prefix.read(texts[:, :position])
    while True:
        tokens = texts[rows, position]
        chosen = np.flatnonzero(lengths[rows] <= position)  # the others are still in their prompts
        if len(chosen):
            asked = logits if len(chosen) == len(rows) else logits[to_device(chosen, device_of(logits).name)]
            check_finite("write", asked.max(axis=-1))
            tokens[chosen] = to_numpy(choose(asked, rows[chosen]))
        texts[rows, position] = tokens
        position += 1
        finished = stops[rows] == position
        finished[chosen] |= tokens[chosen] == last
        stops[rows[finished]] = position
        if finished.all():
            return [text[start:stop].tolist() for text, start, stop in zip(texts, lengths, stops, strict=True)]
        if finished.any():
            going = np.flatnonzero(~finished)
            rows, tokens = rows[going], tokens[going]
            prefix.select(going)
        logits = prefix.read(tokens[:, None])


def stream(
    prefix: Prefix,
    prompt: Sequence[int],
    n_new: int,
    choose: Choose = most_probable,
    ends: Collection[int] = (),
    text: int = 0,
) -> Iterator[int]:
    """Continue one prompt, and yield each of up to n_new tokens as soon as it is chosen; one of `ends` is the last.

    text: which of a Sampler's generators draws.
    """
    check_sizes("stream", n_new=n_new)
    check_kind("stream", "choose", choose, Callable, "; give most_probable or a Sampler")
    texts, _ = laid_out("stream", [prompt], n_new, prefix.vocabulary)
    row = np.array([text])
    logits = prefix.read(texts[:, : len(prompt)])
    for i in range(n_new):
        check_finite("stream", logits.max(axis=-1))
        token = to_numpy(choose(logits, row))
        yield int(token[0])
        if token[0] in ends or i == n_new - 1:
            return
        logits = prefix.read(token[:, None])
