# One word for each task, on a fresh Debian 12 or Ubuntu 24.04 that has only git, make and a shell.
.PHONY: help quickstart test test-matrix check build bench docs format install-core install-torch install-python \
  install-matrix install-plots install-bench install-docs clean
.DEFAULT_GOAL := help
# Two installers at a time would meet at the package manager's lock, and `-j` is for the builds, which run by themselves.
.NOTPARALLEL:

# ThreadSanitizer fails where the kernel randomizes addresses too far; where setarch is forbidden, addresses stay
# random.
fixed_layout = $$(setarch -R true 2>/dev/null && echo setarch -R)
workflow = cmake --workflow --preset
# A choice of links and sizes that takes less than 20 minutes.
peers_across_hosts = bench/peers/hosts.py --rate 100mbit 1gbit 10gbit -e 4M -f 32 --rounds 2

help:
	@echo 'make quickstart   install what is missing, build, train on 4 local ranks, print the table (~15 minutes, 1.6 GB in ~/.cache/tutti)'
	@echo 'make test         install what is missing, build, run all tests and lint (5.5 GB in ~/.cache/tutti)'
	@echo 'make test-matrix  the Python package on the newest torch, too, under Slurm and Ray, and installed by pip'
	@echo 'make check        the quick tests of the core again under AddressSanitizer with UBSan, and under ThreadSanitizer'
	@echo 'make build        build/release/bin/tutti and the examples beside it'
	@echo 'make bench        compare with Open MPI, MPICH and gloo, across hosts too; writes docs/results/'
	@echo 'make docs         build/docs/index.html: the pages as a site with search'
	@echo 'make format       clang-format over all C++'
	@echo 'make clean        remove build/; ~/.cache/tutti stays'

quickstart: install-plots build
	docs/examples/quickstart.sh

test: install-python install-docs
	$(workflow) dev

test-matrix: install-matrix
	$(workflow) matrix

check: install-core
	$(workflow) asan
	$(fixed_layout) $(workflow) tsan

build: install-torch
	$(workflow) release

bench: install-bench install-plots
	$(workflow) bench
	bench/peers/compare.py
	@if [ "$$(id -u)" = 0 ]; then $(peers_across_hosts); else echo 'left out, because hosts need root: $(peers_across_hosts)'; fi

docs: install-docs
	NO_MKDOCS_2_WARNING=1 "$${TUTTI_DEPS:-$$HOME/.cache/tutti}/docs/bin/mkdocs" build --config-file docs/site/mkdocs.yml
	@echo 'open build/docs/index.html'

format: install-core
	python3 tests/lint/format.py --fix

install-core:
	@.ci/install core
install-torch:
	@.ci/install core torch
install-python:
	@.ci/install core torch python
install-matrix:
	@.ci/install core torch python python-newest matrix
install-plots:
	@.ci/install core torch plots
install-bench:
	@.ci/install core torch plots bench
install-docs:
	@.ci/install docs

clean:
	rm -rf build
