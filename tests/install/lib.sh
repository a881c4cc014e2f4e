# For the tests of what is installed: the tree of this build, installed once below the test folder by the first that needs
# it (CTest runs it as a fixture). A test sources this and ends with: exit $failed
set -u
: "${FLATOUT_BUILD:?}" "${FLATOUT_SOURCE:?}" "${FLATOUT_STAGE:?}"
unset FLATOUT_DATA FLATOUT_DEVICES FLATOUT_BIN
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
test=$(basename "$0" .sh)
failed=0
wrong() { echo "$test: $*"; failed=1; }
version=$(cat "$FLATOUT_SOURCE/VERSION")

# usable PREFIX: the program in this tree runs from another folder and knows its catalogue there.
usable() {
	(cd / && "$1/bin/flatout" flops --model llama-3.1-8b --seq 8192) >"$tmp/out" 2>&1 || wrong "$1: flops: $(cat "$tmp/out")"
	grep -q 'total  *8,030,261,248' "$tmp/out" || wrong "$1: flops says: $(cat "$tmp/out")"
	(cd / && "$1/bin/flatout" devices h100) >"$tmp/out" 2>&1 || wrong "$1: devices: $(cat "$tmp/out")"
	grep -q 989 "$tmp/out" || wrong "$1: devices says: $(cat "$tmp/out")"
}
