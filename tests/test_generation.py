"""Decoding on the cache, held against loops that run the whole prefix again for every token."""

import functools
import itertools
import math

import numpy as np
import pytest
from tiers import in_one

import minitransformer.core.arrays.strict  # noqa: F401  (makes the device "strict" known)
from minitransformer.core.arrays.backend import to_device, to_numpy
from minitransformer.generation import (
    Continuation,
    Sampler,
    Translation,
    beam_search,
    generate,
    greedy,
    stream,
    translate,
    write,
)
from minitransformer.layers import Cache, InputEmbedding, KeyValueCache
from minitransformer.models import LanguageModel, LanguageModelConfig, Transformer, TransformerConfig
from minitransformer.run.tasks.translation import written

START, END, NEVER = 1, 2, 16
N_SOURCE, N_TARGET = 11, 17
SEEDS = (1, 2, 3, 5)


def model_of(seed, device=None, norm_order="pre"):
    """A model in float64 that does not write one token for ever, as most random ones do.

    Its output table is its input table shuffled, so that a token calls for some other, unless attention says more.
    """
    rng = np.random.default_rng(seed)
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "n_encoder_layers": 1, "n_decoder_layers": 2}
    options = {"share_embeddings": False, "tie_output": False, "dropout": 0.3, "norm_order": norm_order}
    model = Transformer(TransformerConfig(N_SOURCE, N_TARGET, **sizes, **options), rng).to(dtype="float64")
    for name, parameter in model.parameters():
        middle = 1.0 if name.endswith("gamma") else 0.0
        spread = 1.0 if name.endswith("table") else 0.3
        parameter.value[...] = rng.normal(middle, spread, parameter.value.shape)
    model.output.table.value[...] = model.target_tokens.table.value[rng.permutation(N_TARGET)]
    model.output.table.value[NEVER] = 0.0  # the logit of this token is 0, and some other one is larger
    return model if device is None else model.to(device)


def sources(seed, n=5):
    """Sentences of several lengths: ids (n, 6) filled up with 0, and which of them are real."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    lengths[0] = 6
    real = np.arange(6) < lengths[:, None]
    return np.where(real, rng.integers(3, N_SOURCE, (n, 6)), 0), real


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_greedy_writes_what_the_naive_loop_writes(norm_order, seed):
    model = model_of(seed, norm_order=norm_order)
    source, mask = sources(seed)
    together = greedy(model, source, mask, START, END, max_length=20)
    assert type(together) is np.ndarray and together.dtype == np.int64
    next_logits = [next_of_translation(model, *pair) for pair in zip(source, mask, strict=True)]
    one_by_one = [written_naively(each, [START], 20, END, lambda z: int(np.argmax(z))) for each in next_logits]
    assert together.shape == (len(source), max(map(len, one_by_one)))
    for row, wanted in zip(together.tolist(), one_by_one, strict=True):
        assert row == wanted + [END] * (len(row) - len(wanted))


@in_one("changes, error, message", [
    ({"max_length": 0}, ValueError, "greedy: max_length must be greater than 0, got 0"),
    ({"end": None}, TypeError, "greedy: end must be an integer, got None"),
    ({"source": [[3, 4]]}, TypeError, "expected a NumPy or CuPy array, got list"),
    ({"source": np.array([3, 4])}, ValueError, "must be a batch of sequences"),
    ({"source": np.array([[3, N_SOURCE]])}, ValueError, "must be from 0 to 10 (there are 11); got 11"),
    ({"source": np.zeros((0, 4), dtype=int)}, ValueError, "source is empty"),
    ({"source_mask": np.ones((1, 3), dtype=bool)}, ValueError, "source_mask must have shape (1, 2), got (1, 3)"),
    ({"source_mask": np.ones((1, 2))}, TypeError, "mask must be boolean"),
])  # fmt: skip
def test_bad_arguments_are_refused(changes, error, message):
    arguments = {"source": np.array([[3, 4]]), "source_mask": None, "start": START, "end": END, "max_length": 4}
    greedy(model_of(1), **arguments)
    with pytest.raises(error) as caught:
        greedy(model_of(1), **(arguments | changes))
    assert message in str(caught.value)


# From here on: both models, sampling, beam search, and prompts of different lengths.

N_TEXT, CONTEXT = 13, 24
PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5], [8, 9], [7, 9, 3, 2, 3]]


def language_model(seed, device=None, context=CONTEXT):
    """A decoder-only model in float64 that does not repeat one token for ever: its positions have a large effect."""
    rng = np.random.default_rng(seed)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 2}
    model = LanguageModel(LanguageModelConfig(N_TEXT, context, **sizes), rng).to(dtype="float64")
    for name, parameter in model.parameters():
        middle = 1.0 if name.endswith("gamma") else 0.0
        spread = 3.0 if "position" in name else 1.0 if name.endswith("table") else 0.3
        parameter.value[...] = rng.normal(middle, spread, parameter.value.shape)
    return model if device is None else model.to(device)


def generators(n, seed=0):
    return np.random.default_rng(seed).spawn(n)


def next_of_translation(model, source, mask):
    """The logits that follow a text, from a run over all of it without a cache; for one sentence."""
    logits = functools.cache(lambda text: model(source[None, :], np.array([text]), mask[None, :])[0][0, -1])
    return lambda text: logits(tuple(text))


def next_of_text(model):
    logits = functools.cache(lambda text: model(np.array([text]))[0][0, -1])  # several beams ask for the same
    return lambda text: logits(tuple(text))


def log_softmax(logits):
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


def written_naively(next_logits, prompt, n_new, end, pick):
    text = list(prompt)
    while len(text) < len(prompt) + n_new and (text == prompt or text[-1] != end):
        text.append(pick(next_logits(text)))
    return text[len(prompt) :]


def picked_at_random(rng, temperature, top_k, top_p):
    """Sampling as its definition says: sort, cut, renormalise, walk along the probabilities until the draw is used."""

    def pick(logits):
        order = sorted(range(len(logits)), key=lambda i: -logits[i])[:top_k]
        p = [math.exp((logits[i] - logits[order[0]]) / temperature) for i in order]
        p = [x / sum(p) for x in p]
        n = next((n for n in range(1, len(p)) if sum(p[:n]) >= top_p), len(p))
        left = rng.random() * sum(p[:n])
        for i, share in zip(order, p[:n], strict=False):
            left -= share
            if left < 0:
                return i
        return order[n - 1]

    return pick


def divided(log_p, length, alpha, penalty="length"):
    """The score, by fairseq's penalty or by that of Wu et al. 2016, equation 14, without its coverage."""
    return log_p / (length**alpha if penalty == "length" else (5 + length) ** alpha / (5 + 1) ** alpha)


