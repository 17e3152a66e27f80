"""The core is complete in itself: without any other room it trains, checks and writes, and it imports none of them."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_packaging import SOURCES, imports

import minitransformer
from minitransformer import ideas
from minitransformer.run.tasks import TASKS

PACKAGE = Path(minitransformer.__file__).parent
CORE = ["core", "check/trace", "check/verify", "run/tasks"]
# What came after the paper or before it, in words. The names of the parts are added to them below.
WORDS = r"""alibi softcap\w* rotary rope sinks? longformer streamingllm swiglu geglu
lstms? grus? rnns? recurrent experts?
flash convolutions? convolutional muon grouped mamba qwen\d? mistral deepseek t5 marian pegasus gguf"""
ORDINARY = set(
    "angles around cases chat clip conversation decoder families family fields heads local names opening pre_norm "
    "presets pretrained rotate tasks text_encoder tokenizers translators unknown window".split()
)
TITLES = ("Convolutional Sequence to Sequence Learning", "recurrent neural networks")  # of works that the core cites
OWN = {"gpt2", "bert"}  # whose forms two of the core's own models have
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


def test_there_are_three_tasks():
    assert sorted(TASKS) == ["classify", "lm", "translate"]


def other_rooms(name: str, source: str) -> set[str]:
    """What a file of the package imports from outside of the core, wherever in the file it does so."""
    by_name = re.findall(r"import_module\(['\"]([\w.]+)", source)
    paths = [*imports(name, source), *(tuple(path.split(".")) for path in by_name)]
    found = {".".join(path[1:]) for path in paths if path[0] == PACKAGE.name and len(path) > 1}
    own = tuple(f"{room.replace('/', '.')}." for room in (*CORE, "moved"))
    return {path for path in found - {"__version__"} if not f"{path}.".startswith(own)}


@pytest.mark.parametrize("room", CORE)
def test_the_core_imports_no_other_room(room):
    for name in (name for name in SOURCES if name.startswith(f"{room}/")):
        assert other_rooms(name, SOURCES[name]) == set(), name


@pytest.mark.parametrize(
    "source",
    [
        "from ...ideas import rotary",
        "from ... import ideas",
        "def f():\n    import minitransformer.ideas.after.rotary",
        "def f():\n    return import_module('minitransformer.ideas')",
    ],
)
def test_an_import_of_another_room_is_seen(source):
    assert {path.split(".")[0] for path in other_rooms("core/ops/softmax.py", source)} == {"ideas"}


@functools.cache
def later_ideas() -> re.Pattern[str]:
    """Words that speak of what is not in the paper: names of parts and of files outside the core, and WORDS."""
    stems = {
        path.stem for room in ("before", "after", "published") for path in (PACKAGE / "ideas" / room).glob("[a-z]*.py")
    }
    plain = {re.escape(stem).replace("_", "[-_ ]?") for stem in stems - ORDINARY - OWN}
    parts = {name for name in ideas.__all__ if re.search(r"_|[a-z][A-Z]", name)}
    return re.compile(rf"\b({'|'.join(sorted({*plain, *parts, *WORDS.split()}))})\b", re.IGNORECASE)


def named_in(text: str) -> list[str]:
    """The lines that name a later idea. A sentence that says where such ideas are, in ideas/, may do so."""
    for title in TITLES:
        text = text.replace(title, "")
    return [line for line in text.splitlines() if later_ideas().search(line) and "ideas/" not in line]


@pytest.mark.parametrize("room", CORE)
def test_the_core_names_no_later_idea(room):
    for path in sorted((PACKAGE / room).rglob("*")):
        if path.suffix in (".py", ".txt", ".json"):
            assert named_in(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize(
    "line",
    [
        "The op is ops.rotary.",
        "as Llama's checkpoints have it",
        "alibi: bool = False",
        "class GatedFeedForward:",
        "gradients: sink_attention",
        "a mixture of experts",
    ],
)
def test_a_later_idea_is_seen(line):
    assert named_in(line) == [line]


def test_where_later_ideas_are_may_be_said():
    assert named_in("The paper turns nothing; ideas/ has rotary positions.\nscores = q @ k.T\nGPT-2") == []
