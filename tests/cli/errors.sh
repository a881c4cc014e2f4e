# Mistakes on the command line: one sentence, a hint, the right exit code, nothing that upsets a terminal.
set -eu
bin=${FLATOUT_BIN:?}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "errors: $*" >&2; exit 1; }

# expect CODE PATTERN ARGUMENT...: the exit code, and a line of standard error.
expect() {
	want=$1 pattern=$2
	shift 2
	code=0
	"$bin" "$@" > "$dir/out" 2> "$dir/err" < /dev/null || code=$?
	[ "$code" = "$want" ] || fail "'flatout $*' ended with $code, expected $want: $(cat "$dir/err")"
	grep -q -e "$pattern" "$dir/err" || fail "'flatout $*' does not say '$pattern': $(cat "$dir/err")"
	if LC_ALL=C tr -d '\n\040-\176\200-\377' < "$dir/err" | grep -q .; then
		fail "'flatout $*' prints control characters"
	fi
}

expect 2 "^flatout: unknown command 'flosp'; nearest is 'flops'\$" flosp
expect 2 "^hint: " flosp
expect 2 "unknown command ''" ''
expect 2 "unknown command 'a.x1b" "$(printf 'a\033[31m')"
expect 2 "unknown command 'nosuchthing'" help nosuchthing
expect 2 "unknown command 'nosuchthing'" man nosuchthing
expect 2 "takes one command" help flops mfu
expect 2 "unknown option '--josn'" --josn
expect 2 "unknown option '--josn'; nearest is '--json'" flops --josn
expect 2 "^hint: 'flatout flops --help'" flops --josn
[ ! -s "$dir/out" ] || fail "an error wrote to standard output"

# All mistakes at once.
expect 2 "unknown option '--josn'" flops --josn --sqe=5
grep -q "unknown option '--sqe'; nearest is '--seq'" "$dir/err" || fail "the second mistake is missing: $(cat "$dir/err")"
[ "$(grep -c '^flatout: ' "$dir/err")" = 2 ] || fail "two mistakes are not two lines"

# --json: the error is one JSON object on standard output too.
expect 2 "unknown option '--sqe'" flops --json --sqe=5
grep -q '^{"schema":1,"error":{"kind":"argument","text":"unknown option .*","hint":".*"}}$' "$dir/out" ||
	fail "no JSON error: $(cat "$dir/out")"

# Output that cannot be written.
if [ -c /dev/full ] && ! (echo x > /dev/full) 2> /dev/null; then
	code=0
	"$bin" --help > /dev/full 2> "$dir/err" || code=$?
	[ "$code" = 3 ] || fail "a full disk ended with $code, expected 3"
	grep -q "^flatout: cannot write to standard output: " "$dir/err" || fail "a full disk is not reported"
fi
code=0
"$bin" --help >&- 2> "$dir/err" || code=$?
[ "$code" = 3 ] || fail "a closed standard output ended with $code, expected 3"
grep -q "^flatout: cannot write to standard output: " "$dir/err" || fail "a closed standard output is not reported"
"$bin" --help 2>&- > /dev/null || fail "a closed standard error is not a mistake"
"$bin" --help <&- > /dev/null || fail "a closed standard input is not a mistake"

# A reader that goes away does so on purpose: no word about it, however much was written before.
for arguments in --help "completion bash" "flops --list --json"; do
	# shellcheck disable=SC2086 # words on purpose
	{ sleep 0.3; code=0; "$bin" $arguments 2> "$dir/err" || code=$?; echo "$code" > "$dir/code"; } | :
	[ ! -s "$dir/err" ] || fail "'flatout $arguments' into a closed pipe says: $(cat "$dir/err")"
	[ "$(cat "$dir/code")" = 3 ] || fail "'flatout $arguments' into a closed pipe ended with $(cat "$dir/code"), expected 3"
done

# Damaged run files. `config` reads them in every build.
damaged() {
	expect "$1" "$2" config "$dir/run.yaml"
}
printf 'train:\n  stpes: 5\n' > "$dir/run.yaml"
damaged 2 "run.yaml:2: unknown key 'train.stpes'; nearest is 'train.steps'"
printf 'train:\n  steps: -5\n' > "$dir/run.yaml"
damaged 2 "run.yaml:2: 'train.steps' must be an integer from .* steps, got '-5'"
printf 'train:\n  steps: \377\n' > "$dir/run.yaml"
damaged 2 "run.yaml:2: not text"
printf 'train: \0\n' > "$dir/run.yaml"
damaged 2 "run.yaml:1: not text"
head -c 10000000 /dev/zero | tr '\0' '#' > "$dir/run.yaml"
damaged 2 "larger than the limit of 1048576 bytes"
head -c 100000 /dev/zero | tr '\0' '[' > "$dir/run.yaml"
damaged 2 "run.yaml:1: "
head -c 4096 /dev/urandom > "$dir/run.yaml"
damaged 2 "run.yaml"
rm "$dir/run.yaml"
damaged 3 "cannot read .*run.yaml"

# Nothing to train on: no folder is left behind.
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	case $bin in /*) ;; */*) bin=$PWD/$bin ;; esac
	cd "$dir"
	expect 2 "data.path is empty" train
	[ ! -e run ] || fail "a run that cannot begin left a folder"
fi
