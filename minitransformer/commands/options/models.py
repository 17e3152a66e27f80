"""The options of the commands that make models and use them, except `train`."""

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any

from .. import Parser
from ..outputs import folder_to_write, named
from .shared import add_folder, add_input, add_model, add_output, add_search, add_speed, add_weights


def prepare(command: ArgumentParser) -> None:
    """turn texts of any size into token ids on the disk, for train lm --data

    Encode UTF-8 texts, one after the other, as shards of token ids. After an interruption, the same command makes
    only the missing shards.
    """
    command.add_argument("texts", nargs="+", type=named, metavar="TEXT", help="plain text files, in this order")
    add_folder(command, "the folder for the shards", required=True)
    command.add_argument("--tokenizer", choices=("characters", "bpe"), default="characters", help="(%(default)s)")
    command.add_argument("--vocabulary", type=int, default=8000, metavar="N", help="bpe tokens (default: 8000)")
    command.add_argument("--processes", type=int, default=1, metavar="N", help="parallel processes (default: 1)")


def translate(command: ArgumentParser) -> None:
    """translate sentences with a model that `train translate` or `demo` saved

    Translate sentences by beam search, with a key-value cache. Without TEXT or --input, the command reads sentences
    from standard input, one per line.
    """
    command.add_argument("text", nargs="*", metavar="TEXT", help="sentences, each in quotes")
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
    command.add_argument(
        "prompt",
        nargs="*",
        default=["\n"],
        metavar="TEXT",
        help="the text's beginning (default: a new line); in a chat, a message for each turn",
    )
    add_model(command, "the folder of the model, or a .gguf file")
    command.add_argument("--chat", action="store_true", help="send each TEXT to a published model as a chat message")
    command.add_argument("--tokens", type=int, default=500, metavar="N", help="tokens to add (default: 500)")
    command.add_argument("--samples", type=int, default=1, metavar="N", help="texts to write (default: 1)")
    command.add_argument(
        "--temperature", type=float, default=0.8, metavar="X", help="0 takes the likeliest token (default: 0.8)"
    )
    command.add_argument("--top-k", type=int, metavar="K", help="draw only from the K likeliest tokens")
    command.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw only from the likeliest tokens that sum to P"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the draws (default: 0)")
    add_weights(command)
    add_speed(command)


def embed(command: ArgumentParser) -> None:
    """compare texts by the vectors that a published encoder makes of them

    Turn each text into a vector of length 1 and print the cosine of the angle between every two: the mean of its
    tokens' hidden states, of a language model the last one, or what 1_Pooling in the folder or a .gguf file says.
    """
    command.add_argument("texts", nargs="+", metavar="TEXT", help="a text, in quotes")
    add_model(command, "the folder of the model")
    command.add_argument("--json", action="store_true", help="print one JSON document, with the vectors")
    add_speed(command)


def fill_mask(command: ArgumentParser) -> None:
    """let a published masked-language model guess a hidden token

    Print the five most probable tokens for each [MASK] in a text.
    """
    command.add_argument("text", metavar="TEXT", help='a text, in quotes: "Paris is the [MASK] of France."')
    add_model(command, "the folder of the published model")
    command.add_argument("--json", action="store_true", help="print one JSON document")
    add_speed(command)


def export(command: ArgumentParser) -> None:
    """write a trained model as a folder that Hugging Face opens, with its tokenizer

    Write a model and its tokenizer as a folder that Hugging Face's transformers can open, and every command here
    that takes --model. The model must fit one of the families of published models.
    """
    command.add_argument("model", type=named, metavar="RUN", help="the folder of the model, or a .gguf file")
    command.add_argument("folder", type=folder_to_write, metavar="FOLDER", help="the folder to write")


def evaluate(command: ArgumentParser) -> None:
    """measure a trained model: BLEU of a translator, loss of a language model, accuracy of a classifier

    Measure a trained model on files: BLEU by sacrebleu with its signature for a translator (--source and --target),
    the loss and perplexity of a language model or the accuracy of a classifier (--text).
    """
    add_model(command, "the folder of the model")
    add_input(command, "--source", "sentences to translate")
    add_input(command, "--target", "their reference translations")
    add_search(command)
    command.add_argument(
        "--tokenize",
        default="13a",
        choices=("13a", "intl", "char", "zh", "none"),
        help="sacrebleu's tokenizer; none for text that is already split into tokens (default: 13a)",
    )
    add_output(command, "--output", "file for the translations (default: none)")
    add_input(command, "--text", "a text, or lines of a label, a tab and a text")
    command.add_argument(
        "--held-out", type=float, default=1.0, metavar="X", help="use only the last share X, such as 0.1 (default: 1)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document instead")
    add_weights(command)
    add_speed(command)


def info(command: Parser) -> None:
    """layers, shapes, parameters, FLOPs and memory of a model of any size

    Count what a model costs, part by part, from its sizes alone; nothing runs. Name a kind of model or a preset of
    `train`, and its sizes. Or give the path of a saved or published model; options change a saved one's sizes. A
    published model by name stands beside the figure of its documents.

    info KIND --help shows the sizes that may be given, depending on the kind of model.
    """
    command.add_argument(
        "kind",
        nargs="?",
        metavar="KIND|PATH",
        help="a model, a preset of `train` or a published model, by the names that --kinds lists; or a path",
    )
    add_model(command, "the same as PATH", required=False)
    command.add_argument("--kinds", action="store_true", help="list the names that KIND may be")
    command.add_argument("--families", action="store_true", help="list the families of published models")
    command.add_argument("--parts", action="store_true", help="print the table of their parts, docs/families.md")
    command.add_argument("--batch", type=int, default=1, metavar="B", help="sequences in a batch (default: 1)")
    command.add_argument(
        "--length", type=int, metavar="T", help="tokens in each sequence (default: 128, or max_length if that is less)"
    )
    command.add_argument(
        "--dtype", choices=("float16", "float32", "float64"), help="(default: float32, or the model's)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document instead")
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
        sizes.add_argument(flag(name), dest=name, default=SUPPRESS, help=help_text, **options)
