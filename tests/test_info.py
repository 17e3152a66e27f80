"""What a model costs: counted from its sizes, against what the real model has.

test_costs_of_recipes.py holds FLOPs and activations to what these models, and all others, compute and keep.
"""

import dataclasses
import json
import math

import numpy as np
import pytest
from tiers import in_one

from minitransformer import models
from minitransformer.cli import main
from minitransformer.core.models.folder import save
from minitransformer.models import ClassifierConfig, LanguageModelConfig, TransformerConfig
from minitransformer.run.cost import describe
from minitransformer.run.tasks import TASKS

B, T = 3, 5
SMALL = {"d_model": 12, "n_heads": 3, "d_ff": 20}
STACKS = {"n_encoder_layers": 2, "n_decoder_layers": 3}
CONFIGS = {
    "Transformer": TransformerConfig(11, 11, **SMALL, **STACKS),
    "Transformer, pre, dropout everywhere": TransformerConfig(
        11, 11, **SMALL, **STACKS, norm_order="pre", attention_dropout=0.2
    ),
    "Transformer, no dropout": TransformerConfig(11, 11, **SMALL, **STACKS, dropout=0.0),
    "Transformer, three tables": TransformerConfig(
        7, 11, **SMALL, **STACKS, share_embeddings=False, tie_output=False, activation="gelu"
    ),
    "Transformer, recomputed": TransformerConfig(11, 11, **SMALL, **STACKS, recompute=True),
    "Transformer, pre, recomputed": TransformerConfig(
        11, 11, **SMALL, **STACKS, norm_order="pre", recompute=True, attention_dropout=0.1
    ),
    "LanguageModel": LanguageModelConfig(9, max_length=8, n_layers=2, **SMALL),
    "LanguageModel, no biases, no dropout": LanguageModelConfig(
        9, max_length=8, n_layers=2, **SMALL, bias=False, dropout=0.0, attention_dropout=0.0
    ),
    "LanguageModel, post, silu": LanguageModelConfig(
        9, max_length=8, n_layers=2, **SMALL, norm_order="post", activation="silu"
    ),
    "LanguageModel, recomputed": LanguageModelConfig(9, max_length=8, n_layers=3, **SMALL, recompute=True),
    "Classifier": ClassifierConfig(10, 4, n_layers=2, **SMALL),
    "Classifier, post, relu": ClassifierConfig(10, 4, n_layers=2, **SMALL, norm_order="post", activation="relu"),
    "Classifier, recomputed": ClassifierConfig(10, 4, n_layers=2, **SMALL, recompute=True),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def real(config):
    return getattr(models, type(config).__name__.removesuffix("Config"))(config, np.random.default_rng(0))


@each_config
def test_formulas_give_the_numbers(config) -> None:
    info = describe(config, B, T)
    for part in info.parts:
        if part.formula:
            expression = part.formula.replace("·", "*").replace("²", "**2")
            assert part.flops == part.copies * eval(expression, {"B": B, "T": T}), part.name
        else:
            assert part.flops == 0


def test_the_formula_of_attention_is_that_of_the_textbook() -> None:
    """8·B·T·D² + 4·B·T²·D and 4·B·T·D·F."""
    formulas = {part.name: part.formula for part in describe(CONFIGS["LanguageModel"], B, T).parts}
    assert formulas["stack.layers.*.self_attention"] == f"{8 * 12 * 12}·B·T + {4 * 12}·B·T²"
    assert formulas["stack.layers.*.feed_forward"] == f"{4 * 12 * 20}·B·T"


@each_config
def test_outputs_have_the_shapes_of_the_real_model(config) -> None:
    info = describe(config, B, T)
    shapes = {part.output for part in info.parts if part.name != "loss"}
    last = info.parts[-2].output
    if isinstance(config, TransformerConfig):
        ids = np.ones((B, T), int)
        assert real(config)(ids, ids)[0].shape == last
    else:
        assert real(config)(np.ones((B, T), int))[0].shape == last
    assert shapes <= {last, (B, T, 12), (B, 12)}


def test_sizes_known_from_the_literature() -> None:
    """GPT-2 has 124 million parameters, GPT-3 175 billion; and FLOPs are about 6 for each parameter and token."""
    assert describe(LanguageModelConfig(50257)).parameters == 124_439_808  # as its published checkpoint has
    gpt3 = LanguageModelConfig(50257, max_length=2048, d_model=12288, n_heads=96, d_ff=49152, n_layers=96)
    info = describe(gpt3, length=2048)
    assert round(info.parameters / 1e9) == 175
    assert info.training_flops / (6 * info.parameters * 2048) == pytest.approx(1.0, abs=0.05)
    assert round(describe(TransformerConfig.big(), 1).parameters / 1e6) == 214


def test_nothing_of_the_asked_size_is_built() -> None:
    """Fifty trillion numbers and more: there is no memory for them."""
    huge = LanguageModelConfig(10**9, max_length=10**8, d_model=50_000, n_heads=1000, d_ff=10**6, n_layers=10)
    assert describe(huge, length=10**6).parameters > 5 * 10**13


def test_memory_by_hand() -> None:
    config = CONFIGS["Transformer"]
    single, double = describe(config, B, T), describe(config, B, T, "float64")
    n = sum(p.value.size for _, p in real(config).parameters())
    assert {name: single.memory[name] for name in ("parameters", "gradients", "optimizer")} == {
        "parameters": 4 * n,
        "gradients": 4 * n,
        "optimizer": 8 * n,
    }
    assert {name: 2 * size for name, size in single.memory.items()} == double.memory


@in_one("config, options, error, message", [
    ({}, {}, TypeError, "describe: model must be a model or its config, such as LanguageModelConfig(50257), got dict"),
    (CONFIGS["Classifier"], {"batch": 0}, ValueError, "describe: batch must be greater than 0, got 0"),
    (CONFIGS["LanguageModel"], {"length": 9}, ValueError, "describe: length must be at most max_length 8, got 9"),
    (CONFIGS["Classifier"], {"dtype": "int32"}, ValueError, "describe: dtype must be a floating-point one"),
    (TransformerConfig(7, 8), {}, ValueError, "Transformer: share_embeddings needs one vocabulary, got 7"),
])  # fmt: skip
def test_what_a_model_would_refuse_is_refused(config, options, error, message) -> None:
    with pytest.raises(error) as caught:
        describe(config, **options)
    assert message in str(caught.value)


@pytest.fixture
def run(capsys):
    """run(*arguments, status=0) -> what `minitransformer info` printed, on stdout or in an error on stderr."""

    def run(*arguments, status=0):
        assert main(["info", *arguments]) == status
        out, err = capsys.readouterr()
        assert (err if status == 0 else out) == ""
        return out if status == 0 else err

    return run


def test_the_command_shows_a_kind_with_its_sizes(run) -> None:
    sizes = "--vocabulary 65 --max-length 256 --d-model 384 --n-heads 6 --d-ff 1536 --n-layers 6 --no-bias".split()
    wanted = LanguageModelConfig(65, 256, 384, 6, 1536, 6, bias=False)
    out = run("LanguageModel", *sizes, "--batch", "12", "--length", "64")
    assert out == f"{describe(wanted, 12, 64)}\n"
    document = json.loads(run("LanguageModel", *sizes, "--json", "--dtype", "float64"))
    info = describe(wanted, dtype="float64")
    assert document["config"] == dataclasses.asdict(wanted)
    assert (document["model"], document["batch"], document["length"]) == ("LanguageModel", 1, 128)
    assert document["parameters"] == info.parameters == sum(part["parameters"] for part in document["parts"])
    assert document["flops"] == {"forward": info.flops, "training_step": info.training_flops}
    assert document["memory"] == info.memory | {"total": sum(info.memory.values())}
    assert math.prod(document["parts"][0]["output"]) == 128 * 384


def test_every_preset_of_every_task_is_listed(run) -> None:
    said = run("--kinds")
    for task in TASKS.values():
        for name in task.presets:
            assert (f"{task.name}-{name}" if name == "numbers" else name) in said


def test_every_field_of_every_config_is_a_flag(run) -> None:
    """Each changed to a value that is not its default, and found again in what is said."""
    other = {"activation": "silu", "norm_order": "post", "d_model": 48, "n_heads": 2}
    for kind, config in (("Transformer", TransformerConfig), ("LanguageModel", LanguageModelConfig)):
        default = config(*[10] * (2 if kind == "Transformer" else 1))
        changed, flags = {}, []
        for name, value in dataclasses.asdict(default).items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                changed[name] = not value
                flags.append(flag if not value else flag.replace("--", "--no-", 1))
            else:
                changed[name] = other.get(name, 20 if isinstance(value, int) else 0.25)
                flags += [flag, str(changed[name])]
        assert json.loads(run(kind, *flags, "--length", "16", "--json"))["config"] == changed


@pytest.mark.few(1)
@pytest.mark.parametrize(("arguments", "wanted"), [
    ("nanogpt-cpu --vocabulary 65", LanguageModelConfig(65, 64, 128, 4, 512, 4, dropout=0.0, attention_dropout=0.0)),
    ("gpt2", LanguageModelConfig(50257)),
    ("transformer-tiny", TransformerConfig(10000, 10000, 128, 4, 256, 4, 4, dropout=0.3)),
    ("transformer-tiny --source-vocabulary 9 --target-vocabulary 9", TransformerConfig(9, 9, 128, 4, 256, 4, 4, 0.3)),
    ("base --source-vocabulary 37000 --target-vocabulary 37000", TransformerConfig.base()),
    ("big --source-vocabulary 37000 --target-vocabulary 37000", TransformerConfig.big()),
    ("classify-numbers --vocabulary 30 --n-classes 2", ClassifierConfig(30, 2, 32, 2, 64, 2, dropout=0.0)),
])  # fmt: skip
def test_the_command_knows_the_presets_of_train(run, arguments, wanted) -> None:
    assert json.loads(run(*arguments.split(), "--json"))["config"] == dataclasses.asdict(wanted)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_command_shows_a_saved_model(run, tmp_path, dtype) -> None:
    config = CONFIGS["LanguageModel"]
    save(real(config).to(dtype=dtype), tmp_path / "model")
    assert run("--model", str(tmp_path / "model")) == f"{describe(config, dtype=dtype)}\n"
    wider = dataclasses.replace(config, d_ff=64)
    assert run("--model", str(tmp_path / "model"), "--d-ff", "64") == f"{describe(wider, dtype=dtype)}\n"


@pytest.mark.few(2)
@pytest.mark.parametrize(("arguments", "message"), [
    ("", "info needs exactly one of: a kind of model such as LanguageModel, a preset, a path"),
    ("numbers", "info knows no 'numbers'; did you mean "),
    ("nanogpt-cpu", "info nanogpt-cpu needs --vocabulary"),
    ("base --max-length 9", "a Transformer has no --max-length"),
    ("Transformer", "info Transformer needs --source-vocabulary and --target-vocabulary"),
    ("LanguageModel --vocabulary 9 --share-embeddings", "a LanguageModel has no --share-embeddings"),
    ("LanguageModel --vocabulary 9 --batch 0", "describe: batch must be greater than 0, got 0"),
    (f"LanguageModel --vocabulary 9 --d-model {12 * 10**23}", "d_model must be at most 1,048,576, got 1,200,000,"),
    (f"Llama --vocabulary {10**20}", "vocabulary must be at most 1,073,741,824, got 100,000,000,000,000,000,000"),
    ("LanguageModel --vocabulary 9 --d-model 1044480 --d-ff 1000000 --n-layers 9999",
     "a model of these sizes has more than 100,000,000,000,000 parameters"),
    ("LanguageModel --vocabulary many", "argument --vocabulary: invalid int value: 'many'; see"),
    ("Classifier --vocabulary 9 --n-classes 2 --n-heads 7", "cannot be divided into 7 equal heads"),
])  # fmt: skip
def test_bad_usage_is_one_complaint(run, arguments, message) -> None:
    complaint = run(*arguments.split(), status=2)
    assert complaint.startswith("minitransformer: error: ") and complaint.count("\n") == 1
    assert message in complaint


@pytest.mark.few(1)
@pytest.mark.parametrize("name, said, parameters", [  # the figures of the documents, and those of Hugging Face's models
    ("bert-base", "110M", 109_482_240),
    ("bert-large", "340M", 335_141_888),
    ("distilbert", "66M", 66_362_880),
    ("gpt2-medium", "355M", 354_823_168),
    ("gpt2-large", "774M", 774_030_080),
    ("smollm2-135m", "135M", 134_515_008),
])  # fmt: skip
def test_published_models_stand_beside_the_figures_of_their_documents(capsys, name, said, parameters):
    assert main(["info", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["parameters"]) == (said, parameters)
    assert main(["info", name]) == 0
    assert f"{parameters:,}" in capsys.readouterr().out
    assert main(["info", name, "--d-model", "8"]) == 2
    assert "are as published; leave --d-model out" in capsys.readouterr().err
