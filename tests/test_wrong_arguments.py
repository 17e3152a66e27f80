"""Wrong arguments are refused with an explanation: no AttributeError, IndexError or OverflowError from inside."""

import functools
import inspect
import math
import re

import numpy as np
import pytest
from common import small
from tiers import in_one

import minitransformer
from minitransformer import generation, ideas, layers, models, ops, text, training, verify, viewer
from minitransformer.cli import main
from minitransformer.core.arrays.declared import Declaration
from minitransformer.ideas.before.recurrent_translator import RecurrentTranslatorConfig
from minitransformer.layers import Linear
from minitransformer.text import CharacterTokenizer

IDS = np.array([[1, 2, 3]])
WRONG = [None, [], (), {}, "x", b"x", -1, 1e20, 10**30, math.nan, math.inf, object(), np.zeros(0)]


writer = functools.partial(small, models.LanguageModelConfig, 7, max_length=4, n_layers=1, dtype="float32")
TRANSLATOR = small(models.TransformerConfig, 7, 7, n_decoder_layers=1, dtype="float32")
LAYER = Linear(2, 3, rng=np.random.default_rng(0))
ADAM = training.Adam(LAYER.parameters(), 0.1)
PAIRS = list(LAYER.parameters())
SEARCH = {"model": TRANSLATOR, "source": IDS, "source_mask": None, "start": 1, "end": 2, "max_length": 3}
CALLS = {  # a function, and arguments that it takes
    "SGD": (training.SGD, {"parameters": PAIRS, "learning_rate": 0.1, "momentum": 0.1}),
    "Adam": (training.Adam, {"parameters": PAIRS, "learning_rate": 0.1, "betas": (0.9, 0.9), "eps": 1e-8}),
    "AdamW": (training.AdamW, {"parameters": PAIRS, "learning_rate": 0.1, "weight_decay": 0.1}),
    "Adam.step": (ADAM.step, {"learning_rate": 0.0}),
    "Adam.load_state": (ADAM.load_state, {"mapping": ADAM.state()}),
    "Module.load_state": (LAYER.load_state, {"mapping": LAYER.state()}),
    "clip_gradient_norm": (training.clip_gradient_norm, {"parameters": PAIRS, "limit": 1.0}),
    "cosine": (training.cosine, {"step": 1, "peak": 0.1, "warmup": 2, "total": 4, "floor": 0.0}),
    "inverse_sqrt": (training.inverse_sqrt, {"step": 1, "peak": 0.1, "warmup": 2}),
    "warmup_schedule": (training.warmup_schedule, {"step": 1, "d_model": 2, "warmup": 2}),
    "TrainingSettings": (training.TrainingSettings, vars(training.TrainingSettings())),
    "Workers": (training.Workers, {"model": LAYER, "n": 1}),
    "view": (viewer.view, {"model": writer(), "names": (), "title": "a"}),
    "generate": (generation.generate, {"model": writer(), "prompts": [[1]], "n_new": 2, "end": None}),
    "greedy": (generation.greedy, SEARCH),
    "translate": (generation.translate, SEARCH | {"beam": 2, "length_penalty": 1.0}),
    "Sampler": (generation.Sampler, {"rngs": [np.random.default_rng(0)], "temperature": 1.0, "top_k": 1, "top_p": 1.0}),
    "WordTokenizer": (text.WordTokenizer.train, {"texts": ["a b"]}),
    "CharacterTokenizer": (text.CharacterTokenizer.train, {"texts": ["a b"]}),
    "BytePairTokenizer": (text.BytePairTokenizer.train, {"texts": ["a b"], "size": 20}),
}


def arguments():
    return [(call, name) for call, (_, given) in CALLS.items() for name in given]


