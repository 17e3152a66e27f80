"""How long one waits before anything happens: python -m benchmarks.first --repetitions 5

Each time is that of a new process, from its start to its end. "Nothing compiled" has an empty cache of Numba. The cases
take turns; only the compiler has a single one. The processor's time is that of the process alone, without the compiler
beside it. On a busy machine it is the better measure.
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
    "import minitransformer": (True, ["-c", "import minitransformer"]),
    "minitransformer --help": (True, ["-m", "minitransformer", "--help"]),
    "minitransformer train lm --help": (True, ["-m", "minitransformer", "train", "lm", "--help"]),
    "import numpy": (True, ["-c", "import numpy"]),
}


def measure(repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """For each case, the seconds of every round, and those of the processor."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as full:
        times["the compiler, all loops"] = [_run(["-c", COMPILE], full)]
        for _ in range(repetitions):
            for name, (compiled, arguments) in CASES.items():
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:  # the compiler may still write
                    times[name].append(_run(arguments, full if compiled else empty))
    return times


def _run(arguments: list[str], cache: str) -> tuple[float, float]:
    """Run Python; return the seconds, and those of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
