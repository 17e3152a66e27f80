"""Pictures: what they show, and that a file is complete or absent."""

import errno
import io
import itertools
import os

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_hex
from tiers import in_one

from minitransformer import plots
from minitransformer.run.machines.curves import learning_curves
from minitransformer.run.machines.locks import write_figure
from minitransformer.run.machines.parallel.pipeline import Turn
from minitransformer.school.show.colours import ABOVE, BELOW
from minitransformer.school.show.page import build

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 2))  # 4 heads, 2 queries, 3 keys
QUERIES, KEYS = ["ein", "und"], ["twenty", "one", "<end>"]


def heat_maps(figure):
    return [axes for axes in figure.axes if axes.images]


def test_a_heat_map_for_each_head():
    figure = plots.attention_maps(WEIGHTS, QUERIES, KEYS)
    maps = heat_maps(figure)
    assert [axes.get_title() for axes in maps] == ["head 1", "head 2", "head 3", "head 4"]
    for axes, weights in zip(maps, WEIGHTS, strict=True):
        assert np.array_equal(axes.images[0].get_array(), weights)
        assert axes.images[0].get_clim() == (0.0, 1.0)  # one scale for all, or heads could not be compared
        assert [label.get_text() for label in axes.get_xticklabels()] == KEYS
    assert [label.get_text() for label in maps[0].get_yticklabels()] == QUERIES


def test_a_long_text_has_labels_for_some_tokens_and_many_heads_have_rows(monkeypatch):
    monkeypatch.setattr(plots, "_WIDEST", 22.0)
    tokens = [f"t{i}" for i in range(130)]
    figure = plots.attention_maps(np.zeros((3, 130, 130)), tokens, tokens)
    assert figure.get_size_inches()[0] < 24 and len(heat_maps(figure)) == 3
    assert [label.get_text() for label in heat_maps(figure)[0].get_xticklabels()] == tokens[::5]


def test_titles_can_be_given():
    maps = heat_maps(plots.attention_maps(WEIGHTS, QUERIES, KEYS, titles=list("abcd")))
    assert [axes.get_title() for axes in maps] == list("abcd")


@in_one(
    "weights, queries, keys, titles, wanted",
    [
        (WEIGHTS, QUERIES[:1], KEYS, None, "(4, 1, 3)"),
        (WEIGHTS, QUERIES, KEYS[:2], None, "(4, 2, 2)"),
        (WEIGHTS, KEYS, QUERIES, None, "(4, 3, 2)"),
        (WEIGHTS, QUERIES, KEYS, ["a", "b"], "(2, 2, 3)"),
        (WEIGHTS[0], QUERIES, KEYS, None, "(2, 2, 3)"),
    ],
)
def test_sizes_must_match(weights, queries, keys, titles, wanted):
    with pytest.raises(ValueError) as caught:
        plots.attention_maps(weights, queries, keys, titles)
    assert f"must be (heads, queries, keys), here {wanted}, got {weights.shape}" in str(caught.value)


def test_training_curve_shows_losses_and_floor():
    figure = plots.training_curve([1, 2, 3], [3.0, 2.0, 1.5], floor=0.5)
    loss, floor = figure.axes[0].lines
    assert (list(loss.get_xdata()), list(loss.get_ydata())) == ([1, 2, 3], [3.0, 2.0, 1.5])
    assert list(floor.get_ydata()) == [0.5, 0.5]
    assert len(plots.training_curve([1], [2.0]).axes[0].lines) == 1
    with pytest.raises(ValueError, match="same first dimension"):
        plots.training_curve([1, 2, 3], [3.0, 2.0])


def log(steps, every=10):
    """What a run writes: a line for each step, and one for each validation."""
    records = []
    for step in range(1, steps + 1):
        records.append({"step": step, "loss": 4.0 / step, "rate": 0.001 * step, "seconds": 0.1})
        if step % every == 0:
            records.append({"step": step, "validation_loss": 3.0 + (step - 20) ** 2})
    return records


def test_learning_curves_show_loss_validation_and_rate():
    losses, rates = learning_curves(log(30)).axes
    training, valid = losses.lines
    (rate,) = rates.lines
    steps = list(range(1, 31))
    assert list(training.get_xdata()) == list(rate.get_xdata()) == steps
    assert list(training.get_ydata()) == pytest.approx([4.0 / step for step in steps])
    assert list(rate.get_ydata()) == pytest.approx([0.001 * step for step in steps])
    assert list(valid.get_xdata()) == [10, 20, 30] and list(valid.get_ydata()) == [103.0, 3.0, 103.0]
    assert [text.get_text() for text in losses.get_legend().get_texts()] == [
        "training loss",
        "validation loss, lowest 3.000",
    ]
    assert losses.get_ylabel() == "cross-entropy (nats)" and rates.get_ylabel() == "learning rate"
    assert rates.get_xlabel() == "step"


