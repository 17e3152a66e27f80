"""`minitransformer embed`: texts as vectors, and how similar they are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..core.arrays.files import read_json
from ..core.models.encoder_only import EncoderOnly
from ..core.models.opening import opened
from ..run.published_models import sentence_vectors
from .common import add_speed, speed


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Turn each text into a vector of length 1, the mean of its tokens' hidden states, and print the "
        "cosine of the angle between every two."
    )
    command.add_argument("texts", nargs="+", metavar="TEXT", help="a text, in quotes")
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="the folder of the model")
    command.add_argument("--json", action="store_true", help="print one JSON document, with the vectors")
    add_speed(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    pooling = options.model / "1_Pooling" / "config.json"  # a file of Sentence Transformers
    if pooling.is_file() and not read_json(pooling).get("pooling_mode_mean_tokens", False):
        raise ValueError(f"{pooling}: only the mean over the tokens is supported (pooling_mode_mean_tokens)")
    found = opened(options.model, EncoderOnly)
    vectors = sentence_vectors(speed(options)(found.model.to(options.device)), found.tokenizers[0], options.texts)
    cosines = vectors @ vectors.T
    if options.json:
        print(json.dumps({"texts": options.texts, "vectors": vectors.tolist(), "similarities": cosines.tolist()}))
        return 0
    for i, text in enumerate(options.texts, start=1):
        print(f"{i:>3}  {' '.join(text.split())}")
    print()
    print("    " + "".join(f"{i:>8}" for i in range(1, len(cosines) + 1)))
    for i, row in enumerate(cosines, start=1):
        print(f"{i:>3} " + "".join(f"{cosine:8.4f}" for cosine in row))
    return 0
