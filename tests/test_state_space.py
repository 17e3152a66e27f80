"""State space duality: the recurrence and the chunks, against the formula; the mistakes."""

import numpy as np
import pytest
from tiers import in_one
from value_checks import CLOSE, rejects

from minitransformer.ideas.after.linear_attention import causal_sums
from minitransformer.ideas.after.state_space import state_space, state_space_recurrent

RNG = np.random.default_rng(3)
Q, K, V = (RNG.normal(size=(2, 3, 13, width)) for width in (3, 3, 4))
DECAY, STATE = -RNG.exponential(0.3, (2, 3, 13)), RNG.normal(size=(2, 3, 3, 4))
GIVEN = Q, K, V, DECAY, STATE


@in_one("chunk", [1, 2, 5, 13, 64])
def test_every_size_of_chunk_is_the_recurrence(chunk):
    wanted, wanted_backward = state_space_recurrent(*GIVEN)
    output, backward = state_space(*GIVEN, chunk=chunk)
    doutput = RNG.normal(size=output.shape)
    np.testing.assert_allclose(output, wanted, rtol=0, atol=1e-12)
    for found, right in zip(backward(doutput), wanted_backward(doutput), strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", [state_space, state_space_recurrent])
def test_the_values_are_those_of_the_formula(form):
    output, _ = form(*GIVEN)
    for at in np.ndindex(2, 3):
        q, k, v, decay, state = (x[at] for x in GIVEN)
        for t in range(13):
            expected = np.exp(decay[: t + 1].sum()) * q[t] @ state
            expected = expected + sum(np.exp(decay[s + 1 : t + 1].sum()) * (q[t] @ k[s]) * v[s] for s in range(t + 1))
            np.testing.assert_allclose(output[at][t], expected, rtol=1e-11, atol=1e-12)


def test_without_decay_it_is_the_sum_of_linear_attention():
    found = state_space(Q, K, V, np.zeros_like(DECAY), STATE, chunk=4)[0]
    np.testing.assert_allclose(found, causal_sums(Q, K, V, 4, STATE)[0], rtol=0, atol=1e-12)


@rejects("recurrent-read-before-it-is-written")
def a_position_reads_what_it_writes():
    one = np.ones((1, 1))
    np.testing.assert_allclose(state_space_recurrent(one, one, 3.0 * one, np.zeros(1))[0], 3.0 * one, **CLOSE)
