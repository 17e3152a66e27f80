"""Every command that README and docs show runs as it is written, one after the other, in a folder of its own.

Files that a command reads must be in the repository, be made by an earlier command, or be data that the document speaks
of, for which small ones stand in here. What would train or check for minutes is told to do less by options at its end,
and what needs a GPU runs on the strict stand-in for one. What installs something is only looked at; of an audit the
descriptions are read.
"""

import contextlib
import dataclasses
import glob
import gzip
import importlib.metadata
import io
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_published import bert, gguf_file

from minitransformer.check.audit.suite import read
from minitransformer.cli import main
from minitransformer.commands import compare, demo
from minitransformer.text import NumberTask

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(r"(\.venv/bin/)?(minitransformer|make|pip|python3?|pytest|jupyter|git|source)( |$)")
FOLDERS = ("benchmarks", "docs", "minitransformer", "notebooks", "tests")  # of the repository


def commands(text: str) -> list[tuple[int, str]]:
    """The line and the text of each command, of indented blocks and of fenced ones that are marked as a shell's."""
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    fence, block_before, number = "", "", 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            fence = "" if fence else line
        in_block = fence[3:] in ("sh", "bash", "shell", "console") if fence else line.startswith("    ")
        shown, begins = line.strip().removeprefix("$ "), number + 1
        if in_block and not line.startswith("```") and shown:
            while shown.endswith("\\"):
                number += 1
                shown = shown[:-1] + lines[number].strip()
            if PROGRAM.match(shown):
                found.append((begins, shown))
            elif block_before == "command":
                raise AssertionError(f"line {begins}: this stands among commands and is none that is known: {shown}")
            block_before = "command" if PROGRAM.match(shown) else "other"
        else:
            block_before = ""
        number += 1
    return found


def prose(text: str) -> str:
    """The document without its commands."""
    shown = "|".join(re.escape(command[:20]) for _, command in commands(text))
    return re.sub(rf"^ {{4}}({shown}).*$", "", text, flags=re.MULTILINE) if shown else text


ENGLISH = "two dogs are running .\na man reads a book .\nthree women sing .\n" * 20
GERMAN = "zwei hunde rennen .\nein mann liest ein buch .\ndrei frauen singen .\n" * 20
PLAY = "ROMEO:\nWhat say you, shall we go on?\n\nJULIET:\nNot yet; stay a little.\n" * 60


def stand_in(name: str, text: str, folder: Path) -> bool:
    """Make the data file, or the files of a folder of data, that `name` is, if the text speaks of it."""
    path = folder / name
    if data := re.fullmatch(r"(train|val|test)(_2016_flickr)?(\.lc\.norm\.tok)?\.(en|de)(\.gz)?", name):
        spoken = data[1] + (data[2] or "")
        content = ENGLISH if data[4] == "en" else GERMAN
    elif name == "input.txt":
        spoken, content = name, PLAY
    elif name == "names.txt":
        spoken, content = name, "Ana\nBen\n"
    elif name == "hand-in":
        spoken, path = name, folder / name / "ana.ipynb"
        cell = {"cell_type": "code", "source": ["def softmax_backward(y, dy):\n", "    return y * dy\n"]}
        content = json.dumps({"cells": [cell], "nbformat": 4})
    elif name.startswith("forms/"):
        spoken, path, content = "forms", folder / name.replace("*", "ana"), ""
        worksheet = "worksheet attention-backward --seed 7 --student Ana --form".split()
        path.parent.mkdir(exist_ok=True)
        assert main([*worksheet, str(path)]) == 0
    elif name.endswith(".gguf"):
        spoken, content = name, ""
        gguf_file(path)
    elif name in ("all-MiniLM-L6-v2", "bert-base-uncased"):
        spoken, content = name, ""
        bert(path)
    else:
        return False
    if not re.search(rf"`{re.escape(spoken)}(\.\w+)?`", prose(text)):
        return False
    path.parent.mkdir(exist_ok=True)
    if content:
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return True


READS = {  # options that name a file or folder to read, of all commands
    *("--text", "--source", "--target", "--valid-source", "--valid-target", "--model", "--class", "--grade", "--input")
}
LESS = {
    "demo": ["--steps", "2"],
    "train lm": ["--steps", "2", "--warmup", "1", "--held-out", "0.05", "--n-layers", "1", "--max-length", "16"],
    "train classify": ["--steps", "2", "--warmup", "1", "--held-out", "0.05"],
    "train translate": ["--steps", "2", "--warmup", "1"],
    "compare positions": ["--steps", "20"],
    "check": ["softmax"],  # where all are asked for
    "generate": ["--tokens", "20"],
}
WITHOUT_A_GPU = {"cupy": "strict", "tf32": "float32"}


def reads(words: list[str]) -> list[str]:
    """The files and folders that a command of minitransformer reads."""
    found = [value for option, value in itertools.pairwise(words) if option in READS]
    if words[0] == "prepare":
        found += [word for word in words[1:] if word.endswith(".txt")]
    if words[0] == "grade":
        found += [word for word in words[1:] if word == "hand-in" or word.endswith((".ipynb", ".py"))]
    return found


