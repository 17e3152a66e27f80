"""The attention viewer without a browser: its numbers, its page as a text, and the command."""

import base64
import dataclasses
import functools
import gc
import html
import json
import re
import tracemalloc

import numpy as np
import pytest
from common import small
from test_step_a_text import translator  # noqa: F401  # a fixture
from tiers import in_one

from minitransformer import inspect
from minitransformer.check.trace.recorder import Recorder
from minitransformer.check.trace.tracing import Replacement
from minitransformer.cli import main
from minitransformer.core.models import ClassifierConfig, LanguageModelConfig, TransformerConfig, folder
from minitransformer.generation import greedy
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.school.show.viewer import view
from minitransformer.text import END, START, CharacterTokenizer, Vocabulary, WordTokenizer
from minitransformer.verify import values_inside

SOURCE, TARGET = [3, 1, 4, 2], [1, 5, 3]
transformer = functools.partial(small, TransformerConfig, 7, 6, n_encoder_layers=2, share_embeddings=False, seed=1)
language_model = functools.partial(small, LanguageModelConfig, 7, max_length=70, seed=2)
classifier = functools.partial(small, ClassifierConfig, 7, 3, seed=3)
MODELS = [(transformer, (SOURCE, TARGET)), (language_model, (SOURCE,)), (classifier, (SOURCE,))]


def in_order_of_the_calls(shown, arrays):
    """One array for each call of attention, (..., heads, T_q, T_k), from those that `arrays` gives for each kind."""
    if len(shown.maps) == 1:
        return list(np.moveaxis(arrays(shown.maps[0]), -4, 0))
    encoder, decoder, cross = (np.moveaxis(arrays(maps), -4, 0) for maps in shown.maps)
    return [*encoder, *(array for pair in zip(decoder, cross, strict=True) for array in pair)]


# ---- The numbers. ----


