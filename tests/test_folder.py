"""Models as files: what is saved comes back, and what cannot be read is said plainly."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minitransformer.arrays import files
from minitransformer.layers import Linear
from minitransformer.models import (
    Classifier,
    ClassifierConfig,
    LanguageModel,
    LanguageModelConfig,
    Transformer,
    TransformerConfig,
)
from minitransformer.models.folder import load, save

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12}
IDS = np.array([[3, 1, 4, 1]])


def transformer(**changes):
    options = {"n_encoder_layers": 2, "n_decoder_layers": 1, "share_embeddings": False, **SIZES, **changes}
    return Transformer(TransformerConfig(7, 6, **options), np.random.default_rng(0))


def language_model():
    return LanguageModel(LanguageModelConfig(7, max_length=5, n_layers=2, **SIZES), np.random.default_rng(0))


def classifier():
    return Classifier(ClassifierConfig(7, 3, n_layers=2, **SIZES), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make, inputs", [(transformer, 2), (language_model, 1), (classifier, 1)])
def test_a_loaded_model_computes_what_the_saved_one_did(make, inputs, dtype, tmp_path):
    model = make().to(dtype=dtype)
    save(model, tmp_path / "new" / "model")
    loaded = load(tmp_path / "new" / "model")
    assert type(loaded) is type(model) and loaded.config == model.config
    output = loaded(*[IDS] * inputs)[0]
    assert output.dtype == dtype
    np.testing.assert_array_equal(output, model(*[IDS] * inputs)[0])


def test_the_files_are_as_described(tmp_path):
    model = transformer()
    save(model, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    document = json.loads((tmp_path / "config.json").read_text())
    assert document == {"format": 1, "model": "Transformer", "config": dataclasses.asdict(model.config)}
    found, state = load_file(tmp_path / "model.safetensors"), model.state()
    assert found.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)


def test_saving_again_replaces_the_model(tmp_path):
    save(language_model(), tmp_path)
    save(transformer(), tmp_path)
    assert isinstance(load(tmp_path), Transformer)


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
    with pytest.raises(TypeError, match="must be one of Transformer, LanguageModel, Classifier, got Linear"):
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


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": 2}, '"format": 1'),
        ({"model": "RNN"}, "must be one of Transformer, LanguageModel, Classifier, got 'RNN'"),
        ({"model": ["Transformer"]}, "must be one of Transformer"),
        ({"config": [1]}, '"config" must be an object'),
        ({"config": {"source_vocabulary": 7}}, "config.json: .*target_vocabulary"),
        ({"config": {"n_toes": 3}}, "config.json: .*n_toes"),
        ({"config": {"source_vocabulary": 7, "target_vocabulary": 6}}, "config.json: .*share_embeddings needs one"),
    ],
)
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
