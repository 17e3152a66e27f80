"""Functions and modules of PyTorch as functions of our form."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backend import Array, to_numpy
from ..trace.foreign import as_numpy
from ..trace.values import is_array, is_float_array
from ..verify import arguments as given
from .other_forms import Foreign, Inputs, add_to, checked_output, library, marked, of_our_form, ran


def from_torch(f: Any, dtype: str = "float64", device: str = "cpu") -> Callable[..., Any]:
    """A function of our form, (*arrays, **options) -> (output, backward), that runs f on tensors.

    f: any function of tensors that returns a tensor; a torch.autograd.Function or its `apply`; or a torch.nn.Module,
    whose parameters are then checked as well (f itself is not changed). In a torch.autograd.Function whose forward and
    backward are Python, the local variables are recorded, and each `x` is checked against its `dx` or `grad_x`.

    dtype: "float32", "float16" or "bfloat16" for code that takes nothing else; it is then checked as closely as that
    allows. device: where the tensors are, "cpu" or "cuda". backward returns what torch.autograd computes. Raises
    ImportError without torch, and later ValueError or TypeError if f does not run, returns no tensor, or leaves
    autograd.
    """
    torch = library("torch", "torch")
    ran("from_torch", f"the device {device!r}", lambda: torch.empty(0, device=device))
    if isinstance(f, torch.nn.Module):
        return _Module(torch, f, dtype, device)
    owner: Any = f if isinstance(f, type) else getattr(f, "__self__", None)
    function = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    if isinstance(f, type) and not function:
        raise TypeError(f"from_torch: make an object of the class {f.__name__} first, and give that")
    if not callable(f):
        raise TypeError(f"from_torch: expected a function, a torch.autograd.Function or a module, got {f!r}")
    run = owner.apply if function else f

    def call(*inputs: Any, **options: Any) -> Any:
        how = _Torch(torch, given.name_of(made), dtype, device)
        arrays = Inputs(inputs, how.leaf, how.constant)
        y = how.run(lambda: run(*arrays.converted, **how.constants(options)), inputs)
        pull = how.pullback(y, arrays.leaves)
        return how.back(y), lambda dy: arrays.gradients(iter(pull(dy)))

    made: Any = of_our_form(owner if function else f, call, dtype)
    if function:
        made.__signature__ = _without_context(owner)
    return made


class _Torch:
    """How one function is run: from arrays to tensors and back."""

    def __init__(self, torch: Any, name: str, dtype: str, device: str) -> None:
        self.torch, self.name, self.device = torch, name, device
        self.single, self.dtype = dtype != "float64", getattr(torch, dtype)

    def constant(self, x: Any) -> Any:
        """A tensor with the numbers of an array, in the same memory if it can; any other value unchanged."""
        if not is_array(x):
            return x
        x = np.asarray(to_numpy(x))
        if not (x.flags.writeable and x.flags.c_contiguous):
            x = np.array(x, order="C")
        tensor = self.torch.from_numpy(x).to(self.device)
        return tensor.to(self.dtype) if self.single and tensor.is_floating_point() else tensor

    def leaf(self, x: Array) -> Any:
        """The same, as a tensor whose gradient is wanted."""
        return self.constant(x).requires_grad_()

    def constants(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options with tensors in place of arrays."""
        return {key: given.with_leaves(x, self.constant) for key, x in options.items()}

    def back(self, tensor: Any) -> np.ndarray:
        """The array of a tensor."""
        array: np.ndarray = as_numpy(tensor)
        return array.astype(np.float64) if self.single else array

    def run(self, run: Callable[[], Any], inputs: tuple[Any, ...]) -> Any:
        """The tensor that f returns."""
        with self.torch.enable_grad():
            y = self._ran("forward", run)
        if getattr(y, "is_meta", False):
            raise ValueError(f"{self.name}: its output lives on the device meta, which has no numbers")
        checked_output(self.name, as_numpy(y), inputs, self.single, "from_torch")
        if not y.requires_grad:
            raise ValueError(f"{self.name}: autograd cannot follow it; it may use detach, no_grad or NumPy inside")
        return y

    def _ran(self, what: str, run: Callable[[], Any]) -> Any:
        threads = self.torch.get_num_threads()
        self.torch.set_num_threads(1)  # a check runs f on small arrays, and often: threads would wait for each other
        try:
            return ran(self.name, what, run)
        except ValueError as error:
            mixed = not self.single and re.search("dtype|(?i:float).*(?i:double)|(?i:double).*(?i:float)", str(error))
            if mixed:  # such as a product of its own float32 numbers with ours
                raise ValueError(f'{error}; if it works only in float32: from_torch(f, dtype="float32")') from error
            raise
        finally:
            self.torch.set_num_threads(threads)

    def pullback(self, y: Any, leaves: list[Any]) -> Callable[[Array], list[np.ndarray]]:
        """From the gradient of y to those of the leaves; zero where autograd finds no path."""

        def pull(dy: Array) -> list[np.ndarray]:
            grads = self._ran(
                "backward",
                lambda: self.torch.autograd.grad(
                    y, leaves, self.constant(dy).to(y.dtype), retain_graph=True, allow_unused=True
                ),
            )
            return [
                self.back(self.torch.zeros_like(x) if grad is None else grad)
                for x, grad in zip(leaves, grads, strict=True)
            ]

        return pull


