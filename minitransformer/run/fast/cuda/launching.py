"""Launching the kernels of a `.cu` file. A kernel is compiled when it is first used on a GPU.

All kernels of a file are templates with the same parameters; the first is the type of the numbers, float or __half.
The GPU's compiler gets one file as a text, with common.cuh in place of its #include. CuPy stores the compiled code
under a hash of the text, so it compiles again after a change of either file.

Nothing here fetches a number from an array: the host would have to wait for the GPU.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....core.arrays.backend import Array, array_module

FOLDER = Path(__file__).parent
TYPES = {"e": "__half", "f": "float"}  # by the character of a dtype
NOTHING = np.uint64(0)  # the null pointer, as an argument instead of an array

Start = Callable[..., None]  # called with a grid, a block, and the arguments of the kernel


def takes(*arrays: Any) -> bool:
    """Whether these are non-empty arrays of one kind, all float32 or all float16. The textbook ops handle the rest."""
    first = arrays[0]
    if not all(type(x) is type(first) and x.size for x in arrays):
        return False
    return first.dtype.char in TYPES and all(x.dtype == first.dtype for x in arrays)


def contiguous(x: Array) -> Array:
    """x itself, or a copy if its numbers are not contiguous."""
    return x if x.flags.c_contiguous else x.copy()


def kernels_of(file: str, x: Array, *parameters: str) -> list[Start]:
    """The kernels of a file, in order, for numbers of x's type. parameters: the other parameters of the templates."""
    return _compiled(array_module(x), file, ", ".join([TYPES[x.dtype.char], *parameters]))


@functools.cache
def _compiled(xp: Any, file: str, parameters: str) -> list[Start]:
    code = source(file)
    names = tuple(f"{name}<{parameters}>" for name in kernel_names(code))
    module = xp.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
    return [functools.partial(_start, module.get_function(name)) for name in names]


def _start(function: Callable[..., None], grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> None:
    """Convert an argument: a Python int becomes long long, a float float, an array a pointer to its first number."""
    function(grid, block, tuple(np.float32(x) if type(x) is float else x for x in arguments))


def source(file: str) -> str:
    """The text of a file of this folder, with common.cuh pasted in."""
    text = (FOLDER / file).read_text(encoding="ascii")
    return text.replace('#include "common.cuh"', (FOLDER / "common.cuh").read_text(encoding="ascii"))


def kernel_names(code: str) -> list[str]:
    """The names of the kernels in a text, in order."""
    return re.findall(r"__global__ void (?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\(", code)


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
