"""Build the whole site, with the package as a wheel for the page's Python and for `pip install`."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path

from ....check.verify.gradients import Progress
from ....core.arrays.files import read_json, write
from ....core.text.tokenizer import load_library
from .chapters import write_chapters
from .code import write_code
from .exercises import write_derivations, write_exercises
from .families import write_families
from .frame import PUBLIC_PYODIDE, PUBLIC_SIZES, Site
from .notebook import places, read, read_ideas
from .questions import write_questions
from .reference import write_reference
from .siblings import Siblings
from .start import write_start
from .steppers import write_steppers
from .teachers import write_teachers

_MARK = "index.js"  # a folder that has it was built here
_BUNDLED = ("lark", "num2words", "tqdm")  # pure Python that the pages use and Pyodide's distribution may lack
_PYTHON = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LIBRARIES = ("jinja2", "markdown_it", "mdit_py_plugins", "latex2mathml", "xlsxwriter")
_DATE = (2020, 1, 1, 0, 0, 0)  # so that the same files give the same wheel


def build(
    out: Path,
    source: Path,
    pyodide: str = PUBLIC_PYODIDE,
    instructor: bool = False,
    model: Path | None = None,
    address: str = "",
    progress: Progress = iter,
) -> int:
    """Write the site to the folder `out`, all of it or nothing, and return the number of its files.

    source: the repository's folder, with notebooks/ and docs/. pyodide: the address of Pyodide's files, or a folder
    whose files are copied into the site. instructor: also write solutions and answers. model: the folder of the demo's
    translator, for the start page and the page of its attention. address: where the site will be, for notebooks that
    install the package from it. progress: as in verify.gradients, for the stepper's examples. Raises OSError if `out`
    holds anything but a site, and ValueError if the source has no notebooks or the model is not such a translator.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).exists())):
        raise OSError(f"{out} exists and is not a site; choose another folder, or remove it")
    for name in LIBRARIES:  # what is missing is named before the work
        load_library("the site", "site", name)
    chapters = read(source / "notebooks")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
        folder = Path(aside) / "site"
        folder.mkdir()
        where, wheel = _pyodide(pyodide, folder), _write_wheel(folder)
        sizes = {**_sizes(pyodide), "minitransformer": round((folder / wheel).stat().st_size / 1e6)}
        site = Site(folder, where, wheel, instructor, sizes)
        ideas = read_ideas()
        found = places([*chapters, *ideas])
        siblings = Siblings.of(found)
        seen = write_steppers(site, siblings, model, progress)
        write_chapters(site, [*chapters, *ideas], siblings)
        write_questions(site, chapters)
        write_exercises(site, found, siblings)
        write_derivations(site, chapters, found)
        write_code(site, seen, siblings, source / "notebooks" / "gpt2.py")
        write_families(site)
        write_reference(site)
        write_teachers(site, chapters, source, address)
        write_start(site, chapters, ideas, found, model)
        site.common_files()
        if out.exists():
            out.rename(Path(aside) / "before")
        folder.rename(out)
    return sum(path.is_file() for path in out.rglob("*"))


def _pyodide(given: str, folder: Path) -> str:
    """The address of Pyodide as the site uses it; the files of a folder are copied into the site."""
    if "://" in given:
        return given.rstrip("/") + "/"
    missing = [name for name in _PYTHON if not (Path(given) / name).is_file()]
    if missing:
        raise OSError(f"{given} has no {missing[0]}; give the folder or the address of a full Pyodide distribution")
    shutil.copytree(given, folder / "pyodide")
    return "pyodide/"


def _sizes(given: str) -> Mapping[str, int]:
    """As PUBLIC_SIZES, of the address or the folder of a distribution."""
    if "://" in given:
        return PUBLIC_SIZES
    packages = read_json(Path(given) / "pyodide-lock.json")["packages"]

    def files(name: str) -> set[str]:
        return {packages[name]["file_name"]}.union(*map(files, packages[name]["depends"]))

    python = files("numpy").union(_PYTHON)
    brought = {"numpy": python} | {name: files(name) - python for name in PUBLIC_SIZES if name != "numpy"}
    return {name: round(sum((Path(given) / f).stat().st_size for f in brought[name]) / 1e6) for name in PUBLIC_SIZES}


def _write_wheel(folder: Path) -> str:
    """Write the files of the package, as they are installed here, and the bundled packages; return the wheel's name."""
    version = metadata.version("minitransformer")
    root = Path(str(resources.files("minitransformer")))
    own = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    files = {f"minitransformer/{path.relative_to(root).as_posix()}": path.read_bytes() for path in own}
    for name in _BUNDLED:
        for entry in metadata.files(name) or []:
            if entry.suffix not in (".pyc", ".so") and ".." not in entry.parts and entry.name != "RECORD":
                files[entry.as_posix()] = Path(str(entry.locate())).read_bytes()
    about = f"minitransformer-{version}.dist-info"
    needs = metadata.requires("minitransformer") or []
    lines = ["Metadata-Version: 2.1", "Name: minitransformer", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs if "extra ==" not in need]
    files[f"{about}/METADATA"] = ("\n".join(lines) + "\n").encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    wheel = f"minitransformer-{version}-py3-none-any.whl"
    write(folder / wheel, content.getvalue())
    return wheel
