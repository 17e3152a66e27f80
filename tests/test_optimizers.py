"""Optimisers against loops over Python's floats, schedules and clipping against their formulas."""

import copy
import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from tiers import in_one

import minitransformer.core.arrays.strict  # noqa: F401  (makes the device "strict" known)
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.fast import accelerate
from minitransformer.layers import Module, Parameter
from minitransformer.run.machines import pieces
from minitransformer.run.machines.flat import as_one, in_order, side_by_side
from minitransformer.run.machines.pieces import InPieces
from minitransformer.training import (
    SGD,
    Adam,
    AdamW,
    Muon,
    Workers,
    clip_gradient_norm,
    constant,
    cosine,
    inverse_sqrt,
    newton_schulz,
    warmup_schedule,
)

SHAPES = {"weight": (3, 2), "bias": (2,), "table": (1, 2, 2)}
OPTIONS = {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3}


def parameters(dtype="float64", device="numpy", seed=0):
    rng = np.random.default_rng(seed)
    made = {name: Parameter(rng.normal(size=shape).astype(dtype)) for name, shape in SHAPES.items()}
    for p in made.values():
        p.value, p.grad = to_device(p.value, device), to_device(p.grad, device)
    return made


def set_gradients(made, rng, device="numpy"):
    """New gradients of very different sizes; the first entry of each stays zero."""
    for p in made.values():
        gradient = rng.normal(size=p.value.shape) * 10.0 ** rng.integers(-3, 3, p.value.shape)
        gradient.flat[0] = 0.0
        p.grad = to_device(gradient.astype(to_numpy(p.value).dtype), device)


def adamw_by_loops(values, gradients, rate, beta1, beta2, eps, decay):
    """Algorithm 2 of Loshchilov and Hutter 2019 for a list of numbers; gradients: one list for each step."""
    theta, m, v = list(values), [0.0] * len(values), [0.0] * len(values)
    for t, step_gradients in enumerate(gradients, start=1):
        for i, g in enumerate(step_gradients):
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            m_hat = m[i] / (1 - beta1**t)
            v_hat = v[i] / (1 - beta2**t)
            theta[i] = theta[i] - rate[t - 1] * (m_hat / (math.sqrt(v_hat) + eps) + decay * theta[i])
    return theta


def ten_steps(optimizer, made, rates=None, device="numpy", seed=1):
    """Take ten steps; return the gradients of each, by name."""
    rng = np.random.default_rng(seed)
    seen = []
    for t in range(10):
        set_gradients(made, rng, device)
        seen.append({name: to_numpy(p.grad).ravel().tolist() for name, p in made.items()})
        optimizer.step(None if rates is None else rates[t])
    return seen


def assert_as_by_loops(made, before, gradients, rates, decays, betas, eps):
    for name, p in made.items():
        wanted = adamw_by_loops(before[name], [g[name] for g in gradients], rates, *betas, eps, decays[name])
        np.testing.assert_allclose(to_numpy(p.value).ravel(), wanted, rtol=1e-12, atol=1e-12)


# ---- AdamW. ----


@in_one("device, decay_vectors", ["numpy", "strict"], [False, True])
def test_ten_steps_are_those_of_the_published_formula(decay_vectors, device):
    made = parameters(device=device)
    before = {name: to_numpy(p.value).ravel().tolist() for name, p in made.items()}
    optimizer = AdamW(made.items(), 0.05, decay_vectors=decay_vectors, **OPTIONS)
    gradients = ten_steps(optimizer, made, device=device)
    decays = {"weight": 0.3, "table": 0.3, "bias": 0.3 if decay_vectors else 0.0}
    assert_as_by_loops(made, before, gradients, [0.05] * 10, decays, (0.8, 0.95), 1e-3)


def test_the_defaults_are_the_published_ones():
    made = parameters()
    before = {name: p.value.ravel().tolist() for name, p in made.items()}
    gradients = ten_steps(AdamW(made.items(), 0.1), made)
    assert_as_by_loops(
        made, before, gradients, [0.1] * 10, {"weight": 0.01, "table": 0.01, "bias": 0.0}, (0.9, 0.999), 1e-8
    )