def test_the_loss_of_a_long_run_is_a_running_mean():
    training = learning_curves(log(400)).axes[0].lines[0]  # of a hundredth of the steps: 4
    assert training.get_label() == "training loss, mean of 4 steps"
    assert list(training.get_xdata()) == list(range(4, 401))
    assert training.get_ydata()[0] == pytest.approx((4 + 2 + 4 / 3 + 1) / 4)
    assert training.get_ydata()[-1] == pytest.approx(sum(4.0 / step for step in range(397, 401)) / 4)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "records, lines",
    [
        ([], 0),
        (log(1), 1),
        ([{"step": 5, "validation_loss": 2.0}], 1),
        ([*log(2), {"step": 2, "mean_of": [1, 2], "mean_validation_loss": 1.0}], 1),
    ],
)
def test_learning_curves_of_a_run_that_has_hardly_begun_can_be_drawn(records, lines, tmp_path):
    figure = learning_curves(records)
    assert len(figure.axes[0].lines) == lines
    write_figure(tmp_path / "curves.png", figure)


def test_save_writes_a_png(tmp_path):
    path = tmp_path / "curve.png"
    write_figure(path, plots.training_curve([1, 2], [2.0, 1.0]))
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    height, width, _ = image.imread(path).shape
    assert width > height > 300
    assert [p.name for p in path.parent.iterdir()] == ["curve.png"]


def test_a_failed_save_leaves_the_old_picture_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "curve.png"
    path.write_bytes(b"the old picture")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write .*curve\.png: No space left on device"):
        write_figure(path, plots.training_curve([1, 2], [2.0, 1.0]))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"curve.png": b"the old picture"}


def test_matrices_show_their_numbers_side_by_side() -> None:
    figure = plots.matrices(W=np.array([[1.0, -2.0, 0.125], [0.0, 3.0, 4.0]]), b=np.array([5.0, -0.001]))
    left, right = figure.axes
    assert [axes.get_title() for axes in (left, right)] == ["W", "b"]
    assert [text.get_text() for text in left.texts] == ["1", "-2", "0.12", "0", "3", "4"]
    assert [text.get_text() for text in right.texts] == ["5", "0"]  # and not -0
    colors = left.images[0].cmap(left.images[0].norm(np.array([4.0, -2.0])))
    assert colors[0][2] > colors[0][0]  # blue where positive, as in the stepper and the viewer
    assert colors[1][0] > colors[1][2]  # orange where negative
    assert plots.matrices(zeros=np.zeros((2, 2))).axes[0].images[0].get_clim() == (-1.7, 1.7)


def test_matrices_say_in_words_what_they_show() -> None:
    """A screen reader read "picture", and nothing of the numbers; the notebook's file stores the words beside it."""
    figure = plots.matrices(W=np.array([[1.0, -2.0, 0.125], [0.0, 3.0, 4.0]]), b=np.array([5.0]))
    words = "W (2 × 3): 1, -2, 0.12; 0, 3, 4\nb (1 × 1): 5"
    assert figure._repr_mimebundle_() == ({}, {"image/png": {"alt": words}})
    assert plots.training_curve([1, 2], [2.0, 1.0])._repr_mimebundle_() == ({}, {})


def test_a_pipeline_has_a_box_for_each_turn() -> None:
    ranks = [[Turn("F", 0, 5.0, 6.0, 1), Turn("B", 0, 8.0, 10.0, 0)], [Turn("F", 0, 6.0, 6.5, 1)]]
    (axes,) = plots.pipeline(ranks, "two ranks").axes
    boxes = [(box.get_x(), box.get_width(), round(box.get_y() + box.get_height() / 2)) for box in axes.patches]
    assert boxes == [(0.0, 1.0, 0), (3.0, 2.0, 0), (1.0, 0.5, 1)]
    assert [text.get_text() for text in axes.texts] == ["F0", "B0", "F0"]
    assert axes.get_xlim() == (0.0, 5.0) and axes.get_title() == "two ranks"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "figure",
    [
        plots.matrices(W=np.eye(2)),
        plots.attention_maps(WEIGHTS, QUERIES, KEYS),
        plots.training_curve([1, 2], [2.0, 1.0]),
    ],
)
def test_a_figure_shows_itself_in_a_notebook_that_never_used_pyplot(figure) -> None:
    pixels = image.imread(io.BytesIO(figure._repr_png_()), format="png")
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 8


@in_one("named", [{}, {"x": np.zeros((2, 2, 2))}, {"x": np.zeros((0, 2))}, {"x": np.array(1.0)}])
def test_matrices_refuse_what_is_none(named: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="give matrices or vectors by name"):
        plots.matrices(**named)


def test_numbers_have_one_colour_on_pages_and_in_pictures() -> None:
    """Positive was red in pictures, and blue in the stepper and the viewer."""
    page = build("minitransformer.school.show.viewer", "title", "attention", {}, [])
    for name, colour in (("above", ABOVE), ("below", BELOW)):
        assert f"--{name}: light-dark({colour}," in page
        assert page.count(f"--{name}:") == 1
    cmap = plots.matrices(x=np.array([-1.0, 1.0])).axes[0].images[0].cmap
    assert [to_hex(cmap(end)) for end in (0.0, 1.0)] == [BELOW, ABOVE]


def test_titles_of_matrices_are_mathematics_and_do_not_collide() -> None:
    """They were k_times_q_transposed, one across the other."""
    x = np.ones((3, 3))
    names = {"W_Q": x, "q_times_k_transposed": x, "k_times_q_transposed": x, "weighted_mean": x[:, :1]}
    figure = plots.matrices(**names, with_rounded_weights=x[:, :2])
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["$W_Q$", "q kᵀ", "k qᵀ", "weighted\nmean", "with rounded\nweights"]
