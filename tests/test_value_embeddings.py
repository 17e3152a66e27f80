"""Value embeddings: against the formula written out, with caches, padding and saved folders, and their mistakes."""

import numpy as np
import pytest

from minitransformer import fast, generation, inspect, layers, models
from minitransformer.core.models.language_model import positions_of
from minitransformer.ideas import grouped, rotary_turn
from minitransformer.ideas.after.value_embeddings import ValueAttention, ValueEmbedding, ValueLanguageModel
from minitransformer.ideas.after.value_embeddings.model import ValueLanguageModelConfig

RNG = np.random.default_rng(3)
IDS = np.array([[1, 5, 5, 2, 0], [1, 4, 0, 1, 6]])
SIZES = {"max_length": 12, "d_model": 8, "n_heads": 2, "d_ff": 6, "dropout": 0.0, "attention_dropout": 0.0}


def ordinary(module, dtype="float64"):
    module.to(dtype=dtype)
    rng = np.random.default_rng(1)  # its own, so that no test depends on those before it
    for _, parameter in module.parameters():
        parameter.value[...] = rng.normal(0.0, 0.5, parameter.value.shape)
    return module


def model_of(n_layers=3, **options):
    config = ValueLanguageModelConfig(7, n_layers=n_layers, n_channels=3, **SIZES, **options)
    return ordinary(config.build(np.random.default_rng(0)))


def test_the_values_are_those_of_the_formula():
    layer = ordinary(ValueEmbedding(layers.Linear(5, 6), 2, 7, 3))
    x = RNG.normal(size=(2, 5, 5))
    gates = 2.0 / (1.0 + np.exp(-x[..., :3] @ layer.gate.weight.value))
    expected = layer.projection(x)[0]
    for b, t, h in np.ndindex(2, 5, 2):
        own = slice(3 * h, 3 * h + 3)
        expected[b, t, own] += gates[b, t, h] * layer.table.table.value[IDS[b, t], own]
    np.testing.assert_allclose(layer(x, ids=IDS)[0], expected, rtol=1e-12)


def test_gates_start_at_one():
    layer = ValueEmbedding(layers.Linear(5, 6), 2, 7, 3, np.random.default_rng(0)).to(dtype="float64")
    x = RNG.normal(size=(2, 5, 5))
    np.testing.assert_allclose(layer(x, IDS)[0], layer.projection(x)[0] + layer.table(IDS)[0], rtol=1e-13)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="ValueEmbedding: a map from 5 to 6 numbers must have 4 equal heads"):
        ValueEmbedding(layers.Linear(5, 6), 4, 7, 3)
    with pytest.raises(ValueError, match="and 6 channels for the gates"):
        ValueEmbedding(layers.Linear(5, 6), 2, 7, 6)
    layer = ValueEmbedding(layers.Linear(5, 6), 2, 7, 3)
    with pytest.raises(ValueError, match=r"ValueEmbedding: ids must have shape \(2, 5\)"):
        layer(np.ones((2, 5, 5), np.float32), IDS[0])
    with pytest.raises(TypeError, match="ValueAttention: ids are missing; the model that its config builds hands them"):
        models.LanguageModel(model_of().config)(IDS)


def test_heads_add_up():
    attention = grouped(8, 4, 2, 4, False, turn=rotary_turn(50.0))
    attention = ordinary(ValueAttention.like(attention, ValueEmbedding(attention.value, 2, 7, 3)))
    x = RNG.normal(size=(2, 5, 8))
    parts = [attention.head(i)(x, causal=True, ids=IDS)[0] for i in range(4)]
    np.testing.assert_allclose(sum(parts), attention(x, causal=True, ids=IDS)[0], rtol=1e-12)


def test_every_second_layer_has_a_table_and_the_last_one():
    for n_layers, expected in ((3, [True, False, True]), (4, [False, True, False, True])):
        stack = model_of(n_layers).stack
        found = [isinstance(layer.self_attention.sublayer.value, ValueEmbedding) for layer in stack.plain_layers]
        assert found == expected


def test_the_table_changes_the_logits():
    model = model_of()
    before = model(IDS)[0]
    model.stack.layers[2].self_attention.sublayer.value.table.table.value[5] += (
        1.0  # token 5 is in the first text alone
    )
    changed = abs(model(IDS)[0] - before).max(axis=-1) > 1e-6
    assert changed.tolist() == [[False, True, True, True, True], [False] * 5]


@pytest.mark.parametrize("kind", [lambda model: model, fast.accelerate], ids=["as written", "fast"])
def test_generation_with_a_cache_is_generation_without(kind):
    model = model_of()
    prompts = [[1, 5, 5], [4], [2, 0, 6, 6]]
    found = generation.generate(kind(model), prompts, 6)
    assert len({token for text in found for token in text}) > 1
    for prompt, written in zip(prompts, found, strict=True):
        text = list(prompt)
        for token in written:  # one pass over the whole text for each token
            text.append(int(model(np.array([text]))[0][0, -1].argmax()))
            assert text[-1] == token


@pytest.mark.parametrize("kind", [lambda model: model, fast.accelerate], ids=["as written", "fast"])
def test_a_batch_padded_on_the_left_is_continued_as_each_text_alone(kind):
    model = model_of()
    prompts = [[1, 5, 5, 2], [4, 6]]
    real = np.array([[True] * 4, [False, False, True, True]])
    ids, cache, running = np.array([[1, 5, 5, 2], [3, 3, 4, 6]]), model.new_cache(), kind(model)
    texts = [list(prompt) for prompt in prompts]
    new, at = ids, positions_of(real)
    for _ in range(5):
        chosen = running(new, cache=cache, last=True, mask=real, positions=at)[0][:, -1].argmax(axis=-1)
        for text, token in zip(texts, chosen, strict=True):
            text.append(int(token))
        new, at = chosen[:, None], positions_of(real)[:, -1:] + 1
        real = np.hstack([real, [[True], [True]]])
    for text, prompt in zip(texts, prompts, strict=True):
        assert text[len(prompt) :] == generation.generate(model, [prompt], 5)[0]


def test_recomputing_and_saving_change_nothing(tmp_path):
    model, again = model_of(), model_of(recompute=True)
    again.load_state(model.state())
    gradients = []
    for each in (model, again):
        _, backward = each.loss(IDS[:, :-1], IDS[:, 1:])
        backward()
        gradients.append({name: parameter.grad for name, parameter in each.parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], gradient, rtol=1e-12, atol=1e-14, err_msg=name)
    models.save(model.to(dtype="float32"), tmp_path)
    opened = models.load(tmp_path)
    assert type(opened) is ValueLanguageModel
    np.testing.assert_array_equal(opened(IDS)[0], model(IDS)[0])


def test_its_heads_can_be_watched_and_switched_off():
    model = model_of()
    found = inspect.heads(model, IDS)
    assert found.weights.shape[:3] == (3, 2, 2)
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1.0, rtol=1e-12)
    with inspect.ablate(model, [(2, 1)]):
        changed = model(IDS)[0]
    assert abs(changed - model(IDS)[0]).max() > 1e-3
