"""The whole on one page, notebooks/gpt2.py: the same numbers as the package, short, and with NumPy alone."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from common import code_of

from minitransformer import models, training
from minitransformer.layers import Parameter

FILE = Path(__file__).parent.parent / "notebooks" / "gpt2.py"
SOURCE = FILE.read_text(encoding="utf-8")
PARTS = {  # of a layer: what the page calls them, and the package
    "norm_1": "self_attention.norm",
    "query": "self_attention.sublayer.query",
    "key": "self_attention.sublayer.key",
    "value": "self_attention.sublayer.value",
    "output": "self_attention.sublayer.output",
    "norm_2": "feed_forward.norm",
    "inner": "feed_forward.sublayer.inner",
    "outer": "feed_forward.sublayer.output",
}


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return code_of(FILE)


def a_model(rng: np.random.Generator) -> models.LanguageModel:
    """A small GPT-2 in float64. No two sizes are equal, and no parameter is as it was built: zeros and ones hide."""
    sizes: dict[str, Any] = {"vocabulary": 11, "max_length": 9, "d_model": 6, "n_heads": 3, "d_ff": 10, "n_layers": 2}
    config = models.LanguageModelConfig(**sizes, dropout=0.0, attention_dropout=0.0)
    model = models.LanguageModel(config, rng).to(dtype="float64")
    for _, p in model.parameters():
        p.value += rng.normal(0.0, 0.5, p.value.shape)
    return model


def as_page(arrays: dict[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """The arrays of a LanguageModel under the page's names, all of them."""
    left = dict(arrays)

    def both(part: str) -> list[np.ndarray]:
        names = ("gamma", "beta") if "norm" in part else ("weight", "bias")
        return [left.pop(f"{part}.{name}") for name in names]

    found = {
        "embedding": [left.pop("tokens.table"), left.pop("embed.positions.table")],
        "norm": both("stack.final_norm"),
    }
    for i in range(2):
        found |= {f"{i}.{name}": both(f"stack.layers.{i}.{part}") for name, part in PARTS.items()}
    assert not left
    return found


def test_loss_and_every_gradient_are_those_of_the_package(page: ModuleType) -> None:
    rng = np.random.default_rng(0)
    model = a_model(rng)
    p = as_page(model.state())
    windows = rng.integers(0, 5, (2, 6))  # five tokens at ten places: they repeat
    ids, wanted = windows[:, :-1], windows[:, 1:]

    loss, backward = model.loss(ids, wanted)
    backward(1.7)
    logits, page_backward = page.gpt2(ids, p, 3)
    page_loss, loss_backward = page.cross_entropy(logits, wanted.reshape(-1))
    dp = page_backward(loss_backward(1.7))

    assert abs(page_loss - loss) < 1e-12
    wanted_gradients = as_page({name: q.grad for name, q in model.parameters()})
    assert dp.keys() == p.keys() == wanted_gradients.keys()
    for name, arrays in wanted_gradients.items():
        for here, there in zip(dp[name], arrays, strict=True):
            assert np.abs(here - there).max() < 1e-12, name
        if not name.endswith("key"):  # a bias of the keys moves all scores of a query alike, and softmax ignores that
            assert all(np.abs(there).max() > 1e-3 for there in arrays), name


def test_adamw_is_that_of_the_package(page: ModuleType) -> None:
    rng = np.random.default_rng(0)
    parameters = {"matrix": Parameter(rng.normal(size=(3, 4))), "vector": Parameter(rng.normal(size=5))}
    here = {name: q.value.copy() for name, q in parameters.items()}
    state = {name: [np.zeros_like(q.value), np.zeros_like(q.value)] for name, q in parameters.items()}
    optimizer = training.AdamW(parameters.items(), 0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step in range(1, 11):
        for name, q in parameters.items():
            q.grad[...] = rng.normal(size=q.value.shape)
            page.adamw(here[name], q.grad, *state[name], step, rate=0.01 * step)
        optimizer.step(0.01 * step)
    for name, q in parameters.items():
        assert np.abs(here[name] - q.value).max() < 1e-12


def test_a_short_training_learns_and_writes(page: ModuleType) -> None:
    rng = np.random.default_rng(0)
    ids = np.tile(np.arange(5), 60)  # what comes next is certain
    p = page.new_model(rng, vocabulary=5, length=8, width=16, n_layers=1)
    losses = list(page.train(p, ids, rng, n_heads=2, length=8, rows=4, steps=60, peak=0.02))
    assert len(losses) == 60 and losses[0] > 1.0 > 0.1 > losses[-1]
    assert page.loss_on(ids, p, 2, 8) < 0.1
    assert list(page.write([3], 12, p, rng, 2, 8)) == [4, 0, 1, 2, 3] * 2 + [4, 0]
    assert all(array.dtype == np.float32 for part in p.values() for array in part)


def test_it_fits_on_the_page_and_imports_numpy_alone() -> None:
    assert len(SOURCE.splitlines()) <= 300
    imported = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0
            imported.add(node.module.partition(".")[0])
    assert "numpy" in imported and imported - {"numpy"} <= set(sys.stdlib_module_names)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(FILE), *arguments], capture_output=True, text=True)


def refused(page: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says, on one line below the usage, to arguments that it refuses."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(sys, "argv", ["gpt2.py", *arguments])
        page.main()
    assert left.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_what_it_cannot_use_is_refused_in_a_line(
    page: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, binary, long = tmp_path / "short.txt", tmp_path / "binary", tmp_path / "long.txt"
    short.write_text("too short", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe\x00" * 300)
    long.write_text("abc " * 300, encoding="utf-8")
    assert "No such file" in refused(page, capsys, str(tmp_path / "none.txt"))
    assert "cannot read" in refused(page, capsys, str(tmp_path))
    assert "cannot read" in refused(page, capsys, str(binary))
    assert "got 9 characters" in refused(page, capsys, str(short))
    assert "-3 steps" in refused(page, capsys, str(long), "--steps", "-3")
    assert "'x'" in refused(page, capsys, str(long), "--begin", "x")
    assert "''" in refused(page, capsys, str(long), "--begin", "")


@pytest.mark.slow
def test_it_runs_as_a_program(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six seven eight nine ten\n" * 40, encoding="utf-8")
    done = run(str(text), "--steps", "30", "--begin", "one")
    assert done.returncode == 0 and done.stderr == ""
    first, last, written = done.stdout.split("\n", 2)
    assert (
        first.startswith("step 1: loss ")
        and last.startswith("step 30: loss ")
        and written.startswith("one")
        and len(written) == 3 + 400 + 1
    )
