"""A run: the settings of data, model and training, saved in the folder as run.json, and how they become a trainer."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...core.arrays.backend import to_numpy
from ...core.arrays.files import read_json, write
from ...core.models.folder import save_tokenizers, tokenizers
from ...core.training import Accelerate, as_written
from ..tasks import TASKS
from ..tasks.shards import INDEX
from ..tasks.task import RUN, Task
from .parallel.group import ALONE, Group, same_everywhere
from .recipes import of_earlier_run, recipe_name, with_recipe
from .settings import TrainingSettings
from .trainer import Outcome, Trainer

_FORMAT = 1
_WEIGHTS = 2  # the stream of random numbers for initial weights; the loop uses 0 and 1
_LARGE = 20_000_000  # parameters: a step of batches as presets have them takes many seconds on a processor


@dataclass(frozen=True)
class Run:
    """The settings of one run of a task, with its recipe. model: the fields of the config that the data leave open."""

    task: Task
    data: Any
    model: Mapping[str, Any]
    training: TrainingSettings

    def trainer(
        self,
        folder: Path,
        device: str,
        say: Callable[[str], None],
        resume: bool = False,
        accelerate: Accelerate = as_written,
        group: Group = ALONE,
    ) -> Trainer:
        """Read and encode the data, make the model, and write run.json and the tokenizers into the folder.

        resume: use the tokenizers in the folder. accelerate, group: as in Trainer. Raises ValueError that names the
        rank and the difference, if a rank has other data, settings or versions than rank 0; nothing is written then.
        """
        rng = np.random.default_rng((self.training.seed, _WEIGHTS))
        sizes = {f.name: f.default for f in dataclasses.fields(self.task.config) if f.name not in self.task.from_data}
        prepared = self.task.prepare(self.data, sizes | dict(self.model), rng, tokenizers(folder) if resume else ())
        model = self.task.config(**self.model, **prepared.sizes).build(rng).to(device, "float32")
        for note in prepared.notes:
            say(note)
        # before anything is written, because it may refuse the settings
        trainer = Trainer(model, prepared.training, prepared.validation, self.training, folder, accelerate, group)
        self._same_on_every_rank(model, group)
        n_parameters = sum(parameter.value.size for parameter in dict(model.parameters()).values())
        small = [name for name in self.task.presets if name.endswith("-cpu")]
        slow = small and device == "numpy" and n_parameters > _LARGE
        say(f"{n_parameters:,} parameters" + (f", many for a processor; --preset {small[0]} has fewer" if slow else ""))
        if group.rank:
            return trainer
        folder.mkdir(parents=True, exist_ok=True)
        save_tokenizers(folder, prepared.tokenizers, prepared.labels)
        self.save(folder)
        return trainer

    def _same_on_every_rank(self, model: Any, group: Group) -> None:
        """Compare what the ranks train with. The path of a file may differ between machines, but not its content."""
        if group.size == 1:
            return
        fields = dataclasses.asdict(self.data)
        named = {f.name: fields.pop(f.name) for f in dataclasses.fields(self.data) if f.metadata.get("file")}
        digests, weights = self.files(), hashlib.sha256()
        for _, parameter in model.parameters():
            weights.update(to_numpy(parameter.value).tobytes())
        facts = {"version": __version__, "task": self.task.name, **fields, **self.model}
        facts |= {"recipe": recipe_name(self.task)} | dataclasses.asdict(self.training)
        facts |= {f"content of {name}": digests[path][:12] if path else None for name, path in named.items()}
        facts["first weights"] = weights.hexdigest()[:12]
        same_everywhere(group, {name: str(fact) for name, fact in facts.items()})

    def save(self, folder: Path) -> None:
        """Write run.json."""
        document = {
            "format": _FORMAT,
            "task": self.task.name,
            "recipe": recipe_name(self.task),
            "data": dataclasses.asdict(self.data),
            "model": dict(self.model),
            "training": dataclasses.asdict(self.training),
            "files": self.files(),
        }
        write(folder / RUN, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def files(self) -> dict[str, str]:
        """The data files that are read, each with the SHA-256 of its content."""
        fields = dataclasses.asdict(self.data)
        paths = [fields[f.name] for f in dataclasses.fields(self.data) if f.metadata.get("file") and fields[f.name]]
        found = {}
        for path in paths:
            file = Path(path) / INDEX if Path(path).is_dir() else Path(path)  # which has the digests of all shards
            if not file.is_file():
                raise FileNotFoundError(f"there is no file {file}")
            found[path] = hashlib.sha256(file.read_bytes()).hexdigest()
        return found


def load(folder: Path) -> Run:
    """The run of a folder. Raises ValueError if its data have changed since it began."""
    path = folder / RUN
    if not path.is_file():
        raise FileNotFoundError(f"there is no run in {folder}: {RUN} is missing")
    try:
        document = read_json(path)
        if document["format"] != _FORMAT:
            raise ValueError(f'"format" must be {_FORMAT}, got {document["format"]!r}')
        task, recipe, model = TASKS[document["task"]], document.get("recipe"), dict(document["model"])
        if recipe is None:
            recipe, model = of_earlier_run(task, model)
        training = TrainingSettings(**document["training"])
        run = Run(with_recipe(task, recipe), task.data(**document["data"]), model, training)
        began_with = dict(document["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not describe a run: {error}") from error
    changed = [name for name, digest in run.files().items() if began_with.get(name) != digest]
    if changed:
        raise ValueError(f"{', '.join(changed)} changed since the run in {folder} began; start one in another folder")
    return run


def closing_line(outcome: Outcome, folder: Path) -> str:
    """One line that says how a run ended."""
    if outcome.ended == "interrupted":
        return (
            f"stopped after step {outcome.step}, saved; add --resume to the same command to continue; "
            f"the model so far is in {folder}"
        )
    return f"{outcome.ended} after step {outcome.step}; validation loss {outcome.loss:.4f}; model in {folder}"
