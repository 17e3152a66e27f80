"""The commands from text files to a measured model: train, translate, generate, evaluate, plot and view."""

import contextlib
import dataclasses
import gzip
import io
import json
import math
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from tiers import in_one

from minitransformer.cli import _options, main
from minitransformer.commands import plot
from minitransformer.commands import train as train_command
from minitransformer.core.arrays import files
from minitransformer.core.models import folder as model_folder
from minitransformer.generation import greedy
from minitransformer.models import Classifier, ClassifierConfig
from minitransformer.run.cost import describe
from minitransformer.run.tasks import TASKS, translation
from minitransformer.run.tasks.evaluation import classified
from minitransformer.run.tasks.translation import TranslationData, written
from minitransformer.school.show.viewer.command import view_text
from minitransformer.text import END, START, BytePairTokenizer, CharacterTokenizer, WordTokenizer, english, german
from minitransformer.text import load as load_tokenizer
from minitransformer.training import TrainingSettings

TINY = "--d-model 16 --n-heads 2 --d-ff 24 --dropout 0 --steps 4 --warmup 1 --validate-every 2 --save-every 2".split()
STACKS = ["--n-encoder-layers", "1", "--n-decoder-layers", "2"]


@dataclasses.dataclass
class Trained:
    """A model that `train` left, the command that trained it, what it printed, and the files it read."""

    folder: Path
    command: list[str]
    said: str
    files: dict[str, Path]


def train(tmp_path, task, texts, *options):
    files = {}
    for name, text in texts.items():
        files[name] = tmp_path / f"{name}.txt"
        files[name].write_text(text, encoding="utf-8")
    command = ["train", task, "--out", str(tmp_path / "run"), *TINY, *options]
    for name, path in files.items():
        command += ["--" + name.replace("_", "-"), str(path)]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(command) == 0
    return Trained(tmp_path / "run", command, said.getvalue(), files)


def sides(numbers):
    return "".join(f"{' '.join(english(n))}!\n" for n in numbers), "".join(f"{''.join(german(n))}.\n" for n in numbers)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """On sentence pairs with one bpe for both sides; pairs of more than 15 tokens are left out."""
    source, target = sides(range(3, 40_000, 900))
    valid_source, valid_target = sides([77_777, 12, 5])
    texts = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    options = ["--vocabulary", "70", "--max-length", "15", "--batch-tokens", "200", *STACKS]
    return train(tmp_path_factory.mktemp("translate"), "translate", texts, *options)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """On characters."""
    text = "".join(f"{n} is {' '.join(english(n))}\n" for n in range(60))
    return train(tmp_path_factory.mktemp("lm"), "lm", {"text": text}, "--n-layers", "2", "--max-length", "16")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """From the preset of the generated task, on words of a file."""
    text = "".join(f"{'odd' if n % 2 else 'even'}\t{' '.join(english(n))}\n" for n in range(80))
    options = ["--preset", "numbers", "--tokenizer", "words"]
    return train(tmp_path_factory.mktemp("classify"), "classify", {"text": text}, *options)


@pytest.fixture(params=["translator", "writer", "classifier"])
def trained(request):
    return request.getfixturevalue(request.param)


# ---- train ----


def test_a_run_leaves_all_that_later_commands_need(trained):
    names = {path.name for path in trained.folder.iterdir()}
    assert {"config.json", "model.safetensors", "run.json", "log.jsonl", "curves.png", "checkpoints"} <= names
    assert "tokenizer.json" in names
    assert re.search(r"\d parameters\n(.*\n)*finished after step 4; validation loss \d\.\d{4}; model in ", trained.said)
    model = model_folder.load(trained.folder)
    assert f"{sum(p.value.size for _, p in model.parameters()):,} parameters" in trained.said


def test_the_settings_are_kept(translator, classifier):
    document = json.loads((translator.folder / "run.json").read_text())
    assert document["task"] == "translate" and document["training"]["steps"] == 4
    assert document["data"]["vocabulary"] == 70 and document["model"]["n_decoder_layers"] == 2
    assert sorted(document["files"]) == sorted(map(str, translator.files.values()))
    document = json.loads((classifier.folder / "run.json").read_text())
    assert document["training"]["learning_rate"] == 3e-3  # of the preset
    assert document["model"]["d_model"] == 16  # given, over the preset's 32


def test_pairs_that_are_too_long_are_left_out_and_counted(translator):
    tokenizer = load_tokenizer(translator.folder / "tokenizer.json")
    lengths = [
        max(len(tokenizer.encode(s)), len(tokenizer.encode(t)) + 1)
        for s, t in zip(
            *(translator.files[name].read_text().splitlines() for name in ("source", "target")), strict=True
        )
    ]
    left_out = sum(length > 15 for length in lengths)
    assert 0 < left_out < len(lengths)
    note = f"{len(lengths) - left_out} training pairs ({left_out} left out, longer than 15 tokens), 3 for validation"
    assert f"{note}; vocabulary {len(tokenizer)}\n" in translator.said


def test_texts_that_are_too_long_are_cut_off_and_counted(tmp_path):
    texts = [f"{'ab'[i % 2]}\t{'one ' * (i + 1)}\n" for i in range(20)]
    (tmp_path / "a.txt").write_text("".join(texts))
    data = TASKS["classify"].data(text=str(tmp_path / "a.txt"), tokenizer="words", max_length=15)
    prepared = TASKS["classify"].prepare(data, {}, np.random.default_rng(0))
    assert "18 texts for training, 2 for validation (5 cut off after 15 tokens); labels a, b" in prepared.notes[0]
    found = sorted(len(text) for corpus in (prepared.training, prepared.validation) for text in corpus.texts)
    assert found == sorted(min(i + 1, 15) for i in range(20))


