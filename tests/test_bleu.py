"""BLEU against sacrebleu on the same tokens, and against counts made by hand."""

from __future__ import annotations

import doctest
import math
import sys

import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minitransformer.text.bleu import bleu

# Few words, so that n-grams of every length match, repeat and clip.
TOKENS = st.sampled_from(["the", "cat", "sat", "on", "mat", "."])
SENTENCES = st.lists(TOKENS, max_size=12)


@st.composite
def translations(draw):
    """A reference, and a hypothesis that has something in common with it: a piece of it, with other words around."""
    reference = draw(SENTENCES)
    start, stop = draw(st.integers(0, len(reference))), draw(st.integers(0, len(reference)))
    return draw(st.lists(TOKENS, max_size=2)) + reference[start:stop] + draw(st.lists(TOKENS, max_size=2)), reference


def assert_as_sacrebleu(pairs, max_n=4):
    hypotheses, references = zip(*pairs, strict=True)
    ours = bleu(hypotheses, references, max_n)
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", max_ngram_order=max_n, force=True)
    theirs = metric.corpus_score([" ".join(h) for h in hypotheses], [[" ".join(r) for r in references]])
    assert ours.score == pytest.approx(theirs.score, rel=1e-12, abs=1e-12)
    assert ours.precisions == pytest.approx(theirs.precisions, rel=1e-12)
    assert ours.brevity_penalty == pytest.approx(theirs.bp, rel=1e-12)
    assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)
    return ours


@settings(max_examples=400, deadline=None)
@given(st.lists(translations() | st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6), st.integers(1, 5))
@example([([], ["the", "cat"])], 4)  # nothing was said
@example([(["the", "cat"], [])], 4)
@example([([], [])], 4)
@example([([], ["the"]), (["the", "cat", "sat", "on"], ["the", "cat", "sat", "on"])], 4)
@example([(["the", "cat", "sat"], ["the", "cat", "sat"])], 4)  # perfect, and too short to have a 4-gram
@example([(["mat"], ["cat", "sat"])], 4)
def test_it_is_what_sacrebleu_says(pairs, max_n):
    assert_as_sacrebleu(pairs, max_n)


def test_the_comparison_meets_scores_of_every_size():
    """Were every score 0, as for random words it mostly is, the test above would prove little."""
    reference = "the cat sat on the mat . the cat sat on the mat .".split()
    scores = [assert_as_sacrebleu([([*reference[:n], "dog"], reference)]).score for n in range(4, 14)]
    assert scores == sorted(scores) and scores[0] < 15 and scores[-1] > 90


def test_the_examples_of_the_docstring():
    assert doctest.testmod(sys.modules["minitransformer.text.bleu"]) == (0, 3)


def test_counts_are_clipped():
    result = bleu(["the the the the".split()], ["the cat".split()], max_n=2)
    assert result.precisions == (25.0, 0.0)
    assert result.score == 0.0


def test_all_parts_by_hand():
    """c = 5 and r = 6. Words 5/5, pairs 3/4 (b c, d e, e f), threes 1/3 (d e f), fours 0/2."""
    result = bleu(["b c d e f".split()], ["b c a d e f".split()], max_n=3)
    assert result.precisions == pytest.approx((100.0, 75.0, 100.0 / 3.0))
    assert result.brevity_penalty == pytest.approx(math.exp(-0.2))
    assert result.score == pytest.approx(100.0 * math.exp(-0.2) * (3 / 4 * 1 / 3) ** (1 / 3))
    assert (result.hypothesis_length, result.reference_length) == (5, 6)
    assert bleu(["b c d e f".split()], ["b c a d e f".split()]).precisions[3] == 0.0


def test_counts_of_sentences_are_summed_before_they_are_divided():
    """1 of 1 word and 0 of 3 words are 1 of 4, and not the mean of 100 % and 0 %."""
    assert bleu([["a"], ["b", "b", "b"]], [["a"], ["c", "c", "c"]], max_n=1).score == pytest.approx(25.0)


def test_a_perfect_translation_has_100():
    sentence = "one two three four".split()
    assert bleu([sentence], [sentence]).score == pytest.approx(100.0, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], []), ValueError, "bleu: there are no sentences"),
        (([["a"]], []), ValueError, "bleu: there must be one reference for each hypothesis, got 0 references for 1"),
        ((["a b"], [["a", "b"]]), TypeError, "bleu: hypotheses must be sequences of tokens, got text; split it"),
        (([["a"]], "a"), TypeError, "bleu: references must be sequences of tokens, got text"),
        (([["a"]], [["a"]], 0), ValueError, "bleu: max_n must be greater than 0, got 0"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        bleu(*arguments)
    assert str(caught.value).startswith(message)
