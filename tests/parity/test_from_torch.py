"""verify.from_torch: functions of PyTorch before our checker, right and wrong ones."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from all_ops import FIRST, assert_accepted_as, assert_rejected_as
from all_ops import WRONG as WRONG_OPS
from common import draw
from foreign_functions import FUNCTIONS, TORCH, WRONG, WRONG_NAMES, Function, assert_rejected_rightly, made
from torch.nn import functional as F

import minitransformer
from minitransformer import ops, verify
from minitransformer.check.referee.other_forms import first_output
from minitransformer.check.verify.mistakes import Mistake
from minitransformer.verify import from_torch

X = draw(3, 4)


def function_of(function: Function, wrong: int | None = None) -> Any:
    return from_torch(made(function, TORCH, wrong, torch=torch, xp=torch)[function.name])


def test_there_are_enough_of_them() -> None:
    assert len(FUNCTIONS) + len(FIRST) + len(OWN) >= 80 and len(WRONG) + len(OF_OURS) >= 280


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_right_functions_are_accepted_with_what_is_inside(function: Function) -> None:
    report = verify.gradients(function_of(function), *function.inputs())
    report.assert_ok()
    assert {f"{function.name}.{name}" for name in function.intermediates} <= {row.name for row in report.rows}
    assert not [row for row in report.rows if row.problem]


@pytest.mark.parametrize(("function", "wrong"), WRONG, ids=WRONG_NAMES)
def test_wrong_functions_are_rejected_at_the_worst_entry(function: Function, wrong: int) -> None:
    f = function_of(function, wrong)
    try:
        report = verify.gradients(f, *function.inputs())
    except ValueError as error:  # PyTorch itself refuses a gradient of another shape
        assert "backward does not run: RuntimeError" in str(error) and "invalid gradient at index 0" in str(error)
        return
    assert_rejected_rightly(report, function, wrong)


def autograd(name: str, forward: Any, backward: Any) -> Any:
    """A torch.autograd.Function of two functions of a context and tensors."""
    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), parts)


class Around(torch.autograd.Function):
    """An op of ours inside a torch.autograd.Function. Its arrays are the memory of the tensors."""

    @staticmethod
    def forward(ctx: Any, op: Any, *tensors: Any) -> Any:
        y, ctx.pullback = op(*map(array, tensors))
        ctx.floats = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in tensors]
        return torch.from_numpy(np.array(y))

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        found = ctx.pullback(dy.numpy())
        found = iter(found if isinstance(found, tuple) else (found,))
        return None, *(torch.from_numpy(np.array(next(found))) if is_float else None for is_float in ctx.floats)


def array(x: Any) -> Any:
    return x.numpy() if isinstance(x, torch.Tensor) else x


def around(op: Any) -> Any:
    def call(*tensors: Any, **options: Any) -> Any:
        return Around.apply(functools.partial(op, **{key: array(x) for key, x in options.items()}), *tensors)

    return from_torch(call)


# PyTorch converts a gradient to the dtype of its input, and sums one with more axes over these: both come out right.
UNDONE = {"embedding-float32-gradient", "layer-norm-dgamma-one-axis"}
OF_OURS = [mistake for mistake in WRONG_OPS if mistake.name not in UNDONE]


@pytest.mark.parametrize("case", FIRST.values(), ids=FIRST.keys())
def test_our_ops_are_accepted(case: str) -> None:
    assert_accepted_as(around, case)


@pytest.mark.few(170, slow=0)
@pytest.mark.parametrize("mistake", OF_OURS, ids=lambda mistake: mistake.name)
def test_our_ops_with_mistakes_are_rejected(mistake: Mistake) -> None:
    assert_rejected_as(around, mistake)


# PyTorch's own: written by people who never saw this checker.
OWN = {
    "gelu": F.gelu,
    "selu": F.selu,
    "celu": F.celu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "softmin": lambda x: F.softmin(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "glu": F.glu,
    "normalize": F.normalize,
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x)),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cumsum": lambda x: torch.cumsum(x, 0),
    "cdist": lambda x: torch.cdist(x, x[:2] + 1.0),
    "svd": lambda x: torch.linalg.svdvals(x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "roll": lambda x: x.roll(1, 0) * x,
}
MODULES = {
    "Linear": lambda: torch.nn.Linear(4, 3),
    "Bilinear": lambda: torch.nn.Bilinear(4, 4, 2),
    "LayerNorm": lambda: torch.nn.LayerNorm(4),
    "RMSNorm": lambda: torch.nn.RMSNorm(4),
    "BatchNorm1d": lambda: torch.nn.BatchNorm1d(4),
    "PReLU": lambda: torch.nn.PReLU(),
    "GRUCell": lambda: torch.nn.GRUCell(4, 2),
    "TransformerEncoderLayer": lambda: torch.nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
    "Sequential": lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)),
}


@pytest.mark.parametrize("f", OWN.values(), ids=OWN.keys())
def test_functions_of_pytorch_are_accepted(f: Any) -> None:
    verify.gradients(from_torch(f), X).assert_ok()


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())
def test_modules_of_pytorch_are_accepted_with_their_parameters(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    inputs = (X, draw(3, 4, seed=1)) if isinstance(module, torch.nn.Bilinear) else (X,)
    report = verify.gradients(from_torch(module), *inputs)
    report.assert_ok()
    assert {row.name for row in report.of_kind("parameter")} == {name for name, _ in module.named_parameters()}
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


class Doubled(torch.autograd.Function):
    """With setup_context, and a wrong gradient of scale."""

    @staticmethod
    def forward(x: Any, scale: Any) -> Any:
        scaled = x * scale
        return torch.tanh(scaled)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        x, scale, output = ctx.saved_tensors
        grad_scaled = grad_output * (1.0 - output**2)
        return grad_scaled * scale, 2.0 * (grad_scaled * x).sum(0)


def test_what_is_inside_has_names_with_setup_context_and_in_a_module() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 1.5]))

        def forward(self, x: Any) -> Any:
            return Doubled.apply(x, self.scale)

    report = verify.gradients(from_torch(Layer()), X)
    assert {row.name for row in report.rows if not row.ok} == {"scale"}
    assert report["Doubled.scaled"].ok and report["Doubled.scaled"].checked == "12 entries"


def test_two_calls_of_one_function_are_kept_apart() -> None:
    report = verify.gradients(from_torch(lambda x, s: Doubled.apply(Doubled.apply(x, s), s)), X, draw(4))
    assert {"Doubled#1.scaled", "Doubled#2.scaled"} <= {row.name for row in report.rows if row.ok}
    assert not report["s"].ok


def test_it_can_be_stepped_through() -> None:
    steps = str(minitransformer.step(function_of(FUNCTIONS[11]), draw(2, 3)))
    assert "softmax" in steps and "grown" in steps and "of x" in steps


class Flash(torch.autograd.Function):
    """A student's flash attention: backward forgets the causal mask."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
        scale = q.shape[-1] ** -0.5
        scores = q @ k.transpose(-1, -2) * scale
        if is_causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
            scores = scores.masked_fill(~seen, float("-inf"))
        logs = torch.logsumexp(scores, -1, keepdim=True)
        output = torch.exp(scores - logs) @ v
        ctx.save_for_backward(q, k, v, output, logs)
        return output

    @staticmethod
    def backward(ctx: Any, doutput: Any) -> Any:
        q, k, v, output, logs = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        weights = torch.exp(q @ k.transpose(-1, -2) * scale - logs)
        dv = weights.transpose(-1, -2) @ doutput
        dscores = weights * (doutput @ v.transpose(-1, -2) - (doutput * output).sum(-1, keepdim=True))
        return dscores @ k * scale, dscores.transpose(-1, -2) @ q * scale, dv, None


