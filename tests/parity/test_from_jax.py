"""verify.from_jax: functions of JAX before our checker, right and wrong ones."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_ops import FIRST, assert_accepted_as, assert_rejected_as
from all_ops import WRONG as WRONG_OPS
from common import draw
from foreign_functions import FUNCTIONS, JAX, WRONG, WRONG_NAMES, Function, assert_rejected_rightly, made

import minitransformer
from minitransformer import verify
from minitransformer.check.verify.mistakes import Mistake
from minitransformer.verify import from_jax

X = draw(3, 4)


def function_of(function: Function, wrong: int | None = None) -> Any:
    return from_jax(made(function, JAX, wrong, jax=jax, xp=jnp)[function.name])


def test_there_are_enough_of_them() -> None:
    assert len(FUNCTIONS) + len(FIRST) + len(OWN) >= 80 and len(WRONG) + len(OF_OURS) >= 280


@pytest.mark.few(20, slow=0)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_right_functions_are_accepted(function: Function) -> None:
    verify.gradients(function_of(function), *function.inputs()).assert_ok()


@pytest.mark.few(32, slow=0)
@pytest.mark.parametrize(("function", "wrong"), WRONG, ids=WRONG_NAMES)
def test_wrong_functions_are_rejected_at_the_worst_entry(function: Function, wrong: int) -> None:
    f = function_of(function, wrong)
    try:
        report = verify.gradients(f, *function.inputs())
    except ValueError as error:  # JAX itself refuses a gradient of another shape
        assert "backward does not run: ValueError" in str(error) and "Custom VJP bwd" in str(error)
        return
    assert_rejected_rightly(report, function, wrong)


def around(op: Any) -> Any:
    """An op of ours inside a jax.custom_vjp, which JAX runs with numbers as long as nobody compiles it."""

    def call(*inputs: Any, **options: Any) -> Any:
        places = [i for i, x in enumerate(inputs) if isinstance(x, jax.Array)]
        pullbacks: list[Any] = []

        def forward(*arrays: Any) -> Any:
            filled = [*inputs]
            for i, x in zip(places, arrays, strict=True):
                filled[i] = array(x)
            y, pullback = op(*filled, **{key: array(x) for key, x in options.items()})
            pullbacks.append(pullback)
            return jnp.array(y), arrays

        def backward(arrays: Any, dy: Any) -> Any:
            found = pullbacks[-1](array(dy))
            rest = iter(found if isinstance(found, tuple) else (found,))
            return tuple(jnp.array(next(rest)) if jnp.issubdtype(x.dtype, jnp.floating) else None for x in arrays)

        run = jax.custom_vjp(lambda *arrays: forward(*arrays)[0])
        run.defvjp(forward, backward)
        return run(*(inputs[i] for i in places))

    return from_jax(call)


def array(x: Any) -> Any:
    return np.array(x) if isinstance(x, jax.Array) else x


# JAX's arrays cannot be changed in place, each backward begins with forward, and gradients get the inputs' dtype.
UNDONE = {
    *("softmax-changes-dy", "softmax-changes-y", "softmax-changes-x", "dropout-changes-dy", "dropout-changes-its-mask"),
    "embedding-float32-gradient",
}
OF_OURS = [mistake for mistake in WRONG_OPS if mistake.name not in UNDONE]


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST.keys())
def test_our_ops_are_accepted(case: str) -> None:
    assert_accepted_as(around, case)


@pytest.mark.few(60, slow=0)
@pytest.mark.parametrize("mistake", OF_OURS, ids=lambda mistake: mistake.name)
def test_our_ops_with_mistakes_are_rejected(mistake: Mistake) -> None:
    assert_rejected_as(around, mistake)


# JAX's own: written by people who never saw this checker.
OWN = {
    "gelu": jax.nn.gelu,
    "selu": jax.nn.selu,
    "mish": jax.nn.mish,
    "log_softmax": jax.nn.log_softmax,
    "standardize": jax.nn.standardize,
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "glu": jax.nn.glu,
    "jitted": jax.jit(lambda x: jnp.sort(x, axis=0) ** 2),
    "cumprod": lambda x: jnp.cumprod(x, axis=0),
}


@pytest.mark.parametrize("f", OWN.values(), ids=OWN.keys())
def test_functions_of_jax_are_accepted(f: Any) -> None:
    verify.gradients(from_jax(f), X).assert_ok()


def test_parameters_may_be_a_dict_and_options_are_passed_on() -> None:
    parameters = {"w": draw(4, 2), "b": [draw(2, seed=1), draw(2, seed=2)]}

    def f(p: Any, x: Any, power: int = 1) -> Any:
        return jnp.tanh(x @ p["w"] + p["b"][0]) ** power * p["b"][1]

    report = verify.gradients(from_jax(f), parameters, X, power=3)
    report.assert_ok()
    assert {row.name for row in report.rows} == {"p['w']", "p['b'][0]", "p['b'][1]", "x"}
    assert jnp.ones(2).dtype == jnp.float32  # JAX is as it was


def test_check_gradients_takes_jax_arrays() -> None:
    verify.check_gradients(jax.nn.softmax, jnp.asarray(X, dtype=jnp.float32))
    wrong = made(FUNCTIONS[11], JAX, 0, jax=jax, xp=jnp)["softmax"]
    with pytest.raises(AssertionError, match="does what softmax does with a known mistake: The term"):
        verify.check_gradients(wrong, jnp.asarray(X))


def test_it_can_be_stepped_through() -> None:
    steps = str(minitransformer.step(function_of(FUNCTIONS[11]), np.array([[0.0, 1.0], [3.0, 1.0]])))
    bound = re.findall(r"^  (\w+) \(.*?\)$", steps, re.MULTILINE)
    assert {"x", "grown", "out", "dout", "dx"} <= set(bound) and "<string>" not in steps, steps
    assert "  grown (2, 2)\n    [[ 1.      2.7183]\n     [20.0855  2.7183]]" in steps, steps


def test_float32_alone_is_checked_as_closely_as_it_allows() -> None:
    def narrow(x: Any) -> Any:
        return jnp.tanh(x.astype(jnp.float32))

    with pytest.raises(TypeError, match="computes in float32 although its inputs are float64"):
        verify.gradients(from_jax(narrow), X)
    report = verify.gradients(from_jax(narrow, dtype="float32"), X)
    assert report.ok and "It computes in float32" in str(report)


@jax.custom_vjp
def torn(x: Any) -> Any:
    return 2.0 * x


torn.defvjp(lambda x: (3.0 * x, None), lambda _, g: (2.0 * g,))

CALLS: list[int] = []


def counting(x: Any) -> Any:
    CALLS.append(1)
    return x * len(CALLS)


@jax.custom_vjp
def short(x: Any) -> Any:
    return 2.0 * x


short.defvjp(lambda x: (2.0 * x, None), lambda _, g: (g[:2],))


def unsteady(drawn: Any) -> Any:
    """A function whose gradient has another factor in each call."""

    @jax.custom_vjp
    def f(x: Any) -> Any:
        return 2.0 * x

    f.defvjp(lambda x: (2.0 * x, None), lambda _, g: (g * drawn(),))
    return f


DRAWS = [np.random.random, lambda: np.random.default_rng().random()]


def test_a_backward_that_gives_another_gradient_says_why() -> None:
    calls: list[int] = []
    report = verify.gradients(from_jax(unsteady(lambda: calls.append(1) or len(calls))), X)
    assert "called again; it keeps state from call to call" in report["x"].problem and not report.ok
    for drawn in DRAWS:
        report = verify.gradients(from_jax(unsteady(drawn)), X)
        assert "called again; it draws random numbers of its own" in report["x"].problem and not report.ok


def noisy(x: Any) -> Any:
    return x + jnp.asarray(np.random.normal(size=x.shape))  # noqa: NPY002


BAD: list[tuple[Any, str]] = [
    (
        short,
        r"short: backward does not run: .* of type float64\[2,4\] corresponding to an input of type float64\[3,4\]",
    ),
    (noisy, "noisy gives a different output .* it draws random numbers of its own"),
    (lambda x: jnp.concatenate([counting(x)] * len(CALLS)), "gives a different output .*even its shape changes"),
    (lambda x: jax.device_put(x, jax.devices("gpu:9")[0]), "forward does not run: .*gpu:9"),
    (torn, "torn: the forward pass of its custom_vjp returns another output than the function"),
    (counting, "counting gives a different output .* it keeps state from run to run"),
    (lambda x: (x > 0.0, [3]), "must return a floating-point array, or several, got"),
    (lambda x: x.missing, "<lambda>: forward does not run: AttributeError"),
    (3, "expected a function, got 3"),
]


@pytest.mark.parametrize(("f", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_what_cannot_be_checked_says_why(f: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        verify.gradients(from_jax(f), X)


@pytest.mark.parametrize("forgets", [False, True])
def test_functions_of_several_outputs_are_checked_whole(forgets: bool) -> None:
    @jax.custom_vjp
    def with_log(x: Any) -> Any:
        return {"weights": jax.nn.softmax(x), "log": jax.nn.logsumexp(x, axis=-1), "ids": jnp.argmax(x, -1)}

    def backward(weights: Any, d: Any) -> Any:
        dx = weights * (d["weights"] - (d["weights"] * weights).sum(-1, keepdims=True))
        return (dx if forgets else dx + weights * d["log"][:, None],)

    with_log.defvjp(lambda x: (with_log(x), jax.nn.softmax(x)), backward)
    assert verify.gradients(from_jax(with_log), X)["x"].ok is not forgets


def test_a_mistake_that_ones_hide_is_seen() -> None:
    @jax.custom_vjp
    def scaled(x: Any, gain: Any) -> Any:
        return x * gain**2

    scaled.defvjp(lambda x, gain: (scaled(x, gain), (x, gain)), lambda c, d: (d * c[1], 2.0 * (d * c[0] * c[1]).sum(0)))
    report = verify.gradients(from_jax(scaled), X, np.ones(4))
    assert not report["x"].ok and report["gain"].ok and "because gain is constant" in report.note


def test_bfloat16_is_checked_in_float64_and_in_itself() -> None:
    """NumPy does not know the dtype as one of numbers: nothing was checked, and the report did not print."""

    @jax.custom_vjp
    def halved(x: Any) -> Any:
        return jnp.tanh(x)

    halved.defvjp(lambda x: (jnp.tanh(x), x), lambda x, dy: (0.5 * dy * (1 - jnp.tanh(x) ** 2),))
    x = jnp.asarray(X, jnp.bfloat16)
    assert "all 1 gradients are right" in str(verify.check_gradients(lambda x: jnp.tanh(x), x))
    with pytest.raises(AssertionError, match="dx is wrong"):
        verify.check_gradients(halved, x)


def test_two_formulas_of_one_output_may_differ_by_the_rounding_of_bfloat16() -> None:
    """As in a loss whose function takes jax's logsumexp, and whose forward pass shifts by the largest itself."""

    @jax.custom_vjp
    def log_p(x: Any) -> Any:
        return x - jax.nn.logsumexp(x, axis=-1, keepdims=True)

    def forward(x: Any) -> Any:
        shifted = x - x.max(axis=-1, keepdims=True)
        grown = jnp.exp(shifted)
        total = grown.sum(axis=-1, keepdims=True)
        return shifted - jnp.log(total), grown / total

    log_p.defvjp(forward, lambda p, dy: (dy - p * dy.sum(axis=-1, keepdims=True),))
    assert "not checked" not in str(verify.check_gradients(log_p, jnp.asarray(4.0 * X + 9.0, jnp.bfloat16)))


