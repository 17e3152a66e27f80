"""What the source declares: the fields of settings, and the tasks of `train`. They are read as text, since --help
shall import neither NumPy nor a model.
"""

import ast
import dataclasses
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[2]


def fields(file: str, name: str) -> list[dataclasses.Field[Any]]:
    """The fields that a dataclass declares itself, such as ("run/tasks/language", "LanguageData")."""
    (class_,) = (node for node in _tree(file).body if isinstance(node, ast.ClassDef) and node.name == name)
    found = []
    for line in class_.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if (kind := ast.unparse(line.annotation)).startswith("ClassVar"):
                continue
            made: Any = dataclasses.field(**_words(line.value))
            made.name, made.type = line.target.id, kind
            found.append(made)
    return found


def _words(value: ast.expr | None) -> dict[str, Any]:
    """The default of a field, or what its call of `field` says."""
    if isinstance(value, ast.Call):
        return {word.arg: ast.literal_eval(word.value) for word in value.keywords if word.arg}
    return {} if value is None else {"default": ast.literal_eval(value)}


@dataclasses.dataclass(frozen=True)
class DeclaredTask:
    """A task of `train`: where its settings are declared, each as a file and a name, and the name of its recipe."""

    help: str
    recipe: str
    config: tuple[str, str]
    data: tuple[tuple[str, str], ...]

    def words(self) -> tuple[list[str], list[str]]:
        """The fields of the config that the data determine, and the names of the presets, from the call of Task."""
        calls = (node for node in ast.walk(_tree(self.data[0][0])) if isinstance(node, ast.Call))
        (call,) = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Task")
        values = {word.arg: word.value for word in call.keywords}
        presets = values["presets"]
        assert isinstance(presets, ast.Dict)
        return [*ast.literal_eval(values["from_data"])], [ast.literal_eval(name) for name in presets.keys if name]


def _tree(file: str) -> ast.Module:
    return ast.parse((_PACKAGE / f"{file}.py").read_text(encoding="utf-8"))


TASKS = {
    "translate": DeclaredTask(
        "an encoder-decoder on sentence pairs",
        "transformer",
        ("core/models/transformer", "TransformerConfig"),
        (("run/tasks/translation", "TranslationData"),),
    ),
    "lm": DeclaredTask(
        "a decoder-only model on a running text",
        "gpt2",
        ("core/models/language_model", "LanguageModelConfig"),
        (("run/tasks/language", "LanguageData"),),
    ),
    "classify": DeclaredTask(
        "an encoder with a classification head on labelled lines",
        "classifier",
        ("core/models/classifier", "ClassifierConfig"),
        (("run/tasks/classification", "ClassificationData"),),
    ),
}
TRAINING = ("run/machines/settings", "TrainingSettings")
