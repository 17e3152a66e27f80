"""The process that compiles the loops beside a run (run/fast/compiler.py)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from minitransformer.run.fast import compiler, decoding_loops, loops
from minitransformer.run.fast.check import _REACHED
from minitransformer.run.fast.compile_all import compile_all
from minitransformer.run.fast.row_blocks import compiled

ONE = np.ones(1, np.float32)


@pytest.fixture
def new_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, and nobody has asked."""
    monkeypatch.delenv("MINITRANSFORMER_COMPILE")
    monkeypatch.setattr(compiler, "parts_done", set)
    monkeypatch.setattr(compiler, "_ready", None)


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_begins_in_numpy_and_takes_each_part_of_the_loops_when_it_is_compiled(
    status: int, new_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, parts = tmp_path / "go on", set[str]()
    code = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\nos._exit({status})"
    monkeypatch.setattr(compiler, "COMPILE", code)
    monkeypatch.setattr(compiler, "PAUSE", 0.01)
    monkeypatch.setattr(compiler, "parts_done", lambda: set(parts))
    assert compiled(ONE, part="products") is None
    assert compiler.start() == compiler.NOTE
    parts.add("products")
    wait_until(lambda: compiled(ONE, part="products") is decoding_loops)
    assert compiled(ONE) is None, "this part is not compiled yet"
    assert compiler.start() == compiler.NOTE
    parts.update(() if status else compiler.PARTS)
    go_on.touch()
    for thread in threading.enumerate():
        if thread.name == "compiler":
            thread.join()
    assert compiled(ONE) is (None if status else loops)
    assert bool(compiler.start()) == bool(status)


def test_what_a_run_needs_first_is_compiled_first_and_what_is_done_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def call(part: str) -> None:
        if len(called) == 2:
            raise KeyboardInterrupt
        called.append(part)

    monkeypatch.setattr(loops, "done", lambda: tmp_path / "all.done")
    monkeypatch.setattr("minitransformer.run.fast.compile_all.call_loops", call)
    with pytest.raises(KeyboardInterrupt):
        compile_all(compiler.TO_WRITE)
    assert called == ["products", "decoding"]
    assert compiler.parts_done() == set(called)
    called[:] = []
    with pytest.raises(KeyboardInterrupt):
        compile_all()
    assert called == ["loops", "sublayers"], "as training needs them"
    called[:] = []
    compile_all()
    assert called == ["attention"], "the rest is done"
    assert compiler.parts_done() == set(compiler.PARTS) == set(compiler.TO_WRITE) == set(_REACHED)


@pytest.mark.parametrize("name", ["MINITRANSFORMER_COMPILE", "PMI_RANK"])
def test_ranks_and_who_asks_for_it_wait_for_the_compiler(
    name: str, new_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_compile_beside", lambda: pytest.fail("it would be a second form"))
    monkeypatch.setenv(name, {"MINITRANSFORMER_COMPILE": "first"}.get(name, "1"))
    assert compiler.start() == ""
    assert compiled(ONE) is loops


def test_without_a_folder_for_the_cache_the_run_stays_in_numpy_and_says_so(
    new_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "done", lambda: None)
    assert compiled(ONE) is None
    assert "NUMBA_CACHE_DIR" in compiler.start()
    with pytest.raises(OSError, match="no folder"):
        compile_all()


RUN = """
import sys, time
from minitransformer.run.fast import compiler
compiler.parts_done = set
compiler.COMPILE = '''
import os, sys, threading, time
sys.path[:] = {{}}
from minitransformer.run.fast.compile_all import _end_with_stdin
threading.Thread(target=_end_with_stdin, daemon=True).start()
open({0!r}, "w").write(str(os.getpid()))
while not os.path.exists({1!r}):
    time.sleep(0.01)
open({2!r}, "w")
'''
compiler.start()
while not {3}:
    time.sleep(0.01)
"""


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_the_compiler_ends_with_a_run_that_is_killed_alone(killed: bool, tmp_path: Path) -> None:
    began, go_on, ended = (str(tmp_path / name) for name in ("began", "go on", "ended"))
    until = "False" if killed else f"__import__('os').path.exists({began!r})"
    environment = {name: value for name, value in os.environ.items() if name != "MINITRANSFORMER_COMPILE"}
    run = subprocess.Popen([sys.executable, "-c", RUN.format(began, go_on, ended, until)], env=environment)
    read: Callable[[], str] = lambda: Path(began).read_text() if os.path.exists(began) else ""  # noqa: E731
    wait_until(lambda: bool(read()), seconds=120.0)
    if killed:
        run.send_signal(signal.SIGKILL)
    run.wait()
    if killed:
        wait_until(lambda: not _alive(int(read())), seconds=120.0)
    Path(go_on).touch()
    if not killed:
        wait_until(lambda: os.path.exists(ended), seconds=120.0)
    assert os.path.exists(ended) != killed


USED = """
import numpy as np
from minitransformer import fast, training
from minitransformer.ideas.published.packed import pack
from minitransformer.layers import Cache
from minitransformer.models import Classifier, ClassifierConfig, LanguageModel, LanguageModelConfig
from minitransformer.models import TransformerConfig
from minitransformer.run.fast import attention_loops, compiler, decoding_loops, loops, sublayer_loops
from minitransformer.run.fast import packed_loops

assert compiler.start() == "", "the loops are compiled"
rng, ids = np.random.default_rng(0), np.random.default_rng(1).integers(0, 9, (2, 12))
for dropout in (0.0, 0.1):
    gpt = LanguageModel(LanguageModelConfig(9, d_model=8, n_heads=2, d_ff=16, n_layers=1, dropout=dropout))
    translator = TransformerConfig(9, 9, 8, 2, 16, 1, 1, dropout=dropout).build(rng)
    classifier = Classifier(ClassifierConfig(9, 3, d_model=8, n_heads=2, d_ff=16, n_layers=1, dropout=dropout))
    for model, given in ((gpt, (ids, ids)), (translator, (ids, ids, ids)), (classifier, (ids, ids[:, 0] % 3))):
        model = fast.accelerate(model)
        loss, backward = model.loss(*given, rng=rng)
        backward()
        fast.accelerate(training.AdamW(model.parameters(), 1e-3)).step()
for model in (fast.accelerate(gpt), fast.accelerate(pack(gpt, "int8"))):
    cache = Cache(1)
    for length in (9, 1, 1):
        model(ids[:, :length], cache=cache)
for module in (attention_loops, decoding_loops, loops, packed_loops, sublayer_loops):
    for name, loop in vars(module).items():
        if hasattr(loop, "stats"):
            assert not loop.stats.cache_misses, (module.__name__, name, loop.signatures)
"""


@pytest.mark.slow
def test_after_it_has_run_nothing_is_left_to_compile() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MINITRANSFORMER_COMPILE"}
    with subprocess.Popen(
        [sys.executable, "-c", compiler.COMPILE.format(sys.path, compiler.PARTS)],
        env=environment,
        stdin=subprocess.PIPE,
    ) as process:
        assert process.wait() == 0, "the run that waits for it takes the loops only then"
    subprocess.run([sys.executable, "-c", USED], check=True, env=environment)
