"""Data parallel training equals training by one rank, and its checkpoints do not depend on the number of ranks."""

import numpy as np
import pytest
from common import small
from safetensors.numpy import load_file

from minitransformer.core.training.corpora import PairCorpus, TextCorpus
from minitransformer.models import LanguageModelConfig, TransformerConfig
from minitransformer.run.machines import buckets, checkpoint, run_folder
from minitransformer.run.machines.parallel import in_threads
from minitransformer.run.machines.parallel.group import ALONE, same_everywhere
from minitransformer.run.machines.pieces import InPieces
from minitransformer.run.machines.run_folder import read_log
from minitransformer.run.machines.sharded import ShardedOptimizer
from minitransformer.run.machines.workers import share
from minitransformer.training import AdamW, Trainer, TrainingSettings, Workers

STEPS = 10


def pairs():
    """Sentences of unequal lengths, so that batches are padded."""
    rng = np.random.default_rng(1)
    sides = [[rng.integers(4, 13, rng.integers(1, 9)).tolist() for _ in range(40)] for _ in range(2)]
    return PairCorpus(*sides, tokens=60, label_smoothing=0.1)


def transformer(dropout=0.0):
    return small(TransformerConfig, 13, 13, n_decoder_layers=1, dropout=dropout, attention_dropout=dropout)


def ten_steps(group, workers=1, accumulate=1, sharded=False, dropout=0.0, overlap=True):
    """The loss, the norm and all gradients of each step, and the values at the end."""
    corpus, model = pairs(), transformer(dropout)
    each = Workers(model, workers, group, sharded, overlap)
    parameters = dict(model.parameters())

    def make(some):
        return InPieces(AdamW(some, 0.01, (0.9, 0.95), 1e-9, weight_decay=0.1), each.share_out)

    optimizer = ShardedOptimizer(parameters.items(), group, make) if sharded else make(parameters.items())
    batches = corpus.batches(np.random.default_rng(2))
    found = []
    for step in range(STEPS):
        some = [batches[(step * accumulate + i) % len(batches)] for i in range(accumulate)]
        loss = each.loss_and_gradients(corpus, some, (0, step))
        found.append([loss, each.gradient_norm(), {name: p.grad.copy() for name, p in parameters.items()}])
        optimizer.step(0.01)
    return found, {name: p.value.copy() for name, p in parameters.items()}, optimizer.state()


