"""The table of the families' parts, drawn from their models: in docs/families.md, and on the site."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from minitransformer.cli import main
from minitransformer.ideas.published.families import EVERY
from minitransformer.school.show.boxes import BOXES, Side, alike, families, home
from minitransformer.school.show.site.modules import shown_modules

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def found() -> dict[str, list[Side]]:
    return families()


def test_the_page_in_docs_is_what_the_models_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--parts"]) == 0
    written = (DOCS / "families.md").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "run: minitransformer info --parts > docs/families.md"
    for address in set(re.findall(r"\.\./minitransformer/[\w/]+\.py", written)):
        assert (DOCS / address).is_file(), address


def test_every_family_is_there_with_parts_that_exist_and_have_a_page(found: dict[str, list[Side]]) -> None:
    pages = set(shown_modules())
    assert list(found) == list(EVERY) and sorted(n for names, _ in alike(found) for n in names) == sorted(EVERY)
    for name, sides in found.items():
        assert re.search(
            r"^FAMIL(Y|IES) = ",
            Path(import_module(f"minitransformer.{home(name)}").__file__ or "").read_text(encoding="utf-8"),
            re.M,
        )
        assert sides and all({"embeds", "order", "normalises", "mixes"} <= side.boxes.keys() for side in sides)
        for part in (p for side in sides for held in side.boxes.values() for entry in held for p in entry.parts):
            assert hasattr(import_module(f"minitransformer.{part.module}"), part.at), (name, part)
            assert part.module in pages, (name, part)


PRE = "a = x + attention(norm(x)); y = a + feed_forward(norm(a))"


@pytest.mark.parametrize(("family", "formulas"), [
    ("bert", ["a = norm(x + attention(x)); y = norm(a + feed_forward(a))"]),  # Vaswani et al. 2017, section 3.1
    ("gpt2", [PRE]),  # Radford et al. 2019, section 2.3
    ("granite", ["a = x + factor · attention(norm(x)); y = a + factor · feed_forward(norm(a))"]),
    ("gemma2", ["a = x + norm(attention(norm(x))); y = a + norm(feed_forward(norm(a)))"]),  # Gemma Team 2024, section 2
    ("olmo2", ["a = x + norm(attention(x)); y = a + norm(feed_forward(a))"]),  # OLMo Team 2024, section 3
    ("gpt_neox", ["y = x + attention(norm(x)) + feed_forward(norm(x))"]),  # Black et al. 2022, section 2.1.2
    ("modernbert", ["a = x + attention(x); y = a + feed_forward(norm(a))", PRE]),  # Warner et al. 2024, section 2.1
    ("t5", ["a = x + attention(norm(x)); b = a + cross_attention(norm(a), memory); y = b + feed_forward(norm(b))"]),
    ("albert", ["a = norm(x + attention(x)); y = norm(a + feed_forward(a)); one layer, 3 times"]),
])  # fmt: skip
def test_the_order_in_a_layer_is_that_of_the_paper(
    found: dict[str, list[Side]], family: str, formulas: list[str]
) -> None:
    assert [entry.formula for entry in found[family][-1].boxes["order"]] == formulas


@pytest.mark.parametrize(("family", "box", "held"), [
    ("gpt2", "mixes", ["MultiHeadAttention ScaledDotProduct"]),
    ("gpt2", "positions", ["LearnedPositions"]),
    ("llama", "positions", []),
    ("llama", "turns", ["RotaryPositions"]),
    ("qwen3", "turns", ["HeadNorm RMSNorm RotaryPositions"]),
    ("smollm3", "turns", ["RotaryPositions", ""]),  # layers without positions
    ("gemma2", "mixes", ["MultiHeadAttention Grouped Window SoftCapped", "MultiHeadAttention Grouped SoftCapped"]),
    ("mixtral", "feeds", ["MixtureOfExperts TopK GatedFeedForward silu"]),
    ("bert", "predicts", ["Linear LayerNorm"]),
])  # fmt: skip
def test_what_a_box_holds_is_what_the_family_changed(
    found: dict[str, list[Side]], family: str, box: str, held: list[str]
) -> None:
    assert box in dict(BOXES)
    entries = found[family][-1].boxes.get(box, ())
    assert [" ".join(part.name for part in entry.parts) for entry in entries] == held
