"""The boxes of the map: which calls of the forward pass are drawn, which lines lie in them, and their names.

A helper belongs to its caller's box, unless that calls it several times; an op belongs to the box of its own layer; and
a pullback, with all that it calls, to the box of the call that made it.
"""

from collections.abc import Collection, Iterator

from ....check.trace.calls import Binding, Call
from .naming import GROUPS, is_named
from .steps import Steps


class Boxes:
    """The boxes of a recording, each known by the index of its call."""

    def __init__(self, recording: Steps, shown: Collection[int]) -> None:
        """shown: the indices of the steps that the page shows. A box without such a step in forward is not drawn."""
        self.recording = recording
        self.of: list[int] = []  # by call: the box in which its lines lie
        for call in recording.calls:
            self.of.append(self._box_of(call))
        forward = [
            step.call for step in recording.steps if step.index in shown and not self._call(step.call).in_backward
        ]
        self.drawn = {0} | {box for call in dict.fromkeys(forward) for box in self.path(self.of[call])}

    def path(self, box: int) -> Iterator[int]:
        """The box and the boxes around it, from the inside out."""
        while True:
            yield box
            parent = self._call(box).parent
            if parent is None:
                return
            box = self.of[parent]

    def parents(self) -> set[int]:
        """The boxes with drawn boxes in them."""
        parents = (self._call(box).parent for box in self.drawn)
        return {self.of[parent] for parent in parents if parent is not None}

    def name(self, box: int) -> str:
        """What is called and, where the caller calls several alike, also its name for the result: "Linear Q". For a
        helper that papers have no name for, only this name; "" for a group, which is drawn as what is in it.
        """
        call = self._call(box)
        if call.name in GROUPS or _plain(call.name) in GROUPS:
            return ""
        bound = self._result(call) if self.recording.is_one_of_several(call) else None
        if bound is None:
            return self.recording.words_for(call)
        result = bound.name.upper() if len(bound.name) == 1 else bound.name.replace("_", " ")
        is_plain = self.recording.is_helper(call) and not is_named(call.name)
        return result if is_plain else f"{self.recording.words_for(call)} {result}"

    def _call(self, index: int) -> Call:
        return self.recording.calls[index]

    def _box_of(self, call: Call) -> int:
        if call.parent is None:
            return self.of[call.maker] if call.maker is not None else call.index
        if call.in_backward:
            return self.of[call.parent if call.maker is None else call.maker]
        name = _plain(call.name)
        if name.startswith("_"):
            is_box = self.recording.is_one_of_several(call)
        else:
            is_box = _bare(name) != _bare(_plain(self._call(call.parent).name))
        return call.index if is_box else self.of[call.parent]

    def _result(self, call: Call) -> Binding | None:
        """The caller's name for an array that the call returned."""
        around = self.recording.step_around(call)
        named = [] if around is None else [bound for bound in around.bound if bound.origin is not None]
        return next(
            (bound for bound in named if call in self.recording.path(self.recording.binding(bound.origin or 0)[0])),
            None,
        )


def _plain(name: str) -> str:
    return name.rpartition(".")[2]


def _bare(name: str) -> str:
    return name.lower().replace("_", "")