@pytest.mark.parametrize("kind, joint", [("bpe", True), ("bpe", False), ("words", True), ("words", False)])
def test_one_vocabulary_for_both_sides_or_one_for_each(translator, kind, joint):
    data = TranslationData(
        **{k: str(v) for k, v in translator.files.items()}, tokenizer=kind, joint=joint, vocabulary=60
    )
    data = dataclasses.replace(data, valid_source=data.source, valid_target=data.target)  # no word is unknown
    prepared = translation.prepare(data, {"share_embeddings": joint}, np.random.default_rng(0))
    tokenizers = prepared.tokenizers
    assert len(tokenizers) == 2 - joint
    assert prepared.sizes == {"source_vocabulary": len(tokenizers[0]), "target_vocabulary": len(tokenizers[-1])}
    letters = [set("".join(tokenizer.tokens[4:])) for tokenizer in tokenizers]
    assert ("ü" in letters[0]) == joint and "ü" in letters[-1]
    assert ("y" in letters[-1]) == joint and "y" in letters[0]
    corpus = prepared.training
    wanted = translator.files["source"].read_text().splitlines(), translator.files["target"].read_text().splitlines()
    assert [tokenizers[0].decode(ids) for ids in corpus.sources] == wanted[0]
    assert [tokenizers[-1].decode(ids) for ids in corpus.targets] == wanted[1]
    assert corpus.label_smoothing == 0.1 and prepared.validation.label_smoothing == 0.0


def test_one_table_needs_one_vocabulary(translator):
    data = TranslationData(**{k: str(v) for k, v in translator.files.items()}, joint=False, vocabulary=60)
    with pytest.raises(ValueError, match="share_embeddings needs one vocabulary for both sides; give --joint"):
        translation.prepare(data, {}, np.random.default_rng(0))


def test_the_end_of_a_text_is_held_out(writer):
    text = writer.files["text"].read_text()
    data = TASKS["lm"].data(text=str(writer.files["text"]), held_out=0.25)
    prepared = TASKS["lm"].prepare(data, {"max_length": 16}, np.random.default_rng(0))
    (tokenizer,) = prepared.tokenizers
    cut = round(len(text) * 0.75)
    assert tokenizer.decode(prepared.training.ids) == text[:cut]
    assert tokenizer.decode(prepared.validation.ids) == text[cut:]


def test_byte_pairs_are_learned_from_the_part_to_train_on(tmp_path):
    (tmp_path / "a.txt").write_text("one two three " * 40 + "zzz " * 12)
    data = TASKS["lm"].data(text=str(tmp_path / "a.txt"), tokenizer="bpe", vocabulary=40)
    prepared = TASKS["lm"].prepare(data, {"max_length": 4}, np.random.default_rng(0))
    assert not any("z" in token for token in prepared.tokenizers[0].tokens)
    assert 3 in prepared.validation.ids and 3 not in prepared.training.ids  # <unknown>


def test_lines_are_mixed_before_a_part_is_held_out_and_labels_smoothed_in_training_only(tmp_path):
    lines = [f"{label}\t{label}{i}\n" for label in "ab" for i in range(50)]
    (tmp_path / "a.txt").write_text("".join(lines))
    data = TASKS["classify"].data(text=str(tmp_path / "a.txt"), tokenizer="words", held_out=0.2, label_smoothing=0.3)

    def held_out(seed):
        prepared = TASKS["classify"].prepare(data, {}, np.random.default_rng(seed))
        assert (prepared.training.label_smoothing, prepared.validation.label_smoothing) == (0.3, 0.0)
        assert (len(prepared.training.texts), len(prepared.validation.texts)) == (80, 20)
        texts = {tuple(text) for text in (*prepared.training.texts, *prepared.validation.texts)}
        assert len(texts) == 100  # none is in both
        return sorted(prepared.validation.texts), prepared.validation.labels

    assert set(held_out(0)[1]) == {0, 1}
    assert held_out(0)[0] == held_out(0)[0] != held_out(1)[0]


def files_of_pairs(tmp_path, **texts):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return TranslationData(**{name: str(tmp_path / name) for name in texts}, tokenizer="words", max_length=3)


def test_the_end_of_a_target_counts_in_its_length(tmp_path):
    """Sources may have three words then, and targets two."""
    texts = {"source": "a b c\na b c d\na\nb\n", "target": "a b\na\na b c\nc d\n"}
    data = files_of_pairs(tmp_path, **texts, valid_source="a\n", valid_target="a\n")
    prepared = translation.prepare(data, {}, np.random.default_rng(0))
    assert "2 training pairs (2 left out, longer than 3 tokens)" in prepared.notes[0]
    assert [len(ids) for ids in prepared.training.sources] == [3, 1]
    data = dataclasses.replace(data, batch_tokens=2)
    with pytest.raises(ValueError, match="cannot hold the longest training pair, of 3;"):
        translation.prepare(data, {}, np.random.default_rng(0))
    assert translation.longest([([5], [5, 6])]) == 3


def test_pairs_to_validate_on_may_be_longer_than_those_to_train_on(tmp_path):
    texts = {"source": "a b c\nb\n", "target": "a b\nb\n", "valid_source": "a b c a b c\n", "valid_target": "a\n"}
    data = dataclasses.replace(files_of_pairs(tmp_path, **texts), batch_tokens=3)
    prepared = translation.prepare(data, {}, np.random.default_rng(0))
    assert [rows.tolist() for rows in prepared.validation.batches(None)] == [[0]]
    assert [len(rows) for rows in prepared.training.batches(None)] == [1, 1]


@pytest.mark.slow
def test_the_seed_decides_the_first_weights(tmp_path):
    def first(seed):
        options = _options(["train", "classify", *TINY, "--seed", str(seed)])
        run = train_command._new(train_command.task_of(options), options)
        return run.trainer(tmp_path / str(seed), "numpy", lambda line: None).model.state()

    one, again, other = first(1), first(1), first(2)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert any(one[name].shape == other[name].shape and not np.array_equal(one[name], other[name]) for name in one)


def test_a_text_is_classified_alike_alone_and_in_a_batch():
    rng = np.random.default_rng(3)
    config = ClassifierConfig(11, 4, d_model=8, n_heads=2, d_ff=12, n_layers=1)
    model = Classifier(config, rng).to(dtype="float64")
    for _, parameter in model.parameters():
        parameter.value[...] = rng.normal(0.0, 1.0, parameter.value.shape)
    texts = [rng.integers(3, 11, size).tolist() for size in (1, 30, 2, 5, 9, 2, 30, 1, 4, 7)]
    alone = [classified(model, [text])[0] for text in texts]
    assert classified(model, texts) == alone and classified(model, texts[::-1]) == alone[::-1]
    assert len(set(alone)) > 2