def beams_naively(next_logits, prompt, n_new, end, beam, alpha, early=True, penalty="length"):
    """Beam search of one sentence on lists, after the words of core/generation/beam.py. Returns [(score, tokens)]."""
    living, finished = [(0.0, [])], []
    for length in range(1, n_new + 1):
        longer = []
        for log_p, tokens in living:
            steps = log_softmax(next_logits(list(prompt) + tokens))
            longer += [(log_p + step, [*tokens, i]) for i, step in enumerate(steps)]
        longer = sorted(longer, key=lambda pair: -pair[0])[: 2 * beam]
        ended = [pair for pair in longer[:beam] if pair[1][-1] == end or length == n_new]
        finished += [(divided(log_p, length, alpha, penalty), tokens) for log_p, tokens in ended]
        finished = sorted(finished, key=lambda pair: -pair[0])[:beam]
        living = [pair for pair in longer if pair[1][-1] != end][:beam]
        is_full = len(finished) == beam
        if not living or (is_full and (early or divided(living[0][0], length, alpha, penalty) <= finished[-1][0])):
            break
    return finished


def assert_same_hypotheses(found, wanted):
    assert [h.tokens for h in found] == [tokens for _, tokens in wanted]
    assert np.allclose([h.score for h in found], [score for score, _ in wanted], rtol=0, atol=1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_language_model_goes_on_with_prompts_of_many_lengths_as_with_each_alone_without_a_cache(seed):
    model = language_model(seed)
    together = generate(model, PROMPTS, 12, end=END)
    for prompt, row in zip(PROMPTS, together, strict=True):
        assert row == written_naively(next_of_text(model), prompt, 12, END, lambda z: int(np.argmax(z)))
        assert row == generate(model, [prompt], 12, end=END)[0]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(1.0, None, 1.0), (3.0, 4, 1.0), (2.0, None, 0.8), (5.0, 7, 0.9)], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_sampling_in_a_batch_is_sampling_alone_without_a_cache(seed, options):
    temperature, top_k, top_p = options
    model = language_model(seed)
    together = generate(model, PROMPTS, 10, Sampler(generators(5), *options), end=END)
    for prompt, row, i in zip(PROMPTS, together, range(5), strict=True):
        pick = picked_at_random(generators(5)[i], temperature, top_k, top_p)
        assert row == written_naively(next_of_text(model), prompt, 10, END, pick)
        assert row == generate(model, [prompt], 10, Sampler([generators(5)[i]], *options), end=END)[0]

    model = model_of(seed)
    source, mask = sources(seed)
    together = write(Translation(model, source, mask), [[START]] * 5, 10, Sampler(generators(5), *options), END)
    for i, length in enumerate(mask.sum(axis=1)):
        pick = picked_at_random(generators(5)[i], temperature, top_k, top_p)
        assert together[i] == written_naively(next_of_translation(model, source[i], mask[i]), [START], 10, END, pick)
        alone = Translation(model, source[i : i + 1, :length])
        assert together[i] == write(alone, [[START]], 10, Sampler([generators(5)[i]], *options), END)[0]


