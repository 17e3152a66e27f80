"""What models promise besides right gradients: caches, causality, tying, recomputing, sizes, threads, clear errors."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import ordinary
from tiers import in_one

import minitransformer.core.arrays.strict  # noqa: F401 - registers the device "strict"
from minitransformer import cost, models, ops, verify
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.core.arrays.declared import op
from minitransformer.core.layers.unread import Unread
from minitransformer.fast import accelerate
from minitransformer.layers import Cache, FeedForward, KeyValueCache, Module
from minitransformer.models import (
    Classifier,
    ClassifierConfig,
    LanguageModel,
    LanguageModelConfig,
    Transformer,
    TransformerConfig,
)

SMALL: dict[str, Any] = {"d_model": 6, "n_heads": 2, "d_ff": 10}
STACKS: dict[str, Any] = {"n_encoder_layers": 2, "n_decoder_layers": 2}

SOURCE = np.array([[1, 3, 1, 6], [2, 6, 0, 0]])
TARGET = np.array([[1, 5, 5, 2, 4], [1, 4, 2, 0, 0]])
WANTED = np.array([[5, 5, 2, 4, 3], [4, 2, 3, 0, 0]])
LABELS = np.array([2, 0])


def transformer(target_vocabulary: int = 7, **options: Any) -> Transformer:
    return ordinary(Transformer(TransformerConfig(7, target_vocabulary, **{**SMALL, **STACKS, **options})))


def language_model(**options: Any) -> LanguageModel:
    return ordinary(LanguageModel(LanguageModelConfig(7, **{"max_length": 40, "n_layers": 2, **SMALL, **options})))


def classifier(**options: Any) -> Classifier:
    return ordinary(Classifier(ClassifierConfig(7, 3, **{"n_layers": 2, **SMALL, **options})))


def losses(rng: np.random.Generator | None = None) -> dict[str, tuple[Callable[..., Module], Callable[[Any], Any]]]:
    """For each model: how to build it, and the loss of it."""
    padding = {"source_mask": SOURCE != 0, "target_mask": TARGET != 0, "ignore_index": 0}
    return {
        "Transformer": (transformer, lambda m: m.loss(SOURCE, TARGET, WANTED, label_smoothing=0.1, rng=rng, **padding)),
        "LanguageModel": (language_model, lambda m: m.loss(TARGET, WANTED, ignore_index=0, rng=rng)),
        "Classifier": (classifier, lambda m: m.loss(SOURCE, LABELS, SOURCE != 0, rng=rng)),
    }


EVERY_MODEL = pytest.mark.parametrize("name", ["Transformer", "LanguageModel", "Classifier"])


def gradients_of(module: Module) -> dict[str, np.ndarray]:
    return {name: to_numpy(parameter.grad).copy() for name, parameter in module.parameters()}


# ------------------------------------------------------------------------------------------------- key-value caches

CHUNKS = pytest.mark.parametrize(
    "sizes", [[1] * 40, [3, 1, 15, 20, 1], [40]], ids=["token by token", "in chunks", "all at once"]
)
LONG = np.random.default_rng(0).integers(7, size=(2, 40))


def in_chunks(ids: np.ndarray, sizes: list[int], read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    assert sum(sizes) == ids.shape[1]
    return np.concatenate([read(piece) for piece in np.split(ids, np.cumsum(sizes)[:-1], axis=1)], axis=1)


@pytest.mark.few(2)
@CHUNKS
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_cached_language_model_equals_the_full_one(norm_order: str, sizes: list[int]) -> None:
    model, cache = language_model(norm_order=norm_order), Cache(2)
    cached = in_chunks(LONG, sizes, lambda ids: model(ids, cache=cache)[0])
    np.testing.assert_allclose(cached, model(LONG)[0], rtol=0.0, atol=1e-12)
    assert cache.length == 40


@pytest.mark.few(3)
@CHUNKS
@pytest.mark.parametrize("recompute", [False, True], ids=["", "recomputed"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_cached_transformer_equals_the_full_one(norm_order: str, recompute: bool, sizes: list[int]) -> None:
    model, cache = transformer(norm_order=norm_order, recompute=recompute), Cache(2)
    real = SOURCE != 0
    memory = model.encode(SOURCE, real)[0]
    cached = in_chunks(LONG, sizes, lambda ids: model.decode(ids, memory, real, cache=cache)[0])
    np.testing.assert_allclose(cached, model(SOURCE, LONG, real)[0], rtol=0.0, atol=1e-12)


def test_cached_transformer_with_a_padded_target_equals_the_full_one() -> None:
    """The mask of the target covers all tokens read so far."""
    model, cache = transformer(), Cache(2)
    real = np.arange(40) >= np.array([[0], [4]])
    memory = model.encode(SOURCE)[0]

    def read(ids: np.ndarray) -> np.ndarray:
        return model.decode(ids, memory, target_mask=real[:, : cache.length + ids.shape[1]], cache=cache)[0]

    cached = in_chunks(LONG, [10, *[1] * 30], read)
    np.testing.assert_allclose(cached, model(SOURCE, LONG, target_mask=real)[0], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("sizes", [[40], [7, 33], [39, 1]])
def test_the_last_logits_alone_are_those_of_the_last_position(sizes: list[int]) -> None:
    model, cache = language_model(), Cache(2)
    every = model(LONG)[0]
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        logits, backward = model(LONG[:, start:stop], cache=cache, last=True)
        np.testing.assert_allclose(logits, every[:, stop - 1 : stop], rtol=0.0, atol=1e-12)
        with pytest.raises(RuntimeError, match="has no backward"):
            backward(logits)
    assert cache.length == 40
    with pytest.raises(ValueError, match="last=True is for reading with a cache"):
        model(LONG, last=True)


# ---------------------------------------------------------------------------------------------------- who sees whom


def moved(y: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (y != other).any(axis=-1)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_a_language_model_does_not_see_what_comes_after(norm_order: str) -> None:
    model = language_model(norm_order=norm_order)
    logits = model(TARGET)[0]
    for t in range(5):
        other = TARGET.copy()
        other[0, t] = 6
        np.testing.assert_array_equal(moved(logits, model(other)[0])[0], [position >= t for position in range(5)])


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_a_transformer_sees_all_of_the_source_and_only_what_came_before_in_the_target(norm_order: str) -> None:
    model = transformer(norm_order=norm_order)
    logits = model(SOURCE, TARGET)[0]
    for t in range(5):
        other = TARGET.copy()
        other[0, t] = 6
        expected = np.array([[position >= t for position in range(5)], [False] * 5])
        np.testing.assert_array_equal(moved(logits, model(SOURCE, other)[0]), expected)
    for t in range(4):
        other = SOURCE.copy()
        other[0, t] = 5
        np.testing.assert_array_equal(moved(logits, model(other, TARGET)[0]), [[True] * 5, [False] * 5])


def test_padding_does_not_matter_to_a_transformer() -> None:
    """Neither which ids it holds nor how many: outputs, loss and gradients are those of the sequence alone."""
    model = transformer()

    def run(source: np.ndarray, target: np.ndarray, wanted: np.ndarray) -> tuple[Any, ...]:
        masks = (np.arange(source.shape[1])[None] < 2, np.arange(target.shape[1])[None] < 3)
        wanted = np.where(masks[1], wanted, -100)
        model.zero_grad()
        loss, backward = model.loss(source, target, wanted, *masks)
        backward()
        return model(source, target, *masks)[0][:, :3], loss, gradients_of(model)

    logits, loss, gradients = run(SOURCE[1:], TARGET[1:], WANTED[1:])
    filled = [np.where(ids == 0, 5, ids) for ids in (SOURCE[1:], TARGET[1:], WANTED[1:])]
    for other in (filled, (SOURCE[1:, :2], TARGET[1:, :3], WANTED[1:, :3])):
        other_logits, other_loss, other_gradients = run(*other)
        np.testing.assert_allclose(other_logits, logits, rtol=0.0, atol=1e-12)
        assert other_loss == pytest.approx(loss, abs=1e-13)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(other_gradients[name], gradient, rtol=0.0, atol=1e-12, err_msg=name)


def test_padding_does_not_matter_to_a_classifier() -> None:
    model = classifier()
    logits = model(SOURCE, SOURCE != 0)[0]
    np.testing.assert_allclose(model(np.where(SOURCE == 0, 5, SOURCE), SOURCE != 0)[0], logits, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(model(SOURCE[1:, :2])[0], logits[1:], rtol=0.0, atol=1e-13)
    assert (model(SOURCE)[0][1] != logits[1]).all()  # without the mask it does matter


def test_sequences_of_padding_alone_give_finite_numbers() -> None:
    model, nothing = transformer(), np.zeros((2, 4), bool)
    loss, backward = model.loss(SOURCE, TARGET, WANTED, nothing, np.zeros((2, 5), bool))
    backward()
    assert np.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in gradients_of(model).values())
    logits, backward = classifier()(SOURCE, nothing)
    backward(np.ones_like(logits))
    assert np.isfinite(logits).all()


# ----------------------------------------------------------------------------------------- embedding, loss and tying


def test_embeddings_are_scaled_by_the_root_of_the_width_and_positions_added() -> None:
    """Section 3.4. At position 0 every sine is 0 and every cosine 1."""
    for model, embed in [(m := transformer(), m.embed_source), (m, m.embed_target), (c := classifier(), c.embed)]:
        table = dict(model.parameters())[next(name for name, _ in model.parameters())].value
        embedded = embed(np.array([[3]]))[0]
        np.testing.assert_allclose(embedded[0, 0], table[3] * np.sqrt(6.0) + [0.0, 1.0] * 3, rtol=1e-14)
    model = language_model()
    expected = model.tokens.table.value[3] + model.embed.positions.table.value[0]
    np.testing.assert_array_equal(model.embed(np.array([[3]]))[0][0, 0], expected)


@EVERY_MODEL
def test_the_loss_is_the_cross_entropy_of_the_logits(name: str) -> None:
    build, loss_of = losses()[name]
    model = build()
    loss, backward = loss_of(model)
    if name == "Transformer":
        logits, model_backward = model(SOURCE, TARGET, SOURCE != 0, TARGET != 0)
        expected, loss_backward = ops.cross_entropy(logits, WANTED, ignore_index=0, label_smoothing=0.1)
    elif name == "LanguageModel":
        logits, model_backward = model(TARGET)
        expected, loss_backward = ops.cross_entropy(logits, WANTED, ignore_index=0)
    else:
        logits, model_backward = model(SOURCE, SOURCE != 0)
        expected, loss_backward = ops.cross_entropy(logits, LABELS)
    assert loss.shape == ()
    assert loss == expected
    assert backward() is None
    gradients = gradients_of(model)
    model.zero_grad()
    assert model_backward(loss_backward()) is None
    for key, gradient in gradients_of(model).items():
        np.testing.assert_array_equal(gradient, gradients[key], err_msg=key)


def test_tables_are_shared_as_the_config_says() -> None:
    def tables(**options: Any) -> list[str]:
        return [name for name, p in transformer(**options).parameters() if name.endswith("table")]

    shared, tied = "target_tokens.table", "embed_source.tokens.table"
    assert tables() == [shared]
    assert tables(share_embeddings=False) == [shared, tied]
    assert tables(tie_output=False) == [shared, "output.table"]
    assert tables(share_embeddings=False, tie_output=False) == [shared, tied, "output.table"]
    names = [name for name, _ in language_model().parameters() if name.endswith("table")]
    assert names == ["tokens.table", "embed.positions.table"]


def test_a_shared_table_collects_the_gradients_of_all_its_uses() -> None:
    """They are those of three tables with the same numbers."""
    one, three = transformer(), transformer(share_embeddings=False, tie_output=False)
    three.load_state(
        one.state() | {name: one.target_tokens.table.value for name in ("embed_source.tokens.table", "output.table")}
    )
    for model in (one, three):
        model.loss(SOURCE, TARGET, WANTED)[1]()
    separate = gradients_of(three)
    parts = [separate.pop(key) for key in ("target_tokens.table", "embed_source.tokens.table", "output.table")]
    assert all((part != 0.0).any() for part in parts)
    together = gradients_of(one)
    np.testing.assert_allclose(together.pop("target_tokens.table"), sum(parts), rtol=1e-12, atol=1e-15)
    for name, gradient in together.items():
        np.testing.assert_allclose(gradient, separate[name], rtol=1e-12, atol=1e-15, err_msg=name)


# --------------------------------------------------------------------------------------------- dropout and recomputing

DROPOUT: dict[str, Any] = {"dropout": 0.2, "attention_dropout": 0.3}


@EVERY_MODEL
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_recomputing_replays_dropout_to_the_last_bit(name: str, dtype: str) -> None:
    def run(recompute: bool, seed: int) -> tuple[float, dict[str, np.ndarray], float]:
        rng = np.random.default_rng(seed)
        build, loss_of = losses(rng)[name]
        model = build(recompute=recompute, **DROPOUT).to(dtype=dtype)
        loss, backward = loss_of(model)
        following = copy.deepcopy(rng).random()
        backward()
        assert rng.random() == following  # the pullback draws from a copy
        assert loss.dtype == dtype
        return float(loss), gradients_of(model), following

    loss, gradients, following = run(False, seed=4)
    replayed_loss, replayed, replayed_following = run(True, seed=4)
    assert (replayed_loss, replayed_following) == (loss, following)
    for key, gradient in gradients.items():
        np.testing.assert_array_equal(replayed[key], gradient, err_msg=key)
    assert run(True, seed=5)[0] != loss


@EVERY_MODEL
def test_without_a_generator_there_is_no_dropout(name: str) -> None:
    build, loss_of = losses()[name]
    model = build(**DROPOUT)
    assert loss_of(model)[0] == loss_of(model)[0] == loss_of(build(dropout=0.0, attention_dropout=0.0))[0]
    _, random_loss = losses(np.random.default_rng(0))[name]
    assert random_loss(model)[0] != loss_of(model)[0]


# ------------------------------------------------------------------------------------------------- state and devices


@EVERY_MODEL
def test_a_state_carries_a_model_over(name: str) -> None:
    """Also into one that is recomputed, on another device or of another dtype."""
    build, loss_of = losses()[name]
    model = build()
    state = model.state()
    other = build(recompute=True)
    other.load_state({key: np.zeros_like(array) for key, array in state.items()})
    assert loss_of(other)[0] != loss_of(model)[0]
    other.load_state(state)
    assert loss_of(other)[0] == loss_of(model)[0]
    with pytest.raises(ValueError, match=f"this state does not fit {name}: .* is missing"):
        model.load_state(dict(list(state.items())[1:]))


@EVERY_MODEL
def test_a_whole_model_runs_on_the_device_that_the_environment_names(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, loss_of = losses()[name]
    here = build().to(dtype="float64")
    loss, backward = loss_of(here)
    backward()

    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "strict")
    there = type(here)(here.config)
    assert {type(p.value).__name__ for _, p in there.parameters()} == {"StrictArray"}
    there.to(dtype="float64")
    there.load_state(here.state())
    ids = {"SOURCE": SOURCE, "TARGET": TARGET, "WANTED": WANTED, "LABELS": LABELS}
    for variable, array in ids.items():
        monkeypatch.setitem(globals(), variable, to_device(array))
    strict_loss, strict_backward = losses()[name][1](there)
    assert type(strict_loss).__name__ == "StrictArray"
    strict_backward()
    assert float(strict_loss) == pytest.approx(float(loss), rel=1e-13)
    expected = gradients_of(here)
    for key, gradient in gradients_of(there).items():
        np.testing.assert_allclose(gradient, expected[key], rtol=1e-11, atol=1e-13, err_msg=key)


@pytest.mark.few(1)
@EVERY_MODEL
def test_two_threads_may_share_a_model(name: str) -> None:
    """Each gets what it would get alone, with its own sequences and its own dropout."""
    model = losses()[name][0](**DROPOUT)

    def run(i: int, rounds: int) -> list[np.ndarray]:
        rng = np.random.default_rng(i)
        outputs = []
        for _ in range(rounds):
            ids = rng.integers(1, 7, size=(2 + i, 5 + i))
            inputs = (ids, ids[:, ::-1].copy()) if name == "Transformer" else (ids,)
            outputs.append(model(*inputs, rng=rng)[0])
        return outputs

    alone = [run(i, 10) for i in range(2)]
    together: dict[int, list[np.ndarray]] = {}
    start = threading.Barrier(2)

    def work(i: int) -> None:
        start.wait()
        together[i] = run(i, 10)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        for y, expected in zip(together[i], alone[i], strict=True):
            np.testing.assert_array_equal(y, expected)


# ------------------------------------------------------------------------------------------------------------ sizes


@pytest.fixture
def size_of() -> Callable[[Any], int]:
    """size_of(config): how many numbers the model of a config learns, found without making room for them."""

    def size_of(config: Any) -> int:
        model = getattr(models, type(config).__name__.removesuffix("Config"))(config, Unread())
        return sum(parameter.value.size for _, parameter in model.parameters())

    return size_of


# Table 3 of the paper: what is changed in the base model, and how many million parameters it gives.
TABLE_3 = {
    "base": ({}, 65),
    "2 layers": ({"n_encoder_layers": 2, "n_decoder_layers": 2}, 36),
    "4 layers": ({"n_encoder_layers": 4, "n_decoder_layers": 4}, 50),
    "8 layers": ({"n_encoder_layers": 8, "n_decoder_layers": 8}, 80),
    "d_model 256": ({"d_model": 256}, 28),
    "d_model 1024": ({"d_model": 1024}, 168),
    "d_ff 1024": ({"d_ff": 1024}, 53),
    "d_ff 4096": ({"d_ff": 4096}, 90),
}


@pytest.mark.parametrize("row", TABLE_3)
def test_the_base_model_and_its_variations_are_as_large_as_the_paper_says(
    row: str, size_of: Callable[[Any], int]
) -> None:
    """To the million, all with one vocabulary: of 41000 tokens, where section 5.1 speaks of "about 37000"."""
    changes, millions = TABLE_3[row]
    assert round(size_of(TransformerConfig.base(41000, **changes)) / 1e6) == millions


def test_base_and_big_with_37000_tokens(size_of: Callable[[Any], int]) -> None:
    """Three attentions and two feed-forward networks for each pair of layers, with biases and five norms.

    The paper's 65 and 213 million fit no common vocabulary. With its 37000 tokens base is 3 % smaller than it says and
    big less than 1 % larger.
    """
    base, big = size_of(TransformerConfig.base()), size_of(TransformerConfig.big())
    assert base == 37000 * 512 + 6 * (12 * 512**2 + 4 * 512 * 2048 + 12 * 512 + 2 * (2048 + 512) + 10 * 512)
    assert big == 37000 * 1024 + 6 * (12 * 1024**2 + 4 * 1024 * 4096 + 12 * 1024 + 2 * (4096 + 1024) + 10 * 1024)
    assert base == pytest.approx(65e6, rel=0.03)
    assert big == pytest.approx(213e6, rel=0.01)


def test_the_language_model_is_as_large_as_gpt_2(size_of: Callable[[Any], int]) -> None:
    """The published checkpoint of GPT-2's smallest model holds 124,439,808 numbers."""
    assert size_of(LanguageModelConfig(50257)) == 124_439_808