@jax.custom_vjp
def product(x: Any, w: Any) -> Any:
    return x @ w


product.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, dy: (dy @ kept[1].T, 0.5 * kept[0].T @ dy))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Projection:
    """As a module of Equinox: a pytree that can be called. The gradient of its matrix is half of the right one."""

    w: Any
    key: Any

    def __call__(self, x: Any) -> Any:
        return product(x, self.w)


def test_arrays_of_a_module_are_parameters_and_those_of_a_closure_are_named() -> None:
    """Neither was looked at, in silence; a module among the arguments was no tree, and a tuple of arrays refused."""
    module, x = Projection(jnp.asarray(draw(4, 2)), jax.random.key(0)), jnp.asarray(X)
    with pytest.raises(AssertionError, match=r"Projection: dw is wrong[^!]*dw is 0\.5 times the right one"):
        verify.check_gradients(module, x)
    with pytest.raises(AssertionError, match=r"dmodule\.w is wrong"):
        verify.check_gradients(lambda module, x: module(x), module, x)
    report = verify.check_gradients(lambda x: module(x), x)
    assert "not checked: an array of shape (4, 2) (which f holds" in str(report), str(report)
    report = verify.check_gradients(lambda x, hc: jnp.tanh(x * hc[0]) + hc[1], x, (x[0], x))
    assert {row.name for row in report.rows} == {"x", "hc[0]", "hc[1]"}


def test_a_function_is_compiled_once_for_arguments_of_a_kind() -> None:
    """Each run of a scan, or of a kernel that Pallas interprets, compiled it again, and the check did not end."""
    runs: list[int] = []

    def recurrent(w: Any, x: Any, n: int) -> Any:
        runs.append(1)

        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(h @ w + row)
            return h, h

        return jax.lax.scan(step, jnp.zeros(4, x.dtype), x)[1] * n

    verify.check_gradients(recurrent, jnp.asarray(draw(4, 4)), jnp.asarray(X), 2)
    assert len(runs) < 20


def test_in_32_bits_jax_has_no_64() -> None:
    """With float64 enabled a kernel that mixes its 32-bit index with an arange did not run at all."""

    def kernel(x: Any) -> Any:
        return jnp.tanh(x) * jax.lax.div(jnp.arange(4), jnp.full(4, 1, jnp.int32)).astype(jnp.float32)

    assert "It computes in float32" in verify.check_gradients(kernel, jnp.asarray(X, dtype=jnp.float32)).note
