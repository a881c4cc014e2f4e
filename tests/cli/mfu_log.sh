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
"$bin" mfu nothing.log >text 2>&1
[ $? = 3 ] || wrong "a missing file does not end with 3"
finish