class Tiled(torch.autograd.Function):
    """Forward goes tile by tile, and calls a tile S; backward has dS of all, and a wrong dx."""

    threads: list[int] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        Tiled.threads.append(torch.get_num_threads())
        tiles = []
        for i in range(0, len(x), 2):
            S = x[i : i + 2] * 2.0
            tiles.append(S.tanh())
        y = torch.cat(tiles)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        dS = dy * (1.0 - y * y)
        return dS


def test_a_tile_and_the_gradient_of_all_are_two_things() -> None:
    torch.set_num_threads(2)
    try:
        report = verify.gradients(from_torch(Tiled), X)
        assert torch.get_num_threads() == 2 and set(Tiled.threads) == {1}  # it runs often, on little
    finally:
        torch.set_num_threads(1)
    assert {row.name for row in report.rows if not row.ok} == {"x"}
    assert "not checked: the gradient has shape (3, 4), its array (1, 4)" in str(report)


SEEDED = torch.Generator().manual_seed(0)
QKV = [torch.randn(shape, generator=SEEDED) for shape in ((2, 5, 4), (2, 7, 4), (2, 7, 3))]


def test_a_broken_flash_attention_is_named() -> None:
    verify.check_gradients(Flash.apply, *QKV)
    with pytest.raises(AssertionError, match="The causal mask is forgotten in backward") as raised:
        verify.check_gradients(lambda q, k, v: Flash.apply(q, k, v, True), *QKV)
    assert "worst: dv[" in str(raised.value) and "(flash-causal-forgotten-in-backward)" in str(raised.value)


