# Every step of development; `make` lists them. Tools live in .venv and .envs, nothing is installed elsewhere.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Tests and benches start hundreds of processes, and uv compiles nothing: what an import compiled is kept, also
# where the environment says otherwise, or each process would compile pandas and the like again.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
UV := UV_PYTHON_DOWNLOADS=never .envs/uv/bin/uv
# The locks name neither an index nor a machine; annotations say who asked for what.
LOCK := $(UV) pip compile --quiet --python-version 3.11 --python $(PY) --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header $(if $(UPGRADE),--upgrade)
ARMS := deltalake-0.22 awswrangler pyiceberg-0.11

# One at a time: two at once may spoil what both fetch into Maven's own store.
MVN := $(if $(shell command -v flock),flock Makefile) mvn -q -B
# Maven resets the terminal's colours also where it prints nothing.
PLAINLY := 2>&1 | sed -e 's/\x1b\[[0-9;]*m//g' -e '/^$$/d'
# Whether there is a Java: what can do without it runs without it.
JAVA := $(or $(if $(JAVA_HOME),$(wildcard $(JAVA_HOME)/bin/java)),$(shell command -v java))

JARS := $(or $(SAFEWRITE_JARS),jars)
LOGSTORE := safewrite/spark/jars/safewrite-logstore.jar

# Three workers on two cores, for tests also wait. loadgroup: those that share one Spark go to one worker, and go first; so
# do the tests of one file (tests/scheduling.py).
PYTEST_ARGS ?= -n 3 --dist loadgroup
STRESS_ARGS ?=
SOAK_ARGS ?=
MODEL_ARGS ?= --long
MUTANTS_ARGS ?=
BENCH_ARGS ?=
CROSSCHECK_ARGS ?=
CDC_ARGS ?= --rivals recipe by-schema iceberg-sink
MEDALLION_ARGS ?=
LAYER_ARGS ?=
AUDIT_ARGS ?=
JAR_SETS := spark spark-3.5/spark iceberg-rest kafka connect iceberg-sink spark-avro

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: .venv/.installed ## Build .venv from the locks, with safewrite itself editable

.PHONY: arms
arms: $(ARMS:%=.envs/%/.installed) ## Build the environments of the naive writers (.envs/NAME)

.PHONY: jars
jars: $(JARS)/spark/.copied $(JARS)/iceberg-rest/.copied $(JARS)/kafka/.copied $(LOGSTORE) ## Copy the jars of Spark, of Iceberg's REST catalog and of Kafka, build our own; needs Java 17 and Maven

.PHONY: lock
lock: .envs/uv/.installed $(PY) ## Remake requirements/*.txt (UPGRADE=1 takes newer versions)
	@$(LOCK) --group bootstrap -o requirements/bootstrap.txt
	@$(LOCK) --group docs -o requirements/docs.txt
	@$(LOCK) --group audit -o requirements/audit.txt
	@$(LOCK) pyproject.toml --all-extras --group test --group spark --group lint --group build \
		-o requirements/dev.txt
	@$(LOCK) pyproject.toml --all-extras -c requirements/dev.txt -o requirements/runtime.txt
	@$(LOCK) --python-platform x86_64-manylinux2014 --only-binary :all: \
		requirements/lambda-layer.in -o requirements/lambda-layer.txt
	@for arm in $(ARMS) cfn-lint spark-3.5 spark-connect kafka2delta pyiceberg-tests airflow numpy-1 spark-newest; do $(LOCK) requirements/arm-$$arm.in -o requirements/arm-$$arm.txt; done

.PHONY: lint
lint: install ## ruff (rules and format) and codespell
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/codespell

.PHONY: format
format: install ## Format the code and apply ruff's safe fixes
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.PHONY: types
types: install ## mypy, strict
	.venv/bin/mypy

.PHONY: docs
docs: .envs/docs/.installed ## The docs site in out/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 .envs/docs/bin/mkdocs build --quiet --strict --site-dir out/site
	@echo out/site/index.html

.PHONY: config-docs
config-docs: install ## What the schema says of each field of a job, into the pages of configuration; look at the difference
	@$(PY) -m tests.config_pages

.PHONY: imports
imports: install ## import-linter: which package may import which
	.venv/bin/lint-imports --no-cache  # the cache misjudges imports of modules that appeared later

.PHONY: rooms
rooms: install ## How the rooms of the package, of cdc and of medallion import each other: rooms, floors, arrows, circles
	@$(PY) -m tests.rooms

.PHONY: test
test: install arms jars ## The test suite (PYTEST_ARGS="-k name" narrows it); needs Java 17, Maven and PostgreSQL
	@$(PY) -m pytest $(PYTEST_ARGS)

