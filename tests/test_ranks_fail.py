"""Training by mpiexec, and what becomes of it when a rank fails: one line that names it, and a whole checkpoint."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minitransformer.run.machines import checkpoint
from minitransformer.run.machines.run_folder import read_log

pytestmark = pytest.mark.slow
MPICH = importlib.metadata.distribution("mpich")
MPIEXEC, LIBMPI = (
    str(next(MPICH.locate_file(path) for path in MPICH.files or () if path.name == name))
    for name in ("mpiexec", "libmpi.so.12")
)
SMALL = "train lm --n-layers 1 --d-model 8 --n-heads 2 --d-ff 8 --max-length 8 --batch-rows 4 --warmup 1 --textbook"
SMALL += " --validate-every 1000000"
JOIN = """
import os, signal, sys, time
from minitransformer.run.machines.parallel import launch
launch.PATIENCE = 3.0
with launch.joined() as group:
    if group.rank == 1:
        {act}
    group.sum(__import__("numpy").ones(1))
"""


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    return path


@pytest.fixture
def ranks():
    """ranks(options, ...) starts one rank for each list of options. What is left of them ends with the test."""
    started = []
    yield lambda *options, **code: started.append(start(*options, **code)) or started[-1]
    for process in started:
        process.kill()  # the ranks end with mpiexec
        process.communicate()


def start(*options_of_each, code=("-m", "minitransformer")):
    command = [MPIEXEC]
    for options in options_of_each:
        command += [":"] * (len(command) > 1) + ["-n", "1", sys.executable, *code, *map(str, options)]
    found = os.environ | {"MPI4PY_LIBMPI": LIBMPI, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=found)


def errors(process):
    """The lines in which the ranks complain, and no traceback, from a run that fails by itself."""
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0 and "Traceback" not in err, err
    return [line for line in err.splitlines() if line.startswith("minitransformer: error: ")]


def test_a_killed_rank_is_named_and_the_run_resumes(ranks, tmp_path, text):
    options = [*SMALL.split(), "--text", text, "--steps", 1000000, "--save-every", 5, "--out", tmp_path / "run"]
    process = ranks(options, options)
    while len(checkpoint.steps(tmp_path / "run")) == 0:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    (proxy,) = children(process.pid)
    workers = [worker for launched in children(proxy) for worker in children(launched)]
    os.kill(workers[1], signal.SIGKILL)
    (line,) = errors(process)
    assert f"(process {workers[1]} on " in line and "was killed by SIGKILL" in line and "rank " in line
    *_, last = checkpoint.steps(tmp_path / "run")
    checkpoint.load(tmp_path / "run", last)
    again = ranks([*SMALL.split(), "--text", text, "--out", tmp_path / "run", "--resume", "--steps", 1000000])
    while max((r["step"] for r in read_log(tmp_path / "run" / "log.jsonl")), default=0) < last + 5:
        assert again.poll() is None, again.communicate()
        time.sleep(0.1)
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=600)


def children(pid):
    """The processes that a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ranks_that_differ_are_named_before_anything_is_written(ranks, tmp_path, text):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + "the end\n")
    begin = [*SMALL.split(), "--steps", 3, "--out", tmp_path / "run", "--text"]
    for second, found in (([text, "--seed", 1], "has seed 1"), ([other], "has content of text ")):
        (line,) = errors(ranks([*begin, text], [*begin, *second]))
        assert f"rank 1 {found}" in line and "rank 0" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "has not answered for 3 s"),
        ("raise OSError('the disk is full')", "the disk is full"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
    ],
)
def test_a_rank_that_fails_ends_all_with_one_line(ranks, act, reason):
    (line,) = errors(ranks([], [], [], code=("-c", JOIN.format(act=act))))
    assert "rank 1 (process " in line and reason in line
