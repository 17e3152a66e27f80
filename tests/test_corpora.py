"""Corpora: batches that hold every row once and little padding, and losses that padding does not touch."""

import functools

import numpy as np
import pytest
from common import small
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.core.training.corpora import LabelledCorpus, PairCorpus, TextCorpus
from minitransformer.models import ClassifierConfig, LanguageModelConfig, TransformerConfig
from minitransformer.text import END, PAD, START

V = 11
transformer = functools.partial(small, TransformerConfig, V, V, dropout=0.0)
language_model = functools.partial(small, LanguageModelConfig, V, max_length=5, dropout=0.0, attention_dropout=0.0)
classifier = functools.partial(small, ClassifierConfig, V, 3, dropout=0.0)


def sentences(n, longest, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, V, size).tolist() for size in rng.integers(1, longest + 1, n)]


def pairs(n=9, longest=6, tokens=30, **options):
    """Targets of about the length of their sources."""
    rng = np.random.default_rng(1)
    sources = sentences(n, longest, 0)
    targets = [rng.integers(3, V, max(1, len(s) + rng.integers(-2, 3))).tolist() for s in sources]
    return PairCorpus(sources, targets, tokens, **options)


def labelled(n=9, longest=6, tokens=30, **options):
    return LabelledCorpus(sentences(n, longest, 2), (np.arange(n) % 3).tolist(), tokens, **options)


def rngs(seed=0):
    return [None, np.random.default_rng(seed)]


@pytest.mark.parametrize("corpus", [pairs(600, 40, 400), labelled(600, 40, 400)], ids=["pairs", "labelled"])
@pytest.mark.parametrize("rng", rngs(), ids=["in order", "shuffled"])
def test_an_epoch_holds_every_sentence_once_in_full_batches_with_little_padding(corpus, rng):
    if isinstance(corpus, PairCorpus):
        sides = [[len(s) for s in corpus.sources], [len(t) + 1 for t in corpus.targets]]
    else:
        sides = [[len(text) for text in corpus.texts]]
    sides = np.array(sides)

    def padding(batches):
        area = sum(len(rows) * sides[:, rows].max(axis=1).sum() for rows in batches)
        return 1.0 - sides.sum() / area

    batches = corpus.batches(rng)
    assert sorted(np.concatenate(batches).tolist()) == list(range(600))
    sizes = [len(rows) * sides[:, rows].max() for rows in batches]
    assert max(sizes) <= 400 and np.mean(sizes) > 300
    by_chance = np.array_split(np.random.default_rng(0).permutation(600), len(batches))
    assert padding(batches) < 0.15 < 0.35 < padding(by_chance)


@pytest.mark.parametrize("corpus", [pairs(tokens=3), labelled(tokens=3)], ids=["pairs", "labelled"])
@pytest.mark.parametrize("rng", rngs(), ids=["in order", "shuffled"])
def test_too_few_tokens_for_the_longest_sentence_are_an_error(corpus, rng):
    with pytest.raises(ValueError, match=r"a batch of 3 tokens cannot hold a sentence of [67]; allow more tokens"):
        corpus.batches(rng)


def test_the_longest_side_counts_and_the_end_of_the_target_too():
    assert [len(rows) for rows in PairCorpus([[3]] * 4, [[3, 4]] * 4, tokens=6).batches(None)] == [2, 2]
    assert [len(rows) for rows in PairCorpus([[3] * 4] * 4, [[3]] * 4, tokens=8).batches(None)] == [2, 2]


