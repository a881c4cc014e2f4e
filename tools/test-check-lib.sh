# What the tests of the tree's checks share. Sets tools, tree (an empty folder that goes away at the end) and failed.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# expect STATUS WORDS [COMMAND...]: the exit status and words of the output; the command is else $check of the tree
expect() {
	wanted=$1 words=$2
	shift 2
	[ $# -gt 0 ] || set -- sh "$tools/$check" "$tree"
	status=0
	output=$("$@" 2>&1) || status=$?
	case $output in
	*"$words"*) ;;
	*) status="$status, without '$words'" ;;
	esac
	if [ "$status" != "$wanted" ]; then
		printf '%s: expected status %s and "%s", got %s:\n%s\n' "$*" "$wanted" "$words" "$status" "$output"
		failed=1
	fi
}
