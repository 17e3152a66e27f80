"""Reading the config.json of a published model, and writing one. Each field is checked; an error names the field.

A field that nobody asks for is refused: it might change what the model computes. Known not to: those of `_HARMLESS`.

A table states each field once, for reading and for writing: its name in config.json, its kind, and our name. An
optional field also has a default: a JSON value, or the name of the field of ours whose value it takes. The kinds are
methods of Fields. A later line replaces an earlier one for the same field of ours: see GENERAL, which others change.

    hidden_size            size        d_model
    hidden_act             activation  activation    "gelu"
    num_key_value_heads    size        n_key_heads   n_heads
"""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_LARGEST = 1 << 40  # the largest size; before any allocation, the sizes are compared with the file
# Fields of any model, or patterns of them, that change nothing in an output without dropout.
_HARMLESS = """
model_type architectures dtype torch_dtype transformers_version transformers.* _* unsloth_* tokenizer_class
model_max_length max_seq_length extra_special_tokens id2label label2id num_labels problem_type task_specific_params
finetuning_task total_flos prefix auto_map eos_token_ids use_bfloat16
*drop *dropout *dropout_prob *layerdrop initializer_range initializer_factor init_std gradient_checkpointing save_step
use_cache cache_implementation chunk_size_feed_forward return_dict output_attentions output_hidden_states
output_past output_scores output_router_logits router_aux_loss_coef torchscript is_encoder_decoder
*_token_id bad_words_ids force_bos_token_to_be_generated do_sample early_stopping num_beams num_beam_groups
num_return_sequences diversity_penalty repetition_penalty length_penalty temperature top_k top_p typical_p
*max_length *min_length *no_repeat_ngram_size remove_invalid_values suppress_tokens begin_suppress_tokens
""".split()


GENERAL = """
vocab_size               size        vocabulary
hidden_size              size        d_model
num_attention_heads      size        n_heads
intermediate_size        size        d_ff
num_hidden_layers        size        n_layers
max_position_embeddings  size        max_length         2048
attention_dropout        rate        attention_dropout
hidden_act               activation  activation         "silu"
tie_word_embeddings      flag        tie_output         false
"""