@in_one("call, name", arguments())
def test_wrong_arguments_are_refused_in_words(call, name):
    function, given = CALLS[call]
    positional = ([1, 2],) if call == "view" else ()
    refused = 0
    for wrong in WRONG:
        values = dict(given, **{name: wrong})
        try:
            function(*(values.pop("model"), *positional) if positional else (), **values)
        except (ValueError, TypeError) as error:
            refused += 1
            message = str(error)
            assert not any(words in message for words in ("not iterable", "no len()", "not subscriptable", "unpack"))
    assert refused >= 3


@in_one(
    "call, message",
    [
        (lambda: training.Adam(PAIRS, 0.1, betas=[]), r"Adam: betas must be two numbers, such as \(0\.9, 0\.999\)"),
        (lambda: LAYER.load_state(5), "Linear: a state must map names to arrays, like the result of state"),
        (lambda: ADAM.load_state(5), "Adam: a state must map names to arrays"),
        (lambda: viewer.view(writer(), [1, 2], title=None), "view: title must be a text, got NoneType"),
        (lambda: training.SGD(5, 0.1), r"SGD: expected \(name, Parameter\) pairs, got 5; pass module\.parameters"),
        (lambda: generation.generate(None, [[1]], 3), "Continuation: model must be a LanguageModel, got NoneType"),
        (lambda: text.WordTokenizer.train("two dogs"), "WordTokenizer: texts must be a list of texts, got str"),
    ],
)
def test_each_says_what_was_expected(call, message):
    with pytest.raises(TypeError, match=message):
        call()


# ---- Every range that a constructor or a function declares. ----

RANGE = re.compile(r"(?:(\d) <= )?([\w, ]+) (>|>=|<|<=) (\d)")


def out_of_range():
    """For each declared number: what to call, its name, a value, and what the error says."""
    for room in (layers, ideas, training, ops):
        for found in (getattr(room, name) for name in dir(room)):
            function = found.__init__ if inspect.isclass(found) else found
            check = inspect.getclosurevars(function).nonlocals.get("check") if inspect.isfunction(function) else None
            if not isinstance(check, Declaration):
                continue
            for rule in filter(None, (RANGE.fullmatch(part.strip()) for part in check.text.split(";"))):
                least, names, sign, bound = rule.groups()
                words = {">": "greater than", ">=": "at least"}.get(sign, f"at least {least} and below")
                for name in names.split(", ") if not check.floats and sign != "<=" else ():
                    value = int(bound) - (sign == ">=")
                    yield found, name, value, f"must be {words} {bound}, got {value}"
                    yield found, name, -1, f"must be {words} {bound}, got -1"
                    yield found, name, "1", r"must be (an integer, got '1'|a number, got str)"
                    yield found, name, math.nan, "must be (finite|an integer), got nan"


@in_one("function, name, value, message", list(out_of_range()))
def test_what_is_out_of_its_declared_range_is_refused(function, name, value, message):
    """The other arguments are 2."""
    parameters = inspect.signature(function).parameters.values()
    given = {each.name: 2 for each in parameters if each.default is each.empty and each.kind != each.VAR_KEYWORD}
    with pytest.raises((ValueError, TypeError), match=f"^{function.__name__}: {name} {message}"):
        function(**given | {name: value})


def test_declared_ranges_are_many():
    assert len({(function, name) for function, name, *_ in out_of_range()}) > 60