def test_configs_are_frozen_and_take_changes() -> None:
    config = TransformerConfig.big(1000, dropout=0.1, norm_order="pre")
    assert (config.d_model, config.n_heads, config.d_ff, config.dropout) == (1024, 16, 4096, 0.1)
    assert (config.source_vocabulary, config.target_vocabulary, config.norm_order) == (1000, 1000, "pre")
    base = TransformerConfig.base()
    assert (base.d_model, base.n_heads, base.d_ff, base.dropout, base.n_encoder_layers) == (512, 8, 2048, 0.1, 6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 8  # type: ignore[misc]


@dataclasses.dataclass(frozen=True)
class Softplus:
    """A recipe of its own: it has no n_layers and no share_embeddings, and its activation is an op without a name."""

    vocabulary: int = 7

    def parts(self, rng: np.random.Generator) -> Any:
        """GPT-2 with another activation."""
        parts = LanguageModelConfig(self.vocabulary, max_length=40, n_layers=2, **SMALL).parts(rng)
        for layer in parts.stack.layers:
            layer.feed_forward.sublayer = FeedForward(6, 10, softplus, rng=rng)  # type: ignore[attr-defined]
        return parts


@op("x, y: (...)")
def softplus(x: Any) -> Any:
    """log(1 + eˣ). backward(dy) returns dx."""
    return np.log1p(np.exp(x)), lambda dy: dy / (1.0 + np.exp(-x))


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, True])
def test_a_recipe_needs_only_its_parts_and_an_activation_is_a_socket(fast: bool) -> None:
    """With every gradient right, and the same in the fast twin."""
    model = ordinary(LanguageModel(Softplus()))
    used = accelerate(model) if fast else model
    expected, (found, cache) = model(TARGET)[0], (None, used.new_cache())
    for t in range(TARGET.shape[1]):
        found = used(TARGET[:, t : t + 1], cache=cache)[0]
    np.testing.assert_allclose(found[:, 0], expected[:, -1], rtol=1e-9)
    if fast:  # the check of a twin begins with its textbook form
        verify.gradients(
            lambda: used.loss(TARGET, WANTED), parameters=used, entrywise=0, directions=1, intermediates=False
        ).assert_ok()
    assert FeedForward(6, 10, softplus).cost(1, 3).kept == 3 * (6 + 2 * 10)
    assert cost.describe(model, 2, 3).flops == cost.describe(language_model(), 2, 3).flops


