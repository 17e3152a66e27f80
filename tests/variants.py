"""Multi-head attention with later parts, by the name of each idea. The package itself hands parts in."""

from typing import Any

from minitransformer import ideas, layers


def attention(
    d_model: int,
    n_heads: int,
    *,
    n_key_heads: int | None = None,
    d_head: int | None = None,
    qk_norm: bool = False,
    rotary_base: float | None = None,
    relative: Any = None,
    alibi: bool = False,
    sink: bool = False,
    window: int | None = None,
    radius: int | None = None,
    scale: float | None = None,
    **options: Any,
) -> layers.MultiHeadAttention:
    mix: Any = layers.ScaledDotProduct(scale)
    if radius is not None:
        mix = ideas.Local(radius, scale)
    if relative is not None or alibi:
        mix = ideas.Biased(ideas.LinearBias(n_heads) if alibi else relative, scale)
    if sink:
        mix = ideas.Sink(n_heads, scale)
    if window is not None:
        mix = ideas.Window(window, mix)
    turn: Any = (None, None) if rotary_base is None else ideas.rotary_turn(rotary_base)
    if qk_norm:
        turn = ideas.qk_norm(d_head or d_model // n_heads, rotary_base=rotary_base)
    return ideas.grouped(d_model, n_heads, n_key_heads or n_heads, d_head, mix=mix, turn=turn, **options)
