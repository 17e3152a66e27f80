"""The package as a wheel, for the page's Python and for `pip install`, together with what Pyodide does not have."""

from __future__ import annotations

import io
import zipfile
from importlib import metadata, resources
from pathlib import Path

from ...arrays.files import write

_BUNDLED = ("num2words", "tqdm")  # pure Python that the chapters use and Pyodide's distribution may lack
_DATE = (2020, 1, 1, 0, 0, 0)  # so that the same files give the same wheel


def wheel_name() -> str:
    """The file name of the wheel."""
    return f"minitransformer-{metadata.version('minitransformer')}-py3-none-any.whl"


def write_wheel(folder: Path) -> None:
    """Write the wheel: the files of the package as they are installed here, and the bundled packages."""
    version = metadata.version("minitransformer")
    root = Path(str(resources.files("minitransformer")))
    files = {f"minitransformer/{path.relative_to(root).as_posix()}": path.read_bytes() for path in _files(root)}
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
    write(folder / wheel_name(), content.getvalue())


def _files(root: Path) -> list[Path]:
    """The files of a package, without what Python compiled."""
    return [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