def test_models_save_writes_what_models_load_opens(tmp_path: Any) -> None:
    model = language_model()
    models.save(model, tmp_path / "model")
    found = models.load(tmp_path / "model")
    assert found.config == model.config
    np.testing.assert_array_equal(found(TARGET)[0], model(TARGET)[0])


def test_a_config_that_json_cannot_hold_leaves_no_folder_behind(tmp_path: Any) -> None:
    model = LanguageModel(LanguageModelConfig(7, max_length=4, n_layers=1, **SMALL, activation=softplus))
    with pytest.raises(TypeError, match="function is not JSON serializable"):
        models.save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------- bad input


def strict(x: np.ndarray) -> Any:
    return to_device(x, "strict")


T = Transformer(TransformerConfig(7, 7, **SMALL, **STACKS))
LM = LanguageModel(LanguageModelConfig(7, max_length=4, n_layers=2, **SMALL))
C = Classifier(ClassifierConfig(7, 3, n_layers=1, **SMALL))
MEMORY = np.ones((2, 4, 6), np.float32)
REAL = np.ones((2, 4), bool)

Bad = tuple[Callable[[], Any], type[Exception], str]
BAD: dict[str, Bad] = {
    # configs
    "two vocabularies for one table": (
        lambda: transformer(8), ValueError,
        r"share_embeddings needs one vocabulary, got 7 source and 8 target tokens; build a joint vocabulary or set",
    ),
    "no layers": (
        lambda: transformer(n_decoder_layers=0), ValueError, r"Transformer: n_decoder_layers must be greater than 0"
    ),
    "layers in halves": (
        lambda: language_model(n_layers=1.5), TypeError, r"LanguageModel: n_layers must be an integer"
    ),
    "the config of another kind": (
        lambda: LanguageModel(TransformerConfig(7, 7, **SMALL, **STACKS)), TypeError,
        r"LanguageModel: config must build LanguageModelParts, but TransformerConfig builds TransformerParts; con",
    ),
    # ids
    "source as a list": (
        lambda: T(SOURCE.tolist(), TARGET), TypeError, r"Transformer: source must be a NumPy or CuPy array, got list",
    ),
    "source as floats": (lambda: T(SOURCE * 1.0, TARGET), TypeError, r"ids must hold integers, got float64"),
    "one sequence without a batch": (
        lambda: T(SOURCE[0], TARGET), ValueError,
        r"Transformer: source must be a batch of sequences \(B, T\), got shape \(4,\)",
    ),
    "batches of different sizes": (
        lambda: T(SOURCE[:1], TARGET), ValueError, r"axes must be the same in x and memory, .* \(2, 5, 6\) and \(1, 4",
    ),
    "an empty batch": (lambda: T(SOURCE[:0], TARGET[:0]), ValueError, r"source is empty, its shape is \(0, 4\)"),
    "an empty target": (lambda: T(SOURCE, TARGET[:, :0]), ValueError, r"target is empty, its shape is \(2, 0\)"),
    "a negative id": (lambda: T(SOURCE - 1, TARGET), ValueError, r"ids must be from 0 to 6 \(there are 7\); got -1"),
    "a negative id where indices wrap": (
        lambda: transformer().to("strict")(strict(SOURCE - 1), strict(TARGET)), ValueError, r"from 0 to 6 .* got -1",
    ),
    "ids on another device": (lambda: T(strict(SOURCE), TARGET), TypeError, r"is on numpy but ids is on strict"),
    "ids for a language model without a batch": (
        lambda: LM(TARGET[0]), ValueError, r"LanguageModel: ids must be a batch of sequences \(B, T\), got shape",
    ),
    "an empty text": (lambda: LM(TARGET[:, :0]), ValueError, r"LanguageModel: ids is empty, its shape is \(2, 0\)"),
    "a text longer than the positions": (
        lambda: LM(TARGET), ValueError, r"positions 0 to 4 were requested, but the table holds positions 0 to 3",
    ),
    "ids for a classifier with three axes": (
        lambda: C(SOURCE[None]), ValueError, r"Classifier: ids must be a batch of sequences \(B, T\), got shape",
    ),
    # masks
    "a source mask of integers": (
        lambda: T(SOURCE, TARGET, (SOURCE != 0).astype(int)), TypeError, r"mask must be boolean .* got int64",
    ),
    "a source mask as a list": (
        lambda: T(SOURCE, TARGET, [[True] * 4] * 2), TypeError,
        r"Transformer: source_mask must be a NumPy or CuPy array, got list",
    ),
    "a source mask of another length": (
        lambda: T(SOURCE, TARGET, TARGET != 0), ValueError,
        r"Transformer: source_mask must have shape \(2, 4\), got \(2, 5\)",
    ),
    "a source mask with an axis for queries": (
        lambda: T(SOURCE, TARGET, REAL[:, None]), ValueError, r"source_mask must have shape \(2, 4\), got \(2, 1, 4\)",
    ),
    "a target mask of another batch": (
        lambda: T(SOURCE, TARGET, target_mask=np.ones((1, 5), bool)), ValueError,
        r"Transformer: target_mask must have shape \(2, 5\), got \(1, 5\)",
    ),
    "a source mask on another device": (
        lambda: T(SOURCE, TARGET, strict(SOURCE != 0)), TypeError, r"is on numpy but mask is on strict",
    ),
    "a mask to classify of another length": (
        lambda: C(SOURCE, REAL[:, :3]), ValueError, r"Classifier: mask must have shape \(2, 4\), got \(2, 3\)",
    ),
    # memory and caches
    "a memory of another width": (
        lambda: T.decode(TARGET, MEMORY[..., :5]), ValueError, r"the last axis of memory must be 6 \(d_model\)",
    ),
    "a memory of another dtype": (
        lambda: T.decode(TARGET, MEMORY.astype("float64")), TypeError, r"memory is float64 but x is float32",
    ),
    "a memory as a list": (
        lambda: T.decode(TARGET, MEMORY.tolist()), TypeError, r"Transformer: memory must be a NumPy or CuPy array",
    ),
    "a source mask that does not fit the memory": (
        lambda: T.decode(TARGET, MEMORY, REAL[:, :3]), ValueError,
        r"source_mask must have shape \(2, 4\), got \(2, 3\)",
    ),
    "a cache for too many layers": (
        lambda: T.decode(TARGET, MEMORY, cache=Cache(3)), ValueError, r"the cache is for 3 layers, but there are 2",
    ),
    "a cache for one layer": (
        lambda: LM(TARGET[:, :2], cache=KeyValueCache()), TypeError, r"cache must be a Cache\(2\), got KeyValueCache",
    ),
    # losses and gradients
    "wanted tokens of another shape": (
        lambda: T.loss(SOURCE, TARGET, WANTED[:, :4]), ValueError, r"targets must have shape \(2, 5\), got \(2, 4\)",
    ),
    "a wanted token beyond the vocabulary": (
        lambda: LM.loss(TARGET[:, :4], WANTED[:, :4] + 3), ValueError,
        r"targets must be from 0 to 6 \(there are 7\), or -100 for a position to ignore; got [78]",
    ),
    "a label beyond the classes": (lambda: C.loss(SOURCE, LABELS + 1), ValueError, r"targets must be from 0 to 2 .* 3"),
    "a seed for dropout": (
        lambda: T(SOURCE, TARGET, rng=0), TypeError, r"rng must be a numpy\.random\.Generator .* int",
    ),
}  # fmt: skip


@in_one("name", BAD)
def test_bad_input_is_a_clear_error(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error
