"""Functions and modules of PyTorch as functions of our form."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.arrays.backend import Array, to_numpy
from ..trace.values import as_numpy, is_array, is_float_array
from ..verify import arguments as given
from .other_forms import Foreign, Inputs, Outputs, flat, library, nothing_returned, of_our_form, ran

_HELD = "which f holds; give the module itself, or give it by position"


def from_torch(f: Any, dtype: str = "float64", device: str = "cpu") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), that runs f on tensors.

    f: any function of tensors that returns a tensor, or several in a tuple, list or dict; a torch.autograd.Function or
    its `apply`; or a torch.nn.Module, whose parameters are then checked as well (f itself is not changed). Several
    outputs come back as one long array, so that each has a random upstream gradient; the report names those that
    autograd cannot follow, and parameters that get no gradient. In a torch.autograd.Function whose forward and
    backward are Python, the local variables are recorded, and each `x` is checked against its `dx` or `grad_x`.
    Second derivatives are not checked: torch.autograd.gradgradcheck does that.

    dtype: "float32", "float16" or "bfloat16" for code that takes nothing else; it is then checked as closely as that
    allows. device: where the tensors are, "cpu" or "cuda". backward returns what torch.autograd computes. Raises
    ImportError without torch, and later ValueError or TypeError if f does not run, returns no tensor, or leaves
    autograd.
    """
    torch = library("torch", "torch")
    ran("from_torch", f"the device {device!r}", lambda: torch.empty(0, device=device))
    module = isinstance(f, torch.nn.Module)
    owner: Any = f if isinstance(f, type) else getattr(f, "__self__", None)
    function = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    if isinstance(f, type) and not function:
        raise TypeError(f"from_torch: make an object of the class {f.__name__} first, and give that")
    if not callable(f):
        raise TypeError(f"from_torch: expected a function, a torch.autograd.Function or a module, got {f!r}")
    learned, held, fixed, left_out = _numbers_of(torch, f) if module else ({}, {}, {}, {})
    watch = _watch(torch)

    def call(inputs: tuple[Any, ...], values: dict[str, Array], options: dict[str, Any]) -> Any:
        how = _Torch(torch, made.__name__, dtype, device, dict(left_out), watch)
        arrays = Inputs(inputs, values, how.leaf)
        run = owner.apply if function else f
        if module:
            kind = next((x.dtype for x in arrays.leaves), None)
            state = arrays.values | {key: how.constant(x.copy()) for key, x in fixed.items()}
            state |= {key: how.constant(parameter.value.copy()).to(kind) for key, parameter in made.held.items()}
            how.hold(f, state)
        options = {key: given.with_leaves(x, how.constant) for key, x in options.items()}
        y, pull = how.run(lambda: run(*arrays.converted, **options), inputs, arrays.leaves)
        made.left_out, made.shapes, made.stopped = how.left_out, how.shapes, watch.stopped
        return y, lambda dy: arrays.gradients(iter(pull(dy)))

    if module:
        made: Any = Foreign(f, f.forward, call, dtype, learned, held)
        return made
    made = of_our_form(owner if function else f, call, dtype)
    if function:
        made.__signature__ = _without_context(owner)
    return made


def kept_in(dtype: str) -> Any:
    """A context in which autograd keeps each tensor with numbers that are rounded to a narrower dtype."""
    torch = library("torch", "torch")

    def rounded(x: Any) -> Any:
        return x.to(getattr(torch, dtype)).to(x.dtype) if x.is_floating_point() else x

    return torch.autograd.graph.saved_tensors_hooks(rounded, lambda x: x)


