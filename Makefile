# Each target works by itself, from a fresh clone: it makes .venv first if that is not there.

PYTHON_IN_VENV = .venv/bin/python

.DEFAULT_GOAL = help
.PHONY: help env demo test test-system test-compilers lint faults bench bench-checkpoint bench-data bench-peers bench-growth plans clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

env: ## .venv with Python 3.12 or 3.13 and the pinned packages (every target does it)
	@sh setup.sh

demo: env ## raw text to a trained model: corpus, cleaning, tokenizer, training, samples
	@$(PYTHON_IN_VENV) -m jaxlm demo

test: env ## the tests
	@$(PYTHON_IN_VENV) -m pytest -n auto --maxprocesses=4 --dist=loadfile

test-system: env ## the long tests: the demo, kills, real services
	@$(PYTHON_IN_VENV) -m pytest -m system -n 2 --dist=loadfile --no-loadscope-reorder

test-compilers: env ## programs of all kinds through the compilers of TPU and GPU, long: after a change to the step
	@$(PYTHON_IN_VENV) -m pytest -m compilers

faults: env ## the fault campaign, half an hour, writes docs/faults.md; ARGS="--rows=NAME,... --again --list"
	@$(PYTHON_IN_VENV) -m bench.faults $(ARGS)

lint: env ## style and types
	@$(PYTHON_IN_VENV) -m ruff check .
	@$(PYTHON_IN_VENV) -m ruff format --check .
	@$(PYTHON_IN_VENV) -m basedpyright

bench: env ## speed of the step and of the loader on this machine
	@$(PYTHON_IN_VENV) -m bench

bench-checkpoint: env ## saves beside plain tensorstore writes, and memory over 100 saves
	@$(PYTHON_IN_VENV) -m bench.checkpoint

bench-data: env ## speed and memory of the data build, its parts beside others, the loader beside training
	@$(PYTHON_IN_VENV) -m bench.data

bench-peers: env ## the step beside PyTorch's and MaxText's, 2 hours, writes a section of docs/speed.md; ARGS="--rounds=1"
	@$(PYTHON_IN_VENV) -m bench.trainers $(ARGS)

bench-growth: env ## what a step takes with layers, width, sequence and batch doubled, 15 minutes
	@$(PYTHON_IN_VENV) -m bench.growth $(ARGS)

plans: env ## docs/plans.md and the headers of configs/lm_*.py: every config compiled for every target, hours
	@$(PYTHON_IN_VENV) -m jaxlm.plan.table

clean: ## removes .venv and caches; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
