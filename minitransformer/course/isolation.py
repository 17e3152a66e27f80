"""Where a hand-in runs: an isolated place with Python and NumPy, and without any other file of this machine.

A hand-in runs under bubblewrap if it is installed (https://github.com/containers/bubblewrap), otherwise in Linux
namespaces that the programs `unshare`, `mount` and `chroot` make (namespaces(7)). Both give it its own processes,
network and files: what Python and a few packages load, read-only, and a small /tmp that is removed when it ends.
Nothing else exists there, so it does not matter where solutions or other hand-ins lie. If neither works, it runs in an
ordinary process, which can see and do everything that the teacher can.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shlex
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BUBBLEWRAP, NAMESPACES, NOTHING = "bubblewrap", "Linux namespaces", "nothing"
KINDS = (BUBBLEWRAP, NAMESPACES)  # the stronger one first
# What a hand-in may import besides the standard library: these packages, and what they load.
PACKAGES = "numpy scipy matplotlib numba einops".split()
_LOADED = (
    "mpl_toolkits pylab PIL pillow contourpy cycler dateutil fontTools kiwisolver packaging pyparsing six llvmlite"
)
_DESK = "/desk"
_TEMPORARY = 64 * 1024**2  # bytes of /tmp
_DEVICES = "/dev/null /dev/zero /dev/urandom /dev/random".split()
_PYTHON = os.path.realpath(sys.executable)
_SETPRIV = shutil.which("setpriv") or "/usr/bin/setpriv"


def environment(home: str = "/tmp") -> dict[str, str]:
    """The environment variables of a hand-in: none of the teacher's, and one thread for each library."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    return {"HOME": home, "TMPDIR": home, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "MPLBACKEND": "Agg"} | threads


def other_user() -> int | None:
    """For root: another user to run hand-ins as. None for other users, and for a root that cannot change users."""
    if os.geteuid() != 0 or not os.path.exists("/proc/self/uid_map"):
        return None
    user = 20_000 + secrets.randbelow(40_000)
    for kind in ("uid", "gid"):
        ranges = [[int(n) for n in line.split()] for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
        if not any(first <= user < first + count for first, _, count in ranges):
            return None
    return user


def python_path() -> list[str]:
    """The folders of the installed packages, including NumPy, but without the folder of this package's source."""
    packages = [folder for folder in sys.path if os.path.basename(folder) in ("site-packages", "dist-packages")]
    found = [*packages, *site.getsitepackages(), str(Path(np.__file__).parents[1])]
    return [folder for folder in dict.fromkeys(map(os.path.realpath, found)) if os.path.isdir(folder)]


def best(desk: Path) -> str:
    """The strongest isolation that works on this machine, found by trying."""
    for isolation in KINDS:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            found = subprocess.run(
                command(isolation, desk, "import numpy, marking.wire; print('ready')"),
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30.0,
            )
            if found.stdout == b"ready\n":
                return isolation
    return NOTHING


def command(isolation: str, desk: Path, code: str) -> list[str]:
    """The command that runs Python code in isolation, with `desk` among the folders of modules.

    The working folder there is /tmp. An empty folder `root` must exist beside `desk`.
    """
    seen = str(desk) if isolation == NOTHING else _DESK
    there = "" if isolation == NOTHING else "import os; os.chdir('/tmp'); "
    code = f"import sys; sys.path += {[seen, *python_path()]!r}; {there}{code}"
    python = [_PYTHON, "-I", "-S", "-B", "-X", "utf8", "-c", code]
    if isolation == BUBBLEWRAP:
        return _bubblewrap(desk, python)
    return _namespaces(desk, python) if isolation == NAMESPACES else python


@functools.cache
def visible() -> dict[str, str]:
    """The folders and files that a hand-in may read, outer ones first, with what it sees there.

    What it sees is a file or a folder of this machine; or "", nothing, where a folder of Python holds something that
    does not belong to it.
    """
    found: dict[str, str] = {}
    for folder in _standard_library():
        found[folder] = os.path.realpath(folder)
        found |= dict.fromkeys(_strays(folder), "")
    for folder in python_path():
        found |= {path: os.path.realpath(path) for path in _packages(folder)}
    compiled = [
        str(path)
        for source in dict.fromkeys(filter(None, found.values()))
        for path in Path(source).rglob("*.so*")
        if "site-packages" not in path.relative_to(source).parts and "tests" not in path.parts
    ]
    programs = [path for path in (_PYTHON, _SETPRIV) if os.path.exists(path)]
    for path in (*programs, *_libraries(programs, compiled), "/etc/ld.so.cache"):
        holder = max((folder for folder in found if path.startswith(f"{folder}/")), key=len, default="")
        if os.path.exists(path) and not found.get(holder):  # in no folder that is shown, or in one that is covered
            found[path] = os.path.realpath(path)
    return found


def _standard_library() -> list[str]:
    """The folder of the standard library, where it is, and where this Python looks for it."""
    folder = os.path.dirname(os.__file__)
    beside = Path(_PYTHON).parents[1] / os.path.relpath(folder, sys.base_prefix)
    return [path for path in dict.fromkeys((os.path.realpath(folder), str(beside))) if os.path.isdir(path)]


def _strays(folder: str) -> Iterator[str]:
    """What lies in the standard library's folder but does not belong to it: installed packages, copies of anything."""
    parts = sys.stdlib_module_names | {"lib-dynload", "__pycache__"}
    for entry in os.scandir(folder):
        name = entry.name.partition(".")[0]
        if name not in parts and "_sysconfigdata" not in name and not entry.is_symlink():  # a link leads nowhere there
            yield entry.path


def _packages(folder: str) -> Iterator[str]:
    """What a hand-in may import of the packages in a folder, and the libraries that came with them."""
    wanted = {*PACKAGES, *_LOADED.split()}
    for entry in os.scandir(folder):
        name, _, kind = entry.name.partition(".")
        if name in wanted and (kind in ("", "py", "libs") or kind.endswith("so")):
            yield entry.path


def _libraries(programs: list[str], compiled: list[str]) -> list[str]:
    """The shared libraries that programs and compiled modules load, as ldd(1) names them.

    ldd takes a process for each file. Preloading all modules into a Python that only lists them (ld.so(8)) takes one.
    """
    listed = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join(compiled)}
    at_once = len(listed["LD_PRELOAD"]) < 100_000 and not any(" " in path or ":" in path for path in compiled)
    said = _said(["ldd", *programs, *([] if at_once else compiled)])
    said += _said([_PYTHON, "-c", ""], listed) if at_once else ""
    found = dict.fromkeys(map(os.path.normpath, re.findall(r"(?:^|=>)\s+(/.*) \(0x", said, re.MULTILINE)))
    mkl = {os.path.dirname(path) for path in found if "libmkl" in path}  # it loads some of its libraries itself
    return [*found, *(str(path) for folder in mkl for path in Path(folder).glob("libmkl*"))]


