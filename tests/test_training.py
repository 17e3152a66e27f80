"""The training loop: what it computes, that it can be stopped and resumed, and what it says when something is wrong."""

import functools
import json
import math
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from common import small
from safetensors.numpy import load_file
from tiers import in_one

from minitransformer.cli import main
from minitransformer.core.models.folder import load as load_model
from minitransformer.core.training.corpora import PairCorpus, TextCorpus
from minitransformer.core.training.loop import Worker, clip_gradients, train
from minitransformer.core.training.optimizers import clipping
from minitransformer.layers import Linear
from minitransformer.models import LanguageModelConfig, TransformerConfig
from minitransformer.run.machines import checkpoint
from minitransformer.run.machines.finite import first_not_finite
from minitransformer.run.machines.pieces import InPieces
from minitransformer.run.machines.run_folder import read_log
from minitransformer.run.machines.settings import OPTIMIZERS
from minitransformer.run.machines.workers import replica
from minitransformer.training import AdamW, Trainer, TrainingSettings, Workers

language_model = functools.partial(small, LanguageModelConfig, 11, dtype="float32", dropout=0.2)
transformer = functools.partial(small, TransformerConfig, 11, 11, n_decoder_layers=1)


def text(n=200, seed=1):
    return TextCorpus(np.random.default_rng(seed).integers(0, 11, n), length=6, rows=4)


def pairs(n=60):
    rng = np.random.default_rng(2)
    sides = [[rng.integers(3, 11, rng.integers(1, 7)).tolist() for _ in range(n)] for _ in range(2)]
    return PairCorpus(*sides, tokens=40, label_smoothing=0.1)


def trainer(folder, **changes):
    values = {"steps": 12, "warmup": 2, "validate_every": 4, "save_every": 4} | changes
    return Trainer(language_model(), text(), text(60, seed=3), TrainingSettings(**values), folder)


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("kind", "clip"), [(Worker, 0.0), pytest.param(Workers, 0.5, marks=pytest.mark.slow)])
def test_the_loop_that_can_be_read_aloud_gives_the_losses_of_a_run(tmp_path, kind, clip):
    """Bit for bit, over 8 steps, with dropout; with clipping if the norm is a sum in the same order."""
    settings = TrainingSettings(steps=8, warmup=3, clip=clip, weight_decay=0.1, validate_every=50, save_every=50)
    run = Trainer(language_model(), text(), text(60, seed=3), settings, tmp_path)
    run.run()
    losses = [record["loss"] for record in read_log(tmp_path / "log.jsonl") if "loss" in record]
    model = language_model()
    optimizer = settings.optimizer_of(model.parameters())
    assert list(train(kind(model), text(), optimizer, 8, settings.rate, clip)) == losses
    assert len(losses) == 8 and losses[-1] < losses[0]


def test_a_worker_and_workers_of_one_give_the_same_bits():
    one, others = language_model(), language_model()
    batches = text().batches(np.random.default_rng(0))
    rows = [batches[0], batches[1]]
    first, second = Worker(one), Workers(others, 1)
    assert first.loss_and_gradients(text(), rows, (3, 1)) == second.loss_and_gradients(text(), rows, (3, 1))
    assert same({n: p.grad for n, p in one.parameters()}, {n: p.grad for n, p in others.parameters()})
    assert first.loss(text()) == second.loss(text())
    assert first.gradient_norm() == pytest.approx(second.gradient_norm(), rel=1e-6)
    for worker in (first, second):
        norm = worker.gradient_norm()
        worker.scale_gradients(0.5)
        assert worker.gradient_norm() == pytest.approx(norm / 2, rel=1e-6)


# ---- Gradients of a batch, shared out among workers and over several batches. ----


def whole_batch_gradients(model, corpus, batches):
    """The gradient of the mean over all predictions, by one call for each prediction's batch, weighted by hand."""
    total = sum(corpus.count(rows) for rows in batches)
    model.zero_grad()
    for rows in batches:
        for row in rows:  # sentence by sentence: no padding, no sharing out
            corpus.loss(model, np.array([row]), None)[1](corpus.count(np.array([row])) / total)
    return {name: p.grad.copy() for name, p in model.parameters()}


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_do_not_depend_on_how_a_batch_is_shared_out(n, accumulate):
    corpus = pairs()
    corpus.label_smoothing = 0.0  # without an rng there is none
    model = transformer()
    batches = corpus.batches(np.random.default_rng(0))[:accumulate]
    wanted = whole_batch_gradients(model, corpus, batches)
    workers = Workers(model, n)
    plain = PairCorpus(corpus.sources, corpus.targets, corpus.tokens)
    original = plain.loss
    plain.loss = lambda m, rows, rng: original(m, rows, None)  # no dropout
    loss = workers.loss_and_gradients(plain, batches, (0,))
    for name, p in model.parameters():
        np.testing.assert_allclose(p.grad, wanted[name], rtol=1e-10, atol=1e-13, err_msg=name)
    total = sum(corpus.count(rows) for rows in batches)
    by_hand = sum(float(original(model, rows, None)[0]) * corpus.count(rows) for rows in batches) / total
    assert loss == pytest.approx(by_hand, rel=1e-12)


