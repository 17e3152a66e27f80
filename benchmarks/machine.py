"""The machine of the measurements: processor, memory, libraries, and what it can do (rates.py)."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

import minitransformer

SIMD = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "neon", "sve")


def use_cores(count: int) -> list[int]:
    """Keep this process and its children on the first `count` cores that it may use; returns them."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, cores)
    return cores


def describe(threads: int, cores: list[int], seconds: float) -> dict[str, Any]:
    """Everything that a reader of the figures must know. It measures for a dozen times `seconds`."""
    processor = _fields(Path("/proc/cpuinfo"))
    memory = _fields(Path("/proc/meminfo")).get("MemTotal", "0 kB")
    flags = set((processor.get("flags") or processor.get("Features") or "").split())
    return {
        "processor": processor.get("model name") or platform.processor() or platform.machine(),
        "cores": f"{os.cpu_count()}, used: {cores or 'all'}",
        "threads": threads,
        "SIMD": " ".join(name for name in SIMD if name in flags) or "unknown",
        "memory": f"{int(memory.split()[0]) / 2**20:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "Python": platform.python_version(),
        "NumPy": f"{np.__version__}, {_blas()}",
        **{title: version for title, name in _PACKAGES.items() if (version := _version(name))},
        "minitransformer": f"{minitransformer.__version__}{_commit()}",
        "load at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "rates": _rates(threads, seconds),
    }


_PACKAGES = {
    "SciPy": "scipy",
    "Numba": "numba",
    "PyTorch": "torch",
    "Transformers": "transformers",
    "JAX": "jax",
    "Optax": "optax",
}
# What the programs of others need, by the name to import and the one to install.
_HUGGING_FACE = {"torch": "torch", "transformers": "transformers"}
OF_OTHERS = {
    "jax": {"jax": "jax", "optax": "optax"},
    "transformers": _HUGGING_FACE,
    "llama.cpp": {"llama_cpp": "llama-cpp-python"},
    "ctranslate2": {"ctranslate2": "ctranslate2"},
    "ctranslate2-int8": {"ctranslate2": "ctranslate2"},
    "onnxruntime": _HUGGING_FACE | {name: name for name in ("onnxruntime", "onnx", "onnxscript")},
}


def lacking(program: str) -> str | None:
    """What to install before the program can run, as a sentence; None if all is there."""
    names = [name for module, name in OF_OTHERS.get(program, {}).items() if importlib.util.find_spec(module) is None]
    return f"it needs: pip install {' '.join(names)}" if names else None


def busy() -> bool:
    """Whether something else runs. Then times are useless, and even ratios are nearly so."""
    return os.getloadavg()[0] > 0.5


def _rates(threads: int, seconds: float) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.rates", "--threads", str(threads), "--seconds", str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _fields(path: Path) -> dict[str, str]:
    """The first `name: value` of each name."""
    fields: dict[str, str] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
    return fields


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(f"{pool['internal_api']} {pool['version']} ({pool.get('architecture')})" for pool in pools)


def _commit() -> str:
    """The commit of the measured package, and whether its files differ from that commit."""
    folder = Path(minitransformer.__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
        changes = subprocess.run([*git, "status", "--porcelain", "."], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f", commit {commit.stdout.strip()}" + (" with changes" if changes.stdout.strip() else "")
