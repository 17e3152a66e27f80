"""The delta rule in chunks: against the recurrence, for all sizes of chunks, and its mistakes."""

import numpy as np
import pytest
from value_checks import CLOSE, rejects

from minitransformer import course, ideas
from minitransformer.ideas.after.chunked_delta import chunked_delta, delta_chunk, in_chunks
from minitransformer.ideas.after.chunked_delta.cases import after_by_recurrence

RNG = np.random.default_rng(3)


def text(length, *leading, d_k=3, d_v=4, rng=RNG):
    """Queries, keys of length 1, values, decays, rates, and a memory."""
    q, k, v = (rng.normal(size=(*leading, length, width)) for width in (d_k, d_k, d_v))
    k = k / np.sqrt((k**2).sum(axis=-1, keepdims=True))
    decay, beta = -rng.exponential(0.3, (*leading, length)), rng.random((*leading, length))
    return q, k, v, decay, beta, rng.normal(size=(*leading, d_k, d_v))


def recurrent(q, k, v, decay, beta, state):
    output, backward = ideas.gated_delta(q, k, v, decay[..., None], beta, state)
    return output, lambda doutput: [g.reshape(x.shape) for g, x in zip(backward(doutput), GIVEN, strict=True)]


GIVEN = text(13, 2, 3)


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 13, 64])
def test_every_size_of_chunk_is_the_recurrence(chunk):
    wanted, wanted_backward = recurrent(*GIVEN)
    output, backward = chunked_delta(*GIVEN, chunk=chunk)
    doutput = RNG.normal(size=output.shape)
    np.testing.assert_allclose(output, wanted, rtol=0, atol=1e-12)
    for found, right in zip(backward(doutput), wanted_backward(doutput), strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_memory_after_the_text_and_its_gradient(chunk):
    """A text in two halves: the memory between them carries values forward, and gradients back."""
    q, k, v, decay, beta, memory = GIVEN
    halves = [(x[..., :7, :], x[..., 7:, :]) for x in (q, k, v)] + [(x[..., :7], x[..., 7:]) for x in (decay, beta)]
    first, second = zip(*halves, strict=True)
    (start, between), first_backward = in_chunks(*first, memory, chunk)
    (end, after), second_backward = in_chunks(*second, between, chunk)
    (output, wanted), backward = in_chunks(*GIVEN, 4)
    np.testing.assert_allclose(np.concatenate([start, end], axis=-2), output, rtol=0, atol=1e-12)
    np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-12)
    doutput, dafter = RNG.normal(size=output.shape), RNG.normal(size=after.shape)
    *_, dbetween = second_backward(doutput[..., 7:, :], dafter)
    found, right = first_backward(doutput[..., :7, :], dbetween), backward(doutput, dafter)
    np.testing.assert_allclose(found[-1], right[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[3], right[3][..., :7], rtol=0, atol=1e-12)


def test_a_rate_of_one_replaces_a_value():
    key, values = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    result, _ = delta_chunk(key, key, values, np.zeros(2), np.ones(2), np.zeros((2, 2)))
    np.testing.assert_array_equal(result, [[5.0, 6.0], [7.0, 8.0], [7.0, 8.0], [0.0, 0.0]])


def test_equal_keys_of_a_long_chunk_lose_no_digits():
    """Powers of the coupling would reach 10¹⁸ here, and cancel; a triangular system does not."""
    q, k, v, _, _, memory = text(64, rng=np.random.default_rng(0))
    same = np.broadcast_to(k[:1], k.shape).copy()
    arguments = q, same, v, np.zeros(64), np.full(64, 0.999), memory
    wanted = ideas.gated_delta(q, same, v, np.zeros((64, 1)), np.full(64, 0.999), memory)[0]
    np.testing.assert_allclose(chunked_delta(*arguments)[0], wanted, rtol=0, atol=1e-12)


def test_what_does_not_fit_is_refused():
    q, k, v, decay, beta, memory = GIVEN
    with pytest.raises(ValueError, match="chunked_delta: chunk must be"):
        chunked_delta(*GIVEN, chunk=0)
    with pytest.raises(ValueError, match="chunked_delta: the axis T must be the same"):
        chunked_delta(q, k, v, decay[..., 1:], beta, memory)


@rejects("chunk-errors-apart")
def an_error_knows_what_earlier_positions_of_its_chunk_wrote():
    given = text(4, 2, rng=np.random.default_rng(1))
    np.testing.assert_allclose(delta_chunk(*given)[0], after_by_recurrence(*given), **CLOSE)


def test_the_exercise_takes_what_the_op_does():
    def by_the_op(k, v, beta, dmemory):
        start = np.zeros_like(dmemory)
        result, backward = delta_chunk(np.zeros_like(k), k, v, np.zeros_like(beta), beta, start)
        dresult = np.concatenate([np.zeros_like(v), dmemory], axis=1)
        assert result.shape == dresult.shape
        _, dk, dv, _, dbeta, _ = backward(dresult)
        return dk, dv, dbeta

    assert course.check("delta_chunk_backward", by_the_op).right
