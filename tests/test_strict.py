"""The strict stand-in for CuPy: what it refuses, what it allows, and that every op runs on it as it does on NumPy."""

import copy

import numpy as np
import pytest
from all_ops import CALLS, FIRST, setup_of
from scipy import special
from tiers import in_one

from minitransformer import masks, ops
from minitransformer.check.verify.catalogue import Setup
from minitransformer.core.arrays.backend import array_module, device_of, scatter_add, to_device, to_numpy
from minitransformer.core.arrays.strict import StrictArray, xp
from minitransformer.core.ops.random_numbers import uniform

HOST = np.arange(6.0).reshape(2, 3)


def strict(x):
    return to_device(np.asarray(x), "strict")


def assert_holds(a, expected):
    """a is on the device and holds exactly these numbers, in this shape and dtype."""
    assert type(a) is StrictArray
    expected = np.asarray(expected)
    assert a.dtype == expected.dtype
    np.testing.assert_array_equal(to_numpy(a), expected, strict=True)


# ---- What it refuses. Each line must run where all arrays are NumPy's, so that only the mixture can be at fault. ----

# Of an array of the device, a, and one of NumPy's, n; lib is the device's library.
MIXTURES = """
a + n; n + a; a - n; n - a; a * n; n * a; a / (n + 1.0); n / (a + 1.0); a**n; n**a; a // (n + 1.0); a % (n + 1.0)
a @ n.T; n @ a.T; (a > 1.0) & (n > 1.0); (n > 1.0) & (a > 1.0); (a > 1.0) | (n > 1.0); (a > 1.0) ^ (n > 1.0)
a.astype(int) << n.astype(int); a.astype(int) >> n.astype(int)
a == n; n == a; a != n; a < n; n < a; a <= n; a > n; a >= n; a + n[0, 1, ...]
a[n[0].astype(int) % 2]; a[n > 1.0]; a[:, n[0].astype(int)]; n[a[0].astype(int) % 2]
a[...] = n; a[0] = n[1]; a[n > 1.0] = 0.0; n[...] = a
a += n; a -= n; a *= n; a /= n + 1.0; n += a; n *= a
lib.where(n > 1.0, a, a); lib.where(a > 1.0, n, a); lib.where(a > 1.0, a, n)
lib.maximum(a, n); lib.minimum(0.0, n); lib.matmul(a, n.T); lib.einsum("ij,kj->ik", a, n)
lib.concatenate([a, n]); lib.stack([a, n]); lib.exp(n); lib.sum(n); lib.argsort(n)
lib.zeros_like(n); lib.full_like(a, n); lib.full((2, 3), n)
lib.clip(a, n, n); lib.clip(a, a_min=n, a_max=n); a.clip(n, n)
lib.take_along_axis(a, n.astype(int) % 2, axis=0); lib.take_along_axis(n, a.astype(int) % 2, axis=0)
lib.exp(a, out=n); lib.exp(n, out=a)
"""

NUMPY_FUNCTIONS = """
np.asarray(a); np.array(a); np.array([a, a]); np.array([a.sum(), a.sum()]); np.asarray(a.sum(), dtype=np.float64)
np.exp(a); np.maximum(a, 0.0); np.isfinite(a); np.sum(a); np.mean(a); np.reshape(a, -1); np.transpose(a)
np.where(a > 1.0, a, 0.0); np.concatenate([a, a]); np.stack([a, a]); np.zeros_like(a); np.linalg.norm(a)
np.copyto(np.zeros((2, 3)), a); np.add.at(np.zeros((4, 2, 3)), 0, a); np.testing.assert_allclose(a, a)
special.erf(a); np.random.default_rng(0).permutation(a)
"""


def lines_of(text):
    return text.strip().replace("\n", "; ").split("; ")


@in_one("line", lines_of(MIXTURES))
def test_numpy_arrays_are_refused(line):
    exec(line, {"a": HOST.copy(), "n": HOST.copy(), "lib": np})
    with pytest.raises(TypeError):
        exec(line, {"a": strict(HOST), "n": HOST.copy(), "lib": xp})


