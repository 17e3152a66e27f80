"""Greedy decoding on the cache, held against a loop that runs the whole prefix again for every token."""

from __future__ import annotations

import numpy as np
import pytest

import minitransformer.verify.strict  # noqa: F401  (makes the device "strict" known)
from minitransformer.backend import to_device
from minitransformer.generation import greedy
from minitransformer.layers import SinusoidalPositions
from minitransformer.models import Transformer, TransformerConfig

START, END, NEVER = 1, 2, 16
N_SOURCE, N_TARGET = 11, 17
SEEDS = (1, 2, 3, 5)


def model_of(seed, device=None, norm_order="pre"):
    """A model in float64 that does not write one token for ever, as most random ones do.

    Its output table is its input table shuffled, so that a token calls for some other, unless attention says more.
    """
    rng = np.random.default_rng(seed)
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "n_encoder_layers": 1, "n_decoder_layers": 2}
    options = {"share_embeddings": False, "tie_output": False, "dropout": 0.3, "norm_order": norm_order}
    model = Transformer(TransformerConfig(N_SOURCE, N_TARGET, **sizes, **options), rng).to(dtype="float64")
    for name, parameter in model.parameters():
        middle = 1.0 if name.endswith("gamma") else 0.0
        spread = 1.0 if name.endswith("table") else 0.3
        parameter.value[...] = rng.normal(middle, spread, parameter.value.shape)
    model.output.table.value[...] = model.target_tokens.table.value[rng.permutation(N_TARGET)]
    model.output.table.value[NEVER] = 0.0  # the logit of this token is 0, and some other one is larger
    return model if device is None else model.to(device)


