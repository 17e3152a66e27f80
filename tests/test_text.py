"""The text room: numbers in words, vocabularies and batches."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from num2words import num2words
from tiers import in_one

from minitransformer.text import END, PAD, START, NumberTask, Vocabulary, english, german, padded

# ---- Numbers in words. ----

# Written by hand: the parts of the German word, with blanks between them, and the English words.
KNOWN = {
    0: ("null", "zero"),
    1: ("eins", "one"),
    2: ("zwei", "two"),
    3: ("drei", "three"),
    6: ("sechs", "six"),
    7: ("sieben", "seven"),
    8: ("acht", "eight"),
    10: ("zehn", "ten"),
    11: ("elf", "eleven"),
    12: ("zwölf", "twelve"),
    13: ("dreizehn", "thirteen"),
    16: ("sechzehn", "sixteen"),
    17: ("siebzehn", "seventeen"),
    20: ("zwanzig", "twenty"),
    21: ("ein und zwanzig", "twenty one"),
    30: ("dreißig", "thirty"),
    31: ("ein und dreißig", "thirty one"),
    47: ("sieben und vierzig", "forty seven"),
    60: ("sechzig", "sixty"),
    66: ("sechs und sechzig", "sixty six"),
    70: ("siebzig", "seventy"),
    77: ("sieben und siebzig", "seventy seven"),
    99: ("neun und neunzig", "ninety nine"),
    100: ("ein hundert", "one hundred"),
    101000: ("ein hundert ein tausend", "one hundred and one thousand"),
    101: ("ein hundert eins", "one hundred and one"),
    111: ("ein hundert elf", "one hundred and eleven"),
    121: ("ein hundert ein und zwanzig", "one hundred and twenty one"),
    1000: ("ein tausend", "one thousand"),
    1001: ("ein tausend eins", "one thousand and one"),
    1100: ("ein tausend ein hundert", "one thousand one hundred"),
    1984: ("ein tausend neun hundert vier und achtzig", "one thousand nine hundred and eighty four"),
    4231: ("vier tausend zwei hundert ein und dreißig", "four thousand two hundred and thirty one"),
    11000: ("elf tausend", "eleven thousand"),
    16017: ("sechzehn tausend siebzehn", "sixteen thousand and seventeen"),
    21021: ("ein und zwanzig tausend ein und zwanzig", "twenty one thousand and twenty one"),
    70615: ("siebzig tausend sechs hundert fünfzehn", "seventy thousand six hundred and fifteen"),
    100000: ("ein hundert tausend", "one hundred thousand"),
    999999: (
        "neun hundert neun und neunzig tausend neun hundert neun und neunzig",
        "nine hundred and ninety nine thousand nine hundred and ninety nine",
    ),
}


@in_one("number", KNOWN)
def test_known_numerals(number):
    in_german, in_english = KNOWN[number]
    assert german(number) == in_german.split()
    assert english(number) == in_english.split()


PARTS = set(" ".join(in_german for in_german, _ in KNOWN.values()).split()) | set(
    "vier fünf neun vierzehn fünfzehn achtzehn neunzehn vierzig fünfzig achtzig".split()
)


def assert_nothing_is_lost(number):
    as_one_word = num2words(number, lang="de").replace("einstausend", "eintausend")  # num2words' slip at 101000
    assert "".join(german(number)) == as_one_word
    assert set(german(number)) <= PARTS
    assert " ".join(english(number)) == num2words(number, lang="en").replace("-", " ").replace(",", "")


@given(st.integers(0, 999_999))
@example(101000)
def test_no_part_of_a_word_is_lost(number):
    assert_nothing_is_lost(number)


@pytest.mark.parametrize("words", [english, german])
def test_numbers_out_of_range_are_refused(words):
    for number in (-1, 1_000_000):
        with pytest.raises(ValueError, match=f"must be from 0 to 999,999, got {number}"):
            words(number)
    for number in (1.5, "7", None):
        with pytest.raises(TypeError, match="number must be an integer"):
            words(number)


# ---- The task. ----


def draw(seed=0, n_training=300, n_unseen=100, limit=1000):
    return NumberTask.draw(n_training, n_unseen, limit, np.random.default_rng(seed))


def test_training_and_unseen_numbers_are_disjoint_and_in_range():
    task = draw()
    assert (len(task.training), len(task.unseen)) == (300, 100)
    assert len({*task.training, *task.unseen}) == 400
    assert {type(number) for number in (*task.training, *task.unseen)} == {int}
    assert min(*task.training, *task.unseen) >= 0 and max(*task.training, *task.unseen) < 1000


def test_the_whole_range_can_be_drawn():
    task = draw(n_training=900, n_unseen=100)
    assert sorted((*task.training, *task.unseen)) == list(range(1000))


def test_the_seed_decides_the_numbers():
    assert draw(seed=1).training == draw(seed=1).training != draw(seed=2).training


def test_vocabularies_hold_the_words_of_the_training_numbers_alone():
    task = NumberTask.draw(1, 1, 2, np.random.default_rng(0))
    (seen,) = task.training
    assert set(task.source.tokens[3:]) == set(english(seen))
    assert set(task.target.tokens[3:]) == set(german(seen))


@pytest.mark.slow
def test_the_demo_can_encode_every_unseen_number():
    task = NumberTask.draw(8000, 1000, 100_000, np.random.default_rng(0))
    for number in task.unseen:
        assert task.source.decode(task.source.encode(english(number))) == english(number)
        assert task.target.decode(task.target.encode(german(number))) == german(number)


def test_more_numbers_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match=r"900 \+ 101 different numbers were requested, but only 1000 exist"):
        draw(n_training=900, n_unseen=101)
    with pytest.raises(ValueError, match="n_unseen must be greater than 0"):
        draw(n_unseen=0)


# ---- Vocabularies and batches. ----


def test_ids_start_with_the_special_tokens_and_do_not_depend_on_the_order_of_sentences():
    vocabulary = Vocabulary([["b", "a"], ["c", "a"]])
    assert vocabulary.tokens == ("<pad>", "<start>", "<end>", "a", "b", "c")
    assert (PAD, START, END) == (0, 1, 2)
    assert len(vocabulary) == 6
    assert vocabulary.encode(["c", "a", "a", "<end>"]) == [5, 3, 3, 2]
    assert Vocabulary([["a", "c"], ["a", "b"]]).tokens == vocabulary.tokens


def test_special_tokens_in_a_sentence_keep_their_ids():
    assert Vocabulary([["<start>", "a", "<end>"]]).tokens == ("<pad>", "<start>", "<end>", "a")


@given(st.lists(st.sampled_from("abcdef"), max_size=8))
def test_decode_undoes_encode(sentence):
    vocabulary = Vocabulary(["abcdef"])
    assert vocabulary.decode(vocabulary.encode(sentence)) == sentence


def test_decode_stops_at_the_end_and_leaves_padding_out():
    vocabulary = Vocabulary(["ab"])
    assert vocabulary.decode([START, 3, PAD, 4, END, 4, 4]) == ["a", "b"]
    assert vocabulary.decode(np.array([4, 3, END])) == ["b", "a"]
    assert vocabulary.decode([]) == []


@pytest.mark.parametrize("wrong", [-1, 5])
def test_decode_refuses_ids_that_do_not_exist(wrong):
    with pytest.raises(ValueError, match=f"ids must be from 0 to 4, got {wrong}"):
        Vocabulary(["ab"]).decode([3, wrong])


def test_encode_names_the_unknown_token():
    with pytest.raises(ValueError, match="the vocabulary does not hold 'z'; it has 5 tokens"):
        Vocabulary(["ab"]).encode(["a", "z", "y"])


def test_padded_fills_short_sequences_up():
    ids = padded([[5, 6, 7], [8], []])
    assert ids.dtype == np.int64
    assert ids.tolist() == [[5, 6, 7], [8, PAD, PAD], [PAD, PAD, PAD]]
    assert padded([np.array([3, 4])]).tolist() == [[3, 4]]


@pytest.mark.parametrize("nothing", [[], [[]], [[], []]])
def test_padded_refuses_a_batch_of_nothing(nothing):
    with pytest.raises(ValueError, match="expected at least one non-empty sequence"):
        padded(nothing)
