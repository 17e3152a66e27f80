"""How a run ends and resumes: early stops, losses that are not finite, damaged files, and other people's folders."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from common import small
from safetensors.numpy import load_file
from threadpoolctl import threadpool_info, threadpool_limits

from minitransformer.cli import main
from minitransformer.core.training.corpora import TextCorpus
from minitransformer.layers import Parameter
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.machines import checkpoint, locks
from minitransformer.run.machines.run_folder import read_log
from minitransformer.text import WordTokenizer
from minitransformer.training import Trainer, TrainingSettings, Workers

SHORT = "--d-model 8 --n-heads 2 --d-ff 8 --n-layers 1 --steps 4 --warmup 1 --validate-every 2 --save-every 2".split()


def trainer(folder, **changes):
    training, validation = (
        TextCorpus(np.random.default_rng(seed).integers(0, 11, n), length=6, rows=4) for seed, n in ((1, 130), (3, 60))
    )
    values = {"steps": 12, "warmup": 2, "validate_every": 4, "save_every": 4} | changes
    model = small(LanguageModelConfig, 11, n_layers=1, dtype="float32")
    return Trainer(model, training, validation, TrainingSettings(**values), folder)


def not_json(token):
    raise AssertionError(f"{token} is not JSON")


def states(folder):
    """Every state.json, read as JSON is defined, which has no NaN and no Infinity."""
    paths = sorted((folder / "checkpoints").glob("*/state.json"))
    return [json.loads(path.read_text(), parse_constant=not_json) for path in paths]


def files_of(folder):
    """The content of each file in a folder, and when it was written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def failed(capsys):
    """failed(*arguments, status) -> the one line that a command complains in."""

    def failed(*arguments, status):
        assert main([str(argument) for argument in arguments]) == status
        _, err = capsys.readouterr()
        assert err.startswith("minitransformer: error: ") and err.count("\n") == 1
        return err

    return failed


# ---- Early stopping. ----


@pytest.mark.few(1)
@pytest.mark.parametrize("average", [2, 3])
def test_stopped_early_before_the_first_checkpoint_the_mean_is_of_the_last_step(tmp_path, average):
    changes = {"validate_every": 1, "save_every": 100, "patience": 2, "learning_rate": 0.3, "schedule": "constant"}
    run = trainer(tmp_path, steps=200, average=average, clip=0.0, **changes)
    outcome = run.run()
    assert outcome.ended == "stopped early" and outcome.step < 100
    assert checkpoint.steps(tmp_path) == [outcome.step]
    last = load_file(tmp_path / "checkpoints" / f"{outcome.step:08d}" / "model.safetensors")
    left = load_file(tmp_path / "model.safetensors")
    assert left.keys() == last.keys() and all(np.array_equal(left[name], last[name]) for name in last)
    assert outcome.loss == pytest.approx(Workers(run.model).loss(run.validation), rel=1e-6)
    assert read_log(tmp_path / "log.jsonl")[-1]["mean_of"] == [outcome.step]


@pytest.mark.slow
def test_a_run_that_stopped_early_stays_stopped(tmp_path):
    changes = {"validate_every": 1, "save_every": 100, "patience": 2, "learning_rate": 0.3, "schedule": "constant"}
    outcome = trainer(tmp_path, steps=200, clip=0.0, **changes).run()
    again = trainer(tmp_path, steps=200, clip=0.0, **changes)
    assert again.resume() == outcome.step
    assert again.run() == outcome


@pytest.mark.slow
def test_patience_counts_validations_since_the_best_one(tmp_path):
    run = trainer(tmp_path, steps=40, warmup=0, validate_every=2, save_every=2, patience=2)
    losses = iter([3.0, 2.0, 2.5, 1.0, 1.5, 1.0, 0.5])  # the sixth equals the best, and is no improvement
    weights = []
    run.workers.loss = lambda corpus: (weights.append(run.model.state()), next(losses))[1]
    outcome = run.run()
    assert (outcome.ended, outcome.step, outcome.loss) == ("stopped early", 12, 1.0)
    assert (run.progress.best, run.progress.best_step, run.progress.since_best) == (1.0, 8, 2)
    left = load_file(tmp_path / "model.safetensors")
    assert all(np.array_equal(left[name], weights[3][name]) for name in left)
    assert any(not np.array_equal(weights[5][name], weights[3][name]) for name in left)


# ---- The last step, and what earlier runs left. ----


@pytest.mark.slow
def test_the_last_step_is_validated_and_saved_whatever_the_intervals(tmp_path):
    trainer(tmp_path, steps=6).run()
    assert [r["step"] for r in read_log(tmp_path / "log.jsonl") if "validation_loss" in r] == [4, 6]
    assert checkpoint.steps(tmp_path) == [4, 6]


