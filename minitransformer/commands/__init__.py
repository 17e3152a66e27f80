"""The commands of `minitransformer`. Each has one file, whose function `add` registers it with the command line."""

from . import (
    check,
    demo,
    embed,
    evaluate,
    fill_mask,
    generate,
    grade,
    info,
    plot,
    step,
    train,
    translate,
    view,
    worksheet,
)

COMMANDS = (
    demo,
    check,
    step,
    train,
    translate,
    generate,
    embed,
    fill_mask,
    evaluate,
    info,
    view,
    plot,
    worksheet,
    grade,
)

__all__ = ["COMMANDS"]