def test_a_schedule_gives_each_step_its_rate():
    made = parameters()
    before = {name: p.value.ravel().tolist() for name, p in made.items()}
    rates = [0.1 / t for t in range(1, 11)]
    gradients = ten_steps(AdamW(made.items(), 99.0, **OPTIONS), made, rates)
    assert_as_by_loops(made, before, gradients, rates, {"weight": 0.3, "table": 0.3, "bias": 0.0}, (0.8, 0.95), 1e-3)


def test_values_and_moments_change_in_place_and_gradients_do_not():
    made = parameters()
    held = {name: (p.value, p.grad) for name, p in made.items()}
    for p in made.values():
        p.grad[...] = 3.0
    AdamW(made.items(), 0.1).step()
    for name, p in made.items():
        assert p.value is held[name][0] and p.grad is held[name][1]
        assert np.all(p.grad == 3.0)


@in_one("make, device", [SGD, Adam, AdamW, Muon], ["numpy", "strict"])
def test_float32_stays_float32(make, device):
    made = parameters("float32", device)
    optimizer = make(made.items(), np.float64(0.05))
    ten_steps(optimizer, made, [np.float64(0.05)] * 10, device)
    assert {to_numpy(p.value).dtype for p in made.values()} == {np.dtype("float32")}
    assert {array.dtype for name, array in optimizer.state().items() if name != "steps"} == {np.dtype("float32")}


EACH = {
    "SGD": lambda made: SGD(made.items(), 0.05, momentum=0.9),
    "Adam": lambda made: Adam(made.items(), 0.05, betas=(0.8, 0.95), eps=1e-3),
    "AdamW": lambda made: AdamW(made.items(), 0.05, **OPTIONS),
    "Muon": lambda made: Muon(made.items(), 0.05, **OPTIONS),
    "Muon, fast": lambda made: accelerate(Muon(made.items(), 0.05, **OPTIONS)),
}


@pytest.mark.parametrize("device", ["numpy", "strict"])
@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
def test_after_load_state_it_goes_on_as_if_never_interrupted(make, device):
    made, resumed = parameters(device=device), parameters(device=device)
    optimizer = make(made)
    ten_steps(optimizer, made, device=device, seed=1)
    state = optimizer.state()
    for name, p in resumed.items():
        p.value[...] = made[name].value
    ten_steps(optimizer, made, device=device, seed=2)

    fresh = make(resumed)
    fresh.load_state(state)
    assert {name: array.tolist() for name, array in fresh.state().items()} == {
        name: array.tolist() for name, array in state.items()
    }
    ten_steps(fresh, resumed, device=device, seed=2)
    for name, p in resumed.items():
        assert np.array_equal(to_numpy(p.value), to_numpy(made[name].value))


def test_state_is_a_copy_on_the_host_by_name():
    made = parameters(device="strict")
    optimizer = AdamW(made.items(), 0.05)
    ten_steps(optimizer, made, device="strict")
    state = optimizer.state()
    assert set(state) == {"steps", *(f"{kind}.{name}" for kind in ("mean", "square") for name in SHAPES)}
    assert {type(array) for array in state.values()} == {np.ndarray}
    assert state["steps"] == 10
    kept = {name: array.copy() for name, array in state.items()}
    ten_steps(optimizer, made, device="strict")
    assert all(np.array_equal(state[name], kept[name]) for name in kept)


