"""`minitransformer check` runs every form that training can take, says which, and finds a wrong one."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minitransformer import ops
from minitransformer.check.verify.catalogue import Case
from minitransformer.cli import main
from minitransformer.fast import ops as fast_ops
from minitransformer.run.fast import attention as attention_kernel
from minitransformer.run.fast import attention_loops, cross_entropy, decoding_loops, loops, row_blocks, sublayer_loops
from minitransformer.run.fast.check import forms
from minitransformer.run.fast.large_cases import LARGE
from minitransformer.verify import CASES


def names(case: Case) -> set[str]:
    return {form.name for form in forms(case)}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LARGE)
def test_a_large_case_passes_in_every_form(name: str) -> None:
    found = forms(LARGE[name])
    assert [form.problem for form in found if not form.ok] == []
    assert [form.dtype for form in found] == ["float64", "float32", "float32", "float32"]
    assert any(form.name == "compiled" for form in found) != name.startswith("cross_entropy")  # which has no loop


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["attention with heads", "EncoderLayer", "Transformer recomputed", "Classifier"])
def test_rounding_is_no_mistake(name: str, seed: int) -> None:
    assert [form.problem for form in forms(CASES[name], seed) if not form.ok] == []


def test_the_forms_are_those_that_ran() -> None:
    assert names(CASES["softmax"]) == {"as written"}
    assert names(CASES["linear"]) == {"as written", "compiled"}
    assert names(LARGE["attention in tiles"]) == {"as written", "compiled"}
    assert names(LARGE["attention in tiles, causal"]) == {"NumPy form", "compiled"}
    assert names(LARGE["Adam in three steps"]) == {"as written", "compiled"}
    with row_blocks.numpy_only():
        assert "compiled" not in names(LARGE["attention in tiles"]) | names(CASES["EncoderLayer"])


def test_a_number_of_shape_0_goes_to_the_device() -> None:
    assert all(form.ok for form in forms(CASES["contrastive_loss"], 0, "strict"))


def test_a_kernel_that_declines_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_ops, "attention", fast_ops._fast("attention", Declining, Declining))
    assert names(LARGE["attention in tiles"]) == {"as written"}


@pytest.mark.few(1)
@pytest.mark.parametrize("kernel, case", [
    ("attention", "attention in tiles"),
    ("cross_entropy", "cross_entropy of several blocks"),
    ("layer_norm", "layer_norm of several blocks"),
])  # fmt: skip
def test_a_form_that_declines_what_it_is_made_for_is_found(
    kernel: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_ops, kernel, getattr(ops, kernel))
    assert [form.problem for form in forms(LARGE[case])][-1] == f"the fast form of {kernel} declines"


def test_a_whole_layer_that_leaves_the_work_to_its_parts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublayer_loops, "CURVES", {})
    problems = [form.problem for form in forms(LARGE["EncoderLayer in pre-norm order with relu"])]
    assert problems == ["", "", "", "the fast form of residual_feed_forward declines"]


class Declining:
    @staticmethod
    def attention(*given: Any, **options: Any) -> None:
        return None


def scaled(loop: Callable[..., Any], place: int, factor: float) -> Callable[..., Any]:
    """The loop, but one of the arrays that it fills is too large by a factor."""

    def wrong(*arrays: Any) -> None:
        loop(*arrays)
        arrays[place][...] *= np.float32(factor)

    return wrong


WRONG = {  # where, the name of a loop, which argument it spoils, and the case that must tell
    "gelu's value": (loops, "gelu", 1, "gelu of several blocks"),
    "gelu's slope": (loops, "gelu", 2, "gelu of several blocks"),
    "gelu_tanh's slope": (loops, "gelu_tanh", 2, "gelu by tanh, of several blocks"),
    "layer_norm's output": (loops, "layer_norm", 5, "layer_norm of several blocks"),
    "layer_norm's dγ": (loops, "layer_norm_backward", 5, "layer_norm of several blocks"),
    "adam's square": (loops, "adam", 3, "Adam in three steps"),
    "attention's output": (attention_loops, "attend", 10, "attention in tiles"),
    "attention's dk": (attention_loops, "attend_backward", -2, "attention with 70 keys, causal"),
    "attention's dx": (sublayer_loops, "attention_backward", -2, "EncoderLayer in post-norm order with gelu"),
    "the gradient of a memory": (sublayer_loops, "attention_backward", -3, "DecoderLayer in pre-norm order"),
    "a feed-forward network's y": (sublayer_loops, "feed_forward", -2, "DecoderLayer in post-norm order"),
    "a token's layer": (decoding_loops, "layer", 0, "EncoderLayer on a cache, token by token, with relu"),
    "one of packed weights": (decoding_loops, "layer", 0, "EncoderLayer on a cache, with packed weights"),
    "a product of few rows": (decoding_loops, "product", 4, "linear of one row"),
    "one of a transposed weight": (decoding_loops, "product", 4, "linear by a transposed weight"),
    "what is unpacked": (decoding_loops, "unpack", 2, "EncoderLayer on a cache, with packed weights"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_loop_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module, name, place, case = WRONG[wrong]
    attention_loops.ready()  # compiles what it finds
    monkeypatch.setattr(module, name, scaled(getattr(module, name), place, 1.001))
    assert main(["check", case]) == 1
    out = capsys.readouterr().out
    assert f"{case}: compiled in float32 WRONG: " in out
    assert "float64 WRONG" not in out
    assert "not all of them ok: WRONG" in out


def spoiled(*given: Any) -> Any:
    y, backward = ops.attention(*given)
    return y, lambda dy: [dx * factor for dx, factor in zip(backward(dy), (1.0, 1.001, 1.0), strict=True)]


NUMPY: dict[str, tuple[Any, str, Any, str]] = {
    "a sum": (cross_entropy, "row_sums", lambda rows: 1.001 * rows.sum(axis=1), "cross_entropy of several blocks"),
    "attention's dk": (attention_kernel, "textbook", SimpleNamespace(attention=spoiled), "attention in tiles, causal"),
}


@pytest.mark.parametrize("wrong", NUMPY)
def test_a_wrong_form_in_numpy_is_found(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, name, instead, case = NUMPY[wrong]
    monkeypatch.setattr(module, name, instead)
    assert main(["check", case, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["ok"]
    (found,) = document["cases_by_form"]
    wrong_forms = {(form["name"], form["dtype"]) for form in found["forms"] if form["problem"]}
    assert {("NumPy form", "float64"), ("NumPy form", "float32")} <= wrong_forms


def test_what_a_kernel_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError("in a loop")

    monkeypatch.setattr(loops, "gelu", fail)
    (first, *_) = {form.problem for form in forms(CASES["gelu"]) if not form.ok}
    assert first == "ZeroDivisionError: in a loop"


def test_check_counts_the_cases_of_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "relu", "linear of one row", "relu at its kink"]) == 0
    out = capsys.readouterr().out
    n_relu = sum(case.covers == "relu" for case in CASES.values())
    assert f"forms of {n_relu + 1} cases, all ok:\nas written in {n_relu + 1}, compiled in 1\n" in out
