"""The translator of the start page: the demo's model as numbers that JavaScript reads.

The page needs no Python: transformer.js is the forward pass of the model, live.js shows what it computes.
"""

import json
from pathlib import Path

import numpy as np

from ....core.arrays.backend import to_device, to_numpy
from ....core.generation import greedy
from ....core.models import EncoderDecoder, Transformer, TransformerConfig
from ....core.models.opening import opened
from ....core.text import END, PAD, START, Tokenizer, english, german, padded
from ..page import packed

FIRST = 54_321  # the number that is shown first
LONGEST = 24  # parts of a translation, as in transformer.js
_TRIED = 90  # numbers of each length
SCRIPTS = ("model.js", "numbers.js", "transformer.js", "live.js")
_SIZES = ("d_model", "n_heads", "d_ff", "n_encoder_layers", "n_decoder_layers", "dropout", "attention_dropout")


def script(folder: Path) -> str:
    """A model as a script: the constant MODEL. Raises ValueError unless it translates numbers as the demo's does."""
    found = opened(folder, EncoderDecoder)
    model, source, target = found.model, found.tokenizers[0], found.tokenizers[-1]
    sizes = {name: getattr(model.config, name) for name in _SIZES} if isinstance(model, Transformer) else {}
    vocabularies = (model.config.source_vocabulary, model.config.target_vocabulary)
    like_the_demo = TransformerConfig(*vocabularies, **sizes, norm_order="pre", share_embeddings=False)
    words = {word for number in (*range(1, 101), 1000) for word in english(number)}
    if model.config != like_the_demo or words - set(source.tokens):
        raise ValueError(
            f"the site shows a translator of numbers like the demo's, which {folder} is not: give the folder `model` "
            "that `minitransformer demo` wrote"
        )
    matrices = {name: np.atleast_2d(to_numpy(value)) for name, value in model.state().items()}
    data = {
        "source": source.tokens,
        "target": target.tokens,
        "heads": model.config.n_heads,
        "layers": [model.config.n_encoder_layers, model.config.n_decoder_layers],
        "shapes": [[name, *matrix.shape] for name, matrix in matrices.items()],
        "tried": [_tried(model, source, target, digits) for digits in range(1, 6)],
        "numbers": packed(np.concatenate([matrix.ravel() for matrix in matrices.values()])),
    }
    return f"const MODEL = {json.dumps(data, ensure_ascii=False)};\n"


def _tried(model: EncoderDecoder, source: Tokenizer, target: Tokenizer, digits: int) -> tuple[int, int]:
    """How many numbers of so many digits were tried, and how many of them the model translates rightly."""
    every = np.arange(10 ** (digits - 1), 10**digits)
    numbers = np.random.default_rng(digits).permutation(every)[:_TRIED].tolist()
    ids = to_device(padded([source.encode(" ".join(english(number))) for number in numbers]), model.device)
    found = [target.decode(row) for row in greedy(model, ids, ids != PAD, START, END, LONGEST)]
    return len(numbers), sum(text.split() == german(number) for text, number in zip(found, numbers, strict=True))
