"""What is published: the wheel, the archive, the citation, the workflows, and that all name one place."""

import importlib
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT, SITE, need_site

sys.path.insert(0, str(ROOT / "tools"))
release = importlib.import_module("release")
archive = importlib.import_module("archive")
readme_figure = importlib.import_module("readme_figure")


# ---- one place for URL and tag --------------------------------------------------------------------

def test_everything_names_the_same_place():
    assert release.check() == []


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The files that name the place, copied."""
    (tmp_path / "poslib").mkdir()
    (tmp_path / "book").mkdir()
    for name in ("_config.yml", "CITATION.cff", "pyproject.toml", "README.md", "poslib/__init__.py",
                 *(f"book/{p.name}" for p in (ROOT / "book").glob("[0-9A]*-*.md"))):
        (tmp_path / name).write_text((ROOT / name).read_text("utf8"), "utf8")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["CITATION.cff", "pyproject.toml", "README.md", "book/01-order-blindness.md"])
def test_a_place_out_of_step_is_named(copy, name):
    path = copy / name
    path.write_text(path.read_text("utf8").replace("position-in-transformers/position-in-transformers", "some/body"), "utf8")
    found = release.check()
    assert found and all(sentence.startswith(f"{name}: ") for sentence in found)


def test_url_and_tag_are_set_everywhere_at_once(copy, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["release.py", "--url", "https://github.com/a/b", "--tag", "v9.9"])
    assert release.main() == 0 and release.check() == []
    chapter = (copy / "book" / "01-order-blindness.md").read_text("utf8")
    assert 'name, tag = "a/b", "v9.9"' in chapter
    assert 'repository-code: "https://github.com/a/b"' in (copy / "CITATION.cff").read_text("utf8")
    readme = (copy / "README.md").read_text("utf8")
    assert "position-in-transformers/position-in-transformers" not in readme.replace("github.com/a/b", "")


@pytest.mark.parametrize("option, value", [("--url", "http://example.com"), ("--tag", "a b")])
def test_a_wrong_place_is_refused(option, value):
    run = subprocess.run([sys.executable, "tools/release.py", option, value], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1 and f"{option} is {value!r}; allowed" in run.stderr and release.check() == []


# ---- wheel and archive ----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, unpacked outside the checkout beside numpy and array-api-compat alone."""
    import array_api_compat
    import numpy
    from pathlib import Path

    home = tmp_path_factory.mktemp("wheel")
    built = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", home, ROOT],
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    wheel, = home.glob("poslib-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(home / "site")
    for package in (numpy, array_api_compat):
        folder = Path(package.__file__).parent
        (home / "site" / folder.name).symlink_to(folder)
        if (libs := folder.with_name(folder.name + ".libs")).exists():
            (home / "site" / libs.name).symlink_to(libs)
    return home / "site", names


def test_the_wheel_carries_what_the_pages_need(installed):
    _, names = installed
    wanted = {p.relative_to(ROOT).as_posix() for p in (ROOT / "poslib").rglob("*") if p.suffix in (".py", ".js", ".json", ".typed")}
    assert wanted <= set(names) and not [n for n in names if n.startswith(("tests", "tools", "book"))]


@pytest.mark.parametrize("code, output", [
    ("import numpy as np; from poslib.attention import attention; x = np.eye(2); print(attention(x, x, x)[0].shape)", "(2, 2)"),
    ("from poslib.lab import results; print(sorted(results.load('order_blindness'))[0])", "causal"),
    ("from poslib.teach import figure; print('pos-fig' in figure('order').html())", "True"),
    ("from poslib.teach import check; print(check('order_blindness/distinct_predictions', lambda t: len(set(t))).accepted)", "True"),
])
def test_the_wheel_works_with_numpy_alone(installed, tmp_path, code, output):
    site, _ = installed
    # -I -S: nothing of this environment but Python itself
    run = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"],
                         cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == output, run.stderr


def test_what_is_missing_is_named(installed, tmp_path):
    site, _ = installed
    for code, wanted in [("from poslib.teach import figure; figure('order').compute()", "pip install quickjs-ng"),
                         ("from poslib.teach import figure; figure('order').widget()", "pip install anywidget"),
                         ("from poslib.teach.plots import axes; axes()", "pip install matplotlib"),
                         ("import poslib.lab.model", "pip install torch")]:
        run = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"],
                             cwd=tmp_path, capture_output=True, text=True, env={"POSLIB_STATIC": ""})
        assert run.returncode and wanted in run.stderr, run.stderr


def test_the_archive_is_whole_and_the_same_twice(tmp_path):
    need_site()
    for name in ("one.zip", "two.zip"):
        archive.pack(SITE, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "one.zip") as a, zipfile.ZipFile(tmp_path / "two.zip") as b:
        assert {n.removeprefix("one/") for n in a.namelist()} == {n.removeprefix("two/") for n in b.namelist()}
        assert {f"one/{p.relative_to(SITE).as_posix()}" for p in SITE.rglob("*.html")} <= set(a.namelist())
        assert a.testzip() is None
    assert (tmp_path / "one.zip").stat().st_size == (tmp_path / "two.zip").stat().st_size


# ---- papers ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("schema, files", [("vendor.citation-file-format", ["CITATION.cff"]), ("vendor.github-workflows", None)])
def test_papers_are_valid(schema, files):
    files = files or sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    run = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_workflows_are_safe():
    from pathlib import Path
    zizmor = Path(sys.executable).with_name("zizmor")
    run = subprocess.run([str(zizmor), "--offline", "--quiet", ".github/workflows"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_picture_in_the_readme_is_what_the_figure_draws():
    assert readme_figure.PICTURE.read_text("utf8") == readme_figure.drawn(), "run python tools/readme_figure.py"
    assert "book/_static/order-two-states.svg" in (ROOT / "README.md").read_text("utf8")
