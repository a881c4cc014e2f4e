# Every page of help and manual: there, at most 80 columns wide, complete, clean mdoc.
set -eu
bin=${FLATOUT_BIN:?}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "help: $*" >&2; exit 1; }

# Lines over 80 columns, counted in characters.
narrow() {
	long=$(awk 'length($0) > 80' "$2")
	[ -z "$long" ] || fail "$1: wider than 80 columns: $long"
}

"$bin" > "$dir/tasks"
[ "$(grep -c '^      flatout ' "$dir/tasks")" = 5 ] || fail "'flatout' does not show five tasks"
narrow "flatout" "$dir/tasks"

"$bin" --help > "$dir/overview"
"$bin" -h | cmp -s - "$dir/overview" || fail "-h differs from --help"
"$bin" help | cmp -s - "$dir/overview" || fail "help differs from --help"
narrow "flatout --help" "$dir/overview"
commands=$(awk '/^[A-Z][a-z]*:$/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' "$dir/overview")
for want in flops mfu devices init config ops program ${FLATOUT_HAS_ENGINE:+train demo data}; do
	echo "$commands" | grep -qx "$want" || fail "'$want' is not listed"
done

# The examples use commands that exist.
awk '/^      flatout / { print $2 }' "$dir/tasks" | while read -r name; do
	echo "$commands" | grep -qx "$name" || fail "the example of '$name' has no command"
done

command -v mandoc > /dev/null && lint=yes || lint=
# Parts of a command, "data prepare", are words of their own on the command line.
for dotted in $commands ${FLATOUT_HAS_ENGINE:+data.prepare data.train-tokenizer data.inspect}; do
	name=$(echo "$dotted" | tr . ' ')
	# shellcheck disable=SC2086
	"$bin" help $name > "$dir/page"
	! awk '/^usage:/ { on = 1 } /^$/ { on = 0 } on' "$dir/page" | grep -E '[[(|]--[a-z-]+$' || fail "a line of the usage of '$name' ends between an option and its value"
	# shellcheck disable=SC2086
	"$bin" $name --help | cmp -s - "$dir/page" || fail "'$name --help' differs from 'help $name'"
	# shellcheck disable=SC2086
	"$bin" $name -h | cmp -s - "$dir/page" || fail "'$name -h' differs from 'help $name'"
	! grep -e '--cli\.' "$dir/page" || fail "$name: the help shows how options are stored, not how they are written"
	! grep -e '--[a-z-]* by FLATOUT_' -e '^FLATOUT_[A-Z_]*_JSON' "$dir/page" || fail "$name: --json is no example of a variable"
	head -n 1 "$dir/page" | grep -q "^usage: flatout $name" || fail "$name: no usage line"
	narrow "$name" "$dir/page"
	# mandoc compares the section with what stands behind the last dot of the path.
	# shellcheck disable=SC2086
	"$bin" man $name > "$dir/man.1"
	grep -q "^\\.Nm flatout-$(echo "$name" | tr ' ' -)\$" "$dir/man.1" || fail "$name: no manual page"
	# Each option of the help is on the page.
	awk '/^  --/ { print $1 }' "$dir/page" | sed 's/^-//; s/\[=.*//' | while read -r option; do
		grep -qF "It Fl $option" "$dir/man.1" || fail "$name: option -$option is not in the manual"
	done
	if [ "$lint" ]; then
		# The page that it refers to need not be installed here.
		mandoc -T lint "$dir/man.1" > "$dir/lint" 2>&1 || true
		grep -v 'referenced manual not found' "$dir/lint" > "$dir/complaints" || true
		[ ! -s "$dir/complaints" ] || fail "$name: $(cat "$dir/complaints")"
	fi
done
"$bin" man > "$dir/man.1"
if [ "$lint" ]; then
	mandoc -T lint "$dir/man.1" || fail "flatout(1) has complaints"
fi

"$bin" --version > "$dir/version"
for word in flatout commit compiler machine libraries; do
	grep -q "^$word" "$dir/version" || fail "--version shows no $word"
done
"$bin" -v | cmp -s - "$dir/version" || fail "-v differs from --version"
"$bin" --version --json | grep -q '"schema": 1' || fail "--version --json has no schema"
[ "$lint" ] || { echo "help: mandoc is not installed: the manual pages were not checked"; }
