"""Looking into models: on every family, with small random models in float64, against computations of another kind."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import ordinary

from minitransformer import inspect
from minitransformer.check.trace.recorder import values_inside
from minitransformer.course import Mistake
from minitransformer.fast import accelerate
from minitransformer.ideas import Local
from minitransformer.ideas.published.families import FAMILIES
from minitransformer.layers import Cache, Linear
from minitransformer.models import (
    Classifier,
    ClassifierConfig,
    LanguageModel,
    LanguageModelConfig,
    TextClassifierConfig,
    TextEncoder,
    TextEncoderConfig,
    Transformer,
)


def of_family(name: str) -> Any:
    """The small model of a family."""
    return ordinary(FAMILIES[name].build(*FAMILIES[name].example(), np.random.default_rng(0)))


MODELS: dict[str, Callable[[], Any]] = {
    name: lambda name=name: of_family(name)
    for name, family in FAMILIES.items()
    if "n_heads" in family.recipe.__dataclass_fields__  # else nothing attends
    and not hasattr(family.recipe, "full")  # not every layer attends; see test_gated_delta_net.py
}
MODELS["text classifier"] = lambda: ordinary(
    TextClassifierConfig(13, 16, d_model=12, n_heads=3, d_ff=8, n_layers=2, n_classes=4).build()
)
MODELS["classifier"] = lambda: ordinary(Classifier(ClassifierConfig(13, 4, d_model=12, n_heads=3, d_ff=8, n_layers=2)))
MODELS["recomputed"] = lambda: ordinary(
    LanguageModel(LanguageModelConfig(13, 16, d_model=12, n_heads=3, d_ff=8, n_layers=2, recompute=True))
)


@pytest.fixture(params=MODELS, scope="module")
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def inputs_of(model: Any, seed: int = 1) -> tuple[np.ndarray, ...]:
    """ids without padding; for an encoder-decoder a source and a target of other lengths."""
    rng = np.random.default_rng(seed)
    lengths = (5, 4) if isinstance(model, Transformer) else (6,)
    return tuple(rng.integers(3, 13, (2, length)) for length in lengths)


def kinds_of(model: Any) -> list[str]:
    return ["encoder", "decoder", "cross"] if isinstance(model, Transformer) else ["self"]


def options_of(model: Any, kind: str) -> dict[str, str]:
    return {"kind": kind} if isinstance(model, Transformer) else {}


def named(model: Any, kind: str, layer: int, head: int) -> Any:
    return (kind, layer, head) if isinstance(model, Transformer) else (layer, head)


def apart(model: Any) -> Any:
    """A copy in which no two layers share parameters."""
    other = copy.deepcopy(model)
    for stack in stacks(other):
        stack.layers = [copy.deepcopy(layer) for layer in stack.layers]
    return other


def stacks(model: Any) -> list[Any]:
    if isinstance(model, Transformer):
        return [model.encoder, model.decoder]
    return [model.stack if hasattr(model, "stack") else model.encoder]


def attention_of(model: Any, kind: str, layer: int) -> Any:
    stack = stacks(model)[0 if kind in ("self", "encoder") else 1]
    found = getattr(stack.layers[layer], "layer", stack.layers[layer])
    part = (found.cross_attention if kind == "cross" else found.self_attention).sublayer
    return getattr(part, "sublayer", part)


def has_sinks(model: Any) -> bool:
    """Whether a learned sink takes a part of every query's attention."""
    return any(name.endswith(".sink") for name, _ in model.parameters())


@pytest.mark.few(4)
def test_heads_are_those_of_the_run(model: Any) -> None:
    """The weights are those that the tracer records elsewhere; weights and outputs give what attention adds."""
    inputs = inputs_of(model)
    recorded, outputs = (values_inside(name, model, *inputs) for name in ("weights", "heads"))
    recorded = [array for array in recorded if array.ndim == 4]  # the gates of experts have weights, too
    for kind in kinds_of(model):
        found = inspect.heads(model, *inputs, **options_of(model, kind))
        n = len(found.weights)
        place = {"self": slice(None), "encoder": slice(n), "decoder": slice(n, None, 2), "cross": slice(n + 1, None, 2)}
        np.testing.assert_array_equal(found.weights, recorded[place[kind]])
        sums = found.weights.sum(axis=-1)
        np.testing.assert_allclose(np.ones_like(sums) if has_sinks(model) else sums, 1.0)
        assert not has_sinks(model) or (sums < 1.0).all()
        for layer in found.outputs:
            assert any(np.array_equal(layer, each) for each in outputs)


