"""Step through one layer of a trained model while it reads a text: the command `minitransformer step --model`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....check.trace.inside import attention_inside, attention_of, layer_inside
from ....core.arrays.backend import Array, Pullback, to_device
from ....core.models import Classifier, LanguageModel, Transformer
from ....core.text import END, START
from ....run.published_models import layer_of, reading
from ..reading import Reading, read_text, visible
from .recording import Recording, step

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
    read = read_text(path, text, device, "float64", least=2)  # finite differences can check every digit that is shown
    model, (run, tokens, memory, wanted) = read.opened.model, _run_of(read)
    layers, i, _ = layer_of(model, layer)
    if head is not None:
        n_heads = getattr(attention_of(layers[i]), "n_heads", 0)
        if n_heads == 0:
            raise ValueError("--head needs self-attention, but this layer has something else in its place")
        if not 1 <= head <= n_heads:
            raise ValueError(f"--head must be from 1 to {n_heads}, got {head}")
    part = layer_inside(model, layers, i, run, options.get("seed", 0))
    reads_memory = getattr(part.module, "reads_memory", False)
    part = (part if head is None else attention_inside(part, head - 1)).alone()
    recording = step(part.module, *part.inputs, upstream=part.upstream, limit=LIMIT, **options, **part.options)
    recording = replace(recording, whole=type(model).__name__)
    in_encoder = isinstance(model, Transformer) and not reads_memory
    rows = memory if in_encoder else tokens
    # a model that predicts the next token does not read the last one
    others = memory if reads_memory and head is None else []
    told = f"The model reads “{text}”."
    if wanted and not in_encoder:
        pairs, does = list(zip(tokens, wanted, strict=False)), "is to predict"
        if isinstance(model, Transformer):
            told, does = f"{told} It writes “{' '.join(b for _, b in pairs)}”, a token at a time.", "writes"
        rows_write = ", ".join(f"{a} → {b}" for a, b in pairs)
        told += f" Each row has read the tokens up to its own and {does} the next: {rows_write}."
    calls = recording.calls  # those of attention, because experts have weights, too
    weights = [s.index for s, b in recording.bindings if b.name == "weights" and "attention" in calls[s.call].name]
    return TextRecording(recording, rows[: len(part.inputs[0])], others, told, max(weights, default=None))


Run = Callable[[], tuple[Array, Pullback]]


def _run_of(read: Reading) -> tuple[Run, list[str], list[str], list[str]]:
    """The run of the model, its tokens, those of its memory, and the token that each row is to write.

    The decoder of a translator reads <start> and the translation, and has to predict the translation and <end>.
    """
    model, source, target = read.opened.model, read.opened.tokenizers[0], read.opened.tokenizers[-1]
    tokens, ids = [visible(source.tokens[token]) for token in read.ids], to_device(np.array([read.ids]), model.device)
    if read.opened.published:
        return reading(model, ids), tokens, tokens, []
    if isinstance(model, LanguageModel):
        return reading(model, ids), tokens, [], tokens[1:]
    if isinstance(model, Classifier):
        return functools.partial(model.loss, ids, model(ids)[0].argmax(axis=-1)), tokens, [], []
    given, wanted = [START, *read.said], [*read.said, END]
    if len(given) == len(tokens):  # leave out the last, so that no two axes look alike
        given, wanted = given[:-1], wanted[:-1]
    if not given:
        raise ValueError("the model writes no translation of this text; give another text")
    run = functools.partial(model.loss, ids, *(to_device(np.array([each]), model.device) for each in (given, wanted)))
    given_names, wanted_names = ([visible(target.tokens[token]) for token in each] for each in (given, wanted))
    return run, given_names, tokens, wanted_names
