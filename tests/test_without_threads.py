"""The package as Python in a browser runs it: no threads, no processes, no file locks, nothing that is compiled.

tests/browser/test_site_python.py asks Pyodide itself.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_packaging import COMPILED, FILES

ABSENT = ("fcntl", "safetensors", "numba", "llvmlite", "sacrebleu", "_multiprocessing")

AS_IN_A_BROWSER = """
import _thread, importlib, json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

def no_thread(*_, **__):
    raise RuntimeError("can't start new thread")

ABSENT, MODULES = json.loads(sys.argv[1])
for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
for name in ("start_new_thread", "start_new", "start_joinable_thread"):
    if hasattr(_thread, name):
        setattr(_thread, name, no_thread)

import threading
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise AssertionError("threads start")
"""

IMPORTS = """
for name in MODULES:
    importlib.import_module(name)
"""

WORK = """
import numpy as np
from minitransformer import course, models, ops, parallel, step, verify
from minitransformer.training import AdamW, Workers
from minitransformer.core.training.corpora import TextCorpus

rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
verify.gradients(ops.attention, q, k, v).assert_ok()
assert not course.check("softmax_backward", lambda y, dy: y * dy).right
assert "<title>Softmax" in step(ops.softmax, q).to_html()

config = models.LanguageModelConfig(vocabulary=7, max_length=6, d_model=8, n_heads=2, d_ff=8, n_layers=1)
corpus, losses = TextCorpus(np.arange(60) % 7, 4, 4), []
workers = Workers(model := models.LanguageModel(config, rng), 2)  # two workers on one thread
optimizer = AdamW(model.parameters(), learning_rate=0.03)
for number in range(40):
    losses.append(workers.loss_and_gradients(corpus, [corpus.batches(rng)[0]], [0, number]))
    optimizer.step()
assert losses[-1] < losses[0] / 2, losses

try:
    parallel.in_threads(2, lambda group: group.rank)
except RuntimeError as error:
    assert "run this in Python on a computer" in str(error), error
else:
    raise AssertionError("two ranks need two threads")
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    modules = ["minitransformer." + name[:-3].replace("/", ".").removesuffix(".__init__") for name in FILES]
    left_out = {"__init__", "__main__", *(f"run.fast.{name}" for name in COMPILED)}
    names = [name for name in modules if name.removeprefix("minitransformer.") not in left_out]
    command = [sys.executable, "-c", AS_IN_A_BROWSER + script, json.dumps([ABSENT, names])]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("script", [IMPORTS, WORK], ids=["imports", "work"])
def test_package_works_without_threads_processes_and_compiled_code(script: str) -> None:
    result = run(script)
    assert result.returncode == 0, result.stderr


def test_what_is_absent_is_refused() -> None:
    assert "No module named 'safetensors'" in run("import safetensors").stderr
