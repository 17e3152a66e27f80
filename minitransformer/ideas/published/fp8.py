"""Numbers of 8 bits with a scale for each block, as DeepSeek-V3 is published: DeepSeek-AI 2024, section 3.3.

    value[i, j]:  e4m3[i, j] · scale[i // 128, j // 128]

e4m3 has one bit for the sign, four for the exponent and three for the mantissa (Micikevicius et al. 2022, "FP8 Formats
for Deep Learning", section 3): ±2^(e-7) · (1 + m/8), or where e is 0, ±2^-6 · m/8. Of its 256 patterns two are NaN, and
none is infinite. The scales of `weight` are a second tensor, `weight_scale_inv`. A file is unpacked to float32, tensor
by tensor: there is no matrix product of 8 bits here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .weight_files import Tensor

KIND, _SCALE = "F8_E4M3", "_scale_inv"


def _every_number() -> np.ndarray:
    """The number of each pattern of 8 bits."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, 2.0**-6 * (mantissa / 8), 2.0 ** (exponent - 7.0) * (1 + mantissa / 8))
    size[(bits & 127) == 127] = np.nan
    return np.where(bits < 128, size, -size).astype(np.float32)


_NUMBERS = _every_number()


@dataclass(frozen=True)
class Scaled(Tensor):
    """A tensor of 8-bit numbers, with the scale of each block of this many rows and columns."""

    scale: Tensor
    block: tuple[int, int]

    def read(self) -> np.ndarray:
        """Its numbers, in float32."""
        numbers = _NUMBERS[self.stored("u1", math.prod(self.shape))].reshape(self.shape)
        rows, columns = self.block
        for i, scales in enumerate(self.scale.read()):
            numbers[i * rows : (i + 1) * rows] *= np.repeat(scales, columns)[: self.shape[1]]
        if not np.isfinite(numbers).all():
            raise ValueError(f"{self.path}: {self.name} contains NaN or infinity")
        return numbers


def without(document: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, int] | None]:
    """A config.json without what it says about numbers of 8 bits, and the size of their blocks.

    Another way of packing is left to the family. Raises ValueError for 8 bits of another form.
    """
    rest = {name: value for name, value in document.items() if name != "quantization_config"}
    found = document.get("quantization_config")
    if not isinstance(found, dict) or found.get("quant_method") != "fp8":
        return dict(document), None
    block: Any = found.get("weight_block_size")
    is_block = isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)
    if not is_block or found.get("fmt", "e4m3") != "e4m3":
        raise ValueError(
            "quantization_config of quant_method 'fp8' must have the fmt 'e4m3' and a weight_block_size such as "
            f"[128, 128], got {str(found)[:80]}"
        )
    return rest, (block[0], block[1])


def unpacked(found: Mapping[str, Tensor], block: tuple[int, int] | None) -> dict[str, Tensor]:
    """The tensors of a folder, each matrix of 8 bits together with its scales. Raises ValueError where they misfit."""
    whole = {name: tensor for name, tensor in found.items() if block is None or not name.endswith(_SCALE)}
    for name, tensor in whole.items():
        if block is None or tensor.dtype != KIND:
            continue
        scale = found.get(f"{name}{_SCALE}")
        wanted = tuple(-(-n // size) for n, size in zip(tensor.shape, block, strict=False))
        if len(tensor.shape) != 2 or scale is None or scale.shape != wanted:
            got = "none" if scale is None else scale.shape
            raise ValueError(f"{name} of shape {tensor.shape} must have scales of shape {wanted}, got {got}")
        whole[name] = Scaled(name, tensor.path, "F32", tensor.shape, tensor.start, scale, block)
    return whole