@pytest.mark.slow
def test_numbers_are_classified_well_after_a_hundred_steps(run, tmp_path):
    said = run("train", "classify", "--out", tmp_path / "run", "--steps", 100, "--workers", 1)
    assert said.startswith("no file given: numbers below 100,000 in words, even or odd\n3,600 texts for training")
    numbers = np.random.default_rng(99).integers(0, 100_000, 200).tolist()
    lines = [f"{'odd' if n % 2 else 'even'}\t{' '.join(english(n))}\n" for n in numbers]
    (tmp_path / "new.txt").write_text("".join(lines))
    found = json.loads(run("evaluate", "--model", tmp_path / "run", "--text", tmp_path / "new.txt", "--json"))
    assert found["texts"] == 200 and found["accuracy"] >= 0.97
    odd = sum(n % 2 for n in numbers)
    assert found["labels"] == ["even", "odd"] and [sum(row) for row in found["counts"]] == [200 - odd, odd]
    assert found["accuracy"] == (found["counts"][0][0] + found["counts"][1][1]) / 200


@pytest.mark.slow
def test_numbers_are_the_task_of_a_translator_without_files(run, tmp_path):
    said = run("train", "translate", "--out", tmp_path / "run", *TINY, *STACKS)
    assert said.startswith(
        "no files given: numbers below 100,000, from English to German\n8,000 training pairs (0 left"
    )
    _, source, target = opened_translator(tmp_path / "run")
    assert isinstance(source, WordTokenizer) and {"thirty", "and"} <= set(source.tokens)
    assert {"dreißig", "und"} <= set(target.tokens) and "and" not in target.tokens
    assert run("translate", "--model", tmp_path / "run", "thirty one").count("\n") == 1


def test_numbers_are_the_text_of_a_language_model_without_one():
    options = _options(["train", "lm"])
    settings = train_command._new(train_command.task_of(options), options)
    config = settings.task.config(**settings.model, vocabulary=34)
    assert describe(config).parameters < 1e6  # of the preset: a laptop can train it


# ---- Every setting has a flag, and every preset makes a model. ----

OTHER = {"d_model": 48, "n_heads": 3, "optimizer": "sgd", "schedule": "constant", "tokenizer": "words"}
OTHER |= {"activation": "silu", "norm_order": "mid", "precision": "float16", "norm": "rms_norm", "positions": "learned"}


@pytest.mark.parametrize("name", TASKS)
def test_every_setting_of_a_task_is_a_flag(name, capsys):
    """Each is set to something that is not its default, and found again in the run."""
    task = TASKS[name]
    wanted, flags = {}, []
    for settings in (task.data, task.config, TrainingSettings):
        for field in dataclasses.fields(settings):
            if settings is task.config and field.name in task.from_data:
                continue
            default, flag = field.default, "--" + field.name.replace("_", "-")
            if field.type in ("bool", "bool | None"):
                value = not default
                flags.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                by_type = {"int | None": 7, "float | None": 0.25}
                other = default + 1 if isinstance(default, int) else 0.25
                other = by_type.get(str(field.type), field.name) if default is None else other
                value = OTHER.get(field.name, other)
                if field.name == "norm_order":
                    value = "post" if default == "pre" else "pre"
                if field.name == "tokenizer" and name == "lm":
                    value = "bpe"
                flags += [flag, str(value)]
            assert value != default
            wanted[settings, field.name] = value
    options = _options(["train", name, *flags])
    settings = train_command._new(train_command.task_of(options), options)
    found = {(task.data, key): value for key, value in dataclasses.asdict(settings.data).items()}
    found |= {(task.config, key): value for key, value in settings.model.items()}
    found |= {(TrainingSettings, key): value for key, value in dataclasses.asdict(settings.training).items()}
    assert found == wanted
    with pytest.raises(SystemExit) as ended:
        main(["train", name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(flag in said for flag in flags if flag.startswith("--") and not flag.startswith("--no-"))


MEANINGS = [
    ("translate", "--clip FLOAT", "largest norm of all gradients together; 0: no limit (default: 1.0)"),
    ("translate", "--joint, --no-joint", "one vocabulary for both sides (default: yes)"),
    ("translate", "--share-embeddings, --no-share-embeddings", "one table for source and target, which needs one"),
    ("translate", "--source FILE", "training sentences to translate (default: numbers)"),
    ("lm", "--batch-rows INT", "windows of max_length tokens in a batch (default: 12)"),
    ("lm", "--optimizer STR", "adamw, adam, sgd, muon (muon updates the matrices, adamw the rest) (default: adamw)"),
    ("classify", "--max-length INT", "tokens; longer texts are cut off (default: 256)"),
]


@pytest.mark.parametrize("task, flag, meaning", MEANINGS)
def test_help_says_what_the_comment_beside_a_setting_says(capsys, task, flag, meaning):
    with pytest.raises(SystemExit):
        main(["train", task, "--help"])
    assert f"{flag} {meaning}" in " ".join(capsys.readouterr().out.split())


def test_help_needs_no_source_code(monkeypatch, capsys):
    def missing(_):
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", missing)
    with pytest.raises(SystemExit) as ended:
        main(["train", "lm", "--help"])
    assert ended.value.code == 0 and "--clip FLOAT largest norm" in " ".join(capsys.readouterr().out.split())


PRESETS = [(task, name) for task in TASKS for name in TASKS[task].presets]


@in_one("task, name", PRESETS)
def test_every_preset_makes_a_run(task, name):
    task, preset = TASKS[task], TASKS[task].presets[name]
    kinds = (task.data, task.config, TrainingSettings)
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)} - set(task.from_data)
    assert preset.keys() - known <= {"vocabulary"}
    options = _options(["train", task.name, "--preset", name])
    run = train_command._new(task, options)
    settings = dataclasses.asdict(run.data) | dict(run.model) | dataclasses.asdict(run.training)
    assert preset.items() <= settings.items()
    config = task.config(**run.model, **{size: 300 for size in task.from_data})
    describe(config)


def preset(task, name, *options):
    parsed = _options(["train", task, "--preset", name, *options])
    run = train_command._new(TASKS[task], parsed)
    config = TASKS[task].config(**run.model, **{size: 300 for size in TASKS[task].from_data})
    return dataclasses.asdict(run.data) | dataclasses.asdict(config) | dataclasses.asdict(run.training)


