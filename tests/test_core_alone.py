"""The core is complete in itself: without any other room it trains, checks and writes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import minitransformer

PACKAGE = Path(minitransformer.__file__).parent
CORE = ["core", "check/trace", "check/verify", "run/tasks"]
SCRIPT = """
import dataclasses
import sys
from pathlib import Path

import numpy as np

import minitransformer
from minitransformer.check import verify
from minitransformer.core import generation, models, training
from minitransformer.run.tasks import TASKS
from minitransformer.run.tasks.evaluation import classified

assert Path(minitransformer.__file__).parents[1] == Path.cwd(), minitransformer.__file__
SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1, "n_encoder_layers": 1, "n_decoder_layers": 1}
SMALL |= {"max_length": 16, "dropout": 0.0, "share_embeddings": False}
for name in sys.argv[1:]:
    task = TASKS[name]
    rng = np.random.default_rng(0)
    own = {field.name for field in dataclasses.fields(task.config)}
    sizes = {key: value for key, value in SMALL.items() if key in own}
    data = {field.name for field in dataclasses.fields(task.data)}
    chosen = {key: value for key, value in task.presets["numbers"].items() if key in data}
    prepared = task.prepare(task.data(**chosen), sizes, rng)
    model = task.config(**sizes, **prepared.sizes).build(rng).to("numpy", "float32")

    optimizer = training.AdamW(model.parameters(), 1e-2)
    worker = training.Worker(model)
    losses = list(training.train(worker, prepared.training, optimizer, 30, lambda step: 1e-2, clip=1.0))
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5]), (name, losses)

    models.save(model, name, prepared.tokenizers, prepared.labels)
    model = models.load(name).to("numpy", "float64")
    assert models.opening.load_tokenizer(name, "source").tokens == prepared.tokenizers[0].tokens
    rows = prepared.validation.batches(None)[0][:2]
    run = lambda: prepared.validation.loss(model, rows, None)
    verify.gradients(run, parameters=model, entrywise=0, directions=1, intermediates=False).assert_ok()

    if name == "translate":
        assert generation.greedy(model, np.array([[5, 6]]), None, 1, 2, 4).shape[0] == 1
    elif name == "lm":
        assert len(generation.generate(model, [[1, 2, 3]], 4)[0]) == 4
    else:
        assert classified(model, [[5, 6], [7]]) is not None
verify.CASES["softmax"].run().assert_ok()
print("complete:", *sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "lm", "translate"])
def test_the_core_trains_checks_and_writes_without_any_other_room(task, tmp_path):
    for room in CORE:
        shutil.copytree(PACKAGE / room, tmp_path / PACKAGE.name / room)
    for file in ("__init__.py", "moved.py", "check/__init__.py", "run/__init__.py"):
        shutil.copy(PACKAGE / file, tmp_path / PACKAGE.name / file)
    (tmp_path / "alone.py").write_text(SCRIPT)
    command = [sys.executable, "alone.py", task]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": ""})
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"complete: {task}\n"
