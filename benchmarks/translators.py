"""What each kind of translator learns of number translation at about equal parameters: python -m benchmarks.translators

Every run has its own numbers, weights and batches, from its seed. All kinds take the same steps of the same size. An
exact match is a translation without any error. The sentences are numbers that training never saw: drawn at random for
the total, and as many of each length as there are, up to a limit, for the match against the length.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from minitransformer.core.arrays.files import write
from minitransformer.fast import accelerate
from minitransformer.generation import greedy
from minitransformer.ideas.before.convolutional import ConvolutionalConfig
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslatorConfig
from minitransformer.models import EncoderDecoder, TransformerConfig
from minitransformer.run.machines.locks import write_figure
from minitransformer.text import END, PAD, START, NumberTask, english, german, padded
from minitransformer.training import AdamW, clip_gradient_norm

# The recipe of each kind, and sizes at which it has about 170,000 parameters.
KINDS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "transformer": (TransformerConfig, {"d_model": 64, "d_ff": 128, "n_heads": 4, "norm_order": "pre"}),
    "lstm": (RecurrentTranslatorConfig, {"d_model": 72, "attention": "none"}),
    "lstm-attention": (RecurrentTranslatorConfig, {"d_model": 68}),
    "convolution": (ConvolutionalConfig, {"d_model": 64, "d_ff": 98, "n_heads": 4, "norm_order": "pre"}),
}
LIMIT, RATE, ROWS = 100_000, 3e-3, 64


def run(kind: str, seed: int, steps: int, per_length: int = 200) -> dict[str, Any]:
    """Train one translator and translate with it. seconds: processor time of the training alone."""
    rng = np.random.default_rng(seed)
    task = NumberTask.draw(n_training=8000, n_unseen=1000, limit=LIMIT, rng=rng)
    recipe, sizes = KINDS[kind]
    config = recipe(
        len(task.source),
        len(task.target),
        **sizes,
        n_encoder_layers=2,
        n_decoder_layers=2,
        dropout=0.0,
        share_embeddings=False,
    )
    model = accelerate(config.build(rng))
    began = time.process_time()
    losses = _train(model, task, steps, rng, f"{kind}, seed {seed}")
    seconds = time.process_time() - began
    seen, by_length = set(task.training), dict[int, list[int]]()
    short = np.concatenate([np.arange(1, 1000), np.arange(1000, LIMIT, 1000)])  # too few of these would be drawn
    for number in dict.fromkeys([*rng.permutation(short).tolist(), *rng.integers(1, LIMIT, 4000).tolist()]):
        known = by_length.setdefault(len(english(number)), [])
        if number not in seen and len(known) < per_length:
            known.append(number)
    return {
        "kind": kind,
        "seed": seed,
        "steps": steps,
        "parameters": sum(parameter.value.size for _, parameter in model.parameters()),
        "seconds": seconds,
        "loss": float(np.mean(losses[-20:])),
        "exact": _exact(model, task, task.unseen),
        "by_length": {length: _exact(model, task, numbers) for length, numbers in sorted(by_length.items())},
        "tested": {length: len(numbers) for length, numbers in sorted(by_length.items())},
    }


def _train(model: EncoderDecoder, task: NumberTask, steps: int, rng: np.random.Generator, name: str) -> list[float]:
    optimizer = accelerate(AdamW(model.parameters(), learning_rate=RATE, betas=(0.9, 0.98), eps=1e-9))
    sources = [task.source.encode(english(number)) for number in task.training]
    targets = [task.target.encode(german(number)) for number in task.training]
    losses = []
    for step in tqdm(range(1, steps + 1), desc=name, unit="step", leave=False, disable=None):
        batch = rng.choice(len(sources), ROWS)
        source, target = padded([sources[i] for i in batch]), padded([[START, *targets[i]] for i in batch])
        wanted = padded([[*targets[i], END] for i in batch])
        model.zero_grad()
        loss, backward = model.loss(
            source, target, wanted, source_mask=source != PAD, ignore_index=PAD, label_smoothing=0.1, rng=rng
        )
        backward()
        clip_gradient_norm(model.parameters(), 1.0)
        optimizer.step(RATE * min(step / 50, 1.0 - 0.9 * step / steps))
        losses.append(float(loss))
    return losses


def _exact(model: EncoderDecoder, task: NumberTask, numbers: tuple[int, ...] | list[int]) -> float:
    source = padded([task.source.encode(english(number)) for number in numbers])
    said = greedy(model, source, source != PAD, START, END, max_length=20)
    return float(np.mean([task.target.decode(ids) == german(n) for ids, n in zip(said, numbers, strict=True)]))


def read(path: Path) -> list[dict[str, Any]]:
    """The runs so far. Raises ValueError for another kind of file."""
    try:
        found = json.loads(path.read_text()) if path.exists() else []
    except ValueError as error:
        raise ValueError(f"{path} is not JSON, so not a file of runs: {error}") from error
    if not isinstance(found, list) or any("by_length" not in each for each in found):
        raise ValueError(f"{path} holds no list of runs; give another file")
    return found


def _of(found: list[dict[str, Any]], kind: str, key: str) -> np.ndarray:
    return np.array([each[key] for each in found if each["kind"] == kind])


def table(found: list[dict[str, Any]]) -> str:
    """Mean, spread (standard deviation over the seeds), least and largest of the exact match, and the times."""
    lines = ["| | parameters | seeds | exact match (%) | spread | from | to | seconds |", f"|{'---|' * 8}"]
    for kind in KINDS:
        exact, seconds = 100.0 * _of(found, kind, "exact"), _of(found, kind, "seconds")
        if len(exact):
            spread = exact.std(ddof=1) if len(exact) > 1 else 0.0
            figures = " | ".join(f"{figure:.1f}" for figure in (exact.mean(), spread, exact.min(), exact.max()))
            parameters = _of(found, kind, "parameters")[0]
            lines.append(f"| {kind} | {parameters:,} | {len(exact)} | {figures} | {seconds.mean():.0f} |")
    lengths = sorted({int(length) for each in found for length in each["by_length"]})
    lines += ["", f"| words | {' | '.join(map(str, lengths))} |", f"|---|{'---|' * len(lengths)}"]
    for kind in KINDS:
        rows = _of(found, kind, "by_length")
        if len(rows):
            means = (np.mean([100.0 * row.get(str(n), np.nan) for row in rows]) for n in lengths)
            lines.append(f"| {kind} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    return "\n".join(lines)


def picture(found: list[dict[str, Any]]) -> Figure:
    """The exact match against the number of words: the mean of the seeds, and the least and the largest."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for kind in KINDS:
        rows = _of(found, kind, "by_length")
        if len(rows):
            lengths = sorted(rows[0], key=int)
            exact = 100.0 * np.array([[row[n] for n in lengths] for row in rows])
            (line,) = axes.plot([int(n) for n in lengths], exact.mean(0), "o-", label=kind)
            axes.fill_between([int(n) for n in lengths], exact.min(0), exact.max(0), alpha=0.15, color=line.get_color())
    axes.set(xlabel="English words in the number", ylabel="exact match (%)")
    axes.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.translators", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="runs of each kind (default: 5)")
    parser.add_argument("--steps", type=int, default=800, metavar="N", help="steps of 64 pairs (default: 800)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures; runs that it already has are not made")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.steps) < 1:
        parser.error("--seeds and --steps must be at least 1")
    try:
        found = read(options.json) if options.json else []
    except ValueError as error:
        parser.error(str(error))
    done = {(each["kind"], each["seed"], each["steps"]) for each in found}
    for seed in range(options.seeds):
        for kind in KINDS:
            if (kind, seed, options.steps) not in done:
                with threadpool_limits(limits=1, user_api="blas"):  # such small matrices gain nothing from a second
                    found.append(json.loads(json.dumps(run(kind, seed, options.steps))))
                if options.json:
                    write(options.json, json.dumps(found, indent=1) + "\n")
    found = [each for each in found if each["steps"] == options.steps and each["seed"] < options.seeds]
    print(table(found))
    if options.out:
        write_figure(options.out, picture(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