# Beam, length penalty, early stopping, and its formula; the last is that of Vaswani et al. 2017, section 6.1.
OPTIONS = [*itertools.product((1, 2, 5), (0.0, 0.6, 1.0), (True, False), ["length"]), (4, 0.6, True, "paper")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_beams_of_a_batch_of_sentences_are_those_of_each_alone_without_a_cache(seed):
    model = model_of(seed)
    source, mask = sources(seed)
    next_logits = [next_of_translation(model, *pair) for pair in zip(source, mask, strict=True)]
    for beam, alpha, early, penalty in OPTIONS:
        together = beam_search(Translation(model, source, mask), [[START]] * 5, 8, beam, alpha, END, early, penalty)
        for i, length in enumerate(mask.sum(axis=1)):
            assert_same_hypotheses(
                together[i], beams_naively(next_logits[i], [START], 8, END, beam, alpha, early, penalty)
            )
            prefix = Translation(model, source[i : i + 1, :length])
            alone = beam_search(prefix, [[START]], 8, beam, alpha, END, early, penalty)[0]
            assert_same_hypotheses(alone, [(h.score, h.tokens) for h in together[i]])
        options = {"start": START, "end": END, "max_length": 8, "beam": beam, "length_penalty": alpha}
        options |= {"early_stopping": early, "penalty": penalty}
        assert translate(model, source, mask, **options) == [hypotheses[0].tokens for hypotheses in together]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_beams_of_a_batch_of_prompts_are_those_of_each_alone_without_a_cache(seed):
    model = language_model(seed)
    next_logits = next_of_text(model)
    for beam, alpha, early, penalty in OPTIONS:
        together = beam_search(Continuation(model), PROMPTS, 8, beam, alpha, END, early, penalty)
        for prompt, hypotheses in zip(PROMPTS, together, strict=True):
            assert_same_hypotheses(hypotheses, beams_naively(next_logits, prompt, 8, END, beam, alpha, early, penalty))
            alone = beam_search(Continuation(model), [prompt], 8, beam, alpha, END, early, penalty)[0]
            assert_same_hypotheses(alone, [(h.score, h.tokens) for h in hypotheses])


class Chain:
    """A prefix whose next token depends on the last one alone. p: the probabilities, (V, V)."""

    def __init__(self, p):
        self.vocabulary, self._logits = len(p), np.log(np.array(p) + 1e-30)

    def read(self, tokens):
        return self._logits[tokens[:, -1]]

    def select(self, rows, same_source=False):
        pass


def test_at_the_limit_better_open_texts_take_the_place_of_a_finished_one():
    """The token 3, the end, comes second at the first place, with log 0.3 = -1.2."""
    p = [[0.0, 0.6, 0.1, 0.3], [0.0, 0.95, 0.0, 0.05], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    for early in (True, False):
        ((best, second),) = beam_search(Chain(p), [[0]], 3, 2, 1.0, 3, early)
        assert best.tokens == [1, 1, 1] and math.isclose(best.score, math.log(0.6 * 0.95**2) / 3)
        assert second.tokens == [2, 2, 2] and math.isclose(second.score, math.log(0.1) / 3)  # -0.77


def test_the_rules_of_stopping_differ_where_an_open_text_is_better_than_a_finished_one():
    """After two finished texts, 3 and 2 3, the search ends early; 1 1 1 1 comes out better when it goes on."""
    p = [[0.0, 0.4, 0.25, 0.35], [0.0, 0.99, 0.0, 0.01], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25]]
    early, late = (beam_search(Chain(p), [[0]], 4, 2, 1.0, 3, stop)[0] for stop in (True, False))
    assert [each.tokens for each in early] == [[2, 3], [3]]
    assert [each.tokens for each in late] == [[1, 1, 1, 1], [2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 5])
def test_a_sentence_is_translated_alike_alone_and_among_long_and_short_ones(beam):
    rng = np.random.default_rng(4)
    texts = [rng.integers(3, N_SOURCE, size).tolist() for size in (4, 1, 40, 2, 9, 17, 4, 40, 1, 6)]
    various = set()
    for seed in (1, 2):
        model = model_of(seed)
        alone = [written(model, [text], beam, max_length=12)[0] for text in texts]
        various |= set(map(tuple, alone))
        for tokens in (1, 60, 1000):  # at most: the longest alone, batches of several, all together
            assert written(model, texts, beam, max_length=12, tokens=tokens) == alone
            assert written(model, texts[::-1], beam, max_length=12, tokens=tokens) == alone[::-1]
    assert len(various) > 8 and len(set(map(len, various))) > 1


def logits_of(p):
    return np.log(np.array(p))


@pytest.mark.parametrize(("options", "wanted"), [
    ({}, [0.1, 0.4, 0.05, 0.3, 0.15]),
    ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7, 0]),
    ({"top_k": 9}, [0.1, 0.4, 0.05, 0.3, 0.15]),
    ({"top_p": 0.39}, [0, 1, 0, 0, 0]),
    ({"top_p": 0.41}, [0, 4 / 7, 0, 3 / 7, 0]),
    ({"top_p": 0.75}, [0, 8 / 17, 0, 6 / 17, 3 / 17]),
    ({"top_k": 2, "top_p": 0.5}, [0, 1, 0, 0, 0]),  # of the two that are left the first has 4/7
    ({"temperature": 0.5}, [2 / 57, 32 / 57, 0.5 / 57, 18 / 57, 4.5 / 57]),  # p² renormalised
])  # fmt: skip
def test_draws_follow_the_distribution_that_is_left(options, wanted):
    n = 20_000
    rng = np.random.default_rng(0)
    logits = np.tile(logits_of([0.1, 0.4, 0.05, 0.3, 0.15]) + 7.0, (n, 1))  # a shift changes nothing
    drawn = Sampler([rng] * n, **options)(logits, np.arange(n))
    frequencies = np.bincount(drawn, minlength=5) / n
    p = np.array(wanted)
    assert np.array_equal(frequencies > 0, p > 0)
    assert (abs(frequencies - p) <= 4 * np.sqrt(p * (1 - p) / n)).all()


