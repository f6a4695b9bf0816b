# make run | setup | plugins | test | test-long | docs | options | train | bench | clean. It needs Python 3.11 or newer
# and make; everything else goes into .venv. `run` installs streamer alone, `setup` what tests and training need, too.
PYTHON ?= python3
BIN := .venv/bin
# For `setup`. TORCH may name another build or release. It may carry options of pip, such as the index of
# PyTorch's wheels for CPUs.
TORCH ?= torch==2.13.0
PROGRAMS ?= 'livekit-agents>=1.8,<2' 'pipecat-ai>=1.14,<2'
CORE := .venv/.core
STAMP := .venv/.ready
PLUGINS := .cache/plugins
# Python compiles what a program imports, a fifth of what there is: 40 MB less.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# compat: else Python, started in the folder above a clone called streamer, would import that folder.
EDITABLE := --config-settings editable_mode=compat --editable
# Options of the training, e.g. make train TRAIN="--clones DIR" (recorded people) or TRAIN=--without-people.
TRAIN ?=
# Tests run in so many processes; most of a test's time is a process that starts.
WORKERS ?= 2
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM = false
# Compiled modules are kept: a test starts hundreds of processes, and each would compile all of ours.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run plugins test test-long docs options train bench clean
setup: $(STAMP)

$(CORE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "streamer needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) $(EDITABLE) .
	touch $@

$(STAMP): $(CORE)
	$(PIP) $(TORCH)
	$(PIP) $(EDITABLE) '.[dev]'
	$(BIN)/streamer warm  # compiles the kernels for this processor, once: 8 s of CPU time
	touch $@

# What the plug-ins are tested in, apart: Pipecat wants older releases of soundfile, soxr and protobuf. 257 MB in
# addition to .venv, whose packages it sees. Its form, a .pth file, keeps its own packages first.
plugins: $(PLUGINS)/.ready

$(PLUGINS)/.ready: $(STAMP)
	test -x $(PLUGINS)/bin/python || $(PYTHON) -m venv $(PLUGINS)
	for way in $(PLUGINS)/lib/python3.*/site-packages; do \
	  $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$way/dev.pth; done
	$(PLUGINS)/bin/python -m pip install --quiet --disable-pip-version-check $(PROGRAMS)
	touch $@

run: $(CORE)
	$(BIN)/streamer describe samples/*.wav

test: $(STAMP) plugins
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/streamer warm  # a test that compiles would say so on stderr
	$(BIN)/python -m pytest -m 'not long' -n $(WORKERS) --dist loadfile

# Where there is no build of the fuzzer, its tests are skipped, and say so.
test-long: $(STAMP) plugins
	$(PIP) $(EDITABLE) '.[scale]'
	-$(PIP) $(EDITABLE) '.[fuzz]'
	$(BIN)/python -m pytest

# The site, into build/site. Strict: a link that leads nowhere ends it. The variable silences a notice
# of the theme's makers.
docs: $(STAMP)
	$(PIP) $(EDITABLE) '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

train: $(STAMP)
	$(BIN)/python -m pipelines.embedded.train $(TRAIN)

options: $(STAMP)
	$(BIN)/python docs/options_page.py > docs/options.md

bench: $(STAMP)
	$(BIN)/python -m bench.quality
	$(BIN)/python -m bench.vs_transformers
	$(BIN)/python -m bench.latency
	$(BIN)/python -m bench.load

clean:
	rm -rf .venv $(PLUGINS) build dist *.egg-info
