"""Models that read pictures or sound: how they are opened, saved, counted and checked, and what refuses them."""

import json

import numpy as np
import pytest
from tiers import in_one

from minitransformer import models, saved
from minitransformer.cli import main
from minitransformer.core.arrays.strict import multiplications
from minitransformer.generation import Translation, greedy, write
from minitransformer.ideas.published.families import EVERY
from minitransformer.ideas.published.family import BODY, CLASSES
from minitransformer.ideas.published.fields import Fields
from minitransformer.ideas.published.images import ImageEncoderConfig
from minitransformer.ideas.published.speech import sines
from minitransformer.run.cost import describe
from minitransformer.text import CharacterTokenizer

NAMES = ["vit", "vit classes", "clip", "whisper"]


def model_of(name, dtype="float64"):
    family, _, head = name.partition(" ")
    config, _ = EVERY[family].example()
    if head:
        config = ImageEncoderConfig(**(vars(config) | {"n_classes": 3}))
    return config.build(np.random.default_rng(0)).to(dtype=dtype)


each = pytest.mark.parametrize("name", NAMES)


@each
def test_a_model_is_saved_in_both_forms_and_opened_again(name, tmp_path):
    model = model_of(name, "float32")
    models.save(model, tmp_path / "ours")
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "theirs")]) == 0
    for form in ("ours", "theirs"):
        again = models.load(tmp_path / form)
        assert type(again) is type(model) and again.config == model.config
        for (ours, before), (_, after) in zip(model.parameters(), again.parameters(), strict=True):
            np.testing.assert_array_equal(before.value, after.value, err_msg=ours)


@pytest.mark.parametrize("name", ["vit", "vit classes", "whisper"])
def test_a_tokenizer_beside_a_model_that_reads_no_text_is_refused(name, tmp_path):
    model, tokenizer = model_of(name, "float32"), CharacterTokenizer.train(["a b"])
    with pytest.raises(ValueError, match=r"reads (pictures|sound); save it without a tokenizer"):
        models.save_pretrained(model, tmp_path / "new", tokenizer)
    assert not (tmp_path / "new").exists()


@pytest.mark.few(1)
@each
def test_commands_that_take_a_text_refuse_it(name, tmp_path, capsys):
    model, text = model_of(name, "float32"), "a picture"
    models.save_pretrained(model, tmp_path)
    kind = f"{tmp_path} holds a{'n' * (type(model).__name__[0] == 'I')} {type(model).__name__}"
    for command in ("translate", "generate", "embed", "fill-mask", "view", "step"):
        rest = ["--html", str(tmp_path / "x.html")] if command in ("view", "step") else []
        assert main([command, "--model", str(tmp_path), text, *rest]) != 0
        error = capsys.readouterr().err
        assert kind.replace(" an ", " a ") in error.replace(" an ", " a ") and error.count("\n") == 1, error
    assert main(["translate", "--model", str(tmp_path), text]) == 1 or name != "whisper"
    assert name != "whisper" or "which reads sound; here there is only text" in capsys.readouterr().err


