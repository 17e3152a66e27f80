"""The search finds what the chapters say."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from .conftest import Open

# Ten words in a row from the middle of a chapter's paragraphs and lists without formulas, as they are read.
WORDS = """
() => {
  const all = [...document.querySelectorAll("article p, article li")];
  const texts = all.filter((each) => !each.closest("form, nav, details, .note") && !each.querySelector("math"));
  const long = texts.map((each) => each.textContent.trim().split(/\\s+/)).filter((words) => words.length >= 10);
  return long[Math.floor(long.length / 2)].slice(-10).join(" ");
}
"""
FOUND = "links => links.map((link) => link.getAttribute('href').split('#')[0])"


def found(page: Page, words: str) -> list[str]:
    page.locator("#question").fill(words)
    page.wait_for_function("words => byId('results').dataset.question === words", arg=words)
    links: list[str] = page.locator("#results a").evaluate_all(FOUND)
    return links


def test_a_chapter_is_found_by_ten_words_from_its_middle(visit: Open, site_folder: Path) -> None:
    search, reader = visit("search.html"), visit("index.html")
    chapters = sorted(path.name for path in (site_folder / "chapters").glob("[0-9]*.html"))[::5]
    first = {}
    for name in chapters:
        reader.goto(reader.url.rpartition("/")[0].removesuffix("/chapters") + f"/chapters/{name}")
        words = reader.evaluate(WORDS)
        assert len(words.split()) == 10
        first[name] = found(search, words)[:1]
    assert first == {name: [f"chapters/{name}"] for name in chapters} and len(chapters) >= 4


SAID = {"saturated": "07_attention", "backup heads": "18_cause", "vanishing gradient": ""}
FIRST = {
    "KV cache": "14_kv_cache",
    "positional encoding": "12_embeddings_and_positions",
    "BPE": "12_embeddings_and_positions",
    "keepdims": "02_vector_jacobian_products",
    "multi head": "09_heads_and_memory",
    "multi-head": "09_heads_and_memory",
    "query key value": "06_attention_by_hand",
    "attention weights": "06_attention_by_hand",
    "scaling factor": "06_attention_by_hand",
    "log softmax": "03_softmax",
    "NaN": "03_softmax",
    "logits": "05_cross_entropy",
    "gradient check": "01_finite_differences",
    "autograd": "02_vector_jacobian_products",
    "embedding": "12_embeddings_and_positions",
    "tokenizer": "12_embeddings_and_positions",
    "teacher forcing": "13_three_models",
    "GPT": "13_three_models",
    "beam search": "14_kv_cache",
    "state space": "state_space",
    "softmax derivative": "04_softmax_backward",
    "why divide by sqrt d": "06_attention_by_hand",
    "what is a query": "06_attention_by_hand",
    "numerical stability": "03_softmax",
    "matrix multiplication gradient": "02_vector_jacobian_products",
    "layer norm backward": "10_layer_norm",
    "pre-norm vs post-norm": "11_residuals_and_depth",
    "weight tying": "12_embeddings_and_positions",
    "translation": "13_three_models",
    "multi-query": "21_cheaper_attention",
    "pipeline parallel": "23_many_machines",
}


def test_what_chapters_say_is_found_and_the_names_of_the_field_find_their_chapter(visit: Open) -> None:
    page = visit("search.html")
    for words, chapter in SAID.items():
        assert any(link.startswith(f"chapters/{chapter}") for link in found(page, words))
    for words, first in FIRST.items():
        links = found(page, words)
        assert links[0] == f"chapters/{first}.html"
        teachers = [link.startswith("teachers/") for link in links]
        assert teachers == sorted(teachers)  # after all that students read
        told = page.locator("#results").inner_text()
        assert "$" not in told and "\\" not in told


def test_with_no_place_for_all_words_those_with_the_most_are_shown(visit: Open) -> None:
    page = visit("search.html")
    assert any("chapters/18" in link for link in found(page, "backup heads zyxwv"))
    assert "No place has all of these words" in page.inner_text("#count")
    assert found(page, "zyxwv") == [] and page.inner_text("#count") == "Nothing found"


def test_what_is_searched_for_is_text_and_is_marked(visit: Open) -> None:
    page = visit("search.html?q=%3Cb%3E%20softmax%20.*(")
    assert page.locator("#results b").count() == 0 and page.locator("#results mark").count() > 0


def softmax_typed(page: Page) -> Locator:
    """The links that the header shows."""
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    return page.locator("header .found a")


def test_places_are_shown_while_one_types_and_counted_politely(visit: Open) -> None:
    page = visit("chapters/06_attention_by_hand.html")
    links = softmax_typed(page)
    expect(links).to_have_count(8)
    expect(page.locator("header [role=status]")).to_have_text(re.compile(r"^\d+ found, the best 8 shown$"))
    page.keyboard.type(" backward zyxwv", delay=20)
    expect(page.locator("header [role=status]")).to_have_text(re.compile("No place has all"))
    page.keyboard.press("Escape")
    expect(links).to_have_count(0)
    expect(page.locator("header input")).to_be_focused()


def test_arrow_keys_lead_through_what_is_found_and_back(visit: Open) -> None:
    page = visit("index.html")
    links = softmax_typed(page)
    expect(links).not_to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator("header input")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda address: "index.html" not in address)


def test_nothing_found_covers_the_page_once_the_search_is_left(visit: Open) -> None:
    page = visit("index.html", viewport={"width": 390, "height": 800})
    page.locator("header input").fill("softmax")
    expect(page.locator("header .found a")).to_have_count(8)
    box = page.locator("header .found").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.mouse.click(5, 790)
    expect(page.locator("header .found a")).to_have_count(0)


def test_an_announcement_waits_for_a_pause(visit: Open) -> None:
    page = visit("search.html")
    page.evaluate("""() => { window.told = []; new MutationObserver(() => told.push(byId("count").textContent))
      .observe(byId("count"), { childList: true }); }""")
    page.locator("#question").press_sequentially("softmax", delay=5)
    page.wait_for_function("() => byId('results').dataset.question === 'softmax'")
    assert len(page.evaluate("told")) < 4


def test_a_chapter_comes_first_and_each_page_once(visit: Open) -> None:
    page = visit("index.html")
    page.locator("header input").fill("softmax")
    links = page.locator("header .found a")
    expect(links).to_have_count(8)
    pages = links.evaluate_all(FOUND)
    assert pages[0] == "chapters/03_softmax.html" and len(set(pages)) == 8
    assert "Softmax (exercise)" in links.all_inner_texts()


def test_the_search_works_beside_the_scripts_of_each_kind_of_page(visit: Open, site: str) -> None:
    page = visit("index.html")
    for path in (
        "index.html",
        "chapters/06_attention_by_hand.html",
        "exercises/softmax_backward.html",
        "code/core-ops-attention.html",
        "reference/ops.html",
        "teachers/worksheets.html",
        "search.html?q=heads",
    ):
        page.goto(site + path)
        page.locator("header input").fill("saturated")
        expect(page.locator("header .found a").first).to_be_visible()
