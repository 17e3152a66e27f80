"""`minitransformer compare`: what is counted equals the formulas, and path lengths are those of the theory."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitransformer.commands.compare as command
from minitransformer.cli import main
from minitransformer.school.compare import mixers, positions
from minitransformer.school.compare.caches import KINDS, measured, predicted
from minitransformer.school.compare.measure import counted, exponent, flow, memory, path_length
from minitransformer.school.compare.mixers import MIXERS


@pytest.mark.parametrize("name", MIXERS)
def test_multiplications_are_those_of_the_formula(name: str) -> None:
    mixer = MIXERS[name]
    for n, d in ((64, 4), (128, 4), (64, 8), (192, 6)):
        assert counted(mixer, n, d) == mixer.multiplications(n, d)
    large = 2**20
    by_n, by_d = mixer.multiplications(2 * large, 8), mixer.multiplications(64, 2 * large)
    assert math.log2(by_n / mixer.multiplications(large, 8)) == pytest.approx(mixer.power_n, abs=1e-3)
    assert math.log2(by_d / mixer.multiplications(64, large)) == pytest.approx(mixer.power_d, abs=1e-3)


PATHS = {
    "attention": {2: 1, 10: 1, 50: 1},
    "recurrent": {2: 2, 10: 10, 50: 50},
    "convolution": {2: 1, 3: 1, 4: 2, 9: 2, 10: 3, 50: 4},  # kernel 3: one layer sees 3, two 9, three 27, four 81
    "restricted": {2: 1, 17: 1, 18: 2, 33: 2, 50: 4},  # radius 16
    "linear": {2: 1, 10: 1, 70: 1},  # the last two in different blocks
    "flash": {2: 1, 10: 1, 70: 1},
}


@pytest.mark.parametrize("name", PATHS)
def test_path_lengths(name: str) -> None:
    for n, expected in PATHS[name].items():
        assert path_length(MIXERS[name], n) == expected == MIXERS[name].path(n), n


def test_memory_grows_with_the_square_for_attention_alone() -> None:
    """The least of three, because threads of the test run may allocate meanwhile, and flash attention keeps 7 kB."""
    kept = {name: [min(memory(mixer, n, 8)[0] for _ in range(3)) for n in (128, 256)] for name, mixer in MIXERS.items()}
    grown = {name: large / small for name, (small, large) in kept.items()}
    assert 3.5 < grown.pop("attention") < 4.2
    assert all(1.5 < factor < 2.3 for factor in grown.values())


@pytest.mark.parametrize("name", KINDS)
def test_the_bytes_of_a_cache_are_those_of_the_formula(name: str) -> None:
    for n, d_model, n_heads in ((3, 16, 2), (200, 32, 4), (131, 48, 6)):
        assert measured(name, n, d_model, n_heads)[0] == predicted(name, n, d_model, n_heads)


def test_the_bytes_of_a_cache_by_hand() -> None:
    """After 200 tokens, 4 heads of width 8, 4 bytes a number."""
    found = {name: predicted(name, 200, 32, 4) for name in KINDS}
    assert found == {
        "multi-head": 51200, "grouped": 25600, "multi-query": 12800, "latent": 28800, "window": 32768,
        "window and sinks": 33792, "linear": 1152,
    }  # fmt: skip


def test_a_gradient_vanishes_through_plain_cells() -> None:
    """Over 32 positions a plain recurrent layer loses far more than an LSTM, and attention nothing to speak of."""
    left = {name: flow(name, 33, 16, draws=3) for name in mixers.FLOWS}
    assert left["rnn"][32] < 1e-2 * left["lstm"][32] < 1e-2 * left["attention"][32]
    assert left["attention"][32] > 0.1 * left["attention"][1]
    assert left["convolution"][32] > 0.1 * left["convolution"][0]


@pytest.mark.slow
def test_the_commands(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (((32, 8), (64, 8)), ((32, 8), (32, 16)))
    small = {name: dataclasses.replace(mixer, by_length=sizes[0], by_width=sizes[1]) for name, mixer in MIXERS.items()}
    monkeypatch.setattr(command, "MIXERS", small)
    assert main(["compare", "layers", "--plot", str(tmp_path / "layers.png")]) == 0
    table = capsys.readouterr().out
    assert ["convolution", "1", "4", "4"] in [line.split() for line in table.splitlines()]
    assert main(["compare", "layers", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attention"]["fitted_n"]["multiplications"] == pytest.approx(2.0)
    assert {name: each["path_found"] for name, each in found.items()} == {
        "attention": 1, "recurrent": 64, "convolution": 4, "restricted": 4, "linear": 1, "flash": 1,
    }  # fmt: skip
    assert main(["compare", "flow", "--length", "9", "--width", "4", "--plot", str(tmp_path / "flow.svg")]) == 0
    assert capsys.readouterr().out.split()[:5] == ["distance", "rnn", "lstm", "convolution", "attention"]
    assert main(["compare", "flow", "--length", "9", "--width", "4", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rnn"]) == 9
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("layers.png", "flow.svg"))
    cache = ["compare", "cache", "--length", "150", "--width", "16", "--heads", "2"]
    assert main([*cache, "--plot", str(tmp_path / "cache.png")]) == 0
    assert ["latent", "n·(4·d", "+", "d/2)", "21600", "21600"] in [
        line.split()[:6] for line in capsys.readouterr().out.splitlines()
    ]
    assert main([*cache, "--json"]) == 0
    assert all(each["predicted"] == each["measured"] for each in json.loads(capsys.readouterr().out).values())
    assert main(["compare", "cache", "--width", "20"]) == 2
    assert "a multiple of 4 times the heads; got 1024, 8 and 20" in capsys.readouterr().err
    assert main(["compare", "flow", "--length", "1"]) == 2
    assert "--length must be from 2 to 4096" in capsys.readouterr().err


def test_each_number_stands_in_its_own_column(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = {kind: 1.11 * i for i, kind in enumerate(("multiplications", "seconds", "bytes", "peak"), 1)}
    one = {"formula": "2·n²·d", "power_n": 2, "power_d": 1, "steps": 3, "path": 4, "path_found": 5}
    one |= {"by_length": [(16, 8), (32, 8)], "by_width": [(16, 4), (16, 64)], "seconds_by_length": [1.0, 2.0]}
    one |= {"fitted_n": fitted, "fitted_d": {"multiplications": 6.66, "seconds": 7.77}}
    monkeypatch.setattr(command, "_measured", lambda name: one)
    assert main(["compare", "layers"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "flash 2·n²·d 2 1.11 2.22 3.33 4.44 1 6.66 7.77".split() in rows and ["flash", "3", "4", "5"] in rows
    right = [0.0] * 4 + [0.5] * 4 + [0.25] * 8 + [1.0, 0.5] * 4 + [0.0] * 8
    monkeypatch.setattr(positions, "trained", lambda *_: (None, 1.5))
    monkeypatch.setattr(positions, "accuracy", lambda model, n: right)
    assert main(["compare", "positions", "--length", "8"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[-1] == ["alibi", "1.500", "50%", "25%", "75%", "0%"]
    assert exponent([2, 4, 8], [3 * 2**1.5, 3 * 4**1.5, 3 * 8**1.5]) == pytest.approx(1.5)


def test_copies_are_those_of_four_places_before() -> None:
    ids, wanted = positions.copies(9, 3, np.random.default_rng(0))
    assert (wanted[:, :4] == -100).all() and (wanted[:, 4:] == ids[:, :5]).all()
    assert ids.min() >= 0 and ids.max() < positions.VOCABULARY


@pytest.mark.parametrize("kind", positions.KINDS)
def test_a_copier_is_causal_and_knows_where_it_is(kind: str) -> None:
    """A token affects only the logits from its position on; equal tokens elsewhere have different logits."""
    model = positions.Copier(kind, 12, np.random.default_rng(0)).to(dtype="float64")
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    moved = np.array([[1, 2, 3, 7, 5, 6]])
    change = abs(model(ids)[0] - model(moved)[0]).max(axis=-1)[0]
    assert (change[:3] == 0).all() and (change[3:] > 0).all()
    order = np.array([[2, 1, 3, 4, 5, 6]])
    assert abs(model(ids)[0] - model(order)[0])[0, -1].max() > 1e-6  # without positions, sums over keys have no order


@pytest.mark.slow
def test_the_command_positions(tmp_path: Path, capsys: Any) -> None:
    arguments = ["compare", "positions", "--length", "8", "--steps", "10"]
    assert main([*arguments, "--plot", str(tmp_path / "positions.png")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[2:]] == list(positions.KINDS)
    assert (tmp_path / "positions.png").stat().st_size > 1000
    assert main([*arguments, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rotary"]["accuracy"]) == 32
    assert main(["compare", "positions", "--length", "7"]) == 2
    assert "--length must be from 8 to 256" in capsys.readouterr().err
