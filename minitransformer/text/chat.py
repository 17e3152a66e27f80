"""Chat templates: how a model wants a conversation written down, a program in Jinja that comes with its tokenizer.

It runs in Jinja's sandbox for programs that nobody vouches for: it can read what it is given, change nothing of it and
reach no file. How long it runs is not limited. So it is run only where a chat is asked for.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any


def render(template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """The text of a conversation, up to where the model answers. messages: each of a "role" and a "content".

    special: what the template knows by name, such as bos_token. Raises ModuleNotFoundError without Jinja, and
    ValueError where the template is wrong, or refuses these messages.
    """
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ModuleNotFoundError(
            'a chat template needs the library jinja2; install it: pip install "minitransformer[models]"'
        ) from error
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
    )
    sandbox.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.datetime.now().strftime(form)}
    try:
        return sandbox.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=True, **special
        )
    except Exception as error:  # of any kind: it is a program of others
        raise ValueError(f"the chat template fails: {type(error).__name__}: {str(error)[:200]}") from error


def _refuse(message: Any) -> None:
    raise ValueError(message)
