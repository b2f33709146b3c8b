# Everything in one word, on a fresh Debian 12 or Ubuntu 24.04 with nothing but git, make and a shell.
.PHONY: help quickstart test check build bench format install-core install-torch install-plots install-bench clean
.DEFAULT_GOAL := help

# ThreadSanitizer needs the address layout that some kernels randomize away; where setarch is forbidden, go without.
fixed_layout = $$(setarch -R true 2>/dev/null && echo setarch -R)
workflow = cmake --workflow --preset

help:
	@echo 'make quickstart   install what is missing, build, train on 4 local ranks, print the table (~15 minutes)'
	@echo 'make test         install what is missing, build, run all tests and lint'
	@echo 'make check        the tests again under AddressSanitizer with UBSan, and under ThreadSanitizer'
	@echo 'make build        build/release/bin/tutti and the examples beside it'
	@echo 'make bench        compare with Open MPI, MPICH and gloo; writes docs/results/'
	@echo 'make format       clang-format over all C++'
	@echo 'make clean        remove build/'

quickstart: install-plots build
	docs/examples/quickstart.sh

test: install-torch
	$(workflow) dev

check: install-core
	$(workflow) asan
	$(fixed_layout) $(workflow) tsan

build: install-torch
	$(workflow) release

bench: install-bench install-plots
	$(workflow) bench
	bench/peers/compare.py

format: install-core
	python3 tests/lint/format.py --fix

install-core:
	@.ci/install core
install-torch:
	@.ci/install core torch
install-plots:
	@.ci/install core torch plots
install-bench:
	@.ci/install core torch plots bench

clean:
	rm -rf build
