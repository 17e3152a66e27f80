"""`minitransformer view`: a page that shows where a model looks."""

from ..school.show.viewer.command import view_text
from . import Options


def main(options: Options) -> None:
    shown = view_text(options.model, options.text, options.device, options.layer)
    shown.to_html(options.html)
    print(shown.title)
    print(f"wrote {options.html}")
