"""The commands of `minitransformer`, a file each, with a function `add` that tells the command line of it."""

from . import check, demo, evaluate, generate, info, plot, step, train, translate, view

COMMANDS = (demo, check, step, train, translate, generate, evaluate, info, view, plot)

__all__ = ["COMMANDS"]
