"""Parity with Hugging Face of what reads pictures and sound: values, every gradient, and folders both ways, in float64.

Gradients are compared under the names of the file: their model is saved once more with its gradients as parameters.
"""

import dataclasses
import fnmatch
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import load_file, save_file

from minitransformer.generation import Translation, beam_search, greedy, write
from minitransformer.ideas.published.families import EVERY
from minitransformer.ideas.published.fields import _HARMLESS
from minitransformer.models import from_pretrained, save_pretrained

from . import test_pretrained as published
from .test_config_fields import values
from .test_pretrained import GRADIENT, OUTPUT, ROUNDING, Case, in_float64, our_gradients, t  # noqa: F401  # a fixture

_VIT, _CLIP, _WHISPER = (dict(EVERY[name].small) for name in ("vit", "clip", "whisper"))
_TEXT, _VISION = _CLIP["text_config"], _CLIP["vision_config"]
_OTHER_TEXT = {"hidden_size": 10, "num_attention_heads": 5, "num_hidden_layers": 3, "hidden_act": "gelu"}
_OTHER_VISION = {"image_size": 8, "patch_size": 2, "num_channels": 3, "num_hidden_layers": 1, "hidden_act": "gelu_new"}
CASES = [
    Case("vit body: tall patches, wide image", "ViTModel", _VIT),
    Case("vit body: an image with a rest", "ViTModel",
         _VIT | {"image_size": [7, 11], "patch_size": [2, 4], "num_hidden_layers": 1, "qkv_bias": False,
                 "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    Case("vit body: square", "ViTModel", _VIT | {"image_size": 8, "patch_size": 4, "num_channels": 1}),
    Case("vit classes", "ViTForImageClassification", _VIT | {"num_labels": 4}),
    Case("vit classes: other shape", "ViTForImageClassification",
         _VIT | {"num_labels": 2, "hidden_size": 10, "num_attention_heads": 5, "image_size": [4, 6], "patch_size": 2}),
    Case("clip", "CLIPModel", _CLIP),
    Case("clip the largest id ends a text", "CLIPModel", _CLIP | {"text_config": _TEXT | {"eos_token_id": 2}}),
    Case("clip other shape", "CLIPModel",
         {"text_config": _TEXT | _OTHER_TEXT, "vision_config": _VISION | _OTHER_VISION, "projection_dim": 9,
          "logit_scale_init_value": 1.3}),
    Case("whisper body", "WhisperModel", _WHISPER),
    Case("whisper words", "WhisperForConditionalGeneration", _WHISPER),
    Case("whisper words: untied, other shape", "WhisperForConditionalGeneration",
         _WHISPER | {"tie_word_embeddings": False, "d_model": 10, "encoder_attention_heads": 5, "encoder_layers": 2,
                     "decoder_layers": 1, "activation_function": "relu", "max_source_positions": 4}),
]  # fmt: skip


def sines(length: int, width: int) -> Any:
    """Their formula, in float64: the last angle is the position divided by 10000."""
    steps = np.exp(-np.log(10000.0) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(length)[:, None] * steps
    return t(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))


theirs_of = functools.partial(published.theirs_of, table=sines)


def inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What a model of this case reads, under their names."""
    if case.model_type == "whisper":
        frames = 2 * case.config["max_source_positions"]
        return {
            "input_features": rng.normal(size=(3, case.config["num_mel_bins"], frames)),
            "decoder_input_ids": rng.integers(3, 13, (3, 6)),  # the row of 1, the padding, has no gradient there
        }
    if case.model_type == "vit":
        size = case.config["image_size"]
        size = [size, size] if isinstance(size, int) else size
        return {"pixel_values": rng.normal(size=(3, case.config["num_channels"], *size))}
    vision, end = case.config["vision_config"], case.config["text_config"]["eos_token_id"]
    ids = rng.integers(6, 12, (3, 7))
    for row, place in enumerate((6, 3, 4)):
        ids[row, place] = 12 if end == 2 else end
    mask = np.arange(7) <= np.array([[6], [3], [4]])
    ids[~mask] = 0
    size = vision["image_size"]
    return {
        "pixel_values": rng.normal(size=(3, vision["num_channels"], size, size)),
        "input_ids": ids,
        "attention_mask": mask,
    }


def run(case: Case, theirs: Any, ours: Any) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """(their output, loss, gradient of the pixels or features), and ours; the parameters have their gradients."""
    rng = np.random.default_rng(7)
    given = inputs(case, rng)
    array, *rest = given.values()
    x = t(array).requires_grad_()
    found = None if case.model_type == "clip" else theirs(x, **{name: t(given[name]) for name in list(given)[1:]})
    if case.model_type == "clip":
        ids, mask = rest
        found = theirs(input_ids=t(ids), pixel_values=x, attention_mask=t(mask.astype(int)), return_loss=True)
        output, loss = found.logits_per_image, found.loss
        mine, _ = ours(array, ids, mask)
        my_loss, backward = ours.loss(array, ids, mask)
    elif case.architecture.endswith("ForImageClassification"):
        labels = rng.integers(0, case.config["num_labels"], 3)
        output, loss = found.logits, F.cross_entropy(found.logits, t(labels))
        mine, _ = ours(array)
        my_loss, backward = ours.loss(array, labels)
    elif case.model_type == "vit":
        mine, rows_backward = ours.with_pooled(array)
        weights = rng.normal(size=mine.shape)
        output = torch.cat([found.pooler_output[:, None], found.last_hidden_state], dim=1)
        loss, my_loss = (output * t(weights)).sum(), (mine * weights).sum()
        backward = lambda: rows_backward(weights)  # noqa: E731
    else:
        memory, encode_backward = ours.encode(array)
        step = ours.decode if case.architecture.endswith("Generation") else ours.hidden
        mine, step_backward = step(rest[0], memory)
        weights = rng.normal(size=mine.shape)
        output = found.logits if step == ours.decode else found.last_hidden_state
        loss, my_loss = (output * t(weights)).sum(), (mine * weights).sum()
        backward = lambda: encode_backward(step_backward(weights))  # noqa: E731
    theirs.zero_grad()
    loss.backward()
    ours.zero_grad()
    return (output.detach(), float(loss.detach()), x.grad), (mine, float(my_loss), backward())


def their_gradients(theirs: Any, folder: Path) -> dict[str, np.ndarray]:
    """Under the names of the file."""
    kept = {name: parameter.data for name, parameter in theirs.named_parameters()}
    try:
        for parameter in theirs.parameters():
            parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        theirs.save_pretrained(folder)
    finally:
        for name, parameter in theirs.named_parameters():
            parameter.data = kept[name]
    return load_file(folder / "model.safetensors")


def test_values_and_every_gradient_are_theirs(pair: Any, tmp_path: Path) -> None:
    case, theirs, ours = pair
    (output, loss, dx), (mine, my_loss, my_dx) = run(case, theirs, ours)
    assert mine.dtype == np.float64
    np.testing.assert_allclose(mine, output, rtol=0, atol=OUTPUT)
    assert abs(loss - my_loss) < OUTPUT
    assert abs(my_dx).max() > 1e-3
    np.testing.assert_allclose(my_dx, dx, rtol=0, atol=GRADIENT)
    expected, found = their_gradients(theirs, tmp_path), our_gradients(case, theirs, ours)
    frozen = {name for name in expected if name.endswith("encoder.embed_positions.weight")}
    assert found.keys() == expected.keys() - frozen
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=ROUNDING, atol=GRADIENT, err_msg=name)


def test_what_we_save_opens_there_and_here_as_the_same_model(pair: Any, tmp_path: Path) -> None:
    case, _, ours = pair
    rng = np.random.default_rng(5)
    kept = {name: parameter.value for name, parameter in ours.parameters()}
    for _, parameter in ours.parameters():
        parameter.value = parameter.value + rng.normal(0.0, 0.1, parameter.value.shape)
    ids = {name: case.config[name] for name in ("decoder_start_token_id", "eos_token_id") if name in case.config}
    save_pretrained(ours, tmp_path, **ids)
    kind = transformers.AutoConfig.from_pretrained(tmp_path).architectures[0]
    assert kind == case.architecture.replace("WhisperModel", "WhisperForConditionalGeneration")  # a body has a table
    again, report = getattr(transformers, kind).from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    here = from_pretrained(tmp_path)
    assert type(here) is type(ours) and here.config == ours.config
    case = dataclasses.replace(case, architecture=kind)
    (output, *_), (mine, *_) = run(case, again.eval(), ours)
    np.testing.assert_allclose(mine, output, rtol=0, atol=OUTPUT)
    np.testing.assert_array_equal(run(case, again, here)[1][0], mine)
    for name, parameter in ours.parameters():
        parameter.value = kept[name]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.architecture.endswith("Generation")], ids=lambda c: c.name
)
def test_speech_is_written_with_and_without_a_cache(case: Case, tmp_path: Path) -> None:
    theirs = theirs_of(case)
    theirs.generation_config.begin_suppress_tokens = theirs.generation_config.suppress_tokens = None
    theirs.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    features = inputs(case, np.random.default_rng(3))["input_features"]
    options = {"max_new_tokens": 9, "do_sample": False, "num_beams": 1}
    expected = transformers.GenerationMixin.generate(theirs, t(features), **options)[:, 1:].tolist()
    ended = [row[: row.index(2) + 1] if 2 in row else row for row in expected]
    assert write(Translation(ours, features), [[3]] * 3, 9, end=2) == ended
    options |= {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True}
    beams = transformers.GenerationMixin.generate(theirs, t(features), **options)[:, 1:].tolist()
    best = [each.tokens for row in beam_search(Translation(ours, features), [[3]] * 3, 9, 3, end=2) for each in row]
    assert best == [row[: row.index(2) + 1] if 2 in row else row for row in beams]
    found = greedy(ours, features, None, 3, 2, 9)
    assert [row[: len(each)] for row, each in zip(found.tolist(), ended, strict=True)] == ended
    for i, row in enumerate(ended):
        ids = np.array([[3]])
        for _ in row:
            ids = np.append(ids, [[ours(features[i : i + 1], ids)[0][0, -1].argmax()]], axis=1)
        assert ids[0, 1:].tolist() == row


def test_an_older_file_of_clip_with_a_table_of_numbers_opens(tmp_path: Path) -> None:
    theirs = theirs_of(Case("clip", "CLIPModel", _CLIP))
    theirs.save_pretrained(tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    found["text_model.embeddings.position_ids"] = np.arange(9)[None]
    save_file(found, tmp_path / "model.safetensors")
    assert from_pretrained(tmp_path).config.max_length == 9


# Every field of config.json, changed one at a time: it is refused, or what opens computes what theirs does.

PLACES = [("vit", ""), ("clip", ""), ("clip", "text_config"), ("clip", "vision_config"), ("whisper", "")]
MORE: dict[str, list[Any]] = {
    "image_size": [7, [4, 5], [9, 6]],
    "patch_size": [2, 3, [2, 3]],
    "hidden_act": ["gelu", "gelu_new", "quick_gelu", "relu", "tanh"],
    "activation_function": ["gelu", "gelu_new", "quick_gelu", "relu", "tanh"],
    "pooler_act": ["tanh", "relu"],
    "eos_token_id": [2, 6, None, [5, 6]],
    "max_target_positions": [5, 40],
}


def verdict(case: Case, folder: Path) -> tuple[str, str]:
    """ "agrees", "refused", "disagrees", "fails" where ours does not run, or "theirs" where theirs does not."""
    try:
        theirs = theirs_of(case)
        theirs.config.return_dict = True
        theirs.save_pretrained(folder)
        given = {name: t(array) for name, array in inputs(case, np.random.default_rng(7)).items()}
        theirs(**given)
    except Exception as error:  # of any kind: theirs
        return "theirs", f"{type(error).__name__}: {error}"[:90]
    try:
        ours = from_pretrained(folder)
    except ValueError as error:
        return "refused", str(error)
    try:
        (output, *_), (mine, *_) = run(case, theirs, ours)
    except Exception as error:  # of any kind: ours opened, and does not run
        return "fails", f"{type(error).__name__}: {error}"[:200]
    worst = float(abs(mine - output.numpy()).max())
    return ("agrees" if worst < 1e-9 else "disagrees"), f"{worst:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_what_opens_agrees(name: str, place: str, tmp_path: Path) -> None:
    small = dict(EVERY[name].small)
    document = transformers.CONFIG_MAPPING[name](**small).to_dict()
    fields = document[place] if place else document
    architecture = next(iter(EVERY[name].architectures))
    found: dict[str, list[str]] = {kind: [] for kind in ("agrees", "refused", "disagrees", "fails", "theirs")}
    for field, value in fields.items():
        if any(fnmatch.fnmatchcase(field, each) for each in _HARMLESS) and field not in MORE:
            continue  # test_config_fields.py changes these
        for i, other in enumerate(MORE.get(field) or values(field, value)[:3]):
            config = small | ({place: small[place] | {field: other}} if place else {field: other})
            kind, more = verdict(Case(name, architecture, config), tmp_path / f"{field}{i}")
            found[kind].append(f"{field} = {other!r}: {more}")
    print(f"\n{name} {place}: {', '.join(f'{len(lines)} {kind}' for kind, lines in found.items())}")
    assert not found["disagrees"] + found["fails"], found["disagrees"] + found["fails"]
    assert len(found["agrees"]) >= 3
