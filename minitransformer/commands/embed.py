"""`minitransformer embed`: texts as vectors, and how similar they are."""

import json

from ..core.layers import Module
from ..core.models import LanguageModel
from ..core.models.encoder_only import EncoderOnly
from ..core.models.opening import opened, with_article
from ..run.published_models import pool_of, sentence_vectors
from . import Options
from .common import speed


def main(options: Options) -> None:
    pool, found = pool_of(options.model), opened(options.model, Module)
    if not isinstance(found.model, EncoderOnly | LanguageModel):
        raise ValueError(f"{options.model} holds {with_article(type(found.model))}, which makes no vectors of texts")
    model = speed(options)(found.model.to(options.device))
    vectors = sentence_vectors(model, found.tokenizers[0], options.texts, pool)
    cosines = vectors @ vectors.T
    if options.json:
        print(json.dumps({"texts": options.texts, "vectors": vectors.tolist(), "similarities": cosines.tolist()}))
        return
    for i, text in enumerate(options.texts, start=1):
        print(f"{i:>3}  {' '.join(text.split())}")
    print()
    print("    " + "".join(f"{i:>8}" for i in range(1, len(cosines) + 1)))
    for i, row in enumerate(cosines, start=1):
        print(f"{i:>3} " + "".join(f"{cosine:8.4f}" for cosine in row))
