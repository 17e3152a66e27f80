"""What PyTorch and JAX do by design where nothing is left: a softmax of -inf alone, or a mean over no targets, is NaN.

Our ops return 0 there, and gradients of 0. NaN is a mistake in an answer to "write softmax"; in a function of these
libraries it is their rule, so it is said, and not counted as a difference. This holds only if all other numbers agree:
NaN that spreads to other rows is a mistake.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..verify import arguments as given

SAID = "Where nothing is left (every score is masked, or every target ignored) it gives NaN, by design; ours gives 0."


_OPS = ("softmax", "attention", "cross_entropy")  # in the names of ops in which nothing may be left


def without_empty_rows(f: Any, op: str, found: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """The results of f, with 0 in place of NaN in rows where nothing is left, if f is a function of PyTorch or JAX.

    A row lies along the last axis. Such rows are NaN in the output of f, and 0 in the right one. If there are none, the
    answer is `found` itself.
    """
    f = given.inside_partial(f)
    made_by = str(getattr(f, "made_by", type(f).__module__))
    if not made_by.endswith(("from_torch", "from_jax")) or not any(part in op for part in _OPS):
        return found
    filled = {name: _filled(x, right.get(name)) for name, x in found.items()}
    return found if filled["the output"] is found["the output"] else filled


def _filled(found: Any, right: Any) -> Any:
    if not isinstance(found, np.ndarray) or not isinstance(right, np.ndarray) or found.shape != right.shape:
        return found
    rows, right_rows = (x.reshape(-1, x.shape[-1] if x.ndim else 1) for x in (found, right))
    empty = np.isnan(rows).all(-1) & (right_rows == 0.0).all(-1)
    return np.where(empty[:, None], 0.0, rows).reshape(found.shape).astype(found.dtype) if empty.any() else found
