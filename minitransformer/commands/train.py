"""`minitransformer train`: from text files to a model in a folder."""

from __future__ import annotations

import argparse
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
from ..run.machines.recipes import TASKS, recipe_name, recipes, with_recipe
from ..run.machines.run import Run, closing_line, load
from ..run.machines.settings import OPTIMIZERS, TrainingSettings, used_by
from ..run.tasks import Task
from . import Parser, UsageError
from .common import add_fields, add_speed, given, make, speed, unknown
from .outputs import folder_to_write

_HELP = {
    "translate": "an encoder-decoder on sentence pairs",
    "lm": "a decoder-only model on a running text",
    "classify": "an encoder with a classification head on labelled lines",
}
# The meanings of the settings, for --help: first those of every task, then those that differ between tasks.
MEANINGS: dict[str, dict[str, str]] = {
    "all": {
        "vocabulary": "number of bpe tokens",
        "joint": "one vocabulary for both sides",
        "share_embeddings": "one table for source and target, which needs one vocabulary (section 3.4)",
        "n_key_heads": "heads of keys and values, which the query heads share; None: as many as n_heads",
        "d_head": "width of a head; None: d_model / n_heads",
        "qkv_bias": "of queries, keys and values; None: as of bias",
        "window": "how many tokens attention sees, including the current one; None: all",
        "n_experts": "feed-forward networks in a layer",
        "k": "how many experts each position uses",
        "kernel": "positions that a convolution sees",
        "cell": "lstm, gru or rnn",
        "attention": "multiplicative, additive or none",
        "batch_rows": "windows of max_length tokens in a batch",
        "optimizer": f"{', '.join(OPTIMIZERS)} (muon updates the matrices, adamw the rest)",
        "learning_rate": "the peak of the schedule",
        "schedule": "constant, cosine or inverse-sqrt (Vaswani et al. 2017, with learning_rate as peak)",
        "warmup": "steps from 0 up to the learning rate",
        "floor": "the learning rate at the end of the cosine",
        "weight_decay": f"used by {used_by('weight_decay')}",
        "momentum": f"used by {used_by('momentum')}",
        "clip": "largest norm of all gradients together; 0: no limit",
        "accumulate": "batches per step",
        "workers": "threads that share a batch",
        "validate_every": "steps",
        "save_every": "steps",
        "average": "checkpoints whose mean is the final model; 1: the model of the lowest validation loss",
        "patience": "validations without improvement before the run stops early; 0: never",
        "shard_optimizer": "each rank of mpiexec keeps one part of the optimiser's state",
        "precision": "float32, tf32 (for a GPU's matrix products) or float16 (float32 masters, scaled loss)",
    },
    "translate": {
        "tokenizer": "bpe or words",
        "max_length": "tokens; training pairs with a longer side are left out and counted",
        "batch_tokens": "rows times the longest sentence",
        "tie_output": "use the target's table for the logits, too",
    },
    "lm": {
        "tokenizer": "characters or bpe",
        "tie_output": "use the table of tokens for the logits, too",
        "held_out": "last share of the text, for validation",
    },
    "classify": {
        "tokenizer": "bpe or words",
        "max_length": "tokens; longer texts are cut off",
        "batch_tokens": "rows times the longest text",
        "held_out": "share of text for validation, if there is no valid_text",
    },
}


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Train a model and save it in a folder, with the settings, tokenizers, a log, its curves and "
        "checkpoints. Ctrl-C saves and stops. --resume continues and ends with the same bits as a run that never "
        "stopped, unless the fast loops are compiled meanwhile: MINITRANSFORMER_COMPILE=first waits for them."
    )
    kinds = command.add_subparsers(title="tasks", metavar="TASK", required=True, parser_class=_TaskParser)
    for name, task in TASKS.items():
        kinds.add_parser(name, help=_HELP[name], description=f"Train {_HELP[name]}.").task = task


class _TaskParser(Parser):
    """The options of `train TASK`. Those of the model are the fields of the recipe that the command line names."""

    task: Task

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the options, then parse."""
        first = Parser(prog=self.prog, add_help=False)
        first.add_argument("--recipe", default=recipe_name(self.task))
        first.add_argument("--resume", action="store_true")  # so that --re is as ambiguous here as later
        _add_options(self, make(with_recipe, {"task": self.task, "name": first.parse_known_args(args)[0].recipe}))
        return super().parse_known_args(args, namespace)


def _add_options(kind: argparse.ArgumentParser, task: Task) -> None:
    kind.add_argument("--out", type=folder_to_write, metavar="DIR", help="the folder of the run (default: runs/TASK)")
    kind.add_argument("--resume", action="store_true", help="continue from the folder's last checkpoint")
    for name, known, meaning in (
        ("--preset", task.presets, "settings to start from"),
        ("--recipe", recipes(task), f"the model to train, {recipes(task)[0]} unless given; its sizes are below"),
    ):
        kind.add_argument(name, metavar="NAME", default=argparse.SUPPRESS, help=f"{meaning}: {', '.join(known)}")
    add_speed(kind)
    meanings = MEANINGS["all"] | MEANINGS[task.name]
    add_fields(kind, "data", task.data, meanings)
    add_fields(kind, f"model: {recipe_name(task)}", task.config, meanings, leave_out=task.from_data)
    add_fields(kind, "training", TrainingSettings, meanings)
    kind.set_defaults(run=_run, task=task)


def _run(options: argparse.Namespace) -> int:
    task: Task = options.task
    folder = options.out or Path("runs") / task.name
    new = None if options.resume else _new(task, options)
    with joined() as group, locked(folder) if group.rank == 0 else contextlib.nullcontext():
        return _train(folder, options, new, group)


def _train(folder: Path, options: argparse.Namespace, new: Run | None, group: Group) -> int:
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


def _new(task: Task, options: argparse.Namespace) -> Run:
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


def _chosen(task: Task, preset: Mapping[str, Any], options: argparse.Namespace) -> tuple[dict[str, Any], ...]:
    """The settings of data, model and training from the preset; options override them."""
    data, model, training = (
        {f.name: preset[f.name] for f in dataclasses.fields(kind) if f.name in preset} | given(options, kind)
        for kind in (task.data, task.config, TrainingSettings)
    )
    return data, {name: value for name, value in model.items() if name not in task.from_data}, training


def _preset(task: Task, name: str | None) -> Mapping[str, Any]:
    if name is None:
        return {}
    if name not in task.presets:
        raise UsageError(unknown(f"train {task.name} --preset", name, list(task.presets)))
    return task.presets[name]


def _resumed(folder: Path, options: argparse.Namespace) -> Run:
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
