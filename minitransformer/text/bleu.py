"""BLEU: how much of a translation is also in a reference.

Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation", section 2.

An n-gram is n tokens in a row. The precision p_n asks which share of the translation's n-grams the reference has, too.
Counted like that, "the the the the" would be perfect: every "the" is in the reference. So counts are clipped: an n-gram
is matched at most as often as it stands in the reference.

    p_n   = sum over sentences and n-grams of min(count in hypothesis, count in reference)
            / sum over sentences of the number of n-grams in the hypothesis

Short n-grams see whether the words are right, long ones whether their order is. Both are wanted, so BLEU takes the
geometric mean. Leaving words out raises every precision; the brevity penalty takes that back. With c tokens in all
hypotheses and r in all references:

    BP    = 1 if c >= r, else exp(1 - r / c)
    BLEU  = BP · (p_1 p_2 p_3 p_4)^(1/4)

It is a measure of a whole corpus: counts are summed before they are divided, and no mean of sentence scores is taken.
If one precision is 0, BLEU is 0: nothing is smoothed here. sacrebleu, which reports should use, smooths by default
(smooth_method="exp"), which matters where no n-gram of some length matches, as it happens with few sentences.
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
    """BLEU of translations, each a sequence of tokens, with one reference each, likewise; n-grams up to max_n.

    The classic example: of seven times "the" only two are counted, since the reference has no more; so p_1 is 2/7.

    >>> result = bleu(["the the the the the the the".split()], ["the cat is on the mat".split()], max_n=1)
    >>> round(result.score, 2), result.brevity_penalty
    (28.57, 1.0)

    And one with all its parts. Of "the cat sat on the mat" the reference "the cat is on the mat" has 5 of 6 words and
    3 of 5 pairs (the cat, on the, the mat); both are six tokens long; and √(5/6 · 3/5) = 0.7071.

    >>> round(bleu(["the cat sat on the mat".split()], ["the cat is on the mat".split()], max_n=2).score, 2)
    70.71

    Equal to sacrebleu's with tokenize="none" and smooth_method="none" on the same tokens, joined by spaces. Raises
    ValueError where there are no sentences or not as many references as hypotheses, TypeError for text that has not
    been split into tokens.
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
    """1 for hypotheses that are long enough, and less the shorter they are: exp(1 - r / c), and 0 where c = 0."""
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
