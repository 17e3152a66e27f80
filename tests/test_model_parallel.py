"""A model cut in parts, by heads and units or by layers, trains as the whole model does on one rank."""

import functools

import numpy as np
import pytest
from common import small
from test_data_parallel import pairs as unequal

from minitransformer.models import LanguageModelConfig, TransformerConfig
from minitransformer.run.machines.parallel import (
    cut,
    idle_share,
    in_threads,
    one_forward_one_backward,
    pipeline,
    stage_of,
)
from minitransformer.run.machines.parallel.group import ALONE, stretch
from minitransformer.run.machines.parallel.pipeline import Turn
from minitransformer.training import AdamW, Workers

STEPS = 10


transformer = functools.partial(
    small, TransformerConfig, 13, 13, d_model=12, n_heads=6, d_ff=18, n_decoder_layers=1, dropout=0.0
)
language_model = functools.partial(small, LanguageModelConfig, 11, n_layers=4, tie_output=False)


def pairs(step):
    """A batch whose sentences have unequal lengths."""
    rng = np.random.default_rng((1, step))
    ids = rng.integers(3, 13, (5, 7))
    ids[np.arange(7) >= rng.integers(2, 8, (5, 1))] = 0
    return ids, np.flip(ids, 0).copy()


def train(model, gradients):
    """Ten steps; the loss and all gradients of each."""
    parameters = dict(model.parameters())
    optimizer, found = AdamW(parameters.items(), 0.01), []
    for step in range(STEPS):
        model.zero_grad()
        loss = gradients(model, step)
        found.append((loss, {name: p.grad.copy() for name, p in parameters.items()}))
        optimizer.step()
    return found


def translation_loss(model, step):
    source, target = pairs(step)
    loss, backward = model.loss(source, target, target, source != 0, ignore_index=0)
    backward()
    return float(loss)


def near(found, wanted):
    return np.linalg.norm(found - wanted) <= 1e-12 * np.linalg.norm(wanted)


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [3, 1, 2])
def test_ten_steps_of_a_model_cut_by_heads_and_units(n):
    whole = train(transformer(), translation_loss)

    def work(group):
        return group, train(cut(transformer(), group), translation_loss)

    for group, steps in in_threads(n, work):
        check_parts(steps, whole, group)


def check_parts(found, whole, group):
    """The steps of a cut model against those of the whole."""
    for (loss, gradients), (loss_1, gradients_1) in zip(found, whole, strict=True):
        assert loss == pytest.approx(loss_1, rel=1e-12)
        assert len(gradients) == len(gradients_1)
        for name, gradient in gradients.items():
            plain = name.replace("sublayer.part.", "sublayer.").replace("sublayer.bias", "sublayer.output.bias")
            wanted = gradients_1[plain]
            if "sublayer.part." in name:
                axis = 0 if ".output." in name else wanted.ndim - 1
                wanted = wanted[(slice(None),) * axis + (stretch(wanted.shape[axis], group),)]
            elif name.endswith("tokens.table"):
                wanted = wanted[stretch(len(wanted), group)]
            if not name.endswith("key.bias"):  # its true gradient is zero, so all of it is rounding
                assert gradient.shape == wanted.shape and near(gradient, wanted), name


@pytest.mark.slow
def test_ten_steps_of_two_by_two_ranks():
    """Data parallel between the ranks that hold the same part of the model; the batches are padded."""
    corpus = unequal()
    batches = corpus.batches(np.random.default_rng(3))
    assert any(len({len(corpus.sources[row]) for row in rows}) > 1 for rows in batches[:STEPS])

    def work(group):
        tensor, data = group.split(group.rank // 2), group.split(group.rank % 2)
        return tensor, steps_of(cut(transformer(), tensor), data)

    def steps_of(model, data):
        workers = Workers(model, 1, data)
        return train(
            model, lambda _, step: workers.loss_and_gradients(corpus, [batches[step % len(batches)]], (0, step))
        )

    whole = steps_of(transformer(), ALONE)
    for tensor, steps in in_threads(4, work):
        check_parts(steps, whole, tensor)


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(ValueError, match="6 heads of queries do not divide into 4 equal parts"):
        in_threads(4, lambda group: cut(transformer(), group))


# ---- The pipeline. ----


def text(step):
    ids = np.random.default_rng((2, step)).integers(0, 11, (6, 7))
    return ids[:, :-1], ids[:, 1:]


def language_loss(model, step):
    loss, backward = model.loss(*text(step))
    backward()
    return float(loss)


@pytest.mark.few(1)
@pytest.mark.parametrize(("n", "pieces"), [(2, 4), (1, 2), (3, 2), (4, 4)])
def test_ten_steps_of_a_pipeline(n, pieces):
    whole = train(language_model(), language_loss)

    def work(group):
        turns = []

        def gradients(model, step):
            ids, wanted = text(step)
            stage, like = stage_of(model, ids, wanted, pieces, group)
            losses = []

            def kept(piece, x):
                y, backward = stage(piece, x)
                losses.append(float(y) if group.rank == group.size - 1 else 0.0)
                return y, backward

            turns[:] = one_forward_one_backward(kept, pieces, like, group)
            return sum(losses)

        return group.rank, train(language_model(), gradients), turns

    seen = set()
    for rank, steps, turns in in_threads(n, work):
        for (loss, gradients), (loss_1, gradients_1) in zip(steps, whole, strict=True):
            assert rank < n - 1 or loss == pytest.approx(loss_1, rel=1e-12)
            for name, gradient in gradients.items():
                if gradient.any() and not name.endswith("key.bias"):  # a layer of this rank
                    seen.add(name)
                    assert near(gradient, gradients_1[name]), name
        assert max(turn.waiting for turn in turns) == min(n - rank, pieces)
        assert [turn.piece for turn in turns if turn.kind == "B"] == list(range(pieces))
        if rank == n - 1:
            assert [turn.kind for turn in turns] == ["F", "B"] * pieces
    assert seen == {name for name in whole[0][1] if not name.endswith("key.bias")}


def test_the_idle_share_of_the_schedule_in_the_docstring_is_that_of_the_formula():
    lines = [line.split("rank ", 1)[1] for line in pipeline.__doc__.splitlines() if line.startswith("    rank ")]
    ranks = [
        [Turn(line[i], int(line[i + 1]), i, i + 3, 0) for i in range(len(line)) if line[i] in "FB"] for line in lines
    ]
    assert [len(turns) for turns in ranks] == [8, 8, 8]
    assert idle_share(ranks) == pytest.approx(2 / (4 + 2))  # (p - 1) / (m + p - 1)
    slower = [[Turn("F", 0, 0.0, 1.0, 1), Turn("B", 0, 3.0, 5.0, 0)], [Turn("F", 0, 1.0, 2.0, 1)]]
    assert idle_share(slower) == 1.0 - (3.0 + 1.0) / (2 * 5.0)
