"""BLEU: how much of a translation is also in a reference.

Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation", section 2.

An n-gram is n tokens in a row. The precision p_n is the share of the translation's n-grams that also occur in the
reference. With plain counts, "the the the the" would be perfect: every "the" is in the reference. So counts are
clipped: an n-gram is matched at most as often as it occurs in the reference.

    p_n   = sum over sentences and n-grams of min(count in hypothesis, count in reference)
            / sum over sentences of the number of n-grams in the hypothesis

Short n-grams test whether the words are right, long ones whether their order is. Both matter, so BLEU takes the
geometric mean. Leaving words out raises every precision; the brevity penalty compensates for that. With c tokens in all
hypotheses and r in all references:

    BP    = 1 if c >= r, else exp(1 - r / c)
    BLEU  = BP · (p_1 p_2 p_3 p_4)^(1/4)

BLEU measures a whole corpus: counts are summed before they are divided; it is not a mean of sentence scores. If one
precision is 0, BLEU is 0: nothing is smoothed here. Reports should use sacrebleu, which smooths by default
(smooth_method="exp"). That matters if no n-gram of some length matches, as happens with few sentences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..arrays.boundary import check_sizes


@dataclass(frozen=True)
class Bleu:
    """score: from 0 to 100; precisions: p_1, p_2, ... in percent; lengths: tokens in all hypotheses and references."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int


def bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], max_n: int = 4) -> Bleu:
    """BLEU of translations with one reference each, both as sequences of tokens; n-grams up to max_n.

    The classic example: of seven "the" only two are counted, because the reference has only two; so p_1 is 2/7.

    >>> result = bleu(["the the the the the the the".split()], ["the cat is on the mat".split()], max_n=1)
    >>> round(result.score, 2), result.brevity_penalty
    (28.57, 1.0)

    An example with all parts: the reference "the cat is on the mat" contains 5 of the 6 words of "the cat sat on the
    mat" and 3 of its 5 pairs (the cat, on the, the mat). Both are six tokens long, and √(5/6 · 3/5) = 0.7071.

    >>> round(bleu(["the cat sat on the mat".split()], ["the cat is on the mat".split()], max_n=2).score, 2)
    70.71

    Equal to sacrebleu's with tokenize="none" and smooth_method="none" on the same tokens, joined by spaces. Raises
    ValueError if there are no sentences, or if the numbers of references and hypotheses differ, and TypeError for text
    that is not split into tokens.
    """
    check_sizes("bleu", max_n=max_n)
    _check_sentences(hypotheses, references)
    matched, proposed = [0] * max_n, [0] * max_n
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, max_n + 1):
            counts = ngrams(hypothesis, n)
            clipped = counts & ngrams(reference, n)  # the smaller of the two counts
            matched[n - 1] += clipped.total()
            proposed[n - 1] += counts.total()
    precisions = tuple(100.0 * m / p if p else 0.0 for m, p in zip(matched, proposed, strict=True))
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    penalty = brevity_penalty(c, r)
    mean = math.exp(sum(map(math.log, precisions)) / max_n) if all(precisions) else 0.0
    return Bleu(penalty * mean, precisions, penalty, c, r)


def ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each row of n tokens occurs: in "a b a b" (a, b) twice and (b, a) once."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """1 for hypotheses that are long enough; for shorter ones exp(1 - r / c), and 0 if c = 0."""
    if hypothesis_length >= reference_length:
        return 1.0
    return math.exp(1.0 - reference_length / hypothesis_length) if hypothesis_length else 0.0


def _check_sentences(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(sentences, str) or any(isinstance(sentence, str) for sentence in sentences):
            raise TypeError(f"bleu: {name} must be sequences of tokens, got text; split it, as with .split()")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"bleu: there must be one reference for each hypothesis, got {len(references)} references for "
            f"{len(hypotheses)} hypotheses"
        )
    if not hypotheses:
        raise ValueError("bleu: there are no sentences")
