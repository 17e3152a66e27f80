"""Show where a saved model looks in a text: the work of `minitransformer view`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ...models import folder
from ...tasks.classification import load_classifier
from ...tasks.language import load_writer
from ...tasks.translation import load_translator, written
from ...text import END, START, Tokenizer
from .viewer import LONGEST, AttentionView, view


def view_text(path: Path, text: str, device: str | None = None) -> AttentionView:
    """The attention of the model in a folder on a text. A translator first translates the text by greedy search."""
    kind = folder.kind(path)
    if kind == "LanguageModel":
        writer, tokenizer = load_writer(path)
        ids = _encoded(tokenizer, text)
        return view(writer.to(device), ids, names=(tokenizer.tokens,), title=text)
    if kind == "Classifier":
        classifier, tokenizer, labels = load_classifier(path)
        ids = _encoded(tokenizer, text)
        shown = view(classifier.to(device), ids, names=(tokenizer.tokens, labels))
        return dataclasses.replace(shown, title=f"{text} → {shown.choices[0].name}")
    translator, source, target = load_translator(path)
    ids = _encoded(source, text)
    (translation,) = written(translator.to(device), [ids], beam=1, max_length=LONGEST - 1)
    parts = [token for token in translation if token != END]
    title = f"{text} → {target.decode(parts) or '(nothing)'}"
    return view(translator, ids, [START, *parts], names=(source.tokens, target.tokens), title=title)


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text)
    if not 1 <= len(ids) <= LONGEST:
        raise ValueError(f"the text must have 1 to {LONGEST} tokens, got {len(ids)}")
    return ids
