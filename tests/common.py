"""What many test files need: random arrays, small models, weights of ordinary size, another Python, code of a file."""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np


def draw(*shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 12, "max_length": 6, "n_layers": 2}
SMALL |= {"n_encoder_layers": 1, "n_decoder_layers": 2}


def small(config: Any, *sizes: int, seed: int = 0, dtype: str = "float64", **changes: Any) -> Any:
    """The model of a config that is small where nothing else is said. sizes: of vocabularies, and how many classes."""
    known = {field.name for field in dataclasses.fields(config)}
    fields = {name: size for name, size in SMALL.items() if name in known} | changes
    return config(*sizes, **fields).build(np.random.default_rng(seed)).to(dtype=dtype)


def ordinary(module: Any, seed: int = 0) -> Any:
    """The module in float64 with weights of ordinary size, so that nothing is small by chance."""
    rng = np.random.default_rng(seed)
    for name, parameter in module.parameters():
        shape = parameter.value.shape
        parameter.value = rng.normal(1.0, 0.4, shape) if name.endswith("gamma") else rng.normal(0.0, 0.5, shape)
        parameter.grad = np.zeros(shape)
    return module


def printed(code: str, *arguments: str, **environment: str) -> str:
    """What another Python prints that runs this code, with these variables in its environment."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def code_of(path: Path) -> Any:
    """The module that a file outside the package holds."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
