"""How often a training step makes the host wait for the device, as the strict stand-in for CuPy counts it."""

import threading

import numpy as np
import pytest
from common import small
from tiers import in_one

from minitransformer import ops
from minitransformer.core.arrays.backend import array_module, to_device
from minitransformer.core.arrays.boundary import ids_looked_at
from minitransformer.core.arrays.strict import round_trips
from minitransformer.core.training.corpora import LabelledCorpus, PairCorpus, TextCorpus
from minitransformer.models import ClassifierConfig, LanguageModelConfig, TransformerConfig
from minitransformer.training import Trainer, TrainingSettings

SIZES = {"d_ff": 16, "dropout": 0.1, "attention_dropout": 0.1, "dtype": "float32"}


def strict(x):
    return to_device(np.asarray(x), "strict")


def sentences():
    rng = np.random.default_rng(1)
    return [rng.integers(3, 11, rng.integers(2, 6)).tolist() for _ in range(20)]


def language_model():
    model = small(LanguageModelConfig, 11, max_length=8, **SIZES)
    return model, TextCorpus(np.random.default_rng(1).integers(0, 11, 200), length=8, rows=4)


def translator():
    return small(TransformerConfig, 11, 11, **SIZES), PairCorpus(sentences(), sentences()[::-1], 40, 0.1)


def classifier():
    model = small(ClassifierConfig, 11, 2, n_layers=1, **SIZES)
    return model, LabelledCorpus(sentences(), [0, 1] * 10, 40)


# ---- A training step. ----


@pytest.mark.few(6)
@pytest.mark.parametrize("changes", [{}, {"optimizer": "sgd"}, {"clip": 1e-3, "weight_decay": 0.1}, {"clip": 0.0}])
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("make", [language_model, translator, classifier])
def test_a_step_waits_for_the_loss_and_the_norm_of_the_gradients_and_for_nothing_else(
    make, precision, changes, tmp_path
) -> None:
    model, corpus = make()
    settings = TrainingSettings(steps=9, warmup=1, precision=precision, **changes)
    trainer = Trainer(model.to("strict"), corpus, corpus, settings, tmp_path)
    for _ in range(2):  # the second step meets what the first has kept
        with round_trips() as heard:
            trainer._step()
        assert [line.partition(" line")[0] for line in heard] == ["float, in workers.py"] * 2


def test_every_further_batch_and_worker_waits_for_its_loss(tmp_path) -> None:
    model, corpus = language_model()
    for settings, n in (({"accumulate": 3}, 3 + 1), ({"workers": 2}, 2 + 2)):  # a norm for each worker's share
        chosen = TrainingSettings(steps=9, warmup=1, **settings)
        trainer = Trainer(model.to("strict"), corpus, corpus, chosen, tmp_path)
        with round_trips() as heard:
            trainer._step()
        assert len(heard) == n


def test_a_skipped_step_waits_no_longer(tmp_path) -> None:
    model, corpus = language_model()
    settings = TrainingSettings(steps=9, warmup=1, precision="float16")
    trainer = Trainer(model.to("strict"), corpus, corpus, settings, tmp_path)
    trainer.progress.loss_scale = 2.0**40
    with round_trips() as heard:
        assert trainer._step()["gradient_norm"] is None
    assert len(heard) == 2


# ---- What the stand-in hears. ----

WAITS = {
    "float": lambda a: float(a[0]),
    "int": lambda a: int(a[0]),
    "bool": lambda a: bool(a[0]),
    "if": lambda a: 1 if a[0] else 0,
    "item": lambda a: a[0].item(),
    "tolist": lambda a: a.tolist(),
    "get": lambda a: a.get(),
    "format": lambda a: f"{a}",
    "repr": lambda a: repr(a),
    "a[condition]": lambda a: a[a > 1.0],
    "nonzero": lambda a: a.nonzero(),
    "where of a condition alone": lambda a: array_module(a).where(a > 1.0),
    "flatnonzero": lambda a: array_module(a).flatnonzero(a),
    "unique": lambda a: array_module(a).unique(a),
}
DOES_NOT_WAIT = {
    "arithmetic": lambda a: (a * 2.0 - a) @ a,
    "a sum": lambda a: a.sum(),
    "a comparison": lambda a: a > 1.0,
    "an index": lambda a: a[1],
    "a slice": lambda a: a[1:],
    "ids": lambda a: a[strict([0, 2])],
    "a choice": lambda a: array_module(a).where(a > 1.0, a, 0.0),
    "a copy to the device": lambda a: strict([1.0, 2.0]),
    "the shape": lambda a: (a.shape, len(a), a.dtype),
}


@in_one("name", WAITS)
def test_whatever_fetches_a_number_is_heard_once_with_its_place(name) -> None:
    a = strict([1.0, 2.0, 3.0])
    with round_trips() as heard:
        WAITS[name](a)
    assert len(heard) == 1
    assert "in test_round_trips.py line " in heard[0]
    WAITS[name](a)
    assert len(heard) == 1  # nobody listens any more


@in_one("name", DOES_NOT_WAIT)
def test_what_stays_on_the_device_is_not_heard(name) -> None:
    a = strict([1.0, 2.0, 3.0])
    with round_trips() as heard:
        DOES_NOT_WAIT[name](a)
    assert heard == []


def test_other_threads_and_listeners_around_this_one_hear_it_too() -> None:
    a = strict(1.0)
    with round_trips() as outer:
        with round_trips() as inner:
            thread = threading.Thread(target=lambda: float(a))
            thread.start()
            thread.join()
        float(a)
    assert (len(outer), len(inner)) == (2, 1)


# ---- Ids are looked at on the host. ----


def test_ids_on_the_device_are_looked_at_unless_their_owner_did() -> None:
    table, ids = strict(np.eye(3)), strict([0, 3])
    with pytest.raises(ValueError, match="ids must be from 0 to 2"):
        ops.embedding(ids, table)
    with ids_looked_at(), round_trips() as heard:
        ops.embedding(ids, table)
    assert heard == []
    with ids_looked_at(), pytest.raises(ValueError, match="ids must be from 0 to 2"):
        ops.embedding(np.array([0, 3]), np.eye(3))  # to look at these costs no wait
    with pytest.raises(ValueError, match="targets must be from 0 to 2"):
        ops.cross_entropy(table, strict([0, 1, 3]))


@pytest.mark.parametrize("make", [language_model, translator, classifier])
def test_a_corpus_refuses_ids_that_its_model_does_not_have(make) -> None:
    model, corpus = make()
    model.to("strict")
    rows = corpus.batches(None)[0]
    corpus.loss(model, rows, None)
    for name in ("ids", "sources", "targets", "texts", "labels"):
        if hasattr(corpus, name):
            right = getattr(corpus, name)
            setattr(corpus, name, wrong(right))
            called = {"sources": "source ids", "targets": "target ids", "labels": "labels"}.get(name, "ids")
            with pytest.raises(ValueError, match=rf": {called} must be from 0 to \d+ .*; got 11"):
                corpus.loss(model, rows, None)
            setattr(corpus, name, right)
    corpus.loss(model, rows, None)


def wrong(ids):
    """The same ids, but the last of each sentence, or every one, is 11."""
    if isinstance(ids, np.ndarray):
        return np.full_like(ids, 11)
    return [[*sentence[:-1], 11] for sentence in ids]
