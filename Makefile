# One door: what the hooks run and what CI runs is what these targets run.
SHELL := /bin/bash
# Whatever the environment says: most programs of the tests would be compiled each time they start.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

# The distribution's own: it is the one that the package runs on, and it is built for speed, which takes a fifth from the
# time of the tests.
PYTHON := $(or $(shell for p in /usr/bin/python3 python3; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done),python3)
VENV := .venv
BIN := $(VENV)/bin
# What cloud-init accepts as user data.
CLOUD_CONFIG := $(VENV)/share/cloud-config.schema.json
# Programs of the laboratory and of the checks; each package is installed only where missing.
PACKAGES := python3-venv bcache-tools qemu-system-x86 qemu-utils mmdebstrap ovmf mtools dosfstools gdisk e2fsprogs patchelf \
            btrfs-progs cryptsetup-bin util-linux udev libudev1 iproute2 systemd ca-certificates dpkg-dev debhelper dh-python gcc libc6-dev
# Programs that build and check the Debian package.
DEB_PACKAGES := python3-venv dpkg-dev debhelper dh-python lintian apt-utils
LOCKS := requirements/dev.txt requirements/guest.txt
# Guests, the longest files first: each process gets the next one when two tests of its last are left.
SLOW_TESTS := $(addprefix tests/,$(addsuffix .py,faults/test_faults e2e/test_operator e2e/test_interrupted_cycle \
              e2e/test_elastic_cycle e2e/test_machine e2e/test_qemu_boots e2e/test_commands e2e/test_cache_host e2e/test_uml))
# What the laboratory asks of a machine, and what only QEMU has.
MACHINE_TESTS := $(addprefix tests/,$(addsuffix .py,e2e/test_machine e2e/test_stored_state))
FAST_TESTS := tests/scenario tests/unit tests/contract
QUICK_TESTS := $(addprefix tests/unit/,$(addprefix elastio/,core strategy agent host metrics) elastio_setup)
# A power cut at every sector: a sixth of their time. `make unit` has them.
LENGTHY_TESTS := tests/unit/elastio_setup/test_tombstone_interrupted.py tests/unit/elastio/host/test_saved_piece.py
LONG_TESTS := tests/crash tests/mutants tests/property
# Tests that only compute share all processors; those with guests start as many guests as two of them bear.
SPREAD := -n logical --dist worksteal
# A guest waits most of the time, for its disks and its cloud: three files at a time fill two processors.
SPREAD_GUESTS := -n 3 --dist loadfile
# Items of half a minute, the slowest first, one at a time to whoever is free.
SPREAD_LONG := -n logical --dist load --maxschedchunk 1

.PHONY: help setup prepared packages guest-image fmt lint types contracts limits words unit lowest long quick check test storms mutants e2e machines operator faults-short test-openstack record-openstack demo bench faults measure evaluation image wheel-test deb repo deb-test lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set-up ------------------------------------------------------------------------------------------------

# What guests need; the rest of the set-up is for tests. The image is built while the virtual environment is made.
prepared: packages
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.installed guest-image

# Only root can build it; who is not can still run all tests without guests.
guest-image: packages
	@if [ "$$(id -u)" = 0 ]; then cd testbed && $(PYTHON) -m elastio_testbed.image; fi

setup: prepared $(BIN)/promtool $(BIN)/shellcheck $(CLOUD_CONFIG) ## Install everything: system packages, virtual environment, git hooks
	@if git rev-parse --git-dir >/dev/null 2>&1; then git config core.hooksPath .githooks; fi

