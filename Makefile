# One entrance for people and for CI. A bare checkout needs Python 3.11 or newer, make and git; `make run` and
# `make test` build their own virtual environment from constraints.txt (pins with hashes) and reuse it.
#
#   make run      start the broker in the foreground     ARGS="--set key=value" adds options
#   make demo     an official client's producer and two subscriptions at work against a broker
#   make cluster  three bookies and three brokers as processes of this machine, until Ctrl-C
#                 ARGS="--zookeeper localhost:2181" uses a ZooKeeper in place of a served file
#   make test     ruff, mypy, pytest                     TESTS=tests/foundation/settings runs a part of the tests
#   make test-slow   tests beside programs that pip does not bring (Java, Go, Rust, Docker, Prometheus, a browser), and slow ones
#   make test-debug  the tests once more with asyncio's debug mode and warnings as errors
#   make coverage    branch coverage of the tests, a line for each room
#   make pipeline jobs on access records, by Spark  ARGS="JOB PATH" (recommend, on the sample that ships)
#   make test-apache-bookkeeper  all tests with a broker, on every storage   MAGNETAR_BOOKKEEPER_HOME=... names Apache's
#   make test-apache-metadata  brokers of ours and of Apache take turns on one ZooKeeper   MAGNETAR_PULSAR_HOME=... names Apache's
#   make bench    workloads through the official client  ARGS="--help" shows the choices
#   make docs     the documentation as pages with a search, in build/docs
#   make dist     a wheel and a source archive in dist/, the first installed and tried in an empty environment;
#                 beside them the modules for Spark's executors (spark-submit --py-files)
#   make lint | format | generate | constraints | image | clean

VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -q
# The first one that is new enough; evaluated only when the environment has to be built.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
RUNTIME := $(VENV)/.runtime-installed
DEVELOPMENT := $(VENV)/.development-installed
ARGS ?=
TESTS ?=
# Tests side by side, more than a small machine has cores: most of a test's time goes by in waiting for processes.
WORKERS ?= 4

# Tests start some hundreds of Python processes; with this set in the environment each would compile all its modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run demo cluster pipeline test test-slow test-debug coverage test-apache-bookkeeper test-apache-metadata lint style format bench docs dist image generate constraints clean
.DEFAULT_GOAL := run

run: $(RUNTIME)
	@exec $(PY) -m magnetar standalone $(ARGS)

demo: $(RUNTIME)
	@exec $(PY) -m magnetar.commands.demo $(ARGS)

cluster: $(RUNTIME)
	@exec $(PY) -m magnetar.commands.local_cluster $(ARGS)

pipeline: $(DEVELOPMENT)
	@exec $(PY) -m magnetar pipeline $(or $(ARGS),recommend pipeline/sample)

PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile -ra --durations=10 --durations-min=2

# mypy runs beside the tests and tells its findings at the end.
test: style
	@set -e; report=$$(mktemp); trap 'rm -f "$$report"' EXIT; \
	$(PY) -m mypy >"$$report" 2>&1 & types=$$!; \
	echo '$(PYTEST) -m "not peer and not slow" $(TESTS)'; \
	tests=0; $(PYTEST) -m "not peer and not slow" $(TESTS) || tests=$$?; \
	echo '$(PY) -m mypy'; \
	typed=0; wait $$types || typed=$$?; cat "$$report"; \
	test $$tests = 0 && test $$typed = 0

# A test whose peer is missing is skipped with the reason; .ci/peers installs what it can. Slow tests need time alone.
test-slow: $(DEVELOPMENT)
	$(PYTEST) -m "peer or slow" $(TESTS)

# Asyncio's debug mode finds coroutines that nobody awaits and callbacks that come from the wrong thread. Spark's tests
# are left out: their warnings come from Spark's own modules.
test-debug: $(DEVELOPMENT)
	PYTHONASYNCIODEBUG=1 $(PYTEST) -W error -m "not peer and not slow" $(or $(TESTS),tests/broker tests/bookie_stub tests/bookkeeper tests/entry_cache tests/foundation tests/protocol tests/magnetar tests/sim)

# A test that counts a process's imports fails here, since the measuring is one of them; the report comes all the same.
coverage: $(DEVELOPMENT)
	-$(PYTEST) -m "not peer" --cov --cov-report= $(TESTS)
	$(PY) .ci/coverage_by_room.py

test-apache-bookkeeper: $(DEVELOPMENT)
	$(PY) -m tests.storages $(ARGS)

# Without Apache's distribution every test would be skipped, and the target would succeed without one comparison.
APACHE_METADATA_TESTS = $(addprefix tests/interop/test_apache_,takes_turns.py takes_turns_with_documents.py takes_over.py reads_ours.py racks.py offloads.py shadows.py)

test-apache-metadata: $(DEVELOPMENT)
	@test -n "$(MAGNETAR_PULSAR_HOME)" -a -d "$(MAGNETAR_PULSAR_HOME)/lib" || { echo "MAGNETAR_PULSAR_HOME has to name an unpacked Apache Pulsar 4.2, the folder that has lib" >&2; exit 2; }
	@command -v java >/dev/null || { echo "Java is missing" >&2; exit 2; }
	MAGNETAR_PULSAR_HOME="$(MAGNETAR_PULSAR_HOME)" $(PY) -m pytest -ra -n0 $(APACHE_METADATA_TESTS) $(ARGS)

lint: style
	$(PY) -m mypy

style: $(DEVELOPMENT)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(DEVELOPMENT)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(DEVELOPMENT)
	$(PY) -m bench $(ARGS)

docs: $(DEVELOPMENT)
	$(PY) docs/site/build.py

dist: $(DEVELOPMENT)
	rm -rf dist build
	$(PY) -m build --no-isolation --outdir dist .
	$(PY) -m pipeline.code_archive dist
	$(PY) .ci/try_dist.py dist

image:
	docker build -t magnetar:latest .

generate: $(DEVELOPMENT)
	$(PY) -m docs.pages.generate
	$(PY) -m tests.vectors.queue_pictures

constraints: $(DEVELOPMENT)
	$(PIP) install uv
	$(PY) .ci/pin.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# editable_mode=compat: a plain path instead of an import hook, which every start of Python would pay for.
$(RUNTIME): constraints.txt pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 2; }
	@test -x $(PY) || { echo "building $(VENV) with $(PYTHON) ..."; $(PYTHON) -m venv $(VENV); }
	@sed '/^# development/,$$d' constraints.txt > $(VENV)/runtime.txt
	$(PIP) install --require-hashes -r $(VENV)/runtime.txt
	$(PIP) install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

$(DEVELOPMENT): $(RUNTIME)
	$(PIP) install --require-hashes -r constraints.txt
	@touch $@
