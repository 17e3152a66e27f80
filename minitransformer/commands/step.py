"""`minitransformer step`: walk through an example line by line."""

from typing import Any

from ..school.show.stepper import drawing, terminal
from ..school.show.stepper.command import step_text
from ..school.show.stepper.examples import ALSO_CALLED, EXAMPLES
from . import Options, UsageError
from .common import known_as, listed, progress_bar


def main(options: Options) -> int:
    if options.example is None:
        if options.model is not None:
            raise UsageError("--model needs a text that the model reads, in quotes")
        return listed(EXAMPLES)
    labels: dict[str, Any] = {}
    how: dict[str, Any] = {"verify": options.verify, "progress": progress_bar("check", "gradient")}
    if options.model is not None:
        place = (options.layer, options.head)
        read = step_text(options.model, options.example, *place, options.device, **how, seed=options.seed)
        recording, labels = read.recording, read.labels()
    elif options.layer is not None or options.head is not None:
        raise UsageError("--layer and --head choose a part of a model: give the model with --model DIR")
    else:
        example = EXAMPLES[example_called("step", options.example)]
        recording = example.record(options.seed, options.device, **how)
    if options.html is not None:
        recording.to_html(options.html, **labels, progress=progress_bar("page", "mistake"))
    if options.json:
        print(recording.to_json())
    elif options.html is not None:
        print(f"wrote {options.html}")
    elif terminal.can_view():
        terminal.view(recording, options.all)
    else:
        for axis in ("tokens", "memory"):
            if names := labels.get(axis):
                print(f"{axis}: {', '.join(f'{i} {name}' for i, name in enumerate(names))}")
        print(drawing.plain(recording, options.all, terminal.colours()))
    return 0 if recording.report is None or recording.report.ok else 1


def example_called(command: str, name: str) -> str:
    """The example of this name, which may also be a name that papers use for it. Raises UsageError."""
    plain = name.lower().replace("_", "-").replace(" ", "-")
    return ALSO_CALLED.get(plain) or known_as(command, name, list(EXAMPLES))
