"""The stepper's page as a widget of a notebook, on the side of Python; tests/browser has the other side."""

import sys

import numpy as np
import pytest

import minitransformer
from minitransformer import ops
from minitransformer.school.show.stepper import widget

X = np.array([[0.5, -1.0, 2.0]])


def test_the_widget_has_the_page_and_keeps_its_state() -> None:
    recording = minitransformer.step(ops.softmax, X)
    made = recording.widget(bugs=(), tokens=["a"], height=500)
    assert made.page == recording.to_html(bugs=(), tokens=["a"])
    assert (made.title, made.height, made.state) == ("softmax, step by step", 500, {})
    made.set_state({"state": {"step": 3}})  # as the browser sends it
    assert made.state == {"step": 3}


def test_without_its_library_the_widget_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget._kind.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r'pip install "minitransformer\[widget\]"'):
        minitransformer.step(ops.softmax, X).widget(bugs=())
