"""What the ops refuse: each mistake gets an error that names the op, what was expected and what came."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from all_ops import CALLS, FIRST, OPS, arguments_of
from tiers import in_one

from minitransformer import backend, ideas, ops


def f(*shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def i(*shape: int) -> np.ndarray:
    return np.ones(shape, dtype=np.int64)


RNG = np.random.default_rng(0)
QKV = (f(2, 3, 4), f(2, 5, 4), f(2, 5, 6))


class Elsewhere:
    """An array of another library: just enough of one to be on a device of its own."""

    def __init__(self, *shape: int, dtype: str = "float64") -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.ndim, self.size = len(shape), int(np.prod(shape))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = backend.Device("elsewhere", None, Elsewhere, None, None, None, None)  # type: ignore[arg-type]
    monkeypatch.setitem(backend._devices, "elsewhere", nothing)


class TensorLike:
    """Has what an array has, but belongs to no library the project knows."""

    shape, dtype, ndim, size = (2, 3), np.dtype("float64"), 2, 6


class Bad(NamedTuple):
    mistake: str
    call: Callable[[], Any]
    error: type[Exception]
    message: str  # a regular expression for what follows the name of the op


# ---------------------------------------------------------------------------------------------------------------------
# Every array that must hold floats, at every place where an op takes one.


def floats_of(op: str) -> dict[str, np.ndarray]:
    """The arrays of floats in the first case of an op, by their names."""
    arguments = arguments_of(FIRST[op])
    return {name: x for name, x in arguments.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"}


def call_with_floats(op: str, floats: dict[str, Any]) -> Any:
    return OPS[op](**arguments_of(FIRST[op]) | floats)


FLOATS = {op: floats_of(op) for op in FIRST}
PLACES = [(op, name) for op, inputs in FLOATS.items() for name in inputs]
PLACES_AFTER_THE_FIRST = [(op, name) for op, inputs in FLOATS.items() for name in list(inputs)[1:]]


def call_with(op: str, name: str, change: Callable[[np.ndarray], Any]) -> None:
    call_with_floats(op, {name: change(FLOATS[op][name])})


# What is no array of floats: the change, the error, and what it says.
NO_FLOATS = [
    (lambda x: np.ones(x.shape, int), TypeError, r"must hold floating-point numbers, got int64; convert .*astype"),
    (lambda x: np.ones(x.shape, bool), TypeError, r"must hold floating-point numbers, got bool; convert .*astype"),
    (lambda x: x.astype(object), TypeError, r"must hold floating-point numbers, got object; convert .*astype"),
    (lambda x: x.astype(complex), TypeError, r"must hold floating-point numbers, got complex128; convert .*astype"),
    (lambda x: x.astype(str), TypeError, r"must hold floating-point numbers, got <U\d+; convert .*astype"),
    (lambda x: np.atleast_1d(x).tolist(), TypeError, r"must be a NumPy or CuPy array, got list; convert it"),
    (lambda x: TensorLike(), TypeError, r"must be a NumPy or CuPy array, got TensorLike; convert it"),
    (lambda x: 1.5, TypeError, r"must be a NumPy or CuPy array, got float; convert it with numpy.asarray"),
    (lambda x: np.atleast_1d(x)[:0], ValueError, r"is empty, its shape is \(0.*\); every axis needs at least one"),
    (lambda x: np.atleast_1d(x)[..., :0], ValueError, r"is empty, its shape is .*0,?\); every axis needs at least one"),
]  # fmt: skip


@in_one("op, name, change, error, message", PLACES, NO_FLOATS)
def test_not_a_float_array(op: str, name: str, change: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{op}: {name} {message}"):
        call_with(op, name, change)


def _may_be_left_out(op: str, name: str) -> bool:
    return inspect.signature(OPS[op]).parameters[name].default is None


@in_one("op, name", [place for place in PLACES if not _may_be_left_out(*place)])
def test_none_in_the_place_of_an_array(op: str, name: str) -> None:
    with pytest.raises(TypeError, match=f"^{op}: {name} must be a NumPy or CuPy array, got NoneType"):
        call_with(op, name, lambda x: None)


@in_one("op, name", PLACES_AFTER_THE_FIRST)
def test_mixed_dtypes(op: str, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{op}: {name} is float32 but \w+ is float64; .*{name}\.astype\('float64'\)"):
        call_with(op, name, lambda x: x.astype(np.float32))


@pytest.mark.usefixtures("elsewhere")
@in_one("op, name", PLACES_AFTER_THE_FIRST)
def test_mixed_devices(op: str, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{op}: \w+ is on numpy but {name} is on elsewhere; move .*to_device"):
        call_with(op, name, lambda x: Elsewhere(*x.shape))


NO_FLOAT = {  # a case of each op with ids or with a mask, by op and name
    (op, name): case
    for case, op in reversed(CALLS.items())
    for name, x in arguments_of(case).items()
    if isinstance(x, np.ndarray) and x.dtype.kind in "bi"
}


@pytest.mark.usefixtures("elsewhere")
@in_one("op, name", NO_FLOAT)
def test_ids_and_masks_on_another_device(op: str, name: str) -> None:
    arguments = arguments_of(NO_FLOAT[op, name])
    there = Elsewhere(*arguments[name].shape, dtype=arguments[name].dtype.name)
    with pytest.raises(TypeError, match=rf"^{op}: .* is on numpy but {name} is on elsewhere; move .*to_device"):
        OPS[op](**arguments | {name: there})


# ---------------------------------------------------------------------------------------------------------------------
# Every pullback, for every gradient that does not fit the output.


def call_all(op: str) -> tuple[np.ndarray, Callable[..., Any]]:
    return call_with_floats(op, {})


@in_one("op", FLOATS)
def test_gradient_of_the_wrong_shape(op: str) -> None:
    y, backward = call_all(op)
    shape = str(y.shape).replace("(", r"\(").replace(")", r"\)")
    for other in {(), (1,), y.shape[1:], (1, *y.shape), y.shape[::-1]} - {y.shape}:
        with pytest.raises(ValueError, match=rf"^backward of {op}: .* must have the output's shape {shape}, got \("):
            backward(np.ones(other))


@in_one("op, dtype", FLOATS, ["float32", "int64", "object"])
def test_gradient_of_the_wrong_dtype(op: str, dtype: str) -> None:
    y, backward = call_all(op)
    message = rf"^backward of {op}: .* must have the output's dtype float64, got {dtype}; convert .*astype\('float64'\)"
    with pytest.raises(TypeError, match=message):
        backward(np.ones(y.shape, dtype))


@pytest.mark.usefixtures("elsewhere")
@in_one("op", FLOATS)
def test_gradient_of_the_wrong_type(op: str) -> None:
    y, backward = call_all(op)
    for dy, came in [
        (y.tolist() if y.shape else [1.0], "list"),
        (TensorLike(), "TensorLike"),
        (None, "NoneType"),
        ("1", "str"),
        (True, "bool"),
        (Elsewhere(*y.shape), "an array of float64 on elsewhere"),
    ]:
        with pytest.raises(TypeError, match=rf"^backward of {op}: .* must be a numpy array of shape .*, got {came}$"):
            backward(dy)


@in_one("op", FLOATS)
def test_a_plain_number_is_the_gradient_of_a_scalar_only(op: str) -> None:
    y, backward = call_all(op)
    if y.shape == ():
        np.testing.assert_equal(backward(1.0), backward(np.array(1.0)))
        return
    with pytest.raises(TypeError, match=rf"^backward of {op}: .* must be a numpy array of shape .*, got float$"):
        backward(1.0)


def test_gradient_of_a_float32_loss() -> None:
    """A Python number adopts the loss's dtype; NumPy's float64 would promote every gradient below."""
    _, backward = ops.cross_entropy(f(2, 3, dtype="float32"), np.array([0, 1]))
    for dloss in (1, 1.0, np.float32(1), np.array(1, np.float32)):
        np.testing.assert_array_equal(backward(dloss), backward())
        assert backward(dloss).dtype == np.float32
    with pytest.raises(TypeError, match=r"^backward of cross_entropy: .* dtype float32, got float64"):
        backward(np.float64(1))


# ---------------------------------------------------------------------------------------------------------------------
# What the declaration of an op, in its docstring, says of shapes, ids, masks and options.

ARRAYS = re.compile(r"(\w+(?:, \w+)*): (integers |booleans )?(that broadcast to |broadcasts to )?\(([^()]*)\)")
RANGES = re.compile(r"(\w+(?:, \w+)*) (>=|>) ([\d.]+)")
INTEGER = r"must be an integer, got"
NUMBER = r"must be a number, got"


def misfits(case: str, op: str) -> Iterator[tuple[str, str, Any, type[Exception], str]]:
    """What does not fit the declaration, in words; the name of the argument, a value, the error, and what it says."""
    given, seen = arguments_of(case), set[str]()
    text = " ".join((inspect.getdoc(OPS[op]) or "").split("\n\n")[1].split())
    for names, kind, broadcasts, shape in ARRAYS.findall(text):
        axes = [axis for axis in shape.split(", ") if axis not in ("", "...")]
        for name in names.split(", "):
            x = given.get(name)
            if not isinstance(x, np.ndarray) or "*" in shape:
                continue
            if kind:
                wanted = rf"{name} must (hold integers|be boolean) .*got float64"
                yield "of floats", name, x.astype(float), TypeError, wanted.replace(" .*", ".*")
                yield "as a list", name, x.tolist(), TypeError, rf"{name} must be .*got (list|int)"
            if broadcasts:
                large = np.ones((9,) * x.ndim, x.dtype)
                yield "of 9", name, large, ValueError, rf"{name} of shape .* does not broadcast to"
                continue
            told = rf".*\b{name}\b.*(got|got the shapes \(.*\) and|the shape is) \("  # with the shapes
            if axes:
                few = np.ones((2,) * (len(axes) - 1), x.dtype)
                yield "without an axis", name, few, ValueError, rf"{name} must have (at least )?\w+ ax.*got shape"
            for i, axis in enumerate(reversed(axes), 1):
                if axis in seen:  # one too many, and one that would broadcast
                    one = x.take([0], -i)
                    yield f"with {axis} longer", name, np.concatenate([x, one], -i), ValueError, told
                    if x.shape[-i] > 1:
                        yield f"with {axis} = 1", name, one, ValueError, told
            if "..." in seen and "..." in shape:
                yield "of other leading axes", name, np.stack([x] * 3), ValueError, told
                if x.ndim > len(axes) and len(x) > 1:
                    yield "of a batch of one", name, x[:1], ValueError, told
                    yield "of no batch", name, x[0], ValueError, told
            seen |= {*axes, *(["..."] if "..." in shape else [])}
    for names, sign, bound in RANGES.findall(text):
        for name in names.split(", "):
            out = float(bound) - (sign == ">=")
            yield "out of range", name, int(out), ValueError, rf"{name} must be (greater than|at least) \d"
            yield "as text", name, "1", TypeError, rf"{name} ({INTEGER} '1'|{NUMBER} str)"


MISFITS = {
    f"{op}, {name} {which}": (case, op, name, value, error, message)
    for case, op in CALLS.items()
    for which, name, value, error, message in misfits(case, op)
}


def test_misfits_are_many() -> None:
    assert len(MISFITS) > 250, len(MISFITS)


@in_one("misfit", MISFITS)
def test_what_does_not_fit_the_declaration(misfit: str) -> None:
    case, op, name, value, error, message = MISFITS[misfit]
    with pytest.raises(error, match=f"^{op}: {message}"):
        OPS[op](**arguments_of(case) | {name: value})


# ---------------------------------------------------------------------------------------------------------------------
# What each op checks besides.

MISTAKES: dict[str, list[Bad]] = {
    "convolution": [
        Bad("an even kernel has no centre", lambda: ideas.convolution(f(4, 3), f(2, 3, 5), f(5)), ValueError,
            r"a centred window needs an odd kernel, got 2; or set causal=True"),
    ],
    "softmax": [
        Bad("no such axis", lambda: ops.softmax(f(2, 3), axis=2), ValueError, r"axis 2 does not exist .* \(2, 3\)"),
        Bad("no axis at all", lambda: ops.softmax(np.array(1.0)), ValueError, r"axis -1 does not exist .* \(\)"),
        Bad("temperature NaN", lambda: ops.softmax(f(3), temperature=np.nan), ValueError, r"temperature .*, got nan"),
    ],
    "attention": [
        Bad("mask would enlarge", lambda: ops.attention(*QKV, mask=np.ones((4, 1, 3, 5), bool)), ValueError,
            r"mask of shape \(4, 1, 3, 5\) does not broadcast to \(2, 3, 5\)"),
        Bad("mask empty", lambda: ops.attention(*QKV, mask=np.ones((3, 0), bool)), ValueError, r"mask is empty"),
        Bad("scale is text", lambda: ops.attention(*QKV, scale="8"), TypeError, rf"scale {NUMBER} str"),
        Bad("scale of each head", lambda: ops.attention(*QKV, scale=f(2, 1, 1)), TypeError, rf"scale {NUMBER} ndarray"),
        Bad("scale NaN", lambda: ops.attention(*QKV, scale=np.nan), ValueError, r"scale must be finite, got nan"),
        Bad("bias of integers", lambda: ops.attention(*QKV, bias=i(3, 5)), TypeError,
            r"bias must hold floating-point numbers, got int64"),
        Bad("a dropout of 1", lambda: ops.attention(*QKV, dropout=1.0, rng=RNG), ValueError,
            r"dropout must be at least 0 and below 1, got 1.0"),
        Bad("a seed", lambda: ops.attention(*QKV, dropout=0.5, rng=0), TypeError, r"rng must be .* got int"),
        Bad("causal is text", lambda: ops.attention(*QKV, causal="no"), TypeError, "causal must be True or False"),
    ],
    "split_heads": [
        Bad("width not divisible", lambda: ops.split_heads(f(3, 8), 3), ValueError,
            r"the axis H·d of x \(..., T, H·d\) must be a multiple of H = 3, but it is 8; the shape is \(3, 8\)"),
    ],
    "rotary": [
        Bad("odd width", lambda: ideas.rotary(f(3, 5)), ValueError, r"x must be .* with an even d, .* got \(3, 5\)"),
    ],
    "rotate": [
        Bad("more pairs than numbers", lambda: ideas.rotate(f(3, 4), f(3, 3), f(3, 3)), ValueError,
            r".* r at most d; got x \(3, 4\), cos \(3, 3\)"),
        Bad("sines of another shape", lambda: ideas.rotate(f(3, 4), f(3, 2), f(3, 1)), ValueError, r".* of one shape"),
    ],
    "layer_norm_over_axes": [
        Bad("beta of one axis", lambda: ideas.layer_norm_over_axes(f(3, 2, 4), f(2, 4), f(4)), ValueError,
            r"beta must have shape \(2, 4\), got \(4,\)"),
    ],
    "weighted_cross_entropy": [
        Bad("a target too high", lambda: ideas.weighted_cross_entropy(f(2, 4), np.array([0, 4]), f(4)), ValueError,
            r"targets must be from 0 to 3"),
        Bad("unknown reduction", lambda: ideas.weighted_cross_entropy(f(2, 4), i(2), f(4), reduction="median"),
            ValueError, r'reduction must be "mean", "sum" or "none", got .median.'),
        Bad("smoothing above 1", lambda: ideas.weighted_cross_entropy(f(2, 4), i(2), f(4), label_smoothing=1.1),
            ValueError, r"label_smoothing must be from 0 to 1, got 1.1"),
    ],
    "relative_bias": [
        Bad("too few buckets", lambda: ideas.relative_bias(f(3, 2), 3, 4), ValueError, r"3 buckets up to distance 128"),
        Bad("too near an end", lambda: ideas.relative_bias(f(32, 2), 3, 4, max_distance=8), ValueError,
            r"32 buckets up to distance 8 do not fit; .* max_distance must exceed 8"),
    ],
    "gelu": [
        Bad("unknown form", lambda: ops.gelu(f(3), approximate="sigmoid"), ValueError,
            r"approximate must be \"none\" or \"tanh\", got 'sigmoid'"),
    ],
    "gated": [
        Bad("name of an activation", lambda: ideas.gated(f(2, 4), f(2, 4), activation="silu"), TypeError,
            r"activation must be an op such as ops.silu, got str"),
        Bad("an op that shrinks", lambda: ideas.gated(f(2, 4), f(2, 4), activation=ops.mean_pool), ValueError,
            r"activation\(gate\) must have shape \(2, 4\), got \(4,\)"),
    ],
    "embedding": [
        Bad("id beyond the vocabulary", lambda: ops.embedding(np.array([[0, 5]]), f(5, 4)), ValueError,
            r"ids must be from 0 to 4 \(there are 5\); got 5"),
        Bad("id below 0", lambda: ops.embedding(np.array([2, -1]), f(5, 4)), ValueError, r"ids must be .*; got -1"),
        Bad("small unsigned id beyond", lambda: ops.embedding(np.array([200], np.uint8), f(5, 4)), ValueError,
            r"ids must be .*; got 200"),
        Bad("no ids", lambda: ops.embedding(i(2, 0), f(5, 4)), ValueError, r"ids is empty, its shape is \(2, 0\)"),
    ],
    "learned_positions": [
        Bad("too long", lambda: ops.learned_positions(f(5, 4), 6), ValueError,
            r"positions 0 to 5 were requested, but the table holds positions 0 to 4"),
        Bad("too far", lambda: ops.learned_positions(f(5, 4), 3, start=3), ValueError,
            r"positions 3 to 5 were requested"),
        Bad("no positions", lambda: ops.learned_positions(f(5, 4), 0), ValueError, r"positions 0 to -1 were requested"),
    ],
    "sinusoidal_positions": [
        Bad("odd width", lambda: ops.sinusoidal_positions(3, 5), ValueError,
            r"width must be even \(sine and cosine come in pairs\), got 5"),
        Bad("integers", lambda: ops.sinusoidal_positions(3, 4, dtype="int32"), TypeError,
            r"dtype must be a floating-point one, got int32"),
    ],
    "dropout": [
        Bad("rate in percent", lambda: ops.dropout(f(3), 10, RNG), ValueError, r"rate .* got 10"),
        Bad("rate wrong, no generator", lambda: ops.dropout(f(3), 1.5, None), ValueError,
            r"rate .* got 1.5"),
        Bad("a seed", lambda: ops.dropout(f(3), 0.5, 0), TypeError,
            r"rng must be a numpy.random.Generator .* got int; make one with numpy.random.default_rng\(seed\)"),
        Bad("the old kind of generator", lambda: ops.dropout(f(3), 0.5, np.random.RandomState(0)), TypeError,
            r"rng must be .* got RandomState"),
        Bad("NumPy's module", lambda: ops.dropout(f(3), 0.5, np.random), TypeError, r"rng must be .* got module"),
    ],
    **{
        name: [
            Bad("more than there are", lambda op=op: op(f(2, 3), 4), ValueError, r".* at least k = 4 .* \(2, 3\)"),
            Bad("half an expert", lambda op=op: op(f(2, 3), 1.5), TypeError, rf"k {INTEGER} 1.5"),
        ]
        for name, op in (("top_k_gates", ideas.top_k_gates), ("load_balance", ideas.load_balance))
    },
    "cross_entropy": [
        Bad("target beyond the vocabulary", lambda: ops.cross_entropy(f(2, 4), np.array([0, 4])), ValueError,
            r"targets must be from 0 to 3 \(there are 4\), or -100 for a position to ignore; got 4"),
        Bad("target below 0", lambda: ops.cross_entropy(f(2, 4), np.array([0, -1])), ValueError, r"targets .* got -1"),
        Bad("-100 is not what is ignored", lambda: ops.cross_entropy(f(2, 4), np.array([0, -100]), ignore_index=0),
            ValueError, r"targets must be .* or 0 for a position to ignore; got -100"),
        Bad("no targets", lambda: ops.cross_entropy(f(2, 4), None), TypeError, r"targets must be .* got NoneType"),
        Bad("unknown reduction", lambda: ops.cross_entropy(f(2, 4), i(2), reduction="median"), ValueError,
            r"reduction must be \"mean\", \"sum\" or \"none\", got 'median'"),
        Bad("reduction is None", lambda: ops.cross_entropy(f(2, 4), i(2), reduction=None), ValueError,
            r"reduction must"),
        Bad("smoothing above 1", lambda: ops.cross_entropy(f(2, 4), i(2), label_smoothing=1.1), ValueError,
            r"label_smoothing must be from 0 to 1, got 1.1"),
        Bad("smoothing below 0", lambda: ops.cross_entropy(f(2, 4), i(2), label_smoothing=-0.1), ValueError,
            r"label_smoothing must be from 0 to 1, got -0.1"),
        Bad("smoothing is text", lambda: ops.cross_entropy(f(2, 4), i(2), label_smoothing="0.1"), TypeError,
            rf"label_smoothing {NUMBER} str"),
        Bad("nothing to ignore", lambda: ops.cross_entropy(f(2, 4), i(2), ignore_index=None), TypeError,
            rf"ignore_index {INTEGER} None"),
        Bad("ignore half a token", lambda: ops.cross_entropy(f(2, 4), i(2), ignore_index=0.5), TypeError,
            rf"ignore_index {INTEGER} 0.5"),
    ],
}  # fmt: skip


@in_one("op, which", [(op, bad.mistake) for op, mistakes in MISTAKES.items() for bad in mistakes])
def test_mistake(op: str, which: str) -> None:
    (bad,) = [bad for bad in MISTAKES[op] if bad.mistake == which]
    with pytest.raises(bad.error, match=f"^{op}: {bad.message}"):
        bad.call()
