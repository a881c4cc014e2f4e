#!/bin/sh
# resources.sh REPORTS [TABLE]: registers and spills of the hot kernels on sm_90a, as ptxas reported them to REPORTS/*.ptxas when the
# build compiled them, against the limits of TABLE (resources.txt beside this script). Exit 77 where the build has no kernels for it.
set -u
reports=${1:?"give the build's folder of reports"}
table=${2:-$(dirname "$0")/resources.txt}
if ! grep -q "for 'sm_90a'" "$reports"/*.ptxas 2>/dev/null; then
	echo "skipped: this build has no kernels for sm_90a"
	exit 77
fi
awk -v table="$table" '
FILENAME == table {
	if ($0 !~ /^#/ && NF == 2)
		limit[$1] = $2
	next
}
/Compiling entry function/ {
	split($0, part, "\047")
	kernel = part[4] == "sm_90a" ? part[2] : ""
}
kernel && /bytes spill stores/ { match($0, /[0-9]+ bytes spill stores/); stores[kernel] = substr($0, RSTART) + 0
                                 match($0, /[0-9]+ bytes spill loads/); loads[kernel] = substr($0, RSTART) + 0 }
kernel && /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); used[kernel] = substr($0, RSTART + 5, RLENGTH - 5) + 0 }
END {
	for (k in limit) {
		n++
		if (!(k in used)) {
			print k ": not in the report of the compiler: renamed, or no kernel any more?"
			bad++
		} else if (used[k] > limit[k]) {
			print k ": " used[k] " registers a thread, at most " limit[k] " leave room for the warps that hide its latency"
			bad++
		} else if (stores[k] + loads[k]) {
			print k ": spills " stores[k] " bytes and loads " loads[k]
			bad++
		}
	}
	print n + 0 " hot kernels, " bad + 0 " over their limits"
	exit bad || !n
}' "$table" "$reports"/*.ptxas