packages:
	@missing=$$(for p in $(PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  apt-get update -q >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing >/dev/null || \
	  { echo "apt-get could not install:" $$missing >&2; exit 1; }; \
	fi

$(VENV)/.installed: $(LOCKS) pyproject.toml testbed/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./testbed
	touch $@

# One file of a Debian package, as the target. The whole packages would run a server, or configure this machine.
define unpacked
@rm -rf build/$(1) && mkdir -p build/$(1) $(@D)
@cd build/$(1) && { apt-get download -q $(1) >/dev/null 2>&1 || \
  { apt-get update -q >/dev/null && apt-get download -q $(1) >/dev/null; } } && \
  dpkg-deb --fsys-tarfile $(1)_*.deb | tar -xO ./usr/$(2) > file && chmod 755 file
@mv build/$(1)/file $@ && rm -r build/$(1)
endef

$(BIN)/promtool: | packages $(VENV)/.installed
	$(call unpacked,prometheus,bin/promtool)

$(BIN)/prometheus: | packages $(VENV)/.installed
	$(call unpacked,prometheus,bin/prometheus)

$(BIN)/shellcheck: | packages $(VENV)/.installed
	$(call unpacked,shellcheck,bin/shellcheck)

$(CLOUD_CONFIG): | packages $(VENV)/.installed
	$(call unpacked,cloud-init,lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json)

lock: ## Resolve the lock files again
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv
	for name in guest dev deb; do $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  requirements/$$name.in -o requirements/$$name.txt; done

# --- checks ------------------------------------------------------------------------------------------------

fmt: ## Format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: $(VENV)/.installed
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet

types: $(VENV)/.installed
	$(BIN)/mypy

contracts: $(VENV)/.installed
	$(BIN)/lint-imports --no-cache

limits: $(VENV)/.installed
	$(BIN)/python -m tests.limits

words: $(VENV)/.installed ## Retired words of the glossary that are still used, by file and line
	$(BIN)/python -m tests.words

unit: $(VENV)/.installed
	$(BIN)/pytest -q $(SPREAD) $(FAST_TESTS)

lowest: $(VENV)/.installed ## The lowest libraries that are declared, and Debian 13's: every module, and the help of every command
	$(BIN)/python -m tests.lowest build/lowest

long: $(VENV)/.installed ## Property tests, crash tests, mutants, on all processors
	$(BIN)/pytest -q $(SPREAD_LONG) --junitxml build/long.xml $(LONG_TESTS)

quick: $(VENV)/.installed ## In half a minute: lint, import contracts, types, limits, words, and the unit tests of the core and what drives it
	@$(MAKE) --no-print-directory lint contracts types limits words
	$(BIN)/pytest -q $(SPREAD) $(QUICK_TESTS) $(addprefix --ignore=,$(LENGTHY_TESTS))

check: ## Lint, types, import contracts, limits, words, unit and contract tests, with the time of each
	$(PYTHON) -m tests.parts setup lint types contracts limits words unit

test: ## Everything: checks, property and crash tests, mutants, the elastic cycle and eight faults in guests
	$(PYTHON) -m tests.parts

storms: $(VENV)/.installed ## Every crash point with every fault, and 10,000 random schedules, in the simulator
	$(BIN)/python -m tests.crash.campaign
	$(BIN)/python -m tests.property.campaign 10000

mutants: $(VENV)/.installed ## Break every safety rule once: random schedules or crash cases must notice
	$(BIN)/python -m tests.mutants.campaign

e2e: setup ## The elastic cycle, and a fault of each group, on real bcache in guests
	$(BIN)/pytest -q $(SPREAD_GUESTS) $(SLOW_TESTS)

machines: setup ## The laboratory's machines on QEMU: the contract, and guests that resume from a stored state
	ELASTIO_HYPERVISOR=qemu $(BIN)/pytest -q $(MACHINE_TESTS)

operator: setup $(BIN)/prometheus ## Take-over, adoption, upgrade, purge, journal, Prometheus, faults beside a second device: in guests (an hour)
	$(BIN)/pytest -q tests/operator

faults-short: setup ## Faults, recovery procedures, stale reads, cuts, a flaw of the kernel: in guests (a quarter of an hour)
	$(BIN)/pytest -q $(SPREAD_GUESTS) tests/faults

# Services of the real cloud run only as long as the target does.
WITH_OPENSTACK = set -e; trap '$(BIN)/elastio-testbed cloud openstack down' EXIT; \
  $(BIN)/elastio-testbed cloud openstack up

test-openstack: setup ## A real OpenStack on this machine: contract suite, demo and faults, then stopped
	$(WITH_OPENSTACK); ELASTIO_OPENSTACK=live $(BIN)/pytest -q tests/contract -k openstack; \
	  $(BIN)/elastio-testbed cloud openstack status; \
	  $(BIN)/elastio-testbed run demo --cloud openstack --scale 0.12 --bandwidth 0.5 \
	    --json out/openstack/result.json --png out/openstack/result.png; \
	  $(BIN)/pytest -q tests/openstack

record-openstack: setup ## Record again what the provider's tests replay
	$(WITH_OPENSTACK); ELASTIO_OPENSTACK=record $(BIN)/pytest -q tests/contract -k openstack

wheel-test: setup ## Build the wheel and use it from a clean virtual environment
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation -w build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --require-hashes -r requirements/guest.txt
	build/wheel/venv/bin/pip install --quiet --no-deps build/wheel/elastio-*.whl
	cd build/wheel && venv/bin/elastio --version && venv/bin/elastiod --version && \
	  venv/bin/elastio simulate --help >/dev/null

# --- the package -------------------------------------------------------------------------------------------

deb repo: PACKAGES := $(DEB_PACKAGES)
deb-test: PACKAGES := python3-venv mmdebstrap

deb: packages ## Build the Debian package in out/deb, and check it with lintian
	rm -rf build/deb out/deb && mkdir -p out/deb
	debian/build build/deb
	mv build/deb/*.deb out/deb/
	lintian --fail-on error --suppress-tags bad-distribution-in-changes-file out/deb/*.deb

repo: packages ## Make an apt repository of out/deb in out/repo; REPO_KEY=KEYID signs it
	rm -rf out/repo && mkdir -p out/repo && cp out/deb/*.deb out/repo/
	cd out/repo && apt-ftparchive packages . >Packages && gzip -9nk Packages && apt-ftparchive \
	  -o APT::FTPArchive::Release::Origin=elastio -o APT::FTPArchive::Release::Label=elastio release . >.Release && \
	  mv .Release Release
	if [ -n "$(REPO_KEY)" ]; then cd out/repo && \
	  gpg --batch --yes --local-user "$(REPO_KEY)" --clearsign --output InRelease Release && \
	  gpg --batch --yes --local-user "$(REPO_KEY)" --armor --detach-sign --output Release.gpg Release; fi

deb-test: packages $(VENV)/.installed ## Install, use and purge the package of out/deb in Debian 12 and 13
	$(BIN)/pytest -q tests/package

# --- the laboratory ----------------------------------------------------------------------------------------

# Guests on user-mode Linux keep up with the full bandwidth; where only QEMU without KVM runs: make demo BANDWIDTH=0.5
BANDWIDTH ?= 1

demo: prepared ## Three storage set-ups on real bcache, compared; result and picture in out/demo
	$(BIN)/elastio-testbed run demo --setup all --scale 0.2 --bandwidth $(BANDWIDTH) --side-by-side \
	  --json out/demo/result.json --png out/demo/result.png --html out/demo/result.html

bench: prepared ## What the daemon costs at rest
	$(BIN)/elastio-testbed bench --json out/bench/result.json

faults: prepared ## Sixty runs of the fault campaign on a real guest (hours under emulation)
	$(BIN)/elastio-testbed faults --runs 60 --seed 1 --guests 2 --json out/faults/result.json

measure: prepared ## Repeat the experiments of docs/evaluation.md, and write its tables (two to three hours)
	$(BIN)/elastio-testbed run cm1 --scale 0.25 --side-by-side --repeat 3 --json docs/results/cm1-0.25.json
	$(BIN)/elastio-testbed run cm1 --scale 1 --bandwidth 0.25 --setup static-fast --setup adaptive --side-by-side \
	  --json docs/results/cm1-1.json
	$(BIN)/elastio-testbed run lammps --scale 0.25 --repeat 3 --json docs/results/lammps-0.25.json
	$(MAKE) --no-print-directory evaluation

evaluation: prepared ## Write the tables of docs/evaluation.md and docs/results/faults, from docs/results
	$(BIN)/elastio-testbed tables docs/results/*.json docs/results/{montage,sharing}/*.json --into docs/evaluation.md
	$(BIN)/elastio-testbed tables docs/results/faults/*.json --into docs/results/faults/README.md

image: prepared ## Build the guest image, and a bootable qcow2 in out/image
	$(BIN)/elastio-testbed image --cloud out/image/elastio.qcow2

clean: ## Remove what the targets above left here (not the image cache)
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