@in_one("line", lines_of(NUMPY_FUNCTIONS))
def test_functions_of_numpy_refuse_a_device_array(line):
    exec(line, {"a": HOST.copy(), "np": np, "special": special})
    with pytest.raises(TypeError):
        exec(line, {"a": strict(HOST), "np": np, "special": special})


def test_an_in_place_operation_that_is_refused_leaves_the_array_alone():
    a = strict(HOST)
    with pytest.raises(TypeError, match="to_device"):
        a += HOST
    assert_holds(a, HOST)


@pytest.mark.parametrize("other", [[1.0, 2.0, 3.0], (1.0, 2.0, 3.0), "3", None], ids=repr)
def test_lists_and_other_objects_are_no_operands(other):
    a = strict(HOST)
    for operation in (lambda: a + other, lambda: other * a, lambda: a == other, lambda: xp.maximum(a, other)):
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(TypeError):
        a[0] = other


def test_a_list_is_no_index():
    assert HOST[[1, 0]].shape == (2, 3)
    with pytest.raises(TypeError):
        strict(HOST)[[1, 0]]


def test_a_device_array_is_no_length_shape_or_axis():
    a, one = strict(HOST), strict(1)
    uses = """range(one); "ab"[one]; a[:one]; a.reshape(one, 6); a.reshape((one, 6)); a.sum(axis=one); a.sum(one)
        xp.sum(a, axis=one); xp.zeros((one, 6)); xp.zeros(one); xp.arange(one)"""
    for use in lines_of(uses):
        with pytest.raises(TypeError):
            eval(use.strip(), {"a": a, "one": one, "xp": xp})


def test_where_numbers_are_expected_the_error_says_so():
    a = strict(HOST)
    for use in (lambda: a.clip(a, a), lambda: a.reshape(a), lambda: xp.arange(a), lambda: xp.sum(a, axis=a)):
        with pytest.raises(TypeError, match="expected no array here, got StrictArray; fetch a single number"):
            use()


@in_one("name", ["errstate", "add_reduceat", "frompyfunc", "vectorize", "random", "lib", "nditer"])
def test_xp_has_only_the_functions_on_its_list(name):
    with pytest.raises(AttributeError, match=f"'{name}'.*CuPy"):
        getattr(xp, name)


@in_one("name", ["at", "reduceat", "reduce", "outer"])
def test_functions_of_xp_have_no_ufunc_methods(name):
    assert hasattr(np.add, name)
    assert not hasattr(xp.add, name)


@in_one("name", ["setflags", "tostring", "ctypes", "newbyteorder", "take", "put", "__array_interface__"])
def test_an_array_has_only_the_members_on_its_list(name):
    with pytest.raises(AttributeError, match=f"'{name}'.*CuPy"):
        getattr(strict(HOST), name)


@pytest.mark.parametrize("option", [{"where": True}, {"initial": 0.0}])
def test_options_that_only_numpy_has_are_refused(option):
    np.sum(HOST, **option)
    with pytest.raises(TypeError, match=f"no option '{next(iter(option))}'"):
        xp.sum(strict(HOST), **option)
    with pytest.raises(TypeError, match=f"no option '{next(iter(option))}'"):
        strict(HOST).sum(**option)


@pytest.mark.parametrize("host", [np.array(["a"]), np.array([object()]), np.array([1.0], dtype=np.longdouble)])
def test_dtypes_that_a_gpu_does_not_have_are_refused(host):
    with pytest.raises(ValueError, match="no arrays of dtype"):
        strict(host)


def test_an_array_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        {strict(HOST)}


# ---- What it allows, and where it stays on the device. ----

SCALARS = [2, 2.0, True, np.float64(2.0), np.float32(2.0), np.int64(2)]


@in_one("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}")
def test_numbers_and_numpy_scalars_are_operands_on_either_side(scalar):
    a = strict(HOST)
    assert_holds(a + scalar, HOST + scalar)
    assert_holds(scalar - a, scalar - HOST)
    assert_holds(a / scalar, HOST / scalar)
    assert_holds(a > scalar, scalar < HOST)
    assert_holds(scalar <= a, scalar <= HOST)
    assert_holds(xp.maximum(scalar, a), np.maximum(scalar, HOST))
    a *= scalar
    assert_holds(a, HOST * scalar)


