"""Softcapped scores and logits, and norms around a sub-layer: against the formulas written out, and their mistakes."""

from pathlib import Path

import numpy as np
import pytest
from value_checks import CLOSE, rejects

import minitransformer
from minitransformer import course, ideas, layers, ops
from minitransformer.check.verify.mistakes import MISTAKES
from minitransformer.ideas.after.softcap import CappedOutput, softcap, softcapped_attention
from minitransformer.school.show.site.modules import shown_modules
from minitransformer.school.show.site.notebook import places, read, read_ideas
from minitransformer.school.show.site.siblings import Siblings, module_of

ROOT = Path(__file__).parent.parent
PACKAGE = Path(minitransformer.__file__).parent
RNG = np.random.default_rng(3)
Q, K, V = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 5, 4)), RNG.normal(size=(2, 5, 6))


def written_out(q, k, v, cap, allowed, scale):
    """Score by score, without matrix products."""
    output = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, i in np.ndindex(q.shape[:2]):
        seen = [j for j in range(k.shape[1]) if allowed[i, j]]
        powers = [np.e ** (cap * np.tanh(scale * sum(q[b, i] * k[b, j]) / cap)) for j in seen]
        for j, power in zip(seen, powers, strict=True):
            output[b, i] += power / sum(powers) * v[b, j]
    return output


def test_the_values_are_those_of_the_formula():
    all_of_them = np.ones((3, 5), bool)
    np.testing.assert_allclose(
        softcapped_attention(Q, K, V, 0.9)[0], written_out(Q, K, V, 0.9, all_of_them, 0.5), rtol=1e-13
    )
    allowed = RNG.random((3, 5)) < 0.5
    allowed[1] = False
    back = np.tri(3, 5, 2, dtype=bool)
    np.testing.assert_allclose(
        softcapped_attention(Q, K, V, 2.0, allowed, True, 0.7)[0],
        written_out(Q, K, V, 2.0, allowed & back, 0.7),
        rtol=1e-13,
    )


def test_a_number_at_the_cap_and_a_small_one():
    y, backward = softcap(np.array([1e9, -1e9, 1e-6, 3.0]), 3.0)
    np.testing.assert_allclose(y, [3.0, -3.0, 1e-6, 3.0 * np.tanh(1.0)], rtol=1e-12)
    np.testing.assert_allclose(backward(np.ones(4)), [0.0, 0.0, 1.0, 1.0 / np.cosh(1.0) ** 2], rtol=1e-12)


def test_a_high_cap_is_none():
    np.testing.assert_allclose(softcapped_attention(Q, K, V, 1e6)[0], ops.attention(Q, K, V)[0], rtol=1e-10)


def test_no_cap_below_zero_and_no_other_shapes():
    with pytest.raises(ValueError, match="softcapped_attention: cap must be"):
        softcapped_attention(Q, K, V, 0.0)
    with pytest.raises(ValueError, match="SoftCapped: cap must be"):
        ideas.SoftCapped(-1.0)
    with pytest.raises(ValueError, match="softcapped_attention: the axis T_k must be the same"):
        softcapped_attention(Q, K, V[:, 1:], 1.0)


def test_capped_logits():
    table = layers.Embedding(7, 4, rng=np.random.default_rng(0)).to(dtype="float64")
    logits = CappedOutput(table, 0.1).unembed(Q)[0]
    np.testing.assert_allclose(logits, 0.1 * np.tanh(Q @ table.table.value.T / 0.1), rtol=1e-13)


def test_norms_around_a_sub_layer():
    inner = ideas.GatedFeedForward(4, 5, rng=np.random.default_rng(0)).to(dtype="float64")
    norm = ideas.OffsetRMSNorm(4, 1e-3).to(dtype="float64")
    assert not norm.gamma.value.any()
    norm.gamma.value += [0.5, -0.5, 1.0, 0.0]
    update = inner(Q)[0]
    size = np.sqrt((update**2).mean(axis=-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(ideas.Normed(inner, norm)(Q)[0], update / size * [1.5, 0.5, 2.0, 1.0], rtol=1e-12)


@rejects("softcapped-hidden-before-the-cap")
def a_hidden_key_has_no_weight_under_a_cap():
    seen = np.array([True, True, False, True, True])
    expected = softcapped_attention(Q, K[:, seen], V[:, seen], 0.9)[0]
    np.testing.assert_allclose(softcapped_attention(Q, K, V, 0.9, seen)[0], expected, **CLOSE)


# The exercise, the example and the page, which the course, the stepper and the site find in the folder.

LESSON = course.exercise("softcapped_attention_backward")


def test_the_exercise_knows_the_mistakes_in_its_folder():
    assert len(LESSON.mistakes) >= 5 and not any(".lesson:" in mistake.target for mistake in MISTAKES.values())


def test_the_site_has_a_page_about_it():
    (idea,) = (one for one in read_ideas() if one.stem == "softcap")
    assert idea.title == "Softcapped scores" and idea.number == 0
    (place,) = (one for one in places([*read(ROOT / "notebooks"), idea]) if one.exercise is LESSON)
    assert place.chapter is idea
    about = Siblings.of([place])
    assert module_of(LESSON.name) == "ideas.after.softcap.op" and about.about(idea) == ["ideas.after.softcap.op"]
    assert {"ideas.after.softcap.op", "ideas.after.softcap.layer"} <= set(shown_modules())
    assert "ideas.after.softcap.lesson" not in shown_modules()  # it has the solution


def test_nobody_outside_the_folder_and_the_recipes_names_it():
    """So adding an idea changes no file of the core, of the course, of the stepper and of the site."""
    naming = {
        path.relative_to(PACKAGE).parts[:2]
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".txt", ".json", ".js") and "softcap" in path.read_text(encoding="utf-8").lower()
    }
    ideas = {("ideas", "__init__.py"), ("ideas", "after"), ("ideas", "published")}
    assert naming <= {*ideas, ("school", "inspect"), ("run", "fast")}, naming
