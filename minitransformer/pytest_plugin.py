"""A pytest plugin: the fixture `check_gradients` is available in every test once the package is installed.

    def test_my_attention(check_gradients):
        check_gradients(MyAttention.apply, q, k, v)

See `verify.check_gradients`. The package is imported only when a test uses the fixture.
"""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def check_gradients() -> Callable[..., Any]:
    """check_gradients(f, *inputs, **options): fails unless every gradient of f is right, and says what is wrong.

    everything=True: it fails as well on what was not checked.
    """
    from .check.referee.expectation import check_gradients

    return check_gradients
