# make demo | cluster-demo | test | test-long | test-cluster | check | docs | bench NAME=wordcount [PEERS=1] | figures [NAME=gedik] | report | fuzz N=20000: each does all the set-up it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?=
N ?= 2000

.PHONY: demo cluster-demo test test-long test-cluster check docs bench peers figures report fuzz clean

demo: $(VENV)/.ready java
	$(BIN)/tidegate demo

# A standalone Spark of two workers on this machine, an application under a load that rises and falls, and a picture of what moved.
cluster-demo: $(VENV)/.ready java browser
	$(BIN)/python -m examples.cluster $(ARGS)

test: $(VENV)/.ready java browser
	$(BIN)/python -m tests.run

# What make test leaves out, eight times its generated cases, minutes of chaos, other versions of what it needs. Writes tests/long_run.md.
test-long: $(VENV)/.ready java browser
	$(BIN)/python -m tests.run --long

# Executors that come and go on a Spark cluster on this machine: minutes, most of them spent waiting.
test-cluster: $(VENV)/.ready java
	$(BIN)/python -m pytest -m cluster

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The guides and the reference as pages, in build/site; a warning fails it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: $(VENV)/.ready java $(if $(PEERS),peers)
	$(BIN)/python -m benchmarks $(or $(NAME),wordcount) $(if $(DATA),--data $(DATA)) $(ARGS)

# Flink, Bytewax and Pathway, each in an environment of its own. One that cannot be installed says why, and the rest goes on.
peers: $(patsubst benchmarks/peers/%.txt,$(VENV)/peers/%/.ready,$(wildcard benchmarks/peers/*.txt))

figures: $(VENV)/.ready
	$(BIN)/python -m figures $(NAME)

# The papers' figures and tables beside ours: docs/evaluation.md, within 45 minutes. What is there already is not run again (ARGS=--again).
report: $(VENV)/.ready java
	$(BIN)/python -m figures.evaluation $(ARGS)

fuzz: $(VENV)/.ready
	$(BIN)/python -m tests.property.fuzz $(N) $(ARGS)

clean:
	rm -rf $(VENV) build src/*.egg-info

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tidegate needs Python 3.11 or newer; point to one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[spark,dev]'
	@touch $@

$(VENV)/peers/%/.ready: benchmarks/peers/%.txt
	@echo "installing $* into $(@D)"
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PYTHON) -m venv $(@D) && \
	  $(@D)/bin/python -m pip install -q --disable-pip-version-check -r $< >$(@D)/install.log 2>&1 && touch $@ || \
	  { grep ERROR $(@D)/install.log | tail -n 3 >$(@D)/why-not.txt; echo "$* was not installed; see $(@D)/install.log" >&2; }

# The page is tested in Chromium. Where there is none it is installed, if that can be done; else those tests are skipped.
CHROMIUM := chromium chromium-driver fonts-dejavu-core
.PHONY: browser
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing $(CHROMIUM)" && timeout 300 apt-get update -qq >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends $(CHROMIUM) >/dev/null; } || \
	  echo "there is no Chromium: the page is not tested in a browser (Debian: apt-get install $(CHROMIUM))" >&2

.PHONY: java
java: $(VENV)/.ready
	@$(BIN)/python -m tidegate.java
