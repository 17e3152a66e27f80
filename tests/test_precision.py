"""float16: that the ops sum in float32, and training with float32 master weights and a scaled loss."""

import copy
import itertools
import json
import math
import os

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiers import in_one

import minitransformer.core.arrays.strict  # noqa: F401 - registers the device "strict"
from minitransformer import fast, ideas, layers, ops
from minitransformer.check.verify.catalogue import CASES
from minitransformer.cli import main
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.core.ops import checking
from minitransformer.core.training.corpora import TextCorpus
from minitransformer.ideas.published.bart import BiasedOutput
from minitransformer.ideas.published.text_encoder import MaskedLanguageModel, TextEncoderConfig
from minitransformer.layers import Parameter
from minitransformer.models import LanguageModel, LanguageModelConfig
from minitransformer.run.fast import ops as fast_ops
from minitransformer.run.machines import precision
from minitransformer.run.machines.precision import FIRST_SCALE, GOOD_STEPS, MixedPrecision, next_scale
from minitransformer.training import SGD, Trainer, TrainingSettings, Workers


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """They take longer than the steps that they show, and have tests of their own."""
    monkeypatch.setattr("minitransformer.run.machines.run_folder.write_figure", lambda path, figure: None)


# ---- The ops. ----


def normal(*shape, seed=0, size=1.0, shift=0.0):
    return (shift + size * np.random.default_rng(seed).normal(size=shape)).astype("float16")


MASK = np.arange(300) < 200
OPS = {  # an op, its options, and inputs for which sums, squares or many roundings in float16 go wrong
    "softmax": (ops.softmax, {}, (normal(3, 5000),)),
    "softmax of a column": (ops.softmax, {"axis": 0}, (normal(5000, 3),)),
    "layer_norm": (
        ops.layer_norm,
        {},
        (normal(40, 300, size=400, shift=300), normal(300, seed=1), normal(300, seed=2)),
    ),
    "layer_norm of small numbers": (ops.layer_norm, {}, (normal(40, 30, size=1e-3), normal(30, seed=1), normal(30))),
    "layer_norm of many rows": (ops.layer_norm, {}, (normal(5000, 4, shift=1), normal(4, seed=1), normal(4, seed=2))),
    "rms_norm": (ops.rms_norm, {}, (normal(3000, 30, size=400), normal(30, seed=1))),
    "mean_pool": (ops.mean_pool, {"mask": MASK}, (normal(2, 300, 5, shift=2),)),
    "gelu": (ops.gelu, {}, (normal(50, 40, size=2),)),
    "gelu by tanh": (ops.gelu, {"approximate": "tanh"}, (normal(50, 40, size=2),)),
    "repeat_heads": (ideas.repeat_heads, {"times": 300}, (normal(2, 3, 4),)),
    "silu": (ops.silu, {}, (normal(50, 40, size=2),)),
    "linear": (ops.linear, {}, (normal(3000, 6), normal(6, 5, seed=1), normal(5, seed=2))),
    "attention": (
        ops.attention,
        {"causal": True},
        (normal(2, 90, 8), normal(2, 90, 8, seed=1), normal(2, 90, 8, seed=2)),
    ),
}
ON_A_GPU = [name for name in OPS if name != "attention"]  # there it rounds its scores and weights to float16 as well