def scores_of(q: Any, k: Any, i: int, j: int, causal: bool) -> Any:
    s = q[..., i : i + 4, :] @ k[..., j : j + 4, :].transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None]
    return s.masked_fill(hidden, -1e30) if causal else s


def tiled_attention(*lacks: str) -> Any:
    """Flash attention in tiles of 4, which forgets what `lacks` names. Query i sees the keys up to i, however many.

    Forward goes by queries, then by keys, and backward the other way. p is normalised in backward alone.
    """

    class TiledAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
            outputs, logs = [], []
            for i in range(0, q.shape[-2], 4):
                output, total, largest = 0.0, 0.0, torch.full((*q[..., i : i + 4, :].shape[:-1], 1), -torch.inf)
                for j in range(0, k.shape[-2], 4):
                    s = scores_of(q, k, i, j, causal)
                    larger = torch.maximum(largest, s.amax(-1, keepdim=True))
                    p = torch.exp(s - larger)
                    factor = torch.exp(largest - larger)
                    total = factor * total + p.sum(-1, keepdim=True)
                    output = (1.0 if "factor" in lacks else factor) * output + p @ v[..., j : j + 4, :]
                    largest = larger
                outputs.append(output / total)
                logs.append(largest + torch.log(total))
            output, log = torch.cat(outputs, -2), torch.cat(logs, -2)
            ctx.save_for_backward(q, k, v, output, log)
            ctx.causal = causal
            return output

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            q, k, v, output, log = ctx.saved_tensors
            grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
            delta = 0.0 * log if "delta" in lacks else (grad_output * output).sum(-1, keepdim=True)
            scale = q.shape[-1] ** -0.5
            for j in range(0, k.shape[-2], 4):
                for i in range(0, q.shape[-2], 4):
                    rows, keys = (..., slice(i, i + 4), slice(None)), (..., slice(j, j + 4), slice(None))
                    s = scores_of(q, k, i, j, ctx.causal)
                    p = torch.exp(s - log[rows])
                    grad_v[keys] += p.transpose(-1, -2) @ grad_output[rows]
                    grad_p = grad_output[rows] @ v[keys].transpose(-1, -2)
                    grad_s = p * (grad_p - delta[rows])
                    grad_q[rows] += grad_s @ k[keys] * (1.0 if "scale" in lacks else scale)
                    grad_k[keys] += grad_s.transpose(-1, -2) @ q[rows] * scale
            return grad_q, grad_k, grad_v, None

    return TiledAttention


