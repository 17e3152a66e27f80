"""Models as files: what is saved comes back, and what cannot be read is said plainly."""

import dataclasses
import functools
import json
import os
import re
import stat
import tracemalloc

import numpy as np
import pytest
from common import small
from safetensors.numpy import load_file, save_file
from tiers import in_one

from minitransformer.cli import main
from minitransformer.core.arrays import files
from minitransformer.core.models.folder import load, save
from minitransformer.ideas.after.alibi_models import AlibiLanguageModelConfig, AlibiTransformerConfig
from minitransformer.ideas.before.convolutional import ConvolutionalConfig
from minitransformer.ideas.published import families
from minitransformer.ideas.published.bart import BartConfig
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.ideas.published.t5 import T5Config
from minitransformer.layers import Linear
from minitransformer.models import (
    ClassifierConfig,
    LanguageModelConfig,
    MaskedLanguageModel,
    TextEncoder,
    TextEncoderConfig,
    Transformer,
    TransformerConfig,
)
from minitransformer.run.machines.recipes import RECIPES

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12}
IDS = np.array([[3, 1, 4, 1]])


singles = functools.partial(small, dtype="float32")
transformer = functools.partial(
    singles, TransformerConfig, 7, 6, n_encoder_layers=2, n_decoder_layers=1, share_embeddings=False
)
language_model = functools.partial(singles, LanguageModelConfig, 7, max_length=5)
classifier = functools.partial(singles, ClassifierConfig, 7, 3)


def small_of(recipe):
    """The small model of the first family that has this recipe."""
    family = next(family for family in FAMILIES.values() if family.recipe is recipe)
    return family.build(*family.example(), np.random.default_rng(0))


def encoder(kind):
    return kind(TextEncoderConfig(7, max_length=5, n_layers=2, **SIZES), np.random.default_rng(0))


OURS = {"transformer": (transformer, 2), "language model": (language_model, 1), "classifier": (classifier, 1)}
MAKERS = OURS | {kind.__name__: (functools.partial(encoder, kind), 1) for kind in (MaskedLanguageModel, TextEncoder)}
for name, recipe in families.RECIPES.items():
    MAKERS[name] = functools.partial(small_of, recipe), 1 if hasattr(recipe, "n_layers") else 2


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in MAKERS), *((name, "float64") for name in OURS)]
)
def test_a_loaded_model_computes_what_the_saved_one_did(name, dtype, tmp_path):
    make, inputs = MAKERS[name]
    model = make().to(dtype=dtype)
    save(model, tmp_path / "new" / "model")
    loaded = load(tmp_path / "new" / "model")
    assert type(loaded) is type(model) and loaded.config == model.config
    output = loaded(*[IDS] * inputs)[0]
    assert output.dtype == dtype
    np.testing.assert_array_equal(output, model(*[IDS] * inputs)[0])


@in_one("recipe", RECIPES)
def test_saved_names_do_not_hang_on_the_order_of_attributes(recipe):
    """A table that several parts share has one name, in whatever order a constructor sets its attributes."""
    config = RECIPES[recipe]
    needed = [f.name for f in dataclasses.fields(config) if f.default is dataclasses.MISSING]
    sizes = {f.name: 2 for f in dataclasses.fields(config) if f.name.endswith("layers")}
    own = SIZES | {"n_states": 2, "n_groups": 1}  # heads of a state space, which share
    sizes |= {name: value for name, value in own.items() if name in {f.name for f in dataclasses.fields(config)}}
    model = config(**{name: 7 for name in needed} | sizes).build(np.random.default_rng(0))
    names = {name for name, _ in model.parameters()}
    for _, module in list(model.modules()):
        attributes = dict(reversed(vars(module).items()))
        vars(module).clear()
        vars(module).update(attributes)
    assert {name for name, _ in model.parameters()} == names


def test_parameters_of_two_dtypes_are_read_in_the_wider(tmp_path):
    model = classifier()
    for i, (_, parameter) in enumerate(model.parameters()):
        parameter.value = parameter.value.astype("float64" if i % 2 else "float32")
    save(model, tmp_path)
    again = load(tmp_path).state()
    assert {value.dtype for value in again.values()} == {np.dtype("float64")}
    for name, value in model.state().items():
        np.testing.assert_array_equal(again[name], value)


