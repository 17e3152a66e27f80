"""`minitransformer translate`: a trained translator translates texts, a file or standard input."""

import sys

from ..core.arrays.files import write
from ..core.models import EncoderDecoder
from ..core.models.opening import opened
from ..core.text import END, encode_lines
from ..core.text.text_files import read_lines
from ..run.fast.compiler import TO_WRITE
from ..run.published_models import check_ids
from ..run.tasks.translation import written
from . import Options, UsageError
from .common import check_search, speed


def main(options: Options) -> None:
    if options.text and options.input:
        raise UsageError("give TEXT or --input, not both")
    check_search(options)
    found = opened(options.model, EncoderDecoder)
    check_ids(found)
    lines = (
        read_lines(options.input) if options.input else options.text or sys.stdin.read().removesuffix("\n").split("\n")
    )
    empty = [str(i) for i, line in enumerate(lines, start=1) if not line.strip()]
    if empty or not lines:
        which = f" (see sentence {', '.join(empty[:5])})" if empty else ""
        raise UsageError(f"there is nothing to translate: every sentence needs at least one word{which}")
    sentences = encode_lines(found.tokenizers[0], lines, options.input)
    fast = speed(options, TO_WRITE)(found.model.to(options.device))
    search = {"early_stopping": options.early_stopping}
    ids = written(fast, sentences, options.beam, options.length_penalty, **search)
    if cut_off := sum(END not in row for row in ids):
        print(f"{cut_off} of {len(ids)} translations did not end and were cut off", file=sys.stderr)
    translations = "".join(f"{found.tokenizers[-1].decode(row)}\n" for row in ids)
    if options.output:
        write(options.output, translations)
        print(f"wrote {options.output}")
    else:
        print(translations, end="")