P_IS_ANOTHER = "TiledAttention.p: not checked: p has other values in backward"


@pytest.mark.few(4, slow=0)  # each mistake, and each mask
@pytest.mark.parametrize(("causal", "keys"), [(False, 15), (True, 13), (True, 15)])
@pytest.mark.parametrize(
    ("lacks", "named", "wrong", "output"),
    [
        ("scale", "attention-dq-not-scaled", "dq is wrong", "right"),
        ("delta", "softmax-no-sum", "dq, dk are wrong", "right"),
        ("factor", "flash-old-output-not-corrected", "dq, dk, dv are wrong", "wrong too"),
    ],
)
def test_a_mistake_in_tiles_is_named_and_nothing_else_blamed(
    lacks: str, named: str, wrong: str, output: str, causal: bool, keys: int
) -> None:
    """Also for a causal mask that begins at the first key, where ours ends at the last."""
    q, k, v = (torch.tensor(draw(2, *shape, seed=i)) for i, shape in enumerate([(13, 4), (keys, 4), (keys, 3)]))
    right, wrong_one = tiled_attention(), tiled_attention(lacks)
    verify.check_gradients(lambda q, k, v: right.apply(q, k, v, causal), q, k, v)
    with pytest.raises(AssertionError) as raised:
        verify.check_gradients(lambda q, k, v: wrong_one.apply(q, k, v, causal), q, k, v, op="attention")
    first, second, *rest = str(raised.value).splitlines()
    assert first.startswith(f"the function: {wrong}") and second.endswith(f"({named}) Its output is {output}.")
    read = "With as many keys as queries" in second or "its mask begins at the first key" in rest[0]
    assert read == (causal and keys > 13)
    assert [line for line in rest if "TiledAttention.p" in line] == [P_IS_ANOTHER]  # grad_p is right
    assert first.endswith("; the gradient of TiledAttention.s is wrong") == (lacks != "scale")
    assert len([line for line in rest if "TiledAttention.s[" in line]) == (10 if causal else 16)


def test_a_mistake_that_nobody_knows_is_said_to_be_unknown() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    cubed = autograd("Cubed", forward, lambda ctx, dy: 7.0 * ctx.saved_tensors[0] * dy)
    with pytest.raises(AssertionError, match="It does what no known mistake of any op does"):
        verify.check_gradients(cubed.apply, torch.tensor(X))


def test_a_right_backward_of_a_wrong_forward_is_refused_where_the_op_is_named() -> None:
    q, k, v = (torch.tensor(draw(2, *shape, seed=i)) for i, shape in enumerate([(5, 4), (7, 4), (7, 3)]))
    for causal in (False, True):
        verify.check_gradients(lambda q, k, v: tiled_attention().apply(q, k, v, causal), q, k, v, op="attention")  # noqa: B023
    verify.check_gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.25), q, k, v)
    with pytest.raises(AssertionError, match="its output is not that of attention"):
        verify.check_gradients(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.25), q, k, v, op="attention"
        )
    with pytest.raises(ValueError, match="there is no op 'atention'; expected one of add"):
        verify.check_gradients(lambda q: q, q, op="atention")


