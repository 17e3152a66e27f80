"""The package as a whole: what an installation brings, and what each file may import."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import in_one

import minitransformer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minitransformer"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
SOURCES = {name: path.read_text(encoding="utf-8") for name, path in FILES.items()}

AUTOGRAD = {"torch", "transformers", "tensorflow", "jax", "autograd", "tinygrad", "mxnet", "paddle"}
CORE = {"numpy", "scipy", "matplotlib", "threadpoolctl", "tqdm", "num2words", "sacrebleu", "safetensors"}
# The further libraries that one file may import.
COMPILED = ("loops", "attention_loops", "blas", "decoding_loops", "packed_loops", "phases", "sublayer_loops")
ONLY_IN = {"core/arrays/backend.py": {"cupy", "cupyx"}, "core/text/tokenizer.py": {"tokenizers"}}
ONLY_IN |= {"pytest_plugin.py": {"pytest"}}  # only pytest itself imports this file
ONLY_IN |= {"ideas/published/gguf.py": {"gguf"}, "ideas/published/chat.py": {"jinja2"}}
ONLY_IN |= {"run/machines/parallel/mpi.py": {"mpi4py"}}
ONLY_IN |= {"school/show/sheet/layout.py": {"xlsxwriter"}}
ONLY_IN |= {"school/show/site/markdown.py": {"markdown_it", "mdit_py_plugins", "latex2mathml"}}
ONLY_IN |= {
    "check/derivation/parsing.py": {"lark"},
    "check/audit/suite.py": {"tomllib", "tomli"},
    "check/audit/worker.py": {"pytest", "torch", "jax"},
    "check/audit/tensors.py": {"torch"},
    "check/audit/jax_arrays.py": {"jax"},
}
ONLY_IN |= {f"run/fast/{name}.py": {"numba", "llvmlite"} for name in COMPILED}

# Each place imports only from those before it: the wings from top to bottom, and in each its rooms. What is not listed
# counts as the last but one, just below `cli`; so do the files that re-export public names, such as ops.py.
PLACES = """moved
core.arrays core.ops core.layers core.text core.models core.training core.generation
check.trace check.verify check.derivation check.referee check.audit check.docstrings
ideas.before ideas.after ideas ideas.published
run.tasks run.published_models run.machines run.fast run.cost
school.inspect school.compare school.course school.show
commands""".split()


def test_installed_version_is_that_of_the_code() -> None:
    assert importlib.metadata.version("minitransformer") == minitransformer.__version__


def test_core_dependencies_are_the_declared_ones() -> None:
    requirements = importlib.metadata.requires("minitransformer") or []
    assert {line.partition(">")[0] for line in requirements if "extra ==" not in line} == CORE


def test_command_leads_to_a_function() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="minitransformer")
    assert callable(command.load())


def test_package_is_typed_and_every_folder_in_it_is_found() -> None:
    assert (PACKAGE / "py.typed").is_file()
    folders = {path.parent for path in FILES.values()}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


IMPORT_EVERYTHING = """
import importlib, pkgutil, sys

class Refuse:  # stands in for a machine where none of these is installed
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Refuse())
import minitransformer
for module in pkgutil.walk_packages(minitransformer.__path__, "minitransformer."):
    if not module.name.endswith(("__main__", "pytest_plugin")):
        if module.name.removeprefix("minitransformer.run.fast.") not in {compiled!r}:
            importlib.import_module(module.name)