def test_heads_of_an_encoder_decoder_have_a_kind() -> None:
    model = of_family("t5")
    source, target = inputs_of(model)
    shapes = {kind: inspect.heads(model, source, target, kind=kind).weights.shape for kind in kinds_of(model)}
    assert shapes == {"encoder": (2, 2, 3, 5, 5), "decoder": (2, 2, 3, 4, 4), "cross": (2, 2, 3, 4, 5)}
    with pytest.raises(ValueError, match=r"heads: kind must be one of 'encoder', 'decoder', 'cross'.*got None"):
        inspect.heads(model, source, target)


def test_a_mix_that_never_holds_all_weights_is_named() -> None:
    model = of_family("gpt2")
    for layer in model.stack.layers:
        layer.self_attention.sublayer.mix = Local(2)
    with pytest.raises(ValueError, match="heads: Local never holds the weights of all keys"):
        inspect.heads(model, *inputs_of(model))


@pytest.mark.few(8, slow=10)
def test_an_ablated_head_outputs_nothing(model: Any) -> None:
    """Without a head, the logits are those of a model whose output projection has zeros in the head's rows."""
    inputs = inputs_of(model)
    own = model(*inputs)[0]
    for kind in kinds_of(model):
        for layer in (0, 1):
            other = apart(model)
            attention = attention_of(other, kind, layer)
            head = min(2, attention.n_heads - 1)
            width = attention.output.weight.value.shape[0] // attention.n_heads
            attention.output.weight.value[head * width : (head + 1) * width] = 0.0
            expected = other(*inputs)[0]
            with inspect.ablate(model, [named(model, kind, layer, head)]):
                logits = model(*inputs)[0]
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-12)
            assert abs(logits - own).max() > 1e-4
    np.testing.assert_array_equal(model(*inputs)[0], own)


@pytest.mark.few(8)
def test_a_patch_with_its_own_output_changes_nothing(model: Any) -> None:
    inputs = inputs_of(model)
    own = {
        named(model, kind, layer, head): outputs[:, head]
        for kind in kinds_of(model)
        for layer, outputs in enumerate(inspect.heads(model, *inputs, **options_of(model, kind)).outputs)
        for head in range(outputs.shape[1])
    }
    with inspect.patch(model, own):
        logits = model(*inputs)[0]
    np.testing.assert_array_equal(logits, model(*inputs)[0])


@pytest.mark.few(12)
def test_all_heads_of_another_text_give_what_it_gives(model: Any) -> None:
    """Only heads carry anything from one token to another.

    So, where both texts have the same token, all heads patched from another text give what that text gives. Of an
    encoder-decoder the source only comes in through the heads of the cross-attention.
    """
    inputs = inputs_of(model)
    other = [ids.copy() for ids in inputs]
    other[0][:, 1] = (other[0][:, 1] - 2) % 10 + 3
    assert (other[0][:, 1] != inputs[0][:, 1]).all()
    kinds = ["cross"] if isinstance(model, Transformer) else kinds_of(model)
    theirs = {
        named(model, kind, layer, head): outputs[:, head]
        for kind in kinds
        for layer, outputs in enumerate(inspect.heads(model, *other, **options_of(model, kind)).outputs)
        for head in range(outputs.shape[1])
    }
    with inspect.patch(model, theirs):
        patched = hidden_of(model, *inputs)
    expected, own = hidden_of(model, *other), hidden_of(model, *inputs)
    same = np.ones(own.shape[1], bool)
    if not isinstance(model, Transformer):
        same[1] = False
        assert abs(patched - expected)[:, 1].max() > 1e-3
    np.testing.assert_allclose(patched[:, same], expected[:, same], rtol=0, atol=1e-12)
    assert abs(own - expected)[:, same].max() > 1e-3


def hidden_of(model: Any, *inputs: np.ndarray) -> np.ndarray:
    """The logits; of a classifier of texts, which has none for a token, the hidden states."""
    if isinstance(model, Classifier):
        return model.hidden(*inputs)[0]
    return model(*inputs)[0]


def test_a_patched_run_inside_a_patched_run() -> None:
    model = of_family("gpt2")
    inputs = inputs_of(model)
    with inspect.ablate(model, [(0, 0), (1, 2)]):
        both = model(*inputs)[0]
        seen = inspect.heads(model, *inputs)
    with inspect.ablate(model, [(0, 0)]), inspect.ablate(model, [(1, 2)]):
        np.testing.assert_array_equal(model(*inputs)[0], both)
        *_, last = inspect.logit_lens(model, *inputs)
        np.testing.assert_array_equal(last, both)
    assert not seen.outputs[0][:, 0].any() and not seen.outputs[1][:, 2].any() and seen.outputs[1][:, 0].any()