def test_presets_are_the_published_configurations():
    cpu = {"n_layers": 4, "n_heads": 4, "d_model": 128, "d_ff": 512, "max_length": 64, "batch_rows": 12, "steps": 2000}
    assert cpu.items() <= preset("lm", "nanogpt-cpu").items()
    assert preset("lm", "nanogpt-cpu")["dropout"] == preset("lm", "nanogpt-cpu")["attention_dropout"] == 0.0
    gpu = {"n_layers": 6, "n_heads": 6, "d_model": 384, "d_ff": 1536, "max_length": 256, "batch_rows": 64}
    gpu |= {"steps": 5000, "dropout": 0.2, "learning_rate": 1e-3, "floor": 1e-4, "beta2": 0.99}
    assert gpu.items() <= preset("lm", "nanogpt-gpu").items()
    tiny = {"n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4, "dropout": 0.3}
    tiny |= {"label_smoothing": 0.1, "tokenizer": "bpe", "vocabulary": 10_000, "joint": True, "share_embeddings": True}
    tiny |= {"schedule": "inverse-sqrt", "learning_rate": 0.005, "warmup": 2000, "steps": 8000, "average": 10}
    assert tiny.items() <= preset("translate", "transformer-tiny").items()
    assert preset("translate", "transformer-tiny", "--steps", "9", "--warmup", "3")["steps"] == 9


# ---- train --resume ----


@pytest.mark.few(1)
def test_the_same_command_with_resume_goes_on(trained, run):
    before = {
        name: (trained.folder / name).read_bytes() for name in ("model.safetensors", "tokenizer.json", "run.json")
    }
    assert "continuing after step 4 of 4\n" in run(*trained.command, "--resume")
    assert before == {name: (trained.folder / name).read_bytes() for name in before}


def test_a_large_model_is_said_to_be_large_before_it_trains(writer, run, monkeypatch):
    monkeypatch.setattr("minitransformer.run.machines.run._LARGE", 1000)
    said = run(*writer.command, "--resume")
    assert " parameters, many for a processor; --preset nanogpt-cpu has fewer\n" in said
    assert "many for" not in writer.said


@pytest.mark.slow
def test_a_resumed_run_reads_both_tokenizers(translator, run, tmp_path, monkeypatch):
    apart = [*translator.command, "--no-joint", "--no-share-embeddings", "--vocabulary", 60, "--out", tmp_path / "run"]
    run(*apart)
    paths = sorted((tmp_path / "run").glob("*tokenizer.json"))
    assert [path.name for path in paths] == ["source_tokenizer.json", "target_tokenizer.json"]
    before = [path.read_bytes() for path in paths]
    assert before[0] != before[1]
    monkeypatch.setattr(BytePairTokenizer, "train", None)
    run(*apart, "--resume")
    assert [path.read_bytes() for path in paths] == before


def test_a_run_is_not_overwritten(trained, run):
    said = run(*trained.command, status=2)
    assert (
        f"{trained.folder} already holds a run or a model; add --resume to continue it, or choose another with --out"
        in said
    )


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "options, message",
    [
        (["--steps", 5], "has steps 4, not 5; leave the option out"),
        (["--n-layers", 3], "has n_layers 2, not 3"),
        (["--bias"], None),
        (["--no-bias"], "has bias True, not False"),  # never given: it has the default
        (["--held-out", 0.2], "has held_out 0.1, not 0.2"),
        (["--preset", "nanogpt-cpu"], "not "),
        (["--preset", "nano"], "train lm --preset knows no 'nano'; did you mean 'nanogpt"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(writer, run, options, message):
    said = run("train", "lm", "--out", writer.folder, "--resume", *options, status=2 if message else 0)
    assert (message or "continuing") in said


def test_a_run_of_another_task_or_none_does_not_go_on(writer, run, tmp_path):
    said = run("train", "classify", "--out", writer.folder, "--resume", status=2)
    assert "holds a run of lm, not of classify" in said
    assert "there is no run in" in run("train", "lm", "--out", tmp_path, "--resume", status=1)


def settings_in(tmp_path, change=lambda document: document):
    """A folder with the settings of a run on tmp_path/a.txt that has not begun."""
    (tmp_path / "a.txt").write_text("one two three " * 30)
    options = _options(["train", "lm", "--preset", "numbers", "--text", str(tmp_path / "a.txt")])
    train_command._new(TASKS["lm"], options).save(tmp_path)
    document = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(change(document)))


def test_a_run_does_not_go_on_with_other_data(run, tmp_path):
    settings_in(tmp_path)
    (tmp_path / "a.txt").write_text("one two tree " * 30)
    said = run("train", "lm", "--out", tmp_path, "--resume", status=1)
    assert f"{tmp_path / 'a.txt'} changed since the run in {tmp_path} began" in said
    (tmp_path / "a.txt").unlink()
    assert f"there is no file {tmp_path / 'a.txt'}" in run("train", "lm", "--out", tmp_path, "--resume", status=1)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda document: [],
        lambda document: document | {"format": 2},
        lambda document: document | {"task": ["lm"]},
        lambda document: document | {"task": "lmm"},
        lambda document: document | {"files": 3},
        lambda document: document | {"model": 3},
        lambda document: document | {"training": {"step": 3}},
        lambda document: {name: value for name, value in document.items() if name != "data"},
    ],
)
def test_a_damaged_run_is_refused(run, tmp_path, change):
    settings_in(tmp_path, change)
    said = run("train", "lm", "--out", tmp_path, "--resume", status=1)
    assert f"{tmp_path / 'run.json'} does not describe a run" in said


# ---- train: what is refused ----


