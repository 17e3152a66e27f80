"""Watch the heads of a running model through the variables of its forward pass, and replace their values.

    heads      in MultiHeadAttention, or another attention: the heads' outputs before W_O mixes them, (B, H, T_q, d_v)
    weights    in the op that mixes, whichever it is: how much each query takes of each value, (B, H, T_q, T_k)
    dheads     in the pullback of the first: the gradient of `heads`

The code of the model needs no changes for it.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from ...check.trace.tracing import Traced
from ...core.arrays.backend import Array
from ...core.layers import Decoder, Encoder, Module, MultiHeadAttention
from ...core.models import Transformer

Place = tuple[str, int]  # kind of attention, layer
See = Callable[[Place, str, Array], Array | None]


def stack_of(model: Module) -> tuple[str, Any]:
    """The name of the stack that the model's output comes from, and the stack."""
    for name in ("stack", "decoder", "encoder"):
        if isinstance(found := getattr(model, name, None), Encoder | Decoder):
            return name, found
    raise TypeError(f"inspect: a {type(model).__name__} has no stack of attention layers; give a model of models/")


def attentions(model: Module) -> dict[str, list[MultiHeadAttention]]:
    """The attention of each layer, by kind: "self", or "encoder", "decoder" and "cross". Shared ones are repeated.

    A layer that does not attend, such as one with a memory in place of attention, is not counted.
    """
    _, stack = stack_of(model)
    own = _sublayers(stack, "self_attention")
    if not isinstance(model, Transformer):
        return {"self": own}
    cross = _sublayers(stack, "cross_attention")
    return {"encoder": _sublayers(model.encoder, "self_attention"), "decoder": own, "cross": cross}


def _sublayers(stack: Encoder | Decoder, name: str) -> list[MultiHeadAttention]:
    found = [_attention_in(getattr(layer, name)) for layer in stack.plain_layers]
    return [part for part in found if hasattr(part, "mix")]


def _attention_in(part: Any) -> MultiHeadAttention:
    """The sub-layer inside a residual connection, without the norms around it."""
    while hasattr(part, "sublayer"):
        part = part.sublayer
    return part


class Watch(Traced):
    """Inside this context, see(place, name, array) is called as soon as a variable named above gets its value.

    If `see` returns an array, the model continues with that array instead. A Watch inside another sees the arrays that
    the outer one returned.
    """

    def __init__(self, model: Module, see: See) -> None:
        super().__init__(model)
        if hasattr(model, "textbook"):
            raise ValueError("inspect: a fast twin does not run the code that is watched; use model.textbook instead")
        self._see = see
        self._places: dict[int, list[Place]] = {}
        self._kinds: set[type[Any]] = set()
        for kind, found in attentions(model).items():
            for layer, attention in enumerate(found):
                self._places.setdefault(id(attention), []).append((kind, layer))
                self._kinds.add(type(attention))

    def __enter__(self) -> Watch:
        self._names: dict[types.CodeType, str] = {}
        for call in (kind.__call__.__code__ for kind in self._kinds):
            (pullback,) = (c for c in call.co_consts if isinstance(c, types.CodeType) and c.co_name == "backward")
            self._names |= {call: "heads", pullback: "dheads"}
        outer = getattr(sys.gettrace(), "__self__", None)
        self._watches: list[Watch] = [*outer._watches, self] if isinstance(outer, Watch) else [self]
        self._running: Any = None
        self._layer, self._in_forward = 0, False
        self._of_pullback: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        return super().__enter__()

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        mixes = self._in_forward and "weights" in code.co_varnames + code.co_cellvars
        name = self._names.get(code, "weights" if mixes else None)
        if name is None:
            return None
        if type(frame.f_locals.get("self")) in self._kinds:
            self._running, self._layer = frame.f_locals["self"], _layer_of(frame)
        self._in_forward = name != "dheads"
        if name == "dheads":  # mix_backward comes from the forward call of this pullback
            self._running, self._layer = self._of_pullback.get(frame.f_locals["mix_backward"], (None, 0))
        waiting = self._running is not None

        def look(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal waiting
            if waiting:
                frame_locals = frame.f_locals  # read once: before Python 3.13 a second look would undo the change
                if name in frame_locals:
                    waiting = False
                    if "mix_backward" in frame_locals:
                        self._of_pullback[frame_locals["mix_backward"]] = self._running, self._layer
                    frame_locals[name] = self._exchanged(name, frame_locals[name])
            if event == "return" and name != "weights":
                self._running, self._in_forward = None, False  # an op called outside a layer belongs to no layer
            return look

        return look

    def _exchanged(self, name: str, value: Array) -> Array:
        for watch in self._watches:
            places = watch._places.get(id(self._running), [])
            if places:
                place = places[0] if len(places) == 1 else (places[0][0], self._layer)
                instead = watch._see(place, name, value)
                value = value if instead is None else instead
        return value


def _layer_of(frame: types.FrameType) -> int:
    """The number of the layer that is running. The module alone does not determine it: layers may share a module."""
    caller: types.FrameType | None = frame
    while caller is not None:
        if isinstance(caller.f_locals.get("self"), Encoder | Decoder) and "i" in caller.f_locals:
            return caller.f_locals["i"]
        caller = caller.f_back
    return 0
