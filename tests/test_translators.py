"""Every kind of translator goes through one loop and one decoder: trained, resumed, decoded, measured, refused."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiers import in_one

from minitransformer import models
from minitransformer.cli import main
from minitransformer.core.models import folder
from minitransformer.generation import Translation, translate
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslator, RecurrentTranslatorConfig
from minitransformer.run.machines.recipes import RECIPES

SIZES: dict[str, Any] = {
    "source_vocabulary": 9, "target_vocabulary": 9, "d_model": 8, "n_heads": 2, "d_ff": 12,
    "n_encoder_layers": 2, "n_decoder_layers": 2,
}  # fmt: skip
SOURCE = np.array([[3, 5, 4, 8], [6, 7, 0, 0], [8, 3, 5, 0]])
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}),
    "convolution": ("convolutional", {}),
    "lstm": ("recurrent", {"attention": "none"}),
    "lstm-attention": ("recurrent", {}),
}
CLASSES = [models.Transformer, models.Transformer, RecurrentTranslator, RecurrentTranslator]


def made(kind: str) -> Any:
    recipe, own = KINDS[kind]
    config = RECIPES[recipe]
    sizes = {name: value for name, value in SIZES.items() if name in {field.name for field in fields(config)}}
    model = config(**sizes, **own).build(np.random.default_rng(1)).to(dtype="float64")
    rng = np.random.default_rng(2)
    model.load_state({name: rng.normal(0.0, 0.6, value.shape) for name, value in model.state().items()})
    return model


@pytest.mark.parametrize(("kind", "expected"), [*zip(KINDS, CLASSES, strict=True)])
def test_the_kind_is_built_saved_and_loaded(kind: str, expected: type, tmp_path: Path) -> None:
    model = made(kind)
    assert type(model) is expected
    folder.save(model, tmp_path)
    again = folder.load(tmp_path)
    target = np.array([[1, 4, 3]] * 3)
    np.testing.assert_array_equal(again(SOURCE, target)[0], model(SOURCE, target)[0])
    assert again.config == model.config


@in_one("kind", KINDS)
def test_decoding_token_by_token_gives_the_logits_of_the_whole(kind: str) -> None:
    model, target, mask = made(kind), np.array([[1, 4, 3, 7]] * 3), SOURCE != 0
    whole = model(SOURCE, target, mask)[0]
    prefix = Translation(model, SOURCE, mask)
    for t in range(3):
        np.testing.assert_allclose(prefix.read(target[:, t : t + 1]), whole[:, t], rtol=0, atol=1e-10)
    rows = np.array([2, 0])
    prefix.select(rows)
    np.testing.assert_allclose(prefix.read(target[rows, 3:]), whole[rows][:, 3], rtol=0, atol=1e-10)


@in_one("kind", KINDS)
def test_a_translation_does_not_depend_on_its_batch(kind: str) -> None:
    """By beam search, which reorders rows, with padding of other lengths."""
    model = made(kind)
    together = translate(model, SOURCE, SOURCE != 0, start=1, end=2, max_length=6, beam=3)
    for row, n in zip(range(3), (4, 2, 3), strict=True):
        alone = translate(model, SOURCE[row : row + 1, :n], None, start=1, end=2, max_length=6, beam=3)
        assert alone[0] == together[row]


@in_one("kind", KINDS)
def test_the_target_is_read_from_left_to_right(kind: str) -> None:
    model, target = made(kind), np.array([[1, 4, 3, 7]] * 3)
    other = target.copy()
    other[:, 2] = 5
    change = abs(model(SOURCE, target)[0] - model(SOURCE, other)[0]).max(axis=(0, 2))
    assert (change[:2] == 0).all() and (change[2:] > 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm-attention", "convolution", "lstm"])
def test_train_resume_translate_and_evaluate(kind: str, tmp_path: Path, capsys: Any) -> None:
    texts = {"source": "a b c\nc a\n" * 20, "target": "x y z\nz x\n" * 20}
    for name, text in texts.items():
        for part in (name, f"valid-{name}"):
            (tmp_path / part).write_text(text, encoding="utf-8")
    sizes = "--tokenizer words --d-model 8 --n-encoder-layers 1 --n-decoder-layers 1 --dropout 0"
    recipe, own = KINDS[kind]
    sizes += "".join(f" --{name} {value}" for name, value in own.items())
    sizes += "" if recipe == "recurrent" else " --n-heads 2 --d-ff 12"
    files = [word for part in ("source", "target") for each in (part, f"valid-{part}")
             for word in (f"--{each}", str(tmp_path / each))]  # fmt: skip
    command = ["train", "translate", "--recipe", recipe, *sizes.split(), *files, "--out", str(tmp_path / "run")]
    command += "--warmup 1 --validate-every 2 --save-every 2 --learning-rate 0.01".split()
    assert main([*command, "--steps", "4"]) == 0
    assert main([*command, "--steps", "4", "--resume"]) == 0
    assert main(["train", "translate", "--recipe", "bart", "--resume", "--out", str(tmp_path / "run")]) == 2
    assert f"has recipe {recipe}, not bart" in capsys.readouterr().err
    assert main(["translate", "--model", str(tmp_path / "run"), "--beam", "2", "a b"]) == 0
    pairs = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main(["evaluate", "--model", str(tmp_path / "run"), *pairs]) == 0
    assert "BLEU" in capsys.readouterr().out


def test_what_cannot_be_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(["train", "translate", "--recipe", "recurent", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    known = "transformer, bart, t5, alibi-transformer, convolutional, recurrent"
    assert f"no recipe of translate is called 'recurent'; choose one of {known}" in error
    with pytest.raises(ValueError, match="one of the texts 'additive', 'multiplicative' and 'none', got 'dot'"):
        RecurrentTranslatorConfig(5, 5, attention="dot")
    with pytest.raises(ValueError, match="share_embeddings needs one vocabulary, got 5 source and 6 target"):
        RecurrentTranslator(RecurrentTranslatorConfig(5, 6))


def test_a_recurrent_translator_computes_what_its_formulas_say() -> None:
    """One plain cell a side, without attention, written out; the vectors of tokens are √d times the table's rows."""
    sizes: dict[str, Any] = {"d_model": 8, "n_encoder_layers": 1, "n_decoder_layers": 1, "cell": "rnn"}
    config = RecurrentTranslatorConfig(9, 9, **sizes, attention="none", dropout=0.0)
    model = config.build().to(dtype="float64")
    rng = np.random.default_rng(3)
    model.load_state({name: rng.normal(0.0, 0.6, value.shape) for name, value in model.state().items()})
    w, target = model.state(), np.array([1, 4, 3, 7])

    def states(ids: Any, part: str, h: Any) -> Any:
        found = []
        for i in ids:
            sums = np.sqrt(8) * w["target_tokens.table"][i] @ w[f"{part}.input.weight"] + w[f"{part}.input.bias"]
            h = np.tanh(sums + h @ w[f"{part}.weight"])
            found.append(h)
        return np.array(found)

    onward = states(SOURCE[0, :1], "encoder.0.onward", np.zeros(4))[0]
    back = states(SOURCE[0, ::-1], "encoder.0.back", np.zeros(4))[-1]
    start = np.tanh(np.concatenate([onward, back]) @ w["starts.0.weight"] + w["starts.0.bias"])
    logits = states(target, "decoder.0", start) @ w["target_tokens.table"].T
    np.testing.assert_allclose(model(SOURCE[:1], target[None])[0][0], logits, rtol=1e-10, atol=1e-12)