@pytest.mark.few(10)
@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "the following arguments are required: TASK"),
        ("lm --preset nano", "train lm --preset knows no 'nano'; did you mean 'nanogpt"),
        ("lm --steps none", "argument --steps: invalid int value"),
        ("lm --steps 0", "steps must be greater than 0, got 0"),
        ("lm --warmup 300", "warmup must be less than steps, got 300 and 300"),
        ("lm --optimizer adm", "optimizer must be one of adamw, adam, sgd, muon, got 'adm'"),
        ("lm --tokenizer words", "tokenizer must be characters or bpe, got 'words'"),
        ("lm --held-out 1", "held_out must be between 0 and 1, got 1.0"),
        ("lm --batch-rows 0", "batch_rows must be greater than 0, got 0"),
        ("lm --n-heads 7", "d_model 64 cannot be divided into 7 equal heads"),
        ("lm --activation step", 'activation must be "relu"'),
        ("lm --dropout 1.5", "dropout must be"),
        ("lm --vocabulary-size 3", "unrecognized arguments"),
        ("translate --source a", "translate needs four files: source, target, valid-source and valid-target"),
        ("translate --tokenizer characters", "tokenizer must be bpe or words, got 'characters'"),
        ("translate --batch-tokens 0", "batch_tokens must be greater than 0"),
        ("translate --label-smoothing 1", "label_smoothing must be at least 0 and below 1, got 1.0"),
        ("classify --valid-text a", "valid_text also needs text"),
        ("classify --max-length 600", "a batch of 512 tokens cannot hold a text of 600"),
        ("classify --seed -1", "--seed must be at least 0"),
    ],
)
def test_bad_usage_of_train_is_one_complaint(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in run("train", *arguments.split(), status=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "task, texts, options, message",
    [
        ("lm", {"text": None}, "", "there is no file"),
        ("lm", {"text": "one two"}, "", "7 tokens for training|6 tokens for training"),
        ("lm", {"text": "ab\n" * 99}, "--tokenizer bpe --vocabulary 5", "choose a size of at least 8"),
        ("classify", {"text": "a\tone\n" * 9}, "", "at least two different labels, got a"),
        ("classify", {"text": "a\tone\nb\ttwo\n" * 9, "valid_text": "c\tone\n"}, "--tokenizer words", "lack: c"),
        ("classify", {"text": "one\n"}, "", "every line must be a label, a tab and a text; see line 1"),
    ],
)
def test_files_that_do_not_fit_are_a_failed_run(run, tmp_path, task, texts, options, message):
    flags = []
    for name, text in texts.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        flags += ["--" + name.replace("_", "-"), tmp_path / name]
    said = run("train", task, "--preset", "numbers", "--out", tmp_path / "run", *flags, *options.split(), status=1)
    assert re.search(message, said), said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--max-length", 2], "every training pair is longer than max_length 2"),
        (["--batch-tokens", 9], r"a batch of 9 tokens cannot hold the longest training pair, of \d+; increase batch_"),
    ],
)
def test_pairs_that_fit_nowhere_are_a_failed_run(translator, run, tmp_path, options, message):
    command = [*translator.command, "--out", tmp_path / "run", *options]
    assert re.search(message, run(*command, status=1))


WORDS = "--tokenizer words --no-share-embeddings --no-joint".split()


@pytest.mark.slow
@pytest.mark.parametrize("word, message", [("five", "does not hold 'five'"), ("<end>", "special token '<end>'")])
@pytest.mark.parametrize("name", ["source", "target", "valid_source", "valid_target"])
def test_a_word_without_an_id_is_named_with_its_file_and_line(run, tmp_path, name, word, message):
    flags = ["--out", tmp_path / "run", *TINY, *WORDS]
    for each in ("source", "target", "valid_source", "valid_target"):
        strange = f"one {word}" if each == name else "one"
        (tmp_path / each).write_text(f"one two\ntwo one\n{strange}\n")
        flags += ["--" + each.replace("_", "-"), tmp_path / each]
    if word == "five" and not name.startswith("valid"):  # a word to train on
        other = {"source": "target", "target": "source"}[name]
        run("train", "translate", *flags)
        (tmp_path / "new").write_text("one\ntwo\none six\n")
        translate = ["translate", "--model", tmp_path / "run", "--input", tmp_path / "new"]
        measure = ["evaluate", "--model", tmp_path / "run", "--source", tmp_path / "new", "--target", tmp_path / other]
        for command in (translate, measure):
            assert f"{tmp_path / 'new'}, line 3: the vocabulary does not hold 'six'" in run(*command, status=1)
        assert run("translate", "--model", tmp_path / "run", "six", status=1).startswith(
            "minitransformer: error: the vocabulary does not hold 'six'"
        )
        return
    said = run("train", "translate", *flags, status=1)
    assert f"{tmp_path / name}, line 3: " in said and message in said
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_a_number_is_a_failed_run(run, tmp_path):
    (tmp_path / "a.txt").write_text("one two three " * 90)
    hot = (
        "--learning-rate 1e30 --clip 0 --optimizer sgd --warmup 0 --preset numbers --n-layers 1 --batch-rows 2".split()
    )
    with np.errstate(all="ignore"):
        said = run("train", "lm", "--out", tmp_path / "run", "--text", tmp_path / "a.txt", *hot, status=1)
    assert re.search(r"step \d+: the loss is (nan|inf); .* (layer|gradient)", said)


@pytest.mark.slow
def test_tokenizers_of_an_earlier_attempt_do_not_stay(writer, run, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("source_tokenizer.json", "tokenizer.json"):
        WordTokenizer.train(["a"]).save(tmp_path / "run" / name)
    run(*writer.command, "--out", tmp_path / "run", "--steps", 2)
    assert isinstance(load_tokenizer(tmp_path / "run" / "tokenizer.json"), CharacterTokenizer)
    assert [path.name for path in (tmp_path / "run").glob("*tokenizer.json")] == ["tokenizer.json"]


# ---- translate ----


def opened_translator(path):
    return model_folder.load(path), load_tokenizer(path, "source"), load_tokenizer(path, "target")


TEXTS = ["seven!", "thirty one thousand!", "two hundred and five!"]


def expected(translator, **options):
    model, source, target = opened_translator(translator.folder)
    return [target.decode(row) for row in written(model, [source.encode(text) for text in TEXTS], **options)]


@pytest.mark.slow
def test_translations_are_those_of_beam_search_in_the_order_of_the_texts(translator, run):
    assert run("translate", "--model", translator.folder, *TEXTS).splitlines() == expected(translator)
    flags = ["--beam", 2, "--length-penalty", 0]
    found = run("translate", "--model", translator.folder, *flags, *TEXTS).splitlines()
    assert found == expected(translator, beam=2, length_penalty=0.0)


@pytest.mark.slow
def test_with_a_beam_of_one_the_likeliest_tokens_are_taken(translator, run):
    model, source, target = opened_translator(translator.folder)
    ids = source.encode(TEXTS[1])
    wanted = greedy(model, np.array([ids]), None, START, END, max_length=200)[0]
    assert run("translate", "--model", translator.folder, "--beam", 1, TEXTS[1]) == f"{target.decode(wanted)}\n"


@pytest.mark.parametrize("cut_off", [0, 1, 3])
def test_translations_without_an_end_are_counted(translator, monkeypatch, capsys, tmp_path, cut_off):
    """Written as if the model had found an end for all but some: a short training finds none."""
    target = opened_translator(translator.folder)[2]
    ids = [[5, 6] + [END] * (i >= cut_off) for i in range(3)]
    monkeypatch.setattr("minitransformer.commands.translate.written", lambda *_, **__: ids)
    monkeypatch.setattr("minitransformer.run.tasks.evaluation.written", lambda *_, **__: ids)
    assert main(["translate", "--model", str(translator.folder), *TEXTS]) == 0
    out, err = capsys.readouterr()
    assert out == f"{target.decode([5, 6])}\n" * 3
    assert err == (f"{cut_off} of 3 translations did not end and were cut off\n" if cut_off else "")
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    files = ["--source", str(tmp_path / "a.txt"), "--target", str(tmp_path / "a.txt")]
    assert main(["evaluate", "--model", str(translator.folder), *files]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said.endswith("on 3 sentences" + (f", {cut_off} of them cut off" if cut_off else ""))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_texts_come_from_a_file_and_go_to_one(translator, run, tmp_path, name):
    content = "".join(f"{text}\n" for text in TEXTS).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    files = ["--input", tmp_path / name, "--output", tmp_path / "out.txt"]
    assert run("translate", "--model", translator.folder, *files) == f"wrote {tmp_path / 'out.txt'}\n"
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines() == expected(translator)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", ""])
def test_texts_come_from_standard_input(translator, run, monkeypatch, end):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS) + end))
    assert run("translate", "--model", translator.folder).splitlines() == expected(translator)


