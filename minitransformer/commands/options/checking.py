"""The options of the commands that check: gradients, derivations, test suites."""

from argparse import ArgumentParser

from .shared import add_device, add_model, add_output


def check(command: ArgumentParser) -> None:
    """compare every hand-derived gradient with finite differences

    Compare the gradients of every input, parameter and named intermediate of each op, layer and model with central
    differences in float64. Then compare its fast forms, in float32 and float64, with the ops as written, and try
    the equations in the docstrings with numbers. The exit status is 1 if anything is wrong.
    """
    command.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="ops, layers, models, collectives, derivations, or softmax, ... (default: all)",
    )
    add_device(command)
    command.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")
    command.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    add_model(command, "check a model, of a folder or a .gguf file, in place of the cases", required=False)
    command.add_argument(
        "--layer", type=int, metavar="N", help="the layer of that model to check inside (default: the last)"
    )
    command.add_argument("--verbose", action="store_true", help="print a line for every gradient")


def derive(command: ArgumentParser) -> None:
    """check a written derivation line by line: yours, or those in the docstrings of this package

    Check a written derivation line by line with numbers. FILE holds your own; docs/derivations.md shows the
    notation. A NAME, such as attention, is a derivation in a docstring of this package, which is also compared with
    what the op computes. The exit status is 1 if a line is wrong, or cannot be read in FILE.
    """
    command.add_argument("what", nargs="*", metavar="NAME|FILE", help="- reads the standard input (default: all names)")
    command.add_argument("--list", action="store_true", help="list the names, and each equation that is not read")
    command.add_argument("--json", action="store_true", help="print one JSON document")


def audit(command: ArgumentParser) -> None:
    """replace the function that a test suite tests by known mistakes, and see which ones pass

    Replace the function that a test suite tests by each known mistake, run the suite, and report which mistakes it
    lets pass. docs/referee.md explains how, with the results for courses and libraries.
    """
    command.add_argument("suites", nargs="+", metavar="SUITE.toml", help="describes suite, function and arguments")
    command.add_argument(
        "--at",
        default=".",
        metavar="FOLDER",
        help="the suite's files, or a folder that holds one for each SUITE (default: .)",
    )
    command.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="limit for one run (default: 60)")
    command.add_argument("--json", action="store_true", help="print the outcome as JSON instead of a table")
    add_output(command, "--picture", "also draw it, as a PNG file")
