"""Tokens per second of a published model, ours beside Hugging Face's: python -m benchmarks.published --model FILE

Each program is a process of its own, opens the same .gguf file in float32, and writes the same number of tokens after
the same prompt, by greedy search on its key-value cache. The two take turns. Ours is the model as `generate` runs it;
theirs is `AutoModelForCausalLM.generate`. --weights packs ours; theirs stay float32.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROMPT = "The capital of France is"
PROGRAMS = ("ours", "theirs")


def ours(file: Path, count: int, weights: str | None) -> Callable[[], list[int]]:
    from minitransformer import models, text
    from minitransformer.fast import accelerate
    from minitransformer.generation import generate
    from minitransformer.ideas.published.opening import opened_packed

    kind, tokenizer = models.LanguageModel, text.load(file)
    model = models.load(file, kind) if weights is None else opened_packed(file, kind, weights).model
    fast, ids = accelerate(model), tokenizer.encode(PROMPT)
    return lambda: generate(fast, [ids], count)[0]


def theirs(file: Path, count: int, _: str | None) -> Callable[[], list[int]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)(PROMPT).input_ids])
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "eos_token_id": []}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()


def serve(program: str, file: Path, count: int, weights: str | None) -> None:
    """Write the tokens once, then once more for every line of stdin: answer with the seconds and the tokens."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no reply
    write = {"ours": ours, "theirs": theirs}[program](file, count, weights)
    write()
    for _ in sys.stdin:
        start = time.perf_counter()
        ids = write()
        print(time.perf_counter() - start, *ids, file=replies, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a .gguf file")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens to write (default: 64)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="turns of each (default: 7)")
    parser.add_argument("--weights", choices=("packed", "int8", "bfloat16"), help="how ours are packed")
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.model.suffix != ".gguf" or not options.model.is_file():
        parser.error(f"--model must be a .gguf file, got {options.model}")
    if options.program:
        serve(options.program, options.model, options.tokens, options.weights)
        return 0

    command = [sys.executable, "-m", "benchmarks.published", "--model", options.model, "--tokens", str(options.tokens)]
    command += ["--weights", options.weights] if options.weights else []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = {name: subprocess.Popen([*command, "--program", name], **pipes) for name in PROGRAMS}
    rates: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(options.rounds):
        written = []
        for name in PROGRAMS if turn % 2 == 0 else PROGRAMS[::-1]:
            workers[name].stdin.write("\n")
            workers[name].stdin.flush()
            reply = workers[name].stdout.readline()
            if not reply:
                parser.error(f"the program {name} ended; its error stands above")
            seconds, *ids = reply.split()
            rates[name].append(options.tokens / float(seconds))
            written.append(ids)
        print(*(f"{name} {rates[name][-1]:.2f} tokens/s" for name in PROGRAMS), sep=", ", flush=True)
        assert written[0] == written[1] or options.weights == "int8", "the two wrote different texts"
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    ratios = [a / b for a, b in zip(rates["ours"], rates["theirs"], strict=True)]
    medians = ", ".join(f"{name} {statistics.median(rates[name]):.2f}" for name in PROGRAMS)
    print(f"medians: {medians} tokens/s; ratio of a round {min(ratios):.2f} to {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