# ---- generate ----


def test_temperature_zero_takes_the_likeliest_token(writer, run):
    model, tokenizer = model_folder.load(writer.folder), load_tokenizer(writer.folder / "tokenizer.json")
    ids = tokenizer.encode("7 is ")
    for _ in range(9):
        ids.append(int(model(np.array([ids]))[0][0, -1].argmax()))
    said = run("generate", "--model", writer.folder, "7 is ", "--tokens", 9, "--temperature", 0)
    assert said == f"{tokenizer.decode(ids)}\n"
    assert run("generate", "--model", writer.folder, "7 is ", "--tokens", 9, "--top-k", 1, "--seed", 5) == said


@pytest.mark.slow
def test_the_seed_decides_what_is_drawn(writer, run):
    def drawn(*options):
        return run("generate", "--model", writer.folder, "--tokens", 40, *options)

    assert drawn("--seed", 1) == drawn("--seed", 1) != drawn("--seed", 2)
    two = drawn("--seed", 1, "--samples", 2).split(f"\n{'-' * 40}\n")
    assert len(two) == 2 and two[0] + "\n" == drawn("--seed", 1)
    assert two[0] != two[1].removesuffix("\n")


@pytest.mark.slow
def test_a_bpe_model_puts_the_space_between_prompt_and_what_follows(tmp_path, run):
    texts = {"text": "one two three four " * 60}
    options = ["--n-layers", "1", "--max-length", "8", "--tokenizer", "bpe", "--vocabulary", "25"]
    trained = train(tmp_path, "lm", texts, *options)
    tokenizer = load_tokenizer(trained.folder / "tokenizer.json")
    assert len(tokenizer) == 25
    said = run("generate", "--model", trained.folder, "two three", "--tokens", 6, "--temperature", 0)
    assert said.startswith("two three")
    model, ids = model_folder.load(trained.folder), tokenizer.encode("two three")
    following = tokenizer.tokens[int(model(np.array([ids]))[0][0, -1].argmax())]
    assert said.removeprefix("two three").startswith(following.replace("▁", " "))


# ---- evaluate ----


