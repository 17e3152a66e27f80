"""The commands of `minitransformer`, a file each, with a function `add` that tells the command line of it."""

from . import check, demo, step, view

COMMANDS = (demo, check, step, view)

__all__ = ["COMMANDS"]