.PHONY: test-spark35
test-spark35: .envs/spark-3.5/.installed $(JARS)/spark-3.5/spark/.copied $(LOGSTORE) ## Spark 3.5, which Glue 5 and EMR 7 run: a smoke test, and the change data job on Kafka; needs Java 17 and Maven
	@SAFEWRITE_JARS=$(abspath $(JARS)/spark-3.5) .envs/spark-3.5/bin/python -m pytest -m "long or not long" -W "ignore:.*distutils:DeprecationWarning" \
		tests/spark35/smoke.py tests/spark/test_arrow.py tests/spark/test_cdc.py

.PHONY: test-spark-newest
test-spark-newest: .envs/spark-newest/.installed ## The newest Spark (4.3), without any jar: frames, change logs, streams, a medallion job by tasks; needs Java 17
	@.envs/spark-newest/bin/python -m pytest tests/spark_newest/smoke.py

.PHONY: test-spark-connect
test-spark-connect: .envs/spark-connect/.installed ## Frames and streams of Spark Connect, with a server of its own; needs Java 17
	@.envs/spark-connect/bin/python -m pytest tests/spark_connect/smoke.py

.PHONY: test-numpy-1
test-numpy-1: .envs/numpy-1/.installed ## NumPy 1, which Glue 5 has: frames, values, and appends to both formats
	@.envs/numpy-1/bin/python -m pytest tests/numpy_1/smoke.py tests/values tests/frames \
		--deselect "tests/frames/test_alike.py::test_frames_of_one_form_go_together[kinds that come twice each]"  # pandas 2 has objects there

.PHONY: test-pyiceberg
test-pyiceberg: install .envs/pyiceberg-tests/.installed .envs/pyiceberg-tests/source/.fetched ## PyIceberg's own tests as they are and through SafeCatalog, compared test by test
	@$(PY) -m tests.pyiceberg_suite

.PHONY: crosscheck
crosscheck: install $(JARS)/spark/.copied $(JARS)/iceberg-rest/.copied $(LOGSTORE) ## Random programs of all engines on one table, every reader compared with an oracle; needs Java 17 and Maven (CROSSCHECK_ARGS="--seeds 1000 --spark 75")
	@$(PY) -W ignore -m bench.crosscheck $(CROSSCHECK_ARGS)

.PHONY: test-long
test-long: install arms .envs/cfn-lint/.installed .envs/airflow/.installed jars $(JARS)/connect/.copied ## The tests that need minutes: Spark with other writers, whole stress runs on each catalog; and properties on random examples; needs what test needs
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-random} $(PY) -m pytest $(PYTEST_ARGS) -m "long or hypothesis"

.PHONY: test-airflow
test-airflow: install .envs/airflow/.installed ## The DAGs of the examples on a real Airflow: medallion's with its own scheduler, two tables (with eighty in test-long), and upkeep's
	@$(PY) -m pytest -m long -k short tests/medallion/test_airflow.py tests/upkeep/test_schedules.py

.PHONY: stress
stress: install arms $(if $(JAVA),$(JARS)/iceberg-rest/.copied) ## Many writer processes under faults, naive writers under the same load; report in out/ (STRESS_ARGS; Java and Maven only for --catalog rest and Spark)
	@$(PY) -m bench.stress $(STRESS_ARGS)

.PHONY: soak
soak: install arms $(JARS)/iceberg-rest/.copied $(JARS)/spark/.copied $(LOGSTORE) ## The same for hours, with a Spark stream on each table; needs Java 17 and Maven (SOAK_ARGS)
	@$(PY) -m bench.stress --soak --spark 1 $(SOAK_ARGS)

.PHONY: model
model: install ## Exhaustive exploration of interleavings and faults (MODEL_ARGS)
	@$(PY) -m safewrite.testing.explorer $(MODEL_ARGS)

.PHONY: mutants
mutants: install ## Small changes of the code, drawn by machine: how many do the fast tests notice? (MUTANTS_ARGS="--sample 100 --seed 1", or --all)
	@nice $(PY) -m tests.mutants.draw $(MUTANTS_ARGS)

.PHONY: bench
bench: install arms ## Latency and throughput side by side with deltalake, or PyIceberg (--format iceberg); report in out/ (BENCH_ARGS)
	@$(PY) -m bench.perf $(BENCH_ARGS)

.PHONY: bench-spark
bench-spark: install $(JARS)/spark/.copied $(JARS)/iceberg-rest/.copied $(LOGSTORE) ## Appends of Spark through safewrite, against the same without it; needs Java 17 and Maven (BENCH_ARGS)
	@$(PY) -m bench.perf.spark $(BENCH_ARGS)

.PHONY: truth-cdc
truth-cdc: install jars $(JARS)/connect/.copied $(JARS)/iceberg-sink/.copied ## PostgreSQL's changes through Debezium and Kafka to Delta and Iceberg, drivers killed, rivals on the same records; needs Java 17, Maven and PostgreSQL (CDC_ARGS="--changes 100000 --kills 10")
	@$(PY) -W ignore -m bench.cdc $(CDC_ARGS)

