"""`minitransformer export`: a trained model as a folder that Hugging Face opens."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..core.arrays.files import read_json
from ..core.layers import Module
from ..core.models.opening import Opened, opened
from ..ideas.published import save_pretrained
from .outputs import folder_to_write


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Write a model and its tokenizer as a folder that Hugging Face's transformers can open, and every command "
        "here that takes --model. The model must fit one of the families of published models."
    )
    command.add_argument("model", type=Path, metavar="RUN", help="the folder of the model, or a .gguf file")
    command.add_argument("folder", type=folder_to_write, metavar="FOLDER", help="the folder to write")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found: Opened[Any] = opened(options.model, Module, for_text=False)
    save_pretrained(found.model, options.folder, found.tokenizers)
    about = read_json(options.folder / "config.json")
    print(f"wrote {options.folder}, a {about['architectures'][0]}")
    if about["model_type"] == "qwen2":
        print("AutoTokenizer opens Qwen2's own tokenizer: open this one with PreTrainedTokenizerFast.from_pretrained")
    return 0