def test_a_shared_layer_loses_its_head_in_one_place_only() -> None:
    model = of_family("albert")
    with inspect.ablate(model, [(1, 0)]):
        seen = inspect.heads(model, *inputs_of(model)).outputs
    assert [bool(layer[:, 0].any()) for layer in seen] == [True, False, True]


def check_gradients_of_an_ablated_model(model: Any) -> None:
    inputs = inputs_of(model)
    wanted = inputs[0] if not isinstance(model, Transformer) else inputs[1]
    other = copy.deepcopy(model)
    attention_of(other, "cross" if isinstance(model, Transformer) else "self", 0).output.weight.value[:4] = 0.0
    for each in (model, other):
        each.zero_grad()
    with inspect.ablate(model, [named(model, "cross", 0, 0)]):
        model.loss(*inputs, wanted)[1]()
    other.loss(*inputs, wanted)[1]()
    theirs = dict(other.parameters())
    for name, parameter in model.parameters():
        if "0.self_attention.sublayer.output.weight" not in name and "0.cross_attention.sublayer.output" not in name:
            np.testing.assert_allclose(parameter.grad, theirs[name].grad, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", ["gpt2", "bart", "recomputed"])
def test_no_gradient_flows_into_a_head_that_is_replaced(name: str) -> None:
    check_gradients_of_an_ablated_model(MODELS[name]())


def test_writing_with_a_cache_is_patched_too() -> None:
    model = of_family("llama")
    ids, cache = inputs_of(model)[0], Cache(2)
    with inspect.ablate(model, [(0, 1), (1, 3)]):
        expected = model(ids)[0]
        pieces = [model(part, cache=cache)[0] for part in np.split(ids, [3, 5], axis=1)]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), expected, rtol=0, atol=1e-12)
    assert abs(model(ids)[0] - expected).max() > 1e-3


@pytest.mark.parametrize("head", [(2, 0), (0, 3), (-1, 0), (0,), ("self", 0), ("cross", 0, 0), 3])
def test_a_head_that_is_not_there_is_refused(head: Any) -> None:
    with (
        pytest.raises(ValueError, match=r"there is no head .*give \(layer, head\), indices from 0; .*self 2 × 3"),
        inspect.ablate(of_family("gpt2"), [head]),
    ):
        pass


def test_what_would_silently_do_nothing_is_refused() -> None:
    model = of_family("gpt2")
    with pytest.raises(ValueError, match=r"use model\.textbook instead"), inspect.ablate(accelerate(model), [(0, 0)]):
        pass
    with pytest.raises(ValueError, match="did not run in it"), inspect.ablate(model, [(0, 0)]):
        copy.deepcopy(model)(*inputs_of(model))
    with (
        pytest.raises(ValueError, match=r"must broadcast to \(2, 6, 4\), got \(5,\)"),
        inspect.patch(model, {(0, 0): np.zeros(5)}),
    ):
        model(*inputs_of(model))
    with pytest.raises(TypeError, match="a Linear has no stack"):
        inspect.heads(Linear(2, 2), np.zeros((1, 2)))
    with pytest.raises(TypeError, match="a TextEncoder has no logits"):
        next(inspect.logit_lens(TextEncoder(TextEncoderConfig(13, d_model=12, n_heads=3, d_ff=8)), *inputs_of(model)))


@pytest.mark.few(4, slow=12)
def test_gradient_times_activation_is_the_slope(model: Any) -> None:
    """Finite differences of the logits, when a head's output is multiplied by a number near 1."""
    model.zero_grad()
    inputs, h = inputs_of(model), 1e-5
    dlogits = np.random.default_rng(3).normal(size=model(*inputs)[0].shape)
    before = {name: parameter.grad for name, parameter in model.parameters()}
    for kind in kinds_of(model):
        options = options_of(model, kind)
        found = inspect.attribution(model, dlogits, *inputs, **options)
        outputs = inspect.heads(model, *inputs, **options).outputs
        assert found.shape == outputs.shape[:-1]

        def moved(layer: int, head: int, by: float, kind: str = kind, outputs: np.ndarray = outputs) -> float:
            with inspect.patch(model, {named(model, kind, layer, head): outputs[layer][:, head] * by}):
                return float((model(*inputs)[0] * dlogits).sum())

        for layer, head in [(0, 0), (0, min(2, outputs.shape[2] - 1)), (1, 1)]:
            slope = (moved(layer, head, 1 + h) - moved(layer, head, 1 - h)) / (2 * h)
            np.testing.assert_allclose(found[layer, :, head].sum(), slope, rtol=1e-6, atol=1e-6)
    for name, parameter in model.parameters():
        assert parameter.grad is before[name] and not parameter.grad.any()


