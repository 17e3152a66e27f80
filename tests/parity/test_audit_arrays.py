"""Audits of suites that test functions of PyTorch's tensors and of JAX's arrays."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from minitransformer import ops
from minitransformer.check.audit import audit, jax_arrays, tensors

# What both suites share: the student's file, and how its function becomes ours.
WORK = """
def softmax(x):
    raise NotImplementedError
"""
TOML = """
title = "a suite"
arrays = "LIBRARY"

[[functions]]
ops = ["softmax"]
replaces = "work:softmax"
call = "lambda x: softmax(x, axis=-1)"
tests = ["test_work.py::test_softmax"]
inputs = ["(r.normal(size=(2, 3)) + r.integers(2) * 800.0,)"]
"""
# It asks for the gradient of the sum, which is zero.
WEAK = {
    "torch": """
import torch, work

def test_softmax():
    x = torch.randn(3, 4, requires_grad=True)
    y = work.softmax(x)
    y.sum().backward()
    assert torch.allclose(y, torch.softmax(x, -1)) and torch.allclose(x.grad, torch.zeros(3, 4), atol=1e-6)
""",
    "jax": """
import jax, jax.numpy as jnp, work

X = jax.random.normal(jax.random.key(0), (3, 4))  # before any fork, as in many suites

def test_softmax():
    assert jnp.allclose(work.softmax(X), jax.nn.softmax(X), atol=1e-6)
    assert jnp.allclose(jax.jit(jax.grad(lambda x: work.softmax(x).sum()))(X), 0.0, atol=1e-6)
""",
}
BREAKS = """
import jax, jax.numpy as jnp, work

X, BROKEN = jax.random.normal(jax.random.key(0), (3, 4)), []

def test_silu():
    BROKEN.append(1)
    assert len(BROKEN) == 1
    assert jnp.allclose(work.silu(X), jax.nn.silu(X), atol=1e-6)
"""


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_what_a_weak_suite_lets_pass(library: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "test_work.py").write_text(WEAK[library])
    (tmp_path / "suite.toml").write_text(TOML.replace("LIBRARY", library))
    _, (result,) = audit(tmp_path / "suite.toml", tmp_path)
    assert result.right == "passed", result.problem
    found = {outcome.mistake: outcome for outcome in result.outcomes}
    assert found["softmax-plain-mean"].verdict == found["softmax-overflows"].verdict == "survived"
    assert found["softmax-plain-mean"].shows.startswith("gradient 0 is off by")
    assert found["softmax-overflows"].shows == "the output is not finite where it should be"
    assert found["softmax-no-sum"].verdict == "caught"


def test_what_a_failed_test_leaves_behind_spoils_no_other_verdict(tmp_path: Path) -> None:
    """JAX's tests run in one process for all mistakes. Here the first that is caught leaves the suite broken."""
    (tmp_path / "work.py").write_text(WORK.replace("softmax", "silu"))  # which has few mistakes: each starts JAX
    (tmp_path / "test_work.py").write_text(BREAKS)
    described = TOML.replace("LIBRARY", "jax").replace(", axis=-1", "").replace("softmax", "silu")
    (tmp_path / "suite.toml").write_text(described)
    told: list[str] = []
    _, (result,) = audit(tmp_path / "suite.toml", tmp_path, progress=told.append)
    assert any("a test left something behind" in line for line in told)
    assert {each.mistake for each in result.of("survived")} >= {"silu-sigmoid-only", "silu-x-for-y"}
    assert len({each.mistake for each in result.outcomes}) == len(result.outcomes) == result.known


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_library_that_is_not_installed_is_named(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite.toml").write_text(TOML.replace("LIBRARY", library))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = rf'suite.toml says arrays = "{library}", and {library} is not installed: .*"minitransformer\[{library}\]"'
    with pytest.raises(ImportError, match=said):
        audit(tmp_path / "suite.toml", tmp_path)


# ------------------------------------------------------------------------------------------ our ops for these libraries


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


Q, K, V = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 6, seed=2)
MASK = np.tril(np.ones((3, 5), bool), 1)


def both(f: Any, g: Any, *arrays: np.ndarray) -> None:
    """f on JAX's arrays has the values and gradients of g, which is PyTorch's, on tensors."""
    leaves = [torch.from_numpy(x).requires_grad_() for x in arrays]
    y, pull = jax.vjp(f, *map(jnp.asarray, arrays))
    wanted = g(*leaves)
    dy = draw(*y.shape, seed=9)
    np.testing.assert_allclose(y, wanted.detach(), rtol=1e-4, atol=1e-5)
    for dx, x in zip(pull(jnp.asarray(dy)), torch.autograd.grad(wanted, leaves, torch.from_numpy(dy)), strict=True):
        np.testing.assert_allclose(dx, x, rtol=1e-4, atol=1e-5)


def test_ops_of_jax_arrays_have_pytorchs_values_and_gradients() -> None:
    attention, loss = jax_arrays.adapted(ops.attention), jax_arrays.adapted(ops.cross_entropy)
    embedding = jax_arrays.adapted(ops.embedding)
    theirs = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.from_numpy(MASK))  # noqa: E731
    for around in (lambda f: f, jax.jit):
        both(around(lambda q, k, v: attention(q, k, v, mask=jnp.asarray(MASK))), theirs, Q, K, V)
    both(jax.vmap(lambda q, k, v: attention(q, k, v, mask=MASK)), theirs, Q, K, V)
    ids = np.array([1, 0, 1])
    both(lambda x: loss(x, jnp.asarray(ids)), lambda x: F.cross_entropy(x, torch.from_numpy(ids)), draw(3, 4))
    both(lambda w: embedding(jnp.asarray(ids), w), lambda w: F.embedding(torch.from_numpy(ids), w), draw(4, 2))


def test_what_two_libraries_see_is_the_same() -> None:
    inputs = (Q.astype(float), K.astype(float), V.astype(float))
    of_torch = tensors.results(tensors.adapted(ops.attention), inputs, seed=3)
    of_jax = jax_arrays.results(jax_arrays.adapted(ops.attention), inputs, seed=3)
    assert of_torch.keys() == of_jax.keys() == {"the output", "gradient 0", "gradient 1", "gradient 2"}
    for name, x in of_torch.items():
        np.testing.assert_allclose(of_jax[name], x, rtol=1e-4, atol=1e-5)
    assert jax_arrays.results(jax_arrays.adapted(ops.attention), inputs, seed=None).keys() == {"the output"}
