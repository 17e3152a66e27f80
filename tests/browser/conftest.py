"""A real Chromium without a window, and pages that are allowed to load nothing but their own file.

CHROMIUM names the browser to run, /usr/bin/chromium unless set.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect, sync_playwright

from minitransformer import layers, ops
from minitransformer.school.course.worked_example import SCALED, UNSCALED, self_attention
from minitransformer.school.course.worked_example import Example as Worked
from minitransformer.school.show.stepper import Recording, step
from minitransformer.school.show.stepper.examples import EXAMPLES
from minitransformer.school.show.stepper.page import to_html

from . import site_server

Open = Callable[..., Page]
Recordings = dict[str, Recording]
Files = Mapping[str, Path]
Example = Callable[[str], tuple[Recording, Path]]

# Playwright's own list without what only other systems have, which this replaces; and what else each new window
# would start: processes for menus below the address.
UNUSED = [
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    *("PreconnectToSearch", "PreloadTopChromeWebUI"),
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
]

expect.set_options(timeout=60_000)  # milliseconds: what takes long is the machine


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        features = f"--disable-features={','.join(UNUSED)}"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", features])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a file in a fresh context; at the end the page must have reported no error and requested nothing."""
    contexts, problems = [], []

    def open_page(path: Path, fragment: str = "", **options: object) -> Page:
        def only_itself(route: Route) -> None:
            if route.request.url.partition("#")[0] == path.as_uri():
                route.continue_()
            else:
                problems.append(f"request: {route.request.url}")
                route.abort()

        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.route("**/*", only_itself)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.goto(path.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def record(example: Worked, verify: bool = True) -> Recording:
    arrays = (example.x, example.w_q, example.w_k, example.w_v)
    return step(self_attention, *arrays, scale=example.scale, upstream=example.doutput, verify=verify)


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    rng = np.random.default_rng(3)
    x, q, k, v = rng.normal(size=(3, 5)), rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 5))
    return {
        "worked": record(SCALED),
        "unscaled": record(UNSCALED),
        "softmax": step(ops.softmax, x, verify=True),
        "attention": step(ops.attention, q, k, v, verify=True),
        "layer-norm": step(ops.layer_norm, x, rng.normal(size=5), rng.normal(size=5), verify=True),
        "encoder": step(_encoder(), rng.normal(size=(1, 4, 8))),
    }


def _encoder() -> layers.Encoder:
    return layers.Encoder(2, 8, 2, 16, rng=np.random.default_rng(4)).to(dtype="float64")


@pytest.fixture(scope="session")
def files(recordings: Recordings, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return _Pages(recordings, tmp_path_factory.mktemp("pages"))


class _Pages(dict[str, Path]):
    """Pages that are built where a test asks for them."""

    def __init__(self, recordings: Recordings, folder: Path) -> None:
        self.recordings, self.folder = recordings, folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / f"{name}.html"
        to_html(self.recordings[name], self[name], bugs=() if name == "encoder" else None)
        return self[name]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The recording of one of the stepper's examples and its page without mistakes, both made once."""
    folder = tmp_path_factory.mktemp("examples")

    @functools.cache
    def example(name: str) -> tuple[Recording, Path]:
        recording, path = EXAMPLES[name].record(), folder / f"{name}.html"
        recording.to_html(path, bugs=())
        return recording, path

    return example


@pytest.fixture(scope="session")
def twelve_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, path = np.random.default_rng(6), tmp_path_factory.mktemp("pages") / "twelve.html"
    model = layers.Encoder(12, 32, 4, 64, rng=rng).to(dtype="float64")
    to_html(step(model, rng.normal(size=(1, 64, 32))), path)
    return path


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site_server.built(tmp_path_factory.mktemp("site") / "out")


@pytest.fixture(scope="session")
def site(site_folder: Path) -> Iterator[str]:
    with site_server.served(site_folder) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, site: str, site_folder: Path) -> Iterator[Open]:
    """Opens a page of the site; at the end no page may have reported an error or requested anything from elsewhere."""
    contexts, problems = [], []

    def watched(request: Request) -> None:
        if not request.url.startswith((site, site_folder.as_uri(), "data:", "blob:")):
            problems.append(f"request: {request.url}")

    def visit(path: str, context: BrowserContext | None = None, **options: object) -> Page:
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1366, "height": 768}, **options})
            context.on("request", watched)
            contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(f"{path}: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"{path}: error: {error}"))
        page.goto(path if "://" in path else site + path)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []
