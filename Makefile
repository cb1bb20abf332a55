# Thin by intent: every target is one script or one Python command.
# PYTHON is what makes .venv (`make test PYTHON=python3.12`), PY the Python inside it.
PY := .venv/bin/python
PYTHON ?= python3
BOOTSTRAP := $(PYTHON) scripts/bootstrap.py

.PHONY: help setup run tour test test-quick test-gpu test-upstream test-oldest-peft test-oldest-transformers lint format bench bench-layers bench-adapters bench-optimisers bench-hierarchies bench-gromov bench-superposition bench-decoder bench-numerics figures gallery docs clean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

setup:           ## create .venv and install everything the project needs
	@$(BOOTSTRAP) dev

run: setup       ## the main job: embed a taxonomy in curved and flat space, write a report
	$(PY) -m beltrami run hierarchy --resume

tour: setup      ## a smaller job: one tree in two planes, in a minute
	$(PY) -m beltrami tour

test: setup      ## all tests
	$(PY) -m pytest -n auto

test-quick: setup ## a few cases of every test that is not slow, under 3 minutes
	$(PY) -m pytest -n auto --quick

test-gpu: setup  ## the tests that need a CUDA device
	$(PY) -m pytest -m gpu

test-upstream:   ## PEFT's own tests on HypLoRA and transformers' on HELM, about 15 minutes
	@$(BOOTSTRAP) dev upstream
	$(PY) -m scripts.test_upstream
	$(PY) -m scripts.test_transformers --upstream

test-oldest-peft: setup ## the tests of adapters on the oldest PEFT they support
	$(PY) -m scripts.test_upstream --peft 0.20.0 --own

test-oldest-transformers: setup ## HELM's tests on the oldest transformers they support
	$(PY) -m scripts.test_transformers

lint: setup      ## format, lint, types, architecture
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

format: setup    ## rewrite the sources in the house format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench:           ## CPU timings beside geoopt, HypLL and Euclidean distance
	@$(BOOTSTRAP) dev bench
	$(PY) -m benchmarks.speed

bench-layers: setup ## CPU timings of the layers beside their Euclidean twins
	$(PY) -m benchmarks.layers

bench-adapters: setup ## CPU timings of HypLoRA beside PEFT's LoRA and DoRA, about 7 minutes
	$(PY) -m benchmarks.adapters

bench-optimisers: setup ## CPU timings of one optimiser step beside torch's and geoopt's
	$(PY) -m benchmarks.optimisers

bench-hierarchies: ## the hierarchy recipe beside gensim and geoopt, about 15 minutes
	@$(BOOTSTRAP) dev bench
	$(PY) -m benchmarks.hierarchies

bench-gromov:    ## Gromov's δ beside numpy and hypdelta, about 5 minutes
	@$(BOOTSTRAP) dev bench
	$(PY) -m benchmarks.gromov

bench-superposition: setup ## toy models in a stack beside one after the other
	$(PY) -m benchmarks.superposition

bench-decoder: setup ## train a small decoder and its twin in bfloat16, every value checked
	$(PY) -m benchmarks.decoder_training --jobs 2

bench-numerics:  ## the full accuracy grid and docs/numerics.md
	@$(BOOTSTRAP) dev bench
	$(PY) -m benchmarks.numerics

figures: setup   ## the pictures and numbers of docs/why-hyperbolic.md
	$(PY) -m scripts.make_figures

gallery: setup   ## the pictures of docs/gallery.md, about 5 minutes
	$(PY) -m scripts.make_gallery

docs:            ## build the documentation into site/
	@$(BOOTSTRAP) dev docs
	$(PY) -m mkdocs build --strict

clean:           ## remove what can be built again
	rm -rf .venv site build dist runs