def test_two_workers_give_the_same_each_time_and_dropout_of_their_own():
    found = []
    for _ in range(2):
        model = language_model()
        workers = Workers(model, 2)
        loss = workers.loss_and_gradients(text(), [np.arange(4)], (7,))
        found.append((loss, {name: p.grad.copy() for name, p in model.parameters()}))
    assert found[0][0] == found[1][0] and same(found[0][1], found[1][1])
    model = language_model()
    workers = Workers(model, 2)
    twice = TextCorpus(np.tile(np.arange(11), 30), length=6, rows=2)
    dropped = []
    original = twice.loss
    twice.loss = lambda m, rows, rng: (
        dropped.append(rng.bit_generator.state["state"]["state"]) or original(m, rows, rng)
    )
    workers.loss_and_gradients(twice, [np.array([0, 11])], (7,))
    assert len(set(dropped)) == 2


def test_a_replica_shares_values_and_not_gradients():
    model = language_model()
    other = replica(model)
    for (name, p), (other_name, q) in zip(model.parameters(), other.parameters(), strict=True):
        assert name == other_name and p.value is q.value
        assert not np.shares_memory(p.grad, q.grad)
    assert other.tokens is not model.tokens
    assert other.embed.tokens is other.tokens  # what was tied stays tied


def test_workers_without_enough_rows_leave_some_idle():
    model = language_model()
    workers = Workers(model, 3)
    assert math.isfinite(workers.loss_and_gradients(text(), [np.array([5])], (0,)))
    assert math.isfinite(workers.loss(text()))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_norm_is_that_of_all_gradients_and_scaling_reaches_all(n):
    model = language_model()
    workers = Workers(model, n)
    workers.loss_and_gradients(text(), [np.arange(4)], (0,))
    before = {name: p.grad.copy() for name, p in model.parameters()}
    assert workers.gradient_norm() == pytest.approx(
        math.sqrt(sum(float((g**2).sum()) for g in before.values())), rel=1e-5
    )
    workers.scale_gradients(0.5)
    assert same({name: 0.5 * g for name, g in before.items()}, {name: p.grad for name, p in model.parameters()})


@pytest.mark.parametrize("n", [1, 2, 3])
def test_work_that_is_shared_out_is_done_once(n):
    workers = Workers(language_model(), n)
    sizes = {"big": 50, **{f"small {i}": 1 + i % 3 for i in range(50)}}
    done = {}
    workers.share_out(lambda name: done.setdefault(name, []).append(threading.get_ident()), sizes)
    assert done.keys() == sizes.keys() and all(len(threads) == 1 for threads in done.values())