@pytest.mark.slow
def test_what_a_killed_run_left_half_written_goes_and_no_other_leftover_comes(tmp_path):
    trainer(tmp_path, average=2).run(stop_after=5)
    (tmp_path / ".model.safetensors.12.tmp").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".00000008.tmp").mkdir()
    (tmp_path / "checkpoints" / ".00000008.tmp" / "model.safetensors").write_bytes(b"half")
    again = trainer(tmp_path, average=2)
    again.resume()
    again.run()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["00000008", "00000012"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_mean_of_checkpoints_is_summed_in_double_precision(tmp_path):
    values = np.float32([1.0, *[5e-8] * 8])  # in single precision the small ones would be lost
    for step, value in enumerate(values, start=1):
        arrays = {"w": np.full(3, value)}
        checkpoint.save(tmp_path, checkpoint.Checkpoint(arrays, arrays, {"step": step}), keep=range(1, 10))
    found = checkpoint.mean(tmp_path, range(1, 10))["w"]
    np.testing.assert_allclose(found, values.astype(np.float64).mean(), rtol=1e-12)


# ---- The order of the data. ----


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_epoch_has_an_order_of_its_own_that_the_seed_decides(tmp_path, accumulate):
    def read(seed):
        run = trainer(tmp_path / str(seed), accumulate=accumulate, seed=seed)
        seen = []
        original = run.workers.loss_and_gradients
        run.workers.loss_and_gradients = lambda corpus, batches, *more: (
            seen.extend(rows.tolist() for rows in batches) or original(corpus, batches, *more)
        )
        run.run()
        return seen, run.training

    for seed in (0, 7):
        seen, corpus = read(seed)
        epochs = [corpus.batches(np.random.default_rng((seed, 0, epoch))) for epoch in range(5)]
        assert seen == [rows.tolist() for batches in epochs for rows in batches][: 12 * accumulate]
        assert seen[:5] != seen[5:10]


# ---- Gradients that are clipped, losses of a whole corpus, threads. ----


@pytest.mark.parametrize("n", [1, 2])
def test_the_gradients_of_a_batch_hold_nothing_of_those_before(tmp_path, n):
    run = trainer(tmp_path, workers=n)

    def gradients(*batches):
        for rows in batches:
            run.workers.loss_and_gradients(run.training, [np.array(rows)], (0,))
        return {name: p.grad.copy() for name, p in run.model.parameters()}

    alone, after = gradients([5, 60]), gradients([1, 2, 3], [5, 60])
    assert all(np.array_equal(alone[name], after[name]) for name in alone)
    assert any(gradient.any() for gradient in alone.values())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_loss_of_a_corpus_is_the_mean_over_all_its_predictions_without_dropout(n):
    model = small(LanguageModelConfig, 11, n_layers=1, dropout=0.5)
    corpus = TextCorpus(np.random.default_rng(5).integers(0, 11, 60), length=6, rows=4)  # the last window: 5 tokens
    costs = []
    for start in range(0, 59, 6):
        ids = corpus.ids[start : start + 7]
        for logits, wanted in zip(model(ids[None, :-1])[0][0], ids[1:], strict=True):
            costs.append(math.log(np.exp(logits).sum()) - logits[wanted])
    workers = Workers(model, n)
    assert len(costs) == 59 and workers.loss(corpus) == pytest.approx(np.mean(costs), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("workers, wanted", [(1, 2), (2, 1)])
def test_several_workers_have_one_blas_thread_each(tmp_path, workers, wanted):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen = []
    run = trainer(tmp_path, steps=3, workers=workers)
    original = run.workers.loss_and_gradients
    run.workers.loss_and_gradients = lambda *arguments: (seen.append(threads()), original(*arguments))[1]
    with threadpool_limits(2, user_api="blas"):
        run.run()
        assert threads() == {2}
    assert seen == [{wanted}] * 3


# ---- Losses that are not finite. ----


@pytest.mark.slow
def test_before_the_first_validation_there_is_no_best_loss(tmp_path):
    trainer(tmp_path).run(stop_after=1)
    (state,) = states(tmp_path)
    assert state["best"] is None and state["step"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_loss_that_is_no_number_stops_the_run(tmp_path, value):
    run = trainer(tmp_path)
    run.run(stop_after=5)
    before = load_file(tmp_path / "model.safetensors")
    again = trainer(tmp_path)
    again.resume()
    real = again.validation.loss
    again.validation.loss = lambda *arguments: (value * real(*arguments)[0], None)
    with pytest.raises(FloatingPointError, match=f"step 8: the validation loss is {value}, but the training loss was"):
        again.run()
    assert [state["step"] for state in states(tmp_path)] == [4, 5]
    assert all(math.isfinite(state["best"]) for state in states(tmp_path))
    assert "NaN" not in (log := (tmp_path / "log.jsonl").read_text()) and "Infinity" not in log
    after = load_file(tmp_path / "model.safetensors")
    assert all(np.array_equal(before[name], after[name]) for name in before)  # the best model is left alone


# ---- Damaged files. ----


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of the command that is done, of which tests take copies."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert main(["train", "classify", "--out", str(folder), *SHORT]) == 0
    return folder


@pytest.mark.few(0)
@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("checkpoints/00000004/state.json", lambda b: b[:20], "cannot be read as JSON"),
        ("checkpoints/00000004/state.json", lambda b: b"\xff" + b, "cannot be read as JSON"),
        ("checkpoints/00000004/state.json", lambda b: b"[]", 'must be an object with "step": 4'),
        ("checkpoints/00000004/state.json", lambda b: b.replace(b'"step": 4', b'"step": 5'), '"step": 4'),
        ("checkpoints/00000004/state.json", lambda b: b.replace(b'"epoch"', b'"epcoh"'), "is damaged"),
        ("checkpoints/00000004/state.json", lambda b: re.sub(rb'"position": \d+', b'"position": -1', b), "got '-1'"),
        ("checkpoints/00000004/state.json", lambda b: re.sub(rb'"epoch": \d+', b'"epoch": null', b), "epoch must be a"),
        ("checkpoints/00000004/model.safetensors", lambda b: b[:-7], "cannot be read as safetensors"),
        ("checkpoints/00000004/optimizer.safetensors", lambda b: b[:-7], "cannot be read as safetensors"),
        ("log.jsonl", lambda b: b"{\n" + b, "is damaged: "),
        ("log.jsonl", lambda b: b"3\n" + b, 'every line must be an object with "step"'),
        ("log.jsonl", lambda b: b'{"steps": 1}\n' + b, 'every line must be an object with "step"'),
        ("log.jsonl", lambda b: b"\xff\n" + b, "is damaged: "),
        ("tokenizer.json", lambda b: b[:20], "cannot be read as JSON"),
    ],
)
def test_a_damaged_file_is_named_on_resume(stopped, tmp_path, failed, name, damage, message):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(damage(whole))
    assert (folder / name).read_bytes() != whole
    said = failed("train", "classify", "--out", folder, "--resume", status=1)
    assert message in said and (folder / name).name in said
    assert ("step 4" in said or str(folder / name) in said) and checkpoint.steps(folder) == [4]


# ---- Folders that are in use, and files of others. ----


@pytest.mark.parametrize("name", ["config.json", "run.json", "checkpoints"])
def test_a_folder_in_use_is_refused_and_left_untouched(tmp_path, failed, name):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).mkdir() if name == "checkpoints" else (folder / name).write_text("{}")
    (folder / "tokenizer.json").write_text("mine")
    before = files_of(folder)
    said = failed("train", "classify", "--out", folder, *SHORT, status=2)
    assert f"{folder} already holds a run or a model; add --resume" in said
    assert files_of(folder) == before and sorted(p.name for p in folder.iterdir()) == sorted([name, "tokenizer.json"])