print(*sorted(name for name in sys.modules if name.startswith("minitransformer.")), sep="\\n")
"""


@pytest.mark.slow
def test_every_module_imports_with_the_core_dependencies_alone() -> None:
    extras = set("cupy cupyx numba tokenizers gguf jinja2 anywidget IPython ipykernel nbclient jupytext mpi4py".split())
    extras |= {"markdown_it", "mdit_py_plugins", "latex2mathml", "xlsxwriter"}
    tools = {"pytest", "hypothesis", "_pytest"}
    script = IMPORT_EVERYTHING.format(absent=AUTOGRAD | extras | tools, compiled=COMPILED)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    wanted = {"minitransformer." + name[:-3].replace("/", ".").removesuffix(".__init__") for name in FILES}
    wanted -= {
        "minitransformer.__init__",
        "minitransformer.__main__",
        "minitransformer.pytest_plugin",
        *(f"minitransformer.run.fast.{name}" for name in COMPILED),
    }
    missed = wanted - set(result.stdout.split())
    assert not missed


@functools.cache
def imports(name: str, source: str) -> list[tuple[str, ...]]:
    """The dotted path of everything that a file of the package imports, wherever in the file it does so.

    Not what a package only shows, and imports at its first use.
    """
    folder, found = ("minitransformer", *name.split("/")[:-1]), list[tuple[str, ...]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            found += ((*above, *module, alias.name) for alias in node.names)
    return found


def foreign_imports(name: str, source: str) -> set[str]:
    """The libraries that a file imports although it may not."""
    libraries = {path[0] for path in imports(name, source)}
    return libraries - {"minitransformer"} - set(sys.stdlib_module_names) - CORE - ONLY_IN.get(name, set())


def imports_from_above(name: str, source: str) -> set[str]:
    """The places that a file imports from although they lie below its own in the list."""

    def place(path: tuple[str, ...]) -> str:
        return ".".join(path[:2]) if ".".join(path[:2]) in PLACES else path[0]

    def height(where: str) -> float:
        return math.inf if where == "cli" else PLACES.index(where) if where in PLACES else len(PLACES)

    own_path = tuple(name.removesuffix(".py").removesuffix("/__init__").split("/"))
    # what only one room loads counts as its own: core/arrays/rooms.py
    where = {"lesson": "school.course", "example": "school.show"}.get(own_path[-1], place(own_path))
    if where == "__init__":  # the package shows what it likes of its rooms
        return set()
    own = math.inf if where == "__main__" else height(where)
    used = {place(path[1:]) for path in imports(name, source) if path[0] == "minitransformer" and len(path) > 1}
    return {other for other in used - {"__version__"} if height(other) > own}


def test_files_import_only_what_their_rooms_may() -> None:
    for name in FILES:
        assert foreign_imports(name, SOURCES[name]) == set(), name
        assert imports_from_above(name, SOURCES[name]) == set(), name


def test_forbidden_imports_are_seen() -> None:
    inside = "def f():\n    import torch.nn\n    import numpy.linalg, math"
    assert foreign_imports("core/ops/linear.py", inside) == {"torch"}
    assert foreign_imports("core/layers/linear.py", "from cupyx.scipy import special") == {"cupyx"}
    assert foreign_imports("core/arrays/backend.py", "import cupy\nimport torch") == {"torch"}
    for name, source, found in (
        ("core/ops/linear.py", "from ..layers import Linear\nfrom ..arrays.boundary import op", {"core.layers"}),
        ("core/ops/linear.py", "from .. import models, arrays", {"core.models"}),
        ("core/ops/linear.py", "from ... import check, moved", {"check"}),
        ("core/ops/linear.py", "from ... import ops", {"ops"}),  # the name for users
        ("core/arrays/backend.py", "import minitransformer.core.ops.softmax", {"core.ops"}),
        ("school/show/page.py", "from minitransformer.newcomer import f\nfrom ...cli import main", {"newcomer", "cli"}),
        (
            "ideas/before/recurrent.py",
            "from ..after.rotary import rotary\nfrom .. import cases",
            {"ideas.after", "ideas"},
        ),
        ("ideas/after/idea/lesson.py", "from ....school.course.exercise import Draw", set()),
        ("ideas/after/idea/lesson.py", "from ....school.show.page import page", {"school.show"}),
        ("ideas/after/idea/op.py", "from ....school.course.exercise import Draw", {"school.course"}),
        ("newcomer.py", "from . import commands, ops, __version__", set()),
        ("__main__.py", "from .cli import main", set()),
    ):
        assert imports_from_above(name, source) == found, (name, source)


def test_files_are_short_enough_to_read() -> None:
    lines = {name: len(SOURCES[name].splitlines()) for name in FILES}
    assert {name: n for name, n in lines.items() if n > 400} == {}


def too_long(text: str) -> list[int]:
    """The lines of a Markdown text of more than 120 characters, but for tables, code and the targets of links."""
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"\]\([^)]*\)", "]()", line) for line in prose.split("\n")]
    return [n for n, line in enumerate(lines, 1) if len(line) > 120 and not line.startswith(("|", "    "))]


DOCS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]


@in_one("path", [*DOCS, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_lines_of_the_docs_are_short(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8")) == []


def test_long_lines_are_seen() -> None:
    long = "word " * 25
    text = f"{long}\n| {long} |\n    {long}\n```\n{long}\n```\n[link](https://{'a' * 120})\n- {long}\nshort"
    assert too_long(text) == [1, 8]


def test_the_page_on_speed_is_no_log() -> None:
    assert len((ROOT / "docs" / "speed.md").read_text(encoding="utf-8").splitlines()) <= 150
