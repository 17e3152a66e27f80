"""`minitransformer plot attention`: where the heads of a layer look, as a picture."""

import difflib

from ..run.machines.locks import write_figure
from ..school.inspect.watch import attentions
from ..school.show.viewer.command import look_at
from . import Options, UsageError


def main(options: Options) -> None:
    look = look_at(options.model, options.text, options.device)
    kinds = list(attentions(look.model))
    kind = options.kind or kinds[-1]
    if kind not in kinds:
        near = difflib.get_close_matches(kind, kinds, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"this model has {', '.join(kinds)}"
        raise UsageError(f"this model has no attention of --kind {kind!r}; {hint}")
    found = look.weights(kind)
    n_layers, n_heads = found.shape[:2]
    layer = n_layers if options.layer is None else options.layer
    for name, number, n in (("--layer", layer, n_layers), ("--head", options.head, n_heads)):
        if number is not None and not 1 <= number <= n:
            raise UsageError(f"{name} must be from 1 to {n}, got {number}")
    heads = range(1, n_heads + 1) if options.head is None else [options.head]
    weights = found[layer - 1][[head - 1 for head in heads]]
    tokens = look.tokens()
    queries, keys = (
        [token.replace("$", r"\$").replace("\n", "↵") for token in tokens[side]]  # no formulas, no empty labels
        for side in {"cross": (-1, 0), "decoder": (-1, -1)}.get(kind, (0, 0))
    )
    titles = [f"layer {layer}, head {head}" for head in heads]
    from ..school.show import plots  # here, because it imports matplotlib

    write_figure(options.out, plots.attention_maps(weights, queries, keys, titles))
    print(f"wrote {options.out}")
