"""The search finds what the chapters say."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from .conftest import Open

pytestmark = pytest.mark.browser

# Ten words in a row from the middle of a chapter's paragraphs and lists, as they are read.
WORDS = """
() => {
  const all = [...document.querySelectorAll("article p, article li")];
  const texts = all.filter((each) => !each.closest("form, nav, details, .note"));
  const long = texts.map((each) => each.textContent.trim().split(/\\s+/)).filter((words) => words.length >= 10);
  return long[Math.floor(long.length / 2)].slice(-10).join(" ");
}
"""
FOUND = "links => links.map((link) => link.getAttribute('href').split('#')[0])"


def found(page: Page, words: str) -> list[str]:
    page.locator("#question").fill(words)
    links: list[str] = page.locator("#results a").evaluate_all(FOUND)
    return links


def test_each_chapter_is_found_by_ten_words_from_its_middle(visit: Open, site_folder: Path) -> None:
    search, reader = visit("search.html"), visit("index.html")
    chapters = sorted(path.name for path in (site_folder / "chapters").glob("[0-9]*.html"))
    first = {}
    for name in chapters:
        reader.goto(reader.url.rpartition("/")[0].removesuffix("/chapters") + f"/chapters/{name}")
        words = reader.evaluate(WORDS)
        assert len(words.split()) == 10
        first[name] = found(search, words)[:1]
    assert first == {name: [f"chapters/{name}"] for name in chapters} and len(chapters) >= 23


@pytest.mark.parametrize(
    ("words", "chapter"),
    [("saturated", "07_attention"), ("backup heads", "18_cause"), ("vanishing gradient", "")],
)
def test_words_that_chapters_say_are_found(visit: Open, words: str, chapter: str) -> None:
    assert any(link.startswith(f"chapters/{chapter}") for link in found(visit("search.html"), words))


def test_with_no_place_for_all_words_those_with_the_most_are_shown(visit: Open) -> None:
    page = visit("search.html")
    assert any("chapters/18" in link for link in found(page, "backup heads zyxwv"))
    assert "No place has all of these words" in page.inner_text("#count")
    assert found(page, "zyxwv") == [] and page.inner_text("#count") == "Nothing found"


def test_what_is_searched_for_is_text_and_is_marked(visit: Open) -> None:
    page = visit("search.html?q=%3Cb%3E%20softmax%20.*(")
    assert page.locator("#results b").count() == 0 and page.locator("#results mark").count() > 0
