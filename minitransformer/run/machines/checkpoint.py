"""Checkpoints: everything that a run needs to continue as if it had never stopped.

RUN/checkpoints/00000400/    after step 400
    model.safetensors        the parameters
    optimizer.safetensors    the optimiser's state
    state.json               {"step": 400, "epoch": 3, ...}: position in the data, best validation loss so far

A checkpoint is written under a temporary name, flushed to the disk and then renamed. So a folder whose name is a number
is always complete. No generator's state is saved: the seed and the step determine every generator.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.files import read_arrays, read_json, write, write_arrays

_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    model: Mapping[str, np.ndarray]
    optimizer: Mapping[str, np.ndarray]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, keep: Sequence[int] = ()) -> None:
    """Write a checkpoint into folder/checkpoints, then remove all others except those of the steps in `keep`.

    Raises OSError if it cannot be written; every other checkpoint then stays as it was.
    """
    home = folder / "checkpoints"
    step = checkpoint.state["step"]
    target, temporary = home / f"{step:08d}", home / f".{step:08d}.tmp"
    try:
        home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)  # from a run that was killed while it wrote
        temporary.mkdir()
        write_arrays(temporary / _MODEL, checkpoint.model)
        write_arrays(temporary / _OPTIMIZER, checkpoint.optimizer)
        write(temporary / _STATE, json.dumps(checkpoint.state, indent=1) + "\n")
        if target.exists():  # written before the run was resumed; equal, bit for bit
            shutil.rmtree(temporary)
        else:
            os.replace(temporary, target)
    except OSError as error:
        raise OSError(f"the checkpoint of step {step} could not be saved: {error}; earlier ones are intact") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for other in steps(folder):
        if other not in keep and other != step:
            os.replace(home / f"{other:08d}", home / f".{other:08d}.old")  # a numbered folder is always complete
    for leftover in home.glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    home = folder / "checkpoints"
    return sorted(int(path.name) for path in home.iterdir() if path.name.isdigit()) if home.is_dir() else []


def load(folder: Path, step: int) -> Checkpoint:
    """Read the checkpoint of a step. Raises ValueError, which names the file, if a file cannot be read."""
    home = folder / "checkpoints" / f"{step:08d}"
    state = read_json(home / _STATE)
    if not isinstance(state, dict) or state.get("step") != step:
        raise ValueError(f'{home / _STATE} must be an object with "step": {step}')
    return Checkpoint(read_arrays(home / _MODEL), read_arrays(home / _OPTIMIZER), state)


def mean(folder: Path, of: Sequence[int]) -> dict[str, np.ndarray]:
    """The mean of the parameters after each of these steps, summed in float64.

    Averaging the last checkpoints reduces the noise of the last steps (Vaswani et al. 2017, section 6.1).
    """
    total: dict[str, np.ndarray] = {}
    for step in of:
        state = read_arrays(folder / "checkpoints" / f"{step:08d}" / _MODEL)
        total = {name: total.get(name, 0.0) + value.astype(np.float64) for name, value in state.items()}
    return {name: value / len(of) for name, value in total.items()}
