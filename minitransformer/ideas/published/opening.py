"""The two forms in which others publish models: a Hugging Face folder, and a .gguf file."""

from pathlib import Path
from typing import Any

from ...core.models.opening import FORMS, Form, M, Opened, opened
from . import gguf_tokenizers, pretrained, tokenizers
from .packed import WEIGHTS, pack

FORMS += [  # a .json is a file of ours: one tokenizer
    Form(pretrained.is_folder, pretrained.of_folder, tokenizers.of_folder),
    Form(lambda path: path.is_file() and path.suffix != ".json", pretrained.of_file, gguf_tokenizers.of_file),
]


def opened_packed(path: Path, kind: type[M], weights: str = "packed") -> Opened[M]:
    """A model for inference, and what belongs to it. weights: "packed", as a .gguf file has them, or see `pack`.

    The file stays mapped: it must not change while the model is used. Raises the errors of `opened`, and ValueError
    for a model whose files have no packed weights.
    """
    if weights in WEIGHTS:
        found = opened(path, kind)
        pack(found.model, weights)
        return found
    if weights != "packed" or Path(path).suffix != ".gguf":
        raise ValueError(f"{path} is no .gguf file, whose weights are packed; pack them as {' or '.join(WEIGHTS)}")
    model: Any = pretrained.of_file(Path(path), packed=True)
    return Opened(Path(path), model, gguf_tokenizers.of_file(Path(path)), (), True)