def outcome(op, options, inputs, dtype, device):
    """Output and gradients, as float64 on the host, of an op that gets its inputs in a dtype."""
    placed = {name: to_device(x, device) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    y, backward = op(*(to_device(x.astype(dtype), device) for x in inputs), **placed)
    dy = normal(*y.shape, seed=9, shift=1)
    gradients = backward(to_device(dy.astype(dtype), device))
    results = (y, *(gradients if isinstance(gradients, tuple) else (gradients,)))
    assert {str(x.dtype) for x in results} == {dtype}
    return [to_numpy(x).astype("float64") for x in results]


def assert_rounded_once(got, right):
    """What was computed in float32 is off by one rounding to float16, and by what float32 leaves of large terms."""
    for x, exact in zip(got, right, strict=True):
        np.testing.assert_allclose(x, exact, rtol=0.6 * 2.0**-10, atol=2e-6 * np.abs(exact).max() + 2.0**-24)


@in_one("name", OPS)
def test_an_op_on_float16_computes_in_float32_and_rounds_once(name) -> None:
    op, options, inputs = OPS[name]
    right = outcome(op, options, inputs, "float64", "numpy")
    assert_rounded_once(outcome(op, options, inputs, "float16", "numpy"), right)
    assert_rounded_once(outcome(op, options, inputs, "float16", "numpy"), right)


ROUND_TWICE = ("dropout", "gated", "low_rank_linear")  # two steps, each of which rounds once


@in_one("name", sorted({case.covers for case in CASES.values() if case.kind == "op"}))
def test_so_does_every_op_of_the_catalogue(name) -> None:
    """Without its decorator each op that has one fails here: the numbers of a case show what float16 rounds away."""

    def results(case, dtype):
        def cast(x):
            floats = isinstance(x, np.ndarray) and x.dtype.kind == "f"
            return x.astype("float16").astype(dtype) if floats else copy.copy(x)

        setup = case.build(np.random.default_rng(0))
        y, backward = setup.f(*map(cast, setup.inputs), **{key: cast(x) for key, x in setup.options.items()})
        gradients = backward(np.random.default_rng(1).normal(size=y.shape).astype("float16").astype(y.dtype))
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        return [np.asarray(x, "float64") for x in (y, *gradients) if x is not None]

    for case in (case for case in CASES.values() if case.covers == name):
        for half, right in zip(results(case, "float16"), results(case, "float64"), strict=True):
            rounded_before = 2.0**-11 if name in ROUND_TWICE else 2e-6
            atol = rounded_before * np.abs(right).max(initial=0.0) + 2.0**-24
            np.testing.assert_allclose(half, right, 0.6 * 2.0**-10, atol, err_msg=case.name)


@pytest.mark.parametrize("part", ["LearnedPositions", "BiasedOutput", "MaskedLanguageModel"])
def test_a_layer_sums_the_gradients_of_a_batch_in_float32(part) -> None:
    """In float16 a sum of 4096 ones is 2048."""
    if part == "LearnedPositions":
        layer = layers.LearnedPositions(3, 2).to(dtype="float16")
        _, backward = layer(np.ones((4096, 1, 2), "float16"))
        backward(np.ones((4096, 1, 2), "float16"))
        assert (layer.table.grad[0] == 4096.0).all()
    elif part == "BiasedOutput":
        output = BiasedOutput(layers.Embedding(3, 2), 3).to(dtype="float16")
        output.unembed(np.ones((4096, 1, 2), "float16"))[1](np.ones((4096, 1, 3), "float16"))
        assert (output.logit_bias.grad == 4096.0).all()
    else:
        model = MaskedLanguageModel(TextEncoderConfig(3, 1, 2, 1, 1, 1)).to(dtype="float16")
        model(np.ones((4096, 1), int))[1](np.ones((4096, 1, 3), "float16"))
        assert (model.logit_bias.grad == 4096.0).all()


@in_one("name", ON_A_GPU)
def test_so_it_does_on_a_gpu(name) -> None:
    op, options, inputs = OPS[name]
    right = outcome(op, options, inputs, "float64", "numpy")
    if name == "linear":  # the sum over the inputs is rounded before the bias is added
        rounded = np.abs(right[0] - inputs[2].astype("float64")) * 2.0**-11
        got = outcome(op, options, inputs, "float16", "strict")
        assert (np.abs(got[0] - right[0]) <= 1.01 * (rounded + np.abs(right[0]) * 2.0**-11) + 2.0**-24).all()
        assert_rounded_once(got[1:], right[1:])
    else:
        assert_rounded_once(outcome(op, options, inputs, "float16", "strict"), right)


@pytest.mark.parametrize("device", ["numpy", "strict"])
def test_sums_of_five_thousand_ones(device) -> None:
    """In float16 such a sum ends at 2048, to which 1 adds nothing."""

    def ones(*shape):
        return to_device(np.ones(shape, "float16"), device)

    _, linear_backward = ops.linear(ones(5000, 2), ones(2, 3), ones(3))
    for gradient in linear_backward(ones(5000, 3))[1:]:
        assert (to_numpy(gradient) == 5000.0).all()
    for norm in (ops.layer_norm(ones(5000, 2), ones(2), ones(2)), ops.rms_norm(ones(5000, 2), ones(2))):
        assert (to_numpy(norm[1](ones(5000, 2))[-1]) == to_numpy(ones(5000, 2)).sum(axis=0, dtype="float64")).all()
    _, embedding_backward = ops.embedding(to_device(np.ones(5000, "int64"), device), ones(3, 2))
    np.testing.assert_array_equal(to_numpy(embedding_backward(ones(5000, 2))), [[0, 0], [5000, 5000], [0, 0]])
    assert float(ones(5000, 2).sum(axis=0)[0]) == (2048.0 if device == "numpy" else 5000.0)  # CuPy's own is right


@pytest.mark.parametrize("device", ["numpy", "strict"])
def test_a_loss_of_float16_logits_has_the_room_of_float32(device) -> None:
    logits, targets = np.zeros((70_000, 4), "float16"), np.arange(70_000) % 4
    logits[:, 1] = 5.0
    right = 70_000 * math.log(3.0 + math.exp(5.0)) - 5.0 * 70_000 / 4
    for reduction, n in (("sum", 1), ("mean", 70_000)):
        loss, backward = ops.cross_entropy(*(to_device(x, device) for x in (logits, targets)), reduction=reduction)
        assert loss.dtype == np.float32
        assert float(loss) == pytest.approx(right / n, rel=1e-5)  # 266,000 as a sum, and float16 ends at 65504
        dlogits = backward(1024.0)
        assert dlogits.dtype == np.float16
        p = np.exp(logits[0].astype("float64")) / np.exp(logits[0].astype("float64")).sum()
        expected = (p - [1.0, 0.0, 0.0, 0.0]) * 1024.0 / n
        np.testing.assert_allclose(to_numpy(dlogits)[0], expected, rtol=2.0**-10, atol=2.0**-24)


def test_float16_beside_another_dtype_is_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="nothing is promoted silently"):
        ops.linear(normal(2, 3), np.ones((3, 2), "float32"))
    with pytest.raises(TypeError, match="got float32"):
        ops.softmax(normal(2, 3))[1](np.ones((2, 3), "float32"))