class Fields:
    """The fields of a config.json. A missing field, a wrong type or a value out of range raises ValueError.

    asked: the names of the fields that were read.
    """

    def __init__(self, document: Mapping[str, Any], asked: set[str] | None = None) -> None:
        self.document = document
        self.asked: set[str] = set() if asked is None else asked

    def otherwise(self, **defaults: Any) -> Fields:
        """These fields, with defaults for missing ones."""
        return Fields({**defaults, **self.document}, self.asked)

    def instead(self, **changes: Any) -> Fields:
        """These fields, some with other values."""
        return Fields({**self.document, **changes}, self.asked)

    def get(self, name: str, default: Any = None) -> Any:
        """A field as it stands there."""
        self.asked.add(name)
        return self.document.get(name, default)

    def nothing_else(self, ignored: str = "", place: str = "config.json") -> None:
        """Require that nothing is there that was not read: null, empty, harmless and ignored fields aside."""
        harmless = [*_HARMLESS, *ignored.split()]
        rest = {
            name: value
            for name, value in self.document.items()
            if name not in self.asked
            and value not in (None, [], {})
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in harmless)
        }
        if rest:
            shown = ", ".join(f"{name[:60]} = {_short(value)}" for name, value in list(rest.items())[:5])
            raise ValueError(
                f"not understood in {place}: {shown}; it may change what the model computes. If you know that it "
                "changes nothing, delete it from the file"
            )

    def read(self, table: str) -> dict[str, Any]:
        """{our name: value} for all fields in a table: see above."""
        found: dict[str, Any] = {}
        for theirs, kind, ours, default in _rows(table):
            found[ours] = getattr(self, kind)(theirs, found[default] if default in found else json.loads(default))
        return found

    def of_gguf(self, table: str, kind: str, stored: Iterable[str]) -> dict[str, Any]:
        """Fields of config.json, as a family's table says how they lie in a .gguf file. kind: its name in the file.

        A line is the name of the field; a method of Fields, such as size; the name in the metadata after `kind`; and
        perhaps a default. Or the value itself: `norm_topk_prob = true`. Or a tensor that shows by being there that a
        flag is true: `attention_bias there blk.0.attn_q.bias`, where * stands for anything.
        """
        found: dict[str, Any] = {}
        for line in filter(str.strip, table.splitlines()):
            name, how, place, *default = line.split()
            if how == "there":
                found[name] = bool(fnmatch.filter(stored, place))
            elif how == "=":
                found[name] = json.loads(place)
            else:
                found[name] = getattr(self, how)(f"{kind}.{place}", *map(json.loads, default))
        return found

    def size(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1."""
        return self._checked(name, default, f"an integer from 1 to {_LARGEST}", lambda n: 1 <= n <= _LARGEST, int)

    def count(self, name: str, default: int = 0) -> int:
        """An integer of at least 0."""
        return 0 if self.get(name, default) == 0 else self.size(name, default)

    def size_or_none(self, name: str, default: int | None = None) -> int | None:
        """An integer of at least 1, or None where the field is null."""
        return None if self.get(name, default) is None else self.size(name, default)

    def positive_or_none(self, name: str, default: float | None = None) -> float | None:
        """A number above 0, or None where the field is null."""
        return None if self.get(name, default) is None else self.positive(name, default)

    def rate(self, name: str, default: float | None = None) -> float:
        """A dropout rate: at least 0 and below 1; 0 where the field is missing."""
        return float(self._checked(name, default or 0.0, "a rate from 0 to below 1", lambda x: 0.0 <= x < 1.0))

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        return float(self._checked(name, default, "a number above 0", lambda x: 0.0 < x < math.inf))

    def positives(self, name: str) -> list[float]:
        """A list of numbers above 0."""
        found = self._get(name, None)
        if not isinstance(found, list) or not all(type(x) in (int, float) and 0.0 < x < math.inf for x in found):
            raise ValueError(f"{name} must be a list of numbers above 0, got {_short(found)}")
        return [float(x) for x in found]

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or False."""
        return self._checked(name, default, "true or false", lambda _: True, bool)

    def _checked(self, name: str, default: Any, wanted: str, fits: Callable[[Any], bool], *types: type) -> Any:
        value = self._get(name, default)
        if type(value) not in (types or (int, float)) or not fits(value):
            raise ValueError(f"{name} must be {wanted}, got {_short(value)}")
        return value

    def choice(self, name: str, meanings: Mapping[str, Any], default: str) -> Any:
        """The meaning of a word; `meanings` has all that are allowed."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in meanings:
            raise ValueError(f"{name} {_short(value)} is not supported; one of {', '.join(meanings)} is")
        return meanings[value]

    def activation(self, name: str, default: str) -> Any:
        """Our name for an activation."""
        return self.choice(name, ACTIVATIONS, default)

    def only(self, **allowed: Any) -> None:
        """Require that a field has this value, or is null: any other value would change the mathematics."""
        for name, value in allowed.items():
            if (found := self.get(name)) is not None and found != value:
                raise ValueError(f"{name} {_short(found)} is not supported, only {_short(value)} is")

    def same(self, *names: str) -> None:
        """Require that these sizes are equal. A config can give them separately; our model has one size for all."""
        if len({self.size(name) for name in names}) > 1:
            raise ValueError(f"{' and '.join(names)} must be equal, got {[self.size(name) for name in names]}")

    def _get(self, name: str, default: Any) -> Any:
        value = self.get(name)
        if value is None and default is None:
            raise ValueError(f"{name} is missing")
        return default if value is None else value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "an integer of many digits"
    return text if len(text) <= 60 else text[:57] + "..."


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def their_activation(ours: str) -> str:
    """The name in config.json for one of our activations."""
    for theirs, meaning in ACTIVATIONS.items():
        if meaning == ours:
            return theirs
    raise ValueError(f"has no activation {ours!r}")


def written(config: Any, table: str) -> dict[str, Any]:
    """{their name: value} of a config, by a table of fields."""
    values = {theirs: (kind, getattr(config, ours)) for theirs, kind, ours, _ in _rows(table)}
    return {
        theirs: their_activation(value) if kind == "activation" else value for theirs, (kind, value) in values.items()
    }


_SMALL = {
    "vocabulary": 13, "source_vocabulary": 13, "target_vocabulary": 13, "max_length": 32, "d_model": 12, "n_heads": 3,
    "d_ff": 8, "n_layers": 2, "n_encoder_layers": 2, "n_decoder_layers": 2,
}  # fmt: skip


def small(table: str, **more: Any) -> dict[str, Any]:
    """The fields of a small model: of a table those that say how large it is; more: further ones, or other values."""
    return {theirs: _SMALL[ours] for theirs, _, ours, _ in _rows(table) if ours in _SMALL} | more


_GENERAL = {
    "d_model": "hidden_size", "n_heads": "num_attention_heads", "n_key_heads": "num_key_value_heads",
    "d_head": "head_dim", "d_ff": "intermediate_size", "n_layers": "num_hidden_layers",
    "n_encoder_layers": "num_hidden_layers", "max_length": "max_position_embeddings", "norm_eps": "rms_norm_eps",
}  # fmt: skip


def general(table: str) -> dict[str, str]:
    """{Llama's name: the name of a table of fields}, for those that Llama's config.json has; see InGguf."""
    return {_GENERAL[ours]: theirs for theirs, _, ours, _ in _rows(table) if ours in _GENERAL}


def _rows(table: str) -> Iterator[tuple[str, str, str, str]]:
    found = {}
    for line in filter(str.strip, table.splitlines()):
        theirs, kind, ours, *default = line.split()
        found[ours] = theirs, kind, ours, default[0] if default else "null"
    yield from found.values()
