"""The options of the commands that show, teach and grade."""

from argparse import ArgumentParser
from pathlib import Path

from ..outputs import named
from .shared import add, add_device, add_folder, add_model, add_number, add_output, add_speed, add_switch, texts


def demo(command: ArgumentParser) -> None:
    """show the worked example, check every op, train a small translator (under two minutes)

    Show the worked example forward and backward, check every op against finite differences, and train an
    encoder-decoder that translates numbers from English to German. Saves two pictures and the model.
    """
    add_folder(command, "output folder (default: demo)", default="demo")
    add_number(command, "--seed", "seed of data, weights and batches", 0)
    add_number(command, "--steps", "training steps", 400)
    add_speed(command)


def step(command: ArgumentParser) -> None:
    """step through an example line by line, forward and backward, with every number

    Run a small example, forward and backward, and show what each line of the code computed. On a terminal the keys
    n and p (or → and ←) go forward and back, c shows how a number was computed, q quits. Elsewhere all steps are
    printed. With --model, EXAMPLE is a text that the model reads (a translator also translates it), and the steps
    show one of its layers, or one head.
    """
    meaning = "its name (without one, all are listed); with --model a text, in quotes"
    add(command, "example", meaning, nargs="?", metavar="EXAMPLE")
    add_model(command, "the folder of a trained or published model, or a .gguf file", required=False)
    add_number(command, "--layer", "its layer, counted from 1 (default: the last)", metavar="N")
    add_number(command, "--head", "one head of its attention, from 1 (default: the layer)", metavar="N")
    add_switch(command, "--all", "also show the lines that compute no number")
    add_switch(command, "--verify", "compare every gradient with finite differences")
    add_output(command, "--html", "write a page to step through in a browser")
    add_switch(command, "--json", "print one JSON document instead")
    add_number(command, "--seed", "seed of the example's numbers", 0)
    add_device(command)


def sheet(command: ArgumentParser) -> None:
    """write an example as a workbook whose cells compute it, forward and backward

    Write an example of `minitransformer step` as a workbook (.xlsx): a block of cells for each array, forward and
    backward, in which each computed number is a formula. Change an input, and everything that depends on it
    changes. Another sheet has blanks to fill in, which turn green when they are right. There are no macros.
    """
    add(command, "example", "its name (without one, all are listed)", nargs="?", metavar="EXAMPLE")
    add_output(command, "--out", "the workbook to write (default: EXAMPLE.xlsx)")
    meaning = "another length of an axis, such as T_q=3; again for another axis. A wrong letter lists the right ones"
    add(command, "--size", meaning, action="append", default=[], metavar="LETTER=N")
    add_number(command, "--seed", "seed of the example's numbers", 0)


def view(command: ArgumentParser) -> None:
    """write a page that shows where a model looks: its attention weights and their gradients

    Run a trained model on a text (a translator translates it first) and write one page with the attention weights
    of every layer and head, and the gradient of each logit with respect to them.
    """
    add(command, "text", "the text, in quotes", metavar="TEXT")
    add_model(command, "the model's folder, such as demo/model")
    add_output(command, "--html", "(default: attention-view.html)", default="attention-view.html")
    add_number(command, "--layer", "show only this layer, counted from 1: a page holds a longer text then", metavar="N")
    add_device(command)


def plot(command: ArgumentParser) -> None:
    """draw where the heads of a layer look

    Draw pictures.
    """
    pictures = command.add_subparsers(title="pictures", metavar="PICTURE", required=True)
    _attention(pictures.add_parser("attention", **texts(_attention)))


def _attention(command: ArgumentParser) -> None:
    """the attention weights of one layer as heat maps

    Draw the attention weights of one layer, for one head or all heads, while the model reads TEXT. A translator
    translates TEXT first.
    """
    add(command, "text", "a sentence, in quotes", metavar="TEXT")
    add_model(command, "the folder of the model")
    add(command, "--kind", "for a translator: encoder, decoder or cross (default: cross)", metavar="KIND")
    add_number(command, "--layer", "counted from 1 (default: the last)", metavar="N")
    add_number(command, "--head", "counted from 1 (default: all)", metavar="N")
    add_output(command, "--out", "(default: attention.png)", default="attention.png")
    add_device(command)


def compare(command: ArgumentParser) -> None:
    """measure attention, recurrence and convolution side by side

    Measure and compare.
    """
    kinds = command.add_subparsers(title="comparisons", metavar="WHAT", dest="what", required=True)
    for add_options in (_layers, _flow, _cache, _positions):
        kind = kinds.add_parser(add_options.__name__[1:], **texts(add_options))
        add_options(kind)
        add_output(kind, "--plot", "also draw a picture")
        add_switch(kind, "--json", "print one JSON document instead of a table")


def _layers(command: ArgumentParser) -> None:
    """operations, time, memory, sequential steps and path length of each kind of layer

    Count the multiplications of each kind of layer, measure time and memory against the length n and the width d, fit
    exponents, and find path lengths from gradients. Table 1 of Vaswani et al. 2017, measured.
    """


def _flow(command: ArgumentParser) -> None:
    """how much of a gradient is left at each distance

    Send a gradient of length 1 from the last position back to every other one, through freshly initialised layers.
    """
    add_number(command, "--length", "positions", 65, "N")
    add_number(command, "--width", "", 32, "D")


