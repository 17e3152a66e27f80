"""The options of `minitransformer train`: a flag for each field of the settings of the task, its recipe and the run."""

import dataclasses
import functools
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from typing import Any

from .. import Parser
from .declared import TASKS, TRAINING, fields
from .shared import add_fields, add_folder, add_speed

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
        "optimizer": "adamw, adam, sgd, muon (muon updates the matrices, adamw the rest)",
        "learning_rate": "the peak of the schedule",
        "schedule": "constant, cosine or inverse-sqrt (Vaswani et al. 2017, with learning_rate as peak)",
        "warmup": "steps from 0 up to the learning rate",
        "floor": "the learning rate at the end of the cosine",
        "weight_decay": "used by adamw and muon",
        "momentum": "used by sgd and muon",
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


def train(command: Parser) -> None:
    """train a translator, a language model or a classifier, on your files or on a generated task

    Train a model and save it in a folder, with the settings, tokenizers, a log, its curves and checkpoints. Ctrl-C
    saves and stops. --resume continues and ends with the same bits as a run that never stopped, unless the fast
    loops are compiled meanwhile: MINITRANSFORMER_COMPILE=first waits for them.
    """
    kinds = command.add_subparsers(title="tasks", metavar="TASK", required=True)
    for name, task in TASKS.items():
        kind = kinds.add_parser(name, help=task.help, description=f"Train {task.help}.")
        kind.set_defaults(task=name)
        kind.complete = functools.partial(_task, name=name)


def _task(kind: Parser, words: Sequence[str], name: str) -> None:
    """The options of `train TASK`. Those of the model are the fields of the recipe that the words name."""
    first = Parser(prog=kind.prog, add_help=False)
    first.add_argument("--recipe")
    first.add_argument("--resume", action="store_true")  # so that --re is as ambiguous here as later
    recipe = first.parse_known_args(words)[0].recipe
    task, others = TASKS[name], ", --recipe NAME --help lists all"
    model: Iterable[dataclasses.Field[Any]] = fields(*task.config)
    if recipe is not None:
        from ...run.machines import recipes  # here, because it imports every family
        from ...run.tasks import TASKS as known_tasks
        from ..common import make

        known = known_tasks[name]
        model = dataclasses.fields(make(recipes.with_recipe, {"task": known, "name": recipe}).config)
        others = f": {', '.join(recipes.recipes(known))}"
    from_data, presets = task.words()
    alone = "; without one and without a file of text: numbers" if "numbers" in presets else ""
    add_folder(kind, "the folder of the run (default: runs/TASK)")
    kind.add_argument("--resume", action="store_true", help="continue from the folder's last checkpoint")
    for flag, meaning in (
        ("--preset", f"settings to start from: {', '.join(presets)}{alone}"),
        ("--recipe", f"the model to train, {task.recipe} unless given; its sizes are below{others}"),
    ):
        kind.add_argument(flag, metavar="NAME", default=SUPPRESS, help=meaning)
    add_speed(kind)
    meanings = MEANINGS["all"] | MEANINGS[name]
    add_fields(kind, "data", [field for place in task.data for field in fields(*place)], meanings)
    sizes = [field for field in model if field.name not in from_data]
    add_fields(kind, f"model: {recipe or task.recipe}", sizes, meanings)
    add_fields(kind, "training", fields(*TRAINING), meanings)
