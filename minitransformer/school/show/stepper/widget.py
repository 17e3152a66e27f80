"""The page as a widget of a notebook: the same code in a frame, with its state on the side of Python.

    w = recording.widget()      # shows itself, also in Colab, VS Code and marimo
    w.state                     # {"step": 23, "mistake": "", "inputs": [], "pressed": ["maps", "motion"]}
    w.state = {"step": 5}       # goes there; what is not named stays as it is

step: the number of the step; mistake: the name of the one that is switched on; inputs: the texts of all fields, if any
was edited; pressed: the switches that are on. Shown again, the widget is as it was left. https://anywidget.dev
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from ....core.text.tokenizer import load_library
from .page import to_html
from .steps import Steps

HEIGHT = 640  # pixels


def widget(recording: Steps, height: int = HEIGHT, **options: Any) -> Any:
    """A widget with the page of the recording. options: those of `to_html`.

    Raises ModuleNotFoundError that names the extra, if the library `anywidget` is not installed.
    """
    kind = _kind()
    return kind(page=to_html(recording, **options), title=f"{recording.name}, step by step", height=height)


@functools.cache
def _kind() -> Any:
    anywidget, traitlets = (load_library("a widget", "widget", name) for name in ("anywidget", "traitlets"))
    base: Any = anywidget.AnyWidget

    class StepperWidget(base):
        _esm = resources.files(__package__).joinpath("widget.js").read_text(encoding="utf-8")
        page = traitlets.Unicode().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    return StepperWidget
