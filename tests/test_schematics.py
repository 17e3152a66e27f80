"""Schematics: what is drawn follows the arrays, in lines, squares, and the words for those who cannot see them."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from minitransformer import plots
from minitransformer.school.show import schematics


def lines(figure: Figure, panel: int = 0) -> list:
    return figure.axes[panel].lines


def test_links_draw_a_line_for_each_number_as_thick_as_it_is_large():
    numbers = np.array([[1.0, 0.0], [0.25, 0.75], [0.0, 0.0]])
    figure = schematics.links(
        {"routing": (["a", "b", "c"], ["x", "y"], numbers), "none": (["a"], ["x"], np.zeros((1, 1)))}
    )
    widths = [line.get_linewidth() for line in lines(figure)]
    assert len(widths) == 3 and len(lines(figure, 1)) == 0
    assert np.allclose((np.array(widths) - 0.4) / 3.6, [1.0, 0.25, 0.75])
    assert figure.words == "routing: a to x; b to x and y; c to none\nnone: a to none"
    with pytest.raises(ValueError, match=r"numbers must be \(1, 2\), got \(2, 1\)"):
        schematics.links({"t": (["a"], ["x", "y"], np.ones((2, 1)))})


def test_looks_leave_hidden_keys_empty():
    weights = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    figure = schematics.looks({"causal": weights, "all": np.full((3, 3), 1 / 3)}, "output", "input")
    shown = [np.asarray(axes.collections[0].get_array()).reshape(3, 3) for axes in figure.axes]
    assert np.array_equal(shown[0] > 0, weights > 0) and (shown[1] > 0).all()
    assert shown[0][0, 0] > shown[0][2, 0] > 0.25  # darker where the weight is larger
    assert figure.axes[0].get_ylim() == (3.0, 0.0)  # the first query is above
    assert figure.words.splitlines()[0] == "causal: output 2 looks at input 0, 1, 2"


def test_arcs_join_the_query_to_its_key_and_leave_out_small_weights():
    above, below = np.zeros((4, 4)), np.zeros((4, 4))
    above[3, 1], above[2, 0], below[1, 0] = 0.9, 0.1, 0.5
    figure = schematics.arcs(list("abab"), above, below, ("layer 1", "layer 0"))
    curves = [line.get_xydata() for line in lines(figure) if len(line.get_xdata()) > 2]
    ends = [(round(curve[0, 0], 9), round(curve[-1, 0], 9)) for curve in curves]
    assert ends == [(3.0, 1.0), (1.0, 0.0)]
    assert curves[0][20, 1] > 0 > curves[1][20, 1]
    assert figure.words == "layer 1: b at 3 looks at b at 1\nlayer 0: b at 1 looks at a at 0"


def test_arrows_of_a_flow_are_as_thick_as_their_numbers():
    figure = schematics.flow(
        {"x": (0.0, 0.0), "y": (2.0, 0.0), "z": (2.0, 1.0)}, [("x", "y", 1.0), ("x", "z", 0.5), ("y", "z")]
    )
    arrows = [text.arrow_patch for text in figure.axes[0].texts if getattr(text, "arrow_patch", None)]
    assert [arrow.get_linewidth() for arrow in arrows] == pytest.approx([4.0, 2.25, 1.2])
    assert figure.words == "x to y; x to z; y to z"


def test_a_ring_shows_each_number_and_how_complete_it_is():
    numbers = np.array([[1.0, 11.0], [10.0, 11.0]])
    figure = schematics.ring({"start": numbers}, lambda x: str(int(x)).count("1") / 2)
    squares = [patch for patch in figure.axes[0].patches if hasattr(patch, "get_width") and patch.get_width() == 0.28]
    assert len(squares) == 4
    blue = [patch.get_facecolor()[0] for patch in squares]  # less red is a deeper blue
    assert blue[1] == blue[3] < blue[0] == blue[2]
    assert {text.get_text() for text in figure.axes[0].texts} >= {"1", "10", "11", "rank 0", "rank 1"}
    assert figure.words == "start: rank 0 has 1, 11; rank 1 has 10, 11"


@pytest.mark.parametrize(
    "low, high, wanted",
    [
        (256, 2048, ["200", "500", "1000", "2000"]),
        (1e6, 8e7, ["1 M", "2 M", "5 M", "10 M"]),
        (1e-5, 1e3, ["10 µ", "1 m"]),
    ],
)
def test_ticks_are_round_numbers(low, high, wanted):
    axes = Figure().subplots()
    axes.loglog([low, high], [1.0, 10.0])
    plots.round_ticks(axes.xaxis)
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert set(wanted) <= set(shown) and not any("\\times" in text for text in shown)
    assert not axes.xaxis.get_minorticklocs().size
