"""Show where a saved model looks in a text: the command `minitransformer view`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ...models import LanguageModel, Transformer, folder
from ...published import MaskedLanguageModel, is_published
from ...published.tasks import open_published
from ...tasks.classification import load_classifier
from ...tasks.language import load_writer
from ...tasks.translation import load_translator, written
from ...text import END, START
from .viewer import LONGEST, AttentionView, view


def view_text(path: Path, text: str, device: str | None = None) -> AttentionView:
    """The attention of the model in a folder on a text. A translator first translates the text by greedy search.

    path: also the folder, or .gguf file, of a published language model or masked-language model.
    """
    if is_published(path):
        return _published(path, text, device)
    kind = folder.kind(path)
    if kind == "LanguageModel":
        writer, tokenizer = load_writer(path)
        ids = _few(tokenizer.encode(text))
        return view(writer.to(device), ids, names=(tokenizer.tokens,), title=text)
    if kind == "Classifier":
        classifier, tokenizer, labels = load_classifier(path)
        ids = _few(tokenizer.encode(text))
        shown = view(classifier.to(device), ids, names=(tokenizer.tokens, labels))
        return dataclasses.replace(shown, title=f"{text} → {shown.choices[0].name}")
    translator, source, target = load_translator(path)
    if not isinstance(translator, Transformer):
        raise ValueError(
            f"{path} holds a {type(translator).__name__}, which has no attention in layers and heads to view"
        )
    ids = _few(source.encode(text))
    (translation,) = written(translator.to(device), [ids], beam=1, max_length=LONGEST - 1)
    parts = [token for token in translation if token != END]
    title = f"{text} → {target.decode(parts) or '(nothing)'}"
    return view(translator, ids, [START, *parts], names=(source.tokens, target.tokens), title=title)


def _published(path: Path, text: str, device: str | None) -> AttentionView:
    model, tokenizer = open_published(path)
    if not isinstance(model, LanguageModel | MaskedLanguageModel):
        raise ValueError(
            f"{path} holds a {type(model).__name__}; only published models that predict tokens can be shown: a "
            "LanguageModel or a MaskedLanguageModel"
        )
    names = (*tokenizer.tokens, *(f"<{i}>" for i in range(len(tokenizer), model.config.vocabulary)))
    return view(model.to(device), _few(tokenizer.encode(text, special=True)), names=(names,), title=text)


def _few(ids: list[int]) -> list[int]:
    if not 1 <= len(ids) <= LONGEST:
        raise ValueError(f"the text must have 1 to {LONGEST} tokens, got {len(ids)}")
    return ids