class Narrow(torch.autograd.Function):
    """Code that computes in float32 whatever it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = torch.tanh(x.float())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return dy * (1.0 - y * y) * Narrow.factor

    factor = 1.0


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.001, True), (1.1, False)])
def test_float32_alone_is_checked_as_closely_as_it_allows(
    factor: float, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Narrow, "factor", factor)
    with pytest.raises(TypeError, match=r'computes in float32 although its inputs are float64; with .*dtype="float32"'):
        verify.gradients(from_torch(Narrow), X)
    report = verify.gradients(from_torch(Narrow, dtype="float32"), X)
    assert report.ok is right and "errors below 1% of a gradient are not seen" in str(report)
    if right:
        assert "float32" in verify.check_gradients(Narrow.apply, torch.randn(3, 4)).note
    else:
        with pytest.raises(AssertionError, match="It computes in float32"):
            verify.check_gradients(Narrow.apply, torch.randn(3, 4))


STATE: list[int] = []


def counting(x: Any) -> Any:
    STATE.append(1)
    return x * len(STATE)


def twice(ctx: Any, x: Any) -> Any:
    return x * 2.0


Short = autograd("Short", twice, lambda ctx, dy: dy[:2] * 2.0)  # a gradient of another shape than its input
Noisy = autograd("Noisy", twice, lambda ctx, dy: dy * torch.rand(()))  # a gradient with noise of its own
Counting = autograd("Counting", twice, lambda ctx, dy: counting(dy))  # a gradient that changes with each call

BAD: list[tuple[Any, str]] = [
    (torch.nn.Dropout(), "Dropout gives a different output .* it draws random numbers of its own"),
    (counting, "counting gives a different output .* it keeps state from run to run"),
    (lambda x: (x > 0.0, [3]), "must return a floating-point array, or several, got"),
    (lambda x: x.detach() * 2.0, "autograd cannot follow it; it may use detach, no_grad or NumPy inside"),
    (lambda x: x.missing, "<lambda>: forward does not run: AttributeError: 'Tensor' object has no attribute 'missing'"),
    (lambda x: x.numpy() + 1.0, "forward does not run: RuntimeError: Can't call numpy"),
    (lambda x: x.to("meta"), "its output lives on the device meta, which has no numbers"),
    (lambda x: torch.cat([counting(x)] * len(STATE)), "gives a different output .*even its shape changes"),
    (Short, r"Short: backward does not run: .* got \[2, 4\] but expected shape compatible with \[3, 4\]"),
    (
        lambda x: x @ torch.ones(4, 2),
        r'does not run: .*; if it works only in float32: from_torch\(f, dtype="float32"\)',
    ),
    (lambda x: x.half(), "computes in float16 although its inputs are float64"),
    (torch.nn.Linear, "make an object of the class Linear first"),
    (3, "expected a function, a torch.autograd.Function or a module, got 3"),
]


@pytest.mark.parametrize(("f", "why"), [(Noisy, "it draws random numbers of its own"), (Counting, "it keeps state")])
def test_a_backward_that_gives_another_gradient_says_why(f: Any, why: str) -> None:
    report = verify.gradients(from_torch(f), X)
    assert f"backward gives a different gradient when called again; {why}" in report["x"].problem


@pytest.mark.parametrize(("f", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_what_cannot_be_checked_says_why(f: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verify.gradients(from_torch(f), X)


def test_parameters_and_inputs_without_numbers_say_so() -> None:
    with pytest.raises(ValueError, match="from_torch: weight lives on the device meta, which has no numbers"):
        from_torch(torch.nn.Linear(4, 2, device="meta"))
    for check in (verify.check_gradients, lambda f, x: verify.gradients(from_torch(f), x)):
        with pytest.raises(ValueError, match="tanh is given a tensor on the device meta, which has no numbers"):
            check(torch.tanh, torch.ones(3, device="meta"))


def test_a_device_that_is_not_there_says_so() -> None:
    with pytest.raises(ValueError, match="from_torch: the device 'cuda:99' does not run: "):
        from_torch(torch.tanh, device="cuda:99")


def test_tensors_for_a_function_that_is_not_adapted_say_so() -> None:
    with pytest.raises(TypeError, match=r"tanh is given a Tensor; wrap it: verify.from_torch\(f\)"):
        verify.gradients(torch.tanh, torch.randn(3))
    assert verify.gradients(from_torch(torch.tanh), torch.randn(3)).ok


def test_the_generators_of_the_caller_go_on_as_before() -> None:
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    with pytest.raises(ValueError, match="draws random numbers of its own"):
        verify.gradients(from_torch(lambda x: x + torch.from_numpy(np.random.normal(size=4))), X)  # noqa: NPY002
    assert torch.equal(torch.randn(2), expected)


def test_what_ours_computes_in_torch_is_diagnosed() -> None:
    q, k, v = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 6, seed=2)
    f = from_torch(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    assert verify.diagnose(f, "attention").right
    f = from_torch(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0))
    assert [m.name for m in verify.diagnose(f, "attention", q, k, v).mistakes] == ["attention-not-scaled"]
    assert ops.attention is not None


# ------------------------------------------------------------- strides, what is not checked, numbers that hide, outputs


class Flat(torch.autograd.Function):
    """Kernels that read memory as if it were contiguous, in forward or in backward."""

    where = ""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        x = torch.as_strided(x, x.shape, (x.shape[1], 1)) if Flat.where == "forward" else x
        return x * x

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        dy = torch.as_strided(dy, dy.shape, (dy.shape[1], 1)) if Flat.where == "backward" else dy
        return 2.0 * ctx.saved_tensors[0] * dy


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("where", ["", "forward", "backward"])
def test_kernels_that_ignore_strides_are_rejected(where: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flat, "where", where)
    report = verify.gradients(from_torch(Flat, dtype=dtype), X)
    assert report.ok is (not where) and ("when arrays are transposed or have gaps" in str(report)) is bool(where)


def test_code_that_refuses_a_layout_is_not_wrong_but_its_backward_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    verify.gradients(from_torch(lambda x: torch.tanh(x.view(6, 2))), X).assert_ok(everything=True)
    monkeypatch.setattr(Flat, "where", "backward")
    assert not verify.gradients(from_torch(lambda x: Flat.apply(x.view(6, 2))), X).ok


class OwnNorm(torch.nn.Module):
    """LayerNorm whose γ and β learn, are frozen, plain tensors or buffers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        for name, value in (("gamma", torch.linspace(0.5, 1.5, 4)), ("beta", torch.zeros(4))):
            if kind == "buffer":
                self.register_buffer(name, value.double())
            else:
                own = value.double()
                setattr(
                    self, name, own if kind == "plain" else torch.nn.Parameter(own, requires_grad=kind == "learned")
                )

    def forward(self, x: Any) -> Any:
        return F.layer_norm(x, (4,), self.gamma, self.beta)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("frozen", "; not checked: gamma, beta (requires_grad is False)"),
        ("plain", "; not checked: gamma, beta (a plain tensor, not a torch.nn.Parameter)"),
        ("learned", ""),
        ("buffer", ""),  # by design a number that nobody learns
    ],
)
def test_what_a_module_does_not_learn_stands_in_the_first_line(kind: str, said: str) -> None:
    report = verify.gradients(from_torch(OwnNorm(kind)), X)
    assert report.ok and str(report).partition("\n")[0].endswith(said)
    assert ("gamma" in report.unchecked) is bool(said)
    if said:
        with pytest.raises(AssertionError, match=r"not everything was checked: .*gamma, beta"):
            verify.check_gradients(OwnNorm(kind), torch.tensor(X), everything=True)


