"""The cases: what each one is called, its sizes, and the programs that run it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TRAINING = ("ours", "eager", "compiled", "jax")


@dataclass(frozen=True)
class Case:
    """One comparison. family: the file in this folder; sizes: the arguments of its Sizes; tokens: the number of tokens
    per run, if tokens per second are of interest; goal: the largest allowed ratio of our time to PyTorch eager's;
    tolerance: the largest allowed gap between the results of ours and eager, as a share of the largest number.
    """

    name: str
    title: str
    family: str
    sizes: dict[str, Any]
    programs: tuple[str, ...] = ("ours", "eager", "compiled")
    tokens: int | None = None
    goal: float | None = None
    tolerance: float = 1e-4

    def count(self, what: str, *arguments: Any) -> float | None:
        """The result of the family's function of that name ("operations", "traffic", "needs"); None if it has none."""
        module = importlib.import_module(f"{__name__}.{self.family}")
        function = getattr(module, what, None)
        return function(*arguments, module.Sizes(**self.sizes)) if function else None


def _language_model(name: str, n_layers: int, n_heads: int, width: int, length: int, batch: int) -> Case:
    title = f"GPT, {n_layers} layers, {n_heads} heads, width {width}, T {length}, batch {batch}"
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "width": width, "length": length, "batch": batch}
    return Case(name, title, "language_model", sizes, TRAINING, batch * length, goal=0.8)


def _with_dropout(name: str, title: str, family: str, tokens: int, goal: float, **sizes: int) -> Case:
    return Case(f"dropout-{name}", f"{title}, dropout 0.1", family, sizes | {"dropout": 0.1}, TRAINING, tokens, goal)


def _gpt2(timed: str, batch: int) -> Case:
    tokens, what, goal = (256, "prefill of 256 tokens", 0.8) if timed == "prefill" else (64, "64 tokens written", 0.5)
    title = f"GPT-2 124M, {what}, batch {batch}"
    sizes = {"timed": timed, "batch": batch}
    goal_here = goal if timed == "prefill" or batch == 1 else None
    programs = ("ours", "eager") if timed == "prefill" else ("ours", "eager", "reading")
    return Case(f"gpt2-{timed}-{batch}", title, "gpt2", sizes, programs, batch * tokens, goal_here)


def _attention(length: int) -> Case:
    title = f"attention, 8 heads of 64, causal, T {length}"
    return Case(f"attention-{length}", title, "attention", {"length": length}, ("ours", "textbook", "eager"), goal=1.0)


def _card(precision: str, tolerance: float) -> Case:
    title = f"a step of GPT-2 124M, T 1024, batch 8, {precision}, on a graphics card"
    programs = ("ours", "eager", "compiled", "products")
    return Case(f"card-{precision}", title, "card", {"precision": precision}, programs, 8 * 1024, 1.25, tolerance)


CASES: Sequence[Case] = (
    _language_model("gpt-128", 4, 4, 128, 64, 16),
    _language_model("gpt-384", 6, 6, 384, 256, 8),
    _language_model("gpt-64", 2, 4, 64, 32, 16),
    Case(
        "translator",
        "Transformer-Tiny (4 + 4 layers, width 128), vocabulary 10000, 64 pairs of at most 24 tokens",
        "translator",
        {"n_layers": 4, "n_heads": 4, "width": 128, "d_ff": 256, "length": 24, "batch": 64, "vocabulary": 10_000},
        TRAINING,
        tokens=2 * 64 * 24,
        goal=0.8,
    ),
    Case(
        "classifier",
        "encoder classifier, 4 layers, width 256, T 128, batch 16",
        "classifier",
        {"n_layers": 4, "n_heads": 4, "width": 256, "length": 128, "batch": 16},
        TRAINING,
        tokens=16 * 128,
        goal=0.8,
    ),
    _with_dropout(
        "gpt-96",
        "GPT, 4 layers, width 96, T 48, batch 16",
        "language_model",
        16 * 48,
        0.6,
        **{"n_layers": 4, "n_heads": 4, "width": 96, "length": 48, "batch": 16},
    ),
    _with_dropout(
        "gpt-256",
        "GPT, 4 layers, width 256, T 512, batch 2",
        "language_model",
        2 * 512,
        0.42,
        **{"n_layers": 4, "n_heads": 8, "width": 256, "length": 512, "batch": 2},
    ),
    _with_dropout(
        "translator-192",
        "encoder-decoder, 3 + 3 layers, width 192, vocabulary 8000, 32 pairs of at most 24 tokens",
        "translator",
        2 * 32 * 24,
        0.6,
        **{"n_layers": 3, "n_heads": 6, "width": 192, "d_ff": 768, "length": 24, "batch": 32, "vocabulary": 8000},
    ),
    _with_dropout(
        "classifier-512",
        "encoder classifier, 4 layers, width 512, T 128, batch 4",
        "classifier",
        4 * 128,
        0.7,
        **{"n_layers": 4, "n_heads": 8, "width": 512, "length": 128, "batch": 4, "vocabulary": 8000},
    ),
    Case(
        "adamw",
        "AdamW alone, 10M parameters in 20 arrays",
        "optimizer",
        {"matrices": 10, "width": 1000},
        ("ours", "eager"),
        None,
        1.0,
    ),
    _gpt2("prefill", 1),
    _gpt2("prefill", 8),
    _gpt2("decode", 1),
    _gpt2("decode", 8),
    *(_attention(2**k) for k in range(8, 14)),
)


# They round the entries of matrices: not at all, to 11 bits in products, to 11 bits everywhere.
CARD_CASES: Sequence[Case] = (_card("float32", 1e-4), _card("tf32", 2e-3), _card("float16", 1e-2))


def named(names: Sequence[str]) -> list[Case]:
    """The cases whose names begin with one of `names`, in their own order. Without names, all except the card's.

    Raises ValueError for a name with which no case begins.
    """
    every = [*CASES, *CARD_CASES]
    for name in names:
        if not any(case.name.startswith(name) for case in every):
            known = ", ".join(case.name for case in every)
            raise ValueError(f'no case begins with "{name}"; there are: {known}, and growth and kernels')
    return [case for case in every if any(case.name.startswith(name) for name in names)] if names else list(CASES)
