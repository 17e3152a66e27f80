"""A plugin of pytest: the fixture `check_gradients`, in every test file once the package is installed.

    def test_my_attention(check_gradients):
        check_gradients(MyAttention.apply, q, k, v)

See `verify.check_gradients`. Nothing of the package is imported until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def check_gradients() -> Callable[..., Any]:
    """check_gradients(f, *inputs, **options): fails unless every gradient of f is right, and says what is wrong."""
    from .verify import check_gradients

    return check_gradients
