# Sourced by ./test, ./demo and .ci/run: which Debian packages are missing, and installing them. Plain sh has no local
# variables; all here start with fo_ so that the sourcing script keeps its own.
#
# A need is "package|probe|name elsewhere": the probe is `command x` or `module x` (pkg-config) and succeeds also where
# someone built the library by hand; `package` asks Debian alone.

FO_NEED_BUILD='
gcc|command cc|a C compiler (gcc >= 12 or clang >= 14)
libc6-dev|header stdio.h|the C library headers
make|command make|make
cmake|command cmake|CMake >= 3.25
pkg-config|command pkg-config|pkg-config
libjansson-dev|module jansson|jansson
libyaml-dev|module yaml-0.1|libyaml
libpcre2-dev|module libpcre2-8|PCRE2 (8 bit)
libxxhash-dev|module libxxhash|xxHash
zlib1g-dev|module zlib|zlib
libzstd-dev|module libzstd|zstd
libsqlite3-dev|module sqlite3|SQLite
libhwloc-dev|module hwloc|hwloc
'
FO_NEED_TEST='
libcmocka-dev|module cmocka|cmocka
'
FO_NEED_TEXT='
perl-doc|package|a text of your own as ./demo PATH
'
FO_NEED_CI='
git|command git|git
clang|command clang|clang
libomp-dev|package|the OpenMP library of clang
gcc-aarch64-linux-gnu|command aarch64-linux-gnu-gcc|a cross compiler to aarch64
libc6-dev-arm64-cross|package|the C library headers for aarch64
qemu-user|command qemu-aarch64|QEMU user emulation of aarch64
gcovr|command gcovr|gcovr
g++|command g++|a C++ compiler
dpkg-dev|command dpkg-shlibdeps|dpkg-dev
mandoc|command mandoc|mandoc
nodejs|command node|Node.js
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

# fo_missing NEEDS FIELD: the missing ones' package (1) or their name elsewhere (3), one per line
fo_missing() {
	printf '%s\n' "$1" | while IFS='|' read -r fo_package fo_words fo_name; do
		[ -n "$fo_package" ] || continue
		# shellcheck disable=SC2086 # the probe is two words
		fo_probe "$fo_package" $fo_words && continue
		if [ "$2" = 1 ]; then printf '%s\n' "$fo_package"; else printf '%s\n' "$fo_name"; fi
	done
}

# fo_install NEEDS: installs what is missing; returns 3 where it may not.
fo_install() {
	if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
		fo_packages=$(fo_missing "$1" 3)
		[ -n "$fo_packages" ] || return 0
		echo "This is not Debian, so install these by your system's own means and start again:"
		printf '%s\n' "$fo_packages" | sed 's/^/  /'
		return 3
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
		echo "Packages are missing; as root, run:"
		echo "  apt-get update && $fo_line"
		return 3
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

fo_cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# fo_quietly FILE COMMAND...: runs it with its output in FILE; shows the end of FILE if it fails.
fo_quietly() {
	fo_log=$1
	fo_status=0
	shift
	mkdir -p "$(dirname "$fo_log")"
	"$@" >"$fo_log" 2>&1 || fo_status=$?
	[ $fo_status != 0 ] || return 0
	grep -v -E '^\[ *[0-9]+%\]|^gmake|^make' "$fo_log" | tail -n 60
	echo "failed: $* (whole output: $fo_log)"
	return $fo_status
}
