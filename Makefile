# Two commands: `make book` builds the book, `make test` runs everything that CI runs.
# PYTHON=…, PIP_ARGS="…" and CHROMIUM=… are explained in README.md.
PYTHON ?= python3
BIN := .venv/bin
export PIP_ARGS CHROMIUM

.PHONY: book test notebooks serve bench archive clean install-book install-test html

book: install-book
	@$(MAKE) --no-print-directory html
	@echo "The book is built. Open file://$(CURDIR)/_build/html/index.html"

test: install-test
	$(BIN)/python tools/notebooks.py --check
	@$(MAKE) --no-print-directory html
	$(BIN)/python -m pytest

# After a failure Sphinx would not repeat the warnings of pages it has already read: forget them.
html:
	$(BIN)/jupyter-book build . -n -W --keep-going || { rm -rf _build/.doctrees; exit 1; }

notebooks: install-test
	$(BIN)/python tools/notebooks.py

serve: book
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html 8000

bench: install-test html
	$(BIN)/python -m pytest -s -q tests/test_figures.py -k paints_soon && $(BIN)/python -m poslib.lab.rotation_speed

archive: install-test html
	$(BIN)/python tools/archive.py

clean:
	rm -rf _build

install-book install-test: install-%:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found. Debian, Ubuntu: sudo apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) tools/setup.py $*
