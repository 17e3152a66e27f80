"""Public names: each is defined where types, editors and grep can see it, and mypy in strict mode knows what it is."""

import ast
import contextlib
import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import in_one
from user_scripts import RIGHT, WRONG

import minitransformer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minitransformer"
PUBLIC = """ops layers models ideas verify training generation inspect text run.machines.parallel course fast
run.fast.ops ideas.published run.tasks check.audit school.show.stepper school.show.viewer""".split()
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = sorted((ROOT / "notebooks" / "source").glob("*.py"))


def bound_in(source: str) -> set[str]:
    """The names that stand in the source of a module: imported, defined or assigned, at its top or under an `if`."""
    found: set[str] = set()
    waiting = list(ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            room = PACKAGE.joinpath(*str(node.module).split("."), "__init__.py")  # a file for users shows a whole room
            found |= bound_in(room.read_text(encoding="utf-8"))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.If):
            waiting += node.body
    return found


def shown_in(source: str) -> dict[str, str]:
    """The names that the package imports under `if TYPE_CHECKING:`, each with the place that it comes from."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    lines = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return {
        alias.name: ".".join(filter(None, ("minitransformer", line.module))) for line in lines for alias in line.names
    }


@functools.cache
def places() -> dict[str, Path]:
    """What `from minitransformer import` gives, but for functions: each name, and its package's or module's file."""
    top = {name: f"minitransformer.{name}" for name in (path.stem for path in PACKAGE.iterdir()) if name[0] != "_"}
    shown = shown_in((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    dotted = top | {name: f"{place}.{name}" for name, place in shown.items() if name not in ("step", "saved")}
    files = {name: ROOT.joinpath(*path.split(".")) for name, path in dotted.items()}
    return {name: path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for name, path in files.items()}


@functools.cache
def has(file: Path, name: str) -> bool:
    """Whether a package or module has a name that one finds without running it."""
    inside = file.parent / name
    is_module = file.name == "__init__.py" and (inside.is_dir() or inside.with_suffix(".py").is_file())
    return is_module or name in bound_in(file.read_text(encoding="utf-8"))


def asked_for(code: str) -> Iterator[tuple[str, str]]:
    """(room, name) for each name that code takes from a room, after `from minitransformer import ROOM`."""
    tree = ast.parse(code)
    rooms = {"minitransformer": "minitransformer"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "minitransformer":
            place = (node.module or "").partition(".")[2]
            yield from ((place or "minitransformer", alias.name) for alias in node.names)
            rooms |= {alias.asname or alias.name: alias.name for alias in node.names if not place}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            yield rooms[node.value.id], node.attr


def mentioned(text: str) -> Iterator[tuple[str, str]]:
    """(room, name) for each name of a room that a Markdown text shows, in its code or between backticks."""
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        with contextlib.suppress(SyntaxError):  # a piece of a file
            yield from asked_for(block)
    rooms = "|".join(sorted(places()))
    for span in re.findall(r"`([^`\n]+)`", text):
        for room, name in re.findall(rf"(?<![\w./-])(?:minitransformer\.)?({rooms})\.([A-Za-z_]\w*)(?![\w/.])", span):
            if name not in ("NAME", "py", "md", "txt", "json", "toml", "html", "css", "js", "png", "tmp"):
                yield room, name


def unknown(names: Iterator[tuple[str, str]]) -> set[str]:
    """Those that nobody finds in the files."""
    known = places() | {"minitransformer": PACKAGE / "__init__.py"}

    def file(room: str) -> Path:
        path = PACKAGE.joinpath(*room.split("."))
        return known[room] if room in known else path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    return {f"{room}.{name}" for room, name in names if not has(file(room), name)}


@in_one("path", [*TEXTS, *CODE], ids=lambda path: path.name)
def test_the_names_that_users_are_shown_stand_in_the_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert unknown(asked_for(text) if path.suffix == ".py" else mentioned(text)) == set()


def test_a_name_that_stands_nowhere_is_seen() -> None:
    assert unknown(mentioned("`models.load` and `models.lod`, as in `docs/models.md`")) == {"models.lod"}
    assert unknown(mentioned("```python\nfrom minitransformer import text\ntext.lod()\n```\n")) == {"text.lod"}
    assert unknown(asked_for("import minitransformer\nminitransformer.stop")) == {"minitransformer.stop"}
    assert unknown(asked_for("from minitransformer.training import Trainer, Trainr")) == {"training.Trainr"}
    assert {"verify.check_gradients", "verify.diagnose"} <= {
        ".".join(each) for each in mentioned((ROOT / "docs" / "referee.md").read_text(encoding="utf-8"))
    }


@in_one("room", PUBLIC)
def test_every_public_name_stands_in_its_package_and_works(room: str) -> None:
    module = importlib.import_module(f"minitransformer.{room}")
    file = Path(str(module.__file__))
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert room == "run.fast.ops" or has(file, name), name  # the names of fast.ops are those of ops
        assert getattr(module, name) is not None


def test_import_of_the_package_loads_no_room_and_no_library() -> None:
    code = "import sys, typing; before = {*sys.modules}; import minitransformer; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""
    light = {"__future__", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "warnings"}
    own = {"minitransformer", "minitransformer.moved"}
    assert own <= set(done.stdout.split()) <= own | light


def said_by_mypy() -> list[str]:
    """What mypy in strict mode says to the scripts in this folder, for which the package is one that is installed."""
    mypy = pytest.importorskip("mypy.api")
    options = ("strict = true", "follow_imports = silent", f"mypy_path = {ROOT}", f"cache_dir = {os.devnull}")
    Path("mypy.ini").write_text("\n".join(("[mypy]", *options)), encoding="utf-8")
    out, errors, _ = mypy.run(["--config-file", "mypy.ini", *sorted(path.name for path in Path().glob("*.py"))])
    assert errors == ""
    return list(out.splitlines())


@pytest.mark.slow
def test_mypy_tells_right_scripts_from_wrong_ones_and_knows_every_public_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(RIGHT) >= 7 and len(WRONG) >= 8
    wanted = set()
    for name, script in (RIGHT | WRONG).items():
        (tmp_path / f"{name}.py").write_text(script, encoding="utf-8")
        marked = [(n, line.rpartition("  # ")[2]) for n, line in enumerate(script.splitlines(), 1) if "  # " in line]
        assert len(marked) == (name in WRONG)
        wanted |= {(f"{name}.py", str(n), kind) for n, kind in marked}
    every = [f"minitransformer.{name}" for name in minitransformer.__all__]
    for room in PUBLIC:
        every += [f"minitransformer.{room}.{n}" for n in importlib.import_module(f"minitransformer.{room}").__all__]
    asked = [*(f"import minitransformer.{room}" for room in PUBLIC), *(f"reveal_type({name})" for name in every)]
    (tmp_path / "every_name.py").write_text("\n".join(asked), encoding="utf-8")

    said = said_by_mypy()
    errors = [re.fullmatch(r"([\w/.]+):(\d+): error: .*\[([\w-]+)\]", line) for line in said]
    assert {match.groups() for match in errors if match} == wanted
    types = [line.partition('Revealed type is "')[2] for line in said if line.startswith("every_name.py")]
    assert len(types) == len(every) and [line for line in types if line.startswith("Any")] == []
