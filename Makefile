# make run    theory against experiment on a small default problem, from a fresh clone
# make test   every check: style, types, tests
# make docs   the documentation, in docs/_build/html; warnings are errors
# make bench  the benchmarks: benchmarks/results.md with its pictures, in about ten minutes on an idle machine
# make check-panels  whether the error that panels report is honest, on 300 random problems; continues where it stopped
# make check-condensed  the same for a condensed past
# make fuzz   3000 random problems over every feature and extreme, each put to every check; continues where it stopped
# make faults  damaged files, killed work, wrong requests and command lines (fault-stores, fault-page, fault-cli)
# make check-best-rate  whether the best learning rate is the best, against brute force on 330 random problems
# make check-slow  the tests that make test leaves out because they take long
# make check-measured-rate  whether the intervals of measured best rates hold as often as they say
# make clean  remove what the others made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Tests start many processes of Python, each of which would compile the package again without its kept bytecode.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal

.DELETE_ON_ERROR:
.PHONY: run test bench check-slow check-panels check-condensed check-best-rate check-measured-rate fuzz faults fault-stores fault-page fault-cli docs clean

run: $(VENV)/installed
	@mkdir -p out
	@$(BIN)/deeplinear compare --out out/compare.png

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST)

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py

check-panels: $(VENV)/installed
	$(BIN)/python benchmarks/honesty.py --workers $(WORKERS)

check-condensed: $(VENV)/installed
	$(BIN)/python benchmarks/honesty.py --method condensed --workers $(WORKERS)

fuzz: $(VENV)/installed
	$(BIN)/python benchmarks/fuzz.py --workers $(WORKERS)

faults: fault-stores fault-page fault-cli

fault-stores: $(VENV)/installed-test
	$(BIN)/python tools/faults.py

fault-page: $(VENV)/installed-test
	$(BIN)/python tools/faults_page.py

fault-cli: $(VENV)/installed-test
	$(BIN)/python tools/faults_cli.py

check-best-rate: $(VENV)/installed
	$(BIN)/python benchmarks/best_rate.py --workers $(WORKERS)

check-slow: $(VENV)/installed-test
	$(PYTEST) -m slow

check-measured-rate: $(VENV)/installed
	$(BIN)/python benchmarks/measured_rate.py

docs: $(VENV)/installed-docs
	@$(BIN)/python -c 'import matplotlib.font_manager'  # builds its list of fonts once, which it announces on stderr
	$(BIN)/sphinx-build --builder html --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) out build dist docs/_build docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf src/*.egg-info src/deeplinear/_equations/_rows.c src/deeplinear/_equations/_rows.*.so
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Each file is made when its installation is complete, so that the next run finds it and skips the work.
INSTALLED := $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-docs
$(VENV)/installed-test: EXTRA := [test]
$(VENV)/installed-docs: EXTRA := [docs]
$(INSTALLED): pyproject.toml setup.py $(wildcard src/deeplinear/_equations/*.pyx src/deeplinear/_equations/*.h) | $(BIN)/python
	@echo "Installing deeplinear$(EXTRA) and what it needs into $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.$(EXTRA)' || \
		{ echo "make: the installation failed; it needs the network (or a package index) the first time" >&2; exit 1; }
	@$(BIN)/python -c 'from deeplinear._equations.products import _rows; \
		print("The products of a training step are", "compiled." if _rows else "left to NumPy, for want of a C compiler.")'
	@touch $@ $(VENV)/installed

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "make: $(PYTHON) was not found; install Python 3.11 or later, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python 3.11 or later is needed and $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
			"say make PYTHON=/path/to/a/newer/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "make: $(PYTHON) lacks venv or ensurepip; install them (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Creating the environment $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
