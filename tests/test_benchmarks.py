"""The harness of benchmarks/: what it computes and shows, without PyTorch. The programs themselves need that."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # benchmarks/ belongs to the checkout and is not installed

from benchmarks import compare, growth, machine, published, report, samples  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.cases import CASES, TRAINING, Case, card  # noqa: E402

SIZES = {"n_layers": 1, "n_heads": 2, "width": 8, "length": 4, "batch": 2}
TINY = Case("tiny", "a tiny GPT", "language_model", SIZES, tokens=8, goal=0.8)
RATES = {"1": {"numpy matmul": 100.0, "copy": 10.0}, "2": {"torch matmul": 150.0, "copy": 8.0}}


def result(case: Case = TINY, ours: float = 1.0, eager: float = 2.0) -> compare.Result:
    seconds = {"ours": [ours, ours * 1.2, ours * 1.1], "eager": [eager, eager, eager]}
    return compare.Result(case, seconds, {"ours": 3e-7}, {"ours": 5_000_000, "eager": 10_000_000})


# Comparing: with programs that only pretend, and then with our own in a process of its own.


class Pretended:
    """Stands in for Worker: writes what it is told to prove, and notes every command in `asked`."""

    asked: list[tuple[str, str]] = []  # noqa: RUF012 - one list for all workers is the point
    losses = {"ours": 1.00001, "eager": 1.0, "compiled": 1.0, "reading": 9.0}  # noqa: RUF012
    fails = ""

    def __init__(self, program: str, threads: int) -> None:
        self.program = program

    def ask(self, do, **arguments):
        self.asked.append((self.program, do))
        if do == "build" and self.program == self.fails:
            raise compare.Failure("no compiler was found")
        if do == "prove":
            save_file({"losses": np.array([2.0, self.losses[self.program]])}, arguments["to"])
        return {"build": {}, "prove": {}, "time": {"seconds": 0.1}, "memory": {"peak": 1000}}[do]

    def close(self) -> None:
        self.asked.append((self.program, "close"))


@pytest.fixture
def pretended(monkeypatch):
    class Fresh(Pretended):
        asked: list[tuple[str, str]] = []  # noqa: RUF012

    monkeypatch.setattr(compare, "Worker", Fresh)
    monkeypatch.setattr(compare, "PAUSE", 0.0)
    return Fresh


def test_all_prove_before_any_is_timed_and_then_they_take_turns(pretended):
    found = compare.compare(TINY, 3, 60.0, 2)
    assert found.agrees
    assert found.gaps["ours"] == pytest.approx(0.5e-5, rel=1e-3)
    assert {program: len(times) for program, times in found.seconds.items()} == {"ours": 3, "eager": 3, "compiled": 3}
    turns = [program for program, do in pretended.asked if do == "time"][3:]  # the first of each finds the count
    assert turns == ["ours", "eager", "compiled", "compiled", "eager", "ours", "ours", "eager", "compiled"]
    dos = [do for _, do in pretended.asked]
    assert max(i for i, do in enumerate(dos) if do == "prove") < dos.index("time")
    assert dos.count("close") == 3


def test_a_program_that_disagrees_is_not_timed(pretended, monkeypatch):
    monkeypatch.setitem(pretended.losses, "ours", 1.01)
    found = compare.compare(TINY, 3, 60.0, 2)
    assert not found.agrees
    assert "ours" not in found.seconds
    assert found.left_out == {"ours": "it does not agree with eager: gap 5.0e-03"}
    assert "it does not agree" in report.table([found], RATES)


def test_torch_compile_that_fails_is_left_out_with_the_reason_but_ours_and_eager_must_run(pretended):
    pretended.fails = "compiled"
    found = compare.compare(TINY, 1, 60.0, 2)
    assert found.agrees
    assert found.left_out == {"compiled": "no compiler was found"}
    assert "- tiny: compiled left out: no compiler was found" in report.table([found], RATES)
    pretended.fails = "eager"
    pretended.asked.clear()
    with pytest.raises(compare.Failure, match="tiny, eager: no compiler was found"):
        compare.compare(TINY, 1, 60.0, 2)
    assert [program for program, do in pretended.asked if do == "close"] == ["ours", "eager"]


@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_step_for_the_card_on_the_processor(precision):
    sizes = card.Sizes(precision, 2, 5, 1, 2, 8, 11, device="numpy")
    program = card.Ours(sizes)
    before, losses = program.weights(), program.prove()["losses"]
    assert program.peak() is None
    assert len(losses) == 10
    assert np.isfinite(losses).all()
    text = card.texts(sizes)
    assert text.shape == (10, 2, 6)
    loss = program.model.loss(text[0, :, :-1], text[0, :, 1:])[0]
    program.model.load_state(before)
    first = program.model.loss(text[0, :, :-1], text[0, :, 1:])[0]
    assert losses[0] == pytest.approx(float(first), rel=2e-3 if precision == "float16" else 1e-6)
    assert loss < first, "ten steps over the same batches"


def test_a_case_stops_when_its_time_is_up_but_not_before_the_fewest_rounds(pretended):
    found = compare.compare(TINY, 50, 0.0, 2)
    assert len(found.seconds["ours"]) == compare.FEWEST


@pytest.mark.slow
def test_our_program_in_a_process_of_its_own(tmp_path, monkeypatch):
    """Built, proved, timed and weighed; the losses are those of plain training on one thread, to rounding."""
    monkeypatch.chdir(ROOT)
    built = {"case": "language_model", "sizes": SIZES, "weights": str(tmp_path / "weights")}
    losses = []
    for threads in (1, 2):
        worker = compare.Worker("ours", threads)
        try:
            worker.ask("build", **built, program="ours", threads=threads)
            worker.ask("prove", to=str(tmp_path / "proof"))
            losses.append(compare.load_file(tmp_path / "proof")["losses"])
            assert 0.0 < worker.ask("time", count=2)["seconds"] < 10.0
            peak = worker.ask("memory")["peak"]
            assert (0 < peak < 1e9) if sys.platform == "linux" else peak == 0
            with pytest.raises(compare.Failure, match="KeyError: 'nobody'"):
                worker.ask("build", **built, program="nobody", threads=1)
        finally:
            worker.close()
    assert losses[0].shape == (10,)
    assert losses[0][0] == pytest.approx(math.log(65), rel=0.05)
    assert samples.gap(losses[1], losses[0]) < 1e-5
    assert losses[0].std() > 1e-3  # they are of different batches and of a model that learns


def test_table_shows_medians_ratio_memory_and_share():
    row = report.table([result()], RATES).splitlines()[2]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["tiny: a tiny GPT", "1.1 s [1.05 s – 1.15 s], 7 tokens/s", "2 s [2 s – 2 s], 4 tokens/s"]
    assert cells[3:6] == ["**0.55**", "0.55 [0.53 – 0.57]", "0.80"]
    assert cells[6:10] == ["–", "–", "5 MB", "10 MB"]
    assert cells[12:] == ["3e-07", "3"]
    header, rule = report.table([result()], RATES).splitlines()[:2]
    assert header.count("|") == rule.count("|") == row.count("|")


def test_functions_compiled_by_torch_and_by_jax_have_a_column_each():
    found = result()
    found.seconds |= {"compiled": [4.0, 4.0, 5.0], "jax": [0.5, 0.55, 0.6]}
    header, _, row = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in report.table([found], RATES).splitlines()[:3]
    )
    columns = dict(zip(header, row, strict=True))
    assert columns["compiled (ours / it)"] == "4 s (0.28)"
    assert columns["JAX (ours / it)"] == "550 ms (2.00)"


@pytest.fixture
def nothing_of_others(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_a_program_that_lacks_its_packages_is_left_out_with_what_to_install(pretended, nothing_of_others, capsys):
    assert {case.programs for case in CASES if case.name.startswith("dropout")} == {TRAINING}
    found = compare.compare(Case("tiny", "a tiny GPT", "language_model", SIZES, TRAINING), 1, 60.0, 2)
    assert found.agrees
    assert ("jax", "build") not in pretended.asked
    assert "- tiny: jax left out: it needs: pip install jax optax" in report.table([found], RATES)
    assert published.installed(["llama.cpp", "onnxruntime"]) == []
    assert capsys.readouterr().out.splitlines() == [
        "llama.cpp is left out: it needs: pip install llama-cpp-python",
        "onnxruntime is left out: it needs: pip install torch transformers onnxruntime onnx onnxscript",
    ]


def test_a_program_that_has_its_packages_takes_part(pretended, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(pretended.losses, "jax", 1.01)
    found = compare.compare(Case("tiny", "a tiny GPT", "language_model", SIZES, TRAINING), 1, 60.0, 2)
    assert found.left_out == {"jax": "it does not agree with eager: gap 5.0e-03"}
    assert published.installed(["llama.cpp", "onnxruntime"]) == ["llama.cpp", "onnxruntime"]


@pytest.mark.parametrize(("case", "missing"), [("gpt-64", "torch"), ("kernels", "numba")])
def test_what_is_missing_is_said_before_anything_is_measured(case, missing, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(SystemExit):
        main([case])
    assert "pip install -e" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_writes_tables_pictures_and_json_and_fails_where_a_program_failed(
    pretended, tmp_path, monkeypatch, capsys
):
    about = {"processor": "abacus", "rates": RATES}
    monkeypatch.setattr(machine, "describe", lambda threads, cores, seconds: about)
    monkeypatch.setattr(machine, "use_cores", lambda count: [0, 1])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # the programs here need no PyTorch
    monkeypatch.setattr(growth, "AXES", (growth.Axis("batch", (1, 2, 4), 1),))
    arguments = ["adamw", "growth", "--repetitions", "2", "--out", str(tmp_path), "--json", str(tmp_path / "all.json")]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "benchmarks.md").read_text() == shown
    assert "| processor | abacus |" in shown
    assert "| adamw: AdamW alone" in shown
    document = json.loads((tmp_path / "all.json").read_text())
    assert [row["case"]["name"] for row in document["results"]] == ["adamw"]
    assert [row["axis"] for row in document["growth"]] == ["batch"]
    assert {path.name for path in tmp_path.glob("*.png")} == {"benchmarks.png", "growth.png"}
    pretended.fails = "eager"
    assert main(["adamw", "--repetitions", "2"]) == 1
    assert "- failed: adamw, eager: no compiler was found" in capsys.readouterr().out


def test_bad_usage(capsys):
    for arguments, message in [
        (["gpt9"], 'no case begins with "gpt9"; there are: gpt-128, '),
        (["--repetitions", "0"], "must be at least 1"),
        (["--skip", "eager"], "--skip knows compiled, jax and textbook"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
