"""Heads that read a text: values by hand, folders and commands. tests/parity has the same heads of other programs."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from minitransformer.cli import main
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.family import CLASSES, ENCODER, head_of
from minitransformer.ideas.published.fields import Fields
from minitransformer.ideas.published.heads import ANSWERS, REPLACED, TOKENS, HeadConfig, LastReal
from minitransformer.models import load, save, save_pretrained
from minitransformer.run.cost import describe

IDS = np.array([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0]])
MASK = IDS != 0
KINDS = [("gpt2", CLASSES), ("llama", ANSWERS), ("bert", TOKENS), ("electra", REPLACED), ("t5", ENCODER)]
KINDS += [("bart", CLASSES), ("t5", ANSWERS)]  # on both sides
each_kind = pytest.mark.parametrize("name, head", KINDS, ids=[f"{name} {head}" for name, head in KINDS])


def made(name: str, head: str, n: int = 3):
    family = FAMILIES[name]
    config = family.ours(Fields(family.small), head, {})
    config = config if head == ENCODER else HeadConfig.of(config, head, {ANSWERS: 2, REPLACED: 1}.get(head, n))
    return config.build(np.random.default_rng(0)).to(dtype="float64")


def test_a_decoder_decides_by_its_last_real_token():
    model = made("gpt2", CLASSES)
    logits = model(IDS, MASK)[0]
    alone = model(IDS[1:, :2])[0]
    np.testing.assert_allclose(logits[1], alone[0], rtol=1e-10)
    left = np.array([[0, 0, 0, 2, 7]])
    np.testing.assert_allclose(model(left, left != 0)[0][0], alone[0], rtol=1e-10)
    hidden = np.arange(12.0).reshape(2, 3, 2)
    seen = np.array([[True, False, True], [True, True, False]])
    np.testing.assert_array_equal(LastReal()(hidden, seen)[0], [hidden[0, 2], hidden[1, 1]])


def test_the_loss_of_an_answer_is_that_of_two_softmaxes():
    model, places = made("llama", ANSWERS), np.array([[1, 3], [0, 1]])
    logits, total = model(IDS, MASK)[0], 0.0
    for b, real in enumerate(MASK):
        for column in range(2):
            scores = logits[b, real, column]
            total -= scores[places[b, column]] - np.log(np.exp(scores).sum())
    np.testing.assert_allclose(model.loss(IDS, places, MASK)[0], total / 4, rtol=1e-12)


def test_the_loss_of_replaced_tokens_is_that_of_a_sigmoid():
    model, wanted = made("electra", REPLACED), np.where(MASK, IDS % 2, -100)
    p = 1.0 / (1.0 + np.exp(-model(IDS, MASK)[0]))
    expected = -np.log(np.where(wanted == 1, p, 1.0 - p))[MASK].mean()
    np.testing.assert_allclose(model.loss(IDS, wanted, MASK)[0], expected, rtol=1e-12)


@each_kind
def test_it_is_counted_saved_and_opened(name, head, tmp_path):
    model = made(name, head)
    assert describe(model, 2, 4).parameters == sum(p.value.size for _, p in model.parameters())
    for write, folder in ((save, tmp_path / "own"), (save_pretrained, tmp_path / "theirs")):
        write(model, folder)
        again = load(folder)
        assert type(again) is type(model) and again.config == model.config and head_of(again) == head
        np.testing.assert_array_equal(again(IDS, MASK)[0], model(IDS, MASK)[0])


@pytest.mark.slow
def test_check_and_info_take_such_a_folder(tmp_path, capsys):
    save_pretrained(made("llama", ANSWERS), tmp_path)
    assert main(["check", "--model", str(tmp_path)]) == 0
    assert main(["info", str(tmp_path)]) == 0
    assert "head" in capsys.readouterr().out


def test_a_head_of_another_shape_is_refused(tmp_path: Path):
    save_pretrained(made("llama", TOKENS, 4), tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"architectures": ["LlamaForQuestionAnswering"]}))
    with pytest.raises(ValueError, match=r"qa_outputs.weight must be the matrix \(classes, width\) of the head"):
        load(tmp_path)


def test_a_config_of_a_head_has_the_fields_of_its_body():
    config = made("bert", TOKENS).config
    assert config.vocabulary == config.body.vocabulary and dataclasses.replace(config, n_classes=5).n_classes == 5
    with pytest.raises(AttributeError, match="florb"):
        config.florb  # noqa: B018
