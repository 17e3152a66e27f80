"""The sharded optimiser: each rank keeps, and moves, one stretch of all parameters.

Rajbhandari et al. 2020, "ZeRO", stage 1. Data parallel training adds up the gradients g_r of n ranks. Then every rank
takes the same step: n ranks keep the same moments m and v and do the same work. A sharded optimiser divides it, with
s_r for stretch r of the flat buffers:

    g[s_r] = Σ_q g_q[s_r]                         reduce-scatter
    m[s_r], v[s_r], θ[s_r]  move by g[s_r]        on rank r alone
    θ = θ[s_0], θ[s_1], ...                       all-gather

In each of the two collectives a rank sends (n-1)/n of the numbers: together as much as a ring's all-reduce of the
gradients. m and v take 1/n of the memory. The optimisers that it accepts move each number independently, so the result
is the same.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...core.layers import Parameter
from ...core.training.optimizers import Optimizer
from .flat import as_one, in_order
from .parallel.group import Group, lengths, stretch
from .pieces import InPieces, view

_MATRICES, _VECTORS = "matrices", "vectors"  # of this rank's stretch; AdamW decays only the matrices


class ShardedOptimizer:
    """An optimiser whose state is divided among the ranks of a group. `state` is that of the undivided optimiser.

    parameters: with flat values and gradients (flat.py), on NumPy. make: returns an optimiser for (name, Parameter)
    pairs.
    All ranks must call its methods together.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        group: Group,
        make: Callable[[list[tuple[str, Parameter]]], Optimizer | InPieces],
    ) -> None:
        named = list(parameters)
        self._order, self._group = [name for name, _ in named], group
        pairs = in_order(named)
        values, gradients = as_one([p.value for _, p in pairs]), as_one([p.grad for _, p in pairs])
        if values is None or gradients is None:
            raise ValueError("ShardedOptimizer: values and gradients must be flat NumPy buffers; make Workers first")
        self._values, self._shapes = values, {name: p.value.shape for name, p in pairs}
        n_matrices = sum(p.value.size for _, p in pairs if p.value.ndim > 1)
        own = stretch(values.size, group)
        if own.start == own.stop:
            raise ValueError(f"ShardedOptimizer: {values.size} numbers are too few for {group.size} ranks")
        self._own = own
        ends = {_MATRICES: (own.start, min(own.stop, n_matrices)), _VECTORS: (max(own.start, n_matrices), own.stop)}
        self._parts = {name: slice(*ends[name]) for name in ends if ends[name][0] < ends[name][1]}
        mine = []
        for name, part in self._parts.items():
            shape = (1, -1) if name == _MATRICES else (-1,)
            mine.append((name, view(values[part].reshape(shape), gradients[part].reshape(shape))))
        self._optimizer = make(mine)

    def step(self, learning_rate: float) -> None:
        """Move this rank's stretch by its gradient; then take the other stretches from the other ranks."""
        self._optimizer.step(learning_rate)
        total = self._values.size
        self._values[...] = self._group.gather(self._values[self._own], lengths(total, self._group.size))

    def state(self) -> dict[str, np.ndarray]:
        """The state of all ranks together, on every rank; see Optimizer.state."""
        own = self._optimizer.state()
        whole = {"steps": own["steps"]}
        for kind in self._kinds(own):
            part = np.concatenate([own[f"{kind}.{name}"].ravel() for name in self._parts])
            flat = self._group.gather(part, lengths(self._values.size, self._group.size))
            cut = np.split(flat, np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes.values()])[:-1])
            arrays = {name: x.reshape(self._shapes[name]) for name, x in zip(self._shapes, cut, strict=True)}
            whole |= {f"{kind}.{name}": arrays[name] for name in self._order}
        return whole

    def load_state(self, mapping: Mapping[str, np.ndarray]) -> None:
        """Load this rank's part of a whole state. Raises ValueError, and changes nothing, if it does not fit."""
        kinds = self._kinds(self._optimizer.state())
        shapes = {f"{kind}.{name}": shape for kind in kinds for name, shape in self._shapes.items()} | {"steps": ()}
        found = {name: array.shape for name, array in mapping.items()}
        if found != shapes:
            wrong = sorted(name for name in found.keys() | shapes.keys() if found.get(name) != shapes.get(name))
            raise ValueError(f"ShardedOptimizer: the state belongs to another optimiser; see {', '.join(wrong[:5])}")
        mine = {"steps": mapping["steps"]}
        for kind in kinds:
            flat = np.concatenate([mapping[f"{kind}.{name}"].ravel() for name in self._shapes])
            for name, part in self._parts.items():
                mine[f"{kind}.{name}"] = flat[part].reshape((1, -1) if name == _MATRICES else (-1,))
        self._optimizer.load_state(mine)

    @property
    def memory(self) -> int:
        """The size of this rank's part of the state, in bytes."""
        return sum(array.nbytes for array in self._optimizer.state().values())

    def _kinds(self, state: Mapping[str, np.ndarray]) -> list[str]:
        return list(dict.fromkeys(name.partition(".")[0] for name in state if name != "steps"))
