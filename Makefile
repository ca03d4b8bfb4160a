# `make` prints this help. Every target installs what it needs first.
PYTHON ?= python3
BIN := .venv/bin
# If it is set, each of the hundred programs that the tests start compiles the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help reference notebooks pictures docs compatible sweep test check slow format lint sizes types test-and-types recipes soak test-gpu bench-gpu faults orders mutants clean

help: ## Print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

sweep: .venv/installed ## Install into .venv, then sweep the generated disc set with the defaults
	$(BIN)/python -m automl

# The tests whose libraries only `make recipes` installs, which runs them.
FOREIGN := tests/integrations tests/tracking/inside/test_hugging_face.py

test: .venv/installed ## Install into .venv, then run the tests, without those of `make slow`
	$(BIN)/python -m pytest $(FOREIGN:%=--ignore=%) $(if $(changed),$$($(BIN)/python -m tests.changed))

check: format lint sizes test-and-types ## Before each commit: format, lint, types, tests (changed=true: those near to the change)

slow: recipes ## Run the checks that take minutes and rarely fail: the recipes, then the tests marked slow
	$(BIN)/python -m pytest -m 'slow and not gpu' $(FOREIGN:%=--ignore=%)

format: .venv/installed ## Check the formatting (mend it with: .venv/bin/ruff format)
	$(BIN)/ruff format --check

lint: .venv/installed ## Check the style
	$(BIN)/ruff check

sizes: .venv/installed ## Print which files, folders and docstrings stand out (none is an error)
	@$(BIN)/python -m tests.sizes

types: .venv/installed ## Check the types, tests included
	$(BIN)/mypy

# Both run at once: the types take a core for 20 s, and the tests leave some of theirs idle.
test-and-types: .venv/installed
	$(MAKE) --jobs=2 types test

recipes: .venv/recipes-installed ## Run the recipes of experiments/recipes, and the tests of the integrations (ONLY=name: that recipe)
	$(BIN)/python -m tests.recipes.run $(ONLY)
	$(if $(ONLY),,$(BIN)/python -m pytest $(FOREIGN))

ROUNDS ?= 20
soak: .venv/installed ## Run the properties with new random cases (ROUNDS=20 times)
	for round in $$(seq $(ROUNDS)); do \
	  $(BIN)/python -m pytest -q --hypothesis-profile soak -m hypothesis $(ONLY) || exit 1; \
	done

# Surveys need no GPU, but a torch built for CUDA asks for more than one built for CPUs.
test-gpu: .venv/installed ## Run the tests that need an NVIDIA GPU, or torch for one
	$(BIN)/python -m pytest -n 0 -m gpu tests/gpu
	$(BIN)/python -m pytest tests/measure/survey

bench-gpu: .venv/installed ## Measure on an NVIDIA GPU what it gains an exported model (experiments/014-gpu)
	$(BIN)/python experiments/014-gpu/bench_gpu.py

bench-peers: .venv-peers/installed .venv-peers-tables/installed .venv-peers-autogluon/installed ## Install the peers of experiments/001-throughput and 013-tables

FAULT_POINTS ?= 100000
faults: .venv/installed ## Try each fault of tests/faults, and print the promises; hours (FAULT_POINTS=40: that many of each)
	FAULT_POINTS=$(FAULT_POINTS) $(BIN)/python -m pytest -n 0 -m slow tests/faults

ORDERS ?= 1000
orders: .venv/installed ## Give a study commands in any order, and compare each answer with a model; hours (ORDERS=100: that many)
	ORDERS=$(ORDERS) $(BIN)/python -m pytest -n 0 -m slow tests/orders

mutants: .venv/installed ## Break one line at a time and see whether a test fails (ONLY=name: that one)
	$(BIN)/python -m tests.mutants.run $(ONLY)

reference: .venv/installed ## Write docs/reference from the code; a test fails where they differ
	$(BIN)/python -m docs.generate

notebooks: .venv/installed ## Execute docs/notebooks and store what their cells show; minutes (ONLY=table: that one)
	$(BIN)/python -m docs.run_notebooks $(ONLY)

pictures: .venv/installed ## Make docs/pictures: a sweep in a terminal, its report, MLflow's UI (needs Chromium)
	$(BIN)/python -m docs.make_pictures

docs: .venv-docs/installed reference ## Build the pages as a site with search: site/index.html opens from the disk
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs . site
	@rm -rf jupyter_execute  # copies of the notebooks that the builder leaves
	@echo "open site/index.html"

compatible: .venv/installed ## Try the lowest and newest versions of Python and the libraries; an hour, gigabytes (ONLY=lowest)
	$(BIN)/python -m tests.compatible $(ONLY)

clean: ## Remove what make made (studies and MLflow's store stay)
	rm -rf .venv .venv-docs .venv-compatible site .mypy_cache .ruff_cache .pytest_cache

# It is made again only when the project's own requirements change. pip would spend half of its time on
# compiling 26,000 files; Python compiles those that are used, when they are first.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "Installing PyTorch, MLflow and what else is needed into .venv: some minutes, once."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Further libraries that the recipes use, in the same environment.
.venv/recipes-installed: .venv/installed
	@echo "Installing what the recipes use besides into .venv: some minutes, once."
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,recipes]'
	@touch $@

# The builder of the site is no dependency of the project.
.venv-docs/installed: docs/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --no-compile --requirement $<
	@touch $@

# Environments of their own: none of it is a dependency of the project.
.PHONY: bench-peers
PEERS := experiments/001-throughput/requirements-peers.txt
.venv-peers/installed: $(PEERS) constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints.txt --requirement $(PEERS)
	@touch $@

TABLES := experiments/013-tables
.venv-peers-tables/installed: $(TABLES)/requirements-peers.txt constraints.txt
	$(PYTHON) -m venv .venv-peers-tables
	.venv-peers-tables/bin/python -m pip install --quiet --constraint constraints.txt --requirement $<
	@touch $@

# AutoGluon needs an older pandas than constraints.txt names: its file says the versions that count.
.venv-peers-autogluon/installed: $(TABLES)/requirements-autogluon.txt
	$(PYTHON) -m venv .venv-peers-autogluon
	.venv-peers-autogluon/bin/python -m pip install --quiet --requirement $<
	@touch $@
