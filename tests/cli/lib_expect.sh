# For tests of commands that only print: no tables but the built-in ones, a scratch folder, one assertion on exit status and text.
# A test sources this first and ends with: exit $failed
set -u
: "${FLATOUT_BIN:=flatout}" "${FLATOUT_SOURCE:=.}"
unset FLATOUT_DATA FLATOUT_DEVICES
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0

# expect STATUS PATTERN ARGUMENTS...: exit status and a fixed text in what is printed, on either stream.
expect()
{
	status=$1 pattern=$2
	shift 2
	"$FLATOUT_BIN" "$@" >"$tmp/out" 2>&1 </dev/null
	got=$?
	if [ "$got" != "$status" ] || ! grep -qF -- "$pattern" "$tmp/out"; then
		printf "FAILED: flatout %s\n  exit %s, expected %s and: %s\n" "$*" "$got" "$status" "$pattern"
		sed "s/^/  | /" "$tmp/out"
		failed=1
	fi
}
# What the last command printed fits 80 columns; the folder of this tree, which stands in names of files, does not count.
narrow()
{
	if LC_ALL=C sed "s|$FLATOUT_SOURCE/||g" "$tmp/out" | LC_ALL=C grep -n "^.\{81,\}"; then
		printf "FAILED: lines over 80 columns\n"
		failed=1
	fi
}
