"""A test suite as a TOML file describes it.

    title = "CS336, assignment 1"
    repository = "https://github.com/stanford-cs336/assignment1-basics"
    commit = "25a8a49f6460"
    arrays = "torch"                                  # or "numpy" or "jax"

    [[functions]]
    ops = ["softmax"]                                 # the ops whose known mistakes replace the function
    replaces = "tests.adapters:run_softmax"           # where the suite looks the function up: module:attribute
    call = "lambda in_features, dim: softmax(in_features, axis=dim)"
    tests = ["tests/test_nn_utils.py::test_softmax_matches_pytorch"]
    inputs = ["(r.normal(size=(3, 4)), -1)"]

`call` converts the suite's arguments to ours. It is an expression, or lines that define `replacement`. It can use the
ops by their names, `np`, and the suite's library. With arrays = "torch" this is `torch`: an op takes tensors and
returns one, and PyTorch's autograd calls our backward. With arrays = "jax" it is `jax` and `jnp`: an op takes JAX's
arrays, also under grad, jit and vmap. With arrays = "numpy" an op is as everywhere else: it returns (y, backward).
Without `replaces` and `call` the mistakes go into this library itself. Then ops = "each" means one function for each
op; the op's name replaces {op} in `tests`, and an op without a test in the suite is left out.

`inputs` are expressions for arguments of the function; r is a NumPy generator, and arrays become those of the suite's
library. They serve to find an input that reveals a mistake which the tests let pass. `probe` chooses what is compared:
it is lines that define `probe(function, *inputs)`, which returns a dict of arrays. By default these are the function's
outputs and, unless they are NumPy's, their gradients. With gradients = false only the outputs are compared (of a probe,
the entries named "the ..."), for suites whose students write no backward pass.

`before` are lines that run before anything is imported, `folder` is where pytest starts, and `paths` are more folders
to import from, both inside the suite's folder. A function without ops and tests is only put in place, for tests that
need another function of the student's.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..verify.catalogue import known_ops

ARRAYS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Function:
    """One function that a suite tests."""

    ops: tuple[str, ...]
    tests: tuple[str, ...]
    replaces: str = ""
    call: str = ""
    inputs: tuple[str, ...] = ()
    probe: str = ""
    optional: bool = False  # whether it is left out if it has no test
    gradients: bool = True  # whether the suite tests backward passes; if not, only outputs are compared

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.replaces.rpartition(":")[2] or self.ops[0]


@dataclass(frozen=True)
class Suite:
    """A test suite: its source, and the functions that it tests."""

    title: str
    functions: tuple[Function, ...]
    repository: str = ""
    commit: str = ""
    arrays: str = "numpy"
    before: str = ""
    folder: str = "."
    paths: tuple[str, ...] = ()


def read(path: str | Path) -> Suite:
    """The suite that a TOML file describes. Raises ValueError, which names the file and what is wrong in it."""
    try:
        import tomllib
    except ModuleNotFoundError:
        try:
            import tomli as tomllib  # type: ignore[no-redef, import-not-found, unused-ignore]
        except ModuleNotFoundError as error:
            why = "audit: TOML files are read by Python 3.11 or newer, or with tomli: pip install tomli"
            raise ImportError(why) from error
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not a TOML file: {error}") from error
    _only(path, "the suite", found, Suite, {"title": str, "functions": list})
    if found.get("arrays", "numpy") not in ARRAYS:
        raise ValueError(f"{path}: arrays must be one of {', '.join(ARRAYS)}, got {found['arrays']!r}")
    functions = tuple(
        _function(path, i, one) for i, each in enumerate(found.pop("functions"), 1) for one in _for_each_op(each)
    )
    if not functions:
        raise ValueError(f"{path}: there must be at least one [[functions]]")
    return Suite(functions=functions, **{key: _tupled(value) for key, value in found.items()})


def _function(path: Any, i: int, found: Any) -> Function:
    where = f"function {i}"
    if not isinstance(found, dict):
        raise ValueError(f"{path}: {where} must be a table, [[functions]]")
    _only(path, where, found, Function, {"ops": list, "tests": list})
    unknown = [name for name in found["ops"] if name not in known_ops()]
    if unknown or bool(found["ops"]) != bool(found["tests"]):
        none = f"there is no op {', '.join(map(repr, unknown)) or 'given'}"
        raise ValueError(f"{path}: {where}: {none}; see ops.__all__ and ideas.__all__")
    if bool(found.get("replaces")) != bool(found.get("call")):
        raise ValueError(f"{path}: {where}: give both replaces (its place) and call (what it becomes), or neither")
    if found.get("replaces") and found["replaces"].count(":") != 1:
        raise ValueError(f'{path}: {where}: replaces must be "module:attribute", got {found["replaces"]!r}')
    return Function(**{key: _tupled(value) for key, value in found.items()})


def _for_each_op(found: Any) -> list[Any]:
    """One copy for each op, if it is meant for each of them."""
    if not isinstance(found, dict) or found.get("ops") != "each" or not isinstance(found.get("tests"), list):
        return [found]
    tests = found["tests"]
    return [
        found | {"ops": [op], "tests": [t.replace("{op}", op) for t in tests], "optional": True} for op in known_ops()
    ]


def _only(path: Any, where: str, found: dict[str, Any], kind: type, needed: dict[str, type]) -> None:
    known = {field.name for field in dataclasses.fields(kind)}
    if found.keys() - known:
        words = ", ".join(sorted(found.keys() - known))
        raise ValueError(f"{path}: {where} has {words}; known are {', '.join(sorted(known))}")
    for key, wanted in needed.items():
        if not isinstance(found.get(key), wanted):
            raise ValueError(f"{path}: {where} needs {key}, a {'list' if wanted is list else 'text'}")


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def numbered(outputs: list[Any], gradients: Iterable[Any] = ()) -> dict[str, np.ndarray]:
    """Outputs and gradients by name, in float64; a gradient that is None is left out."""
    names = ["the output", *(f"output {i}" for i in range(1, len(outputs)))]
    found = [*zip(names, outputs, strict=False), *((f"gradient {i}", dx) for i, dx in enumerate(gradients))]
    return {name: np.asarray(x, np.float64) for name, x in found if x is not None}
