# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv from requirements.lock.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python

.PHONY: help install system demo reproduce-tables leaderboard speed assignments pictures lint format test test-slow faults faults-short fuzz audit lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

install: $(VENV)/.installed  ## make .venv and install the locked versions

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("soopf_jax needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --requirement requirements.lock
	$(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

system:  ## Debian packages for rendering (EGL) and for the tests of the report (Chromium); needs root
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends libegl1 libgl1 chromium

demo: install  ## the default benchmark, quick protocol: a table in about a minute
	$(RUN) -m soopf_jax.bench --quick

reproduce-tables: install  ## the paper's tables beside ours: about an hour on 2 cores
	$(RUN) -m soopf_jax.reproduce

leaderboard: install  ## all results in runs/ as a page and as CSV
	$(RUN) -m soopf_jax.leaderboard runs --html runs/leaderboard.html --csv runs/leaderboard.csv

speed: install  ## the trainer against PyTorch and the machine's limit
	mkdir -p build
	$(RUN) benchmarks/throughput.py --json build/speed.json --plot build/speed.png

assignments: install  ## factorial, learned and learned-sinkhorn Q compared: an hour or more
	$(RUN) -m benchmarks.assignments

pictures: install  ## the README's pictures, into assets/
	$(RUN) -m soopf_jax.report.overview assets/
	$(RUN) -m soopf_jax.substrates shapes3d-lite --columns 2 --out assets/shapes3d-lite.png
	$(RUN) -m soopf_jax.substrates mujoco --columns 2 --tile 86 --out assets/mujoco.png
	@echo "assets/report.png is a screenshot of the default run's report.html, 1280 x 1240, reduced to 64 colours"

lint: install  ## ruff and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: install  ## let ruff format and sort
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

test: install  ## all tests but the slow ones
	$(RUN) -m pytest -n auto --dist loadfile

test-slow: install  ## the slow tests
	$(RUN) -m pytest -m slow

faults: install  ## kill, fill, flip and truncate; a table of what survived
	$(RUN) -m tests.faults

faults-short: install  ## the same, each fault a few times only
	$(RUN) -m tests.faults --short

fuzz: install  ## coverage-guided fuzzing of our parsers with atheris: two minutes
	$(RUN) -m pip install --quiet atheris==3.0.0
	mkdir -p build/fuzz
	$(RUN) tests/fuzz_parsers.py -max_total_time=120 build/fuzz

audit:  ## known vulnerabilities of the locked versions; needs PyPI's advisories, and fails where they are out of reach
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet pip-audit; }
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock

lock:  ## resolve the newest versions that pyproject.toml allows and write requirements.lock
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet torch==2.13.0 'setuptools>=77'
	build/lock/bin/python -m pip install --quiet '.[dev]' torch==2.13.0
	build/lock/bin/python -m pip freeze --all --exclude soopf_jax --exclude pip | sed 's/+cpu$$//' > requirements.lock

clean:  ## remove what make made, but no results
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
