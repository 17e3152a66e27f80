"""Scaled rotary angles: against the formulas written out pair by pair, and their mistakes."""

import math

import numpy as np
import pytest
from tiers import in_one
from value_checks import CLOSE, rejects

from minitransformer import course
from minitransformer.check.verify.catalogue.case import ordinary
from minitransformer.generation import generate
from minitransformer.ideas import rotary
from minitransformer.ideas.after.scaled_angles import ScaledRotary, scaled_turn
from minitransformer.ideas.after.scaled_angles.angles import dynamic, linear, llama3, longrope, plain, yarn
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.layers import Cache
from minitransformer.models import LanguageModel

RNG = np.random.default_rng(4)
HEADS = RNG.normal(size=(2, 3, 5, 8))
LONG = {"kind": "longrope", "short": [1.0, 1.5], "long": [2.0, 5.0], "trained": 4, "attention": 1.2}


def speeds(base, width):
    return [base ** (-2 * i / width) for i in range(width // 2)]


def between(speed, factor, share):
    """share 1: the pair keeps its speed; share 0: it is slowed down by the factor."""
    share = min(1.0, max(0.0, share))
    return share * speed + (1.0 - share) * speed / factor


@rejects("linear-angles-multiplied")
def linear_angles_reach_no_further_than_in_training():
    found, m = linear(100.0, 8, factor=4.0)
    assert m == 1.0
    np.testing.assert_allclose(found * 4.0, speeds(100.0, 8), rtol=1e-14)


@rejects("dynamic-exponent-forgotten", "dynamic-stretch-without-its-one")
def dynamic_angles_slow_the_last_pair_by_the_stretch():
    """Peng et al., section 3.1: the base is chosen so that the last pair is as slow as with `linear`."""
    for length, stretch in ((7, 1.0), (40, 1.0), (80, 4.0), (100, 5.5)):
        found, m = dynamic(100.0, 8, factor=3.0, trained=40, length=length)
        assert m == 1.0 and found[0] == 1.0
        assert math.isclose(found[-1], speeds(100.0, 8)[-1] / stretch, rel_tol=1e-13)
    several, _ = dynamic(100.0, 8, factor=3.0, trained=40, length=np.array([[7], [80]]))
    np.testing.assert_array_equal(several[1], dynamic(100.0, 8, factor=3.0, trained=40, length=80)[0])


@rejects(
    "yarn-ramp-upside-down", "yarn-rounds-without-two-pi", "yarn-ramp-not-cut", "yarn-cut-the-wrong-way",
    "yarn-scores-made-flatter",
)  # fmt: skip
def yarn_keeps_fast_pairs_and_slows_slow_ones_down():
    base, width, trained, fast, slow = 1000.0, 24, 900, 8.0, 1.0
    turns = speeds(base, width)
    found, m = yarn(base, width, factor=5.0, trained=trained, fast=fast, slow=slow)
    assert math.isclose(m, 1.0 + 0.1 * math.log(5.0)) and yarn(base, width, factor=0.5, trained=9)[1] == 1.0
    rounds = [trained * turn / (2.0 * math.pi) for turn in turns]
    kept = max(i for i in range(12) if rounds[i] >= fast)
    slowed = min(i for i in range(12) if rounds[i] <= slow)
    assert kept > 0 and slowed < 11 and slowed - kept > 3
    for i, turn in enumerate(turns):
        expected = between(turn, 5.0, (slowed - i) / (slowed - kept))
        assert math.isclose(found[i], expected, rel_tol=1e-12), i
    exact, _ = yarn(base, width, factor=5.0, trained=trained, fast=fast, slow=slow, truncate=False, attention=2.0)
    first, last = (  # the number of rounds falls by the same factor from pair to pair
        math.log(rounds[0] / r) / math.log(rounds[0] / rounds[1]) for r in (fast, slow)
    )
    expected = [between(turn, 5.0, (last - i) / (last - first)) for i, turn in enumerate(turns)]
    np.testing.assert_allclose(exact, expected, rtol=1e-12)


@rejects("llama3-ramp-over-waves")
def llama_3_ramps_over_the_number_of_rounds():
    found, m = llama3(500.0, 32, factor=8.0, trained=64, low=1.0, high=4.0)
    turns = speeds(500.0, 32)
    rounds = [64.0 * turn / (2.0 * math.pi) for turn in turns]
    assert m == 1.0 and sum(1.0 < r < 4.0 for r in rounds) >= 3
    expected = [between(turn, 8.0, (r - 1.0) / 3.0) for turn, r in zip(turns, rounds, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@rejects("longrope-lists-exchanged", "longrope-long-too-early")
def longrope_takes_the_long_factors_after_the_trained_length():
    options = {name: value for name, value in LONG.items() if name != "kind"}
    turns = np.array(speeds(50.0, 4))
    for length, factors in ((3, [1.0, 1.5]), (4, [1.0, 1.5]), (5, [2.0, 5.0])):
        found, m = longrope(50.0, 4, length=length, **options)
        assert m == 1.2
        np.testing.assert_allclose(found, turns / factors, rtol=1e-14)


@rejects("scaled-rotary-length-of-the-batch", "scaled-rotary-last-position-for-the-length")
def the_length_is_that_of_each_text():
    part, heads = ScaledRotary(50.0, LONG), RNG.normal(size=(2, 3, 5, 4))
    at = np.array([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    turned = part(heads, positions=at)[0]
    np.testing.assert_allclose(turned[0, :, 1:], part(heads[0, :, 1:])[0], **CLOSE)  # 4 tokens: a short text
    np.testing.assert_allclose(turned[1], part(heads[1])[0], **CLOSE)
    assert abs(part(heads[1])[0][:, :4] - part(heads[1, :, :4])[0]).max() > 0.1


@rejects("scaled-rotary-factor-of-the-cosines-alone")
def turned_vectors_are_m_times_as_long():
    turned = ScaledRotary(50.0, {"kind": "yarn", "factor": 4.0, "trained": 40, "attention": 1.5})(HEADS)[0]
    norms = np.linalg.norm(HEADS, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), 1.5 * norms, **CLOSE)


CHECKS = [
    linear_angles_reach_no_further_than_in_training,
    dynamic_angles_slow_the_last_pair_by_the_stretch,
    yarn_keeps_fast_pairs_and_slows_slow_ones_down,
    llama_3_ramps_over_the_number_of_rounds,
    longrope_takes_the_long_factors_after_the_trained_length,
    the_length_is_that_of_each_text,
    turned_vectors_are_m_times_as_long,
]


@in_one("check", CHECKS, ids=lambda check: check.__name__)
def test_values(check):
    check()


def test_a_part_without_scaling_is_rotary_of_its_own_width():
    turned = ScaledRotary(50.0, width=6)(HEADS, start=3)[0]
    np.testing.assert_allclose(turned[..., :6], rotary(np.ascontiguousarray(HEADS[..., :6]), 3, 50.0)[0], **CLOSE)
    np.testing.assert_array_equal(turned[..., 6:], HEADS[..., 6:])
    neighbours = ScaledRotary(50.0, interleaved=True)(HEADS)[0]
    np.testing.assert_allclose(neighbours, rotary(HEADS, base=50.0, interleaved=True)[0], **CLOSE)
    np.testing.assert_array_equal(plain(50.0, 8)[0], 50.0 ** (-np.arange(0, 8, 2) / 8))


@in_one(
    "scaled, message",
    [
        ({"kind": "mrope"}, "kind must be one of linear, dynamic, yarn, llama3, longrope, got 'mrope'"),
        ({"factor": 2.0}, "kind must be one of"),
        ({"kind": "linear"}, "linear takes factor; factor is missing"),
        ({"kind": "linear", "factor": 2.0, "trained": 3}, "linear takes factor; got trained"),
        ({"kind": "yarn", "factor": -2.0, "trained": 3}, "factor must be"),
        ({"kind": "longrope", "short": [1.0], "long": [1.0, 2.0], "trained": 3}, "each of the 4 pairs, got 1 and 2"),
        ({"kind": "llama3", "factor": 2.0, "trained": 3, "low": 2.0, "high": 2.0}, "high must be above low"),
    ],
)
def test_what_does_not_fit_is_refused(scaled, message):
    with pytest.raises(ValueError, match=message):
        ScaledRotary(50.0, scaled)(HEADS)


def test_a_width_that_rotates_nothing_slowly_is_refused():
    with pytest.raises(ValueError, match="must be at least 4"):
        ScaledRotary(50.0, {"kind": "dynamic", "factor": 2.0, "trained": 3}, width=2)(HEADS)
    assert scaled_turn(50.0)[0].base == 50.0 and isinstance(scaled_turn(50.0, width=4)[1], ScaledRotary)


# ---- Angles that follow the length of the text: with a cache the text is read again when they change. ----

DYNAMIC = {"kind": "dynamic", "factor": 3.0, "trained": 4}


def small(scaled, **options):
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 6, "n_layers": 2, "n_key_heads": 1}
    config = LlamaConfig(7, 32, **sizes, rotary_base=50.0, scaled_angles=scaled, **options)
    return ordinary(config.build(np.random.default_rng(0)), np.random.default_rng(1))


@pytest.mark.parametrize("scaled, options", [(LONG, {}), (DYNAMIC, {"window": 3})], ids=["longrope", "dynamic"])
def test_logits_with_a_cache_are_those_of_the_text_so_far(scaled, options):
    model, ids = small(scaled, **options), RNG.integers(7, size=(3, 9))
    real = np.arange(9) >= np.array([[0], [2], [4]])  # padded on the left
    at = (np.arange(9) - np.array([[0], [2], [4]])).clip(0)
    for given in ({}, {"mask": real, "positions": at}):
        rows, cache = np.arange(3), model.new_cache()
        for start, stop in ((0, 3), (3, 4), (4, 5), (5, 8), (8, 9)):
            if stop == 8:
                rows = np.array([2, 0])
                cache.select(rows)
            whole = {name: x[rows, :stop] for name, x in given.items()}
            part = {name: x[:, start:] if name == "positions" else x for name, x in whole.items()}
            found, _ = model(ids[rows, start:stop], cache=cache, **part)
            expected = model(ids[rows, :stop], **whole)[0][:, start:]
            seen = real[rows, start:stop] if given else ...
            np.testing.assert_allclose(found[seen], expected[seen], **CLOSE)
    written = generate(model, [[1, 2], [3]], 8)
    for prompt, text in zip([[1, 2], [3]], written, strict=True):
        for i, token in enumerate(text):
            assert model(np.array([prompt + text[:i]]))[0][0, -1].argmax() == token


def test_a_model_that_cannot_read_again_says_so():
    config = small(LONG).config
    model, cache = LanguageModel(config, RNG), Cache(2)
    model(np.array([[1, 2, 3, 4]]), cache=cache)
    with pytest.raises(RuntimeError, match=r"the keys in the cache are stale; build the model with config.build"):
        model(np.array([[1]]), cache=cache)
    with pytest.raises(TypeError, match=r"one that new_cache\(\) made"):
        small(LONG)(np.array([[1]]), cache=Cache(2))


# ---- The exercise and the page. ----

LESSON = course.exercise("yarn_angles")


def test_the_exercise_takes_what_the_function_does():
    def by_the_function(base, width, factor, trained, fast, slow):
        return yarn(base, width, factor=factor, trained=trained, fast=fast, slow=slow, truncate=False)

    assert course.check(LESSON.name, by_the_function).right
