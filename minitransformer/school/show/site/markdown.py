"""Markdown as HTML. Formulas become MathML here, when the site is built: showing them needs no script."""

from __future__ import annotations

import functools
import html
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_CODE = re.compile(r"`([^`]+)`")
_TAGS = re.compile(r"<[^>]*>")
_TABLE = '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>\n'
_EMPTY = re.compile(r"<th([^>]*)></th>")
_SHORT = 30  # characters of a formula that fit on a phone
CHAPTERS = "../chapters/"  # where the pages of chapters are, from each page that shows text of a notebook
PREDICT = "Predict first"  # in bold, it asks the reader for an answer before showing what follows


def render(text: str) -> str:
    """The text as HTML. HTML in it appears as text. A link to another file becomes plain text: it has no page."""
    return without_empty_headings(_parser().render(text))


def without_empty_headings(text: str) -> str:
    """HTML whose tables have an empty cell in the place of a heading that says nothing."""
    return _EMPTY.sub(r"<td\1></td>", text)


def headings(text: str) -> list[tuple[int, str, str]]:
    """(level, id, text) of each heading, with the ids that `render` gives them."""
    tokens = _parser().parse(text)
    pairs = itertools.pairwise(tokens)
    return [
        (int(opening.tag[1]), str(opening.attrs.get("id", "")), _plain(inline.children or []))
        for opening, inline in pairs
        if opening.type == "heading_open"
    ]


def shown(text: str) -> str:
    """The text as a reader sees it, with the letters of its formulas, for the search."""
    return html.unescape(_TAGS.sub(" ", render(text).replace("</", " </")))


def sections(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each section below the title of a page: id and text of its heading, "" before the first, and its prose."""
    name, heading, found = "", "", list[str]()
    for part in (part for text in texts for part in re.split(r"^(?=#)", text, flags=re.MULTILINE)):
        if top := [each for each in headings(part.partition("\n")[0]) if each[0] > 1]:
            yield name, heading, " ".join(found)
            (_, name, heading), found = top[0], []
        found.append(shown(part))
    yield name, heading, " ".join(found)


def plain(text: str) -> str:
    """The text without its marks, with the letters of its formulas."""
    inline = (token.children or [] for token in _parser().parse(text) if token.type == "inline")
    return " ".join(_plain(children) for children in inline)


def _plain(children: list[Any]) -> str:
    return "".join(map(_text, children))


def _text(child: Any) -> str:
    if child.type.startswith("math"):
        return html.unescape(_TAGS.sub("", formula(child.content, False)))
    return " " if child.type == "softbreak" else child.content


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.use(dollarmath_plugin, renderer=lambda tex, how: formula(tex, how["display_mode"]), double_inline=True)
    parser.use(anchors_plugin, max_level=3)
    parser.core.ruler.push("links", _without_files)
    parser.add_render_rule("table_open", lambda *_: _TABLE)
    parser.add_render_rule("math_block", _block)
    parser.add_render_rule("code_block", _code)
    parser.add_render_rule("fence", _code)
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


@functools.lru_cache(maxsize=4096)
def formula(tex: str, display: bool) -> str:
    """A formula of LaTeX as MathML."""
    from latex2mathml.converter import convert

    # The library knows `align`, which is `aligned` for a formula of its own.
    known = tex.strip().replace("{aligned}", "{align*}")
    return convert(known, display="block" if display else "inline")


def _block(_: Any, tokens: Any, i: int, *__: Any) -> str:
    """A formula of its own line; one that can be wider than a phone is a region that scrolls."""
    made = formula(tokens[i].content, True)
    wide = len(html.unescape(_TAGS.sub("", made))) + 4 * made.count("<mspace") > _SHORT
    scrolls = ' tabindex="0" role="group" aria-label="Formula"' if wide else ""
    return f'<div class="math block"{scrolls}>{made}</div>\n'


def _code(_: Any, tokens: Any, i: int, *__: Any) -> str:
    return f'<pre tabindex="0"><code>{html.escape(tokens[i].content)}</code></pre>\n'


def _without_files(state: Any) -> None:
    """Turn links to files of the repository into their text."""
    for token in state.tokens:
        leads_away = False  # a link has no other in it
        for child in token.children or []:
            if child.type == "link_open":
                leads_away = not str(child.attrs["href"]).startswith(("#", "https://", "http://", CHAPTERS))
            if child.type in ("link_open", "link_close") and leads_away:
                child.tag, child.attrs = "span", {}


def docstring(text: str) -> str:
    """A docstring as HTML: paragraphs, with `code`, and what is indented as lines of their own."""
    out = []
    for block in text.strip().split("\n\n") if text else ():
        lines = block.split("\n")
        if all(line.startswith("    ") or not line for line in lines):
            out.append(f'<pre class="formula" tabindex="0">{html.escape(block)}</pre>')
        else:
            marked = _CODE.sub(r"<code>\1</code>", html.escape(block))
            out.append(f"<p>{marked}</p>")
    return "\n".join(out)