def sources(seed, n=5):
    """Sentences of several lengths: ids (n, 6) filled up with 0, and which of them are real."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    lengths[0] = 6
    real = np.arange(6) < lengths[:, None]
    return np.where(real, rng.integers(3, N_SOURCE, (n, 6)), 0), real


def naively(model, source, source_mask, start, end, max_length):
    """One sentence: the most probable next token, each time after the whole prefix from the beginning."""
    target = [start]
    while len(target) <= max_length and target[-1] != end:
        logits, _ = model(source[None, :], np.array([target]), source_mask[None, :])
        target.append(int(np.argmax(logits[0, -1])))
    return target[1:]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_greedy_writes_what_the_naive_loop_writes(norm_order, seed):
    model = model_of(seed, norm_order=norm_order)
    source, mask = sources(seed)
    together = greedy(model, source, mask, START, END, max_length=20)
    assert type(together) is np.ndarray and together.dtype == np.int64
    one_by_one = [naively(model, *pair, START, END, 20) for pair in zip(source, mask, strict=True)]
    assert together.shape == (len(source), max(map(len, one_by_one)))
    for row, wanted in zip(together.tolist(), one_by_one, strict=True):
        assert row == wanted + [END] * (len(row) - len(wanted))


def test_these_models_write_various_tokens():
    """Without this the comparisons above would prove little."""
    for seed in SEEDS:
        written = greedy(model_of(seed), *sources(seed), START, NEVER, max_length=20)
        assert len(np.unique(written)) > 5
        assert len(np.unique(written, axis=0)) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_is_written_as_its_sentences_one_by_one(seed):
    model = model_of(seed)
    source, mask = sources(seed)
    together = greedy(model, source, mask, START, END, max_length=15)
    for i, length in enumerate(mask.sum(axis=1)):
        alone = greedy(model, source[i : i + 1, :length], None, START, END, max_length=15)[0]
        assert together[i, : len(alone)].tolist() == alone.tolist()
        assert set(together[i, len(alone) :].tolist()) <= {END}


def test_what_stands_in_the_padding_does_not_matter():
    model = model_of(1)
    source, mask = sources(1)
    other = np.where(mask, source, 5)
    wanted = greedy(model, source, mask, START, END, max_length=15)
    assert np.array_equal(greedy(model, other, mask, START, END, max_length=15), wanted)
    assert not np.array_equal(greedy(model, other, None, START, END, max_length=15), wanted)


def test_writing_stops_at_the_end():
    model = model_of(1)
    source, mask = sources(1, n=1)
    endless = greedy(model, source, mask, START, NEVER, max_length=12)[0].tolist()
    assert NEVER not in endless and len(endless) == 12
    end = endless[5]
    stop = endless.index(end)
    assert greedy(model, source, mask, START, end, max_length=12)[0].tolist() == endless[: stop + 1]


def test_a_finished_sentence_is_filled_up_while_others_go_on():
    model = model_of(1)
    source, mask = sources(1)
    endless = greedy(model, source, mask, START, NEVER, max_length=12)
    often = [(int(token), (endless == token).any(axis=1)) for token in np.unique(endless)]
    end = next(token for token, said in often if said.any() and not said.all())
    written = greedy(model, source, mask, START, end, max_length=12)
    assert written.shape == (5, 12)  # some sentence never says this token
    for row, free in zip(written.tolist(), endless.tolist(), strict=True):
        stop = free.index(end) if end in free else 12
        assert row == free[:stop] + [end] * (12 - stop)


@pytest.mark.parametrize("max_length", [1, 7, 40])
def test_max_length_limits_what_is_written(max_length):
    ids = greedy(model_of(1), *sources(1), START, NEVER, max_length=max_length)
    assert ids.shape == (5, max_length)


def test_ids_may_be_of_any_integer_type_and_size():
    model = model_of(1)
    source, mask = sources(1)
    wanted = greedy(model, source, mask, START, END, max_length=9)
    for dtype in ("int32", "uint8"):
        assert np.array_equal(greedy(model, source.astype(dtype), mask, START, END, max_length=9), wanted)


def test_on_the_strict_device_the_same_is_written():
    source, mask = sources(1)
    wanted = greedy(model_of(1), source, mask, START, END, max_length=9)
    on_device = [to_device(array, "strict") for array in (source, mask)]
    ids = greedy(model_of(1, device="strict"), *on_device, START, END, max_length=9)
    assert type(ids) is np.ndarray and np.array_equal(ids, wanted)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"max_length": 0}, ValueError, "greedy: max_length must be greater than 0, got 0"),
        ({"max_length": 2.5}, TypeError, "greedy: max_length must be an integer, got 2.5"),
        ({"start": N_TARGET}, ValueError, "greedy: start and end must be from 0 to 16, got 17 and 2"),
        ({"end": -1}, ValueError, "greedy: start and end must be from 0 to 16, got 1 and -1"),
        ({"end": None}, TypeError, "greedy: end must be an integer, got None"),
        ({"source": [[3, 4]]}, TypeError, "expected a NumPy or CuPy array, got list"),
        ({"source": np.array([3, 4])}, ValueError, "must be a batch of sequences"),
        ({"source": np.array([[3.0, 4.0]])}, TypeError, "must hold integers, got float64"),
        ({"source": np.array([[3, N_SOURCE]])}, ValueError, "must be from 0 to 10 (there are 11); got 11"),
        ({"source": np.zeros((0, 4), dtype=int)}, ValueError, "source is empty"),
        ({"source_mask": np.ones((1, 3), dtype=bool)}, ValueError, "source_mask must have shape (1, 2), got (1, 3)"),
        ({"source_mask": np.ones((1, 2))}, TypeError, "mask must be boolean"),
    ],
)
def test_bad_arguments_are_refused(changes, error, message):
    arguments = {"source": np.array([[3, 4]]), "source_mask": None, "start": START, "end": END, "max_length": 4}
    greedy(model_of(1), **arguments)
    with pytest.raises(error) as caught:
        greedy(model_of(1), **(arguments | changes))
    assert message in str(caught.value)


def test_the_prefix_is_not_run_again(monkeypatch):
    """Each call of the decoder reads one new token; only so is the cache worth its name."""
    seen = []
    add_positions = SinusoidalPositions.__call__

    def noted(self, x, start=0):
        seen.append((start, x.shape[-2]))
        return add_positions(self, x, start)

    monkeypatch.setattr(SinusoidalPositions, "__call__", noted)
    greedy(model_of(1), *sources(1), START, NEVER, max_length=5)
    assert seen == [(0, 6), *((i, 1) for i in range(5))]  # the source, then token after token
