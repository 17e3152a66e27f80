"""The demo: what it prints and writes, that a seed fixes it, and that the model learns what it is said to learn."""

import math
import re

import numpy as np
import pytest
import sacrebleu
from num2words import num2words

from minitransformer import plots
from minitransformer.commands import demo
from minitransformer.core import ops
from minitransformer.school.course.worked_example import EXAMPLES
from minitransformer.text import NumberTask, german


def run(out, **options):
    lines = []
    right = demo.run(out, say=lines.append, **options)
    return right, "\n".join(lines)


@pytest.fixture
def few_numbers(monkeypatch):
    """Fewer numbers, so that a run takes a second; an untrained model writes on to the limit for each."""

    class FewNumbers(NumberTask):
        @classmethod
        def draw(cls, n_training, n_unseen, limit, rng):
            return NumberTask.draw(n_training // 4, n_unseen // 50, limit, rng)

    monkeypatch.setattr(demo, "NumberTask", FewNumbers)


@pytest.fixture
def few_ops(monkeypatch):
    """The check of two ops, for tests of other things."""
    monkeypatch.setattr(demo, "CASES", {name: demo.CASES[name] for name in ("softmax", "silu")})


@pytest.mark.parametrize("of", ["few ops", pytest.param("all ops", marks=pytest.mark.sweep)])
def test_a_short_run_prints_all_three_parts_and_writes_both_pictures(tmp_path, few_numbers, request, of):
    if of == "few ops":
        request.getfixturevalue("few_ops")
    right, text = run(tmp_path / "new" / "folder", steps=3)
    assert right
    assert all(example.title in text for example in EXAMPLES) and str(EXAMPLES[-1]) in text
    for case in demo.CASES.values():
        assert (re.search(rf"^   {re.escape(case.name)} +\d+ +\d\.\de[-+]\d\d  ok$", text, re.M) is not None) == (
            case.kind == "op"
        )
    assert "   all ok" in text
    assert "2000 numbers below 100,000 to learn from" in text
    assert re.search(r"20 numbers never seen in training: \d+\.\d% exact, BLEU \d+\.\d over word parts", text)
    for number in demo._SHOWN:
        words = num2words(number, lang="en").replace("-", " ").replace(",", "")
        verdict = r"\((seen in training|never seen), (right|wrong)"
        assert re.search(rf"^ +{number}  {words}\n {{11}}\S.*  {verdict}", text, re.M)
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["cross_attention.png", "loss.png", "model"]
    assert f"minitransformer view --model {tmp_path / 'new' / 'folder' / 'model'} " in text
    for path in (tmp_path / "new" / "folder").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert str(path) in text


@pytest.mark.slow
def test_a_seed_fixes_the_text_and_the_pictures(tmp_path, few_numbers, few_ops):
    def once(seed):
        _, text = run(tmp_path, seed=seed, steps=3)
        return text, {path.name: path.read_bytes() for path in tmp_path.rglob("*.*")}

    first = once(5)
    assert once(5) == first
    assert once(6)[1] != first[1]


@pytest.mark.slow
def test_a_translation_counts_only_if_all_of_it_is_right(tmp_path, few_numbers, few_ops, monkeypatch):
    given = []

    def every_other_one_right(model, task, numbers, device):
        given.append([(number, german(number) + ["und"] * (i % 2)) for i, number in enumerate(numbers)])
        return [parts for _, parts in given[-1]]

    monkeypatch.setattr(demo, "_translate", every_other_one_right)
    _, text = run(tmp_path, steps=1)
    unseen, shown = given
    said, wanted = [" ".join(parts) for _, parts in unseen], [" ".join(german(number)) for number, _ in unseen]
    bleu = sacrebleu.corpus_bleu(said, [wanted], tokenize="none").score
    assert 50.0 < bleu < 100.0
    assert f"20 numbers never seen in training: 50.0% exact, BLEU {bleu:.1f} over word parts" in text
    for i, (number, parts) in enumerate(shown):
        word = num2words(number, lang="de")
        verdict = f"wrong: it is {word})" if i % 2 else "right)"
        assert re.search(rf"^ +{''.join(parts)}  \((seen in training|never seen), {re.escape(verdict)}$", text, re.M)


@pytest.mark.slow
def test_a_wrong_op_is_reported(tmp_path, few_numbers, few_ops, monkeypatch):
    right_silu = ops.silu

    def silu(x):
        y, backward = right_silu(x)
        return y, lambda dy: 1.01 * backward(dy)

    monkeypatch.setattr(ops, "silu", silu)
    right, text = run(tmp_path, steps=1)
    assert not right
    assert re.search(r"^   silu +\d+ +\S+  WRONG$", text, re.M)
    assert "not all of them ok: run `minitransformer check`" in text


@pytest.mark.parametrize("n_tokens", [5, 37])
def test_the_lowest_loss_is_that_of_a_model_that_says_the_smoothed_target(n_tokens):
    smoothed = np.full(n_tokens, demo._SMOOTHING / n_tokens)
    smoothed[2] += 1.0 - demo._SMOOTHING
    loss, backward = ops.cross_entropy(np.log(smoothed)[None], np.array([2]), label_smoothing=demo._SMOOTHING)
    assert math.isclose(loss, demo._lowest_loss(n_tokens), rel_tol=1e-12)
    assert np.abs(backward(1.0)).max() < 1e-15  # and no logits do better


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    """The text, every translation as (number, German parts), the losses with their floor, and the heat maps."""
    translations, pictures = [], []
    translate, draw_curve, draw_maps = demo._translate, plots.training_curve, plots.attention_maps

    def note_translations(model, task, numbers, device):
        parts = translate(model, task, numbers, device)
        translations.append((task, list(zip(numbers, parts, strict=True))))
        return parts

    def note_curve(steps, losses, floor):
        pictures.append((losses, floor))
        return draw_curve(steps, losses, floor)

    def note_maps(weights, queries, keys):
        pictures.append((weights, queries, keys))
        return draw_maps(weights, queries, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_translate", note_translations)
        patch.setattr(plots, "training_curve", note_curve)
        patch.setattr(plots, "attention_maps", note_maps)
        right, text = run(tmp_path_factory.mktemp("demo"))
    assert right
    return text, translations, pictures


@pytest.mark.slow
def test_it_translates_95_percent_of_unseen_numbers_exactly(full_run):
    text, [(task, unseen), _], _ = full_run
    assert len({number for number, _ in unseen} - set(task.training)) == len(unseen) == 1000
    exact = sum("".join(parts) == num2words(number, lang="de") for number, parts in unseen) / len(unseen)
    assert exact >= 0.95
    assert f"1000 numbers never seen in training: {exact:.1%} exact" in text


@pytest.mark.slow
def test_the_loss_falls_to_the_lowest_there_is(full_run):
    _, _, [(losses, floor), _] = full_run
    assert len(losses) == 400
    assert losses[0] > 3.0
    assert floor - 0.02 < np.mean(losses[-20:]) < floor + 0.05


@pytest.mark.slow
def test_cross_attention_crosses(full_run):
    """When it writes the units some head looks at the English units, behind the tens; then it goes back to these."""
    _, _, [_, (weights, queries, keys)] = full_run
    assert queries == ["vier", "und", "fünfzig", "tausend", "drei", "hundert", "ein", "und", "zwanzig", "<end>"]
    assert keys == ["fifty", "four", "thousand", "three", "hundred", "and", "twenty", "one"]
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
    for part, word in {"vier": "four", "fünfzig": "fifty", "ein": "one", "zwanzig": "twenty"}.items():
        looks_at = weights[:, queries.index(part)].argmax(axis=-1)
        assert keys.index(word) in looks_at
