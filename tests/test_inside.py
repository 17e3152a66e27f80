"""One layer inside a published model: its head alone, stepping through it, and checking its gradients."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from test_published import bert, gguf_file
from variants import attention

from minitransformer.check.trace.inside import attention_inside, layer_inside
from minitransformer.check.trace.recorder import Recorder
from minitransformer.check.verify.gradients import model_gradients
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.cli import main
from minitransformer.ideas import RelativeBias
from minitransformer.ideas.published.t5 import T5Config
from minitransformer.models import (
    TextClassifierConfig,
    TextEncoder,
    TextEncoderConfig,
    from_pretrained,
    load,
    save_pretrained,
)
from minitransformer.run import published_models as published
from minitransformer.run.published_models import check_model, layer_of, reading
from minitransformer.school.show.stepper import page_bugs
from minitransformer.school.show.stepper.command import step_text
from minitransformer.text import load as load_tokenizer

Run = Callable[..., str]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_file(tmp_path_factory.mktemp("writer") / "model.gguf")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("options", [
    {},
    {"n_key_heads": 2, "rotary_base": 50.0, "bias": False, "d_head": 4},
    {"n_key_heads": 1, "d_head": 2, "scale": 0.7, "window": 3},
    {"relative": True, "output_bias": False}, {"qk_norm": True}, {"sink": True}, {"alibi": True},
], ids="plain|shared keys|one key head|relative|norms|a sink|slopes".split("|"))  # fmt: skip
def test_the_heads_together_are_the_layer(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    relative = RelativeBias(4, 8, 6) if options.get("relative") else None
    whole = attention(12, 4, **(options | {"relative": relative})).to(dtype="float64")
    for _, parameter in whole.parameters():
        parameter.value = rng.normal(size=parameter.value.shape)
    x, dy = rng.normal(size=(5, 12)), rng.normal(size=(5, 12))
    y, backward = whole(x, causal=True)
    dx = backward(dy)
    heads = [whole.head(i) for i in range(4)]
    results = [head(x, causal=True) for head in heads]
    bias = 0.0 if whole.output.bias is None else whole.output.bias.value
    np.testing.assert_allclose(sum(part for part, _ in results) + bias, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sum(pull(dy) for _, pull in results), dx, rtol=0, atol=1e-12)
    for name, parameter in whole.query.parameters():
        parts = [dict(head.query.parameters())[name].grad for head in heads]
        np.testing.assert_allclose(np.concatenate(parts, axis=-1), parameter.grad, rtol=0, atol=1e-12)
    rows = np.concatenate([head.output.weight.grad for head in heads])
    np.testing.assert_allclose(rows, whole.output.weight.grad, rtol=0, atol=1e-12)
    if relative is not None:
        columns = np.concatenate([head.mix.bias.table.grad for head in heads], axis=1)
        np.testing.assert_allclose(columns, relative.table.grad, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="head: i must be from 0 to 3, got 4"):
        whole.head(4)


def everywhere(path: Path, text: str) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """The attention weights and their gradients of all layers, from one recording of the whole model."""
    model, tokenizer = load(path), load_tokenizer(path)
    f = reading(model, np.array([tokenizer.encode(text, special=True)]))
    with Recorder(f, only=("weights", "dweights")) as recorder:
        loss, backward = f()
    recorder.in_forward = False
    with recorder:
        backward(np.ones((), loss.dtype))
    found = {name: [g[0].value.array for c in recorder.calls for g in c.bound.get(name, [])] for name in
             ("weights", "dweights")}  # fmt: skip
    return model, found["weights"], found["dweights"][::-1]


@pytest.mark.parametrize("kind", ["writer", "encoder"])
@pytest.mark.parametrize("layer, head", [(1, 2), (2, 1)])
def test_a_head_has_the_numbers_that_it_has_in_the_model(
    kind: str, layer: int, head: int, request: pytest.FixtureRequest
) -> None:
    path, text = request.getfixturevalue(kind), "the dog"
    _, weights, dweights = everywhere(path, text)
    read = step_text(path, text, layer, head)
    recording, tokens = read.recording, read.tokens
    for name, all_layers in (("weights", weights), ("dweights", dweights)):
        found = recording.find(f"attention.{name}")[1].value.array
        np.testing.assert_allclose(found[0], all_layers[layer - 1][0, head - 1], rtol=1e-4, atol=1e-7)
        assert found.shape == (1, len(tokens), len(tokens))
    assert not any(call.label.startswith(("EncoderLayer", "FeedForward")) for call in recording.calls)
    if kind == "encoder":
        assert tokens == ["[CLS]", "the", "dog", "[SEP]"]


def test_without_a_head_the_layer_is_recorded_and_no_other(encoder: Path) -> None:
    _, weights, _ = everywhere(encoder, "a cat is a dog")
    recording = step_text(encoder, "a cat is a dog", 1).recording
    assert [call.name for call in recording.calls].count("EncoderLayer") == 1
    np.testing.assert_allclose(recording.find("attention.weights")[1].value.array, weights[0][0], rtol=1e-5, atol=1e-7)


def test_reading_a_translator_is_copying_without_the_last_token_in_and_the_first_out() -> None:
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
    model = T5Config(11, 11, **sizes, d_head=4).build(np.random.default_rng(0))
    ids = np.array([[3, 4, 5, 6], [7, 8, 9, 10]])
    logits, _ = model(ids, ids[:, :3])
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    wanted = [-log_p[row, t, ids[row, t + 1]] for row in range(2) for t in range(3)]
    assert float(reading(model, ids)()[0]) == pytest.approx(np.mean(wanted), rel=1e-5)


def test_reading_leaves_the_model_and_its_gradients_as_they_are(writer: Path) -> None:
    model = load(writer)
    for _, parameter in model.parameters():
        parameter.grad += 3.0
    before = model.state()
    layers, _, _ = layer_of(model)
    original = list(layers)
    part = attention_inside(layer_inside(model, layers, 1, reading(model, np.array([[1, 2, 3, 4]]))), 0)
    assert layers == original and part.upstream.shape == (1, 3, model.config.d_model)
    assert all((parameter.grad == 3.0).all() for _, parameter in model.parameters())
    assert all((parameter == before[name]).all() for name, parameter in model.state().items())


def test_step_takes_a_model(encoder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_bugs, "NUMBERS", 0)  # the mistakes of a page are not tested here, and take their time
    said = run("step", "--model", encoder, "the dog", "--layer", 1, "--head", 2)
    assert "dscores" in said and "MultiHeadAttention" in said and "FeedForward" not in said
    page = tmp_path / "head.html"
    assert run("step", "--model", encoder, "the dog", "--head", 2, "--html", page) == f"wrote {page}\n"
    assert re.search(r'"tokens": ?\["\[CLS\]", ?"the", ?"dog", ?"\[SEP\]"\]', page.read_text())
    document = json.loads(run("step", "--model", encoder, "the dog", "--json"))
    assert document["name"] == "EncoderLayer"


@pytest.mark.parametrize("arguments, message", [
    (["the dog", "--layer", 3], "--layer must be from 1 to 2, got 3"),
    (["the dog", "--layer", 0], "--layer must be from 1 to 2, got 0"),
    (["the dog", "--head", 3], "--head must be from 1 to 2, got 3"),
    (["a " * 70], "the text must have 2 to 64 tokens, got 72"),
])  # fmt: skip
def test_step_says_what_it_cannot_show(encoder: Path, run: Run, arguments: list[Any], message: str) -> None:
    assert message in run("step", "--model", encoder, *arguments, status=1)
    assert "give the model with --model DIR" in run("step", "softmax", "--head", 1, status=2)


def t5(folder: Path) -> Path:
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
    config = T5Config(11, 11, **sizes, d_head=4, buckets=8, max_distance=12)
    save_pretrained(config.build(np.random.default_rng(0)), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["gguf", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("t5", "masked", "classes", "body"))]
)
def test_check_covers_every_parameter_and_the_inside_of_a_layer(kind: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"max_length": 12, "d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2}
    made: dict[str, Callable[[], Path]] = {
        "gguf": lambda: gguf_file(tmp_path / "model.gguf"),
        "masked": lambda: bert(tmp_path),
        "classes": lambda: bert(tmp_path, lambda _, rng: TextClassifierConfig(12, **sizes, n_classes=3).build(rng)),
        "body": lambda: bert(tmp_path, lambda _, rng: TextEncoder(TextEncoderConfig(12, **sizes), rng)),
        "t5": lambda: t5(tmp_path),
    }
    path = made[kind]()
    report = check_model(path)
    report.assert_ok()
    model = from_pretrained(path)
    names = [row.name for row in report.rows]
    assert names[: len(list(model.parameters()))] == [name for name, _ in model.parameters()]
    number = 3 if kind == "t5" else 2
    inside = [name for name in names if name.startswith(f"layer {number}: ")]
    assert {f"layer {number}: x", f"layer {number}: attention.scores"} & set(inside) or kind == "t5"
    assert any("scores" in name for name in inside) and any("Linear" in name or "linear" in name for name in inside)
    weights = [row for row in report.of_kind("parameter") if row.name.endswith(("weight", "table"))]
    assert all(abs(row.hand) > 1e-9 for row in weights)  # a gradient of zero would check nothing


@pytest.mark.slow
@pytest.mark.parametrize("mistake, wrong", [
    ("repeat-heads-mean", "stack.layers.0.self_attention.sublayer.key.weight"),  # not the layer looked into
    pytest.param("embedding-repeated-tokens-lost", "tokens.table", marks=pytest.mark.slow),
    pytest.param("rotary-turned-on-instead-of-back", "layer 2: rotary#1.x", marks=pytest.mark.slow),
    pytest.param("rms-norm-no-stretch", "stack.layers.0.feed_forward.norm.gamma", marks=pytest.mark.slow),
    pytest.param("rms-norm-layer-grad-overwritten", "layer 2: self_attention.norm.gamma", marks=pytest.mark.slow),
])  # fmt: skip
def test_check_finds_a_backward_pass_that_is_broken(
    writer: Path, capsys: pytest.CaptureFixture[str], mistake: str, wrong: str
) -> None:
    with MISTAKES[mistake].applied():
        assert main(["check", "--model", str(writer)]) == 1
    said = capsys.readouterr().out
    assert re.search(rf"\n{re.escape(wrong)} .*WRONG", said)
    assert "not all of them ok: WRONG" in said


@pytest.mark.slow
def test_check_says_what_it_found(encoder: Path, run: Run) -> None:
    said = run("check", "--model", encoder, "--layer", 1, "--verbose")
    assert re.search(r"\n\d+ gradients, all ok; largest error of\ninputs .*, parameters .*, intermediates", said)
    assert "layer 1: attention.scores" in said


def test_check_of_a_model_uses_one_thread(encoder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more, MiniLM's check beside busy programs took ten times as long: the threads waited for each other."""
    found: list[int] = []

    def stand_in(*_: Any, **__: Any) -> Any:
        found.extend(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")
        raise ValueError("far enough")

    monkeypatch.setattr(published, "model_gradients", stand_in)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert "far enough" in run("check", "--model", encoder, status=1)
    assert found and set(found) == {1}


def test_check_says_what_it_cannot_check(encoder: Path, run: Run) -> None:
    assert "--layer must be from 1 to 2, got 3" in run("check", "--model", encoder, "--layer", 3, status=1)
    assert "give the model with --model DIR" in run("check", "--layer", 1, status=2)
    assert "not both" in run("check", "softmax", "--model", encoder, status=2)
    model = from_pretrained(encoder)
    layers, i, number = layer_of(model)
    with pytest.raises(ValueError, match="must be float64"):
        model_gradients(model, reading(model, np.array([[1, 2]])), layers, i, number)
    model.to(dtype="float64")
    dict(model.parameters())["embed.tokens.table"].value[1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        model_gradients(model, reading(model, np.array([[1, 2]])), layers, i, number)