@pytest.mark.slow
def test_sums_that_overlap_with_backward_have_the_same_bits(monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET", 100)  # several in each layer
    options = {"workers": 2, "accumulate": 2, "dropout": 0.2}
    with_overlap, without = (
        in_threads(3, lambda group, on=on: ten_steps(group, overlap=on, **options)[0]) for on in (True, False)
    )
    for steps, steps_without in zip(with_overlap, without, strict=True):
        for (loss, _, gradients), (loss_1, _, gradients_1) in zip(steps, steps_without, strict=True):
            assert loss == loss_1
            assert all(np.array_equal(gradients[name], gradients_1[name]) for name in gradients_1)


def worst(found, wanted):
    """The largest relative difference of any parameter's array.

    The bias of the keys is left out: its true gradient is zero, so all of it is rounding.
    """
    assert found.keys() == wanted.keys()
    names = [name for name in wanted if not name.endswith("key.bias")]
    return max(np.linalg.norm(found[name] - wanted[name]) / np.linalg.norm(wanted[name]) for name in names)


@pytest.mark.few(2)
@pytest.mark.parametrize(("n", "options"), [(2, {}), (3, {}), (4, {}), (2, {"workers": 2, "accumulate": 2})], ids=str)
def test_losses_and_all_gradients_are_those_of_one_rank(n, options):
    alone, values, _ = ten_steps(ALONE, accumulate=options.get("accumulate", 1))
    for steps, values_there, _ in in_threads(n, lambda group: ten_steps(group, **options)):
        for (loss, norm, gradients), (loss_1, norm_1, gradients_1) in zip(steps, alone, strict=True):
            assert loss == pytest.approx(loss_1, rel=1e-12) and norm == pytest.approx(norm_1, rel=1e-12)
            assert worst(gradients, gradients_1) < 1e-12
        assert worst(values_there, values) < 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_sharded_optimizer_equals_one_rank_and_its_memory_is_an_nth(n):
    alone, values, state = ten_steps(ALONE)
    sharded = in_threads(n, lambda group: ten_steps(group, sharded=True))
    for steps, values_there, state_there in sharded:
        for (loss, norm, _), (loss_1, norm_1, _) in zip(steps, alone, strict=True):
            assert loss == pytest.approx(loss_1, rel=1e-12) and norm == pytest.approx(norm_1, rel=1e-12)
        assert worst(values_there, values) < 1e-12
        assert list(state_there) == list(state)
        for name in state:
            assert state_there[name].shape == state[name].shape
            np.testing.assert_allclose(state_there[name], state[name], rtol=1e-9, atol=1e-15)

    def memory(group):
        model = transformer()
        Workers(model, 1, group, sharded=True)
        return ShardedOptimizer(model.parameters(), group, lambda some: AdamW(some, 0.01)).memory

    whole = sum(array.nbytes for array in state.values())
    assert all(abs(bytes_ - whole / n) < 64 for bytes_ in in_threads(n, memory))


def test_with_dropout_the_same_number_of_ranks_gives_the_same_bits():
    first, again = (in_threads(3, lambda group: ten_steps(group, dropout=0.2)) for _ in range(2))
    other = in_threads(2, lambda group: ten_steps(group, dropout=0.2))
    for rank in range(3):
        for name, value in first[0][1].items():
            assert np.array_equal(value, again[rank][1][name]) and np.array_equal(value, first[rank][1][name])
    assert first[0][0][0][0] != other[0][0][0][0]  # other ranks draw other masks


def test_shares_are_equal_in_tokens_and_together_the_batch():
    corpus = pairs()
    for rows in corpus.batches(None):
        for n in (2, 3, 4):
            shares = in_threads(n, lambda group, rows=rows: share(corpus, rows, group))
            assert sorted(np.concatenate(shares)) == sorted(rows)
            counts = [corpus.count(part) for part in shares]
            assert max(counts) - min(counts) <= max(corpus.count(rows[i : i + 1]) for i in range(len(rows)))


def trainer(folder, group=ALONE, **changes):
    training, validation = (
        TextCorpus(np.random.default_rng(seed).integers(0, 11, n), length=6, rows=5) for seed, n in ((1, 130), (3, 60))
    )
    values = {"steps": 12, "warmup": 2, "validate_every": 4, "save_every": 4} | changes
    model = small(LanguageModelConfig, 11, n_layers=1, dropout=0.0, attention_dropout=0.0)
    return Trainer(model, training, validation, TrainingSettings(**values), folder, group=group)


def losses(folder):
    return [record["loss"] for record in read_log(folder / "log.jsonl") if "loss" in record]


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpoint_of_four_ranks_goes_on_with_any_number(tmp_path, sharded, monkeypatch):
    monkeypatch.setattr(run_folder, "write_figure", lambda *_: None)  # drawing takes longer than all training
    trainer(tmp_path / "one").run()

    def begun(group, folder):
        return trainer(folder, group, shard_optimizer=sharded).run(stop_after=7)

    def resumed(group, folder):
        run = trainer(folder, group, shard_optimizer=sharded)
        return run.resume(), run.run()

    for n in (1, 3, 4):
        folder = tmp_path / str(n)
        assert {each.step for each in in_threads(4, lambda group, folder=folder: begun(group, folder))} == {7}
        assert checkpoint.steps(folder)[-1] == 7
        ended = in_threads(n, lambda group, folder=folder: resumed(group, folder))
        assert {(step, outcome.ended, outcome.step) for step, outcome in ended} == {(7, "finished", 12)}
        np.testing.assert_allclose(losses(folder), losses(tmp_path / "one"), rtol=1e-12)
        assert not list(folder.rglob("*.tmp"))
    in_threads(4, lambda group: trainer(tmp_path / "through", group, shard_optimizer=sharded).run())
    through, halves = (load_file(tmp_path / name / "model.safetensors") for name in ("through", "4"))
    assert all(np.array_equal(through[name], halves[name]) for name in through)


@pytest.mark.slow
def test_rank_0_alone_speaks_and_writes(tmp_path):
    said = {0: [], 1: [], 2: []}
    outcomes = in_threads(3, lambda group: trainer(tmp_path, group, average=2).run(say=said[group.rank].append))
    assert len(said[0]) == 3 and said[1] == said[2] == []
    assert len(set(outcomes)) == 1
    assert len(losses(tmp_path)) == 12


def test_a_loss_that_is_no_number_is_explained_on_all_ranks(tmp_path):
    def work(group):
        run = trainer(tmp_path, group)
        next(p for name, p in run.model.parameters() if name.endswith("inner.bias")).value[0] = np.nan
        with pytest.raises(FloatingPointError) as error:
            run.run()
        return str(error.value)

    first, second = in_threads(2, work)
    assert first == second and "the first layer whose output was not finite is" in first


def test_ranks_with_other_settings_are_named():
    def work(group, facts):
        with pytest.raises(ValueError, match="all ranks must train the same") as error:
            same_everywhere(group, facts[group.rank])
        return str(error.value)

    same = {"seed": "0", "content of text": "ab"}
    (first, second) = in_threads(2, lambda group: work(group, [same, same | {"seed": "1"}]))
    assert first == second and "rank 1 has seed 1 and rank 0 0" in first
    assert (
        "rank 2 has content of text cd and rank 0 ab"
        in in_threads(3, lambda group: work(group, [same, same, same | {"content of text": "cd"}]))[2]
    )
    same_everywhere(ALONE, same)
