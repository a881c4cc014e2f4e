# Sourced by ./test, ./demo and .ci/run: which Debian packages are missing, and installing them. Plain sh has no local
# variables; all here start with fo_ so that the sourcing script keeps its own.
#
# A need is "package|probe|name elsewhere|Fedora's package|Arch's": the probe is `command x` or `module x` (pkg-config) and succeeds
# also where someone built the library by hand; `package` asks Debian alone. The last two stand for what a build needs.

FO_NEED_BUILD='
gcc|command cc|a C compiler (gcc >= 12 or clang >= 14)|gcc|gcc
libc6-dev|header stdio.h|the C library headers|glibc-devel|glibc
make|command make|make|make|make
cmake|command cmake|CMake >= 3.25|cmake|cmake
pkg-config|command pkg-config|pkg-config|pkgconf-pkg-config|pkgconf
libjansson-dev|module jansson|jansson|jansson-devel|jansson
libyaml-dev|module yaml-0.1|libyaml|libyaml-devel|libyaml
libpcre2-dev|module libpcre2-8|PCRE2 (8 bit)|pcre2-devel|pcre2
libxxhash-dev|module libxxhash|xxHash|xxhash-devel|xxhash
zlib1g-dev|module zlib|zlib|zlib-devel|zlib
libzstd-dev|module libzstd|zstd|libzstd-devel|zstd
libsqlite3-dev|module sqlite3|SQLite|sqlite-devel|sqlite
libhwloc-dev|module hwloc|hwloc|hwloc-devel|hwloc
'
FO_NEED_TEST='
libcmocka-dev|module cmocka|cmocka|libcmocka-devel|cmocka
'
FO_NEED_TEXT='
perl-doc|package|a text of your own as ./demo PATH
'
FO_NEED_CI='
git|command git|git
clang|command clang|clang
clang-format-14|command clang-format-14|clang-format 14
libomp-dev|package|the OpenMP library of clang
gcc-aarch64-linux-gnu|command aarch64-linux-gnu-gcc|a cross compiler to aarch64
libc6-dev-arm64-cross|package|the C library headers for aarch64
qemu-user|command qemu-aarch64|QEMU user emulation of aarch64
gcovr|command gcovr|gcovr
g++|command g++|a C++ compiler
dpkg-dev|command dpkg-shlibdeps|dpkg-dev
mandoc|command mandoc|mandoc
nodejs|command node|Node.js
openmpi-bin|command mpirun.openmpi|Open MPI
libopenmpi-dev|command mpicc.openmpi|the headers of Open MPI
mpich|command mpirun.mpich|MPICH
libmpich-dev|command mpicc.mpich|the headers of MPICH
python3-venv|package|the venv module of Python
zsh|command zsh|zsh
fish|command fish|fish
chromium|command chromium|Chromium, for the tests of HTML pages
'

fo_probe() { # package kind argument
	case $2 in
	command) command -v "$3" >/dev/null 2>&1 && return 0 ;;
	module) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$3" && return 0 ;;
	header) [ -e "/usr/include/$3" ] && return 0 ;;
	esac
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# fo_missing NEEDS FIELD: the missing ones' package (1), name elsewhere (3), Fedora's (4) or Arch's package (5), one per line
fo_missing() {
	printf '%s\n' "$1" | while IFS='|' read -r fo_package fo_words fo_name fo_fedora fo_arch; do
		[ -n "$fo_package" ] || continue
		# shellcheck disable=SC2086 # the probe is two words
		fo_probe "$fo_package" $fo_words && continue
		case $2 in
		1) printf '%s\n' "$fo_package" ;;
		3) printf '%s\n' "$fo_name" ;;
		4) printf '%s\n' "${fo_fedora:-$fo_name}" ;;
		5) printf '%s\n' "${fo_arch:-$fo_name}" ;;
		esac
	done
}

# fo_tell NEEDS: what is missing, as one line for this system's package manager; returns 3 if something is.
fo_tell() {
	if command -v apt-get >/dev/null 2>&1; then
		fo_field=1 fo_line='apt-get update && apt-get install -y --no-install-recommends'
	elif command -v dnf >/dev/null 2>&1; then
		fo_field=4 fo_line='dnf install'
	elif command -v pacman >/dev/null 2>&1; then
		fo_field=5 fo_line='pacman -S --needed'
	else
		fo_field=3 fo_line=
	fi
	fo_packages=$(fo_missing "$1" $fo_field)
	[ -n "$fo_packages" ] || return 0
	if [ -n "$fo_line" ]; then
		echo "Packages are missing; as root, run:"
		# shellcheck disable=SC2086 # words on purpose
		echo "  $fo_line" $fo_packages
	else
		echo "Install these by your system's own means and start again:"
		printf '%s\n' "$fo_packages" | sed 's/^/  /'
	fi
	return 3
}

# fo_install NEEDS: installs what is missing; returns 3 where it may not.
fo_install() {
	if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
		fo_tell "$1"
		return
	fi
	fo_packages=$(fo_missing "$1" 1 | tr '\n' ' ')
	fo_packages=${fo_packages% }
	[ -n "$fo_packages" ] || return 0
	fo_line="apt-get install -y --no-install-recommends $fo_packages"
	if [ "$(id -u)" = 0 ]; then
		fo_sudo=
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		fo_sudo="sudo "
	else
		fo_tell "$1"
		return
	fi
	echo "Packages are missing; running:"
	echo "  ${fo_sudo}apt-get update && ${fo_sudo}$fo_line"
	# The lock: another package run may be going on just now.
	fo_options="-q -o DPkg::Lock::Timeout=300"
	# shellcheck disable=SC2086 # words on purpose
	${fo_sudo}env DEBIAN_FRONTEND=noninteractive apt-get $fo_options update &&
		${fo_sudo}env DEBIAN_FRONTEND=noninteractive apt-get $fo_options install -y --no-install-recommends $fo_packages && return 0
	echo "The installation failed; the lines above say why." >&2
	return 3
}

# fo_scratch: lets tests write their scratch folders in memory where there is room for them and programs may run there. Each
# checkpoint of a test waits for the disk otherwise, which is half of the time that the tests of commands take.
fo_scratch() {
	[ -z "${TMPDIR:-}" ] || return 0
	fo_free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
	[ "${fo_free:-0}" -ge 6291456 ] || return 0 # 6 GiB: no test of today writes 1, and three run at a time
	fo_probe=$(mktemp -d /dev/shm/flatout-XXXXXX 2>/dev/null) || return 0
	printf '#!/bin/sh\nexit 0\n' >"$fo_probe/runs"
	chmod +x "$fo_probe/runs"
	if "$fo_probe/runs" 2>/dev/null; then
		TMPDIR=/dev/shm
		export TMPDIR
	fi
	rm -rf "$fo_probe"
}

fo_cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# fo_quietly FILE COMMAND...: runs it with its output in FILE; if it fails, shows the end of FILE and then the lines that tell
# why: a failed test's output stands far above the end.
fo_quietly() {
	fo_log=$1
	fo_status=0
	shift
	mkdir -p "$(dirname "$fo_log")"
	"$@" >"$fo_log" 2>&1 || fo_status=$?
	[ $fo_status != 0 ] || return 0
	grep -v -E '^\[ *[0-9]+%\]|^gmake|^make' "$fo_log" | tail -n 60
	grep -a -n -E '\[  *(LINE|ERROR|FAILED) |runtime error|Sanitizer|error: |^FAIL' "$fo_log" | head -n 20
	echo "failed: $* (whole output: $fo_log)"
	return $fo_status
}