def _said(command: list[str], variables: dict[str, str] | None = None) -> str:
    found = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return found.stdout


def _parents(paths: list[str]) -> list[str]:
    """The parent folders of these, from the top down."""
    above = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(above - {"/"}, key=lambda path: path.count("/"))


def _bubblewrap(desk: Path, python: list[str]) -> list[str]:
    options = [f"--unshare-{kind}" for kind in ("pid", "net", "ipc", "uts")]
    options += ["--unshare-user", "--cap-drop", "ALL"] if other_user() is None else []
    options += ["--die-with-parent"]
    options += ["--size", str(_TEMPORARY), "--perms", "1777", "--tmpfs", "/tmp"]  # first: Python may be there
    shown, covers = visible(), []
    for folder in _parents([*shown, *_DEVICES]):
        if not any(folder == path or folder.startswith(f"{path}/") for path in shown):
            options += ["--dir", folder]
    for path, source in shown.items():
        if source or not os.path.isdir(path):
            options += ["--ro-bind", source or os.devnull, path]
        else:
            options += ["--tmpfs", path]
            covers += ["--remount-ro", path]  # once everything that belongs in it is there
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--ro-bind", str(desk), _DESK]
    return ["bwrap", *options, *covers, "--remount-ro", "/", "--", *python]


def _namespaces(desk: Path, python: list[str]) -> list[str]:
    root, quoted = str(desk.with_name("root")), shlex.quote
    lines = ["set -e", f"mount -t tmpfs -o mode=755,size=1m none {quoted(root)}"]
    lines.append(f"mkdir {quoted(f'{root}/tmp')} {quoted(root + _DESK)}")
    lines.append(f"mount -t tmpfs -o mode=1777,size={_TEMPORARY} none {quoted(f'{root}/tmp')}")

    def bind(source: str, path: str) -> None:
        target = quoted(root + path)
        if os.path.isdir(source):
            lines.append(f"mkdir -p {target}")
        else:  # never empty a file of this machine that is bound already
            lines.append(f"[ -e {target} ] || {{ mkdir -p {quoted(os.path.dirname(root + path))}; : > {target}; }}")
        lines.append(f"mount --rbind {quoted(source)} {target}")

    read_only: list[str] = [root]
    for path, source in visible().items():
        if source or not os.path.isdir(path):
            bind(source or os.devnull, path)
        else:
            lines.append(f"mount -t tmpfs -o mode=755,size=4k none {quoted(root + path)}")
        read_only.insert(0, root + path)
    for device in _DEVICES:
        bind(device, device)
    bind(str(desk), _DESK)
    read_only.insert(0, root + _DESK)
    lines += [f"mount -o remount,bind,ro {quoted(path)}" for path in read_only]
    bare = ["--no-new-privs", "--inh-caps=-all"] + (["--bounding-set=-all"] if other_user() is None else [])
    lines.append(f"exec chroot {quoted(root)} {shlex.join([_SETPRIV, *bare, *python])}")
    options = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    options += ["--user", "--map-root-user"] if other_user() is None else []
    return ["unshare", *options, "sh", "-c", "\n".join(lines)]
