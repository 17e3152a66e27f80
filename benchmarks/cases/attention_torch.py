"""F.scaled_dot_product_attention, forward and backward."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from .. import twins
from .attention import Sizes, inputs


class Eager(twins.Program):
    def __init__(self, sizes: Sizes, weights: twins.Weights) -> None:
        *qkv, doutput = inputs(sizes)
        self.qkv = [torch.from_numpy(x).requires_grad_() for x in qkv]
        self.doutput = torch.from_numpy(doutput)

    def run(self) -> tuple[torch.Tensor, ...]:
        output = F.scaled_dot_product_attention(*self.qkv, is_causal=True)
        return (output, *torch.autograd.grad(output, self.qkv, self.doutput))

    def prove(self) -> dict[str, np.ndarray]:
        return {name: x.detach().numpy() for name, x in zip(("output", "dq", "dk", "dv"), self.run(), strict=True)}
