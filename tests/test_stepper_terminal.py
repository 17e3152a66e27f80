"""Stepping through on a terminal: what each key does, what the screen shows, and that the terminal is restored."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from minitransformer import layers, step
from minitransformer.check.trace.values import keep
from minitransformer.cli import main
from minitransformer.school.show.stepper import terminal
from minitransformer.school.show.stepper.drawing import PLAIN, Style, draw, matrix, plain, verdict
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page_data import page_data
from minitransformer.school.show.stepper.stops import stops_of
from minitransformer.school.show.stepper.terminal import Viewer

NAMES = (
    "worked-example softmax attention multi-head layer-norm ffn encoder-layer decoder-layer cross-entropy embedding "
    "rnn lstm gru convolution additive-attention local-attention alibi flash-attention "
    "sink-attention linear-attention latent-attention grouped-attention qk-norm experts gpt"
).split()


@pytest.fixture(scope="module")
def recording():
    return EXAMPLES["worked-example"].record(verify=True)


@pytest.fixture
def viewer(recording):
    return Viewer(recording)


def screen(viewer, columns=120, lines=60):
    shown = viewer.screen(columns, lines)
    assert len(shown) <= lines
    assert all(len(line) <= columns for line in shown)
    return "\n".join(shown)


# ------------------------------------------------------------------------------------------------------------ examples


def test_there_are_the_examples_that_were_promised() -> None:
    assert list(EXAMPLES)[: len(NAMES)] == NAMES  # after them come those that ideas bring


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_small_seeded_and_without_kinks(name) -> None:
    example = EXAMPLES[name]
    setup = example.build(np.random.default_rng([0, 1]))
    first, again = example.record(), example.record()
    assert [str(b.value) for s in first.steps for b in s.bound] == [str(b.value) for s in again.steps for b in s.bound]
    other = example.record(seed=1)
    same = [str(b.value) for s in first.steps for b in s.bound] == [str(b.value) for s in other.steps for b in s.bound]
    assert same is (name == "worked-example")  # whose numbers are those of the documents
    arrays = [x for x in setup.inputs if isinstance(x, np.ndarray)]
    assert all(x.size <= 24 and (x == x.round(1)).all() for x in arrays)
    # No hidden unit stands so near 0 that finite differences would meet the kink of ReLU.
    for s in first.steps:
        for bound in s.bound:
            if bound.title.startswith("relu") and bound.name == "x":
                assert abs(bound.value.array).min() > 1e-3
    dy = next(b.value.array for s in first.steps for b in s.bound if first.calls[s.call].backward)
    assert not any(x.shape == dy.shape and np.array_equal(x, dy) for x in arrays)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_example_runs_on_a_device(name) -> None:
    host, device = EXAMPLES[name].record(), EXAMPLES[name].record(device="strict")
    steps = [[step.bound for step in recording.steps if step.bound] for recording in (host, device)]
    for mine, theirs in zip(*steps, strict=True):  # checks of arguments, which bind nothing, may take other lines
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a.value.array, b.value.array)


def test_the_page_of_a_layer_on_a_device_is_that_on_the_host() -> None:
    """Its parameters were read on the device, and its inputs on the host."""
    host, device = (EXAMPLES["ffn"].record(device=place).to_html() for place in ("numpy", "strict"))
    assert device == host


# ------------------------------------------------------------------------------------------------------------- drawing


def lines_of(array, limit=4096):
    return matrix(keep(np.asarray(array), limit))


def test_numbers_are_printed_as_numpy_prints_them_and_small_ones_do_not_vanish() -> None:
    assert lines_of([[1.0, -20.0], [0.0, 3.0]]) == ["[[  1. -20.]", " [  0.   3.]]"]
    assert lines_of([1 / 3, 1e-9, 2.0]) == ["[0.3333 0.     2.    ]"]
    assert lines_of([1.5e-7, -3e-9]) == ["[ 1.5e-07 -3.0e-09]"]


def test_above_the_limit_a_corner_stands_below_the_summary() -> None:
    assert lines_of(np.arange(9), limit=8) == ["9 numbers from 0 to 8, mean 4", "[0 1 2 3 4 5 6 7]", "…"]
    table = np.arange(90.0).reshape(9, 10)
    lines = lines_of(table, limit=89)
    assert lines[0] == "90 numbers from 0 to 89, mean 44.5" and lines[-1] == "…" and len(lines) == 10
    np.testing.assert_array_equal([list(map(float, line.strip(" []").split())) for line in lines[1:-1]], table[:8, :8])
    kept = keep(table, 5)
    table[:] = 0.0  # the corner is a copy
    assert kept.corner[1, 1] == 11.0


def test_what_recompute_runs_again_is_said_not_to_be_checked() -> None:
    layer = layers.FeedForward(2, 3, rng=np.random.default_rng(2)).to(dtype="float64")
    x = np.random.default_rng(3).normal(size=(2, 2))
    verified, unverified = (step(layers.Recompute(layer), x, verify=verify) for verify in (True, False))
    again = outside = 0
    for recorded in verified.steps:
        drawn = "\n".join(draw(verified, recorded))
        for bound in recorded.bound:
            told = verdict(verified, recorded, bound)
            assert told in drawn
            row = verified.check_of(recorded, bound)
            if " in backward" in bound.title and verified.pair_of(recorded, bound) is not None:
                assert row is None and told.startswith("not checked here: Recompute ran this again"), bound.title
                again += 1
            else:
                assert told.startswith("checked: ") == (row is not None) and (row is not None or told == "")
                outside += row is not None
    assert again >= 8 and outside == 1  # dy of Recompute itself
    assert "not checked" not in str(unverified)
    assert verified.report.ok and {row.kind for row in verified.report.rows} == {"input", "parameter", "intermediate"}


def test_row_that_was_not_checked_is_not_called_wrong() -> None:
    def doubled(x):
        total = x * 1.0
        total *= 2.0

        def backward(dtotal):
            dx = 2.0 * dtotal
            return dx

        return total, backward

    recording = step(doubled, np.ones((2, 2)), verify=True)
    told = {verdict(recording, s, b) for s in recording.steps for b in s.bound if b.name == "dtotal"}
    assert told == {"not checked: the array of total was changed in place after it was bound"}


def test_a_forward_step_shows_its_calls_its_line_and_its_numbers(recording) -> None:
    s, _ = recording.find("attention.scores")
    drawn = draw(recording, s)
    assert re.fullmatch(r"step \d+/\d+  forward   self_attention › attention", drawn[0])
    assert drawn[1] == f"core/ops/attention.py:{s.line}"
    assert drawn[2] == f"{s.line:5d} >     scores = (q @ k.swapaxes(-1, -2)) * factor"
    assert "\n".join(drawn[3:]).splitlines() == [
        "",
        "  scores (3, 3)",
        "    [[ 2.  4.  4.]",
        "     [ 4. 16. 12.]",
        "     [ 4. 12. 10.]]",
    ]


def test_a_backward_step_shows_the_value_beside_the_gradient_and_its_check(recording) -> None:
    s, bound = recording.find("attention.dscores")
    drawn = draw(recording, s)
    assert re.fullmatch(r"step \d+/\d+  backward  self_attention › attention", drawn[0])
    assert re.fullmatch(r"  dscores \(3, 3\) +of scores", drawn[4])
    assert drawn[4].index("of scores") == drawn[5].index("[[ 2.  4.  4.]")  # one above the other
    row = recording.check_of(s, bound)
    where = ", ".join(map(str, row.where))
    assert drawn[8] == (
        f"    checked: {row.hand:.6g} by hand, {row.numerical:.6g} by finite differences at [{where}], "
        f"error {row.error:.0e}, ok"
    )


def test_a_wrong_gradient_is_called_wrong() -> None:
    def wrong(x):
        return x * x, lambda dy: dy * x

    def named(x):
        y = x * x

        def backward(dy):
            dx = dy * x
            return dx

        return y, backward

    drawn = plain(step(named, np.array([1.0, 2.0]), verify=True))
    assert "    WRONG: " in drawn
    assert "by finite differences at [" in drawn
    assert "\x1b[1;31mWRONG" in plain(step(named, np.array([1.0, 2.0]), verify=True), style=Style(True))
    assert "gradients are wrong" in plain(step(wrong, np.array([1.0, 2.0]), verify=True))


def test_all_at_once(recording) -> None:
    """The steps are those of the page, with its numbers."""
    short, full = plain(recording), plain(recording, everything=True)
    page = page_data(recording)["steps"]
    stops = [s for s, shown in enumerate(page) if shown.get("stop")]
    assert re.findall(r"\nstep (\d+)/", short) == [str(n + 1) for n in range(len(stops))]
    assert full.count("\nline ") == len(page) > len(stops)
    assert "return output, backward" not in short
    assert "return output, backward" in full
    assert str(recording.report) in short
    assert "\x1b" not in full
    coloured = plain(recording, style=Style(True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == short
    for name in "q k v scores output dq dk dv dscores dw_q".split():
        assert f"  {name} (" in short


# ---------------------------------------------------------------------------------------------------------------- keys


def test_keys_go_forward_and_back_over_the_steps_of_the_page(viewer, recording) -> None:
    loud = list(stops_of(recording).found)
    places = [viewer.at]
    for key in ["n", "\x1b[C", " ", "\r", "\x1bOC", "p", "\x1b[D", "\x7f"]:
        viewer.press(key)
        places.append(viewer.at)
    assert places == [loud[i] for i in (0, 1, 2, 3, 4, 5, 4, 3, 2)]
    viewer.press("\x1b[F")
    assert viewer.at == loud[-1]
    viewer.press("n")
    assert viewer.at == loud[-1]
    viewer.press("\x1b[H")
    assert viewer.at == loud[0]
    viewer.press("p")
    assert viewer.at == loud[0]
    viewer.press("a")
    viewer.press("nn")  # typed faster than drawn
    assert viewer.at == loud[0] + 2
    viewer.press("b")
    assert recording.calls[recording.steps[viewer.at].call].backward
    assert not any(recording.calls[s.call].backward for s in recording.steps[: viewer.at])


def test_o_goes_over_and_u_goes_out_of_what_is_called(viewer, recording) -> None:
    places = [viewer.at]
    while not places[1:] or places[-1] != places[-2]:
        viewer.press("o")
        places.append(viewer.at)
    loud = [recording.steps[index] for index in stops_of(recording).found]
    assert places[:-1] == [s.index for s in loud if recording.calls[s.call].label == "self_attention"]
    viewer.at = recording.find("softmax.y")[0].index
    labels = []
    for _ in range(2):
        viewer.press("u")
        labels.append(recording.calls[recording.steps[viewer.at].call].label)
    assert labels == ["attention", "self_attention"]


def test_g_jumps_to_a_step(viewer, recording) -> None:
    for key in ["g", "1", "2", "9", "\x7f", "\r"]:
        viewer.press(key)
    stops = list(stops_of(recording).found)
    assert viewer.at == stops[11]
    assert screen(viewer).startswith(f"step 12/{len(stops)} ")
    viewer.press("g7\r")
    assert viewer.at == stops[6]
    for wrong in ("0", "9999", "x", ""):
        viewer.press("g")
        viewer.press(wrong + "\r")
        assert viewer.at == stops[6]
        assert f"there are steps 1 to {len(stops)}" in screen(viewer)
    viewer.press("ag3\r")
    assert viewer.at == 3 and screen(viewer).startswith(f"line 3/{len(recording.steps) - 1} ")
    viewer.press("ag7\r")
    viewer.press("g5")
    assert "step: 5" in screen(viewer)
    viewer.press("\x1b")
    assert viewer.at == stops[6]
    assert "step:" not in screen(viewer)


def test_c_asks_where_a_number_comes_from(viewer, recording) -> None:
    viewer.at = recording.find("attention.scores")[0].index
    for asked in ("scores 1,2", "scores[1, 2]", "attention.scores 1 2", " scores  1, 2 "):
        viewer.press("c")
        viewer.press(asked)
        assert f"cell (name 1,2): {asked}" in screen(viewer)
        viewer.press("\r")
        assert "scores[1, 2] = (2·2 + 2·3 + 2·1)·1 = 12" in screen(viewer)
    answers = {
        "factor": "factor = attention.scale = 1",
        "nothing 1": "this line neither binds nor sees a number called 'nothing'",
        "scores 3,0": "attention.scores has the shape (3, 3), so it has no cell (3, 0)",
        "q 0,0": "q[0, 0] = self_attention.q[0, 0] = 1",
        "scores -1": "write the name and the cell, such as: scores 1,2",
    }
    for asked, answer in answers.items():
        viewer.press(f"c{asked}\r")
        assert answer in screen(viewer, columns=200), asked
    viewer.press("n")
    assert "quit" in screen(viewer)


def test_a_and_the_arrows_change_what_is_shown(viewer) -> None:
    viewer.press("a")
    assert "all lines" in screen(viewer)
    viewer.press("a")
    assert "only the steps" in screen(viewer)
    top = screen(viewer, lines=10).splitlines()
    viewer.press("\x1b[B")
    viewer.press("j")
    assert screen(viewer, lines=10).splitlines()[0] == top[2]
    viewer.press("\x1b[A")
    assert screen(viewer, lines=10).splitlines()[0] == top[1]
    for _ in range(100):
        viewer.press("k")
    assert screen(viewer, lines=10).splitlines()[0] == top[0]
    for _ in range(100):
        viewer.press("j")
    assert "  scale = 1" in screen(viewer, lines=10)


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (400, 100), (80, 24)])
def test_the_screen_fits_any_window(viewer, size) -> None:
    columns, lines = size
    for _ in range(30):
        shown = viewer.screen(columns, lines)
        assert len(shown) <= max(lines, 3)
        assert all(len(line) <= columns for line in shown)
        viewer.press("n")


def test_colours_take_no_columns(recording) -> None:
    coloured, bare = Viewer(recording, Style(True)), Viewer(recording, PLAIN)
    for _ in range(12):
        assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured.screen(50, 30)] == bare.screen(50, 30)
        coloured.press("n")
        bare.press("n")


def test_keys_that_mean_nothing_do_nothing(viewer) -> None:
    before = viewer.at
    for key in ["x", "\x1b", "\x1b[5~", "\t", "é", "\x1b[24~"]:
        viewer.press(key)
    assert (viewer.at, viewer.done) == (before, False)
    for key in ("q", "\x04", ""):
        ended = Viewer(viewer.recording)
        ended.press(key)
        assert ended.done
    viewer.press("g")
    viewer.press("")  # the input has ended
    assert viewer.done


# ---------------------------------------------------------------------------------------------------- the command line


def test_step_prints_everything_where_there_is_no_terminal(capsys) -> None:
    assert main(["step", "softmax"]) == 0
    out, err = capsys.readouterr()
    assert out == plain(EXAMPLES["softmax"].record()) + "\n"
    assert err == ""
    assert main(["step", "embedding", "--verify", "--all", "--seed", "3", "--device", "strict"]) == 0
    assert capsys.readouterr().out == plain(EXAMPLES["embedding"].record(3, "strict", verify=True), True) + "\n"


def test_step_json(capsys) -> None:
    assert main(["step", "attention", "--json", "--seed", "2"]) == 0
    out, _ = capsys.readouterr()
    read = json.loads(out)
    assert read == json.loads(EXAMPLES["attention"].record(2).to_json())
    assert read["name"] == "attention"


def test_step_html(capsys, tmp_path) -> None:
    path = tmp_path / "page.html"
    assert main(["step", "softmax", "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert path.read_text(encoding="utf-8") == EXAMPLES["softmax"].record().to_html()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert main(["step", "softmax", "--html", str(tmp_path / "no" / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minitransformer: error: ")
    assert err.count("\n") == 1


def test_step_refuses_what_it_does_not_know(capsys) -> None:
    for wrong, hint in {"atention": "did you mean 'attention'?", "zzz": "try one of: worked-example, softmax"}.items():
        assert main(["step", wrong]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"minitransformer: error: step knows no {wrong!r}; {hint}")
        assert err.count("\n") == 1
    assert main(["step", "--model", "nowhere"]) == 2
    assert "--model needs a text" in capsys.readouterr().err
    assert main(["step", "softmax", "--seed", "-1"]) == 2


def test_a_wrong_gradient_fails_the_command(monkeypatch, capsys) -> None:
    def wrong(x):
        return x * x, lambda dy: dy * x

    class Wrong:
        def record(self, seed, device, verify, progress):
            return step(wrong, np.array([1.0, 2.0]), verify=verify)

    monkeypatch.setitem(EXAMPLES, "wrong", Wrong())
    assert main(["step", "wrong"]) == 0
    assert main(["step", "wrong", "--verify"]) == 1


def test_view_without_a_terminal_says_so(recording) -> None:
    with pytest.raises(RuntimeError, match=r"print\(recording\) shows all steps"):
        terminal.view(recording)


# --------------------------------------------------------------------------------------------------- a real terminal


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *arguments, **environment):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        source = str(Path(terminal.__file__).parents[4])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minitransformer", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=kept | {"TERM": "xterm-256color", "PYTHONPATH": source, "PYTHONUTF8": "1"} | environment,
            preexec_fn=self._own_terminal,
        )
        self.output = ""

    def _own_terminal(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell makes what it runs in the background ignore Ctrl-C

    def wait_for(self, text, seconds=60.0):
        """Read until the text has come; return what came since the last call."""
        came, until = "", time.monotonic() + seconds
        while text not in came:
            assert time.monotonic() < until, f"{text!r} did not come, but {came!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    came += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
        self.output += came
        assert text in came
        return came

    def type(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        """The exit status, once the terminal has been found as it was."""
        until = time.monotonic() + 60.0
        running = True
        while running:  # read as it goes: a program waits at its end until what it wrote has been read
            running = self.process.poll() is None
            assert not running or time.monotonic() < until, "it does not end"
            while select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536).decode(errors="replace")
        status = self.process.returncode
        assert termios.tcgetattr(self.slave) == self.before
        assert self.output.count("\x1b[?1049h") == self.output.count("\x1b[?1049l")
        assert self.output.count("\x1b[?25l") == self.output.count("\x1b[?25h")
        return status


@pytest.fixture
def on_terminal():
    with contextlib.ExitStack() as stack:

        def start(*arguments, **environment):
            opened = Terminal(*arguments, **environment)
            stack.callback(os.close, opened.master)
            stack.callback(os.close, opened.slave)
            stack.callback(opened.process.wait)
            stack.callback(opened.process.kill)
            return opened

        yield start


@pytest.mark.slow
def test_stepping_on_a_terminal(on_terminal) -> None:
    shell = on_terminal("step", "worked-example")
    first = shell.wait_for("quit")
    assert "step 1/" in first
    assert "\x1b[1m" in first  # the current line stands out
    shell.type("\x1b[C")
    assert "step 2/" in shell.wait_for("quit")
    shell.type("cq 1,2\r")
    shell.wait_for("q[1, 2] = ")
    shell.type("g20\r")
    assert "step 20/" in shell.wait_for("quit")
    shell.type("q")
    assert shell.ended() == 0


@pytest.mark.slow
def test_no_color(on_terminal) -> None:
    shell = on_terminal("step", "softmax", NO_COLOR="1")
    shell.wait_for("quit")
    shell.type("q")
    assert shell.ended() == 0
    assert re.search(r"\x1b\[[0-9;]*m", shell.output) is None


@pytest.mark.slow
def test_control_c_and_the_end_of_input_put_the_terminal_back(on_terminal) -> None:
    shell = on_terminal("step", "softmax")
    shell.wait_for("quit")
    shell.type("\x03")
    assert shell.ended() == 130
    shell = on_terminal("step", "softmax")
    shell.wait_for("quit")
    shell.type("\x04")
    assert shell.ended() == 0


@pytest.mark.slow
def test_being_terminated_puts_the_terminal_back(on_terminal) -> None:
    shell = on_terminal("step", "softmax")
    shell.wait_for("quit")
    shell.process.send_signal(signal.SIGTERM)
    assert shell.ended() == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_dumb_terminal_gets_everything_at_once(on_terminal) -> None:
    shell = on_terminal("step", "softmax", TERM="dumb")
    shell.wait_for("dx = y * ")
    assert shell.ended() == 0
    assert "\x1b[?1049h" not in shell.output