@pytest.mark.slow
def test_files_of_others_stay_and_tokenizers_that_no_run_told_of_go(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    mine = ("my tokenizer.json", "my_tokenizer.json", "notes.txt", "target_tokenizer.json.bak")
    for name in mine:
        (folder / name).write_text("mine")
    WordTokenizer.train(["a"]).save(folder / "target_tokenizer.json")
    assert main(["train", "classify", "--out", str(folder), *SHORT]) == 0
    assert all((folder / name).read_text() == "mine" for name in mine)
    assert not (folder / "target_tokenizer.json").exists()


HOLDS = """
import pathlib, sys
from minitransformer.run.machines.locks import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_two_trainings_do_not_share_a_folder(stopped, tmp_path, failed, more):
    folder = tmp_path / "run"
    if more:
        shutil.copytree(stopped, folder)
    before = files_of(folder)
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        said = failed("train", "classify", "--out", folder, *SHORT, *more, status=1)
        assert f"{folder} is in use by process {other.pid} on " in said
        other.kill()
    found = files_of(folder)
    assert set(found) - set(before) == {folder / ".lock"}  # of the process that was killed, and locks nothing now
    assert all(found[path] == content for path, content in before.items())
    assert main(["train", "classify", "--out", str(folder), *SHORT, *more]) == 0
    assert not (folder / ".lock").exists()


def test_a_folder_is_there_only_if_something_is_put_into_it(tmp_path):
    new = tmp_path / "a" / "b"
    with locks.locked(new):
        with pytest.raises(OSError, match=f"{new} is in use by process {os.getpid()}"), locks.locked(new):
            pass
        assert new.is_dir()
    assert not (tmp_path / "a").exists()
    with locks.locked(new):
        (new / "x").write_text("")
    assert [path.name for path in new.iterdir()] == ["x"]


def test_without_locks_a_folder_can_be_used(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as in a browser
    with locks.locked(tmp_path / "run"), locks.locked(tmp_path / "other"):
        pass
    assert list(tmp_path.iterdir()) == []


# ---- A run that was interrupted, or cannot draw. ----


@pytest.mark.slow
def test_an_interrupted_run_holds_a_model_before_the_first_validation(tmp_path, capsys, monkeypatch):
    settings = ["--preset", "numbers", "--steps", "40", "--warmup", "1", "--validate-every", "20"]
    command = ["train", "lm", "--out", str(tmp_path / "run"), *settings]
    step = Trainer._step

    def interrupted(self):
        if self.progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    with monkeypatch.context() as changed:
        changed.setattr(Trainer, "_step", interrupted)
        assert main(command) == 130
    said = capsys.readouterr().out
    assert "stopped after step 3, saved" in said and f"the model so far is in {tmp_path / 'run'}" in said
    assert main(["generate", "--model", str(tmp_path / "run"), "1", "--tokens", "3"]) == 0
    assert main([*command, "--resume"]) == 0
    assert main([*command[:3], str(tmp_path / "whole"), *settings]) == 0
    resumed, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    assert all(np.array_equal(resumed[name], whole[name]) for name in whole)


def test_a_run_without_a_model_says_how_to_go_on(tmp_path, failed, monkeypatch):
    def ends(self):
        raise KeyboardInterrupt  # as a second Ctrl-C

    with monkeypatch.context() as changed:
        changed.setattr(Trainer, "_step", ends)
        assert failed("train", "lm", "--preset", "numbers", "--out", tmp_path, status=130)
    said = failed("generate", "--model", tmp_path, status=1)
    assert "config.json is missing; its training has not saved one yet: add --resume to its train command" in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_process_save_first(number, tmp_path):
    run = trainer(tmp_path)
    original = run.workers.loss_and_gradients
    run.workers.loss_and_gradients = lambda *given: (os.kill(os.getpid(), number), original(*given))[1]
    before = signal.signal(number, signal.SIG_DFL)  # nohup, for one, ignores SIGHUP
    try:
        outcome = run.run()
        assert (outcome.ended, outcome.step) == ("interrupted", 1) and checkpoint.steps(tmp_path) == [1]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.slow
def test_a_hangup_that_is_ignored_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        run = trainer(tmp_path, steps=4)
        original = run.workers.loss_and_gradients
        run.workers.loss_and_gradients = lambda *given: (os.kill(os.getpid(), signal.SIGHUP), original(*given))[1]
        assert run.run().ended == "finished"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_what_is_said_to_a_terminal_that_is_gone_comes_after_what_is_saved(tmp_path):
    def say(line):
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        trainer(tmp_path, validate_every=4, save_every=4).run(say=say)
    assert checkpoint.steps(tmp_path) == [4]


@pytest.mark.slow
def test_curves_that_cannot_be_written_are_told_of_once_and_training_goes_on(tmp_path):
    (tmp_path / "curves.png").mkdir()
    said = []
    assert trainer(tmp_path).run(say=said.append).ended == "finished"
    warnings = [line for line in said if line.startswith("warning: ")]
    assert len(warnings) == 1 and "curves.png" in warnings[0] and checkpoint.steps(tmp_path) == [12]


# ---- The log. ----


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_log_tells_the_epoch_that_a_step_s_first_batch_is_of(tmp_path, accumulate):
    run = trainer(tmp_path, accumulate=accumulate)
    n = len(run.training.batches(np.random.default_rng(0)))
    assert n == 5  # so that 12 steps go through two epochs and more
    run.run()
    found = {r["step"]: r["epoch"] for r in read_log(tmp_path / "log.jsonl") if "loss" in r}
    assert found == {step: (step - 1) * accumulate // n for step in range(1, 13)}
    predictions = {r["predictions"] for r in read_log(tmp_path / "log.jsonl") if "loss" in r}
    assert predictions == {6 * 4 * accumulate}  # tokens of a window, windows of a batch, batches
    assert run.progress.epoch == 12 * accumulate // n and run.progress.position == 12 * accumulate % n


# ---- Settings. ----

BAD = [
    *((name, value) for name in ("steps", "accumulate", "workers", "validate_every", "save_every", "average")
      for value in (0, -1)),
    *((name, value) for name in ("learning_rate", "eps") for value in (0.0, -1.0, math.nan, math.inf)),
    *((name, value) for name in ("beta1", "beta2", "momentum") for value in (1.0, 2.0, -0.1, math.nan)),
    *((name, value) for name in ("clip", "floor", "weight_decay") for value in (-1.0, math.nan, math.inf)),
    *((name, -1) for name in ("patience", "warmup")),
    *((name, 10**9) for name in ("workers", "accumulate")),
]  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize("name, value", BAD)
def test_bad_settings_are_refused_before_any_data_are_read(tmp_path, failed, name, value):
    with pytest.raises(ValueError, match=name):
        TrainingSettings(**({"steps": 12, "warmup": 2} | {name: value}))
    flags = ["--text", tmp_path / "none.txt", "--out", tmp_path / "run"]  # which would be the complaint
    said = failed("train", "lm", *flags, f"--{name.replace('_', '-')}={value}", status=2)
    assert f"{name} must be " in said
    assert not (tmp_path / "run").exists()


def test_the_ends_of_what_is_allowed_are_allowed():
    TrainingSettings(
        steps=1, warmup=0, beta1=0.0, beta2=0.0, momentum=0.0, clip=0.0, floor=0.0, weight_decay=0.0, patience=0, seed=0
    )


def test_settings_reach_the_optimizer():
    values = {"learning_rate": 0.25, "beta1": 0.3, "beta2": 0.7, "eps": 1e-3, "weight_decay": 0.2, "momentum": 0.6}

    def made(name):
        return TrainingSettings(optimizer=name, **values).optimizer_of([("w", Parameter(np.zeros(2)))])

    for optimizer in (made("adam"), made("adamw")):
        assert (optimizer.learning_rate, optimizer.betas, optimizer.eps) == (0.25, (0.3, 0.7), 1e-3)
    assert made("adamw").weight_decay == 0.2
    assert (made("sgd").learning_rate, made("sgd").momentum) == (0.25, 0.6)


@pytest.mark.slow
def test_a_billion_checkpoints_are_as_many_as_there_are(tmp_path):
    run = trainer(tmp_path, average=10**9)
    assert run.run().ended == "finished"
    assert read_log(tmp_path / "log.jsonl")[-1]["mean_of"] == checkpoint.steps(tmp_path) == [4, 8, 12]


def test_more_workers_than_there_can_be_threads_are_refused():
    with pytest.raises(ValueError, match="Workers: workers must be at most 256, got 1000000000"):
        Workers(LanguageModel(LanguageModelConfig(11, 6, 8, 2, 8, 1)), 10**9)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "flag", ["--d-model", pytest.param("--n-layers", marks=pytest.mark.sweep), "--d-ff", "--batch-rows"]
)
def test_sizes_beyond_all_memory_are_refused(flag, tmp_path, failed):
    changes = {"--d-model": 4 * 10**12}.get(flag, 10**12)
    sizes = [*"train lm --preset numbers --n-heads 1 --out".split(), tmp_path / "run", flag, changes]
    said = failed(*sizes, status=1 if flag == "--batch-rows" else 2)
    assert "more memory than this machine's" in said or "a batch must be of at most 16,777,216 tokens" in said
    assert not (tmp_path / "run").exists()


RATES = {  # of steps 1, 2, 4, 6 and 8, by hand: up to 0.4 in 4 steps, and then down
    "cosine": [0.1, 0.2, 0.4, 0.25, 0.1],
    "inverse-sqrt": [0.1, 0.2, 0.4, 0.4 * math.sqrt(4 / 6), 0.4 * math.sqrt(4 / 8)],
    "constant": [0.1, 0.2, 0.4, 0.4, 0.4],
}


@pytest.mark.parametrize("schedule", RATES)
def test_each_step_has_the_rate_of_its_schedule(schedule):
    settings = TrainingSettings(steps=8, learning_rate=0.4, schedule=schedule, warmup=4, floor=0.1)
    assert [settings.rate(step) for step in (1, 2, 4, 6, 8)] == pytest.approx(RATES[schedule], rel=1e-12)
    at_once = TrainingSettings(steps=8, learning_rate=0.4, schedule=schedule, warmup=0)
    assert at_once.rate(1) == pytest.approx({"cosine": 0.2 * (1 + math.cos(math.pi / 8))}.get(schedule, 0.4))