@in_one(
    "change, message",
    [
        (lambda state: state.pop("steps"), "steps is missing"),
        (lambda state: state.pop("square.bias"), "square.bias is missing"),
        (lambda state: state.update({"mean.gain": np.zeros(2)}), "mean.gain is unknown"),
        (lambda state: state.update({"mean.bias": np.zeros(3)}), "mean.bias must have shape (2,), got (3,)"),
        (lambda state: state.update({"mean.bias": np.array(["a", "b"])}), "mean.bias must hold real numbers"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    made = parameters()
    optimizer = AdamW(made.items(), 0.05)
    ten_steps(optimizer, made)
    before = optimizer.state()
    wrong = {name: array + 1 for name, array in before.items()}
    change(wrong)
    with pytest.raises(ValueError) as caught:
        optimizer.load_state(wrong)
    assert message in str(caught.value) and "AdamW" in str(caught.value)
    assert all(np.array_equal(array, before[name]) for name, array in optimizer.state().items())


@in_one(
    "changes, error, message",
    [
        ({"parameters": []}, ValueError, "there are no parameters; pass module.parameters()"),
        ({"learning_rate": -0.1}, ValueError, "learning_rate must be at least 0, got -0.1"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate must be finite, got nan"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be a number, got str"),
        ({"betas": (0.9, 1.0)}, ValueError, "betas must be below 1, got (0.9, 1.0)"),
        ({"betas": (-0.1, 0.9)}, ValueError, "beta1 must be at least 0, got -0.1"),
        ({"betas": (0.9, -1)}, ValueError, "beta2 must be at least 0, got -1"),
        ({"eps": 0.0}, ValueError, "eps must be greater than 0, got 0.0"),
        ({"weight_decay": -1.0}, ValueError, "decay must be at least 0, got -1.0"),
    ],
)
def test_bad_options_are_refused(changes, error, message):
    with pytest.raises(error) as caught:
        AdamW(**({"parameters": parameters().items(), "learning_rate": 0.1} | changes))
    assert "AdamW" in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize("rate", [-1.0, math.inf])
def test_a_bad_rate_for_a_step_changes_nothing(rate):
    made = parameters()
    optimizer = AdamW(made.items(), 0.1)
    ten_steps(optimizer, made)
    before = {name: p.value.copy() for name, p in made.items()}
    with pytest.raises(ValueError, match="learning_rate must be"):
        optimizer.step(rate)
    assert optimizer.state()["steps"] == 10
    assert all(np.array_equal(p.value, before[name]) for name, p in made.items())


@pytest.mark.parametrize("change", [lambda x: x.astype("float32"), lambda x: to_device(x, "strict")])
def test_a_module_that_moved_away_under_the_optimizer_is_noticed(change):
    made = parameters()
    optimizer = AdamW(made.items(), 0.1)
    for p in made.values():
        p.value, p.grad = change(p.value), change(p.grad)
    with pytest.raises(TypeError, match="the mean of weight is"):
        optimizer.step()
    assert optimizer.state()["steps"] == 0


# ---- SGD and Adam. ----


@in_one("device, momentum", ["numpy", "strict"], [0.0, 0.9])
def test_sgd_takes_the_steps_of_its_formula(momentum, device):
    made = parameters(device=device)
    before = {name: to_numpy(p.value).ravel().tolist() for name, p in made.items()}
    rates = [0.1 / t for t in range(1, 11)]
    gradients = ten_steps(SGD(made.items(), 99.0, momentum), made, rates, device)
    for name, p in made.items():
        theta, u = before[name], [0.0] * len(before[name])
        for rate, step_gradients in zip(rates, gradients, strict=True):
            u = [momentum * a + g for a, g in zip(u, step_gradients[name], strict=True)]
            theta = [a - rate * b for a, b in zip(theta, u, strict=True)]
        np.testing.assert_allclose(to_numpy(p.value).ravel(), theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["numpy", "strict"])
def test_adam_takes_the_steps_of_its_formula(device):
    made = parameters(device=device)
    before = {name: to_numpy(p.value).ravel().tolist() for name, p in made.items()}
    gradients = ten_steps(Adam(made.items(), 0.05), made, device=device)
    assert_as_by_loops(made, before, gradients, [0.05] * 10, dict.fromkeys(SHAPES, 0.0), (0.9, 0.999), 1e-8)


@pytest.mark.parametrize("flat", [False, True])
def test_muon_moves_maps_and_adamw_the_rest(flat):
    """Also where all parameters are views into one flat buffer, as they are in training."""
    made, alone = parameters(), parameters()
    made["inner.weight"] = Parameter(np.random.default_rng(5).normal(size=(2, 5)))
    if flat:
        pairs = in_order(made.items())
        for kind in ("value", "grad"):
            _, views = side_by_side([getattr(p, kind) for _, p in pairs])
            for (_, p), view in zip(pairs, views, strict=True):
                view[...] = getattr(p, kind)
                setattr(p, kind, view)
    before = {name: made[name].value.copy() for name in ("weight", "inner.weight")}
    optimizer = (InPieces if flat else lambda whole: whole)(Muon(made.items(), 0.05, **OPTIONS))
    rest = AdamW([(name, alone[name]) for name in ("bias", "table")], 0.05, **OPTIONS)
    seen = ten_steps_in_place(optimizer, made)
    for gradients in seen:
        for name in ("bias", "table"):
            alone[name].grad[...] = gradients[name]
        rest.step()
    for name in ("bias", "table"):
        np.testing.assert_allclose(made[name].value, alone[name].value, rtol=1e-12)
    for name, value in before.items():
        momentum = np.zeros(value.shape)
        for g in (gradients[name] for gradients in seen):
            momentum = 0.95 * momentum + 0.05 * g
            step = 0.2 * max(value.shape) ** 0.5 * reference.orthogonal(0.95 * momentum + 0.05 * g)
            value *= 1 - 0.05 * 0.3
            value -= 0.05 * step
        np.testing.assert_allclose(made[name].value, value, rtol=1e-9, atol=1e-12)


def ten_steps_in_place(optimizer, made):
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(10):
        for p in made.values():
            p.grad[...] = rng.normal(size=p.value.shape)
        seen.append({name: p.grad.copy() for name, p in made.items()})
        optimizer.step()
    return seen


def test_the_state_of_muon():
    optimizer = Muon(parameters().items(), 0.05)
    kinds = ["momentum.weight", *(f"{kind}.{name}" for kind in ("mean", "square") for name in ("bias", "table"))]
    assert list(optimizer.state()) == ["steps", *kinds]
    only = Muon([("weight", Parameter(np.ones((2, 3))))], 0.05)
    only.step()
    assert list(only.state()) == ["steps", "momentum.weight"]
    assert (only.parameters["weight"].value == 1.0 - 0.05 * 0.01).all()  # no gradient: the decay alone
    with pytest.raises(ValueError, match="Muon: momentum must be at least 0 and below 1, got 1"):
        Muon(parameters().items(), 0.05, momentum=1)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3)])
