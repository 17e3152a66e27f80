"""How long one waits before anything happens: python -m benchmarks.first --repetitions 5

Each time is that of a new process, from its start to its end. "Nothing compiled" has an empty cache of Numba. The cases
take turns. The processor's time does not count the compiler beside the run; on a busy machine it is the better measure.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

STEP = """
import os
import numpy as np
from minitransformer import fast, training
from minitransformer.models import LanguageModel, LanguageModelConfig
model = fast.accelerate(LanguageModel(LanguageModelConfig(50, d_model=128, n_heads=4, d_ff=512, n_layers=4)))
optimizer, ids = fast.accelerate(training.AdamW(model.parameters(), 1e-3)), np.zeros((16, 64), int)
loss, backward = model.loss(ids, ids)
backward()
optimizer.step()
os._exit(0)  # the compiler ends, too
"""
TOKEN = """
import os
import numpy as np
from minitransformer import fast
from minitransformer.layers import Cache
from minitransformer.models import LanguageModel, LanguageModelConfig
model = fast.accelerate(LanguageModel(LanguageModelConfig(50, d_model=128, n_heads=4, d_ff=512, n_layers=4)))
cache = Cache(4)
for length in (8, 1):
    model(np.zeros((1, length), int), cache=cache)
os._exit(0)
"""
COMPILE = "from minitransformer.run.fast.compile_all import compile_all; compile_all()"
CASES = {  # what, whether the loops are compiled before, and the arguments of Python
    "a training step, nothing compiled": (False, ["-c", STEP]),
    "a training step, all compiled": (True, ["-c", STEP]),
    "a token of a decoder, nothing compiled": (False, ["-c", TOKEN]),
    "a token of a decoder, all compiled": (True, ["-c", TOKEN]),
    "all loops compiled": (False, ["-c", COMPILE]),
    "import minitransformer": (True, ["-c", "import minitransformer"]),
    "minitransformer --help": (True, ["-m", "minitransformer", "--help"]),
    "minitransformer train lm --help": (True, ["-m", "minitransformer", "train", "lm", "--help"]),
    "import numpy": (True, ["-c", "import numpy"]),
}


def measure(repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """For each case, the seconds of every round, and those of the processor."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as full:
        _run([sys.executable, "-c", COMPILE], full)
        for _ in range(repetitions):
            for name, (compiled, arguments) in CASES.items():
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:  # the compiler may still write
                    began, used = time.perf_counter(), _used()
                    _run([sys.executable, *arguments], full if compiled else empty)
                    times[name].append((time.perf_counter() - began, _used() - used))
    return times


def _run(command: list[str], cache: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"NUMBA_CACHE_DIR": cache})


def _used() -> float:
    """Seconds of the processor that all processes have taken which have ended so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first", description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="rounds (default: 5)")
    print("| process | seconds, median | of the processor |\n|---|---:|---:|")
    for name, rounds in measure(parser.parse_args().repetitions).items():
        seconds, used = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"| {name} | {seconds:.2f} | {used:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
