# make run    theory against experiment on a small default problem, from a fresh clone
# make test   every check: style, types, tests
# make lint   style, spelling and configuration; make types  types of the code, and whether those of the package are complete
# make pytest  the tests alone
# make docs   the documentation, in docs/_build/html; warnings are errors
# make bench  the benchmarks: benchmarks/results.md with its pictures, in about ten minutes on an idle machine
# make check-panels  whether the error that panels report is honest, on 300 random problems; continues where it stopped
# make check-condensed  the same for a condensed past
# make fuzz   3000 random problems over every feature and extreme, each put to every check; continues where it stopped
# make faults  damaged files, killed work, wrong requests and command lines (fault-stores, fault-page, fault-cli)
# make check-best-rate  whether the best learning rate is the best, against brute force on 400 random problems
# make check-slow  the tests that make test leaves out because they take long
# make check-measured-rate  whether the intervals of measured best rates hold as often as they say
# make wheel-check  build the source and the wheel in isolation, install it in an empty environment, run the README there
# make wheel-try  the same for the wheel without compiled products that lies in dist
# make dist   the source and a wheel without compiled products; make wheels  compiled ones with cibuildwheel (needs a container)
# make check-package  metadata, citation and structure of the repository
# make check-lowest  the tests with the oldest versions that pyproject.toml allows
# make check-numpy  the tests without compiled products
# make coverage  which lines and branches the tests see, in out/coverage, also if a test fails
# make sanitize  compiled code with sanitizers and bounds checks
# make bench-history  a few timings, beside those that were kept; says what has become slower
# make clean  remove what the others made

PYTHON ?= python3
VENV := .venv
PROGRAMS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(PROGRAMS)
TOOLS := .venv-tools
TOOL := $(TOOLS)/$(PROGRAMS)
WORKERS ?= 2
# One more than two cores have room for, since tests also wait: for browsers, servers and other processes.
TESTERS ?= 3
# Tests start many processes of Python, each of which would compile the package again without its kept bytecode.
KEPT := PYTHONDONTWRITEBYTECODE=
SPREAD := -n $(TESTERS) --dist worksteal
PYTEST = $(KEPT) $(BIN)/pytest $(SPREAD)
PARTS ?= tests src

.DELETE_ON_ERROR:
.PHONY: run test lint types pytest bench check-slow check-panels check-condensed check-best-rate check-measured-rate fuzz faults \
	fault-stores fault-page fault-cli docs wheel-check wheel-try dist wheels check-package check-lowest check-numpy coverage sanitize bench-history clean

run: $(VENV)/installed
	@mkdir -p out
	@$(BIN)/deeplinear compare --out out/compare.png

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(PYTEST); tests=$$?; wait $$types && exit $$tests  # types are checked beside the tests

lint: $(TOOLS)/installed
	$(TOOL)/ruff check .
	$(TOOL)/ruff format --check .
	$(TOOL)/codespell .
	$(TOOL)/validate-pyproject pyproject.toml
	$(TOOL)/zizmor --offline --quiet .github

# Types of other packages are theirs; with PyTorch in the environment those of deeplinear.torch count too.
types: $(VENV)/installed-test $(TOOLS)/installed
	$(BIN)/mypy
	cd docs && PATH="$(CURDIR)/$(BIN):$$PATH" "$(CURDIR)/$(BIN)/python" ../tools/types_complete.py "$(CURDIR)/$(TOOL)/pyright"

pytest: $(VENV)/installed-test
	$(PYTEST)

wheel-check: $(TOOLS)/installed
	$(TOOL)/python tools/wheel_check.py

wheel-try:
	$(PYTHON) tools/wheel_check.py --wheel dist/*-py3-none-any.whl

dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist: $(TOOLS)/installed
	DEEPLINEAR_COMPILED=never $(TOOL)/python -m build --outdir dist
	$(TOOL)/twine check --strict dist/*

wheels: $(TOOLS)/installed
	$(TOOL)/cibuildwheel --output-dir wheelhouse

# The project has no address for mail and no page on the web yet, which pyroma asks for.
check-package: $(TOOLS)/installed
	$(TOOL)/pyroma --min 10 --skip-tests AuthorEmail,Url .
	$(TOOL)/sp-repo-review .
	$(TOOL)/cffconvert --validate

# What one package says of the next release of another is not ours to mend.
check-lowest: $(TOOLS)/installed
	$(PYTHON) -m venv --clear .venv-lowest
	$(TOOL)/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable '.[test]'
	$(KEPT) .venv-lowest/$(PROGRAMS)/pytest $(SPREAD) -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning $(PARTS)

# A copy of the tree, without the products that this one has.
check-numpy: $(TOOLS)/installed
	$(PYTHON) -m venv --clear .venv-numpy
	rm -rf out/numpy && mkdir -p out/numpy
	git ls-files | tar c -T - | tar x -C out/numpy
	DEEPLINEAR_COMPILED=never $(TOOL)/uv pip install --quiet --python .venv-numpy --editable 'out/numpy[test]'
	cd out/numpy && $(KEPT) ../../.venv-numpy/$(PROGRAMS)/pytest $(SPREAD) $(PARTS)

coverage: $(VENV)/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage>=7.10'
	rm -rf .coverage .coverage.* out/coverage
	$(KEPT) $(BIN)/coverage run -m pytest $(SPREAD) $(PARTS); tests=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage html --quiet --directory out/coverage && \
		$(BIN)/coverage report > out/coverage/report.txt; reported=$$?; tail -n 60 out/coverage/report.txt; \
		test $$tests = 0 && exit $$reported; exit $$tests

sanitize: $(VENV)/installed-test
	$(BIN)/python tools/sanitize.py

bench-history: $(VENV)/installed
	$(BIN)/python benchmarks/history.py

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
	$(BIN)/python benchmarks/best_rate.py --programs --workers $(WORKERS)

check-slow: $(VENV)/installed-test
	$(PYTEST) -m slow

check-measured-rate: $(VENV)/installed
	$(BIN)/python benchmarks/measured_rate.py

docs: $(VENV)/installed-docs
	@$(BIN)/python -c 'import matplotlib.font_manager'  # builds its list of fonts once, which it announces on stderr
	$(BIN)/sphinx-build --builder html --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build/html
	$(BIN)/python tools/check_site.py docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(TOOLS) .venv-lowest .venv-numpy .coverage .coverage.* wheelhouse out build dist docs/_build docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
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

$(TOOLS)/installed: pyproject.toml | $(BIN)/python
	@echo "Installing tools into $(TOOLS) ..."
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOL)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(TOOL)/python -m pip install --quiet --quiet --disable-pip-version-check --group dev
	@touch $@

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