.PHONY: bench-cdc
bench-cdc: install ## What the change data job costs without Kafka and Spark: rows a second of CPU, idle tables, later batches (BENCH_ARGS)
	@$(PY) -W ignore -m bench.cdc.throughput $(BENCH_ARGS)

.PHONY: bench-cdc-scale
bench-cdc-scale: install $(JARS)/spark/.copied $(JARS)/kafka/.copied ## The change data job on clusters of one and of two executors, both engines: CPU of each kind of process by record (BENCH_ARGS="--json FILE")
	@$(PY) -W ignore -m bench.cdc.scale $(BENCH_ARGS)

.PHONY: bench-cdc-rivals
bench-cdc-rivals: install .envs/kafka2delta/.installed $(JARS)/spark/.copied $(JARS)/kafka/.copied $(JARS)/iceberg-sink/.copied $(JARS)/spark-avro/.copied ## The change data job beside Iceberg's sink for Kafka Connect (a topic of inserts, killed too) and kafka2delta; needs Java 17 and Maven (BENCH_ARGS for the first)
	@$(PY) -W ignore -m bench.cdc.drain $(BENCH_ARGS)
	@$(PY) -W ignore -m bench.cdc.versus_kafka2delta

.PHONY: truth-medallion
truth-medallion: install ## Silver of 80 tables against the truth of their source, the job killed again and again, and the recipe that people copy (MEDALLION_ARGS="--tables 8 --files 300", "--engine spark": on a cluster whose executors are killed too)
	@$(PY) -W ignore -m bench.medallion $(MEDALLION_ARGS)

.PHONY: bench-medallion-scale
bench-medallion-scale: install $(JARS)/spark/.copied ## One large medallion table on clusters of one and of two executors, and plain Spark code: CPU, memory and shares by process (MEDALLION_ARGS="--rows 20000000 --json FILE")
	@$(PY) -W ignore -m bench.medallion.scale $(MEDALLION_ARGS)

.PHONY: bench-medallion
bench-medallion: install $(if $(JAVA),$(JARS)/spark/.copied) ## Medallion jobs against plain code without guarantees, and what a table without news costs (MEDALLION_ARGS="--tables 5"; Java and Maven only for plain Spark)
	@$(PY) -W ignore -m bench.medallion.speed $(if $(JAVA),,--no-spark) $(MEDALLION_ARGS)

.PHONY: build
build: install $(LOGSTORE) ## Wheel and source distribution in dist/; needs Java 17 and Maven for the jar in the wheel
	@$(UV) build --python $(PY) --no-build-isolation --quiet
	@ls dist

.PHONY: sbom
sbom: .envs/audit/.installed ## The SBOM of the wheel and its extras in dist/, in CycloneDX: tested versions with hashes, from requirements/runtime.txt
	@mkdir -p dist
	@made=$$(mktemp); trap 'rm -f "$$made"' EXIT; version=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' safewrite/version.py); \
		sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > "$$made"; \
		PYTHONWARNINGS=ignore .envs/audit/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject "$$made" --mc-type library \
			--output-reproducible --output-format JSON --output-file dist/safewrite.cdx.json
	@echo dist/safewrite.cdx.json

# Whatever keeps it from judging (no advisory service, a package that it leaves out) is a failure, not a pass.
.PHONY: audit
audit: .envs/audit/.installed ## Ask whether advisories are known for what the locks name; fails where it cannot ask (AUDIT_ARGS="--ignore-vuln ID")
	@for lock in runtime dev docs audit bootstrap; do \
		echo "requirements/$$lock.txt"; \
		.envs/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements/$$lock.txt $(AUDIT_ARGS) || { \
			echo "requirements/$$lock.txt was not judged, or an advisory is known: see above. Nothing passed." >&2; exit 1; }; \
	done

.PHONY: release
release: clean-tree build sbom ## What a release hands out in dist/: wheel, sources, SBOM, and SHA256SUMS; needs what build needs, and a tree without changes
	@cd dist && sha256sum safewrite_lake-*.whl safewrite_lake-*.tar.gz safewrite.cdx.json | tee SHA256SUMS

.PHONY: clean-tree
clean-tree:
	@test -z "$$(git status --porcelain)" || { echo 'A release is made of a commit, and there are changes: git status' >&2; exit 1; }
	@rm -rf dist

.PHONY: jar-sums
jar-sums: ## Write requirements/jar-sums/*.sha256 from the jars that are there; look at the difference before you commit it
	@mkdir -p requirements/jar-sums
	@for folder in $(JAR_SETS); do test -e $(JARS)/$$folder/.copied || continue; \
		(cd $(JARS)/$$folder && LC_ALL=C sha256sum -- *.jar) > requirements/jar-sums/$$(tr / - <<< "$$folder").sha256; done

