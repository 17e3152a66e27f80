"""Each family in use: caches, padding, and the commands on a folder of Hugging Face's layout."""

import dataclasses
import functools
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from minitransformer.cli import main
from minitransformer.core.models.language_model import positions_of
from minitransformer.generation import Continuation, Translation, beam_search, generate, write
from minitransformer.ideas import LatentAttention, Window
from minitransformer.ideas.after.gated_convolution import GatedConvolution
from minitransformer.ideas.after.gated_delta_net import GatedDeltaNet
from minitransformer.ideas.after.mamba2 import Mamba2
from minitransformer.ideas.published.conversation import Conversation
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.llama import LlamaConfig
from minitransformer.ideas.published.tokenizers import PublishedTokenizer
from minitransformer.layers import InputEmbedding, KeyValueCache, Linear, MultiHeadAttention
from minitransformer.models import LanguageModel, Transformer, from_pretrained, save_pretrained
from minitransformer.school.inspect.watch import attentions
from minitransformer.school.show.reading import visible
from minitransformer.school.show.stepper.command import TextRecording, step_text

WINDOW, N_LAYERS = 4, 3
TOKENS = ["<s>", "</s>", *"abcdehmnost .", "at", "th", "the"]
SIZES: dict[str, Any] = {
    "vocabulary": len(TOKENS), "max_length": 80, "d_model": 12, "n_heads": 4, "n_key_heads": 2, "d_head": 6,
    "d_ff": 10, "n_layers": N_LAYERS, "tie_output": False,
}  # fmt: skip


def in_use(config: Any) -> Any:
    """Other sizes of a family's small decoder."""
    if isinstance(config, LlamaConfig):
        return dataclasses.replace(config, **SIZES, window=None if config.window is None else WINDOW)
    return dataclasses.replace(config, vocabulary=len(TOKENS), max_length=SIZES["max_length"], tie_output=False)


def windows(model: LanguageModel) -> list[bool]:
    """Which layers have a window."""
    return [any(isinstance(part, Window) for _, part in layer.modules()) for layer in model.stack.plain_layers]


EXAMPLES = {name: family.build(*family.example(), np.random.default_rng(0)) for name, family in FAMILIES.items()}
HYBRIDS = [name for name, family in FAMILIES.items() if hasattr(family.recipe, "full")]  # also test_gated_delta_net.py
CONFIGS = {name: in_use(model.config) for name, model in EXAMPLES.items() if isinstance(model, LanguageModel)}
TRANSLATORS = [name for name, model in EXAMPLES.items() if isinstance(model, Transformer)]
LIKE_LLAMA = [name for name, config in CONFIGS.items() if isinstance(config, LlamaConfig) and name not in HYBRIDS]
each_family = pytest.mark.parametrize("name", CONFIGS)
like_llama = pytest.mark.parametrize("name", LIKE_LLAMA)
TEXT = "the cat sat on the mat."
SPLIT = "<s>|the| |c|at| |s|at| |o|n| |the| |m|at|."
IDS = [TOKENS.index(token) for token in SPLIT.split("|")]
PROMPTS, N_NEW = [IDS[:2], IDS, IDS[:WINDOW], IDS[3:9]], 14
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def tokenizer(tokens: list[str], template: str | None = None) -> PublishedTokenizer:
    """One that splits a text into these, of which the first is <s>."""
    merges = [("a", "t"), ("t", "h"), ("th", "e")] if "the" in tokens else []
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    bpe.decoder = tokenizers.decoders.Fuse()
    special = {f"{name}_token": token for name, token in SPECIAL.items() if token in tokens}
    bpe.add_special_tokens(list(special.values()))
    bpe.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PublishedTokenizer(bpe, special, ends=(tokens.index("</s>"),), template=template)


def drawn(model: Any, seed: int = 0, noise: float = 0.8) -> Any:
    """The model in float64, with noise on its parameters, so that each of them matters."""
    rng = np.random.default_rng(seed)
    for _, parameter in model.to(dtype="float64").parameters():
        parameter.value = parameter.value + rng.normal(0.0, noise, parameter.value.shape)
    return model


@functools.cache
def model_of(name: str) -> LanguageModel:
    return drawn(CONFIGS[name].build(np.random.default_rng(0)))


class Uncached:
    """A prefix that reads its whole text again for each token. source: of a translator."""

    def __init__(self, model: Any, source: np.ndarray | None = None) -> None:
        self.model, self.source = model, source
        config, self.ids = model.config, np.zeros((0, 0), int)
        self.vocabulary = config.target_vocabulary if isinstance(model, Transformer) else config.vocabulary

    def read(self, tokens: np.ndarray) -> np.ndarray:
        self.ids = np.concatenate([self.ids, tokens], axis=1) if self.ids.size else tokens
        given = (self.ids,) if self.source is None else (self.source, self.ids)
        return self.model(*given)[0][:, -1]

    def select(self, rows: np.ndarray, same_source: bool = False) -> None:
        self.ids = self.ids[rows]
        self.source = None if self.source is None else self.source[rows]


