"""Opening whatever holds a model, with its tokenizers.

A form is a way in which a model lies on a disk, and says which paths are its own. The folders that `save` writes are
one form. A room around the core enters others in a file opening.py.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from ..arrays import rooms
from ..arrays.boundary import check_kind
from ..layers import Module
from ..text.tokenizer import Tokenizer
from . import folder
from .classifier import Classifier

M = TypeVar("M", bound=Module)
StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Form:
    """A way in which a model lies on a disk: whether it lies so at a path, and how to read what is there."""

    is_at: Callable[[Path], bool]
    model: Callable[[Path], Module]
    tokenizers: Callable[[Path], tuple[Tokenizer, ...]]
    published: bool = True  # by others


FORMS: list[Form] = []  # of other rooms
_OWN = Form(lambda path: True, folder.load, folder.tokenizers, published=False)


@dataclass(frozen=True)
class Opened(Generic[M]):
    """What lies at a path. tokenizers: one, or those of source and target; labels: of a classifier that we trained."""

    path: Path
    model: M
    tokenizers: tuple[Tokenizer, ...]
    labels: tuple[str, ...]
    published: bool


def with_article(kind: type[Any]) -> str:
    """The name of a class with its article."""
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def opened(path: StrPath, kind: type[M], for_text: bool = True) -> Opened[M]:
    """A model with what belongs to it. Raises the errors of `load`, and ValueError where they do not fit together.

    for_text: refuse a model that reads anything but texts; otherwise such a model comes without a tokenizer.
    """
    path, model, form = Path(path), load(path, kind), _form("models.load", path)
    if (reads := getattr(model, "reads", "texts")) != "texts":
        if for_text:
            raise ValueError(f"{path} holds {with_article(type(model))}, which reads {reads}; here there is only text")
        return Opened(path, model, (), (), form.published)
    tokenizers = form.tokenizers(path)
    labels = folder.labels(path) if isinstance(model, Classifier) and not form.published else ()
    folder.fitting(str(path), model, tokenizers, labels, exactly=not form.published)
    return Opened(path, model, tokenizers, labels, form.published)


@overload
def load(path: StrPath) -> Module: ...  # the file alone says of which kind
@overload
def load(path: StrPath, kind: type[M]) -> M: ...
def load(path: StrPath, kind: type[Module] = Module) -> Any:
    """Open a model: the folder of a run or of `save`, a folder of Hugging Face's, or a file of other programs.

    kind: the class that the model must have, such as LanguageModel; without it, types say that it is a Module.
    Parameters are on the default device. `text.load` opens the model's tokenizer.

    Raises FileNotFoundError if something is missing. Raises ValueError for a model of another kind, where a file cannot
    be read, and where parameters do not fit the config. Nothing in a file is run.
    """
    model = _form("models.load", path).model(Path(path))
    if not isinstance(model, kind):
        does = vars(kind).get("does", "will do here")
        raise ValueError(f"{path} holds {with_article(type(model))}, but only {with_article(kind)} {does}")
    return model


def load_tokenizer(path: StrPath, side: Literal["source", "target"] | None = None) -> Tokenizer:
    """The tokenizer of a model, wherever `models.load` opens the model. Or that in one file, which `save` wrote.

    side: which one of the two of a translator. Raises FileNotFoundError if it is missing, ModuleNotFoundError, which
    names the extra, for a missing library, and ValueError for a file that cannot be read, or without a side for two.
    """
    found = _form("text.load", path).tokenizers(Path(path))
    if len(found) > 1 and side not in ("source", "target"):
        raise ValueError(
            f'{path} has two tokenizers; say which: text.load(path, "source") or text.load(path, "target")'
        )
    return found[-1 if side == "target" else 0]


def _form(where: str, path: StrPath) -> Form:
    check_kind(where, "path", path, (str, os.PathLike), "; give the path of a folder or file")
    rooms.load("opening.py")
    return next(form for form in (*FORMS, _OWN) if form.is_at(Path(path)))
