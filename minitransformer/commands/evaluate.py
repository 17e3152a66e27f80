"""`minitransformer evaluate`: how good a trained model is on a text it was not trained on."""

import json
from typing import Any

from ..core.arrays.files import write
from ..core.layers import Module
from ..core.models import Classifier, EncoderDecoder, LanguageModel
from ..core.models.opening import Opened, with_article
from ..run.published_models import check_ids
from ..run.tasks.evaluation import evaluate_classifier, evaluate_translator, evaluate_writer
from . import Options, UsageError
from .common import check_search, opened_with, speed


def main(options: Options) -> None:
    check_search(options)
    if not 0.0 < options.held_out <= 1.0:
        raise UsageError(f"--held-out must be above 0 and at most 1, got {options.held_out}")
    read: Opened[Any] = opened_with(options, Module)
    model = read.model
    if isinstance(model, EncoderDecoder):
        if options.source is None or options.target is None:
            raise UsageError("a translator is measured on two files: give --source and --target")
        check_ids(read)
        where = (options.source, options.target, options.device)
        search: Any = (options.beam, options.length_penalty, options.tokenize, speed(options), options.early_stopping)
        found = evaluate_translator(read, *where, *search)
        translations = found.pop("translations")
        if options.output:
            write(options.output, "".join(f"{line}\n" for line in translations))
        parts = "/".join(f"{p:.1f}" for p in found["precisions"])
        said = f"BLEU {found['bleu']:.2f} ({parts}, BP {found['brevity_penalty']:.3f})"
        said += f" on {found['sentences']} sentences{_cut_off(found)}\n{found['signature']}"
    elif options.text is None:
        raise UsageError("a language model or classifier is measured on a file: give --text")
    elif isinstance(model, LanguageModel):
        found = evaluate_writer(read, options.text, options.device, options.held_out, speed(options))
        said = f"loss {found['loss']:.4f} nats, perplexity {found['perplexity']:.2f}, on {found['tokens']:,} tokens"
    elif not isinstance(model, Classifier) or read.published:
        raise UsageError(f"{options.model} holds {with_article(type(model))}, which this command cannot measure")
    else:
        found = evaluate_classifier(read, options.text, options.device, speed(options))
        said = f"accuracy {found['accuracy']:.2%} on {found['texts']} texts{_cut_off(found)}"
        for label, row in zip(found["labels"], found["counts"], strict=True):
            said += f"\n{label}: " + ", ".join(f"{n} as {name}" for n, name in zip(row, found["labels"], strict=True))
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else said)


def _cut_off(found: dict[str, Any]) -> str:
    return f", {found['cut_off']} of them cut off" if found["cut_off"] else ""