@pytest.mark.parametrize("make, ids", MODELS)
def test_maps_are_the_weights_inside_the_model(make, ids):
    model = make()
    inside = values_inside("weights", model, *[np.array([row]) for row in ids])
    found = in_order_of_the_calls(view(model, *ids), lambda maps: maps.weights)
    assert len(found) == len(inside)
    for map_, weights in zip(found, inside, strict=True):
        np.testing.assert_allclose(map_, weights[0], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("make, ids", MODELS)
def test_gradients_are_the_slopes_of_the_logits(make, ids):
    """Each weight is moved separately, in the running model, and the logits are observed."""
    model = make()
    batch = [np.array([row]) for row in ids]
    model(*batch)  # tables that are made once are no part of what is recorded
    with Recorder(model) as recording:
        logits, backward = model(*batch)
    recording.in_forward = False
    with recording:
        backward(np.ones_like(logits))  # only to find the places of the weights
    pairs = [pair for pair in recording.pairs() if pair.name == "weights"]

    shown = view(model, *ids)
    wanted = logits[0].reshape(-1, logits.shape[-1])
    if make is classifier:
        chosen = [(0, c) for c in np.argsort(-wanted[0])]
    else:
        chosen = [(t, row.argmax()) for t, row in enumerate(wanted)]
    assert [choice.logit for choice in shown.choices] == pytest.approx([wanted[place] for place in chosen], rel=1e-12)

    def moved(pair, index, by):
        def change(weights):
            weights = weights.copy()
            weights[0][index] += by
            return weights

        with Replacement(model, pair, change) as replacement:
            changed = model(*batch)[0]
        assert replacement.done
        return np.array([changed[0].reshape(wanted.shape)[place] for place in chosen])

    step = 1e-5
    found = in_order_of_the_calls(shown, lambda maps: maps.gradients)
    assert len(found) == len(pairs)
    for gradients, pair in zip(found, pairs, strict=True):
        assert gradients.shape == (len(chosen), *pair.value.shape[1:])
        slopes = np.zeros_like(gradients)
        for index in np.ndindex(*pair.value.shape[1:]):
            slopes[(slice(None), *index)] = (moved(pair, index, step) - moved(pair, index, -step)) / (2 * step)
        assert np.abs(slopes).max() > 1e-4
        np.testing.assert_allclose(gradients, slopes, rtol=1e-7, atol=1e-9)


def test_choices_name_the_tokens_that_are_predicted():
    names = [f"s{i}" for i in range(7)], [f"t{i}" for i in range(6)]
    model = transformer()
    shown = view(model, SOURCE, np.array(TARGET), names=names, title="a")
    logits = model(np.array([SOURCE]), np.array([TARGET]))[0][0]
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert shown.title == "a"
    assert shown.sequences == (("s3", "s1", "s4", "s2"), ("t1", "t5", "t3"))
    assert [choice.name for choice in shown.choices] == [f"t{i}" for i in logits.argmax(axis=-1)]
    assert [choice.position for choice in shown.choices] == [0, 1, 2]
    assert [choice.probability for choice in shown.choices] == pytest.approx(shares.max(axis=-1).tolist())
    assert shown.chosen == 2
    assert [(maps.name, maps.queries, maps.keys, maps.causal) for maps in shown.maps] == [
        ("Encoder self-attention", 0, 0, False),
        ("Decoder self-attention", 1, 1, True),
        ("Cross-attention", 1, 0, False),
    ]


def test_classes_come_with_the_likeliest_first():
    model = classifier()
    shown = view(model, SOURCE, names=(list("abcdefg"), ["x", "y", "z"]))
    logits = model(np.array([SOURCE]))[0][0]
    assert [choice.name for choice in shown.choices] == ["xyz"[c] for c in np.argsort(-logits)]
    assert shown.chosen == 0 and shown.choices[0].position is None
    assert sum(choice.probability for choice in shown.choices) == pytest.approx(1.0)


def test_the_model_stays_as_it_is_and_recomputing_changes_nothing():
    plain, recomputed = language_model(), language_model(recompute=True, dropout=0.5, attention_dropout=0.5)
    recomputed.load_state(plain.state())
    for _, parameter in recomputed.parameters():
        parameter.grad += 1.0
    before = recomputed.state()
    one, other = view(plain, SOURCE), view(recomputed, SOURCE)
    np.testing.assert_array_equal(one.maps[0].weights, other.maps[0].weights)
    np.testing.assert_array_equal(one.maps[0].gradients, other.maps[0].gradients)
    for name, parameter in recomputed.parameters():
        np.testing.assert_array_equal(parameter.value, before[name])
        assert (parameter.grad == 1.0).all()


@pytest.mark.slow
def test_a_view_needs_neither_a_copy_of_the_weights_nor_their_gradients():
    """SmolLM2's page once took 2.8 GB, twice the weights and their gradients beside what opening it takes."""
    model = language_model(d_model=256, d_ff=1024, n_layers=8)
    size = sum(parameter.value.nbytes for _, parameter in model.parameters())
    before = {name: (parameter.value, parameter.grad) for name, parameter in model.parameters()}
    gc.disable()  # what was traced is free as soon as it is not needed, without waiting for the collector
    tracemalloc.start()
    try:
        view(model, [3, 1, 2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert size > 20e6 and peak < 0.25 * size
    for name, parameter in model.parameters():
        assert before[name][0] is parameter.value and before[name][1] is parameter.grad and not parameter.grad.any()


def test_a_long_text_is_shown_by_its_layers():
    ids, model = np.arange(200) % 7, language_model(n_layers=4, n_heads=8, d_model=16, max_length=200)
    with pytest.raises(ValueError, match=r"there are 1,280,000 attention weights.*show fewer layers.*inspect\.heads"):
        view(model, ids)
    shown = view(model, ids, layers=[3, 1])
    assert [maps.which for maps in shown.maps] == [(4, 2)]
    np.testing.assert_array_equal(shown.maps[0].weights, inspect.heads(model, ids[None]).weights[[3, 1], 0])
    both = view(transformer(), SOURCE, TARGET, layers=[1])
    assert [(maps.name[:7], maps.which) for maps in both.maps] == [
        ("Encoder", (2,)), ("Decoder", (2,)), ("Cross-a", (2,))
    ]  # fmt: skip


def test_a_large_model_gets_fewer_choices_and_a_page_of_moderate_size():
    ids = np.arange(64) % 7
    model = language_model(n_layers=12, d_model=24, n_heads=12).to(dtype="float32")
    shown = view(model, ids)  # 12 · 12 · 64 · 64 weights: two choices would be more than a million
    assert [choice.position for choice in shown.choices] == [63] and shown.chosen == 0
    assert len(shown.to_html()) < 10e6
    with pytest.raises(ValueError, match=r"there are 1,228,800 attention weights, but a page holds 1,000,000"):
        view(language_model(n_layers=25, d_model=24, n_heads=12), ids)


@in_one(
    "model, ids, options, error, message",
    [
        (lambda x: x, (SOURCE,), {}, TypeError, "MaskedLanguageModel or Classifier, got function"),
        (transformer(), (SOURCE,), {}, TypeError, "a Transformer needs source and target, got 1 sequences"),
        (language_model(), (SOURCE, TARGET), {}, TypeError, "a LanguageModel needs ids, got 2"),
        (language_model(), ([],), {}, ValueError, "ids must be a sequence of 1 to 256 token ids"),
        (language_model(), ([1] * 257,), {}, ValueError, r"1 to 256 token ids, got shape \(257,\).*inspect\.heads"),
        (language_model(), ([1],), {"layers": [2]}, ValueError, r"layers must be indices from 0 to 1, got \[2\]"),
        (language_model(), ([[1]],), {}, ValueError, r"got shape \(1, 1\)"),
        (language_model(), ([0.5],), {}, ValueError, "of float64"),
        (language_model(), ([7],), {}, ValueError, r"ids must be from 0 to 6 .* got 7"),
        (language_model(), ([6],), {"names": (["a"],)}, ValueError, "there are only 1 names, so id 6 has none"),
        (language_model(), ([6],), {"names": (["a"], ["b"])}, ValueError, "must hold 1 lists of names"),
    ],
)
def test_what_cannot_be_shown_is_refused(model, ids, options, error, message):
    with pytest.raises(error, match=message):
        view(model, *ids, **options)


# ---- The page. ----

EVIL = "</script><img src=x onerror=alert(1)>&amp;"


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_page_holds_the_numbers_and_only_text(tmp_path):
    names = [EVIL, *"abcdef"], [EVIL, *"uvwxy"]
    shown = view(transformer(), [0, 1], [0, 1, 2], names=names, title=EVIL)
    page = view(transformer(), [0, 1], [0, 1, 2], names=names, title=EVIL).to_html(tmp_path / "a.html")
    assert page == shown.to_html() == (tmp_path / "a.html").read_text(encoding="utf-8")
    assert (
        "<img" not in page
        and "{{" not in page
        and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    )
    data = data_of(page)
    assert data["title"] == EVIL and data["sequences"] == [[EVIL, "a"], [EVIL, "u", "v"]]
    for maps, found in zip(shown.maps, data["maps"], strict=True):
        assert (found["layers"], found["heads"]) == maps.weights.shape[:2]
        weights = np.frombuffer(base64.b64decode(found["weights"]), "<f4").reshape(maps.weights.shape)
        np.testing.assert_allclose(weights, maps.weights, rtol=1e-6)
        for text, gradients in zip(found["gradients"], maps.gradients, strict=True):
            decoded = np.frombuffer(base64.b64decode(text), "<f4").reshape(gradients.shape)
            np.testing.assert_allclose(decoded, gradients, rtol=1e-6, atol=1e-30)


def test_a_notebook_shows_the_page_in_a_frame():
    shown = view(language_model(), SOURCE, title=EVIL)
    frame = shown._repr_html_()
    found = re.fullmatch(
        r'<iframe title="([^"<]*)" srcdoc="([^"<]*)" width="100%" height="\d+" style="[^"]*"></iframe>', frame
    )
    assert html.unescape(found[1]) == EVIL
    assert html.unescape(found[2]) == shown.to_html()


# ---- The command. ----


def test_view_writes_the_page_of_the_greedy_translation(translator, tmp_path, monkeypatch, capsys):  # noqa: F811
    path, model, task = translator
    monkeypatch.chdir(tmp_path)
    assert main(["view", "--model", str(path), "  two hundred\tand one "]) == 0
    out = capsys.readouterr().out
    words = "two hundred and one".split()
    ids = greedy(model, np.array([task.source.encode(words)]), None, START, END, max_length=63)[0].tolist()
    data = data_of((tmp_path / "attention-view.html").read_text(encoding="utf-8"))
    written = ids[: ids.index(END)] if END in ids else ids
    assert data["sequences"] == [words, [task.target.tokens[i] for i in [START, *written]]]
    predicted = {choice["position"]: choice["name"] for choice in data["choices"]}
    assert {position: task.target.tokens[ids[position]] for position in predicted if position < len(ids)}.items() <= (
        predicted.items()
    )
    assert len(predicted) > 1
    assert out == f"{data['title']}\nwrote attention-view.html\n"
    assert data["title"] == f"  two hundred\tand one  → {' '.join(task.target.decode(written)) or '(nothing)'}"
    assert [path.name for path in tmp_path.iterdir()] == ["attention-view.html"]
    assert main(["view", "--model", str(path), "one", "--html", "other.html"]) == 0
    assert (tmp_path / "other.html").is_file()


@pytest.mark.slow
def test_view_answers_what_it_cannot_show_with_one_line(translator, tmp_path, capsys):  # noqa: F811
    path, model, task = translator
    page, other, mixed, unlabelled = (tmp_path / name for name in ("a.html", "other", "mixed", "unlabelled"))
    folder.save(classifier(), other)
    folder.save(classifier(), unlabelled, WordTokenizer.train(["a b c d"]))
    folder.save(model, mixed, [WordTokenizer(task.source), WordTokenizer(task.target)])
    WordTokenizer(Vocabulary([["ein"]])).save(mixed / "target_tokenizer.json")
    cases = [
        ((path, "two hundrd"), 1, "does not hold 'hundrd'; it has .* tokens; the nearest: 'hundred'"),
        ((path, "two xyzzy"), 1, r"does not hold 'xyzzy'; it has \d+ tokens$"),
        ((path, "  "), 1, "the text must have 1 to 256 tokens, got 0"),
        ((path, "one " * 257), 1, "the text must have 1 to 256 tokens, got 257"),
        ((tmp_path / "none", "one"), 1, "there is no model folder .*none"),
        ((other, "one"), 1, r"there is no tokenizer .*other"),
        ((unlabelled, "one"), 1, r"unlabelled has no labels\.json"),
        ((mixed, "one"), 1, r"the tokenizer has 4 tokens, but the model \d+"),
        ((path, "one", "--html", tmp_path / "no" / "a.html"), 2, r"there is no folder .*no;"),
        ((path,), 2, "the following arguments are required: TEXT"),
    ]
    for arguments, status, message in cases:
        options = [] if "--html" in arguments else ["--html", str(page)]
        assert main(["view", "--model", *map(str, arguments), *options]) == status
        err = capsys.readouterr().err
        assert err.startswith("minitransformer: error: ") and err.count("\n") == 1
        assert re.search(message, err.strip()), err
    assert not page.exists()


def gpt_oss():
    config = dataclasses.replace(FAMILIES["gpt_oss"].example()[0], vocabulary=7)
    return config.build(np.random.default_rng(0)).to(dtype="float64")


@pytest.mark.slow
@pytest.mark.parametrize("make", [language_model, pytest.param(gpt_oss, marks=pytest.mark.slow)])
def test_view_and_plot_show_where_a_language_model_looks(make, tmp_path, capsys):
    model = make()
    tokenizer = CharacterTokenizer.train(["abcd"])
    folder.save(model, tmp_path, tokenizer)
    assert main(["view", "--model", str(tmp_path), "badca", "--html", str(tmp_path / "a.html")]) == 0
    assert capsys.readouterr().out == f"badca\nwrote {tmp_path / 'a.html'}\n"
    data = data_of((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert data["sequences"] == [list("badca")] and [maps["causal"] for maps in data["maps"]] == [True]
    shown = view(model, tokenizer.encode("badca"), names=(tokenizer.tokens,))
    assert [choice["name"] for choice in data["choices"]] == [choice.name for choice in shown.choices]
    options = ["--model", str(tmp_path), "badca", "--html", str(tmp_path / "a.html"), "--layer"]
    assert main(["view", *options, "2"]) == 0
    assert data_of((tmp_path / "a.html").read_text(encoding="utf-8"))["maps"][0]["which"] == [2]
    assert main(["view", *options, "3"]) == 1
    assert "--layer must be from 1 to 2, got 3" in capsys.readouterr().err
    assert main(["plot", "attention", "--model", str(tmp_path), "badca", "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_view_shows_where_a_classifier_looks(tmp_path, capsys):
    model, labels = classifier(), ["x", "y", "z"]
    tokenizer = WordTokenizer.train(["a b c d"])
    folder.save(model, tmp_path, tokenizer, labels)
    assert main(["view", "--model", str(tmp_path), "b a d", "--html", str(tmp_path / "a.html")]) == 0
    likeliest = labels[int(model(np.array([tokenizer.encode("b a d")]))[0].argmax())]
    assert capsys.readouterr().out.startswith(f"b a d → {likeliest}\n")
    data = data_of((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert data["sequences"] == [["b", "a", "d"]]
    assert data["choices"][0]["name"] == likeliest and {choice["name"] for choice in data["choices"]} == set(labels)
