"""Code of others that computes in float32 inside, or in 16 bits alone."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from minitransformer import verify  # noqa: E402


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rms_norm(x: Any, w: Any) -> Any:
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * w


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1, dtype=torch.float32).to(q.dtype) @ v


INSIDE: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "rms_norm": (rms_norm, [draw(2, 6), draw(6, seed=1)]),
    "attention": (attention, [draw(3, 4), draw(4, 4, seed=1), draw(4, 3, seed=2)]),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", INSIDE)
def test_float32_inside_is_right(name: str, dtype: str) -> None:
    f, inputs = INSIDE[name]
    report = verify.check_gradients(f, *(x.to(getattr(torch, dtype)) for x in inputs))
    assert "as code that computes in float32 inside does" in report.note


class Forgets(torch.autograd.Function):
    """RMSNorm in float32 inside, whose backward holds the root for a constant."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        h = x.float()
        r = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(r)
        return (h * r).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (r,) = ctx.saved_tensors
        return (dy.float() * r).to(dy.dtype)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_wrong_backward_with_float32_inside_is_seen(dtype: str) -> None:
    with pytest.raises(AssertionError, match="Forgets: dx is wrong"):
        verify.check_gradients(Forgets.apply, draw(2, 6).to(getattr(torch, dtype)))


# ------------------------------------------------------------------------------------------------------------ 16 bits


class Half(torch.autograd.Function):
    """tanh, for 16 bits alone."""

    wrong: Callable[[Any, Any], Any] = staticmethod(lambda dy, slope: dy * slope)

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise TypeError("this kernel takes only float16 and bfloat16")
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return Half.wrong(dy, 1 - torch.tanh(x) ** 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_kernel_that_takes_16_bits_alone_is_checked(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(3, 4).to(getattr(torch, dtype))
    assert f"It computes in {dtype}: errors below" in verify.check_gradients(Half.apply, x).note
    for wrong in (lambda dy, slope: -dy * slope, lambda dy, slope: 2 * dy * slope, lambda dy, slope: dy):
        monkeypatch.setattr(Half, "wrong", staticmethod(wrong))
        with pytest.raises(AssertionError, match="Half: dx is wrong"):
            verify.check_gradients(Half.apply, x)


class Scale(torch.autograd.Function):
    """x γ, with dγ summed row by row: in the dtype of x, or in float32 if `wide`."""

    wide = False

    @staticmethod
    def forward(ctx: Any, x: Any, gamma: Any) -> Any:
        ctx.save_for_backward(x, gamma)
        return x * gamma

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, gamma = ctx.saved_tensors
        terms = dy * x if dy.dtype is torch.float64 else (dy * x).to(torch.float32 if Scale.wide else dy.dtype)
        dgamma = torch.zeros_like(terms[0])
        for row in terms:
            dgamma = dgamma + row
        return dy * gamma, dgamma.to(dy.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sum_in_16_bits_is_seen(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 it is right; in 16 bits the sum over 600 rows drifts."""
    x, gamma = (array.to(getattr(torch, dtype)) for array in (draw(600, 4), draw(4, seed=1)))
    with pytest.raises(AssertionError, match=f"dgamma is wrong(.|\n)*in {dtype} it is off by .* is a sum kept in"):
        verify.check_gradients(Scale.apply, x, gamma)
    monkeypatch.setattr(Scale, "wide", True)
    verify.check_gradients(Scale.apply, x, gamma)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_in_16_bits_is_as_near_as_they_allow(dtype: str) -> None:
    q, k, v = (draw(2, n, 4, seed=n).to(getattr(torch, dtype)) for n in (5, 7, 7))
    verify.check_gradients(lambda q, k, v: torch.softmax(3 * q @ k.mT, -1) @ v, q, k, v)


@pytest.mark.parametrize("seed", [0, 2, 9])
def test_softmax_that_is_nearly_one_hot_is_right_in_16_bits(seed: int) -> None:
    """It keeps its output, which 16 bits round to 1."""
    x, w, b = (draw(*shape, seed=seed + i).bfloat16() for i, shape in enumerate(((5, 6), (6, 2), (2,))))
    verify.check_gradients(lambda x, w, b: torch.softmax(2 * (x @ w) + b, -1), x, w, b)


def test_a_number_at_the_end_of_a_domain_is_not_moved_out_of_it_in_16_bits() -> None:
    """Labels of 1: f is not defined above them, and a comparison with nan called any gradient wrong."""
    labels = torch.eye(3, dtype=torch.bfloat16)
    verify.check_gradients(lambda x, p: torch.tanh(x) * (1 - p) ** 1.5, draw(3, 3).bfloat16(), labels)


class Keys(torch.nn.Module):
    """Attention of x to itself. No weight depends on the bias of the keys, so its gradient is zero but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.query(x) @ self.key(x).mT / 8**0.5, -1) @ x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_gradient_whose_terms_cancel_may_be_rounding_in_16_bits(dtype: str) -> None:
    """It was called wrong, by 10^15 %."""
    torch.manual_seed(0)
    verify.check_gradients(Keys().to(getattr(torch, dtype)), draw(2, 5, 8).to(getattr(torch, dtype)))


@pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
def test_a_checkpoint_that_takes_no_other_way_into_autograd_runs() -> None:
    """What a module inside it has learned stays as it was, and is not passed over in silence."""
    inner = torch.nn.Linear(4, 5).double()
    inner.bias.grad = torch.ones(5).double()

    def through(f: Any) -> Any:
        return lambda x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=True)

    x = draw(3, 4).double().requires_grad_()
    assert str(verify.check_gradients(through(torch.tanh), x)).partition(",")[0].endswith("all 1 gradients are right")
    first = str(verify.check_gradients(through(inner), x)).splitlines()[0]
    assert "all 1 gradients are right" in first and "a parameter of shape (5, 4) (which f holds" in first
    assert inner.weight.grad is None and bool((inner.bias.grad == 1.0).all())


def test_a_network_is_right_on_padded_tokens() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 6, bias=False), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    x = draw(2, 3, 4)
    x[1, 1:] = 0.0
    verify.check_gradients(network, x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norms_attention_and_delta_rules_of_hugging_face_are_right(dtype: str) -> None:
    """Untouched, and float32 inside."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, eager_attention_forward
    from transformers.models.qwen3_next.modeling_qwen3_next import (
        torch_chunk_gated_delta_rule,
        torch_recurrent_gated_delta_rule,
    )

    def drawn(*shape: int, seed: int = 0) -> Any:
        return draw(*shape, seed=seed).to(getattr(torch, dtype))

    class Module:
        num_key_value_groups, training = 1, False

    for kind in (LlamaRMSNorm, Gemma2RMSNorm):
        norm = kind(6)
        norm.weight.data = draw(6)
        verify.check_gradients(norm, drawn(2, 3, 6, seed=1))
    q, k, v = (drawn(1, 2, 4, 3, seed=seed) for seed in range(3))
    verify.check_gradients(lambda q, k, v: eager_attention_forward(Module, q, k, v, None, 0.5)[0], q, k, v)
    q, k, v = (drawn(1, 4, 1, 3, seed=seed) for seed in range(3))
    g, b = -drawn(1, 4, 1, seed=3).abs(), drawn(1, 4, 1, seed=4).sigmoid()
    for rule, more in ((torch_chunk_gated_delta_rule, {"chunk_size": 2}), (torch_recurrent_gated_delta_rule, {})):
        more |= {"initial_state": None, "output_final_state": False}
        verify.check_gradients(lambda *x, rule=rule, more=more: rule(*x, **more)[0], q, k, v, g, b)
