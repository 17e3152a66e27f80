"""Numbers packed into a few bits: blocks of integers that share a scale, as GGUF files store them.

    w_i = d q_i              Q8_0, Q4_0, Q5_0, Q6_K: q_i is a signed integer of 8, 4, 5 or 6 bits
    w_i = d q_i + m          Q4_1: q_i is from 0 to 15, and m is the smallest number of the block
    w_i = d s q_i - d' s' ,  Q4_K: 8 groups of 32 numbers, with scales s and s' of six bits each

A block of the first kinds has 32 numbers, one whose name ends in K has 256; there each group of 16 or 32 numbers has a
scale of its own, an integer, and the block the scale of these scales. Scales are float16. In BF16 each number is alone,
the upper half of a float32.

What each byte means: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Dettmers et al. 2022, "8-bit
Optimizers via Block-wise Quantization", has the idea of a scale for each block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Kind:
    """How blocks are packed. unpack: (N, n_bytes) bytes to (N, numbers) in float32; scales: where the float16 lie."""

    numbers: int
    n_bytes: int
    scales: tuple[int, ...]
    unpack: Callable[[np.ndarray], np.ndarray]


def unpack(rows: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of packed rows, in float32. rows: bytes (N, n_bytes); returns (N, numbers)."""
    blocks = np.ascontiguousarray(rows).reshape(-1, KINDS[kind].n_bytes)
    return KINDS[kind].unpack(blocks).reshape(len(rows), -1)


def numbers_in(rows: np.ndarray, kind: str) -> int:
    """How many numbers a packed row holds."""
    return rows.shape[1] // KINDS[kind].n_bytes * KINDS[kind].numbers


def pack(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Rows of numbers as bytes: in Q8_0 with d = max |w| / 127 and q the nearest integers, or rounded to BF16.

    numbers: float32 (N, width). Zeros fill the last block of a row. Raises ValueError for another kind.
    """
    if kind not in PACKS:
        raise ValueError(f"pack: kind must be one of {', '.join(PACKS)}, got {kind!r}")
    block = KINDS[kind].numbers
    filled = np.pad(numbers.astype("<f4", copy=False), ((0, 0), (0, -numbers.shape[1] % block)))
    return PACKS[kind](filled.reshape(-1, block)).reshape(len(numbers), -1)


def all_finite(rows: np.ndarray, kind: str) -> bool:
    """Whether packed rows contain neither NaN nor infinity: only a float16 or a BF16 can be one."""
    known = KINDS[kind]
    blocks = rows.reshape(-1, known.n_bytes)
    if kind == "BF16":
        return bool(((blocks.view("<u2") & 0x7F80) != 0x7F80).all())
    return all(bool(np.isfinite(_half(blocks, at)).all()) for at in known.scales)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 that begins at this byte of each block, (N, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Two numbers of four bits from each byte: first the lower halves of all bytes, then the upper halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8.0)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    return _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | fifth << 4).astype(np.float32) - 16.0)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """The first four scales and minima have six bits of a byte each; the last four are in the bits that are left."""
    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = _half(blocks, 0) * np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    least = _half(blocks, 2) * np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    q = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (scales[:, :, None] * q - least[:, :, None]).reshape(-1, 256)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """Four bits of each number come first, two bits of four numbers in a byte follow."""
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64))
    pairs = blocks[:, 128:192].reshape(-1, 2, 32)
    high = np.concatenate([pairs >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    q = (low | high << 4).reshape(-1, 16, 16).astype(np.float32) - 32.0
    return (scales[:, :, None] * q).reshape(-1, 256)


def _bf16(blocks: np.ndarray) -> np.ndarray:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


KINDS = {
    "Q8_0": Kind(32, 34, (0,), _q8_0),
    "Q4_0": Kind(32, 18, (0,), _q4_0),
    "Q4_1": Kind(32, 20, (0, 2), _q4_1),
    "Q5_0": Kind(32, 22, (0,), _q5_0),
    "Q4_K": Kind(256, 144, (0, 2), _q4_k),
    "Q6_K": Kind(256, 210, (208,), _q6_k),
    "BF16": Kind(1, 2, (), _bf16),
}


def _as_q8_0(blocks: np.ndarray) -> np.ndarray:
    d = (abs(blocks).max(axis=1, keepdims=True) / 127.0).astype("<f2")
    wide = d.astype(np.float32)
    q = np.rint(np.divide(blocks, wide, out=np.zeros_like(blocks), where=wide > 0.0)).clip(-127, 127)
    return np.concatenate([d.view(np.uint8), q.astype(np.int8).view(np.uint8)], axis=1)


def _as_bf16(blocks: np.ndarray) -> np.ndarray:
    """To the nearest; of two equally near, to that whose last bit is 0."""
    bits = blocks.view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").view(np.uint8)


PACKS = {"Q8_0": _as_q8_0, "BF16": _as_bf16}
