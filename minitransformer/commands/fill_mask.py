"""`minitransformer fill-mask`: a masked-language model guesses a masked token."""

import dataclasses
import json
from typing import Any

from ..core.models.opening import opened
from ..ideas.published import MaskedLanguageModel
from ..run.published_models import fill_mask
from . import Options
from .common import speed


def main(options: Options) -> None:
    read = opened(options.model, MaskedLanguageModel)
    tokenizer: Any = read.tokenizers[0]  # published, as every model of this kind
    found = fill_mask(speed(options)(read.model.to(options.device)), tokenizer, options.text)
    if options.json:
        masks = [[dataclasses.asdict(guess) for guess in guesses] for guesses in found]
        print(json.dumps({"text": options.text, "masks": masks}, ensure_ascii=False))
        return
    for i, guesses in enumerate(found):
        if i:
            print()
        for guess in guesses:
            print(f"{guess.probability:8.4f}  {guess.token}")