@pytest.fixture(scope="module")
def references(translator, tmp_path_factory):
    """Sentences, and references that are the model's own translations with every third word replaced."""
    tmp_path = tmp_path_factory.mktemp("references")
    texts = [f"{' '.join(english(n))}!" for n in range(0, 30_000, 2500)]
    model, source, target = opened_translator(translator.folder)
    said = [target.decode(row) for row in written(model, [source.encode(text) for text in texts])]
    (tmp_path / "source.txt").write_text("".join(f"{text}\n" for text in texts))
    changed = []
    for i, line in enumerate(said):
        words = [*line.split(), "Ja,", "das", "ist", "gut."]
        changed.append(" ".join("neu" if j % 9 == i % 4 else word for j, word in enumerate(words)))
    (tmp_path / "target.txt").write_text("".join(f"{line}\n" for line in changed), encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("tokenize", ["13a", "none", "char"])
def test_bleu_is_that_of_sacrebleu_on_the_written_translations(translator, references, run, tmp_path, tokenize):
    source, target, out = references / "source.txt", references / "target.txt", tmp_path / "out.txt"
    flags = ["--source", source, "--target", target, "--output", out, "--tokenize", tokenize]
    found = json.loads(run("evaluate", "--model", translator.folder, *flags, "--json"))
    run("translate", "--model", translator.folder, "--input", source, "--output", tmp_path / "same.txt")
    assert out.read_text() == (tmp_path / "same.txt").read_text()
    lines = [path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (out, target)]
    metric = sacrebleu.BLEU(tokenize=tokenize)
    wanted = metric.corpus_score(lines[0], [lines[1]])
    assert found["bleu"] == wanted.score and found["precisions"] == wanted.precisions
    assert found["signature"] == str(metric.get_signature()) and f"tok:{tokenize}" in found["signature"]
    assert found["sentences"] == len(lines[0]) == 12
    said = run("evaluate", "--model", translator.folder, *flags)
    assert said.startswith(f"BLEU {wanted.score:.2f} (") and metric.get_signature().format() in said


@pytest.mark.parametrize("held_out", [1.0, 0.25])
def test_the_loss_of_a_language_model_is_the_mean_over_its_windows(writer, run, tmp_path, held_out):
    text = "".join(f"{n} is {' '.join(english(n))}\n" for n in range(8))
    (tmp_path / "a.txt").write_text(text)
    flags = ["--text", tmp_path / "a.txt", "--held-out", held_out]
    found = json.loads(run("evaluate", "--model", writer.folder, *flags, "--json"))
    model = model_folder.load(writer.folder)
    ids = load_tokenizer(writer.folder / "tokenizer.json").encode(text[round(len(text) * (1 - held_out)) :])
    costs = []
    for start in range(0, len(ids) - 1, 16):  # the windows of the model, one after the other
        window = ids[start : start + 17]
        for place, logits in enumerate(model(np.array([window[:-1]]))[0][0].astype(float)):
            costs.append(math.log(np.exp(logits).sum()) - logits[window[place + 1]])
    assert found["tokens"] == len(costs) == len(ids) - 1
    assert found["loss"] == pytest.approx(np.mean(costs), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(np.mean(costs)), rel=1e-5)
    said = run("evaluate", "--model", writer.folder, *flags)
    assert said == f"loss {found['loss']:.4f} nats, perplexity {found['perplexity']:.2f}, on {len(costs)} tokens\n"


def test_a_text_shorter_than_the_context_has_a_loss(writer, run, tmp_path):
    (tmp_path / "a.txt").write_text("3 is")
    said = run("evaluate", "--model", writer.folder, "--text", tmp_path / "a.txt")
    assert said.endswith(" on 3 tokens\n")
    (tmp_path / "a.txt").write_text("3")
    said = run("evaluate", "--model", writer.folder, "--text", tmp_path / "a.txt", status=1)
    assert "the text must have at least two tokens, got 1" in said


def test_a_classifier_is_counted_label_by_label(classifier, run, tmp_path):
    lines = classifier.files["text"].read_text().splitlines()[:10]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    model = model_folder.load(classifier.folder)
    tokenizer = load_tokenizer(classifier.folder / "tokenizer.json")
    counts = np.zeros((2, 2), int)
    for line in lines:
        label, text = line.split("\t")
        guess = int(model(np.array([tokenizer.encode(text)]))[0].argmax())
        counts[["even", "odd"].index(label), guess] += 1
    found = json.loads(run("evaluate", "--model", classifier.folder, "--text", tmp_path / "a.txt", "--json"))
    assert found["counts"] == counts.tolist() and found["accuracy"] == np.trace(counts) / 10
    said = run("evaluate", "--model", classifier.folder, "--text", tmp_path / "a.txt")
    first = f"accuracy {np.trace(counts) / 10:.2%} on 10 texts\neven: {counts[0, 0]} as even, {counts[0, 1]} as odd\n"
    assert said == f"{first}odd: {counts[1, 0]} as even, {counts[1, 1]} as odd\n"


@pytest.mark.slow
def test_a_classifier_reads_as_much_of_a_text_as_in_training(run, tmp_path):
    """The label is the first word; the words behind the third change nothing, if only three are read."""
    texts = {"text": "".join(f"{'ab'[i % 2]}\t{'xy'[i % 2]} {'x y ' * (i % 5)}\n" for i in range(80))}
    trained = train(tmp_path, "classify", texts, "--tokenizer", "words", "--n-layers", "1", "--max-length", "3")
    model, tokenizer = model_folder.load(trained.folder), load_tokenizer(trained.folder / "tokenizer.json")
    lines = [f"{label}\t{word}{rest}" for label, word in zip("ab", "xy", strict=True) for rest in ("", " x y" * 9)]
    (tmp_path / "new.txt").write_text("".join(f"{line}\n" for line in lines))
    seen = []
    original = Classifier.__call__
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Classifier, "__call__", lambda self, ids, *more: seen.append(ids) or original(self, ids, *more))
        found = json.loads(run("evaluate", "--model", trained.folder, "--text", tmp_path / "new.txt", "--json"))
        said = run("evaluate", "--model", trained.folder, "--text", tmp_path / "new.txt")
    assert max(ids.shape[1] for ids in seen) == 3
    assert found["cut_off"] == 2 and said.splitlines()[0].endswith("on 4 texts, 2 of them cut off")
    counts = np.zeros((2, 2), int)
    for line in lines:
        label, text = line.split("\t")
        counts["ab".index(label), int(model(np.array([tokenizer.encode(text)[:3]]))[0].argmax())] += 1
    assert found["counts"] == counts.tolist()
    (trained.folder / "run.json").unlink()  # a model without its run reads as much as the default allows
    assert "cut off" not in run("evaluate", "--model", trained.folder, "--text", tmp_path / "new.txt")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "model, command, message",
    [
        ("translator", "translate --beam 1 seven", "logits are NaN or infinite"),
        ("translator", "evaluate --source a.txt --target a.txt", "logits are NaN or infinite"),
        ("writer", "generate 7 --temperature 0", "logits are NaN or infinite"),
        ("writer", "generate 7", "logits are NaN or infinite"),
        ("writer", "evaluate --text a.txt", "the loss is nan"),
        ("classifier", "evaluate --text d.txt", "logits are NaN or infinite"),
        ("classifier", "view seven", "logits of this model are not finite"),
        ("classifier", "plot attention seven --out a.png", "the attention weights are NaN or infinite"),
    ],
)
def test_numbers_that_are_not_finite_are_an_error(request, run, tmp_path, monkeypatch, model, command, message):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(request.getfixturevalue(model).folder, "broken")
    weights = Path("broken/model.safetensors")
    files.write_arrays(weights, {name: np.full_like(x, 3e38) for name, x in files.read_arrays(weights).items()})
    Path("a.txt").write_text("7 is\n" if model == "writer" else "seven\n")
    Path("d.txt").write_text("even\tseven\n")
    name, *rest = command.split()
    assert message in run(name, *rest, "--model", "broken", status=1) and not Path("a.png").exists()


# ---- plot attention, view ----

READS = {"translator": "seven hundred!", "writer": "7 is\n$", "classifier": "seventy one"}


@pytest.fixture
def drawn(monkeypatch):
    """The figures that would be saved."""
    figures = []
    monkeypatch.setattr(plot, "write_figure", lambda path, figure: figures.append(figure))
    return figures


