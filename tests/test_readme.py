"""What the README shows is true."""

import contextlib
import inspect
import io
import re
from pathlib import Path

from minitransformer import ops

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)


def test_softmax_is_shown_as_it_is() -> None:
    (block,) = [block for block in BLOCKS if "exponentials = " in block]
    source = [line.partition("  #")[0].strip() for line in inspect.getsource(inspect.unwrap(ops.softmax)).splitlines()]
    for line in filter(None, block.splitlines()):
        shown = line.strip()
        assert shown in source or (shown == "def backward(dy):" and "def backward(dy: Array) -> Array:" in source)


def test_example_prints_what_is_shown() -> None:
    (code,) = [block for block in BLOCKS if "print(verify.gradients" in block]
    (shown,) = [block for block in BLOCKS if block.startswith("attention: all")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    lines = [line.split("  ") for line in printed.getvalue().splitlines()]
    for row in shown.splitlines()[2:-1]:
        wanted = [cell.strip() for cell in row.split("  ") if cell.strip()]
        (found,) = [line for line in lines if line[0] == wanted[0]]
        assert [cell.strip() for cell in found if cell.strip()][:6] == wanted[:6]  # after that rounding may differ


def test_linked_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) > 5
    assert [link for link in links if not (Path(__file__).parent.parent / link).exists()] == []
