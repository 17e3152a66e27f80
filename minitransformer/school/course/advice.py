"""What to do about an error of a student's code, from the message that Python or NumPy gives."""

from __future__ import annotations

import re
from collections.abc import Callable

_SHAPES = r"\((\d+(?:,\d+)*),?\)"
_IN_NUMPY = {
    "cat": "np.concatenate",
    "clamp": "np.clip",
    "detach": "nothing: an array of NumPy has no gradient",
    "einsum": "np.einsum",
    "exp": "np.exp(x)",
    "float": "x.astype(float)",
    "from_numpy": "nothing: it is one already",
    "gather": "np.take_along_axis",
    "log": "np.log(x)",
    "log_softmax": "nothing ready: write it with np.exp and a sum",
    "masked_fill": "np.where(mask, x, value)",
    "matmul": "x @ y",
    "mm": "x @ y",
    "bmm": "x @ y",
    "numel": "x.size",
    "permute": "x.transpose(...)",
    "pow": "x**2",
    "relu": "np.maximum(x, 0)",
    "rsqrt": "1 / np.sqrt(x)",
    "sigmoid": "1 / (1 + np.exp(-x))",
    "size": "x.shape",
    "softmax": "nothing ready: write it with np.exp and a sum",
    "sqrt": "np.sqrt(x)",
    "tanh": "np.tanh(x)",
    "erf": "scipy.special.erf(x)",
    "unsqueeze": "x[:, None], or np.expand_dims(x, axis)",
    "view": "x.reshape(...)",
}


def advice(error: str, shown: str) -> str:
    """One or two sentences on a traceback, or "". shown: the exercise's arguments in this trial, with their shapes."""
    last = error.strip().rpartition("\n")[2]
    for pattern, said in _CASES:
        if match := re.search(pattern, last):
            told = said(match) if callable(said) else said
            return told.format(shown=shown) if told else ""
    return ""


def _broadcast(match: re.Match[str]) -> str:
    a, b = sorted((tuple(map(int, text.split(","))) for text in match.groups()), key=len, reverse=True)
    for axis in range(len(a)):
        if a[:axis] + a[axis + 1 :] == b:
            kept = (*a[:axis], 1, *a[axis + 1 :])
            return (
                f"Is keepdims=True missing? A sum, mean or maximum of {_shape(a)} over axis {axis} is {_shape(b)}, "
                f"which does not fit any more; with keepdims=True it is {_shape(kept)}, and each row gets its own."
            )
    product = (
        "\nFor a product of matrices write @; *, + and - go entry by entry."
        if len(a) > 1 and len(b) > 1 and {*a[-2:]} & {*b[-2:]}
        else ""
    )
    return (
        f"NumPy compares the shapes {_shape(a)} and {_shape(b)} from their last axes: two lengths must be equal, or "
        f"one of them 1. Compare with your inputs: {{shown}}.{product}"
    )


def _shape(shape: tuple[int, ...]) -> str:
    return str(shape).replace(" ", "")


def _not_here(match: re.Match[str]) -> str:
    name = match[1]
    here = f" In NumPy it is {_IN_NUMPY[name]}." if name in _IN_NUMPY else ""
    return f"An array of NumPy, and NumPy itself, may name it differently: {name} is not there.{here}"


_TORCH = (
    "This mixes PyTorch and NumPy. The inputs are arrays of NumPy, and so must the answer be: write all of it with "
    "NumPy, as np.exp(x), x.sum(axis=-1, keepdims=True), x.swapaxes(-1, -2)."
)
_CASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"ValueError: .*matmul",
        "In a product a @ b the last axis of a must be as long as the second-to-last of b: compare their shapes.\n"
        "Is a transpose missing? For a matrix it is x.T; for each matrix of a batch it is x.swapaxes(-1, -2).",
    ),
    (r"could not be broadcast together with shapes? " + _SHAPES + " " + _SHAPES, _broadcast),
    (r"\bTensor\b|torch|np\.ndarray of type|numpy\.ndarray'? to ", _TORCH),
    (
        r"unexpected keyword argument '(?:dim|keepdim)'",
        "NumPy says axis= and keepdims=, where PyTorch says dim= and keepdim=.",
    ),
    (r"(?:'numpy\.\w+' object|module 'numpy') has no attribute '(\w+)'", _not_here),
    (
        r"axes don't match array|repeated axis in transpose",
        "transpose takes all axes at once, in their new order. To exchange two of them write x.swapaxes(-1, -2).",
    ),
    (
        r"cannot reshape array of size",
        "A reshape keeps the number of entries. Which axes come first? A reshape does not exchange any.",
    ),
    (
        r"only (?:size|length)-1 arrays can be converted|only 0-dimensional arrays can be converted",
        "A function of the module math takes one number; np.exp, np.sqrt and the others take whole arrays.",
    ),
    (
        r"truth value of an array",
        "`if`, `and`, `or` and max(...) ask for one truth value; entry by entry write np.where, &, | and np.maximum.",
    ),
    (
        r"AxisError: axis|too many indices for array|not enough values to unpack|too many values to unpack",
        "An array has another number of axes than your code expects. Your inputs, in order: {shown}.",
    ),
    (
        r"arrays used as indices must be|only integers, slices|IndexError: .*out of bounds|float64' object cannot",
        "What is used as an index? The ids and targets are integers. Your inputs, in order: {shown}.",
    ),
    (r"NameError: name '(\w+)' is not defined", "Only np and what you define yourself is there. Your inputs: {shown}."),
    (r"KeyError:", "There is no such name in the dictionary. Your inputs: {shown}."),
)
