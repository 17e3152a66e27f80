"""`minitransformer audit`: which known mistakes a test suite lets pass."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from ..check.audit import audit, picture, table
from ..run.machines.locks import write_figure
from . import Options, UsageError


def _showing(bar: tqdm) -> Callable[[str], None]:
    """Shows lines of progress: on a terminal in one place, elsewhere one at most every ten seconds."""
    shown = time.monotonic()

    def told(line: str) -> None:
        nonlocal shown
        bar.set_postfix_str(line[:60], refresh=False)
        bar.update()
        if bar.disable and time.monotonic() - shown > 10.0:
            print(line, file=sys.stderr, flush=True)
            shown = time.monotonic()

    return told


def main(options: Options) -> int:
    if options.limit <= 0:
        raise UsageError(f"--limit must be greater than 0, got {options.limit:g}")
    audits = []
    for name in options.suites:
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        own = Path(options.at, path.stem)
        is_own = own.is_dir() and not (own / "__init__.py").exists()  # in its repository a package may have this name
        with tqdm(desc=path.stem, unit=" runs", leave=False, disable=None) as bar:
            audits.append(audit(path, own if is_own else Path(options.at), options.limit, _showing(bar)))
    if options.json:
        heads = [{"title": each.title, "repository": each.repository, "commit": each.commit} for each, _ in audits]
        found = [{"functions": [result.as_dict() for result in results]} for _, results in audits]
        print(json.dumps([head | functions for head, functions in zip(heads, found, strict=True)]))
    else:
        print(table(audits))
    if options.picture:
        write_figure(options.picture, picture(audits))
    return 0 if all(result.right == "passed" for _, results in audits for result in results) else 1
