"""Draw docs/attention.gif: attention forward and backward on three tokens, each gradient below its value.

python docs/draw_attention.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from minitransformer import ops, verify
from minitransformer.check.trace.recorder import Recorder
from minitransformer.school.show.colours import ABOVE, BELOW

NAMES = ("q", "k", "v", "scores", "weights", "output")
LINES = (  # what appears, and the line that computes it
    ("q k v", "queries, keys and values of three tokens"),
    ("scores", r"scores $= q\,k^\top / \sqrt{d_k}$"),
    ("weights", "weights = softmax(scores): every row sums to one"),
    ("output", r"output = weights $v$"),
    ("doutput", "backward: the gradient of the loss for the output arrives"),
    ("dweights dv", r"dweights = doutput $v^\top$,   $dv$ = weights$^\top$ doutput"),
    ("dscores", r"dscores = weights $*$ (dweights $-$ $\sum$ dweights $*$ weights)"),
    ("dq dk", r"$dq$ = dscores $k / \sqrt{d_k}$,   $dk$ = dscores$^\top q / \sqrt{d_k}$"),
)


def values() -> tuple[dict[str, np.ndarray], str]:
    """Every array of the two passes, read from the running op, and what finite differences say of them."""
    q, k = np.array([[2.0, 1.0], [0.0, 4.0], [2.0, 3.0]]), np.array([[2.0, 1.0], [2.0, 2.0], [3.0, 2.0]])
    v = np.array([[1.0, 2.0, 3.0, 0.0], [2.0, 2.0, 0.0, 8.0], [2.0, 3.0, 3.0, 4.0]])
    doutput = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, -1.0, 0.0], [2.0, -1.0, 0.0, 1.0]])
    with Recorder(lambda: ops.attention(q, k, v)) as recorder:
        output, backward = ops.attention(q, k, v)
        recorder.in_forward = False
        dq, dk, dv = backward(doutput)
    bound = {b.title: b.value.array for call in recorder.calls for groups in call.bound.values() for b in groups[-1]}
    found = {name: bound[f"attention.{name}"] for name in ("scores", "weights", "dscores", "dweights")}
    found |= {"q": q, "k": k, "v": v, "output": output, "doutput": doutput, "dq": dq, "dk": dk, "dv": dv}
    report = verify.gradients(ops.attention, q, k, v)
    return found, f"Finite differences agree with every gradient: largest error {max(r.error for r in report.rows):.0e}"


def draw(path: Path) -> None:
    """Write the moving picture: one frame for each line, and one for the check."""
    arrays, verdict = values()
    colours = LinearSegmentedColormap.from_list("signed", [BELOW, "white", ABOVE])
    figure = Figure(figsize=(10.0, 3.9), layout="constrained", facecolor="white")
    widths = [arrays[name].shape[1] for name in NAMES]
    panels = {}
    for axes, name in zip(
        figure.subplots(2, 6, width_ratios=widths).flat, (*NAMES, *(f"d{n}" for n in NAMES)), strict=True
    ):
        x, limit = arrays[name], 1.7 * abs(arrays[name]).max()
        axes.imshow(x, cmap=colours, vmin=-limit, vmax=limit)
        for i, j in np.ndindex(x.shape):
            axes.text(j, i, f"{round(x[i, j], 2) + 0.0:g}", ha="center", va="center", fontsize=8)
        axes.set(title=name, xticks=[], yticks=[])
        panels[name] = axes
    figure.suptitle(verdict, fontsize=13)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # or else the panels move when others are hidden

    def show(frame: int) -> list:
        seen = {name for names, _ in LINES[: frame + 1] for name in names.split()}
        new = LINES[frame][0].split() if frame < len(LINES) else []
        for name, axes in panels.items():
            axes.set_visible(name in seen)
            axes.title.set_weight("bold" if name in new else "normal")
        figure.suptitle(LINES[frame][1] if frame < len(LINES) else verdict, fontsize=13)
        return []

    FuncAnimation(figure, show, frames=[*range(len(LINES)), len(LINES), len(LINES)]).save(
        path, PillowWriter(fps=0.5), dpi=80
    )


if __name__ == "__main__":
    draw(Path(__file__).with_name("attention.gif"))