def run(words: list[str], text: str, folder: Path) -> None:
    """Run one command of minitransformer in a folder."""
    output = words.pop(words.index(">") + 1) if ">" in words else None
    words = [word for word in words if word != ">"]
    for name in reads(words):
        if glob.glob(str(folder / name)):
            continue
        if name.split("/")[0] in FOLDERS and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        else:
            assert stand_in(name, text, folder), f"there is no {name}: no earlier command makes it, no word explains it"
    words = [each for word in words for each in (sorted(glob.glob(word)) if "*" in word else [word])]
    words = [WITHOUT_A_GPU.get(word, word) for word in words]
    less = LESS.get(" ".join(words[:2]), LESS.get(words[0], []))
    if words[0] == "check" and set(words[1:]) & {"softmax", "attention", "--model"}:
        less = []
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            status = main([*words, *less])
        except SystemExit as ended:  # --help and --version
            status = ended.code
    assert status == 0, complained.getvalue()
    assert said.getvalue()
    if output:
        (folder / output).write_text(said.getvalue(), encoding="utf-8")


def look_at(words: list[str]) -> None:
    """What the command names is there: a target of the Makefile, an extra of the package, a file with an option."""
    program = Path(words[0]).name
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1:] and set(words[1:]) <= set(targets)
    elif program == "pip":
        assert words[1] in ("install", "wheel")
        extras = {extra for word in words for extra in ",".join(re.findall(r"^\.\[(.*)\]$", word)).split(",") if extra}
        assert extras <= set(importlib.metadata.metadata("minitransformer").get_all("Provides-Extra"))
    elif program in ("python", "python3") and words[1] != "-m":
        source = (ROOT / words[1]).read_text(encoding="utf-8")
        assert all(f'"{word}"' in source for word in words[2:] if word.startswith("-"))
    elif program in ("python", "python3"):
        path = ROOT / words[2].replace(".", "/")
        assert words[2] == "venv" or path.is_dir() or path.with_suffix(".py").is_file()
    elif program == "jupyter":
        assert (ROOT / words[2]).is_dir()
    else:
        assert program in ("pytest", "source", "git")


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_runs_as_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = NumberTask.draw
    fewer = SimpleNamespace(draw=lambda n_training, n_unseen, limit, rng: draw(n_training, n_unseen // 100, limit, rng))
    monkeypatch.setattr(demo, "NumberTask", fewer)  # which translates them all in the end
    sizes = {"by_length": ((16, 8), (32, 8)), "by_width": ((16, 8), (16, 16))}
    small = {name: dataclasses.replace(mixer, **sizes) for name, mixer in compare.MIXERS.items()}
    monkeypatch.setattr(compare, "MIXERS", small)
    text = (ROOT / name).read_text(encoding="utf-8")
    for line, command in commands(text):
        words = shlex.split(command, comments=True)
        program = Path(words[0]).name
        try:
            if words[:2] == ["minitransformer", "audit"]:  # its tests take half an hour: the descriptions are read
                assert all(read(ROOT / word).functions for word in words if word.endswith(".toml"))
                continue
            if program == "minitransformer":
                run(words[1:], text, tmp_path)
                continue
            look_at(words)
            if words == ["make", "demo"]:  # which runs this
                run(["demo"], text, tmp_path)
        except AssertionError as error:
            raise AssertionError(f"{name}, line {line}: {command}: {error}") from error


def test_pages_do_not_overwrite_each_other(tmp_path, monkeypatch):
    """What README writes stays when a command writes to its default."""
    written = re.findall(r"--(?:html|pdf|out|model) (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    helps = io.StringIO()
    for command in (["view"], ["plot", "attention"]):
        with contextlib.redirect_stdout(helps), pytest.raises(SystemExit):
            main([*command, "--help"])
    defaults = re.findall(r"default: ([\w-]+\.(?:html|png))", helps.getvalue())
    assert len(defaults) == 2 and len(written) > 5 and not set(defaults) & set(written)


@pytest.mark.parametrize("command, complaint", [
    ("minitransformer grade hand_in.ipynb", r"there is no hand_in\.ipynb: no earlier command makes it"),
    ("minitransformer generate --model runs/none a", r"there is no runs/none"),
    ("minitransformer train lm --text input.txt", r"there is no input\.txt"),  # of which the text below says nothing
    ("minitransformer worksheet attention-backwards", "knows no 'attention-backwards'"),
])  # fmt: skip
def test_a_command_that_does_not_run_is_seen(command, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((_, found),) = commands(f"Some words.\n\n    {command}   # why\n\nMore words.")
    with pytest.raises(AssertionError, match=complaint):
        run(shlex.split(found, comments=True)[1:], "Some words.", tmp_path)


@pytest.mark.parametrize(
    "command",
    ["make nothing", "pip install -e '.[none]'", "python notebooks/build.py --none", "python -m benchmarks.none"],
)
def test_what_installs_is_looked_at(command):
    with pytest.raises(AssertionError):
        look_at(shlex.split(command))


def test_commands_are_found():
    text = "a\n\n    minitransformer a \\\n        --b c\n    make d\n\n```sh\npip e\n```\n\n```\nmake f\n```\n"
    text += "\n    x = 3\n"
    assert commands(text) == [(3, "minitransformer a --b c"), (5, "make d"), (8, "pip e")]
    with pytest.raises(AssertionError, match="line 4: this stands among commands"):
        commands("a\n\n    make d\n    curl e\n")
    assert len(commands((ROOT / "README.md").read_text(encoding="utf-8"))) > 20