class _Torch:
    """How one function is run: from arrays to tensors and back."""

    def __init__(self, torch: Any, name: str, dtype: str, device: str, left_out: dict[str, str], watch: Any) -> None:
        self.torch, self.name, self.device, self.left_out, self.watch = torch, name, device, left_out, watch
        self.single, self.dtype = dtype != "float64", getattr(torch, dtype)
        self.shapes: list[tuple[int, ...]] = []
        self._inside: Callable[[Callable[[], Any]], Any] = lambda run: run()

    def hold(self, module: Any, state: dict[str, Any]) -> None:
        """Let the module have these tensors whenever it runs: in backward too, where checkpoints run it again."""
        around = self.torch.nn.Module()
        around.module, around.forward = module, lambda run: run()
        state = {f"module.{key}": x for key, x in state.items()}
        self._inside = lambda run: self.torch.func.functional_call(around, state, (run,))

    def constant(self, x: Any) -> Any:
        """A tensor with the numbers of an array, in the same memory if it can; any other value unchanged.

        Its strides are those of the array: a kernel that ignores them must be seen.
        """
        if not is_array(x):
            return x
        x = np.asarray(to_numpy(x))
        if not x.flags.writeable or min(x.strides, default=0) < 0:
            x = np.array(x, order="C")
        source = self.torch.from_numpy(x)
        dtype = self.dtype if self.single and source.is_floating_point() else source.dtype
        if source.is_contiguous() or (self.device == "cpu" and dtype == source.dtype):
            return source.to(self.device, dtype)
        gaps = self.torch.empty_strided(source.shape, source.stride(), dtype=dtype, device=self.device)
        return gaps.copy_(source)

    def leaf(self, x: Any) -> Any:
        """The same, as a tensor whose gradient is wanted."""
        return self.constant(x).requires_grad_() if is_float_array(x) else self.constant(x)

    def run(
        self, run: Callable[[], Any], inputs: tuple[Any, ...], leaves: list[Any]
    ) -> tuple[np.ndarray, Callable[[Array], list[np.ndarray]]]:
        """(what f returns as one array, pullback to the leaves); fills left_out with what autograd cannot follow."""
        with self.torch.enable_grad():
            returned = self._ran("forward", run)
            found = dict(flat("output", returned, self.torch.is_tensor))
            self.watch.wanted = bool(self.watch.left_out)
            self.left_out |= self.watch.left_out
        if any(y.is_meta for y in found.values()):
            raise ValueError(f"{self.name}: its output lives on the device meta, which has no numbers")
        found = {title: y for title, y in found.items() if y.is_floating_point()}
        if not found:
            raise nothing_returned(self.name, returned)
        followed = {title: y for title, y in found.items() if y.requires_grad}
        if not followed:
            raise ValueError(f"{self.name}: autograd cannot follow it; it may use detach, no_grad or NumPy inside")
        others = [title for title in found if title not in followed]
        self.left_out |= dict.fromkeys(others, "autograd does not follow it")
        ys = [*followed.values()]
        self.left_out |= _held_elsewhere(ys, leaves)
        outputs = Outputs(self.name, [as_numpy(y) for y in ys], inputs, self.single, "from_torch")
        self.shapes = outputs.shapes

        def pull(dy: Array) -> list[np.ndarray]:
            dys = [self.constant(part).to(y.dtype) for part, y in zip(outputs.gradients(dy), ys, strict=True)]
            grads = self._ran("backward", lambda: self._gradients(ys, leaves, dys))
            grads = [self.torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, grads, strict=True)]
            return [as_numpy(grad.to_dense()) for grad in grads]

        return outputs.joined, pull

    def _ran(self, what: str, run: Callable[[], Any]) -> Any:
        threads = self.torch.get_num_threads()
        self.torch.set_num_threads(1)  # a check runs f on small arrays, and often: threads would wait for each other
        try:
            with self.watch if self.watch.wanted else contextlib.nullcontext():
                return ran(self.name, what, lambda: self._inside(run))
        except ValueError as error:
            mixed = not self.single and re.search("dtype|(?i:float).*(?i:double)|(?i:double).*(?i:float)", str(error))
            if mixed:  # such as a product of its own float32 numbers with ours
                raise ValueError(f'{error}; if it works only in float32: from_torch(f, dtype="float32")') from error
            raise
        finally:
            self.torch.set_num_threads(threads)

    def _gradients(self, ys: list[Any], leaves: list[Any], dys: list[Any]) -> tuple[Any, ...]:
        """The gradients of the leaves, None where autograd finds no path."""
        autograd = self.torch.autograd
        try:
            return autograd.grad(ys, leaves, dys, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
        # A checkpoint with use_reentrant=True runs only in a backward that fills every .grad.
        # That also fills those of tensors that f holds, which the graph does not show: they are put back, and named.
        tensors = [x for x in gc.get_objects() if issubclass(type(x), self.torch.Tensor)]
        held = [(x, x.grad) for x in tensors if x.is_leaf and x.requires_grad and all(x is not y for y in leaves)]
        for x in (*leaves, *(x for x, _ in held)):
            x.grad = None
        autograd.backward(ys, dys, retain_graph=True)
        for x, before in held:
            if x.grad is not None:
                self.left_out[f"a parameter of shape {tuple(x.shape)}"] = _HELD
            x.grad = before
        return tuple(leaf.grad for leaf in leaves)


def _graph(ys: list[Any]) -> Iterator[Any]:
    """The nodes of autograd's graph that lead to these tensors."""
    nodes, seen = [y.grad_fn for y in ys], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            nodes += [before for before, _ in node.next_functions]


def _held_elsewhere(ys: list[Any], leaves: list[Any]) -> dict[str, str]:
    """The tensors that learn and are not among the leaves, from autograd's graph: f holds them, as a closure does."""
    known = {id(x) for x in leaves}
    found = [x for node in _graph(ys) if (x := getattr(node, "variable", None)) is not None and id(x) not in known]
    return dict.fromkeys([f"a parameter of shape {tuple(x.shape)}" for x in found], _HELD)


_STOPPED = (
    "f detaches a tensor, so that no gradient flows back there; by design, a gradient may differ from the derivative."
)
_BY_DESIGN = {
    "padding_idx": "PyTorch holds back the gradient of that row, by design",
    "scale_grad_by_freq": "PyTorch divides gradients by how often an id occurs, by design",
    "max_norm": "PyTorch shortens rows in place, by design",
}


def _watch(torch: Any) -> Any:
    """A context in which embeddings have the derivative as gradient, until it is known that f needs none.

    left_out: the options of embeddings without which f runs. stopped: whether f has cut a path for gradients.
    """

    class Watch(torch.overrides.TorchFunctionMode):
        left_out: dict[str, str] = {}  # noqa: RUF012
        stopped, wanted = "", True

        def __torch_function__(self, f: Any, _: Any, args: Any = (), options: Any = None) -> Any:
            if f in (torch.nn.functional.embedding, torch.nn.functional.embedding_bag):
                call = inspect.signature(f).bind(*args, **(options or {}))
                used = {key for key in _BY_DESIGN if call.arguments.get(key) is not None}
                if f is torch.nn.functional.embedding_bag:
                    used -= {"padding_idx"}  # it leaves such a row out of the sum, too
                if call.arguments.get("scale_grad_by_freq") is False:
                    used -= {"scale_grad_by_freq"}
                self.left_out = self.left_out | {f"{key} of an embedding": _BY_DESIGN[key] for key in used}
                return f(**call.arguments | {key: None if key != "scale_grad_by_freq" else False for key in used})
            if (
                f in (torch.Tensor.detach, torch.Tensor.data.__get__)
                and torch.is_grad_enabled()
                and args[0].requires_grad
            ):
                self.stopped = _STOPPED
            return f(*args, **(options or {}))

    return Watch()


def _numbers_of(torch: Any, module: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, str]]:
    """(what a module learns, other floating-point numbers in it, all others, what is left out and why), by name."""
    parameters = dict(module.named_parameters())
    everything = parameters | dict(module.named_buffers())
    if empty := next((key for key, x in everything.items() if x.is_meta), None):
        raise ValueError(f"from_torch: {empty} lives on the device meta, which has no numbers")
    learned = {key: as_numpy(x) for key, x in parameters.items() if x.requires_grad}
    others = {key: as_numpy(x) for key, x in everything.items() if key not in learned}
    held = {key: x for key, x in others.items() if is_float_array(x)}
    left_out = dict.fromkeys([key for key in parameters if key not in learned], "requires_grad is False")
    left_out |= dict.fromkeys(_plain_tensors(torch, module), "a plain tensor, not a torch.nn.Parameter")
    return learned, held, {key: x for key, x in others.items() if key not in held}, left_out


def _plain_tensors(torch: Any, module: Any) -> Iterator[str]:
    """The names of floating-point tensors in a module that are neither parameters nor buffers."""
    own = vars(torch.nn.Module()).keys()
    known = {id(x) for x in (*module.parameters(), *module.buffers())}  # LSTM has a list of its parameters as well
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            found = flat(f"{path}.{name}" if path else name, value, torch.is_tensor) if name not in own else ()
            yield from (title for title, x in found if x.is_floating_point() and id(x) not in known)


def _without_context(function: Any) -> inspect.Signature:
    """The signature of `apply`: that of forward without ctx."""
    signature = inspect.signature(function.forward)
    parameters = list(signature.parameters.values())
    with_setup = "setup_context" in vars(function)
    return signature.replace(parameters=parameters if with_setup else parameters[1:])
