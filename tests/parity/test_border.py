"""What others' code meets first, in PyTorch and JAX."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers
from common import draw

from minitransformer import verify
from minitransformer.run.published_models import check_model


class Attention(torch.autograd.Function):
    """causal is an argument without a gradient; dq is twice too large."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
        scores = q @ k.mT
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        q, k, v, weights = ctx.saved_tensors
        dweights = dy @ v.mT
        dscores = weights * (dweights - (dweights * weights).sum(-1, keepdim=True))
        return 2.0 * dscores @ k, dscores.mT @ q, weights.mT @ dy, None


@pytest.mark.parametrize("op", [None, "attention"])
def test_a_flag_may_stand_among_the_tensors(op: str | None) -> None:
    q, k, v = (torch.tensor(draw(2, 6, 4, seed=i)) for i in range(3))
    with pytest.raises(AssertionError, match=r"Attention: dq is wrong\n"):
        verify.check_gradients(Attention.apply, q, k, v, True, op=op)


IN_TORCH_FUNC = {
    "vmap": lambda x: torch.func.vmap(lambda row: row * row.sum())(x),
    "grad": lambda x: torch.func.grad(lambda x: (x**3).sum())(x),
    "jacrev": lambda x: torch.func.jacrev(lambda x: (x**3).sum())(x),
    "jacfwd": lambda x: torch.func.jacfwd(lambda x: (x**3).sum(0))(x),
    "sparse": lambda x: torch.sparse.mm(torch.eye(3, dtype=x.dtype).to_sparse(), x),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # jacfwd itself uses it
@pytest.mark.parametrize("f", IN_TORCH_FUNC.values(), ids=IN_TORCH_FUNC.keys())
def test_tensors_without_numbers_of_their_own_may_be_inside(f: Any) -> None:
    def named(x: Any) -> Any:
        inside = torch.eye(3, dtype=x.dtype).to_sparse()  # the tracer sees this name
        return f(x) + 0.0 * inside.to_dense().sum()

    verify.check_gradients(f, torch.tensor(draw(3, 2)))
    verify.check_gradients(named, torch.tensor(draw(3, 2)))


TARGET = """
import jax, jax.numpy as jnp, numpy as np
from minitransformer import verify
from minitransformer.run.published_models import check_model

def products(q, k):
    return jnp.einsum("qd,kd->qk", q, k)

x = np.random.default_rng(0).normal(size=(2, 2, 2))
report = verify.gradients(verify.from_jax(products), x[0], x[1])
report.assert_ok()
assert not report.of_kind("intermediate"), str(report)
print(jax.__file__)
"""


@pytest.mark.parametrize("installed", [True, False], ids=["installed", "cloned"])
def test_jax_in_a_folder_of_its_own_is_not_the_users_code(installed: bool, tmp_path: Path) -> None:
    """As after pip install --target, or as a clone of its repository."""
    home = Path(jax.__file__).parent.parent
    for name in [f"jax-{jax.__version__}.dist-info", "jax"][not installed :]:
        (tmp_path / name).symlink_to(home / name)
    (tmp_path / "script.py").write_text(TARGET)
    command = [sys.executable, str(tmp_path / "script.py")]  # Python looks into the script's folder first
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.stdout == f"{tmp_path}/jax/__init__.py\n", found.stderr


def test_a_half_built_tracer_of_jax_can_be_recorded() -> None:
    def inside(x: Any) -> Any:
        tracer = jax.core.Tracer.__new__(jax.core.Tracer)
        return 2.0 * x + 0.0 * isinstance(tracer, str)

    verify.gradients(verify.from_jax(inside), draw(3)).assert_ok()


def test_the_first_layer_of_an_untrained_bart_is_right(tmp_path: Path) -> None:
    """Its loss hardly depends on the first layer: the gradients there are below 1e-6."""
    small = {"encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    small |= {"vocab_size": 20, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    torch.manual_seed(0)
    transformers.BartForConditionalGeneration(transformers.BartConfig(**small)).save_pretrained(tmp_path)
    report = check_model(tmp_path, 1)
    assert report.ok, str(report)
    assert abs(report["layer 1: self_attention.sublayer.query.weight"].hand) < 1e-6


EMPTY = draw(3, 4)
EMPTY[1] = -np.inf
BY_DESIGN = "does on these inputs. Where nothing is left (every score is masked, or every target ignored) it gives NaN"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_nan_in_a_row_that_is_all_masked_is_said_to_be_by_design(library: str) -> None:
    functions = {"torch": verify.from_torch(lambda x: torch.softmax(x, -1)), "jax": verify.from_jax(jax.nn.softmax)}
    found = verify.diagnose(functions[library], "softmax", EMPTY)
    assert found.right and not found.mistakes and BY_DESIGN in str(found)
    assert "by design" not in str(verify.diagnose(functions[library], "softmax", draw(3, 4)))


def test_a_mean_over_no_targets_is_said_to_be_nan_by_design() -> None:
    f = verify.from_torch(torch.nn.functional.cross_entropy)
    assert BY_DESIGN in str(verify.diagnose(f, "cross_entropy", draw(3, 4), np.array([-100, -100, -100])))
    assert verify.diagnose(f, "cross_entropy").right


def test_nan_that_spreads_or_comes_from_elsewhere_is_a_difference() -> None:
    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return torch.softmax((q @ k.mT / 2.0).masked_fill(~mask, -torch.inf), -1) @ v

    mask = np.tril(np.ones((3, 3), dtype=bool))
    mask[1] = False
    found = verify.diagnose(verify.from_torch(attention), "attention", *(draw(3, 4, seed=i) for i in range(3)), mask)
    assert found.differing == ("dv",) and "by design" in str(found)  # NaN reaches every row of dv
    constant = np.ones((2, 4))
    ones = (np.ones(4), np.zeros(4))
    norm = verify.from_torch(lambda x, g, b: torch.nn.functional.layer_norm(x, (4,), g, b, eps=0.0))
    assert not verify.diagnose(norm, "layer_norm", constant, *ones).right
    wrong = verify.from_torch(lambda x: 2.0 * torch.softmax(x, -1))
    assert "the output" in verify.diagnose(wrong, "softmax", EMPTY).differing
