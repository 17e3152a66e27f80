"""`minitransformer sheet`: an example as a workbook whose cells compute it."""

from ..core.arrays.files import write
from ..school.show.sheet import workbook
from ..school.show.sheet.sizes import resized
from ..school.show.stepper.examples import EXAMPLES
from . import Options, UsageError
from .common import listed
from .outputs import file_to_write
from .step import example_called


def main(options: Options) -> int:
    if options.example is None:
        return listed(EXAMPLES)
    name = example_called("sheet", options.example)
    path = options.out or file_to_write(f"{name}.xlsx")
    if path.suffix.lower() != ".xlsx":
        raise UsageError(f"--out must end in .xlsx, got {path}; spreadsheets tell the kind of a file by it")
    sizes = dict(_size(given) for given in options.size)
    write(path, workbook(resized(EXAMPLES[name], name, sizes).record(options.seed), name))
    print(f"wrote {path}")
    return 0


def _size(given: str) -> tuple[str, int]:
    letter, _, number = given.partition("=")
    if not letter or not number.isdecimal():
        raise UsageError(f"--size takes a letter and a number, such as T_q=3, got {given!r}")
    return letter, int(number)