@functools.cache
def talkative(name: str) -> LanguageModel:
    """A model that says four different tokens after each prompt: one for ever would hide what it forgot."""
    noise = 0.3 if name == "bloom" else 0.8  # without positions in its vectors, one token would win for ever
    for seed in range(199):
        model = drawn(CONFIGS[name].build(np.random.default_rng(seed)), seed, noise)
        texts = generate(model, PROMPTS, N_NEW)
        if all(len(set(text)) > 3 and 1 not in text[: WINDOW + 1] for text in texts):  # 1 ends a text
            return model
    raise AssertionError(f"no model of {name} says more than the same three tokens")


def alike(with_cache: Any, without: Any, prompts: list[list[int]]) -> None:
    """Greedy texts are equal, token for token, and so are the texts of beams, whose scores are close."""
    assert write(with_cache(), prompts, N_NEW) == write(without(), prompts, N_NEW)
    found, expected = (beam_search(prefix(), prompts, 5, beam=3) for prefix in (with_cache, without))
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        np.testing.assert_allclose([each.score for each in ours], [each.score for each in theirs], rtol=1e-9)


@pytest.mark.few(1, slow=16)
@each_family
def test_a_cached_text_is_the_uncached_one(name: str) -> None:
    """Over many windows, for prompts shorter and longer than a window, alone and in a batch, greedy and by beams."""
    model = talkative(name)
    alike(lambda: Continuation(model), lambda: Uncached(model), PROMPTS)
    together = generate(model, PROMPTS, N_NEW)
    assert [generate(model, [prompt], N_NEW)[0] for prompt in PROMPTS] == together


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_cached_translation_is_the_uncached_one(name: str) -> None:
    model = drawn(EXAMPLES[name])
    source = np.array([[3, 7, 4, 2, 5], [8, 1, 1, 6, 2]])
    alike(lambda: Translation(model, source), lambda: Uncached(model, source), [[3], [3]])


def kept(cache: Any) -> int:
    """The numbers that a cache of a layer holds for one text, counted in its arrays."""
    if isinstance(cache, KeyValueCache):
        return sum(each.size for each in cache.read())
    parts = [*cache] if isinstance(cache, tuple | list) else [*vars(cache).values()]
    arrays = sum(part.size for part in parts if isinstance(part, np.ndarray))
    return arrays + sum(kept(part) for part in parts if hasattr(part, "__dict__") or isinstance(part, tuple | list))


def formula(layer: Any, n: int) -> int:
    """The numbers that a layer must keep of n tokens, by the sizes of its parts; a state is constant.

    full: 2·n·G·d, with G heads of keys; window: 2·min(n, w)·G·d; latent: n·(d_c + d_R); a convolution of K places:
    K - 1 of its vectors; the delta rule: H·d_k·d_v beside them; Mamba-2: H·d_head·d_state beside them.
    """
    kinds = MultiHeadAttention | LatentAttention | GatedDeltaNet | Mamba2 | GatedConvolution
    (attention,) = (part for _, part in layer.modules() if isinstance(part, kinds))
    if hasattr(attention, "convolution"):
        shapes = [p.value.shape for _, p in attention.convolution.parameters() if p.value.ndim == 2]
        beside = sum((places - 1) * width for places, width in shapes)
        if isinstance(attention, GatedDeltaNet):
            return beside + attention.keys // attention.n_key_heads * attention.values
        return beside + (
            attention.width * attention.states // attention.n_groups if hasattr(attention, "states") else 0
        )
    if isinstance(attention, LatentAttention):
        return n * attention.down.weight.value.shape[1]
    reach = [part.width for _, part in layer.modules() if isinstance(part, Window)]
    maps = [part for side in (attention.key, attention.value) for _, part in side.modules()]
    return min([n, *reach]) * sum(part.weight.value.shape[1] for part in maps if isinstance(part, Linear))


@each_family
def test_a_cache_holds_what_its_formula_says(name: str) -> None:
    """And reading with it in pieces gives what reading at once gives."""
    model = model_of(name)
    cache, whole = model.new_cache(), model(np.array([IDS]))[0]
    for a, b in [(0, 1), (1, 8), (8, 9), (9, 10), (10, len(IDS))]:
        read = model(np.array([IDS[a:b]]), cache=cache)[0]
        np.testing.assert_allclose(read, whole[:, a:b], rtol=0, atol=1e-11 * abs(whole).max())
        numbers = [kept(each) for each in cache.self_attention]
        assert numbers == [formula(layer, b) for layer in model.stack.plain_layers]


