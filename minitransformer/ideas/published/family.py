"""A family of published models: how to read its config.json, and where its tensors lie."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...core.arrays.backend import Rng
from ...core.layers import Parameter
from ...core.models.classifier import Classifier
from ...core.models.language_model import LanguageModel
from ...core.models.transformer import Transformer
from .fields import Fields, written
from .heads import ANSWERS, HEADS, REPLACED, TOKENS, HeadConfig, Headed
from .image_text import ImageTextModel
from .images import ImageClassifier, ImageEncoder
from .names import Layout, Place, Stack, layout, lines
from .text_encoder import MaskedLanguageModel, TextClassifierConfig, TextEncoder, TextEncoderConfig
from .weight_files import Tensor

Found: TypeAlias = dict[str, Any]  # fields by their names
Config: TypeAlias = Any  # a TextEncoderConfig, or one with a recipe: `parts(rng)`
_ReadsTexts = TextEncoder | MaskedLanguageModel | Classifier | Headed | LanguageModel | Transformer
Pretrained = _ReadsTexts | ImageEncoder | ImageTextModel
# The tensors of a file by their names, without the prefix of the body.
Stored: TypeAlias = Mapping[str, Tensor | Place | Stack]

# change(numbers, config, name) returns the numbers of a .gguf file as a folder has them; name: in the file.
Change: TypeAlias = Callable[..., np.ndarray]

BODY, MASKED, CLASSES, WORDS = "body", "masked", "classes", "words"
ENCODER = "encoder"  # of an encoder-decoder, alone
READERS = {"ForTokenClassification": TOKENS, "ForQuestionAnswering": ANSWERS}  # how their classes end
ENCODERS = {"Model": BODY, "ForMaskedLM": MASKED, "ForSequenceClassification": CLASSES, **READERS}
WRITERS_ALONE = {"Model": BODY, "ForCausalLM": WORDS}
WRITERS = {**WRITERS_ALONE, "ForSequenceClassification": CLASSES}
_COLUMNS = {ANSWERS: 2, REPLACED: 1}  # of their last map
_MOST_LAYERS = 1_000  # uses of one shared layer; the file limits the number of separate layers


def classes(stem: str, ends: Mapping[str, str]) -> dict[str, str]:
    """The architectures whose names begin alike."""
    return {stem + end: head for end, head in ends.items()}


@dataclass(frozen=True)
class InGguf:
    """How a family lies in a .gguf file; see gguf_models.py. names: lines of its own in the table of names, see
    `names.in_gguf`; all lines, if its names in a folder are no table.

    table: further fields of config.json, see `Fields.of_gguf`. more(metadata, stored, config) returns those that are in
    no table, from these and from the other fields. fields: general fields of config.json that it has as well, each as
    `its name  =  general name`, where that does not follow from its table of fields; rms_norm_eps is that of any norm.
    architecture: its names there, if that is not its model_type. when(metadata, stored): whether a file of that name is
    this family's, where several have the name. ignored: what changes nothing in the metadata, without the family's name
    in front. changes: marks of its own; joined(tensors, config) puts several together.
    """

    names: str = ""
    table: str = ""
    architecture: str = ""
    more: Callable[[Fields, Mapping[str, Any], Found], Found] = lambda fields, stored, config: {}
    fields: str = ""
    when: Callable[[Mapping[str, Any], Stored], bool] = lambda metadata, stored: False
    ignored: str = ""
    changes: Mapping[str, Change] = field(default_factory=dict)
    joined: Callable[[dict[str, Tensor], Found], dict[str, Tensor]] = lambda found, config: found


@dataclass(frozen=True)
class Whole:
    """A model of texts and more, whose part for texts is of a family: its model_type and its class.

    rest: patterns of its other tensors. defaults: fields of the part's config.json that published ones leave out.
    """

    model_type: str
    architecture: str
    rest: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One family. model_type: as in config.json. prefix: what precedes the body's names in a model with a head.

    recipe: the class of its configs. architectures: {their class: its head}; a saved model names the first class with
    its head. names: the table of names, or a function of the config that returns it; see names.py. adds: what it adds
    to the Transformer of 2017, in a few words. small: the fields of a small model's config.json, with all that the
    family adds; checks and tests are drawn from it.

    fields: the table of fields; see fields.py. base: two functions that read and write fields which it shares with
    other families, if these are in no table. only: values of fields that can have no other. as_today(fields): these as
    the newest files have them. usual: values of fields that are missing. more_ours(fields, found, head, stored) returns
    what no table says of our config, found being what they say; more_theirs(config) of config.json. ignored: fields
    that change nothing. of_head: {head: the class of its configs}, where that is not the recipe.

    heads: {head: the name of its last map in a file}, where that is not the usual name. prefixes: {head: the prefix},
    where another precedes it. class_pooler: f in a classifier. computed(config): tensors of its files that we compute;
    they are written. in_gguf: how it lies in a .gguf file, if that is read. reads: what its models read. whole: the
    model of more than texts that its models are a part of. for_training(config): patterns of tensors that serve
    training alone.
    """

    model_type: str
    prefix: str
    recipe: type[Any]
    architectures: Mapping[str, str]
    fields: str
    names: str | Callable[[Any], str]
    _: KW_ONLY
    adds: str
    small: Mapping[str, Any]
    as_today: Callable[[Fields], Fields] = lambda fields: fields
    base: tuple[Callable[[Fields], Found], Callable[[Any], Found]] = (lambda fields: {}, lambda config: {})
    usual: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    of_head: Mapping[str, type[Any]] = field(default_factory=dict)
    more_ours: Callable[[Fields, Found, str, Stored], Found] = lambda fields, found, head, stored: {}
    more_theirs: Callable[[Any], Found] = lambda config: {}
    class_pooler: str = "tanh"
    ignored: str = ""
    computed: Callable[[Any], dict[str, np.ndarray]] = lambda config: {}
    heads: Mapping[str, str] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    in_gguf: InGguf | None = None
    reads: str = "texts"
    whole: Whole | None = None
    for_training: Callable[[Any], str] = lambda config: ""

    def example(self, head: str | None = None) -> tuple[Config, str]:
        """The config of a small model, and its head, by default the one that predicts tokens."""
        heads = self.architectures.values()
        head = head or next(kind for kind in (WORDS, MASKED, BODY) if kind in heads)
        return self.read(Fields(self.small), head, {}), head

    def ours(self, fields: Fields, head: str, stored: Stored) -> Config:
        """The config of a body with this head. Without an output, as in a body alone, that counts as tied."""
        fields.only(**self.only)
        for name, n in fields.document.items():
            if name.endswith(("layer", "layers")) and type(n) is int and n < 1 << 64:
                check_layers(n, max(len(stored), _MOST_LAYERS), len(stored))
        fields = self.as_today(fields).otherwise(**self.usual)
        read_base, _ = self.base
        found = read_base(fields)
        found |= fields.read(self.fields)
        found |= self.more_ours(fields, found, head, stored)
        if head == BODY and WORDS in self.architectures.values():
            found["tie_output"] = True
        return self.of_head.get(head, self.recipe)(**found)

    def theirs(self, config: Any) -> Found:
        """The fields of config.json for the config of a body."""
        _, write_base = self.base
        return {**write_base(config), **written(config, self.fields), **self.more_theirs(config)}

    def read(self, fields: Fields, head: str, stored: Stored) -> Config:
        """Our config of a config.json with this head. Raises ValueError for one that we cannot build."""
        config = self.ours(fields, head, stored)
        fields.nothing_else(self.ignored)
        if (head != CLASSES and head not in HEADS) or hasattr(config, "n_classes"):
            return config
        name = f"{self.last_map(head)}.weight"
        if name not in stored or len(stored[name].shape) != 2 or 0 in stored[name].shape:
            raise ValueError(f"{name} must be the matrix (classes, width) of the head")
        n_classes = stored[name].shape[0]
        if n_classes != _COLUMNS.get(head, n_classes):
            raise ValueError(f"{name} must have {_COLUMNS[head]} rows, got {n_classes}")
        if head == CLASSES and type(config) is TextEncoderConfig:
            sizes = dataclasses.asdict(config) | {"pooler": self.class_pooler}
            return TextClassifierConfig(**sizes, n_classes=n_classes)
        return HeadConfig.of(config, head, n_classes)

    def last_map(self, head: str) -> str:
        """The name that the last map of a classifier, or of one of HEADS, has in a file."""
        of_classes = "score" if WORDS in self.architectures.values() else "classifier"
        return self.heads.get(head, "qa_outputs" if head == ANSWERS else of_classes)

    def before_body(self, head: str) -> str:
        """What precedes the names of the body in a model with this head; a body alone has nothing."""
        return "" if head == BODY else self.prefixes.get(head, self.prefix)

    def build(self, config: Config, head: str, rng: Rng) -> Pretrained:
        """A model of this config with this head."""
        if not hasattr(config, "build"):  # an encoder, which has several heads
            return MaskedLanguageModel(config, rng) if head == MASKED else TextEncoder(config, rng)
        return config.build(rng)

    def layout(self, model: Pretrained, prefix: str = "") -> Layout:
        """Where the parameters of a model lie in a file. prefix: precedes the names of the body there."""
        config, head = body_of(model.config), head_of(model)
        table = self.names if isinstance(self.names, str) else self.names(config)
        table = re.sub(r"\bT:(\w+)", lambda mark: f"T{getattr(config, mark[1])}", table)
        if head == CLASSES or head in HEADS:
            table += f"\n/{self.last_map(head)} T head"
        return layout(_as_named(model), lines(table, prefix))


