"""The backend that matplotlib uses in the browser: `plt.show()` displays every open figure and closes it."""

import sys
from typing import Any

from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

__all__ = ["FigureCanvas", "show"]


def show(*_: Any, **__: Any) -> None:
    """Display all open figures, in the order in which they were made."""
    for number in pyplot.get_fignums():
        sys.modules["IPython.display"].display(pyplot.figure(number))
    pyplot.close("all")
