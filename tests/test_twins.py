"""Fast twins: they share the parameters of their originals, lead back to them, and change no other code."""

import copy
import inspect
from typing import Any

import numpy as np
import pytest
from common import small
from tiers import in_one

from minitransformer import fast, ops
from minitransformer.core.arrays.backend import Array, Pullback
from minitransformer.core.ops import trusting
from minitransformer.layers import Cache, Encoder, EncoderLayer, FeedForward, LayerNorm, Linear, Module, Residual
from minitransformer.models import LanguageModel, LanguageModelConfig, TransformerConfig
from minitransformer.run.machines.settings import OPTIMIZERS
from minitransformer.training import AdamW, Workers
from minitransformer.verify import CASES, Case


def model() -> LanguageModel:
    return small(LanguageModelConfig, 11, max_length=8, dropout=0.0, dtype="float32")  # type: ignore[no-any-return]


IDS = np.random.default_rng(1).integers(11, size=(3, 5))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("counted", ["some", "all", "none"])
@pytest.mark.parametrize("kind", ["writer", "translator"])
def test_a_loss_makes_logits_only_where_a_target_counts(
    kind: str, counted: str, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, seen = np.random.default_rng(3), []
    original: Any = model() if kind == "writer" else TransformerConfig(11, 11, 8, 2, 12, 1, 1, dropout=0.0).build(rng)
    wanted = IDS.copy() if counted == "all" else np.where(rng.random(IDS.shape) < 0.5, -1, IDS)
    wanted = wanted if counted != "none" else np.full_like(IDS, -1)
    given = (IDS, wanted) if kind == "writer" else (IDS[:, ::-1], IDS, wanted)
    found = []
    for each in (original.to(dtype="float64"), fast.accelerate(original)):
        original.zero_grad()
        loss, backward = each.loss(*given, ignore_index=-1, label_smoothing=smoothing)
        backward(0.7)
        found.append([loss, *(p.grad.copy() for _, p in original.parameters())])
    for exact, x in zip(*found, strict=True):
        np.testing.assert_allclose(x, exact, rtol=1e-10, atol=1e-12)
    fast_entropy = fast.ops.cross_entropy
    monkeypatch.setattr(fast.ops, "cross_entropy", lambda y, *how: seen.append(y.shape) or fast_entropy(y, *how))
    fast.accelerate(original).loss(*given, ignore_index=-1)
    assert seen == [((wanted != -1).sum(), 11) if counted == "some" else (*IDS.shape, 11)]


def test_a_loss_refuses_what_the_textbook_refuses() -> None:
    for wanted in (IDS[:, 1:], IDS + 0.5, np.where(IDS == 3, -100, 11), np.where(IDS == 3, -100, IDS)[0]):
        messages = []
        for each in (model(), fast.accelerate(model())):
            with pytest.raises((TypeError, ValueError)) as refused:
                each.loss(IDS, wanted)
            messages.append(str(refused.value))
        assert messages[0] == messages[1]


ATTENTION = [case for case in CASES.values() if case.covers == "MultiHeadAttention"]


@in_one("case", ATTENTION, ids=lambda case: case.name)
def test_a_twin_does_what_its_attention_does(case: Case) -> None:
    """Forward, backward and with a cache; one layer is used twice, as in ALBERT."""
    attention: Any = case.build(np.random.default_rng(0)).module
    attention.to(dtype="float32")
    d = attention.query.weight.value.shape[0]
    x, dy = (np.random.default_rng(i).normal(size=(3, 6, d)).astype(np.float32) for i in range(2))
    sublayers = (attention, FeedForward(d, 12, rng=np.random.default_rng(0)))
    original = Encoder.of([EncoderLayer.of(*(Residual(each, LayerNorm(d)) for each in sublayers))] * 2)
    found = []
    for each in (original, fast.accelerate(original)):
        y, backward = each(x, causal=True)
        original.zero_grad()
        dx = backward(dy)
        found.append([y, dx, *(p.grad.copy() for _, p in original.parameters())])
        cache = Cache(2)
        ends = [each(x[:, i:j], causal=True, cache=cache)[0] for i, j in ((0, 4), (4, 5), (5, 6))]
        np.testing.assert_allclose(np.concatenate(ends, axis=1), y, rtol=1e-3, atol=1e-4)
    for fast_result, result in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(fast_result, result, rtol=1e-3, atol=1e-4)


def test_only_the_twin_computes_with_fast_ops_and_leads_back() -> None:
    original = model()
    twin = fast.accelerate(original)
    modules = [twin, *(child for _, child in twin.children())]
    assert all(module.ops is fast.ops for module in modules)
    assert original.ops is twin.textbook.ops is trusting
    assert list(twin.parameters()) == list(original.parameters())  # names and identities
    back = twin.textbook
    assert type(back) is type(original)
    assert type(back.stack.layers[0]) is type(original.stack.layers[0])
    assert list(back.parameters()) == list(original.parameters())


def test_a_class_has_one_twin_which_bears_its_name() -> None:
    for original in (Linear(2, 3), FeedForward(2, 3), EncoderLayer(4, 2, 6), AdamW(Linear(2, 2).parameters(), 0.1)):
        twin = fast.accelerate(original)
        assert type(twin) is not type(original)
        assert type(twin).__name__ == type(original).__name__
        assert isinstance(twin, type(original))
        assert type(fast.accelerate(original)) is type(fast.accelerate(twin)) is type(twin)


def test_a_layer_of_another_class_keeps_its_own_call() -> None:
    class Loud(Linear):
        def __call__(self, x: Array) -> tuple[Array, Pullback]:
            y, backward = super().__call__(x)
            return y + 100.0, backward

    for place in ("query", "value", "output"):
        layer = EncoderLayer(4, 2, 6, norm_order="pre", rng=np.random.default_rng(0))
        setattr(layer.self_attention.sublayer, place, Loud(4, 4, rng=np.random.default_rng(1)))
        x = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)
        np.testing.assert_allclose(fast.accelerate(layer)(x)[0], layer(x)[0], rtol=1e-4, atol=1e-4)
    network = FeedForward(4, 6, "gelu", rng=np.random.default_rng(0))
    network.output = Loud(6, 4, rng=np.random.default_rng(1))
    assert fast.accelerate(network)(x)[0].min() > 90.0


