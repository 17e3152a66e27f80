"""`train TASK --recipe NAME`: each recipe that suits is trained, resumed, reopened and used; others are refused."""

import contextlib
import io
import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer.cli import main
from minitransformer.core.models import folder
from minitransformer.run.machines.recipes import RECIPES, recipes
from minitransformer.run.machines.run import load
from minitransformer.run.tasks import TASKS

SHORT = "--warmup 1 --validate-every 2 --save-every 2 --learning-rate 0.01 --dropout 0 --d-model 8".split()
# Sizes that make a model small, for each recipe that has them.
SMALL: dict[str, Any] = {
    "n_heads": 2, "d_ff": 12, "n_layers": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "max_length": 16,
    "window": 5, "n_experts": 3, "k": 2, "d_head": 4, "n_states": 2, "n_groups": 1, "d_state": 3,
}  # fmt: skip
CASES = [(task, recipe) for task in ("lm", "translate") for recipe in recipes(TASKS[task])]


def said(*words: Any, status: int = 0) -> str:
    """What a command printed, and its error."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        assert main([str(word) for word in words]) == status, out.getvalue()
    return out.getvalue()


def command(task: str, recipe: str, tmp_path: Path) -> list[str]:
    known = {field.name for field in fields(RECIPES[recipe])}
    sizes = {name: value for name, value in SMALL.items() if name in known}
    data = {
        "lm": {"text": "abcd efgh\n" * 30},
        "translate": {"source": "a b c\nc a\n" * 9, "target": "x y\nz x y\n" * 9},
    }
    words = ["train", task, "--recipe", recipe, "--out", str(tmp_path / "run"), *SHORT]
    for name, text in data[task].items():
        for part in (name,) if task == "lm" else (name, f"valid-{name}"):
            (tmp_path / part).write_text(text, encoding="utf-8")
            words += [f"--{part}", str(tmp_path / part)]
    words += ["--tokenizer", "words"] if task == "translate" else []
    return words + [word for name, value in sizes.items() for word in ("--" + name.replace("_", "-"), str(value))]


@pytest.mark.few(0, slow=14)
@pytest.mark.parametrize(("task", "recipe"), CASES)
def test_a_recipe_is_trained_resumed_reopened_and_used(task: str, recipe: str, tmp_path: Path) -> None:
    words = command(task, recipe, tmp_path)
    said(*words, "--steps", 4, "--average", 2)  # which keeps two checkpoints
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"] == recipe
    began = folder.load(tmp_path / "run")
    assert type(began.config) is RECIPES[recipe]
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000004")
    assert "continuing after step 2 of 4" in said("train", task, "--resume", "--out", tmp_path / "run")
    again = folder.load(tmp_path / "run")
    assert again.config == began.config
    for name, value in began.state().items():
        np.testing.assert_array_equal(again.state()[name], value)
    if task == "lm":
        assert said("generate", "--model", tmp_path / "run", "abcd", "--tokens", 6).startswith("abcd")
        assert "loss" in said("evaluate", "--model", tmp_path / "run", "--text", tmp_path / "text")
    else:
        assert set(said("translate", "--model", tmp_path / "run", "a b").splitlines()[-1]) <= set("abcxyz ")


@pytest.mark.slow
def test_the_first_steps_of_a_recipe_are_those_of_its_config(tmp_path: Path) -> None:
    """The flags reach the model: two heads of keys for four of queries, and another base of the angles."""
    words = command("lm", "llama", tmp_path) + "--n-heads 4 --n-key-heads 2 --rotary-base 500 --steps 2".split()
    said(*words)
    config: Any = folder.load(tmp_path / "run").config
    assert (config.n_heads, config.n_key_heads, config.rotary_base, config.d_model) == (4, 2, 500.0, 8)
    assert (config.max_length, config.window) == (16, 5)


def test_a_window_of_text_is_as_long_as_the_recipe_reads(tmp_path: Path) -> None:
    """Where max_length is not given, it is the recipe's: 2048 for Llama, and not GPT-2's 1024."""
    (tmp_path / "text").write_text("ab" * 8000, encoding="utf-8")
    words = ["train", "lm", "--recipe", "llama", "--text", tmp_path / "text", *SHORT, "--n-layers", 1, "--d-ff", 8]
    words += ["--n-heads", 2, "--out", tmp_path / "run", "--steps", 2]
    assert "a window of max_length 2048" in said(*words, status=1)


def test_help_shows_the_options_of_the_recipe() -> None:
    for recipe, there, absent in (
        (None, "--norm-order STR (default: pre)", "--rotary-base"),
        ("llama", "--rotary-base FLOAT (default: 10000.0)", "--norm-order"),
    ):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
            main(["train", "lm", *(["--recipe", recipe] if recipe else []), "--help"])
        text = re.sub(r"(?<=\w)-\s+", "-", " ".join(out.getvalue().split()))  # a line may end at the hyphen of a name
        assert there in text and absent not in text
        assert f"model: {recipe or 'gpt2'}" in text
        assert (", ".join(recipes(TASKS["lm"])) in text) == (recipe is not None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lm --recipe lama", f"no recipe of lm is called 'lama'; choose one of {', '.join(recipes(TASKS['lm']))}"),
        ("lm --recipe t5", "no recipe of lm is called 't5'; choose one of gpt2, "),
        ("translate --recipe llama", "no recipe of translate is called 'llama'; choose one of transformer, bart"),
        ("classify --recipe gpt2", "no recipe of classify is called 'gpt2'; choose one of classifier"),
        ("lm --recipe llama --norm-order pre", "unrecognized arguments: --norm-order pre"),
        ("lm --rotary-base 9", "unrecognized arguments: --rotary-base 9"),
        ("lm --recipe", "argument --recipe: expected one argument; see minitransformer train lm --help"),
        ("lm --re llama", "ambiguous option: --re could match --recipe, --resume"),
        ("translate --recipe t5", "one vocabulary for both sides; give --joint"),
    ],
)
def test_what_does_not_suit_is_refused(words: str, message: str, tmp_path: Path) -> None:
    status = 1 if "--joint" in message else 2
    assert message in said("train", *words.split(), "--out", tmp_path / "run", status=status)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
def test_a_shortened_flag_names_the_recipe_and_resume_refuses_another_and_settings_it_does_not_have(
    tmp_path: Path,
) -> None:
    words = command("lm", "llama", tmp_path)
    words[words.index("--recipe")] = "--reci"
    said(*words, "--steps", 2)
    assert load(tmp_path / "run").task.config is RECIPES["llama"]
    resume = ["train", "lm", "--resume", "--out", tmp_path / "run"]
    assert "has recipe llama, not gpt2" in said(*resume, "--recipe", "gpt2", status=2)
    assert "has norm_order None, not post" in said(*resume, "--norm-order", "post", status=2)


@pytest.mark.parametrize(
    ("kind", "recipe", "own"),
    [
        (None, "transformer", {"n_heads": 2, "norm_order": "pre"}),
        ("transformer", "transformer", {"n_heads": 2, "norm_order": "pre"}),
        ("convolution", "convolutional", {"n_heads": 2, "norm_order": "pre"}),
        ("lstm", "recurrent", {"attention": "none"}),
        ("lstm-attention", "recurrent", {}),
    ],
)
def test_a_run_that_names_no_recipe_reopens(kind: str | None, recipe: str, own: dict[str, Any], tmp_path: Path) -> None:
    """An earlier version had a setting `model` for the kind of translator, or none."""
    sizes = {"d_model": 8, "n_heads": 2, "norm_order": "pre"} | ({} if kind is None else {"model": kind})
    document = {"format": 1, "task": "translate", "data": {}, "model": sizes, "training": {}, "files": {}}
    (tmp_path / "run.json").write_text(json.dumps(document), encoding="utf-8")
    run = load(tmp_path)
    assert run.task.config is RECIPES[recipe]
    assert run.model == {"d_model": 8} | own
    run.task.config(9, 9, **run.model).build()


def test_a_run_of_an_unknown_recipe_is_refused(tmp_path: Path) -> None:
    document = {"format": 1, "task": "lm", "recipe": "t5", "data": {}, "model": {}, "training": {}, "files": {}}
    (tmp_path / "run.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run.json does not describe a run: no recipe of lm is called 't5'"):
        load(tmp_path)


def test_every_recipe_suits_one_task() -> None:
    assert sorted(name for task in TASKS.values() for name in recipes(task)) == sorted(RECIPES)
