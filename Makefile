# `make` prints this help. VENV names the folder of the environment; nothing outside it is touched.
VENV ?= .venv
PYTHON ?= python3
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(VENV)/uv/bin/uv

# Nothing that names an index may reach a lock file, and the resolution must not depend on this
# machine's extra indexes: they may hold a few of a release's files only.
COMPILE := env -u UV_INDEX -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS $(UV) pip compile --quiet --universal \
  --python-version 3.11 --generate-hashes --custom-compile-command "make lock" --no-emit-index-url \
  --no-emit-find-links --prerelease disallow $(ARGS)

.PHONY: help install check test demo lock generate clean soak test-containers test-debian

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make the environment from the locks (quick when nothing changed)

$(STAMP): locks/dev.txt locks/uv.txt locks/install.py pyproject.toml
	@$(PYTHON) locks/install.py $(VENV)
	@touch $@

check: $(STAMP) ## format, lint, types, imports, generated files, locks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m statemachines --check
	@if grep -n '://' locks/*.txt; then echo 'A lock file names a host.' >&2; exit 1; fi

# Two at a time; the tests of a file stay together, because they share a cluster.
test: $(STAMP) ## all tests but the long ones; ARGS is handed to pytest (-n 0: one after the other)
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

soak: $(STAMP) ## the tests that take minutes
	$(BIN)/pytest -m soak --timeout 1800 $(ARGS)

test-containers: $(STAMP) ## tests/sql on a PostgreSQL in a container (Docker or podman); fails without an engine
	XCE_TEST_PROVIDER=containers $(BIN)/pytest tests/sql --timeout 120 $(ARGS)

test-debian: $(STAMP) ## what touches SQL, on Debian's PostgreSQL 15
	XCE_TEST_PROVIDER=15 $(BIN)/pytest tests/sql tests/races tests/contracts tests/api $(ARGS)

demo: $(STAMP) ## a job that grows and shrinks, on this machine
	$(BIN)/xce demo $(ARGS)

generate: $(STAMP) ## print what the lifecycle tables imply: SQL and diagrams
	$(BIN)/python -m statemachines

lock: ## resolve all versions again; ARGS="--upgrade" takes newer ones
	@test -x $(UV) || $(PYTHON) locks/install.py $(VENV)
	$(COMPILE) pyproject.toml -o locks/runtime.txt
	$(COMPILE) pyproject.toml --group test --group check --group build -c locks/runtime.txt -o locks/dev.txt
	echo 'uv>=0.9' | $(COMPILE) - -o locks/uv.txt

clean: ## remove the environment and everything that tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
