# The front for people who develop; CMake does the work (CMakePresets.json). `make` builds build/release/flatout.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SOURCES = $(shell find src tests \( -name '*.c' -o -name '*.h' \) 2>/dev/null)

.PHONY: all release debug asan tsan test coverage dist deb format check clean help
all: release

# make release, debug, asan or tsan: build that preset; the last two also run its tests
release debug asan tsan:
	@cmake --preset $@ -DFLATOUT_TESTS=ON >build/$@.log 2>&1 || { cat build/$@.log; exit 1; }
	@cmake --build build/$@ -j $(JOBS)
	@case $@ in asan|tsan) ctest --test-dir build/$@ -j2 --output-on-failure;; esac

release debug asan tsan: | build
build:
	@mkdir -p build

# the release tests alone; ./test runs everything
test: release
	@ctest --test-dir build/release -j2 --output-on-failure

# lines of the knowing half that its tests run; fails below 85 %
coverage:
	@sh tools/check-coverage

# build/dist: a relocatable archive, a Debian package
dist deb: release
	@sh tools/package $@ build/release build/dist

format:
	clang-format -i $(SOURCES)

check:
	@sh tools/check-floors
	@sh tools/check-sizes
	@sh tools/check-aarch64 || [ $$? = 77 ]

clean:
	rm -rf build

help:
	@echo "make [release|debug|asan|tsan|test|coverage|dist|deb|format|check|clean]; ./test runs everything, ./demo trains"
