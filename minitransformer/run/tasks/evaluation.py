"""How good a trained model is on a text that it was not trained on: BLEU, perplexity or accuracy."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays.backend import to_device, to_numpy
from ...core.arrays.boundary import check_finite
from ...core.models import Classifier, EncoderDecoder, LanguageModel
from ...core.models.opening import Opened
from ...core.text import END, PAD, encode_lines, padded
from ...core.text.text_files import read_labelled, read_pairs, read_text
from ...core.training import Accelerate, Worker, as_written
from ...core.training.corpora import TextCorpus, bucketed
from .classification import ClassificationData
from .task import setting
from .translation import written


def evaluate_translator(
    opened: Opened[EncoderDecoder],
    source: Path,
    target: Path,
    device: str,
    beam: int,
    length_penalty: float,
    tokenize: str,
    accelerate: Accelerate = as_written,
    early_stopping: bool = True,
) -> dict[str, Any]:
    """BLEU of the translations of a file, by sacrebleu with its signature."""
    import sacrebleu  # here, because it is missing in a browser

    pairs = read_pairs(source, target)
    sequences = encode_lines(opened.tokenizers[0], [text for text, _ in pairs], source)
    ids = written(accelerate(opened.model.to(device)), sequences, beam, length_penalty, early_stopping=early_stopping)
    said, wanted = [opened.tokenizers[-1].decode(row) for row in ids], [text for _, text in pairs]
    metric = sacrebleu.BLEU(tokenize=tokenize, force=tokenize == "none")  # force: the user asked for tokenized text
    score = metric.corpus_score(said, [wanted])
    return {
        "sentences": len(pairs),
        "cut_off": sum(END not in row for row in ids),
        "bleu": score.score,
        "precisions": score.precisions,
        "brevity_penalty": score.bp,
        "signature": str(metric.get_signature()),
        "translations": said,
    }


def evaluate_writer(
    opened: Opened[LanguageModel], path: Path, device: str, held_out: float, accelerate: Accelerate = as_written
) -> dict[str, Any]:
    """The mean cross-entropy, in nats, of the tokens in the last part of a text; its exponential is the perplexity."""
    model, (tokenizer,) = opened.model, opened.tokenizers
    text = read_text(path)
    ids = tokenizer.encode(text[round(len(text) * (1.0 - held_out)) :])
    if len(ids) < 2:
        raise ValueError(f"{path}: the text must have at least two tokens, got {len(ids)}")
    corpus = TextCorpus(ids, min(model.config.max_length, len(ids) - 1), rows=32)
    loss = Worker(accelerate(model.to(device))).loss(corpus)
    if not math.isfinite(loss):
        raise ValueError(f"{path}: the loss is {loss}, so the model's weights are too large, or damaged")
    return {"tokens": len(ids) - 1, "loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}


def evaluate_classifier(
    opened: Opened[Classifier], path: Path, device: str, accelerate: Accelerate = as_written
) -> dict[str, Any]:
    """The share of lines with the right prediction, and how often each label was predicted for each label."""
    (tokenizer,), labels = opened.tokenizers, opened.labels
    lines = read_labelled(path)
    unknown = sorted({label for label, _ in lines} - set(labels))
    if unknown:
        raise ValueError(f"{path} has labels that the model does not know: {', '.join(unknown[:5])}")
    max_length = setting(opened.path, "max_length", ClassificationData.max_length)  # as in training
    sequences = encode_lines(tokenizer, [text for _, text in lines], path)
    found = classified(accelerate(opened.model.to(device)), [ids[:max_length] for ids in sequences])
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for (label, _), guess in zip(lines, found, strict=True):
        counts[labels.index(label), guess] += 1
    return {
        "texts": len(lines),
        "cut_off": sum(len(ids) > max_length for ids in sequences),
        "accuracy": float(np.trace(counts)) / len(lines),
        "labels": labels,
        "counts": counts.tolist(),  # row: the label of the line; column: the prediction
    }


def classified(model: Classifier, sequences: Sequence[Sequence[int]]) -> list[int]:
    """The most probable class of each encoded text."""
    widths = np.array([(len(ids),) for ids in sequences])
    found = np.zeros(len(sequences), dtype=np.int64)
    for rows in bucketed(widths, max(4096, int(widths.max())), rng=None):
        ids = to_device(padded([sequences[row] for row in rows]), model.device)
        logits = model(ids, ids != PAD)[0]
        check_finite("classify", logits.max(axis=-1))
        found[rows] = to_numpy(logits.argmax(axis=-1))
    return found.tolist()