@pytest.mark.slow
@each
def test_info_and_check(name, tmp_path, capsys):
    model = model_of(name)
    models.save(model, tmp_path)
    assert main(["info", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(p.value.size for _, p in model.parameters()) == describe(model.config).parameters
    assert main(["check", "--model", str(tmp_path)]) == 0
    assert "all ok" in capsys.readouterr().out


@each
def test_costs_are_those_of_what_runs(name):
    model = model_of(name)
    length = {"clip": 4, "whisper": 3}.get(name)
    info = describe(model, 2, length)
    with multiplications() as count:
        model.to("strict").drawn(np.random.default_rng(0))()
    assert info.flops == 2 * count[0]
    backward = model.to("numpy").drawn(np.random.default_rng(0))()[1]
    rows = [row for row in saved(backward).rows if not row.parameter and row.shape and row.dtype.startswith("float")]
    held = sum(row.nbytes for row in rows)
    assert held == 8 * sum(part.kept for part in info.parts)


def test_the_length_of_a_picture_is_fixed():
    with pytest.raises(ValueError, match="length must be 9, as many vectors as a picture becomes, got 5"):
        describe(model_of("vit"), 1, 5)


def test_speech_is_written_with_a_cache_as_without():
    model, features = model_of("whisper"), np.random.default_rng(1).normal(size=(3, 5, 9))
    for _, parameter in model.parameters():
        parameter.value = 3.0 * parameter.value
    written = write(Translation(model, features), [[3]] * 3, 8)
    for i, row in enumerate(written):
        ids = np.array([[3]])
        for _ in row:
            ids = np.append(ids, [[model(features[i : i + 1], ids)[0][0, -1].argmax()]], axis=1)
        assert ids[0, 1:].tolist() == row
    assert greedy(model, features, None, 3, 0, 8).shape[0] == 3
    with pytest.raises(ValueError, match="there is no mask of the sound"):
        model.encode(features, np.ones((3, 9), bool))
    with pytest.raises(ValueError, match=r"features must be \(B, 5, T\), got shape \(3, 9\)"):
        model.encode(features[:, 0])


def test_sines_of_sound():
    """The angle of the last pair is the position divided by 10000, not that of the paper."""
    found = sines(8).rows(slice(0, 5), 5, np.zeros(1))
    angles = np.arange(5)[:, None] / 10000.0 ** (np.arange(4) / 3)
    np.testing.assert_allclose(found, np.concatenate([np.sin(angles), np.cos(angles)], axis=1), rtol=1e-12)
    with pytest.raises(ValueError, match="d_model must be even and at least 4"):
        sines(2)


def test_a_text_without_its_end_is_refused():
    model, pixels = model_of("clip"), np.zeros((1, 2, 7, 7))
    with pytest.raises(ValueError, match="every text must end with the token 5; add it to the ids"):
        model(pixels, np.array([[1, 2, 3]]))
    one, two = (model(pixels + 1.0, np.array([ids]))[0] for ids in ([1, 5, 5], [1, 5, 8]))
    np.testing.assert_allclose(one, two, rtol=1e-12)  # nothing after the end is read


@in_one("name, fields, message", [
    ("vit", {"image_size": [3, 4, 5]}, "image_size must be a size in pixels, or two of them"),
    ("vit", {"image_size": 2, "patch_size": 3}, "a patch of 3 × 3 must fit into an image of 2 × 2"),
    ("vit", {"pooler_act": "relu"}, "pooler_act 'relu' is not supported, only 'tanh' is"),
    ("vit", {"pooler_output_size": 7}, "pooler_output_size 7 is not supported, only 12 is"),
    ("clip", {"text_config": {"eos_token_id": [3]}}, "text_config: eos_token_id must be the id"),
    ("clip", {"vision_config": {"image_size": [4, 6]}}, "image_size must be an integer"),
    ("clip", {"vision_config": {"something": 1}}, "not understood in vision_config: something = 1"),
    ("clip", {"text_config": 3}, "text_config must be an object, got 3"),
    ("whisper", {"scale_embedding": True}, "scale_embedding True is not supported"),
    ("whisper", {"d_model": 7}, "d_model must be even"),
])  # fmt: skip
def test_what_would_change_the_mathematics_is_refused(name, fields, message):
    family = EVERY[name]
    merged = {k: family.small[k] | v if isinstance(v, dict) else v for k, v in fields.items()}
    with pytest.raises(ValueError, match=message):
        family.build(family.read(Fields({**family.small, **merged}), BODY, {}), BODY, np.random.default_rng(0))


def test_a_classifier_needs_its_head():
    with pytest.raises(ValueError, match=r"classifier\.weight must be the matrix"):
        EVERY["vit"].read(Fields(EVERY["vit"].small), CLASSES, {})
