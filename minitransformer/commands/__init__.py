"""The commands of `minitransformer`, a file each, with a function `add` that tells the command line of it."""

from . import check, demo, evaluate, generate, grade, info, plot, step, train, translate, view, worksheet

COMMANDS = (demo, check, step, train, translate, generate, evaluate, info, view, plot, worksheet, grade)

__all__ = ["COMMANDS"]
