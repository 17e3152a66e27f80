"""A test of concepts: twenty questions without numbers to compute, and what each wrong answer reveals.

Given before the course and after it, with the options in another order, it shows which ideas have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..worksheets.numbers import Draw

_LETTERS = "ABCD"


@dataclass(frozen=True)
class Concept:
    """A question. right: the right answer. wrong: the other answers, each with the belief that it reveals."""

    week: int
    text: str
    right: str
    wrong: Mapping[str, str]


CONCEPTS = (
    Concept(
        1, "A gradient check moves each input a little and compares. It passes for a loss that is the plain sum of "
        "the outputs. "
        "What follows?",
        "The gradient is right for this upstream gradient, all ones; for another one it may be wrong.",
        {
            "The backward pass is right, for every loss that is built on these outputs, whatever that loss is.":
            "believes that one passing check proves the code",
            "Nothing, since finite differences are only approximate.": "mistakes an error in the tenth digit for "
            "lack of evidence",
            "The forward pass is right.": "thinks that a gradient check knows what the function should be",
        },
    ),
    Concept(
        1, "The step h of a central difference is made ever smaller, in float64. What happens to the error?",
        "It falls, and then grows again, since the difference of two nearly equal numbers has few digits left.",
        {
            "It falls to zero.": "forgets rounding",
            "It stays the same.": "does not connect the step with the quotient's limit",
            "It grows from the start.": "has heard of rounding, but not of the error of the quotient itself",
        },
    ),
    Concept(
        2, "C = AB. Why is dA = dC Bᵀ and not Bᵀ dC?",
        "Each entry of A reaches one row of C by a row of B; summing over these ways gives dC Bᵀ.",
        {
            "Because only this has the shape of A.": "derives formulas from shapes alone, which fails for square "
            "matrices",
            "Because the derivative of a product swaps its factors.": "has memorized a rule without an index",
            "Both are right; the order does not matter.": "treats matrices like numbers",
        },
    ),
    Concept(
        2, "A bias b of width 4 is added to each of 10 rows. Its gradient is",
        "the sum of the 10 rows of the upstream gradient.",
        {
            "the mean of the 10 rows, since the bias was added 10 times.": "confuses a copy's gradient with the mean "
            "that the loss may contain",
            "an array of 10 × 4 numbers.": "thinks that a gradient has the shape of the output, not of its variable",
            "the last row.": "lets a later use replace an earlier one",
        },
    ),
    Concept(
        2, "All scores of a softmax are doubled. Its weights",
        "become more unequal: the ratios of the weights are squared.",
        {
            "stay the same, since softmax divides by the sum and so normalizes.": "thinks that softmax only divides by "
            "the sum",
            "double.": "forgets that they sum to one",
            "become more equal.": "gets the effect of temperature backwards",
        },
    ),
    Concept(
        3, "In dx = y (dy − Σ dy·y), the gradient of softmax, what does subtracting the weighted mean express?",
        "The weights sum to one: one can rise only if others fall.",
        {
            "It makes the computation stable, as subtracting the largest score does.": "mixes it up with "
            "subtracting the largest score",
            "It is the derivative of exp.": "differentiates term by term and forgets the shared denominator",
            "It centres the gradient, which speeds up training.": "mistakes a derivative for an optimization trick",
        },
    ),
    Concept(
        3, "A training loss with label smoothing cannot reach 0. Why?",
        "The smoothed target is not certain, so the least cross-entropy is the target's entropy.",
        {
            "The learning rate is too large.": "explains every plateau by optimization",
            "Softmax never reaches exactly 1.": "names a limit that without smoothing still lets the loss fall to any "
            "size",
            "The model is too small.": "does not separate what is possible from what is learned",
        },
    ),
    Concept(
        4, "Attention without positions and without a mask reads a text whose words have been shuffled. Its outputs",
        "are the same vectors, shuffled in the same way.",
        {
            "are different vectors, since the order matters in language.": "thinks that attention knows the order of "
            "its tokens",
            "are all equal.": "confuses 'a set' with 'a mean'",
            "are the same vectors at the same places.": "forgets that each query moves too",
        },
    ),
    Concept(
        4, "What is a value in attention?",
        "What a token contributes to those that attend to it.",
        {
            "How important the token is for the meaning of the whole sentence.": "reads the everyday meaning of the "
            "word into the name",
            "The weight that a token gets.": "mixes up values and weights",
            "The word's embedding.": "overlooks the projection W_V",
        },
    ),
    Concept(
        4, "Why are scores divided by √d_k?",
        "The spread of a dot product grows with √d_k; large scores saturate the softmax, whose gradient then vanishes.",
        {
            "So that the weights sum to one.": "assigns the softmax's work to the scale",
            "So that no number overflows.": "thinks of the range of floats; the softmax subtracts its largest score "
            "for that",
            "To make attention faster.": "sees every detail as a matter of cost",
        },
    ),
    Concept(
        5, "A weight of attention is nearly 0. The gradient of its score is",
        "nearly 0, whatever dweights is.",
        {
            "large, because it should change.": "lets the gradient know what would be good",
            "equal to dweights.": "leaves out the softmax",
            "large, because 1/weight is large.": "thinks of the gradient of a logarithm",
        },
    ),
    Concept(
        5, "In self-attention x makes q, k and v. The gradient of x is",
        "the sum of what comes back through q, k and v.",
        {
            "what comes back through v, since the weights are only numbers.": "treats the weights as constants",
            "the mean of the three.": "averages over the uses of a shared input",
            "what comes back through q, since x asks.": "sees a token as a query only",
        },
    ),
    Concept(
        6, "A causal mask is applied after the softmax, by setting weights to 0. What is wrong?",
        "The visible weights no longer sum to one, and depend on tokens that should be hidden.",
        {
            "Nothing: hidden tokens get the weight 0 either way, and add nothing.": "overlooks the shared denominator",
            "The gradient cannot pass the zeros.": "looks for a fault in the gradient where the function is wrong",
            "It is slower.": "sees every detail as a matter of cost",
        },
    ),
    Concept(
        6, "Eight heads of width 8 instead of one head of width 64: what is gained?",
        "Eight different patterns of attention at the same number of parameters.",
        {
            "Eight times the parameters, and so eight times as much that can be learned.": "thinks that heads are "
            "added, not split off",
            "Each head sees an eighth of the tokens.": "confuses the axis of the tokens with that of the width",
            "Eight times the speed.": "sees heads as a matter of speed",
        },
    ),
    Concept(
        7, "In h' = h + f(h), what does the residual connection do for the gradient?",
        "It passes the gradient on unchanged, in addition to what comes through f.",
        {
            "It makes it larger at each layer, by a factor of about two.": "counts paths, not sizes",
            "It replaces the gradient of f.": "thinks of a switch, not of a sum",
            "Nothing; it helps only forward.": "does not see that a sum copies its gradient",
        },
    ),
    Concept(
        8, "A token occurs three times in a batch. Its row of the embedding table gets",
        "the sum of three gradients.",
        {
            "the gradient of its last occurrence.": "assigns where one must add",
            "the mean of three gradients.": "takes a mean where the loss has none",
            "no gradient, since a look-up is not a computation.": "thinks that only arithmetic has a derivative",
        },
    ),
    Concept(
        9, "While a model writes, what does the key-value cache save it from computing again?",
        "Keys and values of the earlier tokens; a new token still attends to all of them.",
        {
            "The attention of all earlier tokens, so that each new token costs the same as the last.": "thinks that a "
            "step no longer "
            "depends on the length",
            "The queries of the earlier tokens.": "does not see that old queries are never used again",
            "The weights of the model.": "confuses parameters with activations",
        },
    ),
    Concept(
        10, "A model with a wrong backward pass",
        "often still learns, only less well.",
        {
            "does not learn at all.": "expects every mistake to show in the loss",
            "diverges.": "expects every mistake to show in the loss",
            "learns, if the shapes fit, as well as a right one.": "trusts shapes and descent instead of a check",
        },
    ),
    Concept(
        11, "A head always attends to the previous token. It is set to zero, and the loss does not change. What "
        "follows?",
        "On these texts nothing is lost; another head may do the same work.",
        {
            "The head does nothing.": "takes one ablation as proof of uselessness",
            "Attending to the previous token is of no use, in this model and in others.": "concludes from one head to "
            "the pattern",
            "The head was attending to something else.": "doubts the weights instead of the conclusion",
        },
    ),
    Concept(
        12, "Attention replaced recurrence in translation above all because",
        "all positions can be computed at once, and any two are one step apart.",
        {
            "it always needs fewer operations than recurrence, however long the texts are.": "overlooks n² and the "
            "projections",
            "recurrent networks cannot be differentiated through time.": "takes vanishing for missing gradients",
            "it needs fewer parameters.": "confuses cost with size",
        },
    ),
)  # fmt: skip


def concepts_paper(seed: int, answers: bool = False) -> str:
    """The test as Markdown. The seed decides the order of the options, so that letters cannot be remembered."""
    draw = Draw(f"concepts/{seed}")
    parts = [
        f"# A test of concepts{': answers' if answers else ''}",
        f"Version {seed}. Mark one answer of each question; a guess is better than none.",
    ]
    for i, concept in enumerate(CONCEPTS, 1):
        options = draw.several([concept.right, *concept.wrong], 1 + len(concept.wrong))
        parts.append(f"## {i}{f' (week {concept.week})' if answers else ''}\n\n{concept.text}")
        for letter, option in zip(_LETTERS, options, strict=True):
            parts.append(f"{letter}. {option}")
            if answers:
                parts.append(
                    f"> {'**Right.**' if option == concept.right else 'Reveals: ' + concept.wrong[option]}".replace(
                        "**", ""
                    )
                )
    return "\n\n".join(parts) + "\n"