# ---- Master weights and scale, on one weight. ----


class OneWeight(layers.Module):
    """loss = w · x, so that the gradient is x."""

    config = None

    def __init__(self, value: float = 1.0) -> None:
        self.weight = Parameter(np.array([value], "float32"))

    def loss(self, x):
        assert self.weight.value.dtype == x.dtype == np.float16

        def backward(dloss=1.0):
            self.weight.grad += dloss * x

        return (self.weight.value * x).astype("float32").sum(), backward


def test_masters_collect_steps_that_are_lost_on_float16_weights() -> None:
    """Each step is 2^-13, an eighth of the distance from 1 to the next float16."""
    step, x = 2.0**-13, np.ones(1, "float16")
    alone = OneWeight().to(dtype="float16")
    optimizer = SGD(alone.parameters(), step)
    for _ in range(64):
        alone.zero_grad()
        alone.loss(-x)[1]()
        optimizer.step()
    assert alone.weight.value == 1.0

    model = OneWeight()
    mixed = MixedPrecision(model)
    optimizer = SGD(model.parameters(), step)
    losses = []
    for _ in range(64):
        mixed.zero_grad()
        loss, backward = mixed.loss(-x)
        backward()
        optimizer.step()
        losses.append(float(loss))
    assert model.weight.value.dtype == np.float32
    assert model.weight.value == 1.0 + 64 * step
    assert losses[0] == -1.0
    assert losses[8] == -1.0 - 2.0**-10  # eight steps have made a float16 of difference
    assert mixed.loss(-x)[0] == -1.0 - 8 * 2.0**-10


