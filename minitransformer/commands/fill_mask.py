"""`minitransformer fill-mask`: a masked-language model guesses a masked token."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from ..core.models.opening import opened
from ..ideas.published import MaskedLanguageModel
from ..run.published_models import fill_mask
from .common import add_speed, speed


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = "Print the five most probable tokens for each [MASK] in a text."
    command.add_argument("text", metavar="TEXT", help='a text, in quotes: "Paris is the [MASK] of France."')
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="the folder of the published model")
    command.add_argument("--json", action="store_true", help="print one JSON document")
    add_speed(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    read = opened(options.model, MaskedLanguageModel)
    tokenizer: Any = read.tokenizers[0]  # published, as every model of this kind
    found = fill_mask(speed(options)(read.model.to(options.device)), tokenizer, options.text)
    if options.json:
        masks = [[dataclasses.asdict(guess) for guess in guesses] for guesses in found]
        print(json.dumps({"text": options.text, "masks": masks}, ensure_ascii=False))
        return 0
    for i, guesses in enumerate(found):
        if i:
            print()
        for guess in guesses:
            print(f"{guess.probability:8.4f}  {guess.token}")
    return 0
