"""`minitransformer demo`: a tour in two minutes. It shows the worked example, checks every op, and trains a
Transformer to translate.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from ..check.verify import CASES, values_inside
from ..core.arrays.backend import to_device
from ..core.generation import greedy
from ..core.models import Transformer, TransformerConfig, save
from ..core.text import END, PAD, START, NumberTask, WordTokenizer, english, german, padded
from ..core.training import Accelerate, AdamW, as_written
from ..run.machines.locks import write_figure
from ..school.course.worked_example import EXAMPLES
from . import Options
from .common import in_range, progress_bar, speed

Say = Callable[[str], None]
_SMOOTHING = 0.1
_SHOWN = (31, 1984, 70615, 99999)


def main(options: Options) -> int:
    in_range(options, "steps", 1)
    began = time.perf_counter()
    right = run(options.out, options.seed, options.steps, options.device, speed(options))
    print(f"\ndone in {time.perf_counter() - began:.0f} s")
    return 0 if right else 1


def run(
    out: Path, seed: int = 0, steps: int = 400, device: str = "numpy", fast: Accelerate = as_written, say: Say = print
) -> bool:
    """Run all three parts and save the pictures and the model in `out`. Returns whether every gradient was right."""
    out.mkdir(parents=True, exist_ok=True)
    say("1. The worked example\n")
    for example in EXAMPLES:
        say(f"{example}\n")
    say("2. Every op against finite differences: inputs and every named intermediate\n")
    right = _check_ops(device, say)
    say(f"\n3. A Transformer learns to translate English numbers to German ({device}, seed {seed})\n")
    with threadpool_limits(limits=1, user_api="blas"):  # such small matrices gain nothing from a second thread
        _translate_numbers(out, seed, steps, device, fast, say)
    return right


def _check_ops(device: str, say: Say) -> bool:
    cases = [case for case in CASES.values() if case.kind == "op"]
    reports = [case.run(device=device) for case in progress_bar("check", "op")(cases)]
    width = max(len(report.name) for report in reports)
    say(f"   {'':<{width}}  gradients    error")
    for report in reports:
        say(f"   {report.name:<{width}}  {len(report.rows):9d}  {report.max_error:7.1e}  {report.verdict}")
    right = all(report.ok for report in reports)
    say(f"\n   {'all ok' if right else 'not all of them ok: run `minitransformer check` to see where'}")
    return right


def _translate_numbers(out: Path, seed: int, steps: int, device: str, accelerate: Accelerate, say: Say) -> None:
    rng = np.random.default_rng(seed)
    task = NumberTask.draw(n_training=8000, n_unseen=1000, limit=100_000, rng=rng)
    sizes: dict[str, Any] = {"d_model": 64, "n_heads": 4, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2}
    more: dict[str, Any] = {"dropout": 0.0, "norm_order": "pre", "share_embeddings": False}
    model = Transformer(TransformerConfig(len(task.source), len(task.target), **sizes, **more), rng).to(device)
    n_parameters = sum(parameter.value.size for _, parameter in model.parameters())
    say(f"   {n_parameters:,} parameters; {len(task.training)} numbers below 100,000 to learn from")

    fast = accelerate(model)
    optimizer = accelerate(AdamW(model.parameters(), learning_rate=3e-3, betas=(0.9, 0.98), eps=1e-9))
    losses = _train(fast, optimizer, task, steps, rng, device)
    from ..school.show import plots  # here, because it imports matplotlib

    write_figure(out / "loss.png", plots.training_curve(range(1, steps + 1), losses, _lowest_loss(len(task.target))))

    said = _translate(fast, task, task.unseen, device)
    wanted = [german(number) for number in task.unseen]
    exact = sum(a == b for a, b in zip(said, wanted, strict=True)) / len(wanted)
    import sacrebleu  # here, because it is missing in a browser

    metric = sacrebleu.BLEU(tokenize="none")
    bleu = metric.corpus_score([" ".join(s) for s in said], [[" ".join(w) for w in wanted]])
    say(f"   {len(wanted)} numbers never seen in training: {exact:.1%} exact, BLEU {bleu.score:.1f} over word parts")
    say(f"   ({metric.get_signature()})\n")
    for number, translation in zip(_SHOWN, _translate(fast, task, _SHOWN, device), strict=True):
        seen = "seen in training" if number in task.training else "never seen"
        verdict = "right" if translation == german(number) else f"wrong: it is {''.join(german(number))}"
        say(f"   {number:6d}  {' '.join(english(number))}")
        say(f"           {''.join(translation) or '(nothing)'}  ({seen}, {verdict})")

    _draw_cross_attention(model, task, 54321, out / "cross_attention.png", device)
    save(model, out / "model", [WordTokenizer(task.source), WordTokenizer(task.target)])
    say(f"\n   pictures: {out / 'cross_attention.png'}, {out / 'loss.png'}")
    say(f'   see where it looks: minitransformer view --model {out / "model"} "forty two"')
    say(f'   and how it computes: minitransformer step --model {out / "model"} "forty two" --html step.html')


def _lowest_loss(n_tokens: int) -> float:
    """The loss of a perfect model. With label smoothing it is not 0: it is the entropy of the smoothed target."""
    likely, unlikely = 1.0 - _SMOOTHING + _SMOOTHING / n_tokens, _SMOOTHING / n_tokens
    return -likely * math.log(likely) - (n_tokens - 1) * unlikely * math.log(unlikely)


def _train(
    model: Transformer, optimizer: AdamW, task: NumberTask, steps: int, rng: np.random.Generator, device: str
) -> list[float]:
    sources = [task.source.encode(english(number)) for number in task.training]
    targets = [task.target.encode(german(number)) for number in task.training]
    losses = []
    with tqdm(range(1, steps + 1), desc="train", unit="step", leave=False, disable=None) as bar:
        for step in bar:
            batch = rng.choice(len(sources), 64)
            source = to_device(padded([sources[i] for i in batch]), device)
            target = to_device(padded([[START, *targets[i]] for i in batch]), device)
            wanted = to_device(padded([[*targets[i], END] for i in batch]), device)
            model.zero_grad()
            loss, backward = model.loss(
                source, target, wanted, source_mask=source != PAD, ignore_index=PAD, label_smoothing=_SMOOTHING, rng=rng
            )
            backward()
            # A short warm-up, then straight down to a tenth: enough for a few hundred steps.
            optimizer.step(3e-3 * min(step / 50, 1.0 - 0.9 * step / steps))
            losses.append(float(loss))
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return losses


def _translate(model: Transformer, task: NumberTask, numbers: tuple[int, ...], device: str) -> list[list[str]]:
    source = to_device(padded([task.source.encode(english(number)) for number in numbers]), device)
    ids = greedy(model, source, source != PAD, START, END, max_length=20)
    return [task.target.decode(row) for row in ids]


def _draw_cross_attention(model: Transformer, task: NumberTask, number: int, path: Path, device: str) -> None:
    """Where each head of the last layer looks in the English words while it writes each German part."""
    words, parts = english(number), german(number)
    memory = model.encode(to_device(padded([task.source.encode(words)]), device))[0]
    target = to_device(padded([[START, *task.target.encode(parts)]]), device)
    weights = values_inside("weights", model.decode, target, memory)  # for each layer: self-attention, cross-attention
    from ..school.show import plots  # here, because it imports matplotlib

    write_figure(path, plots.attention_maps(weights[-1][0], [*parts, "<end>"], words))
