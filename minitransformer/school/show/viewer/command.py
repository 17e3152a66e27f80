"""Show where a saved model looks in a text: the command `minitransformer view`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ....core.models import Classifier, LanguageModel, Transformer
from ....core.text import START
from ....ideas.published import MaskedLanguageModel
from ..reading import read_text
from .viewer import AttentionView, view


def view_text(path: Path, text: str, device: str | None = None) -> AttentionView:
    """The attention of the model in a folder on a text. A translator first translates the text by greedy search.

    path: also the folder, or .gguf file, of a published language model or masked-language model.
    """
    read = read_text(path, text, device)
    model, source, target = read.opened.model, read.opened.tokenizers[0], read.opened.tokenizers[-1]
    if read.opened.published:
        if not isinstance(model, LanguageModel | MaskedLanguageModel):
            raise ValueError(
                f"{path} holds a {type(model).__name__}; only published models that predict tokens can be shown: a "
                "LanguageModel or a MaskedLanguageModel"
            )
        names = (*source.tokens, *(f"<{i}>" for i in range(len(source), model.config.vocabulary)))
        return view(model, read.ids, names=(names,), title=text)
    if isinstance(model, Transformer):
        title = f"{text} → {target.decode(read.said) or '(nothing)'}"
        return view(model, read.ids, [START, *read.said], names=(source.tokens, target.tokens), title=title)
    if isinstance(model, Classifier):
        shown = view(model, read.ids, names=(source.tokens, read.opened.labels))
        return dataclasses.replace(shown, title=f"{text} → {shown.choices[0].name}")
    return view(model, read.ids, names=(source.tokens,), title=text)