.PHONY: lambda-layer
lambda-layer: install ## A Lambda layer of safewrite for Delta tables in out/lambda-layer, trimmed, with its size (LAYER_ARGS="--python python3.13" for another runtime)
	@$(PY) -m examples.lambda_layer.build out/lambda-layer --uv .envs/uv/bin/uv $(LAYER_ARGS)

.PHONY: clean
clean: ## Remove reports, caches and built files; the environments stay
	rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find safewrite bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove the environments too
	rm -rf .venv .envs

# --- environments; stamps make each step run only when its lock changed ---

.PHONY: check-python
check-python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
		echo 'The locks are for Python 3.11, which was not found. Install it: apt-get install python3.11 python3.11-venv' \
		     '(or: pyenv install 3.11), or name it: make PYTHON=/path/to/python3.11' >&2; exit 1; }

.envs/uv/.installed: requirements/bootstrap.txt | check-python
	@"$(PYTHON)" -m venv .envs/uv || { \
		echo 'Python has no venv module. Install it: apt-get install python3.11-venv' >&2; exit 1; }
	@.envs/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(PY): | .envs/uv/.installed
	@$(UV) venv --quiet --allow-existing --python "$(PYTHON)" .venv

.venv/.installed: requirements/dev.txt pyproject.toml .envs/uv/.installed | $(PY)
	@$(UV) pip sync --quiet --python $(PY) --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

.envs/docs/.installed: requirements/docs.txt .envs/uv/.installed | check-python
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python "$(PYTHON)" $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes $<
	@touch $@

.envs/audit/.installed: requirements/audit.txt .envs/uv/.installed | check-python
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python "$(PYTHON)" $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes $<
	@touch $@

.envs/%/.installed: requirements/arm-%.txt .envs/uv/.installed | check-python
	@test -x .envs/$*/bin/python || $(UV) venv --quiet --python "$(PYTHON)" .envs/$*
	@$(UV) pip sync --quiet --python .envs/$*/bin/python --require-hashes $<
	@touch $@

# PyIceberg's own tests are in its source distribution only.
.envs/pyiceberg-tests/source/.fetched: requirements/pyiceberg-source.txt .envs/uv/.installed | .envs/pyiceberg-tests/.installed
	@rm -rf $(@D)
	@.envs/uv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes -d $(@D) -r $<
	@touch $@

.PHONY: check-java
check-java:
	@test -n "$(JAVA)" || { \
		echo 'Spark and the Iceberg REST catalog need Java 17, which was not found. Install it, and Maven, which fetches their jars:' \
		     'apt-get install openjdk-17-jre-headless maven. Without Java run: make stress, make bench, make model, make lint' >&2; exit 1; }

$(JARS)/spark/.copied: tests/spark/pom.xml | check-java
	$(copy-jars)

$(JARS)/spark-3.5/spark/.copied: tests/spark35/pom.xml | check-java
	$(copy-jars)

$(JARS)/iceberg-rest/.copied: bench/java/iceberg-rest/pom.xml | check-java
	$(copy-jars)

$(JARS)/kafka/.copied: bench/java/kafka/pom.xml | check-java
	$(copy-jars)

$(JARS)/connect/.copied: bench/java/connect/pom.xml | check-java
	$(copy-jars)

$(JARS)/iceberg-sink/.copied: bench/java/iceberg-sink/pom.xml | check-java
	$(copy-jars)

$(JARS)/spark-avro/.copied: bench/java/spark-avro/pom.xml | check-java
	$(copy-jars)

# Part of the wheel.
$(LOGSTORE): safewrite/spark/java/pom.xml $(wildcard safewrite/spark/java/src/main/java/io/safewrite/*.java) | check-java
	$(need-maven)
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; \
		$(MVN) -f $< package -Dbuilt="$$built" $(PLAINLY); \
		mkdir -p $(@D); mv "$$built/$(@F)" $@

define need-maven
@command -v mvn >/dev/null || { \
	echo 'Maven, which fetches and builds jars, was not found. Install it: apt-get install maven' >&2; exit 1; }
endef

# The folder appears when it is whole: a cut download must not pass for the jars.
define copy-jars
$(need-maven)
@rm -rf $(@D) $(@D).partial
@$(MVN) -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D)).partial $(PLAINLY)
@cd $(@D).partial && LC_ALL=C sha256sum -- *.jar | diff $(abspath requirements/jar-sums)/$(subst /,-,$(patsubst $(JARS)/%,%,$(@D))).sha256 - >&2 || { \
	echo 'These are not the jars that requirements/jar-sums lists. If the pom changed, see docs/release.md; else do not run them.' >&2; exit 1; }
@mv $(@D).partial $(@D)
@touch $@
endef
