"""`minitransformer plot attention`: where the heads of a layer look, as a picture."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from ..run.machines.locks import write_figure
from ..school.inspect.watch import attentions
from ..school.show.viewer.command import look_at
from . import UsageError
from .common import add_device
from .outputs import file_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = "Draw pictures."
    pictures = command.add_subparsers(title="pictures", metavar="PICTURE", required=True)
    attention = pictures.add_parser(
        "attention",
        help="the attention weights of one layer as heat maps",
        description="Draw the attention weights of one layer, for one head or all heads, while the model reads TEXT. "
        "A translator translates TEXT first.",
    )
    attention.add_argument("text", metavar="TEXT", help="a sentence, in quotes")
    attention.add_argument("--model", type=Path, required=True, metavar="DIR", help="the folder of the model")
    attention.add_argument(
        "--kind", metavar="KIND", help="for a translator: encoder, decoder or cross (default: cross)"
    )
    attention.add_argument("--layer", type=int, metavar="N", help="counted from 1 (default: the last)")
    attention.add_argument("--head", type=int, metavar="N", help="counted from 1 (default: all)")
    attention.add_argument(
        "--out", type=file_to_write, default="attention.png", metavar="FILE", help="(default: attention.png)"
    )
    add_device(attention)
    attention.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    look = look_at(options.model, options.text, options.device)
    kinds = list(attentions(look.model))
    kind = options.kind or kinds[-1]
    if kind not in kinds:
        near = difflib.get_close_matches(kind, kinds, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"this model has {', '.join(kinds)}"
        raise UsageError(f"this model has no attention of --kind {kind!r}; {hint}")
    found = look.weights(kind)
    n_layers, n_heads = found.shape[:2]
    layer = n_layers if options.layer is None else options.layer
    for name, number, n in (("--layer", layer, n_layers), ("--head", options.head, n_heads)):
        if number is not None and not 1 <= number <= n:
            raise UsageError(f"{name} must be from 1 to {n}, got {number}")
    heads = range(1, n_heads + 1) if options.head is None else [options.head]
    weights = found[layer - 1][[head - 1 for head in heads]]
    tokens = look.tokens()
    queries, keys = (
        [token.replace("$", r"\$").replace("\n", "↵") for token in tokens[side]]  # no formulas, no empty labels
        for side in {"cross": (-1, 0), "decoder": (-1, -1)}.get(kind, (0, 0))
    )
    titles = [f"layer {layer}, head {head}" for head in heads]
    from ..school.show import plots  # here, because it imports matplotlib

    write_figure(options.out, plots.attention_maps(weights, queries, keys, titles))
    print(f"wrote {options.out}")
    return 0