def test_where_the_tokens_before_reach_top_p_exactly_no_other_is_left():
    halves = np.log2([[1.0, 0.5, 0.5]] * 100) * np.log(2.0)
    drawn = Sampler(generators(100), top_p=0.5)(halves, np.arange(100))
    assert set(drawn.tolist()) == {0}


@pytest.fixture
def tokens_read(monkeypatch):
    """How many sequences of how many tokens went into a model, call after call."""
    seen = []
    embed = InputEmbedding.__call__

    def noted(self, ids, *args, **options):
        seen.append(ids.shape)
        return embed(self, ids, *args, **options)

    monkeypatch.setattr(InputEmbedding, "__call__", noted)
    return seen


def test_each_token_is_read_once_and_a_finished_text_no_more(tokens_read):
    rows = generate(language_model(3), PROMPTS, 12, end=END)
    assert len(set(map(len, rows))) > 2
    texts = [len(prompt) + len(row) for prompt, row in zip(PROMPTS, rows, strict=True)]
    assert sum(n * t for n, t in tokens_read) == sum(texts) - len(texts)  # the last token of a text is not read
    assert tokens_read[0] == (5, 1) and {t for _, t in tokens_read} == {1}
    tokens_read.clear()
    generate(language_model(3), [PROMPTS[0]], 3)
    assert tokens_read == [(1, 7), (1, 1), (1, 1)]


def test_a_stream_reads_no_token_after_its_last(tokens_read):
    assert len(list(stream(Continuation(language_model(3)), PROMPTS[0], 3))) == 3
    assert tokens_read == [(1, 7), (1, 1), (1, 1)]