class Counting(torch.nn.Module):
    """It counts its calls and writes down the mean that it saw, in buffers, as BatchNorm does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("seen", torch.tensor([0.25, -0.5], dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        y = x * (1.0 + self.calls) + self.seen[0] * self.seen[1]
        self.calls += 1
        self.seen += x.detach().mean()
        return y


def test_arrays_that_may_not_be_written_to_are_taken() -> None:
    x = X.copy()
    x.flags.writeable = False  # PyTorch warns of such arrays, because its tensors can be written to
    np.testing.assert_allclose(from_torch(torch.tanh)(x)[0], np.tanh(X))


def test_what_a_module_writes_into_its_buffers_stays_in_one_call() -> None:
    module = Counting()
    verify.gradients(from_torch(module), X).assert_ok(everything=True)
    assert module.calls == 0 and module.seen.tolist() == [0.25, -0.5]


class Scaled(torch.autograd.Function):
    """x times a weight of a module, which its backward reads again."""

    @staticmethod
    def forward(ctx: Any, x: Any, module: Any) -> Any:
        ctx.module = module
        return x * module.norm.weight

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * ctx.module.norm.weight.detach() * ctx.module.off, None


class RunAgain(torch.nn.Module):
    """What runs again in backward; off: by which factor it is wrong then."""

    def __init__(self, kind: str, off: float) -> None:
        super().__init__()
        self.norm, self.map, self.kind, self.off = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), kind, off
        self.norm.weight.requires_grad_(kind != "function")
        self.runs = 0

    def inner(self, x: Any) -> Any:
        self.runs += 1
        return torch.tanh(self.map(self.norm(x)) * (1.0 if self.runs % 2 else self.off))

    def forward(self, x: Any) -> Any:
        if self.kind == "function":
            return Scaled.apply(self.map(x), self).tanh() + self.norm(x)
        self.runs = 0
        again = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=self.kind == "reentrant")
        return x + again(self.inner, x)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant", "function"])
def test_a_module_that_runs_again_in_backward_has_the_numbers_of_the_check_there(kind: str) -> None:
    """It had those that it was made with, so that the gradients of a right one were called wrong or zero."""
    torch.manual_seed(0)
    x = torch.tensor(X, requires_grad=True)
    with warnings.catch_warnings(action="ignore"):
        verify.check_gradients(RunAgain(kind, 1.0).double(), x, everything=kind != "function")
        assert not verify.gradients(from_torch(RunAgain(kind, 1.1).double()), X).ok


def test_a_row_of_padding_and_a_sparse_gradient_are_by_design() -> None:
    """PyTorch holds back the gradient of the row of padding_idx: the report says so. What else is wrong stays wrong."""

    class Tied(torch.nn.Module):
        def __init__(self, scale: Any) -> None:
            super().__init__()
            self.table, self.scale = torch.nn.Embedding(5, 4, padding_idx=0), scale

        def forward(self, ids: Any) -> Any:
            return torch.tanh(self.scale(self.table(ids))) @ self.table.weight.T

    ids = torch.tensor([[0, 2, 2], [4, 0, 1]])
    for f, inputs in [
        (torch.nn.Embedding(5, 4, padding_idx=0), (ids,)),
        (lambda ids, table: F.embedding(ids, table, padding_idx=2), (ids, torch.tensor(draw(5, 4)))),
        (Tied(lambda h: 2.0 * h), (ids,)),
    ]:
        report = verify.check_gradients(f, *inputs)
        assert "padding_idx of an embedding (PyTorch holds back the gradient of that row" in str(report).split("\n")[0]
    report = verify.gradients(from_torch(Tied(lambda h: h * h.detach())), ids.numpy())
    assert not report.ok and "f detaches a tensor" in report.note

    def two(x: Any) -> Any:
        h = 3.0 * x
        return x * x.detach(), h.sum()  # held, h takes the second output from autograd

    assert not verify.gradients(from_torch(two), X).ok
    for option, value in {"scale_grad_by_freq": True, "max_norm": 0.5}.items():
        made = torch.nn.Embedding(5, 4, **{option: value}), torch.nn.EmbeddingBag(5, 4, mode="sum", **{option: value})
        for f in made:
            before = f.weight.detach().clone()
            report = verify.check_gradients(f, ids)
            assert report.unchecked == (f"{option} of an embedding",) and (f.weight == before).all()
    verify.check_gradients(torch.nn.EmbeddingBag(5, 4, mode="sum", padding_idx=0), ids, everything=True)
    verify.check_gradients(torch.nn.Embedding(5, 4, sparse=True), ids, op="embedding", everything=True)


def test_a_module_that_lists_its_parameters_twice_and_returns_its_state_is_checked_whole() -> None:
    report = verify.check_gradients(torch.nn.LSTM(4, 2, batch_first=True), torch.tensor(X)[None], everything=True)
    assert len(report.of_kind("parameter")) == 4


def test_parameters_that_a_function_holds_stand_in_the_first_line() -> None:
    linear = torch.nn.Linear(4, 2).double()
    report = verify.gradients(from_torch(lambda x: linear(x)), X)
    shapes = {"a parameter of shape (2, 4)", "a parameter of shape (2,)"}
    assert report.ok and shapes <= set(report.unchecked)
    assert "(which f holds; give the module itself" in str(report).partition("\n")[0]
    assert not shapes & set(verify.gradients(from_torch(linear), X).unchecked)


class Outside(torch.autograd.Function):
    """LayerNorm with γ outside the sums."""

    @staticmethod
    def forward(ctx: Any, x: Any, gamma: Any) -> Any:
        r = (x.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
        h = (x - x.mean(-1, keepdim=True)) * r
        ctx.save_for_backward(h, r, gamma)
        return h * gamma

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        h, r, gamma = ctx.saved_tensors
        dx = gamma * r * (dy - dy.mean(-1, keepdim=True) - h * (dy * h).mean(-1, keepdim=True))
        return dx, (dy * h).reshape(-1, dy.shape[-1]).sum(0)


@pytest.mark.parametrize("kind", ["learned", "frozen", "buffer"])
def test_a_mistake_that_ones_hide_is_seen(kind: str) -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if kind == "buffer":
                self.register_buffer("gamma", torch.ones(4))
            else:
                self.gamma = torch.nn.Parameter(torch.ones(4), requires_grad=kind == "learned")

        def forward(self, x: Any) -> Any:
            return Outside.apply(x, self.gamma)

    module = Module()
    report = verify.gradients(from_torch(module), X)
    assert not report["x"].ok and "because gamma is constant or one-hot" in report.note
    assert torch.equal(module.gamma, torch.ones(4))
    assert not verify.gradients(from_torch(Outside), X, np.ones(4))["x"].ok


class WithLog(torch.autograd.Function):
    """Softmax and its logarithm of the sum, as attention kernels return it; forgets: dlog."""

    forgets = False

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        log = torch.logsumexp(x, -1)
        weights = torch.exp(x - log[:, None])
        ctx.save_for_backward(weights)
        return weights, log

    @staticmethod
    def backward(ctx: Any, dweights: Any, dlog: Any) -> Any:
        (weights,) = ctx.saved_tensors
        dx = weights * (dweights - (dweights * weights).sum(-1, keepdim=True))
        return dx if WithLog.forgets else dx + weights * dlog[:, None]


def test_functions_of_several_outputs_are_checked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    as_dict = from_torch(lambda x: {"weights": WithLog.apply(x)[0], "rest": [WithLog.apply(x)[1], None, 3]})
    detached = from_torch(lambda x: (lambda weights, log: (weights, log.detach()))(*WithLog.apply(x)))
    for f in (from_torch(WithLog), as_dict):
        assert verify.gradients(f, X).ok
        assert first_output(f).made_by == f.made_by  # which decides what a softmax may hold
    verify.check_gradients(WithLog.apply, torch.tensor(X, dtype=torch.float32))
    monkeypatch.setattr(WithLog, "forgets", True)
    for f in (from_torch(WithLog), as_dict):
        assert not verify.gradients(f, X)["x"].ok
    report = verify.gradients(detached, X)
    assert report.ok and "; not checked: output[1] (autograd does not follow it)" in str(report).partition("\n")[0]


def test_gaps_in_memory_reach_every_output() -> None:
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2.0 * x, 3.0 * x

        @staticmethod
        def backward(ctx: Any, one: Any, two: Any) -> Any:
            return 2.0 * one + 3.0 * torch.as_strided(two, two.shape, (two.shape[1], 1))

    assert "when arrays are transposed or have gaps" in verify.gradients(from_torch(Two), X)["x"].problem