@pytest.mark.few(12)
def test_logit_lens_is_a_model_that_ends_earlier(model: Any) -> None:
    """The last are the model's logits; the one after layer n those of a model that has only n layers."""
    inputs = inputs_of(model)
    found = list(inspect.logit_lens(model, *inputs))
    stack = stacks(model)[-1]
    assert len(found) == len(stack.layers) + 1
    np.testing.assert_array_equal(found[-1], model(*inputs)[0])
    layers = stack.layers
    for n, logits in enumerate(found):
        stack.layers = layers[:n]
        try:
            np.testing.assert_allclose(logits, model(*inputs)[0], rtol=0, atol=1e-12)
        finally:
            stack.layers = layers
    assert min(abs(a - b).max() for a, b in itertools.pairwise(found)) > 1e-3


def check_circuits(model: Any) -> None:
    """QK gives the scores, and OV what the heads add, recorded from a run without biases."""
    for name, parameter in model.parameters():
        if "attention.sublayer" in name and name.endswith("bias"):
            parameter.value[...] = 0.0
    attention = attention_of(model, "self", 1)
    x = np.random.default_rng(5).normal(size=(1, 6, 12))
    scores = values_inside("scores", attention, x)[0][0]
    y = attention(x)[0][0]
    written = 0.0
    weights = values_inside("weights", attention, x)[0][0]
    for head in range(attention.n_heads):
        _, ov = inspect.circuits(model, (1, head))
        written = written + weights[head] @ x[0] @ ov
        for i, j in [(5, 2), (3, 3), (4, 0)]:
            qk, _ = inspect.circuits(model, (1, head), distance=i - j)
            np.testing.assert_allclose(x[0, i] @ qk @ x[0, j], scores[head, i, j], rtol=0, atol=1e-12)
    np.testing.assert_allclose(written, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "albert"])
def test_circuits_give_the_scores_and_what_is_written(name: str) -> None:
    check_circuits(of_family(name))


