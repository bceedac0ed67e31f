# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-optional coverage attack lint types install docs site release clean

install: $(VENV)/.installed

# torch first and by its exact version: a range would bring gigabytes of CUDA libraries to a machine without a GPU.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r requirements-dev.txt
	touch $@

demo: install  ## Train a first agent and measure it.
	$(BIN)/etude train CartPole-v1:ppo
	$(BIN)/etude evaluate @last --episodes 100

lint: install
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools

types: install
	$(BIN)/pyright

test: install lint types  ## Lint, types, and every test of seconds.
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: install  ## Learning results: minutes to an hour.
	$(BIN)/python -m pytest -m slow

test-optional: install  ## The contract on families that need packages of their own; install those first.
	$(BIN)/python -m pytest -m optional tests/environments/families tests/robots/test_warp.py tests/viewing/test_browser.py tests/launching tests/telemetry tests/test_presets_train.py

attack: install  ## Kill runs, flip bytes, plant hostile files, throw random configs: an hour or two.
	$(BIN)/python -m tools.attack
	$(BIN)/python -m tools.attack.configs --count 5000

# COVERAGE_OF=tests/runs measures a part of the suite alone.
COVERAGE_OF ?= tests

coverage: install  ## Which lines and branches of src/etude the tests of seconds reach.
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term --cov-report=html:build/coverage $(COVERAGE_OF)

docs: install  ## Refresh the generated parts of the documentation.
	$(BIN)/python -m tools.reference.configuration docs/configuration.md
	$(BIN)/python -m tools.reference.presets docs/presets.md
	$(BIN)/python -m tools.reference.wrappers docs/wrappers.md
	$(BIN)/python -m tools.reference.robots docs/robots.md
	$(BIN)/python -m tools.reference.metrics docs/metrics.md

site: install  ## These pages as a site that works offline, in build/site; any warning is an error.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	$(BIN)/python -m tools.site build/site

release: install  ## Wheel and sdist, and the README's ten minutes in an empty environment.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m tools.release dist

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist src/*.egg-info
