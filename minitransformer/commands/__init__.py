"""The commands of `minitransformer`. Each has one file, whose function `add` registers it with the command line."""

from . import (
    check,
    compare,
    demo,
    embed,
    evaluate,
    fill_mask,
    generate,
    grade,
    info,
    plot,
    prepare,
    site,
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
    prepare,
    train,
    translate,
    generate,
    embed,
    fill_mask,
    evaluate,
    info,
    view,
    plot,
    compare,
    worksheet,
    grade,
    site,
)

__all__ = ["COMMANDS"]
