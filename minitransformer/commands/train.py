"""`minitransformer train`: from text files to a model in a folder."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..core.layers.unread import Unread
from ..run.machines.locks import locked
from ..run.machines.parallel.group import Group
from ..run.machines.parallel.launch import joined
from ..run.machines.parallel.mpi import MPIGroup
from ..run.machines.parallel.nccl import on_gpus
from ..run.machines.recipes import recipe_name, with_recipe
from ..run.machines.run import Run, closing_line, load
from ..run.machines.settings import TrainingSettings
from ..run.tasks import TASKS, Task
from . import Options, UsageError
from .common import given, known_as, make, speed


def main(options: Options) -> int:
    options.task = task = task_of(options)
    folder = options.out or Path("runs") / task.name
    new = None if options.resume else _new(task, options)
    with joined() as group, locked(folder) if group.rank == 0 else contextlib.nullcontext():
        return _train(folder, options, new, group)


def task_of(options: Options) -> Task:
    """The task that the options name, with its recipe."""
    task = TASKS[options.task]
    return make(with_recipe, {"task": task, "name": options.recipe}) if "recipe" in options else task


def _train(folder: Path, options: Options, new: Run | None, group: Group) -> int:
    if isinstance(group, MPIGroup) and options.device != "numpy":
        group = on_gpus(group, options.device)
    if new is None:
        run = _resumed(folder, options)
    elif group.rank == 0 and any((folder / name).exists() for name in ("run.json", "config.json", "checkpoints")):
        raise UsageError(
            f"{folder} already holds a run or a model; add --resume to continue it, or choose another with --out"
        )
    else:
        run = new
    say: Callable[[str], None] = print if group.rank == 0 else lambda line: None  # only the first rank prints
    trainer = run.trainer(folder, options.device, say, options.resume, speed(options), group)
    step = trainer.resume() if options.resume else 0
    if options.resume:
        say(f"continuing after step {step} of {run.training.steps}")
    outcome = trainer.run(say=tqdm.write)
    say(closing_line(outcome, folder))
    return 130 if outcome.ended == "interrupted" else 0


def _new(task: Task, options: Options) -> Run:
    """The preset's settings; options override them. Without a file or a preset: those of the generated task."""
    files = [f.name for f in dataclasses.fields(task.data) if f.metadata.get("file")]
    default = "numbers" if "numbers" in task.presets and not any(name in options for name in files) else None
    preset = _preset(task, getattr(options, "preset", default))
    data, model, training = _chosen(task, preset, options)
    any_data = {name: 2 for name in task.from_data}
    config = make(task.config, any_data | model)
    there = _memory()
    try:  # refuses sizes that the model would refuse; a number and its gradient take 8 bytes
        make(config.build, {"rng": Unread(at_most=there / 8)})
    except UsageError as error:
        if "more numbers" not in str(error):
            raise
        raise UsageError(
            f"the parameters and their gradients need more memory than this machine's {there:,} bytes; "
            "choose smaller sizes (`minitransformer info` shows what each costs)"
        ) from error
    return Run(task, make(task.data, data), model, make(TrainingSettings, training))


def _memory() -> float:
    """The bytes of memory of this machine, if the system reports them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _chosen(task: Task, preset: Mapping[str, Any], options: Options) -> tuple[dict[str, Any], ...]:
    """The settings of data, model and training from the preset; options override them."""
    data, model, training = (
        {f.name: preset[f.name] for f in dataclasses.fields(kind) if f.name in preset} | given(options, kind)
        for kind in (task.data, task.config, TrainingSettings)
    )
    return data, {name: value for name, value in model.items() if name not in task.from_data}, training


def _preset(task: Task, name: str | None) -> Mapping[str, Any]:
    return {} if name is None else task.presets[known_as(f"train {task.name} --preset", name, list(task.presets))]


def _resumed(folder: Path, options: Options) -> Run:
    """The run of the folder. Options given with --resume may repeat its settings, but not change them."""
    run = load(folder)
    if run.task.name != options.task.name:
        raise UsageError(f"{folder} holds a run of {run.task.name}, not of {options.task.name}")
    if "recipe" in options and run.task.config is not options.task.config:
        raise UsageError(f"the run in {folder} has recipe {recipe_name(run.task)}, not {options.recipe}")
    kinds = (run.task.data, run.task.config, TrainingSettings)
    all_began_with = (dataclasses.asdict(run.data), run.model, dataclasses.asdict(run.training))
    chosen = _chosen(run.task, _preset(run.task, getattr(options, "preset", None)), options)
    chosen[1].update(given(options, options.task.config))  # also those that the run's recipe does not have
    for kind, began_with, values in zip(kinds, all_began_with, chosen, strict=True):
        for name, value in values.items():
            was = began_with.get(name, getattr(kind, name, None))
            if was != value:
                raise UsageError(
                    f"the run in {folder} has {name} {was}, not {value}; leave the option out to continue the run, "
                    "or start a new one in another folder"
                )
    return run
