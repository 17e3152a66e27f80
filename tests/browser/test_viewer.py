"""The attention viewer's page in a real browser: maps, the enlarged one, keys, gradients, strange tokens, speed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from minitransformer.cli import main
from minitransformer.core.models import (
    Classifier,
    ClassifierConfig,
    LanguageModel,
    LanguageModelConfig,
    Transformer,
    TransformerConfig,
    folder,
)
from minitransformer.school.show.viewer import AttentionView, view
from minitransformer.text import CharacterTokenizer

from .conftest import Open
from .reading import KEYS, answers_in_time, until

EVIL = "</script><img src=x onerror=\"document.title='got in'\">"
SOURCE, TARGET = ["<pad>", "<b>one</b>", "two", EVIL, "three"], ["<start>", "eins", "zwei", "&amp;", "drei"]
SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12}
INK = """(() => {  // how much of the canvas the lines cover; a copy is read, since Chromium warns of repeated reads
  const { width, height } = byId("curves");
  const copy = new OffscreenCanvas(width, height).getContext("2d");
  copy.drawImage(byId("curves"), 0, 0);
  return copy.getImageData(0, 0, width, height).data.reduce((sum, x, i) => sum + (i % 4 === 3 ? x : 0), 0);
})()"""
FIRST, LAST = "Encoder self-attention, layer 1, head 1", "Cross-attention, layer 2, head 1"


@pytest.fixture(scope="module")
def shown() -> AttentionView:
    config = TransformerConfig(5, 5, n_encoder_layers=2, n_decoder_layers=2, share_embeddings=False, **SIZES)
    model = Transformer(config, np.random.default_rng(5)).to(dtype="float64")
    return view(model, [1, 3, 2, 4], [0, 2, 1], names=(SOURCE, TARGET), title=f"{EVIL} → eins")


@pytest.fixture(scope="module")
def file(shown: AttentionView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewer") / "attention.html"
    shown.to_html(path)
    return path


def labels(page: Page) -> list[str]:
    return page.locator("#matrix td button").evaluate_all("all => all.map((cell) => cell.ariaLabel)")


def numbers(page: Page) -> list[float]:
    """What the cells of the enlarged map say; NaN where it is masked."""
    said = [re.search(r": (?:gradient )?([^:]+)$", label)[1].replace("−", "-") for label in labels(page)]
    return [float("nan") if text == "masked" else float(text) for text in said]


def title(page: Page) -> str:
    return page.inner_text("#map-title")


def test_small_maps_are_the_weights(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    assert page.inner_text("#title") == f"{EVIL} → eins"
    assert page.locator(".overview h2").all_inner_texts() == [maps.name for maps in shown.maps]
    assert page.locator(".map").count() == 12
    opacities = page.locator(".map canvas").evaluate_all(
        """all => all.map((canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return [...data].filter((_, i) => i % 4 === 3);
        })"""
    )
    weights = [head for maps in shown.maps for layer in maps.weights for head in layer]
    for found, wanted in zip(opacities, weights, strict=True):
        np.testing.assert_allclose(found, 255 * wanted.ravel(), atol=0.51)


def test_a_click_enlarges_a_map(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    assert title(page) == LAST
    page.click(f"[aria-label='{FIRST}']")
    assert title(page) == FIRST
    assert page.locator("[aria-current=true]").count() == 1
    assert page.get_attribute("[aria-current=true]", "title") == FIRST
    np.testing.assert_allclose(numbers(page), shown.maps[0].weights[0, 0].ravel(), atol=5.1e-4)
    tokens = list(shown.sequences[0])
    assert page.locator("#matrix tbody th").all_inner_texts() == tokens
    assert page.locator("#matrix thead th").all_inner_texts() == tokens


def test_every_kind_of_map_is_enlarged_with_its_own_numbers(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    for maps in shown.maps:
        page.click(f"[aria-label='{maps.name}, layer 2, head 2']")
        wanted = maps.weights[1, 1]
        if maps.causal:
            wanted = np.where(np.tril(np.ones(wanted.shape)) == 1, wanted, np.nan)
        np.testing.assert_allclose(numbers(page), wanted.ravel(), atol=5.1e-4)
        drawn = [(i, x) for (i, _), x in np.ndenumerate(wanted) if x >= 0.02]
        np.testing.assert_allclose(page.evaluate("curves.map(({ i, share }) => [i, share])"), drawn, atol=1e-6)


def test_keys_walk_over_layers_heads_and_kinds(open_page: Open, file: Path) -> None:
    page = open_page(file)
    walk = [
        ("ArrowRight", "Cross-attention, layer 2, head 2"),
        ("ArrowRight", "Cross-attention, layer 2, head 2"),
        ("ArrowUp", "Cross-attention, layer 1, head 2"),
        ("ArrowUp", "Decoder self-attention, layer 2, head 2"),
        ("ArrowLeft", "Decoder self-attention, layer 2, head 1"),
        ("ArrowDown", "Cross-attention, layer 1, head 1"),
    ]
    for key, wanted in walk:
        page.keyboard.press(key)
        assert title(page) == wanted
        assert page.evaluate("document.activeElement.ariaLabel") == wanted
    for _ in range(9):
        page.keyboard.press("ArrowUp")
    assert title(page) == FIRST


def test_cells_are_read_by_mouse_and_keyboard(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    weights = shown.maps[2].weights[1, 0]
    page.locator("#matrix td button").nth(6).hover()
    target, source = shown.sequences[1][1], shown.sequences[0][2]
    readout = page.inner_text("#readout")
    assert readout.startswith(f"“{target}” → {shown.choices[1].name} looks at “{source}”")
    assert readout.endswith(f"weight {weights[1, 2]:.3f}")
    pointed = page.evaluate(INK)
    page.hover("#title")
    assert 0 < pointed < 0.8 * page.evaluate(INK) and page.inner_text("#readout") == "Point at a token or a cell."
    page.locator("#lines text[data-query='2']").hover()
    best = shown.sequences[0][int(weights[2].argmax())]
    assert page.text_content("#readout").endswith(f" looks at “{best}”: weight {weights[2].max():.3f}")

    page.hover("#title")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#matrix button')"):
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("[...document.querySelectorAll('#matrix td button')].indexOf(document.activeElement)")
    row, column = divmod(focused, 4)
    assert row >= 1 and column >= 1 and title(page) == LAST
    assert page.text_content("#readout").endswith(f"weight {weights[row, column]:.3f}")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.ariaLabel") == LAST
    assert page.get_attribute("#readout", "aria-live") == "polite"


def test_gradients_are_a_second_layer(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    assert page.is_hidden("#choice")
    page.keyboard.press("g")
    assert page.get_attribute("#gradient", "aria-pressed") == "true" and page.is_visible("#choice")
    options = page.locator("#choice option").all_inner_texts()
    assert options == [
        f"“{choice.name}” after “{token}” ({choice.probability:.1%})".replace("%", " %")
        for choice, token in zip(shown.choices, shown.sequences[1], strict=True)
    ]
    assert page.input_value("#choice") == "2"
    for choice, press in [(2, None), (1, ","), (0, ","), (1, ".")]:
        if press:
            page.keyboard.press(press)
        assert page.input_value("#choice") == str(choice)
        for maps, name in [(shown.maps[2], LAST), (shown.maps[0], FIRST)]:
            page.click(f"[aria-label='{name}']")
            wanted = maps.gradients[choice][1 if name is LAST else 0, 0]
            np.testing.assert_allclose(numbers(page), wanted.ravel(), rtol=5.1e-3, atol=1e-12)
            negative = page.locator("#matrix td button").evaluate_all(
                "all => all.map((cell) => cell.matches('.below'))"
            )
            assert negative == (wanted < 0).ravel().tolist()
    page.select_option("#choice", "2")
    page.click(f"[aria-label='{LAST}']")
    slope = shown.maps[2].gradients[2][1, 0]
    page.locator("#matrix td button").nth(int(np.abs(slope).argmax())).hover()
    assert ("raises" if slope.ravel()[np.abs(slope).argmax()] > 0 else "lowers") in page.inner_text("#readout")
    assert page.get_attribute("#scale", "class") == "signed"
    page.click("#gradient")
    np.testing.assert_allclose(numbers(page), shown.maps[2].weights[1, 0].ravel(), atol=5.1e-4)


def test_tokens_appear_as_text(open_page: Open, shown: AttentionView, file: Path) -> None:
    page = open_page(file)
    assert EVIL in shown.sequences[0]
    assert page.locator("#matrix thead th").all_inner_texts() == list(shown.sequences[0])
    assert page.locator("#lines text[data-key='1'] title").text_content() == EVIL
    page.locator("#matrix td button").nth(1).hover()
    assert f"“{EVIL}”" in page.text_content("#readout")
    assert page.locator("img").count() == 0 and page.title() == f"{EVIL} → eins · attention"
    assert page.evaluate("document.querySelectorAll('[onclick], [onload], [onerror]').length") == 0


def test_light_dark_and_large(open_page: Open, file: Path) -> None:
    look = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).fontSize]"
    light, dark = open_page(file, color_scheme="light"), open_page(file, color_scheme="dark")
    (white, small), (black, _) = light.evaluate(look), dark.evaluate(look)
    assert white != black
    assert [page.get_attribute("#theme", "aria-pressed") for page in (light, dark)] == ["false", "true"]
    pixels = "document.querySelector('.map canvas').toDataURL()"
    before = light.evaluate(pixels)
    light.keyboard.press("d")
    assert light.evaluate(look)[0] == black
    wanted = dark.evaluate(pixels)
    assert wanted != before
    until(light, f"{pixels} === {json.dumps(wanted)}")  # the small maps follow two frames later
    height = light.locator("#lines").bounding_box()["height"]
    light.keyboard.press("t")
    assert float(light.evaluate(look)[1][:-2]) >= 1.3 * float(small[:-2])
    assert light.locator("#lines").bounding_box()["height"] > 1.3 * height
    light.keyboard.press("?")
    assert light.is_visible("#keys")
    light.keyboard.press("g")
    assert light.get_attribute("#gradient", "aria-pressed") == "false"


def test_other_models_have_one_kind_and_their_own_choices(open_page: Open, tmp_path: Path) -> None:
    writer = LanguageModel(LanguageModelConfig(5, max_length=8, n_layers=2, **SIZES), np.random.default_rng(0))
    judge = Classifier(ClassifierConfig(5, 3, n_layers=1, **SIZES), np.random.default_rng(0))
    view(writer, [1, 2, 3], names=(SOURCE,)).to_html(tmp_path / "writer.html")
    view(judge, [1, 2, 3], names=(SOURCE, ["good", "bad", "odd"])).to_html(tmp_path / "judge.html")
    page = open_page(tmp_path / "writer.html")
    assert title(page) == "Self-attention, layer 2, head 1"
    assert page.locator("#choice option").count() == 3
    assert np.isnan(numbers(page)).tolist() == [False, True, True, False, False, True, False, False, False]
    page = open_page(tmp_path / "judge.html")
    assert title(page) == "Self-attention, layer 1, head 1"
    assert {text.split("”")[0][1:] for text in page.locator("#choice option").all_inner_texts()} == {
        "good",
        "bad",
        "odd",
    }
    assert page.input_value("#choice") == "0"


def test_page_of_a_language_model_in_a_folder(open_page: Open, tmp_path: Path) -> None:
    """As `minitransformer view` makes it, from the folder that training leaves."""
    config = LanguageModelConfig(8, max_length=8, n_layers=2, **SIZES)
    model = LanguageModel(config, np.random.default_rng(7)).to(dtype="float64")
    folder.save(model, tmp_path)
    tokenizer = CharacterTokenizer.train(["ab<>&"])
    assert len(tokenizer.tokens) == 8
    tokenizer.save(tmp_path / "tokenizer.json")
    assert main(["view", "--model", str(tmp_path), "<b>&", "--html", str(tmp_path / "a.html")]) == 0
    shown = view(model, tokenizer.encode("<b>&"), names=(tokenizer.tokens,))
    page = open_page(tmp_path / "a.html")
    assert page.inner_text("#title") == "<b>&"
    assert page.locator(".map").count() == 4 and title(page) == "Self-attention, layer 2, head 1"
    rows = [text.split(" → ") for text in page.locator("#matrix tbody th").all_inner_texts()]  # read, written
    assert rows == [[token, choice.name] for token, choice in zip("<b>&", shown.choices, strict=True)]
    visible = np.tril(np.ones((4, 4))) == 1
    for layer, head in np.ndindex(2, 2):
        page.click(f"[aria-label='Self-attention, layer {layer + 1}, head {head + 1}']")
        wanted = np.where(visible, shown.maps[0].weights[layer, head], np.nan)
        np.testing.assert_allclose(numbers(page), wanted.ravel(), atol=5.1e-4)
    page.keyboard.press("g")
    page.select_option("#choice", "1")
    choice = shown.choices[1]
    assert page.locator("#choice option").nth(1).inner_text().startswith(f"“{choice.name}” after “b” (")
    wanted = np.where(visible, shown.maps[0].gradients[1][1, 1], np.nan)
    np.testing.assert_allclose(numbers(page), wanted.ravel(), rtol=5.1e-3, atol=1e-12)


def test_a_key_press_answers_within_a_tenth_of_a_second(open_page: Open, tmp_path: Path) -> None:
    config = LanguageModelConfig(50, max_length=64, n_layers=12, d_model=24, n_heads=12, d_ff=12)
    view(LanguageModel(config, np.random.default_rng(0)), np.arange(64) % 50).to_html(tmp_path / "large.html")
    page = open_page(tmp_path / "large.html")
    keys = ["ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft", "g", "ArrowUp", "ArrowRight", "g"]
    answers_in_time(lambda: [time for key in keys for time in page.evaluate(KEYS, [key, 1])])


def test_page_works_inside_a_notebook_frame(open_page: Open, shown: AttentionView, tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(shown._repr_html_(), encoding="utf-8")
    frame = open_page(tmp_path / "notebook.html").frame_locator("iframe")
    frame.locator(f"[aria-label='{FIRST}']").click()
    assert frame.locator("#map-title").inner_text() == FIRST


def test_a_map_of_many_tokens_is_one_picture_below_its_cells(open_page: Open, tmp_path: Path) -> None:
    config = LanguageModelConfig(50, max_length=20, n_layers=1, d_model=24, n_heads=2, d_ff=12)
    shown = view(LanguageModel(config, np.random.default_rng(0)), np.arange(20))
    shown.to_html(tmp_path / "many.html")
    page = open_page(tmp_path / "many.html")
    for large in (False, True):
        if large:
            page.keyboard.press("t")
        picture = page.locator("#matrix canvas").bounding_box()
        for i, j in [(0, 0), (19, 19), (7, 12)]:
            cell = page.locator("#matrix td button").nth(20 * i + j).bounding_box()
            assert abs(cell["x"] - picture["x"] - j * picture["width"] / 20) < 1.0
            assert abs(cell["y"] - picture["y"] - i * picture["height"] / 20) < 1.0
    weights = shown.maps[0].weights[0, 0]
    page.click("[aria-label='Self-attention, layer 1, head 1']")
    opacities = page.locator("#matrix canvas").evaluate(
        "(c) => [...c.getContext('2d').getImageData(0, 0, 20, 20).data].filter((_, i) => i % 4 === 3)"
    )
    np.testing.assert_allclose(opacities, 255 * weights.ravel(), atol=0.51)
    page.locator("#matrix td button").nth(20 * 7 + 3).hover()
    assert page.inner_text("#readout").endswith(f"weight {weights[7, 3]:.3f}")
