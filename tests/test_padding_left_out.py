"""Padding left out of the layers: the same loss, gradients and random numbers, and which batches are taken."""

from typing import Any

import numpy as np
import pytest

from minitransformer.layers import Module, Residual, RMSNorm
from minitransformer.models import ClassifierConfig, LanguageModelConfig, TransformerConfig
from minitransformer.run.fast import accelerate, padding, row_blocks, sublayers, twins
from minitransformer.run.fast.compiler import compile_first

SIZES: dict[str, Any] = {"d_model": 12, "n_heads": 3, "d_ff": 20}
B, T, S = 5, 8, 11
SOURCES, TARGETS = np.array([11, 3, 9, 1, 6]), np.array([4, 8, 1, 5, 2])
R = np.random.default_rng(4)
SOURCE, TARGET = R.integers(1, 50, (B, S)), R.integers(1, 50, (B, T))
REAL = np.arange(S) < SOURCES[:, None]
WANTED = R.integers(1, 50, (B, T)) * (np.arange(T) < TARGETS[:, None])
COUNTED: dict[str, Any] = {"wanted": WANTED, "ignore_index": 0, "label_smoothing": 0.1}


def translator(**options: Any) -> tuple[Any, dict[str, Any]]:
    config = TransformerConfig(50, 50, n_encoder_layers=2, n_decoder_layers=2, **SIZES, **options)
    return config.build(np.random.default_rng(1)), {"source": SOURCE, "target": TARGET, "source_mask": REAL, **COUNTED}


def classifier(**options: Any) -> tuple[Any, dict[str, Any]]:
    model = ClassifierConfig(50, 3, n_layers=2, **SIZES, **options).build(np.random.default_rng(1))
    return model, {"ids": SOURCE, "labels": np.array([0, 1, 2, 0, 1]), "mask": REAL}


def writer(**options: Any) -> tuple[Any, dict[str, Any]]:
    model = LanguageModelConfig(50, max_length=T, n_layers=2, **SIZES, **options).build(np.random.default_rng(1))
    return model, {"ids": TARGET, **COUNTED}


MAKERS = {"translator": translator, "classifier": classifier, "writer": writer}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that went into each compiled sub-layer, of those that were called without padding."""
    compile_first()
    seen: list[int] = []

    def noting(form: Any) -> Any:
        def noted(layer: Any, x: Any, *given: Any, **how: Any) -> Any:
            result = form(layer, x, *given, **how)
            seen.extend([len(x)] if "rows" in how and result is not None else [])
            return result

        return noted

    for name in ("residual_attention", "residual_feed_forward"):
        monkeypatch.setattr(twins, name, noting(getattr(sublayers, name)))
    return seen


def found(model: Any, given: dict[str, Any], dropout: bool = False) -> list[np.ndarray]:
    """The loss, all gradients, and a random number drawn after them."""
    model.zero_grad()
    rng = np.random.default_rng(7) if dropout else None
    loss, backward = model.loss(**given, rng=rng)
    backward(0.7)
    drawn = [np.float64(rng.random())] if rng else []
    return [np.asarray(loss), *(p.grad.copy() for _, p in model.parameters()), *drawn]


def require_the_same(model: Any, given: dict[str, Any], dropout: bool = False) -> None:
    for p, parameter in enumerate(p for _, p in model.parameters()):
        parameter.value[...] += 0.1 * np.random.default_rng(p).normal(size=parameter.value.shape)
    exact = found(model.to(dtype="float64"), given, dropout)
    fast = found(accelerate(model.to(dtype="float32")), given, dropout)
    largest = max(float(np.abs(x).max()) for x in exact[1:])  # the gradient of a bias of keys is zero
    for i, (ours, right) in enumerate(zip(fast, exact, strict=True)):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=2e-6 * largest, err_msg=str(i))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("attention_dropout", [0.0, 0.3])
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_loss_without_padding_is_the_same(
    kind: str, norm_order: str, attention_dropout: float, recompute: bool, rows: list[int]
) -> None:
    options = {"norm_order": norm_order, "attention_dropout": attention_dropout, "recompute": recompute}
    model, given = MAKERS[kind](dropout=0.2, **options)
    require_the_same(model, given, dropout=True)
    n_source, n_target = SOURCES.sum(), TARGETS.sum()
    expected = {"translator": [n_source] * 4 + [n_target] * 6, "classifier": [n_source] * 4, "writer": [n_target] * 4}
    assert rows[: len(expected[kind])] == expected[kind]
    assert len(rows) == len(expected[kind]) * (1 + recompute)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_share_the_heads_of_sequences_of_any_length(
    n_threads: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sublayers, "SHARED", 1)
    monkeypatch.setattr(sublayers, "blas_threads", lambda: n_threads)
    require_the_same(*translator(dropout=0.0))
    assert rows


def test_targets_that_count_nowhere_or_only_at_first(rows: list[int]) -> None:
    """A sequence without a target that counts has no row; those before the last one that counts stay."""
    wanted = WANTED.copy()
    wanted[1], wanted[3, :3] = 0, 0
    model, given = translator(dropout=0.0)
    require_the_same(model, given | {"wanted": wanted})
    assert rows[-1] == TARGETS.sum() - TARGETS[1]


def test_a_mask_of_the_target_stays_in_force(rows: list[int]) -> None:
    """It may end where the targets that count do, but not before."""
    model, given = translator(dropout=0.0)
    exactly = np.arange(T) < TARGETS[:, None]
    require_the_same(model, given | {"target_mask": exactly})
    assert rows[-1] == TARGETS.sum()
    rows.clear()
    for mask in (exactly & (np.arange(T) != 1), np.arange(T) < np.maximum(TARGETS - 2, 1)[:, None]):
        require_the_same(model, given | {"target_mask": mask})
        assert set(rows) == {SOURCES.sum()}  # the encoder alone


def test_first_token_of_a_classifier(rows: list[int]) -> None:
    model, given = classifier(dropout=0.0)
    model.pool = twins.FirstToken(12)
    require_the_same(model, given)
    assert rows


@pytest.mark.parametrize(
    "mask",
    [
        np.arange(S) >= S - SOURCES[:, None],  # padding first
        REAL & (np.arange(S) != 1),  # a hole
        np.arange(S) < np.array([11, 11, 11, 10, 11])[:, None],  # hardly any padding
        None,
    ],
    ids=["first", "hole", "little", "none"],
)
def test_padding_that_stays(mask: Any, rows: list[int]) -> None:
    model, given = classifier(dropout=0.0)
    require_the_same(model, given | {"mask": mask})
    assert not rows


def test_a_memory_without_a_token_is_as_in_the_textbook(rows: list[int]) -> None:
    model, given = translator(dropout=0.0)
    require_the_same(model, given | {"source_mask": REAL & (np.arange(B) != 3)[:, None]})
    assert not rows


def test_models_that_keep_their_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without loops, in float64, on few tokens, with other parts."""
    monkeypatch.setattr(padding.WithoutPadding, "_of_rows", None)
    model, given = classifier(dropout=0.0)
    with row_blocks.numpy_only():
        require_the_same(model, given)
    for dtype in ("float64", "float16"):
        accelerate(model.to(dtype=dtype)).loss(**given)
    few = {name: array[3:4] for name, array in given.items()}
    require_the_same(model.to(dtype="float32"), few)
    model.encoder.layers[1].feed_forward.norm = RMSNorm(12)
    require_the_same(model, given)

    class Alone(Module):
        """A stack of no layers."""

        def __call__(self, x: Any, **how: Any) -> Any:
            return 2.0 * x, lambda dy: 2.0 * dy

    writes, ids = writer(dropout=0.0)
    writes.stack = Alone()
    require_the_same(writes, ids)

    class Pool(type(model.pool)):  # type: ignore[misc]
        """It may read padding."""

    model, given = classifier(dropout=0.0)
    model.pool = Pool()
    require_the_same(model, given)

    class Connection(Residual):
        """It may do more."""

    model, given = classifier(dropout=0.0)
    model.encoder.layers[0].feed_forward.__class__ = Connection
    require_the_same(model, given)


