"""Where a hand-in runs: under bubblewrap (https://github.com/containers/bubblewrap), apart from this machine.

Bubblewrap gives it processes, a network, variables and files of its own: what Python and a few packages load,
read-only, and a small /tmp that is gone when it ends. Nothing else exists there, so it does not matter where solutions
or other hand-ins lie. Memory that would lie in none of its processes is refused, since nobody could count it.
"""

import functools
import os
import platform
import secrets
import shutil
import site
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# What a hand-in may import besides the standard library: these packages, and what they load.
PACKAGES = "numpy scipy matplotlib numba einops".split()
_LOADED = (
    "mpl_toolkits pylab PIL pillow contourpy cycler dateutil fontTools kiwisolver packaging pyparsing six llvmlite"
)
_LIBRARIES = "/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib".split()
_DESK, _MORE, FILTER = "/desk", "/more", "refused.bpf"
TEMPORARY = 64 * 1024**2  # bytes of /tmp
_DEVICES = "/dev/null /dev/zero /dev/urandom /dev/random".split()
_PYTHON = os.path.realpath(sys.executable)
_THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
_VARIABLES = {"HOME": "/tmp", "TMPDIR": "/tmp", "PATH": "/usr/bin", "MPLBACKEND": "Agg"} | _THREADS
# The number of an architecture in the kernel's audit.h, and those of its calls of _FORBIDDEN.
_FORBIDDEN = "socket socketpair shmget semget msgget mq_open memfd_create memfd_secret io_uring_setup add_key"
_CALLS = {
    "x86_64": (0xC000003E, [41, 53, 29, 64, 68, 240, 319, 447, 425, 248]),
    "aarch64": (0xC00000B7, [198, 199, 194, 190, 186, 180, 279, 447, 425, 217]),
}


class Missing(RuntimeError):
    """Bubblewrap is not installed, or does not work here."""


def require(desk: Path) -> None:
    """Raise Missing, with what to do, unless Python starts under bubblewrap on this machine."""
    if shutil.which("bwrap") is None:
        raise Missing(
            "grading runs hand-ins under bubblewrap, which is missing: install it (Debian and Ubuntu: apt-get install "
            "bubblewrap; Fedora: dnf install bubblewrap; macOS and Windows: grade in a virtual machine with Linux)"
        )
    code = "import numpy, marking.wire; print('ready')"
    tried = subprocess.run(command(desk, code), stdin=subprocess.DEVNULL, capture_output=True)
    if tried.stdout != b"ready\n":
        said = tried.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise Missing(
            f"grading runs hand-ins under bubblewrap, which does not work here ({said[0]}): let this user make user "
            "namespaces, or grade as root or on another machine"
        )


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


def command(desk: Path, code: str, packages: Sequence[str] = ()) -> list[str]:
    """The command that runs Python code there, in /tmp. `desk` is a folder with modules, and `FILTER` in it.

    packages: others that the code may import, none of which is for code of a hand-in.
    """
    code = f"import sys; sys.path += {[_DESK, _MORE, *python_path()]!r}; {code}"
    options = ["--die-with-parent", *(f"--unshare-{kind}" for kind in ("pid", "net", "ipc", "uts"))]
    options += (
        ["--unshare-user", "--cap-drop", "ALL"] if other_user() is None else []
    )  # root becomes another user later
    options += ["--clearenv", *(part for pair in _VARIABLES.items() for part in ("--setenv", *pair))]
    options += ["--size", str(TEMPORARY), "--perms", "1777", "--tmpfs", "/tmp"]  # first: Python may be there
    options += _files()
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--dir", _MORE]  # others may enter this
    for package in packages:
        found = find_spec(package)
        if found is not None:  # it may be an extra
            origin = Path(str(found.origin))
            place = origin.parent if found.submodule_search_locations else origin  # or a file alone
            options += ["--ro-bind", str(place), f"{_MORE}/{place.name}"]
    options += ["--ro-bind", str(desk), _DESK, "--remount-ro", "/", "--chdir", "/tmp"]
    run = [*options, "--", _PYTHON, "-I", "-S", "-B", "-X", "utf8", "-c", code]
    if platform.machine() not in _CALLS:
        return ["bwrap", *run]
    return ["sh", "-c", 'exec bwrap --seccomp 3 "$@" 3<"$0"', str(desk / FILTER), *run]


@functools.cache
def _files() -> list[str]:
    """The options for the files that a hand-in may read: Python, the system's libraries, and the packages.

    A folder of installed packages is covered, and the packages that a hand-in may import are put on the cover.
    """
    python = [os.path.dirname(os.__file__), f"{sys.base_prefix}/lib", str(Path(_PYTHON).parents[1] / "lib")]
    folders = [*_LIBRARIES, *python, *map(os.path.realpath, python)]
    shown = list(dict.fromkeys(path for path in folders if os.path.isdir(path)))
    above = {str(parent) for path in (*shown, _PYTHON) for parent in Path(path).parents} | set(python_path())
    above |= {str(parent) for path in python_path() for parent in Path(path).parents}
    options = [part for folder in sorted(above - {"/"}) for part in ("--dir", folder)]  # others may enter these
    options += [part for path in (*shown, _PYTHON) for part in ("--ro-bind", os.path.realpath(path), path)]
    options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    installed = [f"{deeper}{kind}-packages" for deeper in ("", "python*/") for kind in ("site", "dist")]
    covered = sorted({str(path) for folder in shown for name in installed for path in Path(folder).glob(name)})
    for folder in covered:
        options += ["--tmpfs", folder]
    for folder in python_path():
        options += [part for path in _packages(folder) for part in ("--ro-bind", os.path.realpath(path), path)]
    return options + [part for folder in covered for part in ("--remount-ro", folder)]


def _packages(folder: str) -> Iterator[str]:
    """What a hand-in may import of the packages in a folder, and the libraries that came with them."""
    wanted = {*PACKAGES, *_LOADED.split()}
    for entry in os.scandir(folder):
        name, _, kind = entry.name.partition(".")
        if name in wanted and (kind in ("", "py", "libs") or kind.endswith("so")):
            yield entry.path


def refused_calls() -> bytes:
    """The program of `FILTER`, which refuses the calls of _FORBIDDEN (seccomp(2)): what they make is in no process.

    Not used on a machine whose calls are not listed.
    """
    architecture, calls = _CALLS.get(platform.machine(), (0, []))
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    refuse, allow = (end, 0, 0, 0x00050001), (end, 0, 0, 0x7FFF0000)  # EPERM
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), refuse]  # the calls of another architecture
    program += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), refuse]  # the calls of x32
    for number in calls:
        program += [(equal, 0, 1, number), refuse]
    return b"".join(struct.pack("=HBBI", *line) for line in [*program, allow])
