"""A figure in JupyterLab: moved in an output, and tied to Python as a widget, both ways."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest

from conftest import ROOT

CELLS = ["from poslib.teach import figure\nfigure('order')",
         "w = figure('order', layers=2).widget()\nw",
         "w.state = {**w.state, 'order': [2, 1, 0]}",
         "print('python sees', w.state['layers'])"]


@pytest.fixture
def lab(tmp_path):
    """Address of a JupyterLab that serves one notebook."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}    # else Lab asks for one
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS], metadata=kernel)
    nbformat.write(notebook, tmp_path / "smoke.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path / "home"
    env = {**os.environ, "POSLIB_STATIC": "", "PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(home), "JUPYTER_DATA_DIR": str(home / "data"),
           "JUPYTER_RUNTIME_DIR": str(home / "run"), "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "ws")}
    log = open(tmp_path / "log", "w")
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
                               "--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}"], env=env, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(address + "/api", timeout=1)
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail("JupyterLab did not start: " + (tmp_path / "log").read_text())
        yield address
    finally:
        server.terminate()
        server.wait(20)
        log.close()


def test_figure_and_widget_in_jupyterlab(lab, browser):
    page = browser.new_context(viewport={"width": 1200, "height": 1600}).new_page()
    page.goto(f"{lab}/lab/tree/smoke.ipynb?reset")
    page.locator(".jp-Notebook").wait_for(timeout=60_000)
    cell = lambda n: page.locator(".jp-CodeCell").nth(n)  # noqa: E731

    def run(n, wait):
        cell(n).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        wait().first.wait_for(timeout=60_000)

    # a cell run before the kernel answers is dropped without a word
    page.get_by_text(re.compile(r"Python 3.*\| Idle")).wait_for(timeout=60_000)
    run(0, lambda: cell(0).locator("pos-fig .say"))
    fig = cell(0).locator("pos-fig")
    fig.get_by_role("button", name="dog", exact=True).focus()
    page.keyboard.press("ArrowRight")                       # must move the word, not the notebook's selection
    assert "“bites dog man”" in fig.locator(".say").inner_text()

    run(1, lambda: cell(1).locator(".jp-OutputArea-output .say"))
    widget = cell(1).locator(".jp-OutputArea-output")
    assert "2 layers" in widget.locator(".say").inner_text()
    widget.get_by_label("attention layers").press("End")
    run(2, lambda: cell(1).locator(".say", has_text="man bites dog"))
    assert "4 layers" in widget.locator(".say").inner_text()
    run(3, lambda: cell(3).locator(".jp-OutputArea-output", has_text="python sees"))
    assert re.search(r"python sees 4", cell(3).locator(".jp-OutputArea-output").inner_text())
