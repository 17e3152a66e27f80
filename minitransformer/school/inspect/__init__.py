"""Look into a model and intervene: what each head attends to and outputs, and what changes without it.

from minitransformer import inspect

found = inspect.heads(model, ids)                      # the weights and outputs of every head
with inspect.ablate(model, [(5, 3)]):                  # indices, from 0: in words layer 6, head 4
    logits, _ = model(ids)
with inspect.patch(model, {(5, 3): other.outputs[5][:, 3]}):
    logits, _ = model(ids)
for logits in inspect.logit_lens(model, ids): ...      # what each layer would already predict

A head is given as (layer, head): two indices that count from 0, like those of the arrays that `heads` returns. Texts,
pictures and commands count from 1. In an encoder-decoder a head also has a kind: ("encoder", 5, 3), ("decoder", 5, 3),
("cross", 5, 3).
"""

from .circuits import circuits
from .heads import Heads, attribution, heads
from .interventions import ablate, patch
from .lens import logit_lens
from .scores import first_token_score, induction_score, previous_token_score, repeated

__all__ = [
    "Heads",
    "ablate",
    "attribution",
    "circuits",
    "first_token_score",
    "heads",
    "induction_score",
    "logit_lens",
    "patch",
    "previous_token_score",
    "repeated",
]
