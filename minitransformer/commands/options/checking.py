"""The options of the commands that check: gradients, derivations, test suites."""

from argparse import ArgumentParser

from .shared import add, add_device, add_model, add_number, add_output, add_switch


def check(command: ArgumentParser) -> None:
    """compare every hand-derived gradient with finite differences

    Compare the gradients of every input, parameter and named intermediate of each op, layer and model with central
    differences in float64. Then compare its fast forms, in float32 and float64, with the ops as written, and try
    the equations in the docstrings with numbers. The exit status is 1 if anything is wrong.
    """
    meaning = "ops, layers, models, collectives, derivations, or softmax, ... (default: all)"
    add(command, "names", meaning, nargs="*", metavar="NAME")
    add_device(command)
    add_number(command, "--seed", "seed of the random inputs", 0)
    add_switch(command, "--json", "print one JSON document instead of a table")
    add_model(command, "check a model, of a folder or a .gguf file, in place of the cases", required=False)
    add_number(command, "--layer", "the layer of that model to check inside (default: the last)", metavar="N")
    add_switch(command, "--verbose", "print a line for every gradient")


def derive(command: ArgumentParser) -> None:
    """check a written derivation line by line: yours, or those in the docstrings of this package

    Check a written derivation line by line with numbers. FILE holds your own; docs/derivations.md shows the
    notation. A NAME, such as attention, is a derivation in a docstring of this package, which is also compared with
    what the op computes. The exit status is 1 if a line is wrong, or cannot be read in FILE.
    """
    add(command, "what", "- reads the standard input (default: all names)", nargs="*", metavar="NAME|FILE")
    add_switch(command, "--list", "list the names, and each equation that is not read")
    add_switch(command, "--json", "print one JSON document")


def audit(command: ArgumentParser) -> None:
    """replace the function that a test suite tests by known mistakes, and see which ones pass

    Replace the function that a test suite tests by each known mistake, run the suite, and report which mistakes it
    lets pass. docs/referee.md explains how, with the results for courses and libraries.
    """
    add(command, "suites", "describes suite, function and arguments", nargs="+", metavar="SUITE.toml")
    meaning = "the suite's files, or a folder that holds one for each SUITE (default: .)"
    add(command, "--at", meaning, default=".", metavar="FOLDER")
    add_number(command, "--limit", "limit for one run", 60.0, "SECONDS")
    add_switch(command, "--json", "print the outcome as JSON instead of a table")
    add_output(command, "--picture", "also draw it, as a PNG file")
