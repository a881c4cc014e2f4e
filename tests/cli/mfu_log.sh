#!/bin/sh
# flatout mfu LOG: logs of every kind, restarts, ranks, and files that are no logs.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "mfu_log: no python3"; exit 77; }
"$python" "$source/tests/cli/mfu_log.py" "$bin" || wrong "see above"
# The page and the table of a small log.
i=1
while [ $i -le 30 ]; do
	echo "iter $i: loss 2.2000, time 2000.00ms, mfu 21.23%"
	i=$((i + 1))
done >log
"$bin" mfu log --html=page.html --csv=steps.csv >text || wrong "a log with MFU ends with $?"
grep -q "MFU over the run\|Step time over the run" page.html || wrong "the page has no picture"
[ "$(wc -l <steps.csv)" = 31 ] || wrong "the table has $(wc -l <steps.csv) lines"
grep -q "For the rules of 'flatout mfu', give:" text || wrong "nothing is asked for: $(cat text)"
"$bin" mfu log --csv=steps.csv >text || wrong "a table of ours is not written anew"
echo mine >steps.csv
"$bin" mfu log --csv=steps.csv >text 2>&1 && wrong "somebody else's file was overwritten"
"$bin" mfu log --model=gpt2 --seq=1024 --mtp >text 2>&1
[ $? = 2 ] && grep -q "has no multi-token-prediction modules" text || wrong "modules of a model without any: $(cat text)"
"$bin" mfu log --device=h100 --share=fp8=0.5 --dtype=fp8 >text 2>&1
[ $? = 2 ] && grep -q "give one" text || wrong "types said twice: $(cat text)"
"$bin" mfu log --device=a100 --share=fp8=0.5 >text 2>&1
[ $? = 2 ] && grep -q "no published dense peak for fp8" text || wrong "a share without a peak: $(cat text)"
# Steps of 2 s whose stamps are 1 s apart: the parts are more than the span, so they have no share of it.
stamped() { # SECONDS: twenty lines that far apart
	awk -v apart="$1" 'BEGIN { for (i = 1; i <= 20; i++) printf " [2024-01-01 00:00:%02d] iteration %8d/     100 | consumed samples: %d | elapsed time per iteration (ms): 2000.0 | learning rate: 1.0E-4 | global batch size: 8 | lm loss: 2.0E+00 |\n", i * apart, i, 8 * i }'
}
stamped 1 >log
"$bin" mfu log >text
grep -q "No shares: the parts are 40 s together, and the time stamps span 21 s" text || wrong "parts above the span: $(cat text)"
grep -q "^ *steps .*%" text && wrong "parts above the span have shares"
stamped 2 >log
"$bin" mfu log >text
grep -q "^ *steps .* 100.0 %" text || wrong "parts that fit have no shares: $(cat text)"
head -n 1 log >first
"$bin" mfu first >text
grep -q "1 line, none left out" text || wrong "one line is counted otherwise: $(cat text)"
"$bin" mfu nothing.log >text 2>&1
[ $? = 3 ] || wrong "a missing file does not end with 3"
finish
