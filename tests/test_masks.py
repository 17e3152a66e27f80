"""Masks: literal small cases, the definition at every pair, how they combine, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import in_one

from minitransformer.core.arrays.masks import causal_mask, local_mask, padding_mask

sizes = st.integers(1, 7)
examples = settings(max_examples=60, derandomize=True)


def assert_mask(mask: np.ndarray, expected: Any) -> None:
    assert isinstance(mask, np.ndarray)
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, np.array(expected, dtype=bool), strict=True)


def test_causal() -> None:
    assert_mask(causal_mask(1), [[1]])
    assert_mask(causal_mask(3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


@in_one("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_padding_from_any_integers(dtype: str) -> None:
    lengths = np.array([1, 3], dtype=dtype)
    assert_mask(padding_mask(lengths), [[[1, 0, 0]], [[1, 1, 1]]])
    assert_mask(padding_mask(lengths, t_k=np.int64(4)), [[[1, 0, 0, 0]], [[1, 1, 1, 0]]])
    np.testing.assert_array_equal(lengths, [1, 3])


def test_numpy_integers_as_sizes() -> None:
    assert_mask(causal_mask(np.int32(2), np.int64(3)), [[1, 1, 0], [1, 1, 1]])
    assert_mask(local_mask(np.int64(2), np.int64(0)), np.eye(2))


def test_a_device_by_name() -> None:
    assert_mask(causal_mask(2, device="numpy"), [[1, 0], [1, 1]])
    assert_mask(local_mask(2, 0, device="numpy"), np.eye(2))


@examples
@given(sizes, sizes, sizes, st.lists(sizes, min_size=1, max_size=3), st.data())
def test_definition_at_every_pair(t_q: int, t_k: int, radius: int, lengths: list[int], data: st.DataObject) -> None:
    lengths = [min(length, t_k) for length in lengths]
    combined = causal_mask(t_q, t_k) & local_mask(t_q, radius, t_k) & padding_mask(lengths, t_k)
    assert combined.shape == (len(lengths), t_q, t_k)
    for b, i, j in np.ndindex(combined.shape):
        position = i + t_k - t_q
        assert causal_mask(t_q, t_k)[i, j] == (j <= position)
        assert local_mask(t_q, radius, t_k)[i, j] == (position - radius <= j <= position + radius)
        assert padding_mask(lengths, t_k)[b, 0, j] == (j < lengths[b])
        assert combined[b, i, j] == (position - radius <= j <= position and j < lengths[b])


@in_one(
    "call, error, message",
    [
        (lambda: causal_mask(0), ValueError, r"causal_mask: t_q must be greater than 0, got 0"),
        (lambda: causal_mask(3, 0), ValueError, r"causal_mask: t_k must be greater than 0, got 0"),
        (lambda: causal_mask(2.5), TypeError, r"causal_mask: t_q must be an integer, got 2.5"),
        (lambda: causal_mask(3, device="tpu"), ValueError, r'unknown device "tpu"; expected one of .*"numpy"'),
        (lambda: local_mask(3, 1, 0), ValueError, r"local_mask: t_k must be greater than 0, got 0"),
        (lambda: local_mask(3, 1.5), TypeError, r"local_mask: radius must be an integer, got 1.5"),
        (lambda: local_mask(3, -1), ValueError, r"local_mask: radius must be at least 0, got -1"),
        (lambda: padding_mask([1, -1]), ValueError, r"padding_mask: every length must be from 0 to 1, got -1 to 1"),
        (lambda: padding_mask([1, 3], t_k=2), ValueError, r"padding_mask: every length .* from 0 to 2, got 1 to 3"),
        (lambda: padding_mask([0, 0]), ValueError, r"padding_mask: t_k must be greater than 0, got 0"),
        (
            lambda: padding_mask([1.0, 2.0]),
            TypeError,
            r"padding_mask: lengths must be .* integers, got float64 .*\(2,\)",
        ),
        (lambda: padding_mask([True, False]), TypeError, r"padding_mask: lengths must be .* integers, got bool"),
        (lambda: padding_mask(["1"]), TypeError, r"padding_mask: lengths must be .* integers, got <U1"),
        (lambda: padding_mask(np.array([1, 2], object)), TypeError, r"padding_mask: lengths must be .*, got object"),
        (lambda: padding_mask([[1, 2]]), TypeError, r"padding_mask: lengths must be a vector .* shape \(1, 2\)"),
        (lambda: padding_mask(np.array(3)), TypeError, r"padding_mask: lengths must be a vector .* shape \(\)"),
        (lambda: padding_mask([]), ValueError, r"padding_mask: lengths is empty, its shape is \(0,\)"),
        (lambda: padding_mask(3), TypeError, r"padding_mask: lengths must be .*array, got int"),
        (lambda: padding_mask(None), TypeError, r"padding_mask: lengths must be .*array, got NoneType"),
    ],
)
def test_bad_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_masks_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        causal_mask(3) & padding_mask([2, 4])
