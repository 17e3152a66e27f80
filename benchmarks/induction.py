"""Which heads of a real language model do induction, and do they matter? python -m benchmarks.induction --model FILE

Each head gets a score on random texts that repeat (minitransformer/school/inspect/scores.py). Then, on fresh texts, the
loss on the second copy is measured with all heads, without the highest ones, and without as many others drawn at
random, from the same layers and from anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from minitransformer import inspect
from minitransformer.core.arrays.files import write
from minitransformer.models import LanguageModel, load
from minitransformer.run.machines.locks import write_figure


def measure(
    model: LanguageModel, n_heads: int = 8, draws: int = 10, period: int = 25, batch: int = 4
) -> dict[str, Any]:
    """The score of every head, and for each draw, which has texts of its own, the losses in nats per token."""
    rng = np.random.default_rng(0)

    def texts() -> np.ndarray:
        return inspect.repeated(model.config.vocabulary, period, batch, rng)

    def loss(ids: np.ndarray, removed: list[tuple[int, int]]) -> float:
        wanted = ids[:, 1:].copy()
        wanted[:, : period - 1] = -100  # the first copy cannot be predicted
        with inspect.ablate(model, removed):
            return float(model.loss(ids[:, :-1], wanted)[0])

    scores = inspect.induction_score(inspect.heads(model, texts()).weights, period).mean(axis=1)
    order = [(int(i) // scores.shape[1], int(i) % scores.shape[1]) for i in np.argsort(-scores, axis=None)]
    top, others = order[:n_heads], order[n_heads:]
    losses = []
    for _ in range(draws):
        ids = texts()
        random = []
        for layer, _ in top:
            same = [head for head in others if head[0] == layer and head not in random]
            free = same or [head for head in others if head not in random]
            random.append(free[rng.integers(len(free))])
        anywhere = [others[i] for i in rng.choice(len(others), n_heads, replace=False)]
        losses.append([loss(ids, removed) for removed in ([], top, random, anywhere)])
    return {"scores": scores.tolist(), "top": top, "losses": losses, "period": period, "texts": batch}


NAMES = ("all heads", "without the highest", "without others of these layers", "without any others")


def table(found: dict[str, Any]) -> str:
    """The losses as a table: mean and standard deviation over the draws, and the least and the largest."""
    losses, lines = np.array(found["losses"]), ["| | loss | spread | from | to |", "|---|---|---|---|---|"]
    for name, column in zip(NAMES, losses.T, strict=True):
        spread = column.std(ddof=1)
        lines.append(f"| {name} | {column.mean():.2f} | {spread:.2f} | {column.min():.2f} | {column.max():.2f} |")
    scores = np.array(found["scores"])
    shown = ", ".join(f"{layer}.{head} {scores[layer, head]:.2f}" for layer, head in found["top"])
    above = " ".join(f"{(scores > limit).sum()} above {limit}," for limit in (0.2, 0.5))
    return "\n".join([f"heads: {scores.size}, {above} the highest: {shown}", "", *lines])


def picture(found: dict[str, Any]) -> Figure:
    """The histogram of the scores, and the losses of each draw."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(np.ravel(found["scores"]), bins=np.linspace(0.0, 1.0, 41), log=True)
    left.set(xlabel="induction score", ylabel="heads", title=f"{np.size(found['scores'])} heads")
    right.plot(np.array(found["losses"]), "o-", label=NAMES)
    right.set(xlabel="draw", ylabel="loss on the second copy (nats)", ylim=(0.0, 1.4 * np.max(found["losses"])))
    right.legend(fontsize="small", ncols=2, loc="upper center")
    return figure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.induction", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a .gguf file or a folder of Hugging Face's")
    parser.add_argument("--heads", type=int, default=8, metavar="N", help="how many heads to remove (default: 8)")
    parser.add_argument("--draws", type=int, default=10, metavar="N", help="texts and random heads (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)
    try:
        model = load(options.model, LanguageModel)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    found = measure(model, options.heads, options.draws)
    print(table(found))
    if options.json:
        write(options.json, json.dumps(found) + "\n")
    if options.out:
        write_figure(options.out, picture(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
