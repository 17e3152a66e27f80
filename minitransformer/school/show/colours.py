"""The colours of numbers, the same everywhere: blue above zero, orange below. The colour-blind can tell them apart."""

ABOVE, BELOW = "#1d63b4", "#bb3f12"  # on a light background
ABOVE_ON_DARK, BELOW_ON_DARK = "#6aaaf5", "#f0855f"

STYLE = f""":root {{
  --above: light-dark({ABOVE}, {ABOVE_ON_DARK}); --below: light-dark({BELOW}, {BELOW_ON_DARK});
}}
"""
