# Each target sets up its own virtual environment when needed.
# TORCH_INDEX names another package index for torch and torchvision (for example a CPU-only one).
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
# Arguments for test-slow, which tests to run: all of them by default.
TESTS ?=
# Argument for test-changed, a commit: the working tree is compared with it.
BASE ?= HEAD
# Arguments for compare: a folder with mnist/ and cifar100/, one with a folder of photos for each class, other options.
DATA ?=
PHOTOS ?=
COMPARE ?=
BIN := $(VENV)/bin
# A file stays with one process, which makes its fixtures once; tests/plugins/file_order.py puts the longest first.
BY_FILE := --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# One process of tests more than cores: tests wait for other processes and for clocks much of their time.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() + 1))')
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Modules are compiled when they are first imported, and kept: pip would compile, one after the other, the many that
# nobody imports; and container images often forbid to keep, so that each process would compile all again.
export PIP_COMPILE := 0
# setuptools warns of every editable installation, in a block that looks like a failure. It is about folders with the name
# of a package, which are the packages here.
EDITABLE := PYTHONWARNINGS="ignore:Editable installation"
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve compare test test-changed test-slow test-all test-campaign check docs dist clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	$(BIN)/python -m tools.demo

serve: $(VENV)/.demo
	$(BIN)/perennial serve

# Perennial's default beside what people do today: about 20 minutes on two cores (docs/howto/compare-methods.md).
compare: $(VENV)/.demo
	$(BIN)/python -m bench.research.compare --data "$(DATA)" --photos "$(PHOTOS)" $(COMPARE)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto $(BY_FILE)

# The fast and long tests that import or read a file that differs from BASE.
test-changed: $(VENV)/.dev
	tests=$$($(BIN)/python -m tests.changed $(BASE)) || exit; \
	if [ -z "$$tests" ]; then echo "The change reaches no test."; \
	else $(BIN)/python -m pytest -m "not campaign" -n auto $(BY_FILE) $$tests; fi

# Fast and long tests in one run, which is shorter: while long tests wait for servers and clocks, the fast ones compute.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not campaign" -n auto $(BY_FILE)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow and not campaign" -n auto $(BY_FILE) $(TESTS)

# What the long tests show, at greater length: before a release.
test-campaign: $(VENV)/.dev
	failed=0; $(BIN)/python -m pytest -m campaign -n 2 $(BY_FILE) $(TESTS) || failed=$$?; \
	PERENNIAL_TEST_INTERLEAVINGS=400 PERENNIAL_TEST_LINE_STEPS=6000 \
	$(BIN)/python -m pytest --timeout 3000 -n 2 $(BY_FILE) tests/core/scheduling/test_protocol.py tests/core/scheduling/test_lineage.py \
	|| failed=$$?; exit $$failed

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The S3 server of the tests, which they install themselves where it is missing.
.venv-swift/ready: $(VENV)/.demo tests/services/swift-constraints.txt
	PYTHONPATH=.:tests/services $(BIN)/python -c "import s3_server; s3_server.install_if_missing()"

# The guide, which the service shows under /docs/guide/: any warning or dead link fails.
docs: $(VENV)/.dev
	$(BIN)/python -m tools.guide

# Wheels, source distributions and what else a release has (docs/howto/install.md): in ./dist.
dist: $(VENV)/.dev
	$(BIN)/python -m tools.release.distributions
	$(BIN)/check-wheel-contents --config pyproject.toml dist/perennial_service-*.whl
	$(BIN)/check-wheel-contents --config client/pyproject.toml dist/perennial_client-*.whl

clean:
	rm -rf $(VENV) .venv-swift .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info api/built_guide build dist

$(VENV)/.torch: constraints.txt
	@echo "Setting up $(VENV): pip, PyTorch, torchvision. The first time takes minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip==26.3
	$(BIN)/pip install --quiet $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) -c constraints.txt torch torchvision
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml client/pyproject.toml
	@echo "Installing Perennial and the packages it needs. pip prints nothing until it is done."
	$(EDITABLE) $(BIN)/pip install --quiet -c constraints.txt -e ".[demo]" -e client
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(EDITABLE) $(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@
