#!/bin/sh
# flatout report: of a whole run, of what is left of damaged ones, of a long one; text, JSON, page.
. "$(dirname "$0")/lib.sh"

# log DIR STEPS: a log and a run.json as training writes them, with a slow phase in the middle of it.
log() {
	mkdir -p "$1"
	cat >"$1/run.json" <<-'END'
	{"schema": 1, "run": {"started": "2026-11-21T21:06:30Z", "flatout": {"version": "0.1.0", "commit": "abc"}, "options": {
	"train.steps": {"value": 400, "origin": "flag", "where": "--train.steps"},
	"data.path": {"value": "it's <here>", "origin": "file", "where": "run.yaml:3"},
	"train.rows": {"value": 8, "origin": "default", "where": ""}}}, "passes": "none",
	"machine": {"cpu": "a <cpu>", "threads": 2, "isa": "avx2", "peak_flop_s": 1e11, "peak_source": "measured"}, "seed": 1}
	END
	awk -v n="$2" 'BEGIN {
		t = 1795000000
		for (i = 1; i <= n; i++) {
			s = i > n / 2 && i <= n * 0.6 ? 0.3 : 0.1
			t += s
			printf "{\"event\":\"step\",\"step\":%d,\"loss\":%.5f,\"grad_norm\":1,\"lr\":0.001,\"seconds\":%g,\"tokens\":512,\"loss_tokens\":500,\"tokens_per_second\":%g,\"mfu\":%g,\"mfu_causal\":%g,\"mfu_document\":%g,\"mfu_6n\":%g,\"hfu\":%g,\"time\":%.3f}\n", i, 2 + 6 / (1 + i / 50) + (i * 7919 % 100) / 500, s, 500 / s, 0.05 / s, 0.045 / s, 0.044 / s, 0.04 / s, 0.046 / s, t
			if (i % 50 == 0)
				printf "{\"event\":\"eval\",\"step\":%d,\"loss\":%.5f}\n{\"event\":\"machine\",\"step\":%d,\"seconds\":5,\"steal\":%g,\"clock_hz\":2.4e9,\"throttles\":null,\"limited_seconds\":0,\"joules\":null,\"load\":2.5}\n", i, 2.2 + 6 / (1 + i / 50), i, (i > n / 2 && i <= n * 0.6 + 10 ? 0.3 : 0.01)
		}
	}' >"$1/log.jsonl"
}

log whole 400
run 0 report whole
says 'Speed: .* 1 slow phase, 2[0-9.]* % of the time in' 'steps \(199\|20[0-3]\) to \(2[34][0-9]\), 3.00 times the median: steal 30 %' \
	'Loss: *fell from 7.92' 'MFU: *50.0 %' 'Missing: *there is no program.txt' 'Page: *whole/report.html'
LC_ALL=C grep -n '^.\{81,\}' out && wrong "lines over 80 columns"
page=whole/report.html
[ -s "$page" ] || wrong "no page"
grep -q 'steps 200 to\|steps 201 to\|steps 199 to' "$page" || wrong "the page does not mark the slow phase"
grep -q "data.path=&#39;it&#39;\\\\&#39;&#39;s &#60;here&#62;&#39;" "$page" || wrong "the command is not quoted for a shell and escaped"
grep -q '<script\|http-equiv="refresh"\|src=\|url(' "$page" && wrong "the page asks for something"
grep -q -i '[^a-z]nan[^a-z]' "$page" && wrong "the page has numbers that are none"

run 0 report whole --json --html=other.html
valid out
keys out schema run steps last_loss step_seconds mfu mfu_causal hfu slow_phases between_steps profile memory machine missing command html
grep -q '"cause": "steal 30 % (else' out || wrong "no cause in JSON"
[ -s other.html ] || wrong "--html wrote nothing"

# What is left is reported; what is not is named.
log torn 100
printf '{"event":"step","st' >>torn/log.jsonl
run 0 report torn
says 'Missing: *the log.s last line is cut'
log bad 100
sed -i 's/^.*"step":50,.*$/{]/' bad/log.jsonl
echo garbage >bad/run.json
printf 'flatout-program 3\nmodel nonsense\n' >bad/program.txt
printf 'FOTIMEL1short' >bad/timeline.fot
run 0 report bad
says 'lines of the log cannot be read, the first is line 50' 'damaged: .*run.json' 'damaged: .*program.txt' 'damaged: .*timeline.fot\|no timeline.fot'
log alone 100
rm alone/run.json
run 0 report alone
says 'Missing: *there is no run.json' '^Machine: *clock 2.40 GHz'
! grep -q 'unknown\|-1\|?' out || wrong "what is not known is told as a figure"
log one 10
sed -i 's/"threads": 2/"threads": 1/' one/run.json
run 0 report one
says '^Machine: *a <cpu>, 1 thread'
! grep -q '1 threads' out || wrong "1 threads"
log settings 10
rm settings/log.jsonl
run 0 report settings
says 'Missing: *there is no log.jsonl'
mkdir empty
refused 2 "empty" report empty
refused "2|3" "nowhere" report nowhere
refused 2 "no run directory" report
refused 2 "unexpected argument" report whole torn
refused 2 "unknown option" report whole --htlm=x
refused 3 "cannot" report whole --html=missing/folder/page.html
says 'hint: --html'

# A run of 100,000 steps: below a second (three on a busy machine) and below a megabyte.
log long 100000
run 0 report long
[ "$(wc -c <long/report.html)" -lt 1000000 ] || wrong "the page of a long run has $(wc -c <long/report.html) bytes"

# A real one.
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	run 0 train $tiny --run.dir=real --checkpoint.every=3
	run 0 report real
	says 'Model: *custom: 1 layer,' 'Profile: *matmuls' 'at the peak: weights' 'planned'
	grep -q '^Missing' out && wrong "something is missing of a whole run: $(grep '^Missing' out)"
	grep -q 'kept from forward to backward' real/report.html || wrong "no memory by lifetime"
	run 0 report real --json
	valid out
fi
finish
