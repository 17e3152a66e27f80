"""Gates that are not a softmax over the chosen experts. The scores of a token are its E logits; `chosen` says which
k experts it goes to, and has no gradient.

A softmax over all E. Fedus et al. 2021, "Switch Transformers", equation 2; Muennighoff et al. 2024, "OLMoE", section 2:

    p = softmax(logits),     gates_i = factor · p_i   for chosen i, and 0 for the others

The gates do not sum to one. Only the chosen p_i get a gradient, dp_i = factor · dgates_i, but each p_i contains all
scores in its denominator, so every score learns:

    dlogits_i = p_i (dp_i - sum_j dp_j p_j)

A sigmoid for each. DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2, equations 12 to 16:

    s = σ(logits),     total = sum_j s_j   over the chosen j
    gates_i = factor · s_i / total         for chosen i, and 0 for the others

No expert's score lowers another's; only the sum of the chosen ones connects them. Let share be s of the chosen. By the
quotient rule

    dshare_i = (factor · dgates_i - sum_j dgates_j gates_j) / total   for chosen i, and 0 for the others
    dlogits_i = dshare_i s_i (1 - s_i)

Without the division the total is 1 and the sum over j is missing.

The choice. DeepSeek-V3 adds a bias to each score, for the choice alone: the k experts with the largest s_i + b_i are
chosen, and their gates are made of s_i. So b gets no gradient. After each step it rises by a constant for each expert
that got fewer tokens than the mean, and falls for each that got more: the shares become equal without a loss that pulls
at the router. To limit how many machines a token is sent to, the experts form groups, and only the best few groups
take part (DeepSeek-V2, section 2.2.2): a group counts by its largest score, or by the sum of its two largest.
"""

from __future__ import annotations

from ....core.arrays.backend import Array, Pullback, array_module
from ....core.arrays.declared import op
from ....core.arrays.float16 import in_float32
from ....core.ops.activations import logistic
from ....core.ops.softmax import softmax
from ..experts import chosen_experts


@op("logits, gates: (..., E); chosen: booleans that broadcast to (..., E); factor > 0")
@in_float32
def softmax_gates(logits: Array, chosen: Array | None = None, factor: float = 1.0) -> tuple[Array, Pullback]:
    """The chosen experts' shares of a softmax over all, times `factor`; 0 for the others.

    chosen: all unless given. backward(dgates) returns dlogits. Fedus et al. 2021.
    """
    working = array_module(logits).ones(logits.shape, bool) if chosen is None else chosen
    p, softmax_backward = softmax(logits)
    gates = factor * p * working

    def backward(dgates: Array) -> Array:
        dp = factor * dgates * working
        dlogits = softmax_backward(dp)
        return dlogits

    return gates, backward


@op("logits, gates: (..., E); chosen: booleans that broadcast to (..., E); factor > 0")
@in_float32
def sigmoid_gates(
    logits: Array, chosen: Array | None = None, factor: float = 1.0, normalized: bool = True
) -> tuple[Array, Pullback]:
    """The sigmoids of the chosen experts, times `factor`, and divided by their sum if normalized; 0 for the others.

    chosen: all unless given, and at least one in each row. backward(dgates) returns dlogits. DeepSeek-AI 2024.
    """
    working = array_module(logits).ones(logits.shape, bool) if chosen is None else chosen
    scores = logistic(logits)
    share = working * scores
    total = share.sum(axis=-1, keepdims=True) if normalized else 1.0
    gates = factor * share / total

    def backward(dgates: Array) -> Array:
        through_total = (dgates * gates).sum(axis=-1, keepdims=True) if normalized else 0.0
        dshare = (factor * dgates - through_total) / total
        dscores = working * dshare
        dlogits = dscores * scores * (1.0 - scores)
        return dlogits

    return gates, backward


def best_in_groups(scores: Array, k: int, groups: int = 1, kept: int = 1, counted: int = 1) -> Array:
    """True at the k largest scores of the `kept` best groups: boolean, (..., E). Of equal scores the first wins.

    The E experts are `groups` groups of neighbours; a group counts by the sum of its `counted` largest scores.
    """
    if groups == 1:
        return chosen_experts(scores, k)
    xp, (*before, n_experts) = array_module(scores), scores.shape
    if n_experts % groups:
        raise ValueError(f"best_in_groups: {n_experts} experts cannot form {groups} groups of equal size")
    grouped = scores.reshape(*before, groups, n_experts // groups)
    counts = chosen_experts(grouped, counted)
    best = xp.where(counts, grouped, 0.0).sum(axis=-1)
    open_groups = chosen_experts(best, kept)
    visible = xp.where(open_groups[..., None], grouped, -xp.inf)
    return chosen_experts(visible.reshape(scores.shape), k)