def test_newton_schulz_brings_singular_values_near_one(shape):
    """Those of a matrix with singular values from 0.3 to 1 end between 0.6 and 1.25; the directions stay."""
    rng = np.random.default_rng(3)
    u, v = (np.linalg.qr(rng.normal(size=(n, min(shape))))[0] for n in shape)
    found = newton_schulz(100.0 * u @ np.diag(np.linspace(0.3, 1.0, min(shape))) @ v.T)
    inside = u.T @ found @ v
    np.testing.assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-12)
    assert np.diag(inside).min() > 0.6 and np.diag(inside).max() < 1.25
    assert not newton_schulz(np.zeros(shape)).any()


# ---- Clipping. ----


def norm_of(made):
    return math.sqrt(math.fsum(float(g) ** 2 for p in made.values() for g in to_numpy(p.grad).ravel()))


@pytest.mark.parametrize("device", ["numpy", "strict"])
def test_large_gradients_are_scaled_by_one_factor(device):
    made = parameters(device=device)
    set_gradients(made, np.random.default_rng(0), device)
    before = {name: to_numpy(p.grad).copy() for name, p in made.items()}
    norm = norm_of(made)
    assert norm > 10.0
    assert clip_gradient_norm(made.items(), 2.5) == pytest.approx(norm, rel=1e-14)
    assert norm_of(made) == pytest.approx(2.5, rel=1e-14)
    for name, p in made.items():
        np.testing.assert_allclose(to_numpy(p.grad), before[name] * 2.5 / norm, rtol=1e-14)


