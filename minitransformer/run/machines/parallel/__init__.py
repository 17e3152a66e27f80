"""Several ranks: groups of processes or threads, and collectives as ops with pullbacks."""

from .collectives import all_gather, all_reduce, broadcast, identity, mean, receive, reduce, reduce_scatter, send
from .group import Group, in_threads, thread_ranks
from .pipeline import idle_share, one_forward_one_backward, stage_of
from .tensor import Cut, cut
from .vocabulary import CutEmbedding, vocabulary_cross_entropy

__all__ = [
    "Cut",
    "CutEmbedding",
    "Group",
    "all_gather",
    "all_reduce",
    "broadcast",
    "cut",
    "identity",
    "idle_share",
    "in_threads",
    "mean",
    "one_forward_one_backward",
    "receive",
    "reduce",
    "reduce_scatter",
    "send",
    "stage_of",
    "thread_ranks",
    "vocabulary_cross_entropy",
]