class _Module(Foreign):
    """A torch.nn.Module as a module of ours. Its own parameters and buffers stay unchanged."""

    def __init__(self, torch: Any, module: Any, dtype: str, device: str) -> None:
        learned = {key: p for key, p in module.named_parameters() if p.requires_grad}
        fixed = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        if empty := next((key for key, x in fixed.items() if x.is_meta), None):
            raise ValueError(f"from_torch: {empty} lives on the device meta, which has no numbers")
        super().__init__(type(module).__name__, {key: as_numpy(p) for key, p in learned.items()})
        self._fixed = {key: as_numpy(x).copy() for key, x in fixed.items() if key not in learned}
        self._torch, self._module, self._how = torch, module, (dtype, device)
        self.__signature__ = inspect.signature(module.forward)
        marked(self, dtype)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """(output, backward) of the module with the current parameters; backward adds to their gradients."""
        how = _Torch(self._torch, self.__name__, *self._how)
        arrays = Inputs(inputs, how.leaf, how.constant)
        tensors = {key: how.leaf(parameter.value) for key, parameter in self.owned.items()}
        kind = next((x.dtype for x in [*arrays.leaves, *tensors.values()]), None)
        fixed = {key: how.constant(x.copy()) for key, x in self._fixed.items()}
        fixed = {key: x.to(kind) if x.is_floating_point() else x for key, x in fixed.items()}
        functional_call, state = self._torch.func.functional_call, {**tensors, **fixed}
        options = how.constants(options)
        y = how.run(lambda: functional_call(self._module, state, tuple(arrays.converted), options), inputs)
        pull = how.pullback(y, [*arrays.leaves, *tensors.values()])
        dtypes = [leaf.dtype for x in inputs for _, leaf in given.leaves_of("", x) if is_float_array(leaf)]

        def backward(dy: Array) -> Any:
            grads = iter(pull(dy))
            returned = arrays.gradients(grads) if dtypes else None
            for parameter, grad in zip(self.owned.values(), grads, strict=True):
                add_to(parameter, grad)
            return returned

        return how.back(y), backward


def _without_context(function: Any) -> inspect.Signature:
    """The signature of `apply`: that of forward without ctx."""
    signature = inspect.signature(function.forward)
    parameters = list(signature.parameters.values())
    with_setup = "setup_context" in vars(function)
    return signature.replace(parameters=parameters if with_setup else parameters[1:])
