"""Names that users import at the top of the package, and what an import at a place of an earlier layout says."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from common import printed
from tiers import in_one

import minitransformer
from minitransformer import moved
from minitransformer.ideas.before.convolutional import ConvolutionalConfig
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.models import LanguageModelConfig, load, save

PACKAGE = Path(minitransformer.__file__).parent
FACES = sorted(path.stem for path in PACKAGE.glob("*.py") if "as _room" in path.read_text(encoding="utf-8"))


@in_one("name", FACES)
def test_a_name_of_the_top_hands_on_its_room(name):
    face = getattr(minitransformer, name)
    room = importlib.import_module(f"minitransformer.{moved.now(name)}")
    assert set(room.__all__) <= set(face.__all__) and face.__doc__ == room.__doc__
    assert all(getattr(face, public) is getattr(room, public) for public in room.__all__)
    assert all(hasattr(face, public) for public in face.__all__)


@in_one(
    "place, told",
    [
        ("arrays.backend", "what was in minitransformer.arrays is in minitransformer.core.arrays now"),
        ("ops.softmax", "what was in minitransformer.ops is in minitransformer.core.ops now"),
        ("published.llama", "what was in minitransformer.published is in minitransformer.ideas.published now"),
        ("later", "minitransformer.later is minitransformer.ideas now"),
        ("later.rotary", "minitransformer.later is minitransformer.ideas now"),
        ("course.memory", "minitransformer.course.memory is minitransformer.school.course.memory_limit now"),
        ("text.load_published", "load_published is gone; minitransformer.text.load opens every kind"),
    ],
)
def test_an_old_place_names_the_new_one(place, told):
    with pytest.raises(ModuleNotFoundError, match=told):
        importlib.import_module(f"minitransformer.{place}")
    room = place.split(".")[0]
    if room not in FACES:
        with pytest.raises(AttributeError, match=told):
            getattr(minitransformer, room)
        with pytest.raises(ImportError, match=told):
            exec(f"from minitransformer import {room}")


def test_an_old_name_of_a_room_names_the_new_one():
    for room, name, new in (("text", "load_tokenizer", "text.load"), ("models", "is_published", "models.load")):
        told = rf"minitransformer\.{room}\.{name} is gone; minitransformer\.{new} opens every kind"
        with pytest.raises(AttributeError, match=told):
            getattr(getattr(minitransformer, room), name)
        with pytest.raises(ImportError, match=told):
            exec(f"from minitransformer.{room} import {name}")
    told = r"what was in minitransformer\.text is in minitransformer\.core\.text now"
    with pytest.raises(AttributeError, match=told):  # a file, asked for as an attribute
        getattr(minitransformer.text, "tokenizer")  # noqa: B009
    with pytest.raises(AttributeError, match=r"module 'minitransformer.text' has no attribute 'lod'$"):
        _ = minitransformer.text.lod


def test_what_never_was_is_not_called_moved():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'minitransformer.nothing'$"):
        importlib.import_module("minitransformer.nothing")
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = minitransformer.nothing
    with pytest.raises(ImportError, match=r"^cannot import name 'sofmax' from 'minitransformer\.ops'"):
        exec("from minitransformer.ops import sofmax")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'minitransformer\.ops\.sofmax'$"):
        importlib.import_module("minitransformer.ops.sofmax")


SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 8}
RECIPES = {
    "models.language_model.LanguageModelConfig": LanguageModelConfig(7, 4, n_layers=1, **SIZES),
    "published.llama.LlamaConfig": LlamaConfig(7, 4, n_layers=1, **SIZES),
    "later.convolutional.ConvolutionalConfig": ConvolutionalConfig(
        7, 7, n_encoder_layers=1, n_decoder_layers=1, **SIZES
    ),
}


@pytest.mark.parametrize("old", RECIPES)
def test_a_folder_saved_before_the_move_opens(old, tmp_path):
    model = RECIPES[old].build(np.random.default_rng(0))
    save(model, tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["recipe"] == moved.now(old)
    path.write_text(json.dumps(document | {"recipe": old}), encoding="utf-8")
    opened = load(tmp_path)
    assert type(opened) is type(model) and opened.config == model.config
    assert all(np.array_equal(value, opened.state()[name]) for name, value in model.state().items())


def test_importing_the_package_imports_none_of_its_wings():
    script = "import sys, minitransformer; print(*(m for m in sys.modules if m.startswith('minitransformer.')))"
    assert printed(script).split() == ["minitransformer.moved"]
