"""Every op of the core and of the rooms around it, by name."""

from minitransformer.verify.catalogue import known_ops

OPS = known_ops()
# sinusoidal_positions returns a table, and no pullback; the others have tests of their own.
TABLED = set(OPS) - {"sinusoidal_positions", "softcap", "softcapped_attention", "clamped_swiglu"}
