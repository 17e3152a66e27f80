"""Where the folders and names of an earlier layout are now: an import at an old place fails, and names the new one."""

import os
import sys

_WINGS = {
    "core": "arrays ops layers models text training generation",
    "check": "trace verify referee audit",
    "ideas": "published",
    "run": "tasks machines fast",
    "school": "course inspect compare show",
}
PLACES = {room: f"{wing}.{room}" for wing, rooms in _WINGS.items() for room in rooms.split()}
PLACES |= {f"later.{file}": f"ideas.before.{file}" for file in ("convolutional", "recurrent_translator")}
PLACES |= {"later": "ideas.after"}  # and of what came before the paper: ideas.before
_FILES = {"course.memory": "school.course.memory_limit"}
_NAMES = {"text.load_tokenizer": "text.load", "text.load_published": "text.load", "models.is_published": "models.load"}


def now(name: str) -> str:
    """A dotted name within the package as it is today: "ops.softmax" has become "core.ops.softmax"."""
    old = next((place for place in PLACES if f"{name}.".startswith(f"{place}.")), None)
    return name if old is None else PLACES[old] + name[len(old) :]


def _is_file(name: str) -> bool:
    """Whether a dotted name of the earlier layout was that of a file or folder, and not a misspelt name in one."""
    path = os.path.join(os.path.dirname(__file__), *now(name).split("."))
    return os.path.isfile(path + ".py") or os.path.isdir(path)


def old_place(name: str) -> str | None:
    """What to say about an old name within the package; None for any other name."""
    if name in _NAMES:
        return f"minitransformer.{name} is gone; minitransformer.{_NAMES[name]} opens every kind"
    if name in _FILES:
        return f"minitransformer.{name} is minitransformer.{_FILES[name]} now"
    room = name.partition(".")[0]
    if room == "later":
        return "minitransformer.later is minitransformer.ideas now, with its folders before and after"
    is_old = room in PLACES and _is_file(name)
    return f"what was in minitransformer.{room} is in minitransformer.{PLACES[room]} now" if is_old else None


def no_attribute(module: str, name: str) -> None:
    """Raise the error for a name that the package, or a file for users, does not have."""
    place = f"{module}.{name}".partition(".")[2]
    told = old_place(place)
    raise AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {told}" if told else ""))


class _OldPlaces:
    """Python asks here last: for a module that it has found nowhere else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        package, _, rest = name.partition(".")
        told = old_place(rest) if package == __package__ else None
        if told:
            raise ModuleNotFoundError(f"No module named {name!r}: {told}")


sys.meta_path.append(_OldPlaces)
