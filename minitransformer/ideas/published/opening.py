"""Opening any model: one that this library saved, or one that others published."""

from __future__ import annotations

import os
from typing import Any

from ...core.arrays.boundary import check_kind
from ...core.models import folder
from .pretrained import from_pretrained, is_published


def load(path: str | os.PathLike[str]) -> Any:  # the file alone says of which kind, and who calls knows it
    """Open a model: the folder of a run or of `folder.save`, a folder of Hugging Face's, or a .gguf file.

    Returns a model of the kind that the folder names, on the default device. For the errors raised, see `folder.load`
    and `from_pretrained`. `text.load` opens the model's tokenizer.
    """
    check_kind("models.load", "path", path, (str, os.PathLike), "; give the path of a folder or of a .gguf file")
    return from_pretrained(path) if is_published(path) else folder.load(path)
