"""What a run writes into its folder: the log and its picture, checkpoints, and the model."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...core.arrays.files import write
from ...core.models import folder as model_folder
from . import checkpoint
from .checkpoint import Checkpoint
from .locks import write_figure

Say = Callable[[str], None]


class RunFolder:
    """The folder of a run. writes: false on every rank but the first, where each method that writes does nothing."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self._writes = path, writes

    @contextlib.contextmanager
    def open(self, step: int, say: Say) -> Iterator[None]:
        """Inside this context `log` and `draw` may be called. The log goes on after this step; later lines are cut off.

        say: gets a warning if the picture cannot be drawn.
        """
        if not self._writes:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.glob(".*.tmp"):  # from a run that was killed while it wrote
            leftover.unlink()
        log, self._say = self.path / "log.jsonl", say
        self._records = [record for record in read_log(log) if record["step"] <= step] if step else []
        write(log, "".join(json.dumps(record) + "\n" for record in self._records))
        with log.open("a", encoding="utf-8") as self._file:
            yield

    def log(self, record: dict[str, Any]) -> None:
        """Add a line to log.jsonl."""
        if self._writes:
            self._records.append(record)
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def draw(self) -> None:
        """Draw curves.png. If that fails, warn once and continue training: the log contains the same data."""
        if not self._writes:
            return
        from .curves import learning_curves  # here, because it imports matplotlib

        try:
            write_figure(self.path / "curves.png", learning_curves(self._records))
        except OSError as error:
            self._say(f"warning: {error}; training continues without it")
            self._say = lambda line: None

    def save_model(self, model: model_folder.Model) -> None:
        """The model that every later command loads."""
        if self._writes:
            model_folder.save(model, self.path)

    def save(self, state: Checkpoint, keep: Sequence[int]) -> None:
        """A checkpoint; of the earlier ones only those of the steps in `keep` stay."""
        if self._writes:
            checkpoint.save(self.path, state, keep)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log. A last line that was cut off, for example by a crash, is left out.

    Raises ValueError, which names the file, if another line is not a record.
    """
    if not path.is_file():
        return []
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; move it away to continue without it") from error
    if not all(isinstance(record, dict) and type(record.get("step")) is int for record in records):
        raise ValueError(
            f'{path} is damaged: every line must be an object with "step"; move it away to continue without it'
        )
    return records