def test_beams_read_each_token_once(tokens_read):
    beam_search(Continuation(language_model(1)), [PROMPTS[0], PROMPTS[4]], 4, beam=3)
    assert tokens_read == [(2, 5), (6, 1), (6, 1), (6, 1), (3, 1), (3, 1)]  # in the end the longer prompt is alone
    tokens_read.clear()
    translate(model_of(1), *sources(1), start=START, end=NEVER, max_length=4, beam=3)
    assert tokens_read == [(5, 6), (5, 1), (15, 1), (15, 1), (15, 1)]  # the sources, the start, and then the beams
    tokens_read.clear()
    greedy(model_of(1), *sources(1), START, NEVER, max_length=3)
    assert tokens_read == [(5, 6), (5, 1), (5, 1), (5, 1)]


@pytest.mark.few(2)
@pytest.mark.parametrize("context", [1, 2, 5, 6])
def test_past_its_context_a_model_starts_again_from_the_last_half(context, tokens_read):
    model = language_model(2, context=context)
    text_of = {i: list(prompt) for i, prompt in enumerate(PROMPTS)}
    for text in text_of.values():
        begin, wanted = 0, len(text) + 15
        while len(text) < wanted:
            for n in range(1, len(text) + 1):  # as if the text had been read token by token
                begin = 0 if n == 1 else begin
                if n - begin > context:
                    begin = n - (context + 1) // 2
            text.append(int(np.argmax(model(np.array([text[begin:]]))[0][0, -1])))
    tokens_read.clear()
    together = generate(model, PROMPTS, 15)
    assert together == [text_of[i][len(prompt) :] for i, prompt in enumerate(PROMPTS)]
    assert max(t for _, t in tokens_read) <= context
    assert sum(n * t for n, t in tokens_read) <= 2 * sum(len(prompt) + 14 for prompt in PROMPTS)
    assert together == [generate(model, [prompt], 15)[0] for prompt in PROMPTS]
    best = beam_search(Continuation(model), PROMPTS, 15, beam=1)
    assert together == [hypotheses[0].tokens for hypotheses in best]


@pytest.mark.slow
def test_on_the_strict_device_the_same_is_sampled_and_found():
    source, mask = sources(1)
    on_device = [to_device(array, "strict") for array in (source, mask)]
    for beam in (1, 3):
        options = {"start": START, "end": END, "max_length": 9, "beam": beam}
        assert translate(model_of(1, "strict"), *on_device, **options) == translate(
            model_of(1), source, mask, **options
        )
    for options in ({}, {"top_k": 3, "top_p": 0.9}):
        wanted = generate(language_model(1), PROMPTS, 30, Sampler(generators(5), 3.0, **options), END)
        model = language_model(1, "strict")
        assert generate(model, PROMPTS, 30, Sampler(generators(5), 3.0, **options), END) == wanted
    assert generate(language_model(1, "strict"), PROMPTS, 5) == generate(language_model(1), PROMPTS, 5)
    on_strict = beam_search(Continuation(language_model(1, "strict")), PROMPTS, 5, 3)
    assert on_strict == beam_search(Continuation(language_model(1)), PROMPTS, 5, 3)


def test_float32_models_are_decoded_in_float32():
    model = language_model(1).to(dtype="float32")
    assert len(generate(model, PROMPTS, 5, Sampler(generators(5)))) == 5
    assert all(np.isfinite(h.score) for hs in beam_search(Continuation(model), PROMPTS, 5) for h in hs)


def test_one_prompt_may_be_an_array():
    model = language_model(1)
    arrays = [np.array(prompt, dtype=np.uint8) for prompt in PROMPTS]
    assert generate(model, arrays, 5) == generate(model, PROMPTS, 5)
    assert generate(model, np.array([[1, 2], [3, 4]]), 5) == generate(model, [[1, 2], [3, 4]], 5)


TEXT = language_model(1)


def sample(**options):
    return generate(TEXT, [[1]], 2, Sampler(generators(1), **options))


def search(prompts=((1,),), n_new=2, **options):
    return beam_search(Continuation(TEXT), prompts, n_new, **options)


