"""Where a hand-in runs: an isolated place with Python and NumPy, and without any file of this machine's users.

A hand-in runs under bubblewrap if it is installed (https://github.com/containers/bubblewrap), otherwise in Linux
namespaces that the programs `unshare`, `mount` and `chroot` make (namespaces(7)). Both give it its own processes,
network and files: the libraries of the system and of Python, read-only, and a small /tmp that is removed when it ends.
If neither works, it runs in an ordinary process, which can see and do everything that the teacher can.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BUBBLEWRAP, NAMESPACES, NOTHING = "bubblewrap", "Linux namespaces", "nothing"
KINDS = (BUBBLEWRAP, NAMESPACES)  # the stronger one first
_DESK = "/desk"
_TEMPORARY = 64 * 1024**2  # bytes of /tmp
_SYSTEM = "/usr /lib /lib32 /lib64 /bin /etc/ld.so.cache /etc/alternatives /nix/store /gnu/store".split()
_DEVICES = "/dev/null /dev/zero /dev/urandom /dev/random".split()
_PYTHON = os.path.realpath(sys.executable)


def environment(home: str = "/tmp") -> dict[str, str]:
    """The environment variables of a hand-in: none of the teacher's, and one thread for each library."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    return {"HOME": home, "TMPDIR": home, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "MPLBACKEND": "Agg"} | threads


def other_user() -> int | None:
    """For root: another user, as whom hand-ins run. None for other users, and for a root that cannot change users."""
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
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
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
    code = f"import sys; sys.path += {[seen, *python_path()]!r}; {code}"
    python = [_PYTHON, "-I", "-S", "-B", "-X", "utf8", "-c", code]
    if isolation == BUBBLEWRAP:
        return _bubblewrap(desk, python)
    return _namespaces(desk, python) if isolation == NAMESPACES else python


def _visible() -> dict[str, str]:
    """The folders and files that a hand-in may read, with what it sees there: themselves, or nothing ("").

    If this package is installed, in this Python or another, it is hidden.
    """
    prefixes = dict.fromkeys((os.path.realpath(sys.base_prefix), str(Path(_PYTHON).parents[1])))
    wanted = [
        *_SYSTEM,
        *(f"{prefix}/{name}" for prefix in prefixes for name in ("bin", "lib", "lib64")),
        *python_path(),
    ]
    found: dict[str, str] = {}
    for path in dict.fromkeys(wanted):
        if os.path.exists(path) and not any(path.startswith(f"{other}/") for other in found):
            found[path] = os.path.realpath(path)
    covered = {str(copy): "" for path in found for copy in _copies(Path(path)) if copy.is_dir()}
    return found | covered


def _copies(folder: Path) -> Iterator[Path]:
    for pattern in ("", "python3*/*-packages/", "lib*/python3*/*-packages/", "local/lib*/python3*/*-packages/"):
        yield from folder.glob(f"{pattern}minitransformer")


def _parents(paths: list[str]) -> list[str]:
    """The parent folders of these, from the top down."""
    above = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(above - {"/"}, key=lambda path: path.count("/"))


def _bubblewrap(desk: Path, python: list[str]) -> list[str]:
    visible = _visible()
    options = [f"--unshare-{kind}" for kind in ("pid", "net", "ipc", "uts")]
    options += ["--unshare-user", "--cap-drop", "ALL"] if other_user() is None else []
    options += ["--die-with-parent"]
    options += ["--size", str(_TEMPORARY), "--perms", "1777", "--tmpfs", "/tmp"]  # first: Python may be there
    for folder in _parents([*visible, *_DEVICES]):
        if not any(folder == path or folder.startswith(f"{path}/") for path in visible):
            options += ["--dir", folder]
    for path, source in visible.items():
        options += ["--ro-bind", source, path] if source else ["--tmpfs", path, "--remount-ro", path]
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--ro-bind", str(desk), _DESK]
    return ["bwrap", *options, "--remount-ro", "/", "--chdir", "/tmp", "--", *python]


def _namespaces(desk: Path, python: list[str]) -> list[str]:
    root, quoted = str(desk.with_name("root")), shlex.quote
    lines = ["set -e", f"mount -t tmpfs -o mode=755,size=1m none {quoted(root)}"]
    lines.append(f"mkdir {quoted(f'{root}/tmp')} {quoted(root + _DESK)}")
    lines.append(f"mount -t tmpfs -o mode=1777,size={_TEMPORARY} none {quoted(f'{root}/tmp')}")

    def bind(source: str, path: str) -> None:
        target = quoted(root + path)
        if os.path.isdir(source):
            lines.append(f"mkdir -p {target}")
        else:
            lines.append(f"mkdir -p {quoted(os.path.dirname(root + path))}; : > {target}")
        lines.append(f"mount --rbind {quoted(source)} {target}")

    read_only: list[str] = [root]
    for path, source in _visible().items():
        if source:
            bind(source, path)
        else:
            lines.append(f"mount -t tmpfs -o size=4k none {quoted(root + path)}")
        read_only.insert(0, root + path)
    for device in _DEVICES:
        bind(device, device)
    bind(str(desk), _DESK)
    read_only.insert(0, root + _DESK)
    lines += [f"mount -o remount,bind,ro {quoted(path)}" for path in read_only]
    bare = ["--no-new-privs", "--inh-caps=-all"] + (["--bounding-set=-all"] if other_user() is None else [])
    lines.append(
        f"exec chroot {quoted(root)} /usr/bin/setpriv {shlex.join(bare)} "
        f"sh -c {quoted('cd /tmp; exec ' + shlex.join(python))}"
    )
    options = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    options += ["--user", "--map-root-user"] if other_user() is None else []
    return ["unshare", *options, "sh", "-c", "\n".join(lines)]
