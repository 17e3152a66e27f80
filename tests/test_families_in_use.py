"""Each family of decoders in the commands: `info`, `step` and `generate` on a folder of Hugging Face's layout."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from test_published import run  # noqa: F401  # a fixture

from minitransformer import inspect
from minitransformer.core.models.language_model import positions_of
from minitransformer.generation import Sampler, generate
from minitransformer.ideas import RollingCache, Window
from minitransformer.ideas.published.families import FAMILIES, RECIPES
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.ideas.published.tokenizers import PublishedTokenizer
from minitransformer.layers import KeyValueCache
from minitransformer.models import LanguageModel, from_pretrained, save_pretrained
from minitransformer.school.show.stepper.command import TextRecording, step_text
from minitransformer.school.show.viewer import view

WINDOW, N_LAYERS = 4, 3
TOKENS = ["<s>", "</s>", *"abcdehmnost .", "at", "th", "the"]
SIZES: dict[str, Any] = {
    "vocabulary": len(TOKENS), "max_length": 80, "d_model": 12, "n_heads": 4, "n_key_heads": 2, "d_head": 6,
    "d_ff": 10, "n_layers": N_LAYERS, "tie_output": False,
}  # fmt: skip


def in_use(config: Any) -> Any:
    """Other sizes of a family's small model."""
    return dataclasses.replace(config, **SIZES, window=None if config.window is None else WINDOW)


def windows(model: LanguageModel) -> list[bool]:
    """Which layers have a window."""
    return [any(isinstance(part, Window) for _, part in layer.modules()) for layer in model.stack.plain_layers]


CONFIGS = {  # of each family that brings a recipe of decoders
    name: in_use(family.example()[0])
    for name, family in FAMILIES.items()
    if name.replace("_", "-") in RECIPES and issubclass(family.recipe, LlamaConfig)
    if not hasattr(family.recipe, "full")  # not every layer attends; see test_gated_delta_net.py
}
each_family = pytest.mark.parametrize("name", CONFIGS)
TEXT = "the cat sat on the mat."
SPLIT = "<s>|the| |c|at| |s|at| |o|n| |the| |m|at|."
IDS = [TOKENS.index(token) for token in SPLIT.split("|")]
PROMPTS, N_NEW = [IDS[:2], IDS, IDS[:WINDOW], IDS[3:9]], 14


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    merges = [("a", "t"), ("t", "h"), ("th", "e")]
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(TOKENS)}, merges))
    bpe.decoder = tokenizers.decoders.Fuse()
    bpe.add_special_tokens(TOKENS[:2])
    bpe.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PublishedTokenizer(bpe, {"bos_token": "<s>", "eos_token": "</s>"}, ends=(1,))
    found = {}
    for name, config in CONFIGS.items():
        found[name] = tmp_path_factory.mktemp(name)
        save_pretrained(talkative(config), found[name], tokenizer)
    return found


def talkative(config: Any) -> LanguageModel:
    """A model that says five different tokens after each prompt: one for ever would hide what it forgot."""
    for seed in range(199):
        rng = np.random.default_rng(seed)
        model = config.build(rng).to(dtype="float64")
        for _, parameter in model.parameters():
            parameter.value += rng.normal(0.0, 0.8, parameter.value.shape)
        texts = (continued(model, prompt, N_NEW) for prompt in PROMPTS)
        if all(len(set(text)) > 4 and 1 not in text[: WINDOW + 1] for text in texts):  # 1 ends a text
            return model
    raise AssertionError(f"no model of {config} says more than the same four tokens")


def opened(folders: dict[str, Path], name: str) -> LanguageModel:
    model = from_pretrained(folders[name])
    assert isinstance(model, LanguageModel) and model.config == CONFIGS[name]
    return model