@in_one("kind", [kind for kind, _ in OPTIMIZERS.values()])
def test_an_optimiser_and_its_twin_take_the_same_steps(kind: Any) -> None:
    values = []
    for accelerate in (lambda optimizer: optimizer, fast.accelerate):
        layer = Linear(3, 4, rng=np.random.default_rng(0))
        optimizer = accelerate(kind(layer.parameters(), 0.1))
        for step in range(3):
            for i, (_, p) in enumerate(layer.parameters()):
                p.grad[...] = np.random.default_rng([step, i]).normal(size=p.grad.shape)
            optimizer.step()
        assert optimizer.steps == 3
        values.append([p.value.copy() for _, p in layer.parameters()])
    for one, other in zip(*values, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_what_is_neither_a_module_nor_an_optimiser_is_refused() -> None:
    for other in (3, "model", np.zeros(2), Module):
        with pytest.raises(TypeError, match="accelerate: expected a module or an optimiser, got "):
            fast.accelerate(other)  # type: ignore[type-var]


def test_what_one_reads_is_what_trains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A print in core/ops/softmax.py prints when a model trains; its fast twin has softmax in other code."""
    as_written: Any = inspect.unwrap(ops.softmax)
    source = inspect.getsource(as_written).replace("    largest = ", "    print('softmax runs')\n    largest = ")
    namespace: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + source, vars(inspect.getmodule(as_written)) | namespace, namespace)
    monkeypatch.setattr(as_written, "__code__", inspect.unwrap(namespace["softmax"]).__code__)

    def train(original: LanguageModel) -> str:
        optimizer = AdamW(original.parameters(), 0.01)
        for _ in range(2):
            original.zero_grad()
            _, backward = original.loss(IDS, IDS)
            backward()
            optimizer.step()
        return capsys.readouterr().out

    assert train(model()) == 2 * 2 * "softmax runs\n"  # two layers, two steps
    assert train(fast.accelerate(model())) == ""


def test_copies_of_a_twin_are_fast_and_have_parameters_of_their_own() -> None:
    for original in (model(), AdamW(Linear(2, 2).parameters(), 0.1)):
        twin = fast.accelerate(original)
        copied = copy.deepcopy(twin)
        assert type(copied) is type(twin) is not type(original)
        parameters = (lambda x: dict(x.parameters())) if isinstance(twin, Module) else (lambda x: x.parameters)
        assert parameters(copied).keys() == parameters(twin).keys()
        assert not {id(p) for p in parameters(copied).values()} & {id(p) for p in parameters(twin).values()}


def test_the_replicas_of_workers_are_fast() -> None:
    workers = Workers(fast.accelerate(model()), 2)
    modules = [child for replica in workers.models for child in (replica, *(m for _, m in replica.children()))]
    assert modules
    assert all(module.ops is fast.ops for module in modules)