def test_gradients_that_float16_cannot_hold_come_through_scaled() -> None:
    model = OneWeight()
    mixed = MixedPrecision(model)
    x, share = np.array([2.0**-10], "float16"), 2.0**-16  # share: of one prediction in a mean over 65,536
    mixed.loss(x)[1](share)
    assert model.weight.grad == 0.0
    mixed.loss(x)[1](FIRST_SCALE * share)
    assert model.weight.grad / FIRST_SCALE == 2.0**-26


def test_gradients_add_up_in_float32() -> None:
    model = OneWeight()
    mixed = MixedPrecision(model)
    for _ in range(2):
        mixed.loss(np.array([2048.0], "float16"))[1]()
        mixed.loss(np.array([1.0], "float16"))[1]()
    assert model.weight.grad == 2 * 2049.0


def test_the_scale_is_halved_by_an_overflow_and_doubled_after_many_good_steps() -> None:
    assert next_scale(1024.0, 7, finite=False) == (512.0, 0)
    assert next_scale(1024.0, 7, finite=True) == (1024.0, 8)
    assert next_scale(1024.0, GOOD_STEPS - 2, finite=True) == (1024.0, GOOD_STEPS - 1)
    assert next_scale(1024.0, GOOD_STEPS - 1, finite=True) == (2048.0, 0)
    assert (FIRST_SCALE, GOOD_STEPS) == (32768.0, 2000)


# ---- A model. ----

TEXT = "".join(f"{n} is {'even' if n % 2 == 0 else 'odd'}; " for n in range(1200))
CHARACTERS = sorted(set(TEXT))
IDS = [CHARACTERS.index(character) for character in TEXT]


def trainer(folder, n_ids=1000, dropout=0.1, **changes):
    sizes = {"max_length": 16, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2}
    sizes |= {"dropout": dropout, "attention_dropout": dropout}
    model = LanguageModel(LanguageModelConfig(len(CHARACTERS), **sizes), np.random.default_rng(0))
    corpora = (TextCorpus(ids, 16, 8) for ids in (IDS[:n_ids], IDS[-600:]))
    values = {"steps": 12, "warmup": 2, "validate_every": 6, "save_every": 4, "precision": "float16"} | changes
    return Trainer(model, *corpora, TrainingSettings(**values), folder)