@each_family
def test_padding_on_the_left_changes_nothing(name: str) -> None:
    model = model_of(name)
    cache = model.new_cache()
    ids = np.array([[7, 7, 7, *IDS[:-3]], IDS])
    mask = np.arange(len(IDS)) >= np.array([[3], [0]])
    places = positions_of(mask)
    for a, b in [(0, 2), (2, 9), (9, 10), (10, len(IDS))]:
        read = model(ids[:, a:b], cache=cache, mask=mask[:, :b], positions=places[:, a:b])[0]
    expected = np.array([model(np.array([row]))[0][0, -1] for row in (IDS[:-3], IDS)])
    np.testing.assert_allclose(read[:, -1], expected, rtol=0, atol=1e-11 * abs(expected).max())


@pytest.mark.few(3)
@each_family
def test_a_later_turn_reads_only_what_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And predicts what the whole conversation, read at once, predicts. A template that changes starts again."""
    model, spoken, n_read, seen = model_of(name), tokenizer(TOKENS, TEMPLATE), list[int](), list[np.ndarray]()
    embed = InputEmbedding.__call__

    def counted(part: Any, ids: np.ndarray, *rest: Any, **options: Any) -> Any:
        n_read.append(ids.shape[1])
        return embed(part, ids, *rest, **options)

    def says_c(logits: np.ndarray, rows: np.ndarray) -> np.ndarray:
        seen.append(logits[0])
        return np.full(len(rows), TOKENS.index("c"))

    monkeypatch.setattr(InputEmbedding, "__call__", counted)
    conversation = Conversation(model, spoken)
    assert ["".join(conversation.answer(text, 3, says_c)) for text in ("dn", "sh", "to")] == ["ccc"] * 3
    assert n_read == [3, 1, 1, 3, 1, 1, 3, 1, 1]  # <s>dn; in each later turn the last c, and what is new
    said = spoken.encode("<s>dncccshccctocc")
    for turn, after in enumerate(seen[2::3]):
        expected = model(np.array([said[: 5 * turn + 5]]))[0][0, -1]
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-11 * abs(expected).max())
    conversation.messages[0]["content"] = "d"
    assert "".join(conversation.answer("o", 1, says_c)) == "c" and n_read[-1] == len("^dcccshccctoccco")


SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "mask": "<mask>"}
_COMMANDS = "info step check view plot generate chat fill-mask translate embed"
_WORK = "info step check view plot generate chat embed".split()  # the others are refused


@pytest.mark.few(0, slow=9)
@each_family
def test_every_command_works_or_refuses_in_one_line(name: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    model = model_of(name)
    save_pretrained(model, tmp_path, tokenizer(TOKENS, TEMPLATE))
    page = str(tmp_path / "page.html")
    rest = {"step": ["--layer", "1"], "view": ["--html", page], "generate": ["--tokens", "4"]}
    rest |= {"chat": [*rest["generate"], "--chat"], "plot": ["--out", str(tmp_path / "heads.png")]}
    text = "b a"
    for command in _COMMANDS.split():
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        verb = "generate" if command == "chat" else command
        given = {"info": [], "check": [], "chat": [text, "at"], "plot": ["attention", text]}.get(command, [text])
        status = main([verb, *given, "--model", str(tmp_path), *rest.get(command, [])])
        out, err = capsys.readouterr()
        if command in ("view", "plot") and not attentions(model)["self"]:
            assert status == 1 and err.endswith("no layer of this model attends, so there are no weights to show\n")
        elif command in _WORK:
            assert status == 0 and out and not err, (command, err)
        else:
            assert status in (1, 2) and err.startswith("minitransformer: error: ") and err.count("\n") == 1, command
            assert f"{tmp_path} holds a" in err


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """folders(name): the folder of a talkative model."""

    @functools.cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp(name)
        save_pretrained(talkative(name), path, tokenizer(TOKENS))
        return path

    return folder


def opened(folders: Any, name: str) -> LanguageModel:
    model = from_pretrained(folders(name))
    assert isinstance(model, LanguageModel) and model.config == CONFIGS[name]
    return model


@pytest.mark.few(1)
@each_family
def test_generate(folders: Any, name: str, run: Any) -> None:
    ids = write(Uncached(opened(folders, name)), [IDS], 25)[0]
    ids = ids[: ids.index(1)] if 1 in ids else ids
    expected = "".join(TOKENS[i] for i in [*IDS, *ids] if i > 1) + "\n"
    assert len(ids) > WINDOW
    options = ("generate", "--model", folders(name), TEXT, "--tokens", 25, "--temperature", 0)
    assert run(*options) == run(*options, "--textbook") == expected


def weights_shown(read: TextRecording) -> np.ndarray:
    """The weights at the step where the page begins."""
    assert read.start is not None
    (weights,) = [bound.value.array for bound in read.recording.steps[read.start].bound if bound.name == "weights"]
    return weights


@pytest.mark.few(2)
@like_llama
@pytest.mark.parametrize("layer", [1, 2])
def test_step(folders: Any, name: str, layer: int) -> None:
    """The weights of a layer reach as far back as its window, and those of a head are a part of them."""
    read, one = (step_text(folders(name), TEXT, layer, head) for head in (None, 3))
    assert read.tokens == [visible(TOKENS[i]) for i in IDS[:-1]]
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