def test_a_python_float_does_not_promote_float32():
    a = strict(HOST.astype(np.float32))
    for result in (a * 0.5, 1.0 / (a + 1.0), xp.where(a > 1.0, 0.0, a), xp.maximum(a, 0.0), a.sum() / 2.0):
        assert result.dtype == np.float32


OPERATORS = """
-a; +a; abs(-a); ~(a > 1.0); a + b; a - b; a * b; a / b; a // b; a % b; a**b; a @ b.T
1 - a; 1 / b; 2**a; 7 // b; 7 % b; a < b; a <= b; a > b; a >= b; a == b; a != b
(a > 1.0) & (b < 4.0); (a > 4.0) | (b < 2.0); (a > 1.0) ^ (b < 4.0)
a.astype(int) << b.astype(int); (8 * a).astype(int) >> b.astype(int); 40 >> a.astype(int)
"""


@in_one("line", lines_of(OPERATORS))
def test_operators_compute_what_numpy_computes(line):
    other = HOST[::-1, ::-1] + 1.0
    assert_holds(eval(line, {"a": strict(HOST), "b": strict(other)}), eval(line, {"a": HOST, "b": other}))


def test_in_place_operations_write_into_the_same_memory():
    a = strict(HOST)
    row, whole = a[0], a
    a += strict(HOST)
    a *= 3.0
    a[1] -= 1.0
    a[0, 1:] = strict([7.0, 8.0])
    assert whole is a
    assert_holds(a, [[0.0, 7.0, 8.0], [17.0, 23.0, 29.0]])
    assert_holds(row, [0.0, 7.0, 8.0])
    xp.sqrt(strict([[1.0, 4.0, 9.0], [16.0, 25.0, 36.0]]), out=a)
    assert_holds(row, [1.0, 2.0, 3.0])


@in_one("name", ["sum", "mean", "max", "min", "prod", "std", "var", "argmax", "argmin", "any", "all"])
def test_reductions_return_arrays_of_shape_nothing(name):
    assert isinstance(getattr(HOST, name)(), np.generic)
    assert_holds(getattr(strict(HOST), name)(), getattr(HOST, name)())
    assert_holds(getattr(xp, name)(strict(HOST)), getattr(HOST, name)())
    assert_holds(getattr(strict(HOST), name)(axis=-1, keepdims=True), getattr(HOST, name)(axis=-1, keepdims=True))


def test_one_element_is_an_array_and_is_fetched_explicitly():
    element = strict(HOST)[1, 2]
    assert_holds(element, np.float64(5.0))
    assert_holds(element * element, np.float64(25.0))
    assert (float(element), int(element), bool(element), element.item()) == (5.0, 5, True, 5.0)
    assert isinstance(element.item(), float)
    assert f"{element:.2f}" == "5.00"
    assert strict(HOST).tolist() == HOST.tolist()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(strict(HOST))


def test_get_and_to_numpy_copy_and_so_does_the_way_to_the_device():
    host = HOST.copy()
    a = strict(host)
    host[...] = -1.0
    a.get()[...] = -1.0
    to_numpy(a)[...] = -1.0
    assert_holds(a, HOST)
    assert type(a.get()) is type(to_numpy(a)) is np.ndarray
    assert xp.asarray(a) is a
    for source in (a, HOST, HOST.tolist()):
        assert_holds(xp.asarray(source, dtype=np.float32), HOST.astype(np.float32))
    copied = xp.array(a)
    a += 1.0
    assert_holds(copied, HOST)
    assert_holds(copy.deepcopy(a), HOST + 1.0)


def test_iteration_and_length():
    assert len(strict(HOST)) == 2
    for row, expected in zip(strict(HOST), HOST, strict=True):
        assert_holds(row, expected)
    with pytest.raises(TypeError, match="0-d"):
        iter(strict(1.0))
    with pytest.raises(TypeError):
        len(strict(1.0))


def test_results_that_are_tuples_or_lists_stay_on_the_device():
    a = strict(HOST)
    for parts in (xp.nonzero(a), xp.where(a > 1.0), a.nonzero(), xp.split(a, 3, axis=1)):
        assert len(parts) > 1
        assert all(type(part) is StrictArray for part in parts)