def test_circuits_of_a_model_on_a_device_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries were turned on the device, by positions of the host."""
    found = inspect.circuits(of_family("llama"), (1, 1), distance=2)
    monkeypatch.setenv("MINITRANSFORMER_DEVICE", "strict")
    np.testing.assert_array_equal(inspect.circuits(of_family("llama").to("strict"), (1, 1), distance=2), found)


def check_scores() -> None:
    """By hand, on weights that say where they look."""
    t = 6
    weights = np.zeros((3, t, t))
    for i in range(t):
        weights[0, i, max(i - 1, 0)] = 1.0  # the token before
        weights[1, i, 0] = 1.0  # the first token
        weights[2, i, max(i - 2, 0)] = 0.75  # with a period of 3: the token after the last equal one
        weights[2, i, i] += 0.25
    weights[2, 2] = 0.0  # stands in the first copy, and must not count
    np.testing.assert_allclose(inspect.previous_token_score(weights), [1.0, 0.2, 0.75 / 5])
    np.testing.assert_allclose(inspect.first_token_score(weights), [0.2, 1.0, 0.75 / 5])
    np.testing.assert_allclose(inspect.induction_score(weights, 3), [0.0, 0.0, 0.75])
    with_start = np.zeros((t + 1, t + 1))
    with_start[1:, 1:] = weights[2]
    np.testing.assert_allclose(inspect.induction_score(with_start, 3), 0.75)


def test_scores_of_attention_made_by_hand() -> None:
    check_scores()
    with pytest.raises(ValueError, match="T of at least 8, got"):
        inspect.induction_score(np.eye(6), 4)


def test_repeated_texts() -> None:
    ids = inspect.repeated(50, 7, batch=3, rng=np.random.default_rng(0))
    assert ids.shape == (3, 14) and (ids[:, :7] == ids[:, 7:]).all()
    assert all(len(set(row.tolist())) == 7 for row in ids) and len({tuple(row) for row in ids.tolist()}) == 3
    assert set(inspect.repeated([5, 6, 9], 3).ravel().tolist()) == {5, 6, 9}
    with pytest.raises(ValueError, match="7 different tokens"):
        inspect.repeated(5, 7)


CHECKS: dict[str, Callable[..., None]] = {
    "ablated": test_an_ablated_head_outputs_nothing,
    "circuits": check_circuits,
    "heads": test_heads_are_those_of_the_run,
    "learns": check_gradients_of_an_ablated_model,
    "lens": test_logit_lens_is_a_model_that_ends_earlier,
    "other text": test_all_heads_of_another_text_give_what_it_gives,
    "own output": test_a_patch_with_its_own_output_changes_nothing,
    "scores": lambda _: check_scores(),
    "slope": test_gradient_times_activation_is_the_slope,
}
WRONG = [  # where, right, wrong, the check that must reject it, and the family on which it does
    ("scores:induction_score", "1 - period", "-period", "scores", "gpt2"),
    ("scores:induction_score", "[..., -period:]", "", "scores", "gpt2"),
    ("scores:previous_token_score", "-1, -2, -1", "1, -2, -1", "scores", "gpt2"),
    ("scores:first_token_score", "1:, 0]", ":, 0]", "scores", "gpt2"),
    ("interventions:patch", "changed[:, number] = 0.0", "changed[..., number] = 0.0", "learns", "gpt2"),
    ("interventions:patch", '0.0 if name == "dheads" else ', "changed[:, number] if name == 'dheads' else ",
     "learns", "gpt2"),
    ("interventions:patch", "changed[:, number] = ", "changed[:, -1 - number] = ", "ablated", "gpt2"),
    ("interventions:patch", "return changed", "return None", "ablated", "bert"),
    ("interventions:place_of", "kind, layer, number = given", "kind, number, layer = given", "ablated", "bart"),
    ("interventions:_fitting", "fits.astype(like.dtype)", "(fits.astype(like.dtype) + 0.001)", "own output", "qwen2"),
    ("watch:_layer_of", 'caller.f_locals["i"]', "0", "ablated", "albert"),
    ("watch:Watch._exchanged", "if len(places) == 1 else (places[0][0], self._layer)", "if True else None",
     "ablated", "albert"),
    ("watch:attentions", '"decoder": own, "cross": cross', '"decoder": cross, "cross": own', "other text", "t5"),
    ("heads:attribution", "outputs[place] * array", "array", "slope", "llama"),
    ("heads:attribution", ".sum(axis=-1)", ".mean(axis=-1)", "slope", "t5"),
    ("heads:attribution", "parameter.grad = Discarded()", "pass", "slope", "gpt2"),
    ("heads:attribution", "sorted(found)", "sorted(found, reverse=True)", "slope", "bert"),
    ("heads:heads", "place[0] == kind", "place[0] != 'encoder'", "heads", "bart"),
    ("lens:logit_lens", "yield last", "yield x", "lens", "gpt2"),
    ("lens:logit_lens", "return x, None", "return x * 1.1, None", "lens", "bert"),
    ("circuits:circuits", "attention.head(number)", "attention.head(0)", "circuits", "llama"),
    ("circuits:circuits", "(w_q @ w_k.T) * scale", "w_q @ w_k.T", "circuits", "gpt2"),
    ("circuits:circuits", "np.full(len(w_q), distance)", "np.full(len(w_q), -distance)", "circuits", "qwen2"),
    ("circuits:circuits", "w_v @ w_o", "w_v @ w_o * scale", "circuits", "llama"),
]  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize(("place", "old", "new", "check", "family"), WRONG, ids=[f"{w[0]} {w[2]}" for w in WRONG])
def test_what_is_wrong_is_rejected(place: str, old: str, new: str, check: str, family: str) -> None:
    model, wrong = of_family(family), Mistake("wrong", f"school.inspect.{place}", ((old, new),), "")
    with wrong.applied(), pytest.raises((AssertionError, ValueError, IndexError)):
        CHECKS[check](model)


def test_a_model_in_which_nothing_attends_has_no_heads() -> None:
    family, ids = FAMILIES["mamba2"], np.array([[3, 1, 2]])
    model = family.build(*family.example(), np.random.default_rng(0))
    dlogits = np.zeros_like(model(ids)[0])
    for asked in (lambda: inspect.heads(model, ids), lambda: inspect.attribution(model, dlogits, ids)):
        with pytest.raises(ValueError, match="no layer of this model attends, so there are no weights to show"):
            asked()
    with (
        pytest.raises(ValueError, match=r"there is no head \(0, 0\): .* layers × heads: self 0 × 0"),
        inspect.ablate(model, [(0, 0)]),
    ):
        pass
