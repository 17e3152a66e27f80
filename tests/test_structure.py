"""What `python -m benchmarks.structure` counts: rooms, arrows, floors, circles, and the way of one call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks/ belongs to the checkout and is not installed

from test_packaging import SOURCES

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


def test_no_file_imports_itself_by_way_of_others():
    graph = files(SOURCES)
    assert circles(graph) == [] and "core/arrays/declared.py" in graph["core/ops/softmax.py"]


@pytest.mark.parametrize(
    "back",
    [
        "from ..low import late",
        "def f():\n    from ..low.late import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import minitransformer.low.late",
        "from .between import y",
    ],
)
def test_a_circle_of_files_is_found(back: str):
    made = {"low/late.py": "from ..high.early import f", "high/early.py": back}
    made |= {"high/between.py": "from ..low.late import x", "high/aside.py": "from .early import f"}
    between = ["high/between.py"] * ("between" in back)
    assert circles(files({"__init__.py": "", "low/__init__.py": ""} | made)) == [
        [*between, "high/early.py", "low/late.py"]
    ]


@pytest.mark.slow
def test_the_package_has_no_circle_and_the_walk_is_counted():
    found = counted()
    assert found["depth 1"]["circles"] == []
    assert found["walk"]["own calls"] > found["walk"]["changes of room"] > found["walk"]["files"] > 10
