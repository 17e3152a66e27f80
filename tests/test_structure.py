"""What `python -m benchmarks.structure` counts: rooms, arrows, floors, circles, and the way of one call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks/ belongs to the checkout and is not installed

from benchmarks.structure import LOADED_BY, circles, counted, files, floors, rooms, walk

SCHOOL = LOADED_BY["lesson.py"]
MADE = {
    "__init__.py": "from . import low, high",  # the package hands names on: no arrow
    "low/__init__.py": "",
    "low/deep/__init__.py": "from ..plain import x",
    "low/plain.py": "import numpy",
    "high/__init__.py": "from ..low.deep import x",
    "high/again.py": "def f():\n    from minitransformer.low import plain",
    f"{SCHOOL}/__init__.py": "from ..high import again",
    "low/lesson.py": f"from ..{SCHOOL} import f",  # only that room loads it
    "top.py": f"from . import {SCHOOL}, __version__",
}


def test_rooms_arrows_and_floors_are_counted():
    graph = files(MADE)
    assert graph["high/again.py"] == {"low/plain.py"} and graph["top.py"] == {f"{SCHOOL}/__init__.py", "__init__.py"}
    shallow, deep = rooms(graph, 1), rooms(graph, 2)
    assert shallow == {
        "__init__.py": set(),
        "low": set(),
        "high": {"low"},
        SCHOOL: {"high"},
        "top.py": {SCHOOL, "__init__.py"},
    }
    assert floors(shallow) == 4 and circles(shallow) == []
    assert deep["high"] == {"low", "low/deep"} and deep["low/deep"] == {"low"} and floors(deep) == 5


def test_a_circle_is_found_and_is_one_floor():
    graph = rooms(files(MADE | {"low/back.py": f"from .. import {SCHOOL}"}), 1)
    assert circles(graph) == [sorted([SCHOOL, "high", "low"])]
    assert floors(graph) == 2  # the circle, and top.py


def test_few_steps_lead_from_a_loss_to_its_mathematics():
    found = walk()
    assert 50 < found["own calls"] <= 90 and 20 < found["changes of room"] <= 30


@pytest.mark.slow
def test_the_package_has_no_circle_and_the_walk_is_counted():
    found = counted()
    assert found["depth 1"]["circles"] == []
    assert found["walk"]["own calls"] > found["walk"]["changes of room"] > found["walk"]["files"] > 10
