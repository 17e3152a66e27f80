"""The static site in a real browser, without Python: whole, quiet, small, accessible, and safe with what is typed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from minitransformer.course import EXERCISES
from minitransformer.school.show.site.exercises import write_exercises
from minitransformer.school.show.site.frame import Site
from minitransformer.school.show.site.notebook import places, read, read_ideas
from minitransformer.school.show.site.siblings import Siblings
from minitransformer.school.show.site.teachers import write_teachers

from .conftest import Open
from .site_server import ROOT
from .test_accessible import SITE

CHAPTER = "chapters/04_softmax_backward.html"


class Addresses(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value and tag != "base":
                self.links.append(value)
            if name == "id" and value:
                self.ids.append(value)


def broken_links(folder: Path) -> list[str]:
    pages = {path: Addresses(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        wrong += [f"{path}: id {name} twice" for name in page.ids if page.ids.count(name) > 1]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            is_step = fragment.startswith("step=")
            known = pages[target].ids if target in pages else []
            if not target.is_file() or (fragment and not is_step and fragment not in known):
                wrong.append(f"{path.relative_to(folder)}: {link}")
    return wrong


def test_links_are_whole_and_ids_unique(site_folder: Path) -> None:
    assert broken_links(site_folder) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html">b</a> <a href="#y">y</a> <a href="#x">x</a>')
    assert broken_links(tmp_path) == ["a.html: b.html", "a.html: #y"]


def test_no_page_complains_when_it_loads(visit: Open, site: str, site_folder: Path) -> None:
    """A script that looks for a part that is not there ends at once, and nothing after it happens. Of the pages in one
    folder, which are made alike, every twelfth."""
    page = visit("index.html")
    pages = sorted(path for path in site_folder.rglob("*.html") if "pyodide" not in path.parts)
    for i, path in enumerate(pages):
        if i % 12 and path.parent.name in ("code", "exercises", "chapters", "slides", "questions", "sheets"):
            continue
        page.goto(site + path.relative_to(site_folder).as_posix())
    assert len(pages) > 200


def test_pages_are_small(site_folder: Path) -> None:
    for path in site_folder.rglob("*.html"):
        limit = 2_000_000 if path.parent.name == "steppers" else 300_000
        assert path.stat().st_size < limit, path


def test_formulas_are_well_formed_and_hold_no_tex(site_folder: Path) -> None:
    n_formulas = 0
    for path in site_folder.rglob("*.html"):
        for formula in re.findall(r"<math.*?</math>", path.read_text(encoding="utf-8"), re.DOTALL):
            root = ElementTree.fromstring(formula.replace("&nbsp;", " "))
            assert not re.search(r"[\\&]", "".join(root.itertext())), (path, formula)
            n_formulas += 1
    assert n_formulas > 1000


def test_only_the_instructors_site_has_solutions_and_answers(site_folder: Path, tmp_path: Path) -> None:
    def of(folder: Path) -> tuple[int, bool, bool]:
        pages = "".join(path.read_text(encoding="utf-8") for path in (folder / "exercises").glob("*.html"))
        guide = (folder / "teachers" / "index.html").read_text(encoding="utf-8")
        sheets = (folder / "teachers" / "worksheets.html").read_text(encoding="utf-8")
        return pages.count("<summary>Solution</summary>"), "They believe" in guide, 'value="key"' in sheets

    def banners(folder: Path) -> list[bool]:
        pages = (path for path in folder.rglob("*.html") if path.parent.name != "sheets")  # these are printed
        return ["do not publish" in path.read_text(encoding="utf-8") for path in pages]

    def answers(folder: Path) -> list[str]:
        return [path.name for path in (folder / "sheets").iterdir() if "answers" in path.read_text(encoding="utf-8")]

    assert of(site_folder) == (0, False, False) and not any(banners(site_folder)) and not answers(site_folder)
    told = (site_folder / "teachers" / "index.html").read_text(encoding="utf-8")
    assert "minitransformer site --instructor" in told and "minitransformer exam --seed 7 --answers" in told
    instructors = Site(tmp_path, "pyodide/", "minitransformer.whl", instructor=True)
    chapters = read(ROOT / "notebooks")
    found = places([*chapters, *read_ideas()])
    write_exercises(instructors, found, Siblings.of(found))
    write_teachers(instructors, chapters, ROOT, "")
    assert of(tmp_path) == (len(EXERCISES), True, True) and all(banners(tmp_path))
    assert "examination-1-answers.html" in answers(tmp_path)


def test_no_page_shows_an_address_in_memory(site_folder: Path) -> None:
    """`silu at 0x7f84…`: such pages differed from build to build."""
    assert [path for path in site_folder.rglob("*.html") if " at 0x" in path.read_text(encoding="utf-8")] == []
    assert "= silu)" in (site_folder / "reference/ideas.html").read_text(encoding="utf-8")


def test_the_teachers_page_leads_to_its_parts_to_exercises_and_to_both_notebooks(site_folder: Path) -> None:
    page = (site_folder / "teachers" / "index.html").read_text(encoding="utf-8")
    contents = page.partition("</nav>\n<p>")[0]
    for name in ("Two weeks", "Twelve weeks", "One day", "Slides", "Notebooks to download"):
        assert re.search(f'<a href="#[^"]+">{name}</a>', contents)
    assert '<a href="../exercises/softmax_jacobian.html"><code>softmax_jacobian</code></a>' in page
    assert "are below" not in page and "comes with its key" not in page
    for name in ("student/07_attention_backward", "07_attention_backward_with_outputs"):
        assert f'href="../download/{name}.ipynb"' in page and (site_folder / "download" / f"{name}.ipynb").is_file()
    assert not (site_folder / "download" / "07_attention_backward.ipynb").exists()


def test_each_week_of_the_term_has_its_part_of_a_page(site_folder: Path) -> None:
    weeks = (site_folder / "teachers" / "weeks.html").read_text(encoding="utf-8")
    parts = re.split(r'<h2 id="week-(\d+)">', weeks)[1:]
    assert parts[::2] == [str(week) for week in range(1, 13)]
    fifth = parts[2 * 5 - 1]
    for needed in (
        "../chapters/07_attention_backward.html",
        "../slides/07_attention_backward.html",
        "Vaswani et al. 2017",
        "../exercises/attention_backward.html",
        "find a wrong term by its numbers",
    ):
        assert needed in fifth
    guide = (site_folder / "teachers" / "index.html").read_text(encoding="utf-8")
    assert [guide.count(f'<td><a href="weeks.html#week-{week}">{week}</a></td>') for week in range(1, 13)] == [2] * 12


def test_sheets_and_papers_are_printed_without_python(visit: Open) -> None:
    page = visit("teachers/worksheets.html", java_script_enabled=False)
    page.get_by_role("link", name="attention forward").click()
    assert page.locator("article").count() == 12 and "seed 11" in page.inner_text("body")
    assert page.locator(".name .line").count() == 12
    page.go_back()
    page.get_by_role("link", name="examination 1").click()
    assert page.locator("h2").count() == 12


def test_each_stepper_has_a_card_with_its_numbers_and_a_sentence(site_folder: Path) -> None:
    page = (site_folder / "steppers" / "index.html").read_text(encoding="utf-8")
    (card,) = re.findall(r"<li><div(?:(?!<li>).)*?softmax\.html.*?</li>", page, re.DOTALL)
    assert "<p>Softmax turns scores into weights.</p>" in card and card.count("<rect") == 6 + 6
    assert page.count("<svg") == page.count("</h3>") == 3


@pytest.mark.parametrize("path", ["index.html", "exercises/attention_backward.html", "steppers/attention.html"])
def test_a_thumb_hits_every_button(visit: Open, path: str) -> None:
    page = visit(path, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    if path == "index.html":
        page.wait_for_selector("#heads button")
    if "steppers" in path:
        page.click("#view summary")
        page.click("#edit")
    small = page.locator("button:visible:not(.cell, .word), summary:visible, select:visible").evaluate_all(
        """all => all.map((e) => [e.id || e.textContent, e.getBoundingClientRect()]).filter(([, box]) =>
          Math.min(box.width, box.height) < 44).map(([name, box]) => [name, box.width, box.height])"""
    )
    assert small == []


def test_each_kind_of_page_fits_a_phone(visit: Open, site: str) -> None:
    page = visit("index.html", viewport={"width": 390, "height": 800})
    for path in SITE:
        page.goto(site + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_the_button_changes_from_dark_to_light(visit: Open) -> None:
    page = visit(CHAPTER, color_scheme="dark")
    page.get_by_role("button", name="Light").click()
    assert page.locator("html").get_attribute("data-theme") == "light"


def test_a_question_covers_what_follows_until_it_is_answered(visit: Open) -> None:
    page = visit(CHAPTER)
    parts = page.locator("section.part")
    hidden = "parts => parts.map((part) => part.hidden)"
    assert parts.evaluate_all(hidden) == [False] + [True] * (parts.count() - 1)
    form = page.locator("form.predict").first
    form.get_by_role("button", name="Compare").click()
    expect(form.locator(".verdict")).to_contain_text("Write something first")
    form.locator("textarea").fill("<img src=x onerror=alert(1)> 6 and 12345.678")
    form.get_by_role("button", name="Compare").click()
    expect(form.locator(".verdict")).to_have_text("Compare your answer with what follows.")
    assert parts.evaluate_all(hidden)[:3] == [False, False, True]
    page.reload()
    assert parts.evaluate_all(hidden)[:3] == [False, False, True]
    expect(page.locator("form.predict textarea").first).to_have_value(re.compile("<img src=x"))
    assert page.locator("form.predict img").count() == 0


def test_only_the_chapter_with_threads_says_before_it_is_run_that_it_needs_a_computer(visit: Open) -> None:
    words = "Most cells of this chapter do not run in a browser"
    expect(visit("chapters/23_many_machines.html").get_by_text(words)).to_be_visible()
    expect(visit(CHAPTER).get_by_text(words)).to_have_count(0)


def test_pictures_are_told_in_words(visit: Open) -> None:
    page = visit("chapters/07_attention_backward.html")
    expect(page.get_by_alt_text("dweights (3 × 3): 7, -6, 4; -1, 2, 0; 0, 10, 5").first).to_be_attached()


def test_hostile_code_is_text_and_survives_a_reload_and_a_closed_tab(visit: Open) -> None:
    hostile = "</textarea></pre><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    page = visit("exercises/softmax_backward.html")
    page.locator(".editor textarea").fill(hostile)
    page.reload()
    expect(page.locator(".editor textarea")).to_have_value(hostile)
    expect(page.locator(".editor pre")).to_contain_text("onerror")
    assert page.locator(".editor img").count() == 0 and "taken" not in page.title()
    context = page.context
    page.close()
    again = visit("exercises/softmax_backward.html", context)
    expect(again.locator(".editor textarea")).to_have_value(hostile)
    again.get_by_role("button", name="Start again").click()
    again.reload()
    expect(again.locator(".editor textarea")).to_have_value(re.compile("NotImplementedError"))


def test_a_frame_of_an_output_cannot_reach_the_page(visit: Open) -> None:
    page = visit(CHAPTER)
    tried = "parent.localStorage.setItem('a', 'b'); parent.document.title = 'taken'"
    reach = f"<script>try {{ {tried} }} catch {{ document.body.append('refused') }}</script>"
    output = {"output_type": "display_data", "data": {"text/html": f"<p>text</p>{reach}"}}
    page.evaluate("output => showOutput(document.querySelector('.output'), output)", output)
    expect(page.frame_locator(".output iframe").locator("body")).to_contain_text("refused")
    assert "taken" not in page.title() and page.evaluate("localStorage.getItem('a')") is None


def test_names_of_the_code_light_up_their_gradients_from_the_keyboard(visit: Open) -> None:
    page = visit("code/core-ops-attention.html")
    page.locator("#attention [data-name=scores]").first.focus()
    expect(page.locator("#name")).to_contain_text("gradient: dscores")
    lit = page.locator("#attention .row.lit-gradient pre").first
    expect(lit).to_contain_text("dscores = ")
    page.locator("#attention .row:has-text('dscores = ') a").first.click()
    page.wait_for_url("**/steppers/*.html#step=*")


def test_site_works_from_a_file_except_for_running(visit: Open, site_folder: Path) -> None:
    page = visit((site_folder / CHAPTER).as_uri())
    page.get_by_role("button", name="Show everything").click()
    page.get_by_role("button", name="Run cell 1", exact=True).click()
    expect(page.locator(".cell .error").first).to_contain_text("python -m http.server")


def slides(folder: Path, stem: str) -> list[str]:
    """The HTML of each slide of a chapter, without its number."""
    page = (folder / "slides" / f"{stem}.html").read_text(encoding="utf-8")
    return re.findall(r'<section class="slide".*?>(.*?)<p class="number">', page, re.DOTALL)


def test_no_slide_is_empty_or_holds_a_stub(site_folder: Path) -> None:
    """A task that begins with "2." was an empty item; imports and functions without a body filled slides."""
    for path in (site_folder / "slides").glob("*.html"):
        for i, slide in enumerate(slides(site_folder, path.stem), 1):
            assert "<li></li>" not in slide and (re.sub("<.*?>", "", slide).strip() or "<img" in slide), (path, i)
            for words in ("    raise NotImplementedError", "no answer yet", "import numpy as np"):
                assert words not in slide, (path, i)
            assert "**" not in re.sub(r"<pre.*?</pre>|<code>.*?</code>", "", slide, flags=re.DOTALL), (path, i)


def test_no_slide_is_tiny(visit: Open, site_folder: Path) -> None:
    """Four formulas and a picture on one slide were as small as the text of a page."""
    sizes = "[...document.querySelectorAll('section.slide .body')].map((body) => parseFloat(body.style.zoom))"
    for path in sorted((site_folder / "slides").glob("*.html"))[::5]:
        page = visit(f"slides/{path.name}")
        page.wait_for_function(f"{sizes}.every((zoom) => zoom)")
        assert min(page.evaluate(sizes)) >= 0.69, path.name
        page.close()


def test_the_current_slide_is_the_one_that_is_seen(visit: Open) -> None:
    """However the reader gets there: Home, End and the wheel scrolled, and the next key continued from elsewhere."""
    page = visit("slides/04_softmax_backward.html#11")
    for key, number in (("Home", 1), ("ArrowRight", 2), (" ", 3), ("PageDown", 4), ("ArrowLeft", 3)):
        page.keyboard.press(key)
        assert page.evaluate("location.hash") == f"#{number}"
    page.mouse.wheel(0, 2 * 768)
    page.wait_for_url("**#5")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == "#6"
    page.keyboard.press("End")
    last = page.locator("section.slide").count()
    page.wait_for_url(f"**#{last}")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == f"#{last}"
    expect(page.get_by_text(f"{last} / {last}")).to_be_in_viewport()


def test_slides_fill_a_projector(visit: Open) -> None:
    page = visit("slides/07_attention_backward.html", viewport={"width": 1280, "height": 720})
    page.keyboard.press("ArrowRight")
    expect(page.locator("header.bar")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "none"
    measured = page.locator("section.slide").evaluate_all(
        """slides => slides.map((slide) => [slide.offsetWidth, slide.offsetHeight,
            ...[slide, ...slide.querySelectorAll("pre, .math.block, .wide")].map(e => e.scrollWidth-e.clientWidth)])"""
    )
    assert all(width >= 0.85 * 1280 and height <= 721 and max(cut) <= 2 for width, height, *cut in measured)
    zooms = page.locator(".slide .body").evaluate_all("bodies => bodies.map((body) => Number(body.style.zoom))")
    assert min(zooms) > 0.7 and sorted(zooms)[len(zooms) // 2] > 1.2  # most are larger than a page of text
    wide = page.locator(".slide .both.stacked .shown img").first
    assert wide.evaluate("picture => picture.naturalWidth > 1.9 * picture.naturalHeight")
    assert wide.evaluate("picture => picture.getBoundingClientRect().width") > 0.5 * 1280
