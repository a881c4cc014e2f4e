# The one static file: it runs in an empty root folder, on a processor without any later instructions, and its commands pass the same
# tests as those of the whole program.
. "$(dirname "$0")/lib.sh"
program=$FLATOUT_BUILD/flatout-static
trace=$FLATOUT_SOURCE/examples/trace
[ -x "$program" ] || { wrong "no '$program'"; exit 1; }
[ "$(stat -c %s "$program")" -lt 10000000 ] || wrong "it has $(stat -c %s "$program") bytes"
readelf -l "$program" >"$tmp/out"
grep -E 'INTERP|DYNAMIC' "$tmp/out" && wrong "it is not static"

# Nothing but this file and two traces: no libraries, no /proc, no /dev, no /tmp, no home.
root=$tmp/root
mkdir "$root"
cp "$program" "$root/flatout"
cp "$trace/slow-loader.json.gz" "$root/a.json.gz"
cp "$trace/four-workers.json.gz" "$root/b.json.gz"
if [ "$(id -u)" = 0 ] && chroot "$root" /flatout --version >/dev/null 2>&1; then
	alone() { env -i "$(command -v chroot)" "$root" /flatout "$@"; }
elif unshare -r chroot "$root" /flatout --version >/dev/null 2>&1; then
	alone() { env -i "$(command -v unshare)" -r "$(command -v chroot)" "$root" /flatout "$@"; }
else
	# Neither root nor user namespaces; a program that does not start at all is no reason to skip.
	"$program" --version >/dev/null || wrong "it does not start"
	[ "$failed" = 0 ] || exit 1
	echo "static: no chroot here: the empty root was not tested"
	exit 77
fi
# says STATUS PATTERN ARGUMENT...
says() {
	status=$1 pattern=$2
	shift 2
	alone "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" = "$status" ] || wrong "$* ends with $got: $(cat "$tmp/err")"
	grep -q "$pattern" "$tmp/out" || wrong "$*: not '$pattern': $(cat "$tmp/out")"
}
says 1 'the GPU waits for data' diagnose a.json.gz --model llama-3.2-1b --seq 2048 --tokens-per-step 8192 --html page.html
[ -s "$root/page.html" ] || wrong "diagnose --html wrote no page"
says 1 '^{' diagnose a.json.gz --json -
says 0 'idle: data loading' compare a.json.gz b.json.gz
says 0 '"traceEvents"\|a.csv' export a.json.gz --csv a.csv
[ -s "$root/a.csv" ] || wrong "export --csv wrote no table"
says 0 'MFU 54.34 %' mfu --model llama-3.1-8b --seq 8192 --device b200 --devices 1 --tokens-per-second 21111
says 0 '8,030,261,248' flops --model llama-3.1-8b --seq 8192
says 0 '989' devices h100
says 0 '^step program' program --model.name=llama-3.2-1b
says 0 'without the training engine' --version
# What is not in it is said so, and what it reads in such a folder is told when it is not there.
alone train run.yaml >"$tmp/out" 2>&1 && wrong "train works"
grep -q "'train' is not in this program" "$tmp/out" || wrong "train: $(cat "$tmp/out")"
alone diagnose none.json >"$tmp/out" 2>&1
[ $? = 3 ] || wrong "a missing trace: $(cat "$tmp/out")"

# The x86-64 of 2003 has no SSE3; what is faster is chosen at run time.
if [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null 2>&1; then
	old=qemu64,-sse3,-ssse3,-sse4.1,-sse4.2,-popcnt,-cx16,-abm,-sse4a
	qemu-x86_64 -cpu $old "$program" diagnose "$trace/slow-loader.json.gz" >"$tmp/out" 2>&1
	[ $? = 1 ] || wrong "on an old processor: $(tail -n 3 "$tmp/out")"
	grep -q 'the GPU waits for data' "$tmp/out" || wrong "on an old processor: $(cat "$tmp/out")"
else
	echo "static: no qemu-x86_64 here (Debian package qemu-user): an old processor was not tested"
fi

mkdir "$tmp/cli"
for name in mfu flops devices diagnose diagnose_ranks report compare compare_traces export_traces predict program config init; do
	(cd "$tmp/cli" && env -u FLATOUT_HAS_ENGINE FLATOUT_BIN="$program" sh "$FLATOUT_SOURCE/tests/cli/$name.sh") >"$tmp/out" 2>&1
	status=$?
	[ $status = 0 ] || [ $status = 77 ] || wrong "tests/cli/$name.sh with it: $(cat "$tmp/out")"
done
exit $failed
