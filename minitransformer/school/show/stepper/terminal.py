"""Stepping through a recording on a terminal, with keys.

The viewer uses the terminal's alternate screen and reads keys one by one (cbreak mode). It restores both when it ends,
however it ends. Without such a terminal, `drawing.plain` shows everything at once.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator

from .drawing import PLAIN, Style, heading, numbers, source
from .expansion import NotExpandable, expand
from .sentences import outside_of, sentence_of
from .steps import Steps
from .stops import stops_of

try:
    import termios
    import tty
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

_KEYS = {
    "\x1b[C": "next", "\x1bOC": "next", "n": "next", " ": "next", "\r": "next", "\n": "next",
    "\x1b[D": "back", "\x1bOD": "back", "p": "back", "\x7f": "back",
    "\x1b[H": "first", "\x1bOH": "first", "\x1b[1~": "first",
    "\x1b[F": "last", "\x1bOF": "last", "\x1b[4~": "last",
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "o": "over", "u": "out", "g": "go", "a": "all", "c": "cell", "b": "backward",
    "q": "quit", "\x04": "quit", "": "quit",
}  # fmt: skip
_HELP = "n p → ← next, back   o over   u out   ↑ ↓ scroll   g step   b backward   a all   c cell   q quit"
_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate screen, no cursor; and the way back


def can_view() -> bool:
    """Whether this terminal can draw a screen and read keys."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return termios is not None and is_terminal and os.environ.get("TERM", "dumb") != "dumb"


def colours() -> Style:
    """Colours where stdout is a terminal, unless NO_COLOR is set (no-color.org)."""
    return Style(sys.stdout.isatty() and not os.environ.get("NO_COLOR"))


def view(recording: Steps, everything: bool = False) -> None:
    """Show one step after the other until the reader quits. Raises RuntimeError where can_view() is False."""
    if not can_view():
        raise RuntimeError("view needs a terminal for its keys; print(recording) shows all steps at once")
    with _screen() as signalled:
        viewer = Viewer(recording, colours(), everything)
        while not viewer.done:
            size = shutil.get_terminal_size()
            print("\x1b[H\x1b[2J" + "\n".join(viewer.screen(size.columns, size.lines)), end="", flush=True)
            select.select([sys.stdin, signalled], [], [])
            viewer.press(os.read(sys.stdin.fileno(), 16).decode(errors="replace"))  # all that one key sends


@contextlib.contextmanager
def _screen() -> Iterator[int]:
    """The terminal with its alternate screen, and one key at a time. SIGTERM ends the program through `finally`.

    Yields a pipe's end that can be read once a signal has come: one that comes just before a program begins to read a
    key would else wait for the key.
    """
    before = termios.tcgetattr(sys.stdin)
    signalled, signals = os.pipe()
    os.set_blocking(signals, False)
    told = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    ended = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tty.setcbreak(sys.stdin)
        print(_SCREEN, end="")
        yield signalled
    finally:
        print(_BACK, end="", flush=True)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, ended)
        signal.set_wakeup_fd(told)
        os.close(signalled)
        os.close(signals)


