"""The commands of `minitransformer`: each has one file, such as fill_mask.py, whose function `add` adds its options."""

from __future__ import annotations

import argparse
from typing import NoReturn

# The description of each command in the list of all. It is here so that a command does not import the others' files.
COMMANDS = {
    "demo": "show the worked example, check every op, train a small translator (under two minutes)",
    "check": "compare every hand-derived gradient with finite differences",
    "derive": "check a written derivation line by line: yours, or those in the docstrings of this package",
    "step": "step through an example line by line, forward and backward, with every number",
    "sheet": "write an example as a workbook whose cells compute it, forward and backward",
    "prepare": "turn texts of any size into token ids on the disk, for train lm --data",
    "train": "train a translator, a language model or a classifier, on your files or on a generated task",
    "translate": "translate sentences with a model that `train translate` or `demo` saved",
    "generate": "continue a text with a language model that `train lm` saved, or a published one",
    "embed": "compare texts by the vectors that a published encoder makes of them",
    "fill-mask": "let a published masked-language model guess a hidden token",
    "export": "write a trained model as a folder that Hugging Face opens, with its tokenizer",
    "evaluate": "measure a trained model: BLEU of a translator, loss of a language model, accuracy of a classifier",
    "info": "layers, shapes, parameters, FLOPs and memory of a model of any size",
    "view": "write a page that shows where a model looks: its attention weights and their gradients",
    "plot": "draw where the heads of a layer look",
    "compare": "measure attention, recurrence and convolution side by side",
    "worksheet": "print gradients to compute by hand, with answer keys, and mark completed forms",
    "audit": "replace the function that a test suite tests by known mistakes, and see which ones pass",
    "exam": "print examination questions with worked answers, and a test of concepts",
    "grade": "grade the exercises in notebooks or Python files",
    "site": "write the course as a folder of static files, whose code runs in the browser",
}


class UsageError(Exception):
    """The command was called with an argument that it does not accept."""


class Parser(argparse.ArgumentParser):
    """Reports bad usage in one line; argparse would print the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")
