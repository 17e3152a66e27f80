"""Checks of values, for mistakes that forward and backward share: finite differences cannot see them.

An idea in a folder of its own has its checks in its own test file.
"""

from collections.abc import Callable

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
Check = Callable[[], None]
VALUE_CHECKS: dict[str, Check] = {}


def rejects(*names: str) -> Callable[[Check], Check]:
    """Enter a check of values that holds of the right code, and fails on each of the named variants."""

    def enter(check: Check) -> Check:
        VALUE_CHECKS.update(dict.fromkeys(names, check))
        return check

    return enter
