"""Pictures: what they show, and that a file is whole or not there."""

from __future__ import annotations

import errno
import io
import os
import pathlib

import numpy as np
import pytest
from matplotlib import image

from minitransformer import plots

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


def test_titles_can_be_given():
    maps = heat_maps(plots.attention_maps(WEIGHTS, QUERIES, KEYS, titles=list("abcd")))
    assert [axes.get_title() for axes in maps] == list("abcd")


@pytest.mark.parametrize(
    ("weights", "queries", "keys", "titles", "wanted"),
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


def test_save_writes_a_png(tmp_path):
    path = tmp_path / "new" / "folder" / "curve.png"
    plots.save(plots.training_curve([1, 2], [2.0, 1.0]), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    height, width, _ = image.imread(path).shape
    assert width > height > 300
    assert [p.name for p in path.parent.iterdir()] == ["curve.png"]


def test_a_failed_save_leaves_the_old_picture_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "curve.png"
    path.write_bytes(b"the old picture")

    def half(self, content):
        with open(self, "wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"cannot write .*curve\.png: No space left on device"):
        plots.save(plots.training_curve([1, 2], [2.0, 1.0]), path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"curve.png": b"the old picture"}


def test_save_over_a_folder_fails_and_leaves_nothing(tmp_path):
    (tmp_path / "curve.png").mkdir()
    with pytest.raises(OSError):
        plots.save(plots.training_curve([1, 2], [2.0, 1.0]), tmp_path / "curve.png")
    assert os.listdir(tmp_path) == ["curve.png"]


def test_a_picture_is_reproducible():
    def drawn():
        buffer = io.BytesIO()
        plots.attention_maps(WEIGHTS, QUERIES, KEYS).savefig(buffer, format="png")
        return buffer.getvalue()

    assert drawn() == drawn()
