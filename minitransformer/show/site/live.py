"""The translator of the start page: the demo's model as numbers that JavaScript reads, and its part of the page.

The page needs no Python: transformer.js is the forward pass of the model, live.js shows what it computes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...arrays.backend import to_numpy
from ...models import Transformer, TransformerConfig
from ...tasks.translation import load_translator
from ...text import english
from ..page import packed

SCRIPTS = ("model.js", "numbers.js", "transformer.js", "live.js")
_SIZES = ("d_model", "n_heads", "d_ff", "n_encoder_layers", "n_decoder_layers", "dropout", "attention_dropout")


def script(folder: Path) -> str:
    """A model as a script: the constant MODEL. Raises ValueError unless it translates numbers as the demo's does."""
    model, source, target = load_translator(folder)
    sizes = {name: getattr(model.config, name) for name in _SIZES} if isinstance(model, Transformer) else {}
    vocabularies = (model.config.source_vocabulary, model.config.target_vocabulary)
    like_the_demo = TransformerConfig(*vocabularies, **sizes, norm_order="pre", share_embeddings=False)
    if model.config != like_the_demo or set(english(99_999)) - set(source.tokens):
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
        "numbers": packed(np.concatenate([matrix.ravel() for matrix in matrices.values()])),
    }
    return f"const MODEL = {json.dumps(data, ensure_ascii=False)};\n"


PART = """<section class="live" id="live" aria-labelledby="live-title" hidden>
<h2 id="live-title">This small Transformer translates numbers. Where does it look?</h2>
<form id="ask"><label>Type a number <input id="number" inputmode="numeric" maxlength="5" value="54321"
autocomplete="off" aria-describedby="said"></label> <button>Another</button></form>
<p id="said" role="status"></p>
<fieldset><legend>Who looks at whom</legend>
<label><input type="radio" name="kind" value="cross" checked> German looks at English</label>
<label><input type="radio" name="kind" value="encoder"> English at itself</label>
<label><input type="radio" name="kind" value="decoder"> German at itself</label></fieldset>
<div class="sides"><div id="looks"></div><div id="heads" role="group" aria-label="All heads"></div></div>
<p id="readout"></p>
<p class="note">Each small square is one head: a row for each word on the right, a column for each on the left; the
stronger the colour, the more it looks there. Press one to draw its lines.</p>
<p class="note"><span id="cost"></span>
<a href="steppers/attention-of-a-model.html">All layers and the gradients</a></p>
</section>
"""
