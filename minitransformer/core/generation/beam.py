"""Beam search: keep the few most probable texts at each length, not only the one that greedy search finds.

    score(y) = log P(y | x) / |y|^α,        log P(y | x) = sum_t log P(y_t | y_<t, x)

where |y| counts the tokens written, including the end. Every token makes log P smaller, so without a length penalty
(α = 0) short texts win; with α = 1 the score is the mean over the tokens. This is the penalty of fairseq (Ott et al.
2019, "fairseq: A Fast, Extensible Toolkit for Sequence Modeling"). With penalty="paper" the score is that of Vaswani et
al. 2017, section 6.1, who took it from Wu et al. 2016, equation 14:

    score(y) = log P(y | x) / ((5 + |y|) / 6)^α          there with α = 0.6, beam = 4 and |y| up to |x| + 50

With K beams, each step takes the 2K most probable one-token continuations of all beams of a sentence. Those among the
first K that end are finished; at the maximum length all of the first K are. The K finished texts with the best scores
are kept. The first K continuations that do not end become the next beams. There are two rules for the end of a search:

    early_stopping=True     it ends as soon as K texts are finished. With K = 1 this is greedy decoding
    early_stopping=False    it goes on while the best open beam has a better score than the worst of K finished texts

The first is the default, as it is fairseq's. It takes fewer steps. The second never ends with a worse best score, but a
better score need not mean a better translation (Stahlberg and Byrne 2019, "On NMT Search Errors and Model Errors: Cat
Got Your Tongue?"). It is the default of the library transformers, which has both rules under the same name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays.backend import Array, array_module, to_numpy
from ..arrays.boundary import check_finite, check_flags, check_number, check_sizes
from .choosing import largest
from .prefix import Prefix, check_end, laid_out

UNITS: dict[str, Callable[[int], float]] = {"length": lambda n: n, "paper": lambda n: (5 + n) / 6}  # to the power α


@dataclass(frozen=True)
class Hypothesis:
    """A result of beam search: the tokens written, with `end` if it was reached, and their score."""

    tokens: list[int]
    score: float


def beam_search(
    prefix: Prefix,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    beam: int = 5,
    length_penalty: float = 1.0,
    end: int | None = None,
    early_stopping: bool = True,
    penalty: str = "length",
) -> list[list[Hypothesis]]:
    """Continue each prompt by up to n_new tokens. Returns up to `beam` hypotheses for each, the best first.

    The prompts may have different lengths, as in `write`; the score and its length do not count their tokens. Among
    hypotheses with equal scores, the one found first comes first. length_penalty: α of the formula, from 0 to 10.
    early_stopping: which of the two rules above ends the search. penalty: which score, "length" or "paper".
    """
    check_sizes("beam_search", n_new=n_new, beam=beam)
    check_number("beam_search", "length_penalty", length_penalty)
    check_flags("beam_search", early_stopping=early_stopping)
    if not 0 <= length_penalty <= 10:
        raise ValueError(f"beam_search: length_penalty must be from 0 to 10, got {length_penalty}")
    if penalty not in UNITS:
        raise ValueError(f"beam_search: penalty must be one of {', '.join(UNITS)}, got {penalty!r}")
    last = check_end("beam_search", end, prefix.vocabulary)
    prompt_texts, lengths = laid_out("beam_search", prompts, n_new, prefix.vocabulary)
    finished = [_Finished(beam, early_stopping, UNITS[penalty], length_penalty) for _ in prompts]
    sentences = np.arange(len(prompts))  # the S sentences whose search goes on
    texts = prompt_texts[:, None, :]  # (S, K, T), at first with a single beam; kept on the host
    log_p = np.zeros(texts.shape[:2])  # (S, K); -inf where a beam is empty
    position = int(lengths.min())
    logits = prefix.read(prompt_texts[:, :position])
    while True:
        n_beams = texts.shape[1]
        log_p, parents, tokens = _continuations(log_p, logits, 2 * beam)
        ends = np.equal(tokens, last)
        in_prompt = np.flatnonzero(lengths[sentences] > position)  # they have one beam, which the prompt continues
        ends[in_prompt] = False
        log_p[in_prompt], log_p[in_prompt, 0] = -np.inf, 0.0
        parents[in_prompt] = 0
        tokens[in_prompt] = prompt_texts[sentences[in_prompt], position, None]
        texts = np.take_along_axis(texts, parents[:, :, None], axis=1)
        texts[:, :, position] = tokens
        position += 1

        at_limit = lengths[sentences] + n_new == position
        for s, k in np.argwhere((ends | at_limit[:, None])[:, :beam] & (log_p[:, :beam] > -np.inf)):
            finished[sentences[s]].add(texts[s, k, lengths[sentences[s]] : position].tolist(), log_p[s, k])
        log_p[ends] = -np.inf
        living = np.argsort(ends, axis=1, kind="stable")[:, :beam]
        log_p, parents = np.take_along_axis(log_p, living, axis=1), np.take_along_axis(parents, living, axis=1)
        texts = np.take_along_axis(texts, living[:, :, None], axis=1)

        over = np.array(
            [finished[s].are_enough(p, position - lengths[s]) for s, p in zip(sentences, log_p[:, 0], strict=True)]
        )
        going = np.flatnonzero(~(over | at_limit | (log_p == -np.inf).all(axis=1)))
        if len(going) == 0:
            return [each.texts for each in finished]
        rows = (np.arange(len(sentences))[:, None] * n_beams + parents)[going]
        prefix.select(rows.reshape(-1), same_source=len(going) == len(sentences) and rows.shape[1] == n_beams)
        sentences, texts, log_p = sentences[going], texts[going], log_p[going]
        logits = prefix.read(texts[:, :, position - 1].reshape(-1, 1))


class _Finished:
    """The best finished texts of one sentence, the best first, and the rule that ends its search."""

    def __init__(self, beam: int, early_stopping: bool, unit: Callable[[int], float], length_penalty: float) -> None:
        self.texts: list[Hypothesis] = []
        self._beam, self._early_stopping = beam, early_stopping
        self._unit, self._length_penalty = unit, length_penalty

    def add(self, tokens: list[int], log_p: float) -> None:
        """A text that has ended. Of equal scores the first stays before the others."""
        self.texts.append(Hypothesis(tokens, self._score(log_p, len(tokens))))
        self.texts = sorted(self.texts, key=lambda text: -text.score)[: self._beam]

    def are_enough(self, best_log_p: float, n_tokens: int) -> bool:
        """Whether the search is over, where the best open text has this log P and this many tokens."""
        if len(self.texts) < self._beam or self._early_stopping:
            return len(self.texts) == self._beam
        return self._score(best_log_p, n_tokens) <= self.texts[-1].score

    def _score(self, log_p: float, n_tokens: int) -> float:
        return float(log_p) / self._unit(n_tokens) ** self._length_penalty


def _continuations(log_p: np.ndarray, logits: Array, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n most probable continuations of each sentence by one token, or all if there are fewer.

    log_p: (S, K); logits: (S K, V). Returns three arrays (S, n), the most probable continuation first: the new log_p,
    the beam, and the token. No beam has more than n of the best n, so n from each beam are enough.
    """
    xp = array_module(logits)
    ids = largest(logits, min(n, logits.shape[1]))
    top = xp.take_along_axis(logits, ids, axis=1)
    check_finite("beam_search", top[:, 0])
    log_sum = xp.log(xp.exp(logits - top[:, :1]).sum(axis=1, keepdims=True)) + top[:, :1]
    steps = to_numpy(top - log_sum).astype(np.float64).reshape(*log_p.shape, -1)  # log softmax of these tokens
    totals = (log_p[:, :, None] + steps).reshape(len(log_p), -1)
    best = np.argsort(-totals, axis=1, kind="stable")[:, :n]
    tokens = np.take_along_axis(to_numpy(ids).reshape(totals.shape), best, axis=1)
    return np.take_along_axis(totals, best, axis=1), best // steps.shape[-1], tokens