def test_an_error_of_any_worker_is_raised_and_what_holds_here_holds_there():
    workers = Workers(language_model(), 3)
    for failing in range(3):
        with pytest.raises(ZeroDivisionError):
            workers._each(lambda worker, failing=failing: 1 // (worker - failing))
    with np.errstate(divide="ignore"):
        assert workers._each(lambda worker: np.geterr()["divide"]) == ["ignore"] * 3


@pytest.mark.parametrize("n", [2, 3])
def test_a_shared_step_moves_parameters_by_the_same_bits(n):
    def moved(share_out_of):
        model = language_model()
        workers = Workers(model, share_out_of)
        rng = np.random.default_rng(5)
        for _, p in model.parameters():
            p.grad[...] = rng.normal(size=p.grad.shape)
        optimizer = InPieces(AdamW(model.parameters(), 1e-2, weight_decay=0.1), workers.share_out)
        for _ in range(3):
            optimizer.step()
        assert optimizer.state()["steps"] == 3
        return model.state(), optimizer.state()

    alone, shared = moved(1), moved(n)
    assert same(alone[0], shared[0]) and same(alone[1], shared[1])
    assert not same(alone[0], language_model().state())


# ---- A run. ----


def test_a_run_lowers_the_loss_and_leaves_model_log_and_picture(tmp_path):
    ids = np.tile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 30)  # what comes next is certain
    corpus = TextCorpus(ids, length=6, rows=4)
    settings = TrainingSettings(steps=60, learning_rate=3e-2, warmup=5, validate_every=20, save_every=30)
    run = Trainer(language_model(dropout=0.0, attention_dropout=0.0), corpus, corpus, settings, tmp_path)
    outcome = run.run()
    records = read_log(tmp_path / "log.jsonl")
    losses = [record["loss"] for record in records if "loss" in record]
    valid = [record["validation_loss"] for record in records if "validation_loss" in record]
    assert (outcome.ended, outcome.step) == ("finished", 60)
    assert len(losses) == 60 and len(valid) == 3
    assert losses[0] > 2.0 and outcome.loss == min(valid) < 0.3
    assert Workers(load_model(tmp_path)).loss(corpus) == pytest.approx(min(valid), rel=1e-5)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert checkpoint.steps(tmp_path) == [60]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_infinite_gradient_is_not_clipped_to_nan():
    """∞ times a factor of 0 is NaN. The norm says that the step is lost, in every loop."""
    assert [clipping(norm, 1.0) for norm in (math.inf, math.nan, 4.0, 0.5)] == [1.0, 1.0, 0.25, 1.0]
    worker = Workers(language_model())
    worker.gradient[:2] = math.inf, 1.0
    assert clip_gradients(worker, 1.0) == math.inf
    assert worker.gradient[0] == math.inf and worker.gradient[1] == 1.0
    worker.gradient[:] = 0.0
    worker.gradient[:2] = 24.0, 32.0  # 8 times 3 and 4, as float16 scales them
    assert clip_gradients(worker, 1.0, scale=8.0) == pytest.approx(5.0)
    assert worker.gradient[:2].tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"workers": 2}]
    + [
        pytest.param(changes, marks=pytest.mark.sweep)
        for changes in ({}, {"accumulate": 2}, {"average": 2}, {"optimizer": "sgd"})
    ],
)
def test_a_run_that_stops_anywhere_goes_on_bit_for_bit(tmp_path, changes):
    whole = trainer(tmp_path / "whole", **changes)
    assert whole.run().ended == "finished"
    for stop in (1, 5, 8, 11):
        folder = tmp_path / str(stop)
        first = trainer(folder, **changes)
        assert first.run(stop_after=stop).ended == "interrupted"
        second = trainer(folder, **changes)
        assert second.resume() == stop
        outcome = second.run()
        assert same(weights(folder), weights(tmp_path / "whole"))
        assert same(second.model.state(), whole.model.state())
        assert same(second.optimizer.state(), whole.optimizer.state())
        assert outcome.loss == whole._loss
        logs = [read_log(path / "log.jsonl") for path in (folder, tmp_path / "whole")]
        for records in logs:
            for record in records:
                record.pop("seconds", None)
        assert logs[0] == logs[1]


@pytest.mark.slow
def test_the_mean_of_the_last_checkpoints_is_their_mean(tmp_path):
    run = trainer(tmp_path, average=2, steps=14)
    outcome = run.run()
    assert checkpoint.steps(tmp_path) == [8, 12, 14]
    parts = [load_file(tmp_path / "checkpoints" / f"{step:08d}" / "model.safetensors") for step in (8, 12)]
    for name, value in weights(tmp_path).items():
        wanted = (parts[0][name].astype(np.float64) + parts[1][name].astype(np.float64)) / 2.0
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-8, err_msg=name)
    assert outcome.loss == pytest.approx(Workers(load_model(tmp_path)).loss(text(60, seed=3)), rel=1e-6)
    assert read_log(tmp_path / "log.jsonl")[-1]["mean_of"] == [8, 12]


# ---- What can go wrong. ----


@pytest.mark.slow
def test_a_loss_that_is_not_finite_names_step_and_layer(tmp_path):
    run = trainer(tmp_path)
    run.run(stop_after=5)
    again = trainer(tmp_path)
    again.resume()
    name = next(
        name
        for name, _ in again.model.parameters()
        if name.startswith("stack.layers.1.feed_forward") and name.endswith("inner.weight")
    )
    dict(again.model.parameters())[name].value[0, 0] = np.nan
    where = re.escape(name.removesuffix(".weight"))
    with pytest.raises(FloatingPointError, match=f"step 6: the loss is nan; the first layer .* finite is {where}\\."):
        again.run()
    assert checkpoint.steps(tmp_path)[-1] == 5


def test_the_first_layer_that_is_not_finite_is_the_innermost_and_nothing_stays_patched():
    model = language_model(dropout=0.0)
    ids = np.array([[1, 2, 3]])
    originals = {type(model): type(model).__call__, Linear: Linear.__call__}
    assert first_not_finite(model, lambda: model(ids)) is None
    name = next(name for name, p in model.parameters() if name.startswith("stack.layers.1") and p.value.ndim == 2)
    dict(model.parameters())[name].value[0, 0] = np.nan
    assert first_not_finite(model, lambda: model(ids)) == name.rpartition(".")[0]
    assert {kind: kind.__call__ for kind in originals} == originals


