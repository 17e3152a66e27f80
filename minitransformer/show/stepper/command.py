"""Step through one layer of a trained model while it reads a text: the command `minitransformer step --model`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.backend import Array, Pullback, to_device
from ...models import Transformer, folder
from ...published import is_published
from ...published.tasks import layer_of, open_published, reading
from ...tasks.classification import load_classifier
from ...tasks.language import load_writer
from ...tasks.translation import load_translator, written
from ...text import END, START, Tokenizer
from ...trace.inside import attention_inside, attention_of, layer_inside
from .recording import Recording, step

LONGEST = 64  # tokens: more do not fit on a screen
LIMIT = 16384  # elements that an array may have to be kept whole; few weights of a large model are that small


@dataclass(frozen=True)
class TextRecording:
    """A recorded layer, with the names of the tokens in the rows of its arrays.

    memory: of a decoder layer, those of the encoder's tokens, which the cross-attention reads. told: what the model
    reads, and which row writes what. start: the step to begin at, the weights of the last attention.
    """

    recording: Recording
    tokens: list[str]
    memory: list[str]
    told: str
    start: int | None

    def labels(self) -> dict[str, Any]:
        """The options of page.to_html for the page of the recording."""
        return {"tokens": self.tokens, "memory": self.memory, "told": self.told, "start": self.start}


def step_text(
    path: Path, text: str, layer: int | None = None, head: int | None = None, device: str | None = None, **options: Any
) -> TextRecording:
    """Record one layer while a trained model reads a text, or one head of its self-attention.

    path: the folder of a run or of a published model, or a .gguf file. layer, head: counted from 1; without a layer the
    last, without a head the whole layer. The loss is that of `tasks.published.reading` for a published model; otherwise
    that of the next tokens, of the translation that a translator writes itself, or of the class that a classifier
    chooses. The rest of the model runs unrecorded. options: those of `step`. Raises ValueError for an impossible
    layer, head or text.
    """
    model, run, tokens, memory, wanted = (_published if is_published(path) else _saved)(path, text, device)
    layers, i, _ = layer_of(model, layer)
    if head is not None:
        n_heads = getattr(attention_of(layers[i]), "n_heads", 0)
        if n_heads == 0:
            raise ValueError("--head needs self-attention, but this layer has a convolution in its place")
        if not 1 <= head <= n_heads:
            raise ValueError(f"--head must be from 1 to {n_heads}, got {head}")
    part = layer_inside(model, layers, i, run, options.get("seed", 0))
    reads_memory = getattr(part.module, "reads_memory", False)
    part = (part if head is None else attention_inside(part, head - 1)).alone()
    recording = step(part.module, *part.inputs, upstream=part.upstream, limit=LIMIT, **options, **part.options)
    in_encoder = isinstance(model, Transformer) and not reads_memory
    rows = memory if in_encoder else tokens
    # a model that predicts the next token does not read the last one
    others = memory if reads_memory and head is None else []
    told = f"The model reads “{text}”."
    if wanted and not in_encoder:
        pairs = list(zip(tokens, wanted, strict=False))
        told += f" It writes “{' '.join(b for _, b in pairs)}”, a token at a time."
        rows_write = ", ".join(f"{a} → {b}" for a, b in pairs)
        told += f" Each row has read the tokens up to its own and writes the next: {rows_write}."
    calls = recording.calls  # those of attention, because experts have weights, too
    weights = [s.index for s, b in recording.bindings if b.name == "weights" and "attention" in calls[s.call].name]
    return TextRecording(recording, rows[: len(part.inputs[0])], others, told, max(weights, default=None))


# model, its run, tokens, memory's tokens, and the token that each row is to write
Text = tuple[Any, Callable[[], tuple[Array, Pullback]], list[str], list[str], list[str]]


def _published(path: Path, text: str, device: str | None) -> Text:
    model, tokenizer = open_published(path)
    model.to(device)
    ids = _few(tokenizer.encode(text, special=True))
    names = [tokenizer.tokens[token] for token in ids]
    return model, reading(model, to_device(np.array([ids]), device)), names, names, []


def _saved(path: Path, text: str, device: str | None) -> Text:
    """In float64, so that finite differences can check every digit that is shown."""
    kind = folder.kind(path)
    model: Any
    if kind == "LanguageModel":
        model, tokenizer = load_writer(path)
        ids = _few(tokenizer.encode(text))
        run = reading(model.to(device, "float64"), to_device(np.array([ids]), device))
        names = [tokenizer.tokens[token] for token in ids]
        return model, run, names, [], names[1:]
    if kind == "Classifier":
        model, tokenizer, _ = load_classifier(path)
        ids = _few(tokenizer.encode(text), least=1)
        batch = to_device(np.array([ids]), device)
        chosen = model.to(device, "float64")(batch)[0].argmax(axis=-1)
        return model, functools.partial(model.loss, batch, chosen), [tokenizer.tokens[token] for token in ids], [], []
    model, source, target = load_translator(path)
    if not isinstance(model, Transformer):
        raise ValueError(f"{path} holds a {type(model).__name__}, which has no layers to step through one by one")
    return _translation(model.to(device, "float64"), source, target, text)


def _translation(model: Transformer, source: Tokenizer, target: Tokenizer, text: str) -> Text:
    """The decoder reads <start> and the translation, and has to predict the translation and <end>."""
    ids = _few(source.encode(text), least=1)
    (said,) = written(model, [ids], beam=1, max_length=LONGEST)
    read, wanted = [START, *(t for t in said if t != END)], [*(t for t in said if t != END), END]
    if len(read) == len(ids):  # leave out the last, so that no two axes look alike
        read, wanted = read[:-1], wanted[:-1]
    if not read:
        raise ValueError("the model writes no translation of this text; give another text")
    batch = [to_device(np.array([each]), model.device) for each in (ids, read, wanted)]
    run = functools.partial(model.loss, *batch)
    read_by, writes = ([target.tokens[token] for token in each] for each in (read, wanted))
    return model, run, read_by, [source.tokens[token] for token in ids], writes


def _few(ids: Sequence[int], least: int = 2) -> list[int]:
    if not least <= len(ids) <= LONGEST:
        raise ValueError(f"the text must have {least} to {LONGEST} tokens, got {len(ids)}")
    return list(ids)