def check_layers(n_layers: int, at_most: int, n_tensors: int) -> None:
    """Refuse more layers than a file can hold, before anything counts them."""
    if n_layers > at_most:
        raise ValueError(f"{n_layers} layers are more than the {n_tensors} tensors of the file hold")


def head_of(model: Pretrained) -> str:
    """Which head a model of ours has."""
    kinds: dict[type[Any], str] = {TextEncoder: BODY, MaskedLanguageModel: MASKED, Classifier: CLASSES}
    kinds |= {ImageClassifier: CLASSES, ImageEncoder: BODY, ImageTextModel: BODY}
    usual = next((head for kind, head in kinds.items() if isinstance(model, kind)), WORDS)
    return getattr(model.config, "head", usual)


def body_of(config: Config) -> Config:
    """The config of the body, where a model has a head on top of one."""
    return config.body if isinstance(config, HeadConfig) else config


def _as_named(model: Pretrained) -> dict[str, Parameter]:
    """The parameters by their names in tables: what is read as a whole has those of the model that writes."""
    parameters = dict(model.parameters())
    plain = getattr(getattr(model, "encoder", None), "names_in_tables", {})

    def renamed(name: str) -> str:
        of_ours = next((old for old in plain if name.startswith(f"{old}.")), "")
        return plain[of_ours] + name[len(of_ours) :] if of_ours else name

    return {renamed(name): parameter for name, parameter in parameters.items()}