def log_probabilities(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def costs(corpus, model, row, smoothing=0.0):
    """The cross-entropy of each prediction of one sentence, read alone and without a mask."""
    if isinstance(corpus, PairCorpus):
        source, target = corpus.sources[row], corpus.targets[row]
        logits = model(np.array([source]), np.array([[START, *target]]))[0][0]
        wanted = [*target, END]
    elif isinstance(corpus, LabelledCorpus):
        logits, wanted = model(np.array([corpus.texts[row]]))[0], [corpus.labels[row]]
    else:
        window = corpus.ids[row : row + corpus.length + 1]
        logits, wanted = model(window[None, :-1])[0][0], window[1:]
    log_p = log_probabilities(logits)
    right = -log_p[np.arange(len(wanted)), wanted]
    return (1.0 - smoothing) * right - smoothing * log_p.mean(axis=-1)


CORPORA = [
    (pairs, transformer),
    (labelled, classifier),
    (lambda **_: TextCorpus(np.random.default_rng(3).integers(3, V, 40), length=5, rows=4), language_model),
]


@pytest.mark.parametrize("make, make_model", CORPORA, ids=["pairs", "labelled", "text"])
def test_the_loss_of_a_batch_is_the_mean_over_all_predictions_of_its_sentences(make, make_model):
    corpus, model = make(), make_model()
    batches = [*corpus.batches(None), *corpus.batches(np.random.default_rng(0))]
    if not isinstance(corpus, TextCorpus):
        batches.append(np.arange(9))  # of all lengths: much padding
        assert len({corpus.count(np.array([row])) for row in range(9)}) > 2 or isinstance(corpus, LabelledCorpus)
    for rows in batches:
        wanted = np.concatenate([costs(corpus, model, row) for row in rows])
        assert corpus.count(rows) == len(wanted)
        for rng in rngs():  # without smoothing and dropout there is nothing to draw
            assert float(corpus.loss(model, rows, rng)[0]) == pytest.approx(wanted.mean(), rel=1e-12)


@pytest.mark.parametrize("make, make_model", CORPORA[:2], ids=["pairs", "labelled"])
def test_labels_are_smoothed_in_training_only(make, make_model):
    corpus, model, rows = make(label_smoothing=0.3), make_model(), np.arange(9)
    for rng, smoothing in zip(rngs(), (0.0, 0.3), strict=True):
        wanted = np.concatenate([costs(corpus, model, row, smoothing) for row in rows]).mean()
        assert float(corpus.loss(model, rows, rng)[0]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("make, make_model", CORPORA[:2], ids=["pairs", "labelled"])
def test_padding_gets_no_gradient(make, make_model):
    corpus, model = make(label_smoothing=0.1), make_model()
    model.zero_grad()
    corpus.loss(model, np.arange(9), np.random.default_rng(0))[1]()
    tables = {name: p.grad for name, p in model.parameters() if name.endswith("tokens.table")}
    assert tables
    for name, gradient in tables.items():
        assert np.abs(gradient[3:]).max() > 0
        if make is labelled:  # a table that makes logits too has a gradient in every row
            assert (gradient[PAD] == 0).all(), name


@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 5))
def test_windows_to_validate_on_predict_every_token_but_the_first_once(n, length, rows):
    if n <= length:
        with pytest.raises(ValueError, match=f"longer than a window of {length} tokens, but has {n}"):
            TextCorpus(np.zeros(n, int), length, rows)
        return
    corpus = TextCorpus(np.arange(n), length, rows)
    predicted = []
    for batch in corpus.batches(None):
        ends = [min(start + length, n - 1) for start in batch]
        assert len(batch) <= rows and len({end - start for start, end in zip(batch, ends, strict=True)}) == 1
        assert corpus.count(batch) == sum(end - start for start, end in zip(batch, ends, strict=True))
        predicted += [i for start, end in zip(batch, ends, strict=True) for i in range(start + 1, end + 1)]
    assert sorted(predicted) == list(range(1, n))


@given(st.integers(13, 200), st.integers(1, 12), st.integers(1, 5), st.integers(0, 5))
def test_windows_to_train_on_lie_anywhere_in_the_text(n, length, rows, seed):
    corpus = TextCorpus(np.arange(n), length, rows)
    batches = corpus.batches(np.random.default_rng(seed))
    assert len(batches) == max(1, (n - 1) // (length * rows))
    for batch in batches:
        assert batch.shape == (rows,) and batch.min() >= 0 and batch.max() + length < n
        assert corpus.count(batch) == rows * length