@in_one("call, error, message", [
    (lambda: sample(temperature=0.0), ValueError, "Sampler: temperature must be greater than 0, got 0.0"),
    (lambda: sample(temperature=math.nan), ValueError, "temperature must be finite, got nan"),
    (lambda: sample(top_k=0), ValueError, "Sampler: top_k must be greater than 0, got 0"),
    (lambda: sample(top_p=1.1), ValueError, "top_p is a probability and must be at most 1, got 1.1"),
    (lambda: Sampler(np.random.default_rng(0)), TypeError, "rngs must be a list of generators, one for each text"),
    (lambda: generate(TEXT, PROMPTS, 2, Sampler(generators(4))), ValueError,
     "there must be one generator for each text, but there are 4 generators for at least 5 texts"),
    (lambda: generate(TEXT, [], 2), ValueError, "write: there must be at least one prompt"),
    (lambda: generate(TEXT, [[1], []], 2), ValueError, "write: prompt 1 is empty"),
    (lambda: generate(TEXT, [[1, 13]], 2), ValueError, "write: ids must be from 0 to 12, but prompt 0 holds 13"),
    (lambda: generate(TEXT, ["abc"], 2), TypeError, "write: prompt 0 must be a list of integers, got 'abc'"),
    (lambda: generate(TEXT, [[1]], 0), ValueError, "write: n_new must be greater than 0, got 0"),
    (lambda: generate(TEXT, [[1]], 2, end=13), ValueError, "write: end must be from 0 to 12, or None, got 13"),
    (lambda: search(beam=0), ValueError, "beam_search: beam must be greater than 0, got 0"),
    (lambda: search(penalty="none"), ValueError, "beam_search: penalty must be one of length, paper, got 'none'"),
    (lambda: search(length_penalty=-0.1), ValueError, "length_penalty must be from 0 to 10, got -0.1"),
    (lambda: search(length_penalty=math.inf), ValueError, "length_penalty must be finite, got inf"),
    (lambda: write(Translation(model_of(1), *sources(1)), [[START]], 2), ValueError,
     "there must be one prompt for each source, got 1 prompts and 5 sources"),
    (lambda: translate(model_of(1), *sources(1), start=17, end=2, max_length=3), ValueError,
     "translate: start and end must be from 0 to 16, got 17 and 2"),
    (lambda: Continuation(TEXT).select(np.array([0])), ValueError, "no tokens were read yet"),
])  # fmt: skip
def test_bad_options_are_refused(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("device", ["numpy", "strict"])
def test_selected_rows_of_a_cache_go_on_as_if_they_had_been_the_batch(device):
    model = model_of(1, device)
    source, mask = (to_device(array, device) for array in sources(1, n=3))
    target = to_device(np.array([[1, 4, 6], [1, 9, 3], [1, 5, 5]]), device)
    rows = to_device(np.array([2, 0, 0, 2]), device)
    memory = model.encode(source, mask)[0]
    cache = Cache(2)
    model.decode(target[:, :2], memory, mask, cache=cache)
    chosen = memory[rows]
    cache.select(rows, chosen)
    found = model.decode(target[rows][:, 2:], chosen, mask[rows], cache=cache)[0]
    wanted = model.decode(target[rows], chosen, mask[rows])[0][:, 2:]
    assert np.allclose(to_numpy(found), to_numpy(wanted), rtol=0, atol=1e-10)


def test_rows_that_a_cache_cannot_select_are_refused():
    cache = KeyValueCache()
    with pytest.raises(ValueError, match="the key-value cache is empty"):
        cache.select(np.array([0]))
    cache.extend(np.zeros((2, 1, 3, 4)), np.zeros((2, 1, 3, 4)))
    for rows, error, message in [
        (np.array([0, 2]), ValueError, r"rows must be from 0 to 1 \(there are 2\); got 2"),
        (np.array([-1]), ValueError, "rows must be from 0 to 1"),
        (np.array([0.0]), TypeError, "rows must hold integers"),
        ([0], TypeError, "rows must be a NumPy or CuPy array, got list"),
    ]:
        with pytest.raises(error, match=message):
            cache.select(rows)
    no_batch = KeyValueCache()
    no_batch.extend(np.zeros((1, 3, 4)), np.zeros((1, 3, 4)))
    with pytest.raises(ValueError, match="has no batch axis to select from"):
        no_batch.select(np.array([0]))


def test_a_cache_whose_rows_changed_refuses_the_old_memory():
    model, cache = model_of(1), Cache(2)
    source, mask = sources(1)
    memory = model.encode(source, mask)[0]
    start = np.full((5, 1), START)
    model.decode(start, memory, mask, cache=cache)
    cache.select(np.array([1, 0, 2, 3, 4]), memory[[1, 0, 2, 3, 4]])
    with pytest.raises(ValueError, match="the cache holds another memory"):
        model.decode(start, memory, mask, cache=cache)