def heat_maps(figure):
    return [axes for axes in figure.axes if axes.images]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "model, kind, which, queries, keys",
    [
        ("translator", None, 2, 1, 0),
        ("translator", "encoder", 0, 0, 0),
        ("translator", "decoder", 1, 1, 1),
        ("translator", "cross", 2, 1, 0),
        ("writer", None, 0, 0, 0),
        ("classifier", "self", 0, 0, 0),
    ],
)
def test_the_picture_shows_the_weights_of_a_layer(request, run, tmp_path, drawn, model, kind, which, queries, keys):
    path, text = request.getfixturevalue(model).folder, READS[model].removesuffix("$")
    flags = [] if kind is None else ["--kind", kind]
    out = tmp_path / "a.png"
    assert run("plot", "attention", text, "--model", path, "--out", out, *flags) == f"wrote {out}\n"
    shown = view_text(path, text)
    weights = shown.maps[which].weights
    assert (shown.maps[which].queries, shown.maps[which].keys) == (queries, keys)
    maps = heat_maps(drawn[0])
    assert [axes.get_title() for axes in maps] == [f"layer {len(weights)}, head {i}" for i in (1, 2)]
    for axes, wanted in zip(maps, weights[-1], strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), wanted, rtol=1e-5, atol=1e-7)
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            token.replace("\n", "↵") for token in shown.sequences[keys]
        ]
    run("plot", "attention", text, "--model", path, "--out", out, *flags, "--layer", 1, "--head", 2)
    (axes,) = heat_maps(drawn[1])
    assert axes.get_title() == "layer 1, head 2"
    np.testing.assert_allclose(axes.images[0].get_array(), weights[0, 1], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_tokens_that_look_like_formulas_are_drawn_as_they_are(run, tmp_path):
    texts = {"text": "".join(f"{label}\t$$ \\frac $x^$ {i}\n" for i in range(9) for label in "ab")}
    trained = train(tmp_path, "classify", texts, "--tokenizer", "words", "--n-layers", "1")
    out = tmp_path / "a.png"
    run("plot", "attention", "$$ \\frac $x^$", "--model", trained.folder, "--out", out, "--head", 1)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_every_command_names_a_folder_without_a_model(run, tmp_path):
    for command in (["translate", "a"], ["generate"], ["evaluate"], ["plot", "attention", "a"], ["view", "a"]):
        assert "there is no model folder" in run(*command, "--model", tmp_path / "none", status=1)
        assert "holds no model: config.json is missing" in run(*command, "--model", tmp_path, status=1)


# ---- What a command cannot do is one complaint. ----

TRANSLATE, GENERATE, EVALUATE = "translator: translate", "writer: generate", "translator: evaluate"
BOTH, DRAW = f"{EVALUATE} --source a.txt --target", "translator: plot attention 'seven hundred!' --out a.png"
COMPLAINTS = {  # a command about a model, its status, and what is said
    f"{TRANSLATE} --input a.txt one": (2, "give TEXT or --input, not both"),
    f"{TRANSLATE} --beam 0 one": (2, "--beam must be at least 1, got 0"),
    f"{TRANSLATE} --length-penalty -1 one": (2, "--length-penalty must be from 0 to 10, got -1.0"),
    f"{TRANSLATE} --length-penalty nan one": (2, "--length-penalty must be from 0 to 10"),
    f"{TRANSLATE} --output none/a.txt one": (2, "argument --output: there is no folder none"),
    f"{TRANSLATE} one ''": (2, "there is nothing to translate: every sentence needs at least one word"),
    TRANSLATE: (2, "there is nothing to translate"),
    f"{TRANSLATE} --input none.txt": (1, "there is no file none.txt"),
    "writer: translate one": (1, "holds a LanguageModel, but only an EncoderDecoder translates"),
    f"{GENERATE} --tokens 0": (2, "--tokens must be at least 1, got 0"),
    f"{GENERATE} --samples 0": (2, "--samples must be at least 1, got 0"),
    f"{GENERATE} --temperature -1": (2, "--temperature must be at least 0, got -1.0"),
    f"{GENERATE} --temperature nan": (2, "--temperature must be at least 0, got nan"),
    f"{GENERATE} --top-k 0": (2, "top_k must be greater than 0, got 0"),
    f"{GENERATE} --top-p 1.5": (2, "top_p is a probability and must be at most 1, got 1.5"),
    f"{GENERATE} ''": (2, "the text to continue is empty"),
    f"{GENERATE} Ω": (1, "the vocabulary does not hold 'Ω'"),
    f"{GENERATE} --chat": (1, "this model has no chat template"),
    "translator: generate": (1, "holds a Transformer, but only a LanguageModel continues a text"),
    EVALUATE: (2, "a translator is measured on two files: give --source and --target"),
    f"{EVALUATE} --source a.txt": (2, "give --source and --target"),
    f"{BOTH} b.txt": (1, "a.txt has 2 lines and b.txt has 1"),
    f"{BOTH} a.txt --beam 0": (2, "--beam must be at least 1"),
    f"{BOTH} a.txt --tokenize 13b": (2, "argument --tokenize: invalid choice"),
    f"{BOTH} a.txt --output no/x": (2, "argument --output: there is no folder no"),
    "writer: evaluate": (2, "measured on a file: give --text"),
    "writer: evaluate --text a.txt --held-out 0": (2, "--held-out must be above 0 and at most 1, got 0.0"),
    "writer: evaluate --text c.txt": (1, "the vocabulary does not hold 'Ω'"),
    "writer: evaluate --text none.txt": (1, "there is no file none.txt"),
    "classifier: evaluate --text a.txt": (1, "every line must be a label, a tab and a text; see lines 1, 2"),
    "classifier: evaluate --text d.txt": (1, "labels that the model does not know: prime"),
    f"{DRAW} --layer 0": (2, "--layer must be from 1 to 2, got 0"),
    f"{DRAW} --layer 3": (2, "--layer must be from 1 to 2, got 3"),
    f"{DRAW} --kind encoder --layer 2": (2, "--layer must be from 1 to 1, got 2"),
    f"{DRAW} --head 0": (2, "--head must be from 1 to 2, got 0"),
    f"{DRAW} --head 3": (2, "--head must be from 1 to 2, got 3"),
    f"{DRAW} --kind encode": (2, "did you mean 'encoder'?"),
    f"{DRAW} --kind x": (2, "this model has encoder, decoder, cross"),
    "writer: plot attention '7 is' --out a.png --kind cross": (2, "this model has self"),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("command", COMPLAINTS)
def test_what_a_command_cannot_do_is_one_complaint(request, run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    for name, text in {"a": "one\ntwo\n", "b": "one\n", "c": "Ω is\n", "d": "prime\tseven\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    model, _, arguments = command.partition(": ")
    status, message = COMPLAINTS[command]
    path = request.getfixturevalue(model).folder
    assert message in run(*shlex.split(arguments), "--model", path, status=status)
    assert not (tmp_path / "a.png").exists()
