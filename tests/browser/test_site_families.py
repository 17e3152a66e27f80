"""Two families side by side: chosen with the keyboard, told in words, and readable on a telephone."""

import re

from playwright.sync_api import expect

from .conftest import Open


def test_the_page_is_found_and_says_which_boxes_differ(visit: Open) -> None:
    page = visit("index.html", viewport={"width": 390, "height": 800})
    page.get_by_role("link", name="Two published models side by side").click()
    first, second, told = page.get_by_label("First"), page.get_by_label("Second"), page.locator("#differ")
    for one, other, words in (
        ("llama", "qwen3", "2 of 8 boxes differ: Turns queries and keys; Mixes the positions."),
        ("llama", "gemma", "3 of 8 boxes differ: Normalises; Feeds forward; After the last layer."),
        ("mistral", "qwen2", "All 8 boxes have the same parts."),
        ("bert", "bert", "This is one family twice."),
        ("bart", "gpt2", "gpt2 has no encoder."),
    ):
        first.select_option(one)
        second.select_option(other)
        expect(told).to_contain_text(words)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    first.focus()
    page.keyboard.press("ArrowDown")  # from bart to mbart, whose norms come first
    expect(told).to_contain_text("gpt2 has no encoder.")
    expect(page).to_have_url(re.compile("#mbart/gpt2$"))


def test_an_address_names_two_families_and_each_part_leads_to_its_code(visit: Open) -> None:
    page = visit("families.html#gemma2/olmo2")
    assert [page.get_by_label(name).input_value() for name in ("First", "Second")] == ["gemma2", "olmo2"]
    box = page.get_by_role("listitem").filter(has_text="Works in this order")
    expect(box).to_contain_text("a = x + norm(attention(norm(x)))")
    expect(box).to_contain_text("a = x + norm(attention(x))")
    page.locator("#figure").get_by_role("link", name="SoftCapped").first.click()
    expect(page.locator("#SoftCapped")).to_be_visible()


def test_without_scripts_the_table_stands(visit: Open) -> None:
    page = visit("families.html", java_script_enabled=False)
    assert page.locator("#compare").is_hidden()
    assert page.get_by_role("row").filter(has_text="qwen3_next").get_by_role("link", name="GatedDeltaNet").is_visible()
