"""Optimisers, learning-rate schedules and gradient clipping.

For a parameter θ with gradient g at step t = 1, 2, ..., and the learning rate η:

SGD with momentum. Polyak 1964, "Some methods of speeding up the convergence of iteration methods", in the form of
Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", but with η outside u:

    u = μ u + g                             velocity: a sum of all gradients; older ones fade as powers of μ
    θ = θ - η u

With a constant g, u tends to g / (1 - μ): with μ = 0.9 the steps become ten times as long as without momentum.

Adam. Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1:

    m = β1 m + (1 - β1) g                   running mean of the gradient
    v = β2 v + (1 - β2) g²                  running mean of its square, element by element
    m̂ = m / (1 - β1^t),  v̂ = v / (1 - β2^t)
    θ = θ - η m̂ / (√v̂ + ε)

m and v start at zero, so they are too small at first: after t steps with a constant g the mean is m = (1 - β1^t) g.
Dividing by the bracket corrects that.

AdamW. Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2:

    θ = θ - η (m̂ / (√v̂ + ε) + λ θ)

The decay λ θ is added to the quotient, not to g. Inside g, √v̂ would divide it, and weights with large gradients would
hardly decay. The learning rate η multiplies both terms; algorithm 2 has η_t α for the first and η_t for the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays.backend import Array, array_module, to_numpy
from ..arrays.boundary import check_floats, check_number, check_positive
from ..arrays.declared import declared
from ..layers import Parameter
from ..layers.module import load_arrays


class Optimizer:
    """Base of every optimiser. It takes steps on `parameters`, the (name, Parameter) pairs that `module.parameters()`
    yields, counts them in `.steps`, and saves and loads its state.

    A step changes values in place, so afterwards do not call a pullback that was made before it. Make the optimiser
    when the module is on its final device, in its final dtype. If a parameter changes its shape, make a new optimiser.
    A step raises TypeError or ValueError, and moves nothing, if a value or a gradient has changed its dtype, device or
    shape.
    """

    def __init__(self, parameters: Iterable[tuple[str, Parameter]], learning_rate: float) -> None:
        self._name = type(self).__name__
        self.parameters = dict(_pairs(self._name, parameters))
        if not self.parameters:
            raise ValueError(f"{self._name}: there are no parameters; pass module.parameters()")
        _check_at_least_zero(self._name, learning_rate=learning_rate)
        self.learning_rate = float(learning_rate)  # a Python float: NumPy's would promote float32 parameters
        self.steps = np.array(0)
        self._memory: dict[str, dict[str, Array]] = {name: {} for name in self.parameters}
        self._shapes = {name: p.value.shape for name, p in self.parameters.items()}

    def _remember(self, *kinds: str) -> None:
        """Arrays of zeros for every parameter. They belong to the state as "kind.<name>"."""
        for name, p in self.parameters.items():
            self._memory[name] |= {kind: array_module(p.value).zeros_like(p.value) for kind in kinds}

    def step(self, learning_rate: float | None = None) -> None:
        """Move every parameter once, in place, by its `.grad`. learning_rate: for this step, from a schedule."""
        self._check()
        rate = self._begin(learning_rate)
        for name, p in self.parameters.items():
            self._move(p, self._memory[name], rate)

    def _begin(self, learning_rate: float | None) -> float:
        """Count a step. Returns its learning rate."""
        rate = self.learning_rate if learning_rate is None else float(learning_rate)
        _check_at_least_zero(self._name, learning_rate=rate)
        self.steps += 1
        return rate

    def _check(self) -> None:
        """Require the original shapes, and one dtype and device: a compiled loop would write past a shorter array."""
        for name, p in self.parameters.items():
            remembered = {f"the {kind} of {name}": array for kind, array in self._memory[name].items()}
            check_floats(self._name, **remembered, **{name: p.value, f"the gradient of {name}": p.grad})
            shape = self._shapes[name]
            if p.value.shape != shape:
                raise ValueError(
                    f"{self._name}: {name} had shape {shape} when the optimiser was made, and now has "
                    f"{p.value.shape}; make a new {self._name} after such a change"
                )
            if p.grad.shape != shape:
                raise ValueError(
                    f"{self._name}: the gradient of {name} must have the shape {shape} of its value, got "
                    f"{p.grad.shape}; set {name}.grad to an array of that shape"
                )

    def _move(self, p: Parameter, remembered: dict[str, Array], rate: float) -> None:
        """Move one parameter in place. remembered: its state by kind."""
        raise NotImplementedError

    def _moves_whole(self, name: str) -> bool:
        """Whether a parameter moves as a whole. The numbers of all others move one by one, so pieces of them can."""
        return False

    def state(self) -> dict[str, np.ndarray]:
        """A copy on the host of "steps" and of the state of each parameter, such as "mean.<name>"."""
        return {name: np.array(to_numpy(array)) for name, array in self._arrays().items()}

    def load_state(self, mapping: Mapping[str, np.ndarray]) -> None:
        """Continue from a state. Raises ValueError, and changes nothing, if it belongs to other parameters."""
        load_arrays(self._name, self._arrays(), mapping)

    def _arrays(self) -> dict[str, Array]:
        kinds = dict.fromkeys(kind for known in self._memory.values() for kind in known)
        remembered = {
            f"{kind}.{name}": known[kind] for kind in kinds for name, known in self._memory.items() if kind in known
        }
        return {"steps": self.steps, **remembered}


class SGD(Optimizer):
    """Stochastic gradient descent. momentum is μ; 0 is plain gradient descent. State: u as "velocity.<name>"."""

    @declared("0 <= momentum < 1")
    def __init__(
        self, parameters: Iterable[tuple[str, Parameter]], learning_rate: float, momentum: float = 0.0
    ) -> None:
        super().__init__(parameters, learning_rate)
        self.momentum = float(momentum)
        self._remember("velocity")

    def _move(self, p: Parameter, remembered: dict[str, Array], rate: float) -> None:
        u = remembered["velocity"]
        u *= self.momentum
        u += p.grad
        p.value -= rate * u


class Adam(Optimizer):
    """Steps of about the learning rate, whatever the size of the gradients.

    State: m and v as "mean.<name>" and "square.<name>".
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, learning_rate)
        try:
            beta1, beta2 = betas
        except (TypeError, ValueError) as error:
            raise TypeError(f"{self._name}: betas must be two numbers, such as (0.9, 0.999), got {betas!r}") from error
        _check_at_least_zero(self._name, beta1=beta1, beta2=beta2)
        if max(beta1, beta2) >= 1.0:
            raise ValueError(f"{self._name}: betas must be below 1, got {betas}")
        check_positive(self._name, eps=eps)
        self.betas, self.eps = (float(beta1), float(beta2)), float(eps)
        self._remember("mean", "square")

    def _move(self, p: Parameter, remembered: dict[str, Array], rate: float) -> None:
        shrink = self._shrink(p, rate)
        g, m, v = p.grad, remembered["mean"], remembered["square"]
        beta1, beta2 = self.betas
        t = int(self.steps)
        xp = array_module(p.value)
        m *= beta1
        m += (1.0 - beta1) * g
        v *= beta2
        v += (1.0 - beta2) * (g * g)
        p.value *= shrink
        p.value -= rate * (m / (1.0 - beta1**t)) / (xp.sqrt(v / (1.0 - beta2**t)) + self.eps)

    def _shrink(self, p: Parameter, rate: float) -> float:
        """The factor that multiplies the values before the step; 1 without decay."""
        return 1.0


