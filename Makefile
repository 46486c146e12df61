# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv from requirements.lock.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python

.PHONY: help install system system-slurm demo reproduce-tables results leaderboard speed assignments pictures docs lint format test test-slow test-slurm test-cloud gpu-check faults faults-short fuzz audit lock clean

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

system-slurm:  ## Debian packages of Slurm, for `make test-slurm`; needs root
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends slurm-wlm munge

demo: install  ## the default benchmark, quick protocol: a table in about a minute
	$(RUN) -m soopf_jax.bench --quick

reproduce-tables: install  ## the paper's tables beside ours: about an hour on 2 cores
	$(RUN) -m soopf_jax.reproduce

results: install  ## every table of the documentation: hours; finished runs in runs/results are kept
	$(RUN) -m docs.results

leaderboard: install  ## all results in runs/ as a page and as CSV
	$(RUN) -m soopf_jax.leaderboard runs --html runs/leaderboard.html --csv runs/leaderboard.csv

speed: install  ## the trainer against PyTorch and the machine's limit
	mkdir -p build
	$(RUN) benchmarks/throughput.py --json build/speed.json --plot build/speed.png

assignments: install  ## factorial, learned and learned-sinkhorn Q compared: an hour or more
	$(RUN) -m benchmarks.assignments

pictures: install  ## the pictures of the README and the documentation, into assets/
	$(RUN) -m docs.overview assets/
	$(RUN) -m soopf_jax.substrates shapes3d-lite --columns 2 --out assets/shapes3d-lite.png
	$(RUN) -m soopf_jax.substrates mujoco --columns 2 --tile 86 --out assets/mujoco.png
	@echo "assets/report.png is a screenshot of the report.html of make demo, 1280 x 1240, reduced to 64 colours"

docs: install  ## the documentation as a site, into build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict

lint: install  ## ruff, mypy and the order of the folders
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

format: install  ## let ruff format and sort
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

test: install  ## all tests but the slow ones
	$(RUN) -m pytest -n logical --dist loadfile --no-loadscope-reorder

test-slow: install  ## the slow tests
	$(RUN) -m pytest -m slow

test-cloud: build/s3/.installed  ## features on an S3 server on this machine; installs s3fs and moto (120 MB) into build/s3 first
	PYTHONPATH=build/s3 $(RUN) -m pytest tests/test_s3.py

build/s3/.installed: $(VENV)/.installed tests/requirements-s3.lock
	$(RUN) -m pip install --quiet --no-deps --upgrade --target build/s3 --requirement tests/requirements-s3.lock
	touch $@

test-slurm: install  ## a study on a Slurm of one node, which the tests start and stop; needs root and `make system-slurm`
	$(RUN) -m pytest tests/slurm -m 'slurm or slow'

gpu-check: build/gpu/.installed  ## compile the programs for GPUs, without one; installs 5.6 GB into build/gpu first
	build/gpu/bin/python benchmarks/gpu_check.py

build/gpu/.installed: requirements.lock pyproject.toml
	test -x build/gpu/bin/python || $(PYTHON) -m venv build/gpu
	build/gpu/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[cuda12]'
	touch $@

faults: install  ## kill processes, fill disks, damage files; print a table of what survived
	$(RUN) -m tests.faults

faults-short: install  ## a few times only, and only the faults that `make test` leaves out
	$(RUN) -m tests.faults --short

fuzz: install  ## coverage-guided fuzzing of our parsers with atheris: two minutes
	$(RUN) -m pip install --quiet atheris==3.0.0
	mkdir -p build/fuzz
	$(RUN) tests/fuzz_parsers.py -max_total_time=120 build/fuzz

audit:  ## known vulnerabilities of the locked versions; needs access to PyPI's advisories
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet pip-audit; }
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock

lock:  ## resolve the newest versions that pyproject.toml allows and write requirements.lock
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet torch==2.13.0 'setuptools>=77'
	build/lock/bin/python -m pip install --quiet '.[all,dev]' torch==2.13.0
	build/lock/bin/python -m pip freeze --all --exclude soopf_jax --exclude pip | sed 's/+cpu$$//' > requirements.lock

clean:  ## remove what make has made, except results
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
