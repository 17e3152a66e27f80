"""The options of the commands that make models and use them, except `train`."""

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any

from .. import Parser
from ..outputs import folder_to_write, named
from .shared import add, add_folder, add_input, add_model, add_number, add_output, add_search, add_speed, add_switch


def prepare(command: ArgumentParser) -> None:
    """turn texts of any size into token ids on the disk, for train lm --data

    Encode UTF-8 texts, one after the other, as shards of token ids. After an interruption, the same command makes
    only the missing shards.
    """
    add(command, "texts", "plain text files, in this order", nargs="+", type=named, metavar="TEXT")
    add_folder(command, "the folder for the shards", required=True)
    add(command, "--tokenizer", "(%(default)s)", choices=("characters", "bpe"), default="characters")
    add_number(command, "--vocabulary", "bpe tokens", 8000, "N")
    add_number(command, "--processes", "parallel processes", 1, "N")


def translate(command: ArgumentParser) -> None:
    """translate sentences with a model that `train translate` or `demo` saved

    Translate sentences by beam search, with a key-value cache. Without TEXT or --input, the command reads sentences
    from standard input, one per line.
    """
    add(command, "text", "sentences, each in quotes", nargs="*", metavar="TEXT")
    add_model(command, "the folder of the model")
    add_input(command, "--input", "a file of sentences, plain or .gz")
    add_output(command, "--output", "file for the translations (default: print them)")
    add_search(command)
    add_speed(command)


def generate(command: ArgumentParser) -> None:
    """continue a text with a language model that `train lm` saved, or a published one

    Continue a text token by token, with a key-value cache. Each token is drawn from the model's prediction. The
    text of a published model appears token by token.
    """
    meaning = "the text's beginning (default: a new line); in a chat, a message for each turn"
    add(command, "prompt", meaning, nargs="*", default=["\n"], metavar="TEXT")
    add_model(command, "the folder of the model, or a .gguf file")
    add_switch(command, "--chat", "send each TEXT to a published model as a chat message")
    add_number(command, "--tokens", "tokens to add", 500, "N")
    add_number(command, "--samples", "texts to write", 1, "N")
    add_number(command, "--temperature", "0 takes the likeliest token", 0.8, "X")
    add_number(command, "--top-k", "draw only from the K likeliest tokens", metavar="K")
    add(command, "--top-p", "draw only from the likeliest tokens that sum to P", type=float, default=1.0, metavar="P")
    add_number(command, "--seed", "seed of the draws", 0)
    add_speed(command, weights=True)


def embed(command: ArgumentParser) -> None:
    """compare texts by the vectors that a published encoder makes of them

    Turn each text into a vector of length 1 and print the cosine of the angle between every two: the mean of its
    tokens' hidden states, of a language model the last one, or what 1_Pooling in the folder or a .gguf file says.
    """
    add(command, "texts", "a text, in quotes", nargs="+", metavar="TEXT")
    add_model(command, "the folder of the model")
    add_switch(command, "--json", "print one JSON document, with the vectors")
    add_speed(command)


def fill_mask(command: ArgumentParser) -> None:
    """let a published masked-language model guess a hidden token

    Print the five most probable tokens for each [MASK] in a text.
    """
    add(command, "text", 'a text, in quotes: "Paris is the [MASK] of France."', metavar="TEXT")
    add_model(command, "the folder of the published model")
    add_switch(command, "--json", "print one JSON document")
    add_speed(command)


def export(command: ArgumentParser) -> None:
    """write a trained model as a folder that Hugging Face opens, with its tokenizer

    Write a model and its tokenizer as a folder that Hugging Face's transformers can open, and every command here
    that takes --model. The model must fit one of the families of published models.
    """
    add(command, "model", "the folder of the model, or a .gguf file", type=named, metavar="RUN")
    add(command, "folder", "the folder to write", type=folder_to_write, metavar="FOLDER")


def evaluate(command: ArgumentParser) -> None:
    """measure a trained model: BLEU of a translator, loss of a language model, accuracy of a classifier

    Measure a trained model on files: BLEU by sacrebleu with its signature for a translator (--source and --target),
    the loss and perplexity of a language model or the accuracy of a classifier (--text).
    """
    add_model(command, "the folder of the model")
    add_input(command, "--source", "sentences to translate")
    add_input(command, "--target", "their reference translations")
    add_search(command)
    meaning = "sacrebleu's tokenizer; none for text that is already split into tokens (default: 13a)"
    add(command, "--tokenize", meaning, default="13a", choices=("13a", "intl", "char", "zh", "none"))
    add_output(command, "--output", "file for the translations (default: none)")
    add_input(command, "--text", "a text, or lines of a label, a tab and a text")
    add_number(command, "--held-out", "use only the last share X, such as 0.1", 1.0, "X")
    add_switch(command, "--json", "print one JSON document instead")
    add_speed(command, weights=True)


def info(command: Parser) -> None:
    """layers, shapes, parameters, FLOPs and memory of a model of any size

    Count what a model costs, part by part, from its sizes alone; nothing runs. Name a kind of model or a preset of
    `train`, and its sizes. Or give the path of a saved or published model; options change a saved one's sizes. A
    published model by name stands beside the figure of its documents.

    info KIND --help shows the sizes that may be given, depending on the kind of model.
    """
    meaning = "a model, a preset of `train` or a published model, by the names that --kinds lists; or a path"
    add(command, "kind", meaning, nargs="?", metavar="KIND|PATH")
    add_model(command, "the same as PATH", required=False)
    add_switch(command, "--kinds", "list the names that KIND may be")
    add_switch(command, "--families", "list the families of published models")
    add_switch(command, "--parts", "print the table of their parts, docs/families.md")
    add_number(command, "--batch", "sequences in a batch", 1, "B")
    meaning = "tokens in each sequence (default: 128, or max_length if that is less)"
    add_number(command, "--length", meaning, metavar="T")
    add(command, "--dtype", "(default: float32, or the model's)", choices=("float16", "float32", "float64"))
    add_switch(command, "--json", "print one JSON document instead")
    command.complete = _sizes


def _sizes(command: Parser, words: Sequence[str]) -> None:
    """A flag for every size of every kind of model, unless only the general help is asked for."""
    if words and {*words} <= {"-h", "--help"}:
        return
    from ..info import fields, flag  # here, because it imports every family

    sizes = command.add_argument_group("sizes, depending on the kind of model")
    for name, (kind, help_text) in fields().items():
        options: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        if kind is bool:
            options = {"action": BooleanOptionalAction}
        sizes.add_argument(flag(name), help=help_text, dest=name, default=SUPPRESS, **options)
