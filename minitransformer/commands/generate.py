"""`minitransformer generate`: a trained language model continues a text."""

import numpy as np

from ..core.generation import Choose, Continuation, Sampler, generate, most_probable, stream
from ..core.models import LanguageModel
from ..core.text import END, Tokenizer, pieces
from ..ideas.published.conversation import Conversation
from ..run.fast.compiler import TO_WRITE
from . import Options, UsageError
from .common import make, opened_with, speed


def main(options: Options) -> int:
    """Run the command; return the exit status."""
    if options.tokens < 1 or options.samples < 1:
        raise UsageError("--tokens and --samples must be at least 1")
    if not options.temperature >= 0.0:
        raise UsageError(f"--temperature must be at least 0, got {options.temperature}")
    choose: Choose = most_probable
    if options.temperature > 0.0:
        rngs = np.random.default_rng(options.seed).spawn(options.samples)
        chosen = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
        choose = make(Sampler, {"rngs": rngs, **chosen})
    if not all(options.prompt):
        raise UsageError("the text to continue is empty")
    if len(options.prompt) > 1 and not options.chat:
        raise UsageError("several texts are the turns of a chat: add --chat, or put one text in quotes")
    found = opened_with(options, LanguageModel)
    if options.chat:  # a model without a template says so before anything is compiled
        found.tokenizers[0].chat([{"role": "user", "content": options.prompt[0]}])
    model = found.model if options.weights else found.model.to(options.device)
    (tokenizer,), fast = found.tokenizers, speed(options, TO_WRITE)(model)
    if options.chat:
        return _chat(options, fast, tokenizer, choose)
    prompt = tokenizer.encode(options.prompt[0], special=True)
    whole = [] if found.published else generate(fast, [prompt] * options.samples, options.tokens, choose, END)
    for i in range(options.samples):
        if i:
            print("-" * 40)
        if whole:
            print(tokenizer.decode([*prompt, *whole[i]]).lstrip("\n"))  # together: bpe drops the space before a text
            continue
        print(tokenizer.decode(prompt), end="", flush=True)
        ids = stream(Continuation(fast), prompt, options.tokens, choose, tokenizer.ends, text=i)
        for piece in pieces(tokenizer, prompt, ids):
            print(piece, end="", flush=True)
        print()
    return 0


def _chat(options: Options, model: LanguageModel, tokenizer: Tokenizer, choose: Choose) -> int:
    """Answer each text in turn; every sample is a conversation of its own."""
    for i in range(options.samples):
        if i:
            print("-" * 40)
        conversation = Conversation(model, tokenizer)
        for text in options.prompt:
            for piece in conversation.answer(text, options.tokens, choose, i):
                print(piece, end="", flush=True)
            print()
    return 0