def log_of(folder):
    """The steps in the log, which must be JSON, and JSON knows no Infinity."""
    text = (folder / "log.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    return [record for record in records if "loss" in record]


@pytest.mark.slow
def test_training_in_float16_learns_what_training_in_float32_does(tmp_path) -> None:
    outcomes = {}
    for kind in ("float32", "float16"):
        changes = {"steps": 60, "learning_rate": 1e-2, "warmup": 10, "validate_every": 60, "save_every": 60}
        outcomes[kind] = trainer(tmp_path / kind, 20_000, precision=kind, **changes).run().loss
    first = log_of(tmp_path / "float32")[0]["loss"]
    assert first > 2.9 and outcomes["float32"] < 0.6 * first  # it learns
    assert outcomes["float16"] == pytest.approx(outcomes["float32"], rel=0.02)
    assert outcomes["float16"] != outcomes["float32"]
    assert all(record["loss_scale"] == FIRST_SCALE for record in log_of(tmp_path / "float16"))
    assert not any("loss_scale" in record for record in log_of(tmp_path / "float32"))


def test_a_scaled_loss_gives_better_gradients(tmp_path) -> None:
    """Of a mean over so many predictions that float16 holds few bits of one's share, or none."""
    made = trainer(tmp_path)
    rows = made.training.batches(None)[0]
    made.training.loss(made.model, rows, None)[1](2.0**-12)
    right = {name: parameter.grad.copy() for name, parameter in made.model.parameters()}
    mixed = MixedPrecision(made.model)
    errors, vanished = {}, {}
    for scale in (1.0, FIRST_SCALE):
        mixed.zero_grad()
        made.training.loss(mixed, rows, None)[1](scale * 2.0**-12)
        found = {name: parameter.grad / scale for name, parameter in mixed.parameters()}
        squares = sum(float(((found[name] - right[name]) ** 2).sum()) for name in right)
        errors[scale] = math.sqrt(squares / sum(float((g * g).sum()) for g in right.values()))
        vanished[scale] = sum(int(((found[name] == 0.0) & (right[name] != 0.0)).sum()) for name in right)
    assert errors[1.0] > 0.5 and vanished[1.0] > 300
    assert errors[FIRST_SCALE] < 0.002 and vanished[FIRST_SCALE] < 10


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_whose_gradients_overflow_is_skipped_and_the_scale_halved(workers, tmp_path) -> None:
    made = trainer(tmp_path, workers=workers)
    made.progress.loss_scale, made.progress.good_steps = 2.0**25, 5
    before, optimizer_before = made.model.state(), made.optimizer.state()
    record = made._step()
    assert (record["step"], record["gradient_norm"], record["loss_scale"]) == (1, None, 2.0**25)
    assert math.isfinite(record["loss"])
    assert (made.progress.loss_scale, made.progress.good_steps) == (2.0**24, 0)
    for then, now in ((before, made.model.state()), (optimizer_before, made.optimizer.state())):
        assert all(np.array_equal(then[name], now[name]) for name in then)

    made.run()
    steps = log_of(tmp_path)
    skipped = [record["loss_scale"] for record in steps if record["gradient_norm"] is None]
    assert skipped == [2.0 ** (24 - i) for i in range(len(skipped))] and skipped
    taken = [record for record in steps if record["gradient_norm"] is not None]
    assert [record["loss_scale"] for record in taken] == [skipped[-1] / 2] * len(taken) and taken
    assert made.optimizer.state()["steps"] == len(taken)
    assert made.progress.step == 12
    assert not np.array_equal(before["tokens.table"], made.model.state()["tokens.table"])


def test_the_scale_leaves_the_size_of_the_steps_as_it_is(tmp_path) -> None:
    """Clipping, and the optimiser after it, see the gradients without the scale."""
    states, norms = [], []
    for i, scale in enumerate((2.0**12, 2.0**15)):
        made = trainer(tmp_path / str(i), clip=0.5)
        made.progress.loss_scale = scale
        norms.append(made._step()["gradient_norm"])
        states.append(made.optimizer.state())
    full = trainer(tmp_path / "float32", precision="float32", clip=0.5)
    assert full._step()["gradient_norm"] == pytest.approx(norms[0], rel=2e-3)
    assert norms[0] == pytest.approx(norms[1], rel=1e-3) and norms[0] > 0.5
    means = {name: m for name, m in full.optimizer.state().items() if name.startswith("mean.")}
    size = sum(float((m * m).sum()) for m in means.values())
    for state in states:
        assert sum(float(((state[name] - m) ** 2).sum()) for name, m in means.items()) < 0.01**2 * size


def test_activations_beyond_float16_are_told_of_and_not_taken_for_a_scale_that_is_too_large(tmp_path) -> None:
    made = trainer(tmp_path)
    made.model.tokens.table.value[...] *= 1e7
    with pytest.raises(FloatingPointError, match=r"step 1: the loss is nan; the first layer .* LanguageModel\.tokens"):
        made.run()


@pytest.mark.slow
def test_gradients_that_overflow_whatever_the_scale_end_the_run(tmp_path, monkeypatch) -> None:
    made = trainer(tmp_path, steps=100)
    monkeypatch.setattr(made.workers, "gradient_norm", lambda: math.inf)
    with pytest.raises(FloatingPointError, match=r"step 16: the loss is .*every layer's output is finite, but not"):
        made.run()
    assert [record["loss_scale"] for record in log_of(tmp_path)] == [2.0**i for i in range(15, 0, -1)]


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(precision, "GOOD_STEPS", 3)  # so that the scale goes up and down within the run
    straight, halved = tmp_path / "straight", tmp_path / "halved"
    made = trainer(straight, clip=0.5)
    made.progress.loss_scale = 2.0**24
    made.run()
    made = trainer(halved, clip=0.5)
    made.progress.loss_scale = 2.0**24
    assert made.run(stop_after=7).ended == "interrupted"
    again = trainer(halved, clip=0.5)
    assert again.resume() == 7
    again.run()
    for file in ("model.safetensors", "checkpoints/00000012/model.safetensors", "checkpoints/00000012/state.json",
                 "checkpoints/00000012/optimizer.safetensors"):  # fmt: skip
        assert (straight / file).read_bytes() == (halved / file).read_bytes()
    scales = [record["loss_scale"] for record in log_of(straight)]
    assert scales == [record["loss_scale"] for record in log_of(halved)]
    pairs = list(itertools.pairwise(scales))
    assert any(b == 2 * a for a, b in pairs) and any(b == a / 2 for a, b in pairs)
    state = json.loads((straight / "checkpoints/00000012/state.json").read_text())
    assert {"loss_scale", "good_steps"} <= state.keys()
    assert {array.dtype for array in load_file(straight / "model.safetensors").values()} == {np.dtype("float32")}


def test_workers_share_the_masters_and_each_has_weights_of_its_own(tmp_path) -> None:
    made = trainer(tmp_path, dropout=0.0, workers=2)
    mixed, other = made.workers.models
    for (_, mine), (_, theirs) in zip(mixed.parameters(), other.parameters(), strict=True):
        assert mine.value is theirs.value and mine.grad is not theirs.grad
    rows = made.training.batches(None)[0]
    one = Workers(MixedPrecision(made.model))
    one.loss_and_gradients(made.training, [rows], (0,), FIRST_SCALE)
    right = [p.grad.copy() for _, p in made.model.parameters()]
    two = Workers(MixedPrecision(made.model), 2)
    two.loss_and_gradients(made.training, [rows], (0,), FIRST_SCALE)
    norm = math.sqrt(sum(float((g * g).sum()) for g in right))
    found = [p.grad for _, p in made.model.parameters()]
    assert norm > 0 and all(abs(f - g).max() < 2e-3 * norm for f, g in zip(found, right, strict=True))


def test_a_float16_model_has_the_fast_ops_and_its_textbook_those_that_sum_in_float32(tmp_path) -> None:
    fast_model = fast.accelerate(MixedPrecision(trainer(tmp_path).model))
    for _, module in fast_model._half.modules():
        assert module.ops is fast_ops
    for _, module in fast_model.textbook._half.modules():
        assert module.ops is checking


@pytest.mark.slow
def test_the_command(tmp_path, capsys) -> None:
    small = ["--steps", "2", "--warmup", "1", "--n-layers", "1", "--d-model", "8", "--n-heads", "2", "--d-ff", "8"]
    command = ["train", "lm", "--out", str(tmp_path / "run"), *small, "--max-length", "8", "--batch-rows", "200"]
    assert main([*command, "--precision", "float16"]) == 0
    assert [record["loss_scale"] for record in log_of(tmp_path / "run")] == [FIRST_SCALE] * 2
    assert main([*command, "--precision", "float32", "--resume"]) == 2
    assert "has precision float16, not float32" in capsys.readouterr().err
    assert main([*command, "--precision", "tf32", "--out", str(tmp_path / "other")]) == 1
    assert 'precision tf32 needs a GPU: use device "cupy"' in capsys.readouterr().err
    assert not (tmp_path / "other").exists()  # so that the next try is not refused
    assert main([*command[:2], "--precision", "float8"]) == 2
    assert "precision must be one of float32, tf32, float16, got 'float8'" in capsys.readouterr().err


def test_tf32_is_asked_of_cupy_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUPY_TF32", "0")
    with pytest.raises(ValueError, match='the model is on "numpy"'):
        trainer(tmp_path, precision="tf32")
    assert os.environ["CUPY_TF32"] == "0"
    monkeypatch.setattr(LanguageModel, "device", "cupy")
    trainer(tmp_path, precision="tf32")
    assert os.environ["CUPY_TF32"] == "1"


def test_parameters_that_became_float16_one_by_one_are_refused() -> None:
    """Such a layer would sum in float16, where 4096 ones are 2048."""
    layer = layers.Linear(4096, 1)
    for _, parameter in layer.parameters():
        parameter.value = parameter.value.astype("float16")
    x = np.ones((1, 4096), np.float16)
    with pytest.raises(TypeError, match=r"Linear: .* convert the module: \.to\(dtype='float16'\)"):
        layer(x)
    assert layer.to(dtype="float16")(x)[0].dtype == np.float16
