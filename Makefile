# `make` builds the program, `make install` puts it in place; the rest is for who develops. CMake does the work (CMakePresets.json).
#   JOBS=N    how many compilers at once (as many as there are processors)
#   PREFIX    where to install (/usr/local); DESTDIR stands in front of it, as packagers expect
#   WERROR=ON warnings are errors, as ./test and .ci/run can have it
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
DESTDIR ?=
WERROR ?= OFF
BUILD ?= build/release
SOURCES = $(shell find src tests \( -name '*.c' -o -name '*.h' \) 2>/dev/null)

.PHONY: all release static debug asan tsan test check coverage aarch64 dist deb install uninstall format clean help
all: release

# The program, libflatout, manual pages. No tests: neither their time nor their library.
release:
	@sh tools/configure $(BUILD) --preset release -DFLATOUT_TESTS=OFF -DFLATOUT_WERROR=$(WERROR)
	@cmake --build $(BUILD) -j $(JOBS) -- --no-print-directory

# Everything that only knows (diagnose, mfu, flops, devices, report, ...) as one file that runs on any Linux of this architecture
static:
	@sh tools/configure build/static --preset release -DFLATOUT_ENGINE=OFF -DFLATOUT_TESTS=OFF -DFLATOUT_WERROR=$(WERROR) -DFLATOUT_STATIC=ON
	@cmake --build build/static -j $(JOBS) --target flatout_onefile -- --no-print-directory
	@ls -l build/static/flatout-static

# What `make` built, in place; nothing is compiled as root that was there before
install:
	@[ -e $(BUILD)/pages/stamp ] && [ -e $(BUILD)/libflatout.so ] || $(MAKE) release
	@DESTDIR='$(DESTDIR)' sh tools/install install $(BUILD) '$(PREFIX)'
uninstall:
	@DESTDIR='$(DESTDIR)' sh tools/install uninstall $(BUILD) '$(PREFIX)'

# build/dist: a relocatable archive, a Debian package
dist deb: release
	@sh tools/package $@ $(BUILD) build/dist

# The release build's tests; ./test runs these and the sanitizers'
test:
	@sh tools/configure $(BUILD) --preset release -DFLATOUT_TESTS=ON -DFLATOUT_WERROR=$(WERROR)
	@cmake --build $(BUILD) -j $(JOBS) -- --no-print-directory
	@ctest --test-dir $(BUILD) -j2 --output-on-failure

# the same, and what the tree promises of itself
check: test
	@sh tools/check-floors
	@sh tools/check-ops
	@sh tools/check-sizes

# make debug, asan or tsan: that preset with its tests; the last two run them
debug asan tsan:
	@sh tools/configure build/$@ --preset $@ -DFLATOUT_TESTS=ON
	@cmake --build build/$@ -j $(JOBS) -- --no-print-directory
	@case $@ in asan|tsan) ctest --test-dir build/$@ -j2 --output-on-failure;; esac

# lines of the knowing half that its tests run; fails below 85 %
coverage:
	@sh tools/check-coverage

aarch64:
	@sh tools/check-aarch64

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf build

help:
	@echo "make                        build/release/flatout"
	@echo "make install [PREFIX=...]   in place, /usr/local unless you say another; make uninstall removes it"
	@echo "make static                 diagnose, mfu, report, ... as one file for any Linux of this architecture"
	@echo "make dist, make deb         an archive, a Debian package"
	@echo "make test, make check       the tests; ./test runs them with the sanitizers', ./demo trains"
	@echo "make debug asan tsan coverage aarch64 format clean"