def test_xp_creates_on_the_device():
    assert_holds(xp.arange(3), np.arange(3))
    assert_holds(xp.zeros((2, 1), dtype=np.float32), np.zeros((2, 1), np.float32))
    assert_holds(xp.full((2,), xp.inf), np.full((2,), np.inf))
    assert_holds(xp.ones_like(strict(HOST)), np.ones((2, 3)))
    assert_holds(xp.concatenate([strict(HOST), strict(HOST)], axis=1), np.concatenate([HOST, HOST], axis=1))
    assert_holds(xp.einsum("ij,kj->ik", strict(HOST), strict(HOST)), HOST @ HOST.T)
    assert xp.__name__ == "strict"
    assert array_module(strict(HOST)) is xp
    assert device_of(strict(HOST)).name == "strict"


# ---- Indices wrap. ----


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_integer_arrays_wrap_as_an_index(dtype):
    ids = np.array([[0, 5], [7, 254]], dtype=dtype)  # 254 mod 3 = 2
    table = np.arange(12.0).reshape(3, 4)
    assert_holds(strict(table)[strict(ids)], table[[[0, 2], [1, 2]]])
    assert_holds(strict(table)[:, strict(ids)], table[:, [[0, 1], [3, 2]]])
    assert_holds(strict(table)[..., strict(ids)], table[..., [[0, 1], [3, 2]]])
    assert_holds(strict(table)[None, 0, strict(ids)], table[None, 0, [[0, 1], [3, 2]]])
    assert_holds(strict(table)[strict(ids), strict(ids)], table[[[0, 2], [1, 2]], [[0, 1], [3, 2]]])
    with pytest.raises(IndexError):
        table[ids]


def test_small_integers_index_a_table_longer_than_they_can_count():
    table, ids = np.arange(300.0), np.array([0, 255], dtype=np.uint8)
    assert_holds(strict(table)[strict(ids)], [0.0, 255.0])
    assert_holds(xp.take_along_axis(strict(table), strict(ids), axis=0), [0.0, 255.0])


def test_negative_indices_count_from_the_end_and_wrap_too():
    assert_holds(strict([10, 20, 30])[strict([-1, -3, -4, -7])], [30, 10, 30, 30])


def test_an_integer_array_behind_a_boolean_one_belongs_to_the_axis_after_it():
    cube = np.arange(24.0).reshape(2, 3, 4)
    mask = np.zeros((2, 3), dtype=bool)
    mask[0, 1] = mask[1, 2] = True
    assert_holds(strict(cube)[strict(mask), strict([4, 7])], cube[mask, [0, 3]])


def test_assignment_and_take_along_axis_wrap():
    a = strict(np.zeros(3))
    a[strict([4])] = 1.0
    assert_holds(a, [0.0, 1.0, 0.0])
    ids = np.array([[3], [-5]])
    assert_holds(xp.take_along_axis(strict(HOST), strict(ids), axis=-1), [[0.0], [4.0]])
    with pytest.raises(IndexError):
        np.take_along_axis(HOST, ids, axis=-1)


def test_scatter_add_wraps_and_sums_repeated_ids():
    target = strict(np.ones((3, 2)))
    scatter_add(target, strict([0, 4, 1, 0]), strict([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]))
    assert_holds(target, [[9.0, 11.0], [9.0, 11.0], [1.0, 1.0]])


def test_single_integers_do_not_wrap():
    with pytest.raises(IndexError):
        strict(HOST)[2]


# ---- Every op gives the same on it as on NumPy. ----


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


NOTHING = "cross_entropy of nothing"  # the only call here that is no case: it has no gradient to check
NO_TARGETS = Setup(ops.cross_entropy, (draw(2, 3, 5), np.full((2, 3), -100)))


def run(name, device, dtype):
    """Output and gradients of a call on a device, each checked to be there, as NumPy arrays."""

    def place(x):
        if not isinstance(x, np.ndarray):
            return x
        return to_device(x.astype(dtype) if x.dtype.kind == "f" else x, device)

    setup = NO_TARGETS if name == NOTHING else setup_of(name)
    options = {key: place(value) for key, value in setup.options.items()}
    y, backward = setup.f(*map(place, setup.inputs), **options)
    gradients = backward(place(np.random.default_rng(9).standard_normal(y.shape)))
    results = [y, *(gradients if isinstance(gradients, tuple) else [gradients])]
    for result in results:
        assert device_of(result).name == device
        assert result.dtype == dtype
    return [to_numpy(result) for result in results]


