#!/bin/sh
# flatout machine: one screen, JSON, and that nothing unreadable is given as a number.
. "$(dirname "$0")/lib_expect.sh"

expect 0 "CPU:  " machine
narrow
expect 0 "Limits:      this process may use " machine
expect 0 "Energy:  " machine
[ "$(wc -l <"$tmp/out")" -le 24 ] || { echo "FAILED: more than one screen"; failed=1; }
expect 0 '"schema": 1' machine --json
for key in cpu isa cpus allowed cores sockets numa_nodes caches memory_bytes transparent_huge_pages clock_hz governor \
	cpu_limit throttles load steal energy_readable; do
	expect 0 "\"$key\":" machine --json
done
grep -q ': -1' "$tmp/out" && { echo "FAILED: a figure that is not there was printed as -1"; failed=1; }
expect 2 "unknown option '--jsn'" machine --jsn
expect 2 "unexpected argument 'here'" machine here
exit $failed
