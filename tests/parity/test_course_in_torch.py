"""An answer to an exercise that is written with PyTorch: what a student is told."""

from typing import Any

import pytest
import torch

from minitransformer.course import check


def returns_a_tensor(x: Any) -> Any:
    return torch.softmax(torch.tensor(x), dim=-1)


def takes_numpy_for_torch(x: Any) -> Any:
    return torch.softmax(x, dim=-1)


def mixes_both(x: Any) -> Any:
    return torch.matmul(torch.tensor(x), x)


def says_dim(x: Any) -> Any:
    return x / x.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (returns_a_tensor, "it is a Tensor of torch; the exercises are in NumPy"),
        (takes_numpy_for_torch, "This mixes PyTorch and NumPy"),
        (mixes_both, "This mixes PyTorch and NumPy"),
        (says_dim, "NumPy says axis= and keepdims="),
    ],
)
def test_an_answer_in_torch_gets_a_plain_explanation(f: Any, words: str) -> None:
    result = check("softmax_forward", f)
    assert not result.right and words in str(result)
