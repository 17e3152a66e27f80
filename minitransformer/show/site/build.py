"""Build the whole site, with the package as a wheel for the page's Python and for `pip install`."""

from __future__ import annotations

import html
import io
import shutil
import tempfile
import zipfile
from importlib import metadata, resources
from pathlib import Path

from ...arrays.files import write
from ...verify.gradients import Progress
from .chapters import Chapter, read, write_chapters
from .code import write_code
from .exercises import places, progress, write_exercises
from .frame import PUBLIC_PYODIDE, Site
from .reference import write_reference
from .steppers import write_steppers
from .teachers import write_teachers

_MARK = "index.js"  # a folder that has it was built here
_BUNDLED = ("num2words", "tqdm")  # pure Python that the chapters use and Pyodide's distribution may lack
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
    whose files are copied into the site. instructor: also write solutions and answers. model: the folder of a trained
    translator, for the page of its attention. address: where the site will be, for notebooks that install the package
    from it. progress: as in verify.gradients, for the stepper's examples. Raises OSError if `out` holds anything but a
    site, and ValueError if the source has no notebooks.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).exists())):
        raise OSError(f"{out} exists and is not a site; choose another folder, or remove it")
    chapters = read(source / "notebooks")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
        folder = Path(aside) / "site"
        folder.mkdir()
        site = Site(folder, _pyodide(pyodide, folder), _write_wheel(folder), instructor)
        write_chapters(site, chapters)
        write_exercises(site, chapters)
        write_code(site, write_steppers(site, model, progress))
        write_reference(site)
        write_teachers(site, chapters, source, address)
        _front(site, chapters)
        site.common_files()
        if out.exists():
            out.rename(Path(aside) / "before")
        folder.rename(out)
    return sum(path.is_file() for path in out.rglob("*"))


def _pyodide(given: str, folder: Path) -> str:
    """The address of Pyodide as the site uses it; the files of a folder are copied into the site."""
    if "://" in given:
        return given.rstrip("/") + "/"
    if not (Path(given) / "pyodide.js").is_file():
        raise OSError(f"{given} has no pyodide.js; give the folder or the address of a full Pyodide distribution")
    shutil.copytree(given, folder / "pyodide")
    return "pyodide/"


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


def _front(site: Site, chapters: list[Chapter]) -> None:
    """The first page, and the page of the search."""
    items = "".join(f'<li><a href="chapters/{c.stem}.html">{html.escape(c.title)}</a></li>\n' for c in chapters)
    body = f"""<h1>The Transformer from scratch, every backward pass derived by hand</h1>
<p>Read, predict, change the code, run it, and write each derivation yourself. Everything runs in this browser:
nothing to install, nothing is sent anywhere.</p>
{progress(places(chapters))}<div class="two"><section><h2>The book</h2><ul>{items}</ul></section>
<section><h2>And beside it</h2><ul>
<li><a href="exercises/index.html">Exercises</a>: write a backward pass, and learn which term is wrong</li>
<li><a href="steppers/index.html">Steppers</a>: every number of attention, a layer, a small model</li>
<li><a href="code/index.html">The code, annotated</a>: each line with its formula and its gradient</li>
<li><a href="reference/index.html">Reference</a>: the public names</li>
<li><a href="teachers/index.html">For teachers</a>: plans, slides, notebooks</li>
</ul></section></div>"""
    site.page("index.html", "Contents", body, ("progress.js",))
    search = """<h1>Search</h1>
<p><input id="question" type="search" aria-label="Words to find"> <span id="count" role="status"></span></p>
<ul id="results"></ul>"""
    site.page("search.html", "Search", search, ("index.js", "search.js"))