def test_a_part_that_declines_gets_its_padding_back(rows: list[int]) -> None:
    for kind in MAKERS:
        model, given = MAKERS[kind](dropout=0.2)
        stack = model.decoder if kind == "translator" else model.encoder if kind == "classifier" else model.stack
        parts = [stack.layers[1].self_attention.sublayer.query, stack.layers[0].feed_forward.sublayer.inner]
        parts += [stack.layers[1].cross_attention.sublayer.value] if kind == "translator" else []
        for part in parts:
            part.weight.value = np.asfortranarray(part.weight.value)  # the loops want rows
        require_the_same(model, given, dropout=True)
        assert len(rows) == {"translator": 7, "classifier": 2, "writer": 2}[kind]
        rows.clear()


def test_without_padding_a_loss_reads_what_the_textbook_reads() -> None:
    """Nothing of a stack stays changed, and the twin's other calls have all rows."""
    model, given = translator(dropout=0.0)
    twin = accelerate(model.to(dtype="float32"))
    before = dict(vars(twin))
    twin.loss(**given)
    assert vars(twin) == before
    arguments = given["source"], given["target"], given["source_mask"]
    np.testing.assert_allclose(twin(*arguments)[0], model(*arguments)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["source_mask", "mask"])
@pytest.mark.parametrize("wrong", [REAL[:, 1:], REAL.astype(float), REAL.tolist()], ids=["shape", "dtype", "list"])
def test_the_errors_are_those_of_the_textbook(name: str, wrong: Any) -> None:
    model, given = translator() if name == "source_mask" else classifier()
    messages = []
    for each in (model, accelerate(model)):
        with pytest.raises((TypeError, ValueError)) as refused:
            each.loss(**given | {name: wrong})
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_rows_go_back_to_their_places() -> None:
    x = np.arange(B * S * 2.0).reshape(B, S, 2)
    each = padding.Rows.of(REAL[:, None], x)
    assert each is not None
    np.testing.assert_array_equal(each.padded(each.packed(x)), np.where(REAL[..., None], x, 0.0))
    np.testing.assert_array_equal(each.starts, [0, 11, 14, 23, 24, 30])
