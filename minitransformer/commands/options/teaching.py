"""The options of the commands that show, teach and grade."""

from argparse import ArgumentParser
from pathlib import Path

from ..outputs import named
from .shared import add_device, add_folder, add_model, add_output, add_speed


def demo(command: ArgumentParser) -> None:
    """show the worked example, check every op, train a small translator (under two minutes)

    Show the worked example forward and backward, check every op against finite differences, and train an
    encoder-decoder that translates numbers from English to German. Saves two pictures and the model.
    """
    add_folder(command, "output folder (default: demo)", default="demo")
    command.add_argument("--seed", type=int, default=0, help="seed of data, weights and batches (default: 0)")
    command.add_argument("--steps", type=int, default=400, help="training steps (default: 400)")
    add_speed(command)


def step(command: ArgumentParser) -> None:
    """step through an example line by line, forward and backward, with every number

    Run a small example, forward and backward, and show what each line of the code computed. On a terminal the keys
    n and p (or → and ←) go forward and back, c shows how a number was computed, q quits. Elsewhere all steps are
    printed. With --model, EXAMPLE is a text that the model reads (a translator also translates it), and the steps
    show one of its layers, or one head.
    """
    command.add_argument(
        "example",
        nargs="?",
        metavar="EXAMPLE",
        help="its name (without one, all are listed); with --model a text, in quotes",
    )
    add_model(command, "the folder of a trained or published model, or a .gguf file", required=False)
    command.add_argument("--layer", type=int, metavar="N", help="its layer, counted from 1 (default: the last)")
    command.add_argument("--head", type=int, metavar="N", help="one head of its attention, from 1 (default: the layer)")
    command.add_argument("--all", action="store_true", help="also show the lines that compute no number")
    command.add_argument("--verify", action="store_true", help="compare every gradient with finite differences")
    add_output(command, "--html", "write a page to step through in a browser")
    command.add_argument("--json", action="store_true", help="print one JSON document instead")
    command.add_argument("--seed", type=int, default=0, help="seed of the example's numbers (default: 0)")
    add_device(command)


def sheet(command: ArgumentParser) -> None:
    """write an example as a workbook whose cells compute it, forward and backward

    Write an example of `minitransformer step` as a workbook (.xlsx): a block of cells for each array, forward and
    backward, in which each computed number is a formula. Change an input, and everything that depends on it
    changes. Another sheet has blanks to fill in, which turn green when they are right. There are no macros.
    """
    command.add_argument("example", nargs="?", metavar="EXAMPLE", help="its name (without one, all are listed)")
    add_output(command, "--out", "the workbook to write (default: EXAMPLE.xlsx)")
    command.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="LETTER=N",
        help="another length of an axis, such as T_q=3; again for another axis. A wrong letter lists the right ones",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the example's numbers (default: 0)")


def view(command: ArgumentParser) -> None:
    """write a page that shows where a model looks: its attention weights and their gradients

    Run a trained model on a text (a translator translates it first) and write one page with the attention weights
    of every layer and head, and the gradient of each logit with respect to them.
    """
    command.add_argument("text", metavar="TEXT", help="the text, in quotes")
    add_model(command, "the model's folder, such as demo/model")
    add_output(command, "--html", "(default: attention-view.html)", default="attention-view.html")
    command.add_argument(
        "--layer", type=int, metavar="N", help="show only this layer, counted from 1: a page holds a longer text then"
    )
    add_device(command)


def plot(command: ArgumentParser) -> None:
    """draw where the heads of a layer look

    Draw pictures.
    """
    pictures = command.add_subparsers(title="pictures", metavar="PICTURE", required=True)
    attention = pictures.add_parser(
        "attention",
        help="the attention weights of one layer as heat maps",
        description="Draw the attention weights of one layer, for one head or all heads, while the model reads TEXT. "
        "A translator translates TEXT first.",
    )
    attention.add_argument("text", metavar="TEXT", help="a sentence, in quotes")
    add_model(attention, "the folder of the model")
    attention.add_argument(
        "--kind", metavar="KIND", help="for a translator: encoder, decoder or cross (default: cross)"
    )
    attention.add_argument("--layer", type=int, metavar="N", help="counted from 1 (default: the last)")
    attention.add_argument("--head", type=int, metavar="N", help="counted from 1 (default: all)")
    add_output(attention, "--out", "(default: attention.png)", default="attention.png")
    add_device(attention)


def compare(command: ArgumentParser) -> None:
    """measure attention, recurrence and convolution side by side

    Measure and compare.
    """
    kinds = command.add_subparsers(title="comparisons", metavar="WHAT", dest="what", required=True)
    layers = kinds.add_parser(
        "layers",
        help="operations, time, memory, sequential steps and path length of each kind of layer",
        description="Count the multiplications of each kind of layer, measure time and memory against the length n and "
        "the width d, fit exponents, and find path lengths from gradients. Table 1 of Vaswani et al. 2017, measured.",
    )
    flows = kinds.add_parser(
        "flow",
        help="how much of a gradient is left at each distance",
        description="Send a gradient of length 1 from the last position back to every other one, through freshly "
        "initialised layers.",
    )
    flows.add_argument("--length", type=int, default=65, metavar="N", help="positions (default: 65)")
    flows.add_argument("--width", type=int, default=32, metavar="D", help="(default: 32)")
    caches = kinds.add_parser(
        "cache",
        help="bytes that each kind of attention keeps of the tokens read",
        description="Let one layer of each kind of attention read some tokens, in float32, and compare the bytes in "
        "its cache with the formula.",
    )
    caches.add_argument("--length", type=int, default=1024, metavar="N", help="tokens (default: 1024)")
    caches.add_argument("--width", type=int, default=512, metavar="D", help="(default: 512)")
    caches.add_argument("--heads", type=int, default=8, metavar="H", help="(default: 8)")
    places = kinds.add_parser(
        "positions",
        help="how well kinds of positions generalise to longer texts: sinusoidal, learned, relative, rotary, biases",
        description="Train a small model with each kind of positions to predict the token some places back, and "
        "test it on texts that are longer. This takes about a minute.",
    )
    places.add_argument("--length", type=int, default=16, metavar="N", help="tokens in training (default: 16)")
    places.add_argument("--steps", type=int, default=600, metavar="N", help="training steps (default: 600)")
    places.add_argument("--seed", type=int, default=0, metavar="N", help="(default: 0)")
    for kind in (layers, flows, caches, places):
        add_output(kind, "--plot", "also draw a picture")
        kind.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def worksheet(command: ArgumentParser) -> None:
    """print gradients to compute by hand, with answer keys, and mark completed forms

    Print a worksheet with small whole numbers, and blanks for every intermediate result of the forward and backward
    pass. The same kind, seed, size and student give the same sheet and key on every machine. The answers come from
    the library, and each gradient is compared with finite differences before anything is written. A derivation has
    ruled lines in place of numbers; its answers are a model derivation.

    Marking: each answer counts one point and must be right to within 0.001. It is compared with the key and with
    the result that follows from the student's own earlier numbers, so an early slip costs only its own marks.
    """
    command.add_argument("kind", nargs="?", metavar="KIND", help="its name (without one, all are listed)")
    command.add_argument("--seed", type=int, default=0, help="seed of the numbers (default: 0)")
    command.add_argument("--size", type=int, default=3, help="size of the matrices, 3 to 5 for most kinds (default: 3)")
    command.add_argument("--student", default="", metavar="NAME", help="the student: each name gets its own numbers")
    command.add_argument("--answers", action="store_true", help="add the answer key, on a new page")
    for name, text in {"html": "a page that prints on A4", "md": "Markdown", "pdf": "a PDF"}.items():
        add_output(command, f"--{name}", f"write {text} instead of text on the screen")
    add_output(command, "--form", "write a text file to type the answers into")
    command.add_argument("--class", type=named, dest="class_list", metavar="FILE", help="a list of names, one per line")
    add_folder(command, "with --class: folder for sheets, forms and the key")
    command.add_argument(
        "--format", choices=("pdf", "html", "md"), default="pdf", help="format of the sheets (default: pdf)"
    )
    command.add_argument("--grade", type=named, nargs="+", metavar="FORM", help="mark completed forms")
    command.add_argument("--json", action="store_true", help="print the sheet, or the marks, as one JSON document")
    command.add_argument(
        "--csv", action="store_true", help="with --grade: print a line for each form, for a spreadsheet"
    )


