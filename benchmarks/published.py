"""Tokens per second of a published model, ours beside others: python -m benchmarks.published --model FILE

Each program is a process of its own, opens the same .gguf file and writes the same number of tokens after the same
prompt, by greedy search on its key-value cache. They take turns. Ours is the model as `generate` runs it, in float32,
or packed as --weights says. The others are run as their users write it:

    transformers    AutoModelForCausalLM.generate, in float32
    llama.cpp       Llama.generate of the package llama-cpp-python, with the numbers as the file has them
    ctranslate2     Generator.generate_batch, in float32; ctranslate2-int8 with 8-bit weights
    onnxruntime     the exporter of Transformers, with its fusions for the processor; one graph that takes the cache
                    and returns it, in float32

`--model gpt2` makes a folder with the sizes of GPT-2 124M and random weights; only such a folder is converted for
CTranslate2. `--tokens 1 --prompt 256` times a prompt. Beside each stands its limit: the rate at which two threads read
here, divided by the bytes of its weights. The packages of others are not ours to install: a program that lacks one
is left out, with a line that says what to install.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from . import rates
from .machine import lacking

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
WORDS = "The capital of France is Paris, and the capital of Italy is Rome. " * 80
Writer = Callable[[list[int], int], list[int]]


def ours(file: Path, weights: str | None) -> tuple[Writer, int]:
    from minitransformer import models
    from minitransformer.fast import accelerate
    from minitransformer.generation import generate
    from minitransformer.ideas.published.opening import opened_packed
    from minitransformer.ideas.published.packed import PackedWeight

    kind = models.LanguageModel
    model = models.load(file, kind) if weights is None else opened_packed(file, kind, weights).model
    fast = accelerate(model)
    size = sum(p.rows.nbytes if isinstance(p, PackedWeight) else p.value.nbytes for _, p in model.parameters())
    return lambda ids, count: generate(fast, [ids], count)[0], size


def hugging_face(file: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    place = (file.parent, {"gguf_file": file.name}) if file.is_file() else (file, {})
    return AutoModelForCausalLM.from_pretrained(place[0], dtype=torch.float32, **place[1]).eval()


def transformers(file: Path, _: str | None) -> tuple[Writer, int]:
    import torch

    model = hugging_face(file)

    def write(ids: list[int], count: int) -> list[int]:
        rows = torch.tensor([ids])
        options = {
            "max_new_tokens": count,
            "min_new_tokens": count,
            "do_sample": False,
            "eos_token_id": [],
            "pad_token_id": 0,
        }
        return model.generate(rows, attention_mask=torch.ones_like(rows), **options)[0, len(ids) :].tolist()

    return write, sum(4 * each.numel() for each in model.parameters())


def llama_cpp(file: Path, _: str | None) -> tuple[Writer, int]:
    from llama_cpp import Llama

    model = Llama(str(file), n_ctx=2048, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)

    def write(ids: list[int], count: int) -> list[int]:
        model.reset()  # otherwise it keeps the prompt of the turn before
        return list(islice(model.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0), count))

    return write, file.stat().st_size


def ctranslate2(file: Path, _: str | None, numbers: str = "float32") -> tuple[Writer, int]:
    import ctranslate2 as package

    folder = file / f"ctranslate2-{numbers}"
    if not folder.exists():
        package.converters.TransformersConverter(str(file)).convert(str(folder), quantization=numbers)
    model = package.Generator(str(folder), compute_type=numbers, intra_threads=THREADS)
    words = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))

    def write(ids: list[int], count: int) -> list[int]:
        options = {"min_length": count, "sampling_topk": 1, "include_prompt_in_result": False}
        (result,) = model.generate_batch([[words[i] for i in ids]], max_length=count, end_token=[], **options)
        return result.sequences_ids[0]

    return write, (folder / "model.bin").stat().st_size


def onnxruntime(file: Path, _: str | None) -> tuple[Writer, int]:
    import onnxruntime as package
    import torch
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model, two = hugging_face(file), torch.ones((1, 2), dtype=torch.long)  # an axis of length 1 would be fixed
    with torch.no_grad():
        cache = model(torch.ones((1, 3), dtype=torch.long), use_cache=True).cache
    inputs = {"input_ids": two, "cache": cache, "logits_to_keep": 1}
    exported = OnnxExporter().export(model, inputs, OnnxConfig(dynamic=True, ort_fusions="cpu"))
    options = package.SessionOptions()
    options.intra_op_num_threads = THREADS
    exported.to(session_options=options)
    cache.crop(-3)

    def write(ids: list[int], count: int) -> list[int]:
        written, rows, so_far = [], torch.tensor([ids]), cache
        for _ in range(count):
            answer = exported(input_ids=rows, cache=so_far)
            rows, so_far = answer.logits.argmax(-1), answer.cache
            written.append(int(rows))
        return written

    return write, sum(4 * each.numel() for each in model.parameters())


PROGRAMS: dict[str, Callable[[Path, str | None], tuple[Writer, int]]] = {
    "ours": ours,
    "transformers": transformers,
    "llama.cpp": llama_cpp,
    "ctranslate2": ctranslate2,
    "ctranslate2-int8": lambda file, weights: ctranslate2(file, weights, "int8"),
    "onnxruntime": onnxruntime,
}


def gpt2(folder: Path, **sizes: int) -> None:
    """A folder as Hugging Face writes it: GPT-2 124M with random weights, and a vocabulary of made-up words.

    sizes: other ones, by the names of its config.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**sizes))
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(model.config.vocab_size - 1)} | {"<|endoftext|>": model.config.vocab_size - 1}
    special = {name: "<|endoftext|>" for name in ("bos_token", "eos_token", "unk_token")}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<|endoftext|>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def serve(program: str, file: Path, weights: str | None, ids: list[int], count: int) -> None:
    """Answer with the bytes of the weights; then, for every line of stdin, with the seconds and the tokens."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no reply
    write, size = PROGRAMS[program](file, weights)
    write(ids, count)
    print(size, file=replies, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        written = write(ids, count)
        print(time.perf_counter() - start, *written, file=replies, flush=True)


def installed(names: Sequence[str]) -> list[str]:
    """The programs that have the packages they need. Of the others a line says what to install."""
    for name in names:
        if reason := lacking(name):
            print(f"{name} is left out: {reason}", flush=True)
    return [name for name in names if not lacking(name)]


def race(options: argparse.Namespace, file: Path, ids: list[int]) -> int:
    programs = ["ours", *installed(options.beside)]
    command = [sys.executable, "-m", "benchmarks.published", "--model", str(file), "--tokens", str(options.tokens)]
    command += ["--weights", options.weights] if options.weights else []
    command += ["--ids", *map(str, ids)]
    environment = os.environ | {"MINITRANSFORMER_COMPILE": "first"}  # with the loops from the first turn on
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with ExitStack() as ended:
        started = {name: subprocess.Popen([*command, "--program", name], **pipes) for name in programs}
        workers = {name: ended.enter_context(worker) for name, worker in started.items()}
        return in_turns(options, workers, len(ids))


def in_turns(options: argparse.Namespace, workers: dict[str, Any], n_ids: int) -> int:
    """Let the programs write in turns, and print their medians."""

    def reply(name: str) -> list[str]:
        line = workers[name].stdout.readline()
        if not line:
            sys.exit(f"the program {name} ended; its error stands above")
        return line.split()

    sizes = {}
    for name in workers:
        size = workers[name].stdout.readline()
        if size:
            sizes[name] = int(size)
        else:
            print(f"{name} is left out: it ended; its error stands above", flush=True)
    programs = list(sizes)
    if "ours" not in sizes:
        return 1
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    reading, written = [], {}
    for turn in range(options.rounds):
        for name in programs if turn % 2 == 0 else programs[::-1]:
            workers[name].stdin.write("\n")
            workers[name].stdin.flush()
            first, *written[name] = reply(name)
            seconds[name].append(float(first))
        reading.append(rates.bandwidth(THREADS, 0.1)["read"])
        print(*(f"{name} {1000 * seconds[name][-1]:.0f} ms" for name in programs), sep=", ", flush=True)
    print(f"medians of {options.rounds} turns; {options.tokens} tokens after {n_ids}; {options.weights or 'float32'}")
    for name in programs:
        rate = options.tokens / statistics.median(seconds[name])
        limit = 1e9 * statistics.median(reading) / sizes[name]
        ratios = [a / b for a, b in zip(seconds[name], seconds["ours"], strict=True)]
        same = next(
            (i for i, pair in enumerate(zip(written[name], written["ours"], strict=True)) if len({*pair}) > 1), None
        )
        print(
            f"{name:17} {rate:7.2f} tokens/s; limit by reading {sizes[name] / 2**20:.0f} MB: {limit:.0f}; ours is "
            f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}); "
            + ("the same tokens" if same is None else f"other tokens from the {same + 1}th on")
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a .gguf file, or gpt2")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens to write (default: 64)")
    parser.add_argument("--prompt", type=int, default=5, metavar="N", help="tokens of the prompt (default: 5)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="turns of each (default: 7)")
    parser.add_argument("--weights", choices=("packed", "int8", "bfloat16"), help="how ours are packed")
    parser.add_argument("--beside", nargs="*", choices=list(PROGRAMS)[1:], default=["transformers"], help="the others")
    parser.add_argument("--program", choices=list(PROGRAMS), help=argparse.SUPPRESS)
    parser.add_argument("--ids", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.program:
        serve(options.program, options.model, options.weights, options.ids, options.tokens)
        return 0
    if str(options.model) == "gpt2":
        with tempfile.TemporaryDirectory() as folder:
            gpt2(Path(folder))
            return race(options, Path(folder), np.random.default_rng(0).integers(50000, size=options.prompt).tolist())
    if options.model.suffix != ".gguf" or not options.model.is_file():
        parser.error(f"--model must be a .gguf file or gpt2, got {options.model}")
    from minitransformer import text

    return race(options, options.model, text.load(options.model).encode(WORDS)[: options.prompt])


if __name__ == "__main__":
    sys.exit(main())
