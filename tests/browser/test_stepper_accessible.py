"""axe-core finds nothing against WCAG in the stepper's page, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from minitransformer.school.show.stepper.examples import EXAMPLES

from .conftest import Example, Open
from .reading import stops

pytestmark = pytest.mark.browser

TEN = "worked-example attention multi-head layer-norm ffn encoder-layer decoder-layer cross-entropy lstm gpt".split()


def found(page) -> list[tuple[str, str]]:
    return [(each["id"], each["nodes"][0]["html"]) for each in Axe().run(page).response["violations"]]


@pytest.mark.parametrize(
    ("name", "every", "scheme"),
    [
        ("attention", 4, "dark"),
        *(pytest.param(name, 1, scheme, marks=pytest.mark.sweep) for name in TEN for scheme in ("light", "dark")),
    ],
)
def test_no_step_breaks_a_rule(open_page: Open, example: Example, name: str, every: int, scheme: str) -> None:
    recording, path = example(name)
    page = open_page(path, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    for i in range(len(stops(recording))):
        if i % every == 0:
            assert found(page) == [], i
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.sweep)])
def test_the_list_of_mistakes_and_a_mistake_break_no_rule(open_page: Open, tmp_path: Path, scheme: str) -> None:
    EXAMPLES["attention"].record(verify=True).to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.click("#mistakes")
    assert found(page) == []
    page.click("#surprise")
    assert found(page) == []
    page.click("#give-up")
    page.keyboard.press("f")
    assert found(page) == []