X = np.random.default_rng(0).normal(size=(2, 4, 6))
HEADS = layers.MultiHeadAttention(6, 3, turn=ideas.rotary_turn(10.0), rng=np.random.default_rng(0)).to(dtype="float64")
UNCLEAR = [
    (lambda: ops.softmax(X, axis=True), "softmax: axis must be an integer, got True"),
    (lambda: ops.softmax(X[0].view(np.matrix)), "softmax: x is a matrix, .* convert it with numpy.asarray"),
    (lambda: ops.softmax(np.ma.masked_array(X)), "softmax: x is a MaskedArray, .* convert it with x.filled"),
    (lambda: ideas.rotary(X, positions=np.arange(5)), r"rotary: positions of shape \(5,\) does not broadcast"),
    (lambda: ideas.rotary(X, positions=np.arange(4.0)), "rotary: positions must hold integers, got float64"),
    (lambda: HEADS(X, positions=[[0, 1, 2, 3]] * 2), "RotaryPositions: positions must be a NumPy .* got list"),
    (
        lambda: layers.SinusoidalPositions(6)(X, positions=[[0] * 4] * 2),
        "SinusoidalPositions: positions must be a NumPy .* got list",
    ),
    (
        lambda: layers.SinusoidalPositions(6)(X, positions=np.zeros((2, 3), int)),
        r"positions must have shape \(2, 4\), got \(2, 3\)",
    ),
    (lambda: HEADS.head("a"), "MultiHeadAttention.head: i must be an integer, got 'a'"),
    (lambda: minitransformer.step(3), "step: f must be a function or a module that returns .output, backward., got 3"),
    (lambda: verify.gradients(3, X), "verify.gradients: f must be a function or a module .* got 3"),
    (lambda: verify.gradients(ops.relu, X, seed="a"), "verify.gradients: seed must be an integer, got 'a'"),
    (lambda: verify.gradients(ops.relu, X, parameters="w"), r"parameters must be a module, or \(name, .* got 'w'"),
    (lambda: verify.gradients(ops.relu, X, upstream=X[0]), r"output's shape \(2, 4, 6\), got \(4, 6\)"),
    (lambda: ops.rms_norm(X, np.ones(6), eps=True), "rms_norm: eps must be a number, got bool"),
    (lambda: models.load(3), "models.load: path must be a str or PathLike, got 3; give the path of a folder"),
    (
        lambda: generation.write(generation.Continuation(writer()), [[1]], 3, choose="greedy"),
        "write: choose must be a Callable, got 'greedy'; give most_probable or a Sampler",
    ),
    (lambda: LAYER(X[..., :3]), r"convert one of them: x.astype\('float32'\), or a module: .to\(dtype='float64'\)"),
    (lambda: models.LanguageModel("gpt2"), "config must be a LanguageModelConfig, got 'gpt2'; .* with models.load"),
    (lambda: models.Transformer("base"), "config must be a TransformerConfig, got 'base'"),
    (lambda: models.TextEncoder("bert"), "config must be a TextEncoderConfig, got 'bert'"),
    (
        lambda: models.Classifier(models.TextEncoderConfig(7, 8, 4, 2, 8, 1)),
        "config must build ClassifierParts, but TextEncoderConfig builds EncoderOnlyParts",
    ),
    (lambda: models.Classifier(3), "config must be a ClassifierConfig, got 3"),
    (lambda: RecurrentTranslatorConfig(7, 7, attention=None), "one of the texts .* and 'none', got None"),
]


@in_one("call, message", UNCLEAR)
def test_what_was_unclear_or_accepted_is_refused_in_words(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("kind", [int, np.float32, np.int64])
def test_the_ends_of_a_range_belong_to_it_in_any_type_of_number(kind):
    rng, logits = np.random.default_rng(0), X[0]
    assert np.array_equal(ops.dropout(X, kind(0), rng)[0], X)
    for label_smoothing in (0, 1):
        loss = ops.cross_entropy(logits, np.zeros(4, int), label_smoothing=kind(label_smoothing))[0]
        assert loss == ops.cross_entropy(logits, np.zeros(4, int), label_smoothing=float(label_smoothing))[0]


def test_a_command_that_is_to_write_without_end_says_so_in_one_line(tmp_path, capsys):
    models.save(writer(), tmp_path, CharacterTokenizer.train(["abcd"]))
    assert main(["generate", "--model", str(tmp_path), "a", "--tokens", str(10**20)]) == 1
    err = capsys.readouterr().err
    assert "100,000,000,000,000,000,000 tokens after each of 1 prompts are more than" in err and err.count("\n") == 1
