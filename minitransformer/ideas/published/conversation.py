"""A chat of several turns on one cache: each turn reads only what is new since the last one.

The whole conversation is written by the model's template again in each turn. Where its ids begin with those that the
model has read, as they nearly always do, only the rest is read. Otherwise, as where a template leaves out what was said
before, or where an answer is split into other tokens than the model wrote, the model starts again from the first token.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.generation import Choose, Continuation, most_probable, stream
from ...core.models import LanguageModel
from ...core.text import Tokenizer, pieces


class Conversation:
    """A chat with a language model. messages: what was said, each with a "role" and a "content"."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer) -> None:
        self.messages: list[dict[str, str]] = []
        self._model, self._tokenizer = model, tokenizer
        self._prefix, self._read = Continuation(model), list[int]()

    def answer(self, text: str, n_new: int, choose: Choose = most_probable, row: int = 0) -> Iterator[str]:
        """Say a text, and yield the answer, of up to n_new tokens, piece by piece.

        row: which of a Sampler's generators draws. Raises ValueError where there is no chat template, or it fails.
        """
        said = [*self.messages, {"role": "user", "content": text}]
        ids, n = self._tokenizer.chat(said), len(self._read)
        if len(ids) <= n or ids[:n] != self._read:
            self._prefix, n = Continuation(self._model), 0
        written: list[int] = []

        def kept() -> Iterator[int]:
            for token in stream(self._prefix, ids[n:], n_new, choose, self._tokenizer.ends, row):
                written.append(token)
                yield token

        answered = ""
        try:
            for piece in pieces(self._tokenizer, ids, kept()):
                answered += piece
                yield piece
        finally:
            if written:
                self._read = [*ids, *written[:-1]]  # the last token was not read yet
                self.messages = [*said, {"role": "assistant", "content": answered}]
            else:  # nothing was said: nobody knows what was read
                self._prefix, self._read = Continuation(self._model), []
