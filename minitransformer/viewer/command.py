"""What `minitransformer view` does: a folder with a translator and its vocabularies, and a text, to a page."""

from __future__ import annotations

from pathlib import Path

from ..backend import to_device
from ..generation import greedy
from ..models import Transformer, folder
from ..text import END, START, Vocabulary, padded
from .viewer import LONGEST, AttentionView, view

_SOURCE, _TARGET = "source_vocabulary.json", "target_vocabulary.json"


def save_translator(model: Transformer, source: Vocabulary, target: Vocabulary, path: Path) -> None:
    """Write a model and both its vocabularies into one folder."""
    folder.save(model, path)
    source.save(path / _SOURCE)
    target.save(path / _TARGET)


def load_translator(path: Path) -> tuple[Transformer, Vocabulary, Vocabulary]:
    """Read what `save_translator` wrote. Raises ValueError for a model of another kind or another vocabulary."""
    model = folder.load(path)
    if not isinstance(model, Transformer):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, and only a Transformer translates a text; "
            "from Python minitransformer.viewer.view shows the others"
        )
    source, target = Vocabulary.load(path / _SOURCE), Vocabulary.load(path / _TARGET)
    found, wanted = (len(source), len(target)), (model.config.source_vocabulary, model.config.target_vocabulary)
    if found != wanted:
        raise ValueError(f"{path}: the vocabularies hold {found} tokens, the model is made for {wanted}")
    return model, source, target


def view_translation(path: Path, text: str, device: str | None = None) -> AttentionView:
    """Translate a text, its words parted by spaces, by the model in a folder, always taking the likeliest token."""
    model, source, target = load_translator(path)
    model.to(device)
    words = text.split()
    if not 1 <= len(words) <= LONGEST:
        raise ValueError(f"the text must have 1 to {LONGEST} words, got {len(words)}")
    ids = source.encode(words)
    written = greedy(model, to_device(padded([ids]), device), None, START, END, max_length=LONGEST - 1)[0].tolist()
    parts = written[: written.index(END)] if END in written else written
    title = f"{' '.join(words)} → {' '.join(target.decode(parts)) or '(nothing)'}"
    return view(model, ids, [START, *parts], names=(source.tokens, target.tokens), title=title)