@in_one("name, dtype, near", [*CALLS, NOTHING], [("float64", 1e-15), ("float32", 1e-6)])
def test_an_op_gives_the_same_output_and_gradients_as_on_numpy(name, dtype, near):
    on_numpy, on_device = run(name, "numpy", dtype), run(name, "strict", dtype)
    for expected, result in zip(on_numpy, on_device, strict=True):
        np.testing.assert_allclose(result, expected, rtol=near, atol=near)
    if name in FIRST.values():  # so that there is something to compare
        assert all(np.abs(gradient).max() > 0.0 for gradient in on_numpy[1:])


def test_masks_and_positions_are_made_on_the_device():
    lengths = np.array([1, 3])
    assert_holds(masks.causal_mask(3, 4, device="strict"), masks.causal_mask(3, 4))
    assert_holds(masks.local_mask(4, 1, device="strict"), masks.local_mask(4, 1))
    assert_holds(masks.padding_mask(strict(lengths), 4), masks.padding_mask(lengths, 4))
    both = masks.causal_mask(3, device="strict") & masks.padding_mask(strict(lengths))
    assert_holds(both, masks.causal_mask(3) & masks.padding_mask(lengths))
    assert_holds(ops.sinusoidal_positions(5, 6, device="strict"), ops.sinusoidal_positions(5, 6))


@pytest.mark.parametrize("wrong", [-1, 4, 1000])
def test_an_id_beyond_the_table_is_an_error_where_the_array_itself_would_wrap(wrong):
    table, ids = strict(draw(4, 5)), strict([[0, wrong]])
    assert table[ids].shape == (1, 2, 5)
    with pytest.raises(ValueError, match=rf"embedding: ids must be from 0 to 3 .* got {wrong}$"):
        ops.embedding(ids, table)
    with pytest.raises(ValueError, match=rf"cross_entropy: targets must be from 0 to 3 .* got {wrong}$"):
        ops.cross_entropy(strict(draw(1, 2, 4)), ids)


# ---- Random numbers of dropout. ----


class FixedSeed(np.random.Generator):
    """A generator whose next 64-bit integer is known."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def integers(self, high, dtype):
        assert (high, dtype) == (2**64, np.uint64)
        return np.uint64(1234567)


def test_uniform_is_splitmix64_of_the_seed():
    # Its first outputs for the seed 1234567: Rosetta Code, "Pseudo-random numbers/Splitmix64".
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    published.append(16408922859458223821)
    halves = [half >> 8 for z in published for half in (z & (2**32 - 1), z >> 32)]
    numbers = uniform(FixedSeed(), (9,), like=strict(0.0))
    assert_holds(numbers, np.array([half / 2**24 for half in halves[:9]], dtype=np.float32))


def test_uniform_lies_in_the_unit_interval_evenly():
    numbers = to_numpy(uniform(np.random.default_rng(0), (50, 1000), like=strict(0.0)))
    assert numbers.shape == (50, 1000) and numbers.dtype == np.float32
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.006  # 4.6 standard errors of √(1/12) / √50000
    tenths = np.histogram(numbers, bins=10, range=(0.0, 1.0))[0]
    assert ((tenths - 5000) ** 2 / 5000).sum() < 33.7  # χ² with 9 degrees of freedom: exceeded once in 10 000


def test_uniform_depends_on_the_generator_state_alone():
    like = strict(np.zeros((2, 2), dtype=np.float32))
    first = to_numpy(uniform(np.random.default_rng(3), (4, 5), like=like))
    np.testing.assert_array_equal(to_numpy(uniform(np.random.default_rng(3), (4, 5), like=strict(0.0))), first)
    assert (to_numpy(uniform(np.random.default_rng(4), (4, 5), like=like)) != first).all()
    rng = np.random.default_rng(3)
    uniform(rng, (4, 5), like=like)
    assert (to_numpy(uniform(rng, (4, 5), like=like)) != first).all()  # a call moves the generator on
