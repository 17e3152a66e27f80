"""A stand-in for cupy.RawModule that runs CUDA kernels on the processor: g++ compiles them after emulator/emulator.h.

Arrays are those of the strict stand-in for CuPy. Each goes to a kernel as a copy with a margin of NaN on both sides,
and comes back from it: what a kernel reads beyond an array spoils its results, and what it writes there is an error.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.core.arrays.strict import StrictArray

GXX = shutil.which("g++")
HEADERS = Path(__file__).parent / "emulator"
FLAGS = "-std=c++17 -O1 -w -shared -fPIC".split()  # warnings are left to nvcc
MARGIN = 1 << 16  # bytes
# What fills the margins: of float arrays signaling NaN, whose bits change when one is computed with and written again.
FILLINGS = {"f": np.array([0x7FA00000], np.uint32), "e": np.array([0x7D00], np.uint16)}
KINDS = {"f": "F", "e": "E", "?": "B", "q": "Q", "l": "Q", "i": "I"}  # of arrays; see kind() in emulator.h


class EmulatedModule:
    """What cupy.RawModule is to the package. `descending` says in which order the threads of a block run."""

    folder: Path  # for what is compiled
    descending = False
    launches: list[str] = []  # noqa: RUF012  # the names of the kernels started, by all modules

    def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
        starts = "".join(
            f'extern "C" const char* start_{n}(const unsigned* sizes, const char* kinds, void** arguments, int order)'
            f" {{ return emulator::launch({name}, sizes, kinds, arguments, order); }}\n"
            for n, name in enumerate(name_expressions)
        )
        stem = self.folder / f"module_{len(list(self.folder.iterdir()))}"
        program, library = stem.with_suffix(".cpp"), stem.with_suffix(".so")
        program.write_text(f'#include "emulator.h"\n{code}\n{starts}', encoding="ascii")
        run = subprocess.run(
            [str(GXX), *FLAGS, "-I", str(HEADERS), str(program), "-o", str(library)], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        self.names = name_expressions
        self.library = ctypes.CDLL(str(library))

    def get_function(self, name: str) -> Any:
        start = self.library[f"start_{self.names.index(name)}"]
        start.restype = ctypes.c_char_p

        def function(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            self.launches.append(name)
            sizes = (ctypes.c_uint * 6)(*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
            given = [_Argument(x) for x in arguments]
            pointers = (ctypes.c_void_p * len(given))(*(ctypes.addressof(x.value) for x in given))
            problem = start(sizes, "".join(x.kind for x in given).encode(), pointers, self.descending)
            assert not problem, f"{name}: {problem.decode()}"
            for x in given:
                x.take_back()

        return function


class _Argument:
    """One argument of a kernel: its kind, and a value of the type in which the kernel takes it."""

    def __init__(self, x: Any) -> None:
        self.array, self.value = None, None
        if isinstance(x, StrictArray):
            self.array = x._numpy
            self.kind = KINDS[self.array.dtype.char]
            low, high = np.lib.array_utils.byte_bounds(self.array)
            assert low == self.array.ctypes.data, "an array that is read backwards"
            inside = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
            self.memory = np.concatenate((self.margin(), inside, self.margin()))
            self.value = ctypes.c_void_p(self.memory.ctypes.data + MARGIN)
        elif type(x) is int:
            self.kind, self.value = "q", ctypes.c_longlong(x)
        elif isinstance(x, np.float32):
            self.kind, self.value = "f", ctypes.c_float(x)
        elif isinstance(x, np.uint64):
            self.kind, self.value = "u" if x else "0", ctypes.c_ulonglong(x)
        assert self.value is not None, f"a kernel cannot take {x!r} of {type(x)}"

    def margin(self) -> np.ndarray:
        filling = FILLINGS.get(self.array.dtype.char, np.array([0xFF], np.uint8))
        return np.tile(filling, MARGIN // filling.itemsize).view(np.uint8)

    def take_back(self) -> None:
        if self.array is None:
            return
        for margin in (self.memory[:MARGIN], self.memory[-MARGIN:]):
            assert (margin == self.margin()).all(), "a kernel wrote beyond an array"
        written = self.memory[MARGIN:-MARGIN]
        if self.array.flags.c_contiguous:
            self.array[...] = written.view(self.array.dtype).reshape(self.array.shape)