def test_the_files_are_as_described(tmp_path):
    model = transformer()
    save(model, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    document = json.loads((tmp_path / "config.json").read_text())
    assert document == {
        "format": 1,
        "model": "Transformer",
        "recipe": "core.models.transformer.TransformerConfig",
        "config": dataclasses.asdict(model.config),
    }
    found, state = load_file(tmp_path / "model.safetensors"), model.state()
    assert found.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_folder_of_an_earlier_version_names_no_recipe(tmp_path):
    model = transformer()
    save(model, tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    del document["recipe"]
    path.write_text(json.dumps(document))
    assert load(tmp_path).config == model.config


EARLIER = {  # what the configs of an earlier version had besides, where it changed nothing
    "LanguageModel": {
        "norm": "layer_norm", "gated": False, "n_key_heads": None, "d_head": None, "qkv_bias": None,
        "rotary_base": None, "alibi": False, "window": None,
    },
    "Transformer": {
        "norm": "layer_norm", "norm_eps": 1e-5, "gated": False, "bias": True, "d_head": None, "final_norm": None,
        "positions": "sinusoidal", "relative_buckets": 32, "relative_distance": 128, "n_positions": 1024,
        "position_offset": 0, "scale_embedding": True, "embedding_norm": False, "scale_scores": True,
        "scale_logits": False, "logit_bias": False, "mixing": "attention", "kernel": 5,
    },
}  # fmt: skip


def saved_by_an_earlier_version(model, folder, **changes):
    """Write a folder whose config has the fields of that version, and names no recipe. Returns its config.json."""
    save(model, folder)
    path = folder / "config.json"
    document = json.loads(path.read_text())
    del document["recipe"]
    document["config"] = EARLIER[document["model"]] | document["config"] | changes
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("given", [False, True])
def test_a_field_of_an_earlier_version_has_its_name_of_today(given, tmp_path):
    save(language_model(), tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    del document["config"]["recompute"]
    document["config"]["checkpoint"] = given
    path.write_text(json.dumps(document))
    assert load(tmp_path).config.recompute is given


@pytest.mark.parametrize("make", [transformer, language_model])
def test_what_changed_nothing_in_an_earlier_version_is_read_over(make, tmp_path):
    model = make()
    saved_by_an_earlier_version(model, tmp_path)
    assert load(tmp_path).config == model.config


@pytest.mark.parametrize("make, changes, recipe", [
    (transformer, {"mixing": "convolution", "kernel": 3}, ConvolutionalConfig),
    (transformer, {"positions": "alibi"}, AlibiTransformerConfig),
    (language_model, {"alibi": True}, AlibiLanguageModelConfig),
])  # fmt: skip
def test_the_recipe_of_a_field_of_an_earlier_version_is_named(make, changes, recipe, tmp_path):
    """Following the error's advice opens the folder."""
    sizes = dataclasses.asdict(make().config)
    model = recipe(**sizes, **({"kernel": 3} if recipe is ConvolutionalConfig else {})).build(np.random.default_rng(0))
    path = saved_by_an_earlier_version(model, tmp_path, **changes)
    name, value = next(iter(changes.items()))
    with pytest.raises(ValueError, match=f"an earlier version saved this model with {name}={value!r}.*") as caught:
        load(tmp_path)
    found = re.search(r'write ("recipe": "\S+") into the file, and take out of its "config" (.*)$', str(caught.value))
    document = json.loads(path.read_text()) | json.loads(f"{{{found[1]}}}")
    for field in found[2].split(", "):
        del document["config"][field]
    path.write_text(json.dumps(document))
    inputs = [IDS] * (2 if make is transformer else 1)
    np.testing.assert_array_equal(load(tmp_path)(*inputs)[0], model(*inputs)[0])


@pytest.mark.parametrize(
    "make, changes, message",
    [
        (
            language_model,
            {"norm": "rms_norm", "gated": True, "rotary_base": 1e4, "window": 3},
            r"with norm='rms_norm', gated=True, rotary_base=10000.0, window=3, which LanguageModelConfig no longer has "
            r"\(now in ideas.published.llama.LlamaConfig\); write the model with save_pretrained of that version",
        ),
        (transformer, {"positions": "relative"}, r"positions='relative',.* \(now in ideas.published.t5.T5Config\)"),
        (transformer, {"norm": "rms_norm", "mixing": "convolution"}, "no recipe has all of this, so train the model"),
        (transformer, {"n_toes": 3}, "TransformerConfig has no n_toes=3; it has source_vocabulary, target_"),
    ],
)
def test_a_field_of_an_earlier_version_says_how_to_go_on(make, changes, message, tmp_path, capsys):
    saved_by_an_earlier_version(make(), tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)
    assert main(["generate", "--model", str(tmp_path), "a"]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error.replace("\n", " ")) and "Traceback" not in error


def test_saving_again_replaces_the_model(tmp_path):
    save(language_model(), tmp_path)
    save(transformer(), tmp_path)
    assert isinstance(load(tmp_path), Transformer)


def test_what_is_written_again_keeps_its_kind_and_its_mode(tmp_path):
    secret, link, pipe = tmp_path / "secret", tmp_path / "link", tmp_path / "pipe"
    secret.write_text("old")
    secret.chmod(0o600)
    link.symlink_to("secret")
    files.write(link, "new")
    assert link.is_symlink() and secret.read_text() == "new" and stat.S_IMODE(secret.stat().st_mode) == 0o600
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write(pipe, "through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "secret"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    files.write(tmp_path / "a.txt", "before ü")

    def replace(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match=r"cannot write .*a\.txt: No space left on device"):
        files.write(tmp_path / "a.txt", b"after")
    assert os.listdir(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "before ü"


def test_what_is_no_model_is_not_saved(tmp_path):
    with pytest.raises(
        TypeError, match="must be one of Transformer, LanguageModel, Classifier, or made by a recipe; got Linear"
    ):
        save(Linear(2, 2), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_missing_folder_or_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no model folder .*nowhere"):
        load(tmp_path / "nowhere")
    save(transformer(), tmp_path)
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).rename(tmp_path / "aside")
        with pytest.raises(FileNotFoundError, match=f"holds no model: {name} is missing"):
            load(tmp_path)
        (tmp_path / "aside").rename(tmp_path / name)
    with pytest.raises(ValueError, match=r"config\.json is a file; give the folder of the model$"):
        load(tmp_path / "config.json")


@in_one("change, message", [
    ({"format": 2}, '"format": 1'),
    ({"model": "RNN", "recipe": None}, "must be one of Transformer, LanguageModel, Classifier, got 'RNN'"),
    ({"config": [1]}, '"config" must be an object'),
    ({"recipe": "os.system"}, '"recipe" names .os.system., which this version does not have'),
    ({"recipe": "..tests.conftest.Config"}, '"recipe" names'),
    ({"recipe": "ideas.published.text_encoder.TextEncoderConfig", "model": "np", "config": {"vocabulary": 7}},
     "\"model\" names 'np', which TextEncoderConfig does not make"),
    ({"config": {"source_vocabulary": 7}}, "config.json: .*target_vocabulary"),
    ({"config": {"n_toes": 3}}, "config.json: .*n_toes"),
    ({"config": TransformerConfig(7, 6, **SIZES).__dict__}, "config.json: .*share_embeddings needs one"),
])  # fmt: skip
def test_a_wrong_config_is_refused(change, message, tmp_path):
    save(transformer(), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    save(transformer(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors at all")
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read as safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json cannot be read as JSON"):
        load(tmp_path)


def test_parameters_that_do_not_fit_are_named(tmp_path):
    save(transformer(), tmp_path)
    state = transformer().state()
    first, second = list(state)[:2]
    state[first] = state[first][:-1]
    state["new"] = state.pop(second)
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: .*does not fit Transformer") as caught:
        load(tmp_path)
    for words in (f"{second} is missing", "new is unknown", f"{first} must have shape"):
        assert words in str(caught.value)


@pytest.mark.parametrize("name, make", [
    ("n_layers", language_model),
    ("n_encoder_layers", transformer),
    ("d_head", functools.partial(small_of, LlamaConfig)),
    ("buckets", functools.partial(small_of, T5Config)),
    ("n_positions", functools.partial(small_of, BartConfig)),
    ("position_offset", functools.partial(small_of, BartConfig)),
])  # fmt: skip
@pytest.mark.parametrize("number", [10_000_000, 10**30])
def test_a_config_that_asks_for_more_than_the_weights_hold_is_refused_before_memory_is_taken(
    name, make, number, tmp_path
):
    save(make(), tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    document["config"][name] = number
    path.write_text(json.dumps(document))

    tracemalloc.start()
    asks = r"these sizes ask for more numbers than the file holds|\w*layers is \d+, more than the \d+ arrays of model"
    with pytest.raises(ValueError, match=rf"config\.json: ({asks})"):
        load(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value, tmp_path):
    model = language_model()
    save(model, tmp_path)
    state = model.state()
    name = list(state)[3]
    state[name].flat[1] = value
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=rf"model\.safetensors: {name} contains NaN or infinity"):
        load(tmp_path)


def test_weights_of_whole_numbers_are_refused_by_name(tmp_path):
    model = language_model()
    save(model, tmp_path)
    state = {name: np.ones(value.shape, dtype=np.int32) for name, value in model.state().items()}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has dtype I32, but must have F16, F32, F64; convert it"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_json_that_is_nested_deeply_is_named(text, tmp_path):
    save(language_model(), tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json cannot be read as JSON: it is nested too deeply"):
        load(tmp_path)


def test_json_that_is_too_long_is_not_read(tmp_path):
    with (tmp_path / "long.json").open("wb") as file:
        file.truncate(files._LONGEST_JSON + 1)
    with pytest.raises(ValueError, match=r"long\.json cannot be read as JSON: it has 67,108,865 bytes"):
        files.read_json(tmp_path / "long.json")
