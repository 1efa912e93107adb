# Two commands on a fresh machine: `make demo` and `make test`. Both set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

# Python keeps the modules that it compiles, whatever the environment says: else every process compiles PyTorch again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types unit site wheel bench clean

demo: $(INSTALLED)
	$(BIN)/quatcaps demo --output demo

# Types are checked and the site is built beside the tests: each keeps one core busy, and would leave the others idle.
test: lint
	$(MAKE) --jobs 2 types unit site

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# A process for each core; in each, one thread: more would get in each other's way.
unit: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# The documentation, into site/; nothing in it may lead nowhere.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python docs/hooks/check.py site

# What an index takes, into dist/.
wheel: $(READY)
	$(BIN)/python -m hatchling build --clean

bench: $(READY)
	$(BIN)/quatcaps bench --model qcn-small --model qcn --output bench

# Only what is imported is compiled, by then: half the time of an installation.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# What the package needs.
$(INSTALLED): pyproject.toml constraints.txt | old-enough
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable '.[explore]'
	touch $(INSTALLED)

# … and what its tests need: all of constraints.txt. pip looks through every file of every version of every package, one
# after the other: several of them, each with packages of its own, take half the time. The last looks for what is missing.
$(READY): pyproject.toml constraints.txt | old-enough
	$(PYTHON) -m venv $(VENV)
	awk '{ print > "$(VENV)/pins-" NR % 6 ".txt" }' constraints.txt
	ls $(VENV)/pins-*.txt | xargs -P 2 -n 1 $(PIP) --no-deps --requirement
	$(PIP) --no-build-isolation --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED) $(READY)

.PHONY: old-enough
old-enough:
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'quatcaps needs Python 3.11 or newer; give one with make PYTHON=...')"

clean:
	rm -rf $(VENV) demo bench site dist
