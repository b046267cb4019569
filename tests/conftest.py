"""The built book behind a web server, and a browser that cannot leave it; and the kernels' mode, before anything imports triton."""

import functools
import importlib.util
import os
import shutil
import threading
import warnings
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from poslib.kernels import _runtime

if all(map(importlib.util.find_spec, ("torch", "triton"))):
    _runtime.mode()                     # torch.compile would import triton in the other mode where there is no GPU

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]


def bad_input_test(table):
    """A test for a table {what is passed: (call, error, piece of its message)}: each call is refused, without a warning."""
    @pytest.mark.parametrize("case", table)
    def test(case):
        call, error, message = table[case]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(error, match=message):
                call()
    return test


def reports_to_cover(reports):
    """`covers(*ids)`, which marks a test with the public reports whose kind of mistake it rules out, and a test that none is left out."""
    covered = set()

    def covers(*ids):
        covered.update(ids)
        return lambda test: test

    def test():
        assert set(reports) == covered
    return covers, test


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def need_site():
    if not (SITE / "index.html").exists():
        pytest.fail("the book is not built; run make book (or make test)")


@pytest.fixture(scope="session")
def site():
    """Address of the built book."""
    need_site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    path = shutil.which(os.environ.get("CHROMIUM") or next(filter(shutil.which, NAMES), "chromium"))
    if not path:
        pytest.fail("no Chromium; install it (sudo apt-get install chromium) or set CHROMIUM=/path/to/chrome")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, site):
    """open_page(path, **context options): a page whose faults are listed in page.faults."""
    contexts = []

    def opener(path, **options):
        context = browser.new_context(**{"viewport": {"width": 360, "height": 780}, **options})
        contexts.append(context)
        page = context.new_page()
        page.faults = []

        def gate(route):
            if route.request.url.startswith((site, "data:", "blob:", "file:", "http://127.0.0.1", "http://localhost")):
                route.continue_()
            else:
                page.faults.append(f"asked for {route.request.url}")
                route.abort()

        page.route("**/*", gate)
        page.on("pageerror", lambda error: page.faults.append(f"script error: {error}"))
        page.on("console", lambda m: page.faults.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
        page.on("response", lambda r: page.faults.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        if path:
            page.goto(path if "://" in path else f"{site}/{path}", wait_until="load")
        return page

    yield opener
    for context in contexts:
        context.close()