def _cache(command: ArgumentParser) -> None:
    """bytes that each kind of attention keeps of the tokens read

    Let one layer of each kind of attention read some tokens, in float32, and compare the bytes in its cache with the
    formula.
    """
    add_number(command, "--length", "tokens", 1024, "N")
    add_number(command, "--width", "", 512, "D")
    add_number(command, "--heads", "", 8, "H")


def _positions(command: ArgumentParser) -> None:
    """how well kinds of positions generalise to longer texts: sinusoidal, learned, relative, rotary, biases

    Train a small model with each kind of positions to predict the token some places back, and test it on texts that are
    longer. This takes about a minute.
    """
    add_number(command, "--length", "tokens in training", 16, "N")
    add_number(command, "--steps", "training steps", 600, "N")
    add_number(command, "--seed", "", 0, "N")


def worksheet(command: ArgumentParser) -> None:
    """print gradients to compute by hand, with answer keys, and mark completed forms

    Print a worksheet with small whole numbers, and blanks for every intermediate result of the forward and backward
    pass. The same kind, seed, size and student give the same sheet and key on every machine. The answers come from
    the library, and each gradient is compared with finite differences before anything is written. A derivation has
    ruled lines in place of numbers; its answers are a model derivation.

    Marking: each answer counts one point and must be right to within 0.001. It is compared with the key and with
    the result that follows from the student's own earlier numbers, so an early slip costs only its own marks.
    """
    add(command, "kind", "its name (without one, all are listed)", nargs="?", metavar="KIND")
    add_number(command, "--seed", "seed of the numbers", 0)
    add_number(command, "--size", "size of the matrices, 3 to 5 for most kinds", 3)
    add(command, "--student", "the student: each name gets its own numbers", default="", metavar="NAME")
    add_switch(command, "--answers", "add the answer key, on a new page")
    for name, text in {"html": "a page that prints on A4", "md": "Markdown", "pdf": "a PDF"}.items():
        add_output(command, f"--{name}", f"write {text} instead of text on the screen")
    add_output(command, "--form", "write a text file to type the answers into")
    add(command, "--class", "a list of names, one per line", type=named, dest="class_list", metavar="FILE")
    add_folder(command, "with --class: folder for sheets, forms and the key")
    add(command, "--format", "format of the sheets (default: pdf)", choices=("pdf", "html", "md"), default="pdf")
    add(command, "--grade", "mark completed forms", type=named, nargs="+", metavar="FORM")
    add_switch(command, "--json", "print the sheet, or the marks, as one JSON document")
    add_switch(command, "--csv", "with --grade: print a line for each form, for a spreadsheet")


def exam(command: ArgumentParser) -> None:
    """print examination questions with worked answers, and a test of concepts

    Print an examination: questions of the twelve-week term, with new numbers for each seed. The same seed, weeks
    and count give the same paper on every machine. --answers prints the worked answers in their place.
    """
    add(command, "names", "these questions; without names, some of --weeks", nargs="*", metavar="QUESTION")
    add_switch(command, "--list", "list the names of all questions")
    add_number(command, "--seed", "seed of the numbers and of the choice", 0)
    add(command, "--weeks", "weeks to choose from, such as 1-6 (default: 1-12)", default="1-12", metavar="A-B")
    add_number(command, "--count", "how many questions to choose", 12)
    add_switch(command, "--concepts", "print the test of concepts; --seed orders its options")
    add_switch(command, "--answers", "print the paper with its worked answers")
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
    meaning = "notebooks (.ipynb), Python files (.py), or folders with them or with a folder for each student"
    add(command, "files", meaning, nargs="+", type=named, metavar="FILE")
    add(command, "--exercises", "exercises that count (default, without --out: all in the files)", metavar="A,B,...")
    add_switch(command, "--json", "print one JSON document instead of a table")
    add_switch(command, "--csv", "print a row for each student, for a spreadsheet")
    meaning = "also write marks.csv, moodle.csv, canvas.csv, and feedback/STUDENT.txt for each file, to this folder"
    add_folder(command, meaning)
    add_switch(command, "--verbose", "print all remarks on each exercise")
    add_number(command, "--seed", "seed of the inputs to the functions (default: random)")
    meaning = "time limit for each exercise (default: 20); a hand-in has ten times as long"
    add(command, "--seconds", meaning, type=float, default=20.0)
    add_number(command, "--memory", "memory limit for each hand-in", 2048, "MB")


def site(command: ArgumentParser) -> None:
    """write the course as a folder of static files, whose code runs in the browser

    Write the notebooks as chapters whose cells can be changed and run in the browser, the exercises with their
    check, the steppers, the annotated code, the reference and the teacher's guide. This takes a few minutes. Any
    web server can serve the folder, for example: python -m http.server --directory DIR
    """
    add_folder(command, "(default: site)", default="site")
    meaning = "the repository, with notebooks/ and docs/ (default: the one that contains this package)"
    add(command, "--source", meaning, type=named, default=Path(__file__).parents[3], metavar="DIR")
    meaning = (
        "Python for the browser: the address of a Pyodide distribution, or a folder with one, which is copied "
        "into the site (default: the public distribution)"
    )
    add(command, "--pyodide", meaning, metavar="WHERE")
    add_switch(command, "--instructor", "also write solutions and answers")
    meaning = "the translator that `minitransformer demo` trains, demo/model: the start page shows it at work"
    add_model(command, meaning, required=False)
    add(command, "--address", "the site's address, from which notebooks install the package", default="", metavar="URL")