def test_a_log_with_a_torn_last_line_is_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read_log(path) == [{"step": 1, "loss": 2.0}]
    assert read_log(tmp_path / "none") == []


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from minitransformer.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_checkpoint_that_cannot_grow_is_one_line_and_the_last_one_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """As realistic as possible without a separate disk: the system refuses to write beyond a limit."""
    arguments = "train classify --steps 8 --warmup 2 --save-every 2 --validate-every 4 --dropout 0.1 --out".split()
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert main([*arguments, str(whole)]) == 0
    with monkeypatch.context() as until_step_4:
        until_step_4.setattr(Trainer, "run", functools.partialmethod(Trainer.run, stop_after=4))
        assert main([*arguments, str(folder)]) == 130
    assert checkpoint.steps(folder) == [4]
    kept = {path: path.read_bytes() for path in (folder / "checkpoints" / "00000004").iterdir()}
    assert min(len(path.read_bytes()) for path in kept if path.suffix == ".safetensors") > 60000
    command = [sys.executable, "-c", LIMITED, "60000", *arguments, str(folder), "--resume"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    (complaint,) = [line for line in result.stderr.splitlines() if "error" in line]
    assert re.match("minitransformer: error: the checkpoint of step 6 could not be saved: cannot write .*", complaint)
    assert "Traceback" not in result.stderr
    assert checkpoint.steps(folder) == [4]
    assert {path: path.read_bytes() for path in kept} == kept
    assert main([*arguments, str(folder), "--resume"]) == 0
    for name in ("model.safetensors", "checkpoints/00000008/model.safetensors", "checkpoints/00000008/state.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert same(checkpoint.load(folder, 8).optimizer, checkpoint.load(whole, 8).optimizer)


@in_one(
    "changes, message",
    [
        ({"optimizer": "adamax"}, "optimizer must be one of adamw, adam, sgd, muon, got 'adamax'"),
        ({"schedule": "linear"}, "schedule must be one of constant, cosine, inverse-sqrt"),
        ({"warmup": 12}, "warmup must be less than steps"),
        ({"patience": math.nan}, "patience must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainingSettings(**({"steps": 12, "warmup": 2} | changes))


# ---- Killed, at random moments, six times or twenty. ----


def run_command(folder, steps, *more):
    settings = f"--steps {steps} --save-every 5 --validate-every 10 --average 3 --dropout 0.1".split()
    return [sys.executable, "-m", "minitransformer", "train", "classify", "--out", str(folder), *settings, *more]


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.sweep)])
def test_killed_often_it_ends_with_the_same_bits(tmp_path, times):
    subprocess.run(run_command(tmp_path / "whole", 150), check=True, capture_output=True)
    chance, folder, kills = random.Random(0), tmp_path / "killed", 0
    more = []
    while kills < times:
        process = subprocess.Popen(run_command(folder, 150, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        began_at = max(checkpoint.steps(folder), default=0)
        wait_for_steps_or_end(folder, process, began_at)
        time.sleep(chance.uniform(0.0, 0.12))
        process.kill()
        process.communicate()
        for step in checkpoint.steps(folder):  # none was ever unreadable
            assert checkpoint.load(folder, step).state["step"] == step
        if process.returncode == -signal.SIGKILL:
            kills += 1
        else:
            break
        more = ["--resume"] if (folder / "run.json").exists() else []
    assert kills == times
    subprocess.run(run_command(folder, 150, "--resume"), check=True, capture_output=True)
    assert same(weights(folder), weights(tmp_path / "whole"))
    last = checkpoint.load(folder, 150), checkpoint.load(tmp_path / "whole", 150)
    assert same(last[0].model, last[1].model) and same(last[0].optimizer, last[1].optimizer)
    assert last[0].state == last[1].state
    assert json.loads((folder / "run.json").read_text()) == json.loads((tmp_path / "whole" / "run.json").read_text())


def wait_for_steps_or_end(folder, process, began_at):
    while process.poll() is None and not any(r["step"] > began_at for r in read_log(folder / "log.jsonl")):
        time.sleep(0.01)


def test_optimizer_names_lead_to_optimizers():
    parameters = list(language_model().parameters())
    kinds = {name: type(TrainingSettings(optimizer=name).optimizer_of(parameters)).__name__ for name in OPTIMIZERS}
    assert kinds == {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "muon": "Muon"}
    with pytest.raises(ValueError, match="muon needs whole matrices"):
        TrainingSettings(optimizer="muon", shard_optimizer=True)
    assert isinstance(TrainingSettings().optimizer_of(parameters), AdamW)