def exam(command: ArgumentParser) -> None:
    """print examination questions with worked answers, and a test of concepts

    Print an examination: questions of the twelve-week term, with new numbers for each seed. The same seed, weeks
    and count give the same paper on every machine. --answers prints the worked answers in their place.
    """
    command.add_argument("names", nargs="*", metavar="QUESTION", help="these questions; without names, some of --weeks")
    command.add_argument("--list", action="store_true", help="list the names of all questions")
    command.add_argument("--seed", type=int, default=0, help="seed of the numbers and of the choice (default: 0)")
    command.add_argument(
        "--weeks", default="1-12", metavar="A-B", help="weeks to choose from, such as 1-6 (default: 1-12)"
    )
    command.add_argument("--count", type=int, default=12, help="how many questions to choose (default: 12)")
    command.add_argument(
        "--concepts", action="store_true", help="print the test of concepts; --seed orders its options"
    )
    command.add_argument("--answers", action="store_true", help="print the paper with its worked answers")
    add_output(command, "--html", "write a page that prints on A4 instead of Markdown")


def grade(command: ArgumentParser) -> None:
    """grade the exercises in notebooks or Python files

    Grade every function in a hand-in that is named like an exercise of minitransformer.course: its last definition,
    with what it uses. Each runs in a process of its own, with limits on time and memory. The process gets the
    inputs and returns arrays, which are compared here. Derivations (Markdown below a line derive_NAME, or a string
    of that name) are marked line by line. Exit status 0 if grading worked, whatever the grades.

    Hand-ins run under bubblewrap, which must be installed (apt-get install bubblewrap): without network, your
    files, the solutions or other hand-ins.
    """
    command.add_argument(
        "files",
        nargs="+",
        type=named,
        metavar="FILE",
        help="notebooks (.ipynb), Python files (.py), or folders with them or with a folder for each student",
    )
    command.add_argument(
        "--exercises", metavar="A,B,...", help="exercises that count (default, without --out: all in the files)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    command.add_argument("--csv", action="store_true", help="print a row for each student, for a spreadsheet")
    add_folder(
        command, "also write marks.csv, moodle.csv, canvas.csv, and feedback/STUDENT.txt for each file, to this folder"
    )
    command.add_argument("--verbose", action="store_true", help="print all remarks on each exercise")
    command.add_argument("--seed", type=int, help="seed of the inputs to the functions (default: random)")
    command.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="time limit for each exercise (default: 20); a hand-in has ten times as long",
    )
    command.add_argument(
        "--memory", type=int, default=2048, metavar="MB", help="memory limit for each hand-in (default: 2048)"
    )


def site(command: ArgumentParser) -> None:
    """write the course as a folder of static files, whose code runs in the browser

    Write the notebooks as chapters whose cells can be changed and run in the browser, the exercises with their
    check, the steppers, the annotated code, the reference and the teacher's guide. This takes a few minutes. Any
    web server can serve the folder, for example: python -m http.server --directory DIR
    """
    add_folder(command, "(default: site)", default="site")
    command.add_argument(
        "--source",
        type=named,
        default=Path(__file__).parents[3],
        metavar="DIR",
        help="the repository, with notebooks/ and docs/ (default: the one that contains this package)",
    )
    command.add_argument(
        "--pyodide",
        metavar="WHERE",
        help="Python for the browser: the address of a Pyodide distribution, or a folder with one, which is copied "
        "into the site (default: the public distribution)",
    )
    command.add_argument("--instructor", action="store_true", help="also write solutions and answers")
    add_model(
        command,
        "the translator that `minitransformer demo` trains, demo/model: the start page shows it at work",
        required=False,
    )
    command.add_argument(
        "--address", default="", metavar="URL", help="the site's address, from which notebooks install the package"
    )