class AdamW(Adam):
    """Adam with decoupled weight decay; its state is Adam's.

    weight_decay is λ. Parameters with one axis (biases and the gains of norms) do not decay, because they only shift
    and scale. With decay_vectors=True all parameters decay.
    """

    @declared("weight_decay >= 0")
    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        decay_vectors: bool = False,
    ) -> None:
        super().__init__(parameters, learning_rate, betas, eps)
        self.weight_decay, self.decay_vectors = float(weight_decay), decay_vectors

    def _shrink(self, p: Parameter, rate: float) -> float:
        decays = p.value.ndim > 1 or self.decay_vectors
        return 1.0 - rate * self.weight_decay * decays


def _pairs(where: str, parameters: Any) -> list[tuple[str, Parameter]]:
    """Require (name, Parameter) pairs, and list them."""
    pairs = list(parameters) if isinstance(parameters, Iterable) else [parameters]
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Parameter)):
            raise TypeError(f"{where}: expected (name, Parameter) pairs, got {pair!r}; pass module.parameters()")
    return pairs


def gradient_norm(parameters: Iterable[tuple[str, Parameter]]) -> float:
    """√(sum of g² over all entries of all parameters)."""
    return math.sqrt(float(sum((p.grad * p.grad).sum() for _, p in parameters)))


def clip_gradient_norm(parameters: Iterable[tuple[str, Parameter]], limit: float) -> float:
    """Scale all gradients by one factor so that their common norm is at most `limit`. Returns the norm before.

    norm = √(sum of g² over all entries of all parameters). Pascanu et al. 2013, "On the difficulty of training
    recurrent neural networks", algorithm 1. If the norm is not finite, nothing is scaled: skip that step.
    """
    check_positive("clip_gradient_norm", limit=limit)
    pairs = _pairs("clip_gradient_norm", parameters)
    norm = gradient_norm(pairs)
    if (factor := clipping(norm, float(limit))) != 1.0:
        for _, p in pairs:
            p.grad *= factor
    return norm


def clipping(norm: float, limit: float) -> float:
    """The factor that shortens gradients of this norm to the limit; 1 for shorter ones, and without limit, 0."""
    return limit / norm if 0.0 < limit < norm < math.inf else 1.0


# Schedules: the learning rate as a function of the step, which counts from 1.


@declared("step, rate > 0")
def constant(step: int, rate: float) -> float:
    """The same rate at every step."""
    return rate


@declared("step, peak, warmup > 0")
def inverse_sqrt(step: int, peak: float, warmup: int) -> float:
    """peak · min(step / warmup, √(warmup / step)): rises linearly to `peak` at step `warmup`, then falls."""
    return peak * min(step / warmup, math.sqrt(warmup / step))


@declared("step, d_model, warmup > 0")
def warmup_schedule(step: int, d_model: int, warmup: int = 4000) -> float:
    """d_model^-½ · min(step^-½, step · warmup^-1½), inverse_sqrt with the peak of Vaswani et al. 2017, section 5.3."""
    return inverse_sqrt(step, 1.0 / math.sqrt(d_model * warmup), warmup)


@declared("step, peak > 0; warmup, floor, total >= 0")
def cosine(step: int, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Rises linearly to `peak` at step `warmup`, then falls along half a cosine to `floor` at step `total`.

    floor + (peak - floor) (1 + cos(π (step - warmup) / (total - warmup))) / 2: Loshchilov and Hutter 2017, equation 5.
    """
    if warmup >= total:
        raise ValueError(f"cosine: warmup must be less than total, got warmup {warmup} and total {total}")
    if step < warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (peak - floor) * (1.0 + math.cos(math.pi * progress)) / 2.0


def _check_at_least_zero(where: str, **numbers: float) -> None:
    for name, number in numbers.items():
        check_number(where, name, number)
        if number < 0.0:
            raise ValueError(f"{where}: {name} must be at least 0, got {number}")