def continued(model: LanguageModel, prompt: list[int], n: int) -> list[int]:
    """Greedy, without a cache: the whole text is read again for each token."""
    ids = list(prompt)
    for _ in range(n):
        ids.append(int(model(np.array([ids]))[0][0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.few(1)
@each_family
def test_a_cached_text_is_the_uncached_one(folders: dict[str, Path], name: str) -> None:
    """Over many windows, for prompts shorter and longer than a window, alone and in a batch."""
    model = opened(folders, name)
    expected = [continued(model, prompt, N_NEW) for prompt in PROMPTS]
    assert generate(model, PROMPTS, N_NEW) == expected
    assert [generate(model, [prompt], N_NEW)[0] for prompt in PROMPTS] == expected
    sampled = [generate(model, p, N_NEW, Sampler([np.random.default_rng(5)])) for p in ([IDS], [IDS])]
    assert sampled[0] == sampled[1]


@each_family
def test_a_layer_with_a_window_keeps_no_more_than_that(folders: dict[str, Path], name: str) -> None:
    model = opened(folders, name)
    cache = model.new_cache()
    whole = model(np.array([IDS]))[0]
    pieces = [model(np.array([IDS[a:b]]), cache=cache)[0] for a, b in [(0, 1), (1, 8), (8, 9), (9, 10), (10, len(IDS))]]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, rtol=0, atol=1e-12)
    kinds = [RollingCache if window else KeyValueCache for window in windows(model)]
    assert [type(layer) for layer in cache.self_attention] == kinds
    n_kept = [WINDOW if window else len(IDS) for window in windows(model)]
    assert [layer.read()[0].shape for layer in cache.self_attention] == [(1, 2, n, 6) for n in n_kept]


@each_family
def test_padding_on_the_left_changes_nothing(folders: dict[str, Path], name: str) -> None:
    model = opened(folders, name)
    cache = model.new_cache()
    ids = np.array([[7, 7, 7, *IDS[:-3]], IDS])
    mask = np.arange(len(IDS)) >= np.array([[3], [0]])
    places = positions_of(mask)
    for a, b in [(0, 2), (2, 9), (9, 10), (10, len(IDS))]:
        read = model(ids[:, a:b], cache=cache, mask=mask[:, :b], positions=places[:, a:b])[0]
    expected = [model(np.array([row]))[0][0, -1] for row in (IDS[:-3], IDS)]
    np.testing.assert_allclose(read[:, -1], expected, rtol=0, atol=1e-12)


@each_family
def test_info(folders: dict[str, Path], name: str, run: Any) -> None:  # noqa: F811
    model = opened(folders, name)
    assert run("info", folders[name]).startswith(type(model.config).__name__.removesuffix("Config") + ": vocabulary 18")
    found = json.loads(run("info", "--model", folders[name], "--json", "--length", 9))
    assert found["parameters"] == sum(p.value.size for _, p in model.parameters())
    assert found["config"]["window"] == CONFIGS[name].window


@pytest.mark.few(1)
@each_family
def test_generate(folders: dict[str, Path], name: str, run: Any) -> None:  # noqa: F811
    model = opened(folders, name)
    ids = continued(model, IDS, 25)
    ids = ids[: ids.index(1)] if 1 in ids else ids
    expected = "".join(TOKENS[i] for i in [*IDS, *ids] if i > 1) + "\n"
    assert len(ids) > WINDOW
    options = ("generate", "--model", folders[name], TEXT, "--tokens", 25, "--temperature", 0)
    assert run(*options) == run(*options, "--textbook") == expected


def weights_shown(read: TextRecording) -> np.ndarray:
    """The weights at the step where the page begins."""
    assert read.start is not None
    (weights,) = [bound.value.array for bound in read.recording.steps[read.start].bound if bound.name == "weights"]
    return weights


@pytest.mark.few(2)
@each_family
@pytest.mark.parametrize("layer", [1, 2])
def test_step(folders: dict[str, Path], name: str, layer: int) -> None:
    """The weights of a layer reach as far back as its window, and those of a head are a part of them."""
    read, one = (step_text(folders[name], TEXT, layer, head) for head in (None, 3))
    assert read.tokens == [TOKENS[i] for i in IDS[:-1]]
    whole, alone = (weights_shown(each) for each in (read, one))
    n = len(IDS) - 1
    assert whole.shape == (4, n, n)
    behind = np.arange(n)[:, None] - np.arange(n)
    reach = WINDOW if windows(opened(folders, name))[layer - 1] else n
    np.testing.assert_array_equal(whole > 0.0, np.broadcast_to((behind >= 0) & (behind < reach), whole.shape))
    np.testing.assert_allclose(alone.reshape(n, n), whole[2], rtol=1e-12)
    sums = whole.sum(axis=-1)
    assert sums.min() < 0.9 if hasattr(CONFIGS[name], "gate_limit") else np.allclose(sums, 1.0)  # a sink takes the rest
    assert sums.max() < 1.0 + 1e-9


@each_family
def test_view_shows_the_weights_of_every_head(folders: dict[str, Path], name: str) -> None:
    model = opened(folders, name)
    (maps,) = view(model, IDS).maps
    np.testing.assert_allclose(maps.weights, inspect.heads(model, np.array([IDS])).weights[:, 0], rtol=1e-12, atol=0)
    assert np.isfinite(maps.gradients).all() and (maps.gradients != 0.0).any(axis=(0, 3, 4)).all()


@pytest.mark.slow
@each_family
def test_the_command_step(folders: dict[str, Path], name: str, run: Any) -> None:  # noqa: F811
    options = ("step", "--model", folders[name], "mat", "--layer", 1, "--head", 2)
    assert run(*options).startswith("tokens: 0 <s>, 1 m\n")
    assert run(*options, "--verify").endswith(" ok\n")  # the last of the gradients
