"""`minitransformer generate`: a trained language model continues a text."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from ..core.generation import Choose, Continuation, Sampler, generate, most_probable, stream
from ..core.models import LanguageModel
from ..core.text import END, pieces
from ..ideas.published.conversation import Conversation
from ..run.fast.compiler import TO_WRITE
from . import Options, UsageError
from .common import in_range, make, opened_with, speed


def main(options: Options) -> None:
    in_range(options, "tokens", 1)
    in_range(options, "samples", 1)
    in_range(options, "temperature", 0.0)
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
    prompt = [] if options.chat else tokenizer.encode(options.prompt[0], special=True)
    at_once = not (options.chat or found.published)
    whole = generate(fast, [prompt] * options.samples, options.tokens, choose, END) if at_once else []
    for i in range(options.samples):
        if i:
            print("-" * 40)
        if options.chat:
            conversation = Conversation(fast, tokenizer)  # each sample is one of its own
            for text in options.prompt:
                _show(conversation.answer(text, options.tokens, choose, i))
        elif at_once:
            print(tokenizer.decode([*prompt, *whole[i]]).lstrip("\n"))  # together: bpe drops the space before a text
        else:
            ids = stream(Continuation(fast), prompt, options.tokens, choose, tokenizer.ends, text=i)
            _show(chain([tokenizer.decode(prompt)], pieces(tokenizer, prompt, ids)))


def _show(pieces: Iterable[str]) -> None:
    """Print the pieces of a text as they come."""
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