class Viewer:
    """What is shown, and what each key changes about it."""

    def __init__(self, recording: Steps, style: Style = PLAIN, everything: bool = False) -> None:
        self.recording, self.style, self.everything = recording, style, everything
        self.done = False
        self.message = _HELP
        self._scrolled = 0
        self._asking = ""  # "go" or "cell" while an answer is being typed
        self._typed = ""
        self.at = next(iter(stops_of(recording).found), 0)

    def screen(self, columns: int, lines: int) -> list[str]:
        """The screen: a list of lines of at most `columns` characters."""
        step = self.recording.steps[self.at]
        context = source(step, self.style, self.recording, around=3)
        sentences = sentence_of(self.recording, step) + outside_of(self.recording, step)
        told = textwrap.wrap(sentences.replace("`", ""), max(columns, 20))
        body = [heading(self.recording, step, self.style, self.everything), *told, "", *context]
        body += numbers(self.recording, step, self.style)
        room = max(lines - 2, 1)
        self._scrolled = max(0, min(self._scrolled, len(body) - room))
        body = body[self._scrolled : self._scrolled + room]
        body += [""] * (room - len(body))
        prompt = {"go": "step: ", "cell": "cell (name 1,2): "}.get(self._asking)
        foot = self.message if prompt is None else f"{prompt}{self._typed}"
        return [_cut(line, columns) for line in [*body, "", foot]]

    def press(self, keys: str) -> None:
        """Handle a key. Several characters at once are one special key, or were typed or pasted together."""
        if self._asking:
            self._type(keys)
        elif keys in _KEYS:
            self._do(_KEYS[keys])
        elif len(keys) > 1 and not keys.startswith("\x1b"):
            for key in keys:
                self.press(key)

    def _do(self, action: str) -> None:
        self.message = _HELP
        visible = list(range(len(self.recording.steps)) if self.everything else stops_of(self.recording).found)
        there: dict[str, Callable[[int], bool]] = {
            "next": lambda i: i > self.at,
            "back": lambda i: i < self.at,
            "over": lambda i: self._is_beyond(i, False),
            "out": lambda i: self._is_beyond(i, True),
            "first": lambda _: True,
            "last": lambda _: True,
            "backward": lambda i: self.recording.calls[self.recording.steps[i].call].in_backward,
        }
        if action in there:
            ordered = reversed(visible) if action in ("back", "last") else visible
            self._go(next(filter(there[action], ordered), self.at))
        elif action in ("up", "down"):
            self._scrolled += 1 if action == "down" else -1
        elif action == "all":
            self.everything = not self.everything
            self.message = "all lines" if self.everything else "only the steps"
        elif action in ("go", "cell"):
            self._asking, self._typed = action, ""
        elif action == "quit":
            self.done = True

    def _is_beyond(self, index: int, out: bool) -> bool:
        """Whether a step comes later, outside of what this step's function calls; with `out` also outside of itself."""
        step, here = self.recording.steps[index], self.recording.steps[self.at]
        inside = self.recording.calls[here.call] in self.recording.path(step)
        return index > self.at and (not inside or (step.call == here.call and not out))

    def _go(self, index: int) -> None:
        self.at, self._scrolled = index, 0

    def _type(self, keys: str) -> None:
        if keys.startswith("\x1b") or keys in ("", "\x04"):  # Escape, or the end of the input
            self._asking, self.message = "", _HELP
            self.done = keys != "\x1b" and not keys.startswith("\x1b")
            return
        for i, key in enumerate(keys):
            if key in "\r\n":
                asked, self._asking = self._asking, ""
                self.message = self._jump(self._typed) if asked == "go" else self._where_from(self._typed)
                self.press(keys[i + 1 :]) if keys[i + 1 :] else None
                return
            self._typed = self._typed[:-1] if key in "\x7f\b" else self._typed + key

    def _jump(self, typed: str) -> str:
        stops = list(stops_of(self.recording).found)
        numbered = dict(enumerate(range(len(self.recording.steps)))) if self.everything else dict(enumerate(stops, 1))
        if not typed.strip().isdigit() or int(typed) not in numbered:
            kind = "lines" if self.everything else "steps"
            return f"there are {kind} {min(numbered)} to {max(numbered)}, no {typed.strip() or 'other'}"
        self._go(numbered[int(typed)])
        return _HELP

    def _where_from(self, typed: str) -> str:
        """The answer to "scores 1,2": where that number, of this step or of an earlier one, came from."""
        match = re.fullmatch(r"\s*([^\s\[]+)[\s\[]*((?:\d+[\s,]*)*)\]?\s*", typed)
        if match is None:
            return "write the name and the cell, such as: scores 1,2"
        name, index = match[1], tuple(int(i) for i in re.findall(r"\d+", match[2]))
        step = self.recording.steps[self.at]
        here = [(step, bound) for bound in reversed(step.bound)]
        here += [self.recording.binding(bound.serial) for bound in self.recording.visible(step).values()]
        found = next(((s, b) for s, b in here if name in (b.name, b.title)), None)
        if found is None:
            return f"this line neither binds nor sees a number called {name!r}"
        try:
            return str(expand(self.recording, *found, index))
        except (NotExpandable, ValueError) as error:
            return str(error)


def _cut(line: str, columns: int) -> str:
    """A line cut to `columns` characters; colour codes do not count."""
    kept = ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        is_code = part.startswith("\x1b")
        kept += part if is_code else part[:columns]
        columns -= 0 if is_code else len(part[:columns])
    return kept
