# For tests of commands that take a run: a scratch folder, a tiny model, text, and assertions that collect failures. A test
# sources this as its first command and ends with `finish`. It runs inside the scratch folder, so paths there are relative.
set -u
: "${FLATOUT_BIN:=flatout}" "${FLATOUT_SOURCE:=.}"
source=$(cd "$FLATOUT_SOURCE" && pwd) || exit 1
case $FLATOUT_BIN in
/*) bin=$FLATOUT_BIN ;;
*/*) bin=$PWD/$FLATOUT_BIN ;;
*) bin=$(command -v "$FLATOUT_BIN") || { echo "no program '$FLATOUT_BIN': set FLATOUT_BIN"; exit 1; } ;;
esac
name=$(basename "$0" .sh)
tmp=$(mktemp -d) || exit 1
trap 'chmod -R u+rwX "$tmp" 2>/dev/null; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
# The peak is measured once per script, not once per run and not into the home of whoever tests.
XDG_CACHE_HOME=$tmp/cache
export XDG_CACHE_HOME
python=$(command -v python3) || python=
failed=0

wrong() {
	printf '%s: %s\n' "$name" "$*"
	failed=1
}
finish() { exit "$failed"; }
needs_engine() {
	[ -n "${FLATOUT_HAS_ENGINE:-}" ] || { echo "$name: this build has no engine"; exit 77; }
}

# Text of 40 small documents, the same each time.
make_text() {
	mkdir -p "$1"
	awk -v dir="$1" 'BEGIN {
		n = split("the a quick brown lazy fox dog river stone light under over runs sleeps finds and or not when while", w, " ")
		x = 12345
		for (d = 0; d < 40; d++) {
			f = sprintf("%s/doc%02d.txt", dir, d)
			for (l = 0; l < 12; l++) {
				s = ""
				for (k = 0; k < 9; k++) {
					x = (x * 1103 + 12345) % 1000003
					s = s w[x % n + 1] (k < 8 ? " " : ".\n")
				}
				printf "%s", s > f
			}
			close(f)
		}
	}'
}
# A model that trains six steps in milliseconds.
tiny="--model.layers=1 --model.hidden=32 --model.heads=2 --model.kv-heads=1 --model.head-dim=16 --model.ffn=64 \
--model.vocab=300 --data.path=text --data.seq=32 --data.holdout=10 --train.rows=2 --train.micro-batches=2 --train.steps=6 \
--optim.warmup=2 --run.threads=1 --eval.every=3 --eval.batches=2"

# run CODE ARGUMENT...: output in ./out and ./err; the exit code must be CODE ("2|3" allows both). No sanitizer may speak.
run() {
	want=$1
	shift
	code=0
	"$bin" "$@" >out 2>err </dev/null || code=$?
	judge "flatout $*"
}
judge() {
	case "|$want|" in
	*"|$code|"*) ;;
	*) wrong "'$1' ended with $code, expected $want: $(tail -n 3 err)" ;;
	esac
	if grep -qE 'Sanitizer|runtime error:' err; then
		wrong "'$1': a sanitizer complains: $(grep -E -m 3 -A 12 'Sanitizer|runtime error:' err)"
	fi
}
# says PATTERN...: each is matched by a line of ./err (or ./out).
says() {
	for pattern; do
		grep -q -e "$pattern" err out || wrong "no line says '$pattern': $(grep -v '^ ' err | tail -n 3)"
	done
}
# The error is one sentence for people: one line behind "flatout: ", at most one hint, nothing that upsets a terminal.
sentence() {
	[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "not one sentence: $(cat err)"
	[ "$(grep -c '^hint: ' err)" -le 1 ] || wrong "more than one hint: $(cat err)"
	[ "$(grep '^flatout: ' err | head -n 1 | wc -c)" -le 600 ] || wrong "a sentence of over 600 bytes: $(head -c 700 err)"
	if LC_ALL=C tr -d '\n\t\040-\176\200-\377' <err | grep -q .; then
		wrong "control characters in: $(cat -v err)"
	fi
}
# refused CODE PATTERN ARGUMENT...: run, says and sentence together.
refused() {
	want=$1 pattern=$2
	shift 2
	run "$want" "$@"
	says "$pattern"
	sentence
}
same() { cmp "$1" "$2" >/dev/null 2>&1 || wrong "'$1' and '$2' differ: $(diff "$1" "$2" 2>&1 | head -n 4 | cut -c1-200)"; }
differ() { ! cmp -s "$1" "$2" || wrong "'$1' and '$2' are the same"; }

# valid FILE: JSON (one object per line for .jsonl), checked where python3 is installed.
valid() {
	[ -n "$python" ] || return 0
	"$python" - "$1" <<-'END' || wrong "'$1' is not JSON"
	import json, sys
	def no(x): raise ValueError(x)
	text = open(sys.argv[1], encoding="utf-8").read()
	for part in text.splitlines() if sys.argv[1].endswith("l") else [text]:
	    json.loads(part, parse_constant=no)
	END
}
# keys FILE KEY...: each is a key somewhere in the JSON file.
keys() {
	file=$1
	shift
	for key; do
		grep -q "\"$key\":" "$file" || wrong "'$file' has no key '$key'"
	done
}
# "step loss norm" of each training step in a run's log; of a step logged twice (before and after a resume) both.
losses() { sed -n 's/^{"event":"step","step":\([0-9]*\),"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/log.jsonl"; }
# near FILE FILE PERCENT: "step loss norm" of both, losses within so much.
near() {
	paste "$1" "$2" | awk -v most="$3" '{ d = $2 - $5; if (d < 0) d = -d; if (NF != 6 || $1 != $4 || d > most / 100 * $2) exit 1 }' ||
		wrong "losses of $1 and $2 differ: $(paste "$1" "$2" | tr '\n' ';')"
}
# logged_near DIR: one rank evaluates to what a tp group logged, whose sums over the vocabulary round in another order.
logged_near() {
	run 0 eval "$1" --json
	number() { grep -o "\"$1\": *[-0-9.e]*" out | sed 's/.*: *//'; }
	awk -v a="$(number loss)" -v b="$(number logged_loss)" 'BEGIN { d = a > b ? a - b : b - a; exit !(b > 0 && d <= 1e-6 * b) }' ||
		wrong "'$1' evaluates to another loss than it logged: $(number loss), $(number logged_loss)"
}
# checkpoint RUN STEP: its folder.
checkpoint() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }
# flip FILE: changes the byte in its middle.
flip() {
	at=$(($(wc -c <"$1") / 2))
	byte=$(od -An -tu1 -j "$at" -N 1 "$1" | tr -d ' ')
	printf "\\$(printf %03o $(((byte + 1) % 256)))" | dd of="$1" bs=1 seek="$at" conv=notrunc 2>/dev/null
}
# wait_for_lines FILE N PID: until the file has N lines or the process is gone.
wait_for_lines() {
	while lines_there=$(grep -c '' "$1" 2>/dev/null); [ "${lines_there:-0}" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do
		sleep 0.01
	done
}
