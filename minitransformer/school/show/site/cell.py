"""Run cells in the browser, as Jupyter does: Pyodide calls this file, in a worker of the page.

An output is a dictionary as in an .ipynb, so the page shows stored and fresh outputs alike.
"""

import ast
import base64
import builtins
import io
import linecache
import logging
import os
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

Output = dict[str, Any]
Send = Callable[[Output], None]
LONGEST = 200_000  # characters of text that a cell may print; the page would be slow with more


class Session:
    """The names that the cells of one page share. send: receives each output as soon as it exists."""

    def __init__(self, send: Send) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins, "display": self.display}
        self._send = send
        shell, part = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        vars(part).update(display=self.display)
        vars(shell).update(display=part, get_ipython=lambda: None)
        sys.modules |= {"IPython": shell, "IPython.display": part}
        os.environ["MPLBACKEND"] = "module://minitransformer.school.show.site.matplotlib_backend"
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it reports that it looks for fonts

    def run(self, code: str, number: int = 1) -> bool:
        """Run a cell: send what it prints and shows, and the value of its last line. Returns whether it ended well.

        number: the cell's place on its page, which tracebacks name.
        """
        file = f"cell {number}"
        lines = code.splitlines(keepends=True)
        linecache.cache[file] = (len(code), None, lines, file)  # for tracebacks and `step`
        with redirect_stdout(_Stream("stdout", self._send)), redirect_stderr(_Stream("stderr", self._send)):
            try:
                value = self._value(code, file)
                if value is not None:
                    self._send(shown("execute_result", value))
                if "matplotlib.pyplot" in sys.modules:
                    sys.modules["matplotlib.pyplot"].show()
            except BaseException as error:
                self._send(failure(error, file))
                return False
        return True

    def _value(self, code: str, file: str) -> Any:
        """Run the statements; the value of the last one if it is an expression without a semicolon behind it."""
        body = ast.parse(code, file).body
        shows = bool(body) and isinstance(body[-1], ast.Expr) and not code.rstrip().endswith(";")
        last: Any = body.pop() if shows else None
        exec(compile(ast.Module(body, []), file, "exec"), self.names)
        return eval(compile(ast.Expression(last.value), file, "eval"), self.names) if last is not None else None

    def display(self, *values: Any) -> None:
        """Show values as the last line of a cell is shown."""
        for value in values:
            self._send(shown("display_data", value))


def shown(kind: str, value: Any) -> Output:
    """The output that shows a value; a picture of the course comes with words."""
    words = getattr(value, "words", "") if hasattr(value, "savefig") else ""
    output = {"output_type": kind, "data": bundle(value)}
    return output | {"metadata": {"image/png": {"alt": words}}} if words else output


def bundle(value: Any) -> dict[str, str]:
    """The forms in which a value can be shown: a picture for a figure, otherwise its text and, if it has one, HTML."""
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", bbox_inches="tight")
        return {"image/png": base64.b64encode(picture.getvalue()).decode()}
    out = {"text/plain": repr(value)}
    if not isinstance(value, type) and hasattr(value, "_repr_html_"):
        out["text/html"] = value._repr_html_()
    return out


def failure(error: BaseException, file: str) -> Output:
    """The traceback of an error, starting at the cell."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return {"output_type": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": lines}


def check(name: str, code: str, send: Send) -> None:
    """Run a student's code in names of its own, let the course check the function `name`, and send the verdict."""
    import numpy as np

    from ...course import check as judged

    session = Session(send)
    session.names["np"] = np
    if not session.run(code):
        return
    if not callable(session.names.get(name)):
        said = [f"There is no function {name}: define it with def."]
        send({"output_type": "verdict", "right": False, "said": said, "details": ""})
        return
    result = judged(name, session.names[name])
    said, details = [result.verdict, *result.sentences], "\n".join(result.details).strip("\n")
    send({"output_type": "verdict", "right": bool(result.right), "said": said, "details": details})


def derive(name: str, text: str, send: Send) -> None:
    """Mark a derivation, and send the verdict on each line, with the line as mathematics."""
    from ....check.derivation.report import VERDICTS
    from ...course import check_derivation

    marked = check_derivation(name, text)
    lines = []
    for line, formula in zip(marked.lines, marked.formulas, strict=True):
        shown = {name: getattr(line, name) for name in ("number", "text", "verdict")}
        lines.append(shown | {"mark": VERDICTS[line.verdict], "said": line.sentences(), "formula": formula})
    verdict = marked.verdict.removeprefix(f"{name}: ")
    said = [verdict[0].upper() + verdict[1:], *marked.remarks]
    send({"output_type": "derivation", "right": marked.right, "said": said, "lines": lines})


class _Stream(io.TextIOBase):
    """Sends what is written to it, up to a limit."""

    def __init__(self, name: str, send: Send) -> None:
        self._name, self._send, self._left = name, send, LONGEST

    def write(self, text: str) -> int:
        if self._left > 0 and text:
            cut = "" if len(text) <= self._left else "\n... (the rest is not shown)\n"
            self._send({"output_type": "stream", "name": self._name, "text": text[: self._left] + cut})
            self._left -= len(text)
        return len(text)