def test_clipping_keeps_float32():
    p = Parameter(np.zeros(2, dtype=np.float32))
    p.grad[...] = [3.0, 4.0]
    assert type(clip_gradient_norm([("p", p)], np.float64(1.0))) is float
    assert p.grad.dtype == np.float32
    np.testing.assert_allclose(p.grad, [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_scales_nothing(bad):
    p = Parameter(np.zeros(2))
    p.grad[...] = [bad, 4.0]
    assert not math.isfinite(clip_gradient_norm([("p", p)], 1.0))
    np.testing.assert_array_equal(p.grad, [bad, 4.0])


# ---- Schedules. ----


def test_warmup_schedule_is_equation_3_of_the_paper():
    for step in (1, 7, 3999, 4000, 4001, 100_000):
        wanted = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert warmup_schedule(step, d_model=512) == pytest.approx(wanted, rel=1e-14)
    assert warmup_schedule(10, d_model=64, warmup=5) == pytest.approx(1 / (8 * math.sqrt(10)), rel=1e-14)
    rates = [warmup_schedule(step, 512) for step in range(3990, 4011)]
    assert max(rates) == rates[10] == pytest.approx(1 / math.sqrt(512 * 4000), rel=1e-14)


KNOWN = [  # a schedule, and its rate by step, known by heart
    (lambda t: constant(t, 0.3), dict.fromkeys((1, 10, 10_000), 0.3)),
    # peak 2 at step 10; four times as far, half as high
    (lambda t: inverse_sqrt(t, peak=2.0, warmup=10), {1: 0.2, 5: 1.0, 10: 2.0, 40: 1.0, 1000: 0.2}),
    (
        lambda t: cosine(t, peak=3.0, warmup=10, total=210, floor=1.0),
        {1: 0.3, 5: 1.5, 10: 3.0, 110: 2.0, 60: 2.0 + 0.5**0.5, 160: 2.0 - 0.5**0.5, 210: 1.0, 999: 1.0},
    ),
    (lambda t: cosine(t, peak=3.0, warmup=0, total=2), {1: 1.5, 2: 0.0}),
]


@in_one("schedule, rates", KNOWN, ids=["constant", "inverse_sqrt", "cosine", "no warmup"])
def test_a_schedule_at_points_known_by_heart(schedule, rates):
    assert {step: schedule(step) for step in rates} == pytest.approx(rates, rel=1e-14)


@given(st.integers(1, 500), st.integers(1, 400), st.integers(1, 400))
def test_schedules_rise_to_their_peak_and_then_fall(step, warmup, more):
    schedules = [
        (lambda t: inverse_sqrt(t, 2.0, warmup), 2.0),
        (lambda t: cosine(t, 2.0, warmup, warmup + more, 0.5), 2.0),
        (lambda t: warmup_schedule(t, 64, warmup), 1 / (8 * math.sqrt(warmup))),
    ]
    for rate, peak in schedules:
        assert rate(warmup) == pytest.approx(peak)
        assert 0.0 < rate(step) <= peak * (1 + 1e-12)
        if step < warmup:
            assert rate(step) < rate(step + 1)
        else:
            assert rate(step) >= rate(step + 1)


@in_one(
    "call, message",
    [
        (lambda: clip_gradient_norm([], 0.0), "clip_gradient_norm: limit must be greater than 0, got 0.0"),
        (lambda: clip_gradient_norm([], -1.0), "clip_gradient_norm: limit must be greater than 0, got -1.0"),
        (lambda: clip_gradient_norm([], math.nan), "clip_gradient_norm: limit must be finite, got nan"),
        (lambda: cosine(1, 1.0, 10, 10), "cosine: warmup must be less than total, got warmup 10 and total 10"),
    ],
)
def test_bad_numbers_are_refused(call, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert str(caught.value) == message


# ---- Flat buffers. ----


def test_arrays_side_by_side_are_one_and_others_are_not():
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape) for shape in ((2, 3), (4,), (1, 1), (3, 2))]
    flat, views = side_by_side(given)
    for view, x in zip(views, given, strict=True):
        assert not view.any()
        view[...] = x
    whole = as_one(views)
    assert np.shares_memory(whole, flat)
    assert np.array_equal(whole, np.concatenate([x.ravel() for x in given]))
    whole[6] = 99.0
    assert views[1][0] == 99.0
    assert as_one(views[1:3]).tolist() == [*views[1].tolist(), *views[2].ravel().tolist()]
    for others in (
        given,
        views[::-1],
        [views[0], views[2]],
        [views[0], views[1][::-1]],
        [views[0], views[0].T],
        [views[0], views[0]],
        [*views, given[0]],
        [to_device(x, "strict") for x in views],
        [np.zeros((2, 3))[:, :2], np.zeros(3)],
        [flat[:2], flat[2:5].view(np.int64)],
    ):
        assert as_one(others) is None


def test_matrices_come_first_and_keep_their_order():
    named = [(str(i), Parameter(np.zeros((2,) * axes))) for i, axes in enumerate((1, 2, 1, 3, 2))]
    assert [name for name, _ in in_order(named)] == ["1", "3", "4", "0", "2"]


class Some(Module):
    def __init__(self, dtype):
        made = parameters(dtype)
        for name, p in made.items():
            setattr(self, name, p)


@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_pieces_move_as_each_parameter_would(make, dtype, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 4)  # pieces that end amid a parameter
    alone, shared = Some(dtype), Some(dtype)
    workers = Workers(shared, 2)
    pair = make(dict(alone.parameters())), InPieces(make(dict(shared.parameters())), workers.share_out)
    for seed in range(3):
        for module in (alone, shared):
            rng = np.random.default_rng(seed)
            for _, p in module.parameters():
                p.grad[...] = rng.normal(size=p.grad.shape)
        pair[0].step()
        pair[1].step()
    for (name, p), (_, q) in zip(alone.parameters(), shared.parameters(), strict=True):
        np.testing.assert_array_equal(p.value, q.value, err_msg=name)
    for name, array in pair[0].state().items():
        np.testing.assert_array_equal(array, pair[1].state()[name], err_msg=name)
    assert list(pair[0].state()) == list(pair[1].state())
    cut = pair[1]._pieces.values()
    long = [p.value.size for p, remembered in cut if "momentum" not in remembered]  # Muon's matrices are whole
    assert max(long) <= 4 < max(p.value.size for _, p in shared.parameters())
    assert sum(p.value.size for p, _ in cut) == sum(p.value.size for _, p in shared.parameters())


def test_on_a_device_all_matrices_are_one_piece_and_all_vectors_another(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 4)
    here, there = Some("float64"), Some("float64").to("strict")
    for module in (here, there):
        workers = Workers(module)
        optimizer = InPieces(AdamW(module.parameters(), 0.05), workers.share_out)
        for n, (_, p) in enumerate(module.parameters()):
            p.grad[...] = n + 1.0
        optimizer.step()
    assert len(optimizer._pieces) == 2
    for (name, p), (_, q) in zip(here.parameters(), there.parameters(), strict=True):
        np.testing.assert_array_equal(p.value, to_numpy(q.value), err_msg=name)


def test_a_gradient_that_was_replaced_is_the_one_that_counts():
    shared = Some("float64")
    Workers(shared, 1)
    optimizer = InPieces(SGD(shared.parameters(), 1.0))
    optimizer.step()
    name, p = next(iter(shared.parameters()))
    before, p.grad = p.value.copy(), np.ones_like(p.value)
    optimizer.step()
    np.testing.assert_array_equal(p.value, before - 1.0)
    assert name in optimizer._pieces


@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
@pytest.mark.parametrize("form", [InPieces, lambda optimizer: optimizer], ids=["in pieces", "whole"])
def test_a_copy_moves_its_own_parameters(make, form):
    module = Some("float64")
    Workers(module, 1)
    optimizer = form(make(dict(module.parameters())))
    optimizer.step()
    other, copied = copy.deepcopy((module, optimizer))
    before = {name: p.value.copy() for name, p in module.parameters()}
    for _, p in other.parameters():
        p.grad[...] = 1.0
    copied.step()
    assert all(np.abs(p.value - before[name]).min() > 1e-3 for name, p in other.parameters())
    assert all(np.array_equal(p.value, before[name]) for name, p in module.parameters())


def test_parameters_of_several_dtypes_move_one_by_one_and_are_nothing_for_workers():
    module = Some("float64")
    module.bias.value, module.bias.grad = module.bias.value.astype("float32"), module.bias.grad.astype("float32")
    optimizer = AdamW(module.parameters(), 0.1)
    for _, p in module.parameters():
        p.grad[...] = 1.0
    optimizer.step()
    assert {name: array.dtype.name for name, array in optimizer.state().items() if name.startswith("mean.")} == {
        "mean.weight": "float64",
        "mean.bias": "float32",
        "mean.table": "float64",
    }
    with pytest.raises(TypeError, match="one dtype, got float32, float64"):
        Workers(module)


# ---- Parameters that change between steps: the compiled loops would write past the end of a shorter array. ----


@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
@pytest.mark.parametrize("form", [accelerate, lambda optimizer: optimizer], ids=["fast", "textbook"])
@pytest.mark.parametrize("rows", [1010, 990])
def test_a_parameter_that_has_grown_wants_a_new_optimizer(make, form, rows):
    p = Parameter(np.zeros((1000, 64), np.float32))
    optimizer = form(make({"table": p}))
    optimizer.step()
    p.value, p.grad = np.zeros((rows, 64), np.float32), np.ones((rows, 64), np.float32)
    with pytest.raises(ValueError, match=rf"table had shape \(1000, 64\) .* now has \({rows}, 64\); make a new"):
        optimizer.step()
    assert optimizer.state()["steps"] == 1 and not p.value.any()
    form(make({"table": p})).step()
    assert p.value.any()


@pytest.mark.parametrize("make", EACH.values(), ids=EACH)
@pytest.mark.parametrize("form", [accelerate, lambda optimizer: optimizer], ids=["fast", "textbook"])
@in_one("shape", [[64], [1, 64], [3, 64], [5, 64], [4, 1], [64, 4], [4, 64, 1], []])
def test_a_gradient_of_another_shape_is_refused(make, form, shape):
    p = Parameter(np.zeros((4, 64), np.float32))
    optimizer = form(make({"table": p}))
    optimizer.step()
    p.grad = np.ones(shape, np.float32)
    with pytest.raises(ValueError, match="the gradient of table must have the shape"):
        optimizer.step()
    p.grad = np.ones((4, 64), np.float32)
    optimizer.step()
    p.grad.resize((2, 64), refcheck=False)  # the same array, now shorter
    with pytest.raises(ValueError, match="the gradient of table must have the shape"):
        optimizer.step()
    assert optimizer.state()["steps"] == 2


def test_in_pieces_a_gradient_that_no_longer_fits_is_refused_after_right_steps_too():
    """Arrays that were checked are not checked again, but a new one is."""
    made = parameters()
    optimizer = InPieces(Adam(made.items(), 0.05))
    optimizer.step()
    name, p = next(iter(made.items()))
    before, p.grad = p.value.copy(), np.zeros(p.value.size + 1)
    with pytest.raises(ValueError, match=f"Adam: the gradient of {name} must have the shape"):
        optimizer.step()
    np.testing.assert_array_equal(p.value, before)
    assert optimizer.state()["steps"] == 1


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_a_gradient_of_another_dtype_is_refused(dtype):
    p = Parameter(np.zeros((4, 64), np.float32))
    optimizer = Adam([("table", p)], 0.1)
    p.grad = np.ones((4, 64), dtype)
    with pytest.raises(TypeError, match="the gradient of table"):
        optimizer.step()
    assert optimizer.state()["steps"] == 0 and not p.value.any()


def test_a_gradient_that_lies_in_another_order_is_read_as_it_lies():
    moved = []
    for order in "CF":
        p = Parameter(np.zeros((4, 64), np.float32))
        p.grad = np.asarray(np.arange(256.0).reshape(4, 64) - 100.0, np.float32, order=order)
        Adam([("table", p)], 0.1).step()
        moved.append(p.value)
    np.testing.assert_allclose(*moved, rtol=1e-6)
