"""The programs in JAX of benchmarks/: the same losses over some steps, and dropout at the same places as ours."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks/ belongs to the checkout and is not installed

from benchmarks import in_jax, samples
from benchmarks.cases import classifier, language_model, translator

LAYERS = {"n_layers": 2, "n_heads": 2, "width": 16, "length": 8, "batch": 4, "dropout": 0.1}


@pytest.mark.parametrize(
    ("case", "more", "sites"),
    [
        (language_model, {}, 1 + 2 * 3),  # the embedding; of each layer the weights of attention and both sub-layers
        (classifier, {"vocabulary": 11}, 1 + 2 * 2),
        (translator, {"vocabulary": 11, "d_ff": 24}, 2 + 2 * (2 + 3)),
    ],
    ids=["gpt", "classifier", "translator"],
)
def test_the_twin_in_jax_takes_our_steps_and_then_drops_where_ours_does(case, more, sites, monkeypatch):
    sizes = case.Sizes(**LAYERS, **more)
    ours = case.Ours(sizes)
    theirs = in_jax.Jitted(sizes, {name: array.copy() for name, array in ours.weights().items()})
    assert samples.gap(ours.prove()["losses"], theirs.prove()["losses"]) < 1e-5
    rates, draw = [], in_jax.jax.random.bernoulli
    monkeypatch.setattr("jax.random.bernoulli", lambda key, kept, shape: rates.append(kept) or draw(key, kept, shape))
    dry, *wet = (
        in_jax.LOSSES[case.Sizes](in_jax.Network(theirs.parameters, sizes, key), **theirs.batches[0])
        for key in (None, *in_jax.jax.random.split(theirs.key))
    )
    assert len({float(loss) for loss in (dry, *wet)}) == 3, "each key drops other numbers"
    assert rates == [0.9] * 2 * sites
