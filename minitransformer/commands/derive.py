"""`minitransformer derive`: check written derivations, a user's and the package's own."""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..check.derivation import derivation
from ..check.docstrings import Passage, check_one, counts, modules, names
from . import Options, UsageError
from .common import known_as, progress_bar


def main(options: Options) -> int:
    as_listed = {f"{module.replace('.', '/')}.py": [module] for module in modules()}
    own = names() | {what: as_listed[what] for what in options.what if what in as_listed}
    files = [what for what in options.what if what == "-" or (what not in own and Path(what).is_file())]
    if files and (len(options.what) > 1 or options.list):
        raise UsageError(f"derive takes one FILE alone, or names and --list; got {' '.join(options.what)}")
    if files:
        return _text(files[0], options.json)
    if missing := [what for what in options.what if what not in own and re.search(r"[./\\]", what)]:
        raise UsageError(f"{missing[0]} is a folder" if Path(missing[0]).is_dir() else f"there is no file {missing[0]}")
    chosen = {module for what in options.what for module in own[known_as("derive", what, list(own))]}
    passages = _checked([module for module in modules() if not chosen or module in chosen])
    if options.json:
        print(json.dumps(_document(passages), indent=1, ensure_ascii=False))
    elif options.list:
        for passage in passages:
            unread = [each for each in passage.equations if each.verdict == "unreadable"]
            n = sum(each.verdict not in ("unreadable", "code") for each in passage.equations)
            print(f"{passage.path}{f', {passage.op}' if passage.op else ''}: {n} read, {len(unread)} not read")
            for each in unread:
                print(f"{each.line:>4} {' '.join(each.text.split())}\n       {each.message}")
        print(summary(passages))
    else:
        print(*passages, summary(passages), sep="\n\n")
    return 0 if all(passage.ok for passage in passages) else 1


def _text(file: str, as_json: bool) -> int:
    """Check a text of the user's own."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not a text in UTF-8") from None
    report = derivation(text)
    print(json.dumps(report.as_dict(), ensure_ascii=False) if as_json else report)
    return 0 if report.ok else 1


def _checked(chosen: Sequence[str]) -> list[Passage]:
    return [passage for name in progress_bar("derive", "docstring")(list(chosen)) for passage in check_one(name)]


def _document(passages: Sequence[Passage]) -> dict[str, Any]:
    each = [dataclasses.asdict(passage) | {"ok": passage.ok} for passage in passages]
    return {"ok": all(p.ok for p in passages), "counts": counts(passages), "derivations": each}


def summary(passages: Sequence[Passage]) -> str:
    """What was found, in one sentence."""
    n = counts(passages)
    told = f"{n.total() - n['code']} equations in docstrings: {n['right']} right, {n['defines']} definitions"
    told += f", {n['unreadable']} not read, {n['wrong'] + n['follows']} wrong"
    return f"{told}; {n['code']} outputs and gradients of ops are equal to their formulas"


def docstrings(options: Options) -> dict[str, Any]:
    """What `minitransformer check` says of all docstrings."""
    try:
        passages = _checked(modules())
    except ModuleNotFoundError as error:  # the parser is an extra
        return {"ok": not options.names, "summary": f"equations in docstrings are not tried: {error}"}
    wrong = [str(passage) for passage in passages if not passage.ok]
    if wrong:
        tqdm.write("\n".join([*wrong, ""]), file=sys.stderr if options.json else sys.stdout)
    return _document(passages) | {"summary": summary(passages)}
