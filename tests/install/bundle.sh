# The bundle for a machine with a device, tests/gpu/bundle, unpacked into an empty root folder: the C library, a shell
# and its tools, no toolkit, no Python, nothing of the tree that it was built in. On the software device laid beside
# it, each script runs to its end there.
. "$(dirname "$0")/lib.sh"
root=$tmp/root
tree=$root/tree
mkdir -p "$tree/tests" "$tree/bench" "$tree/build/gpu/tests" "$tree/docs/commands" "$root/bin" "$root/tmp" "$root/dev"
cp -r "$FLATOUT_SOURCE/tests/gpu" "$tree/tests/"
cp -r "$FLATOUT_SOURCE/bench/gpu" "$tree/bench/"
cp "$FLATOUT_SOURCE"/docs/commands/*.md "$tree/docs/commands/" # what tests/gpu/run trains on
echo "a cache that was carried" >"$tree/build/gpu/cuda-products.jsonl"
"$tree/tests/gpu/bundle" "$FLATOUT_BUILD" >"$tmp/out" 2>&1 || { wrong "bundle: $(cat "$tmp/out")"; exit 1; }
grep -q carried "$tree/build/gpu/cuda-products.jsonl" || wrong "the bundle took away the cache of measured products"
rm -f "$tree/build/gpu/cuda-products.jsonl"
cp -rL "$FLATOUT_BUILD/tests/cuda" "$tree/build/gpu/tests/"
"$tree/tests/gpu/bundle" "$tmp" >"$tmp/out" 2>&1 && wrong "a folder without programs was bundled"
grep -q "has no program 'flatout'" "$tmp/out" || wrong "a folder without programs: $(cat "$tmp/out")"

if [ "$(id -u)" = 0 ] && chroot / true 2>/dev/null; then
	alone() { env -i PATH=/bin "$@" "$(command -v chroot)" "$root" $alone; }
elif unshare -r chroot / true 2>/dev/null; then
	alone() { env -i PATH=/bin "$@" "$(command -v unshare)" -r "$(command -v chroot)" "$root" $alone; }
else
	echo "bundle: no chroot here: the empty root was not tested"
	[ "$failed" = 0 ] && exit 77
	exit 1
fi
# in_root VARIABLE=VALUE... -- COMMAND...: with that environment alone
in_root() {
	variables=
	while [ "$1" != -- ]; do
		variables="$variables $1"
		shift
	done
	shift
	alone=$*
	# shellcheck disable=SC2086 # none has a space
	alone $variables
}
# with_libraries FILE: what it loads, at the same places
with_libraries() {
	ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
}

# First with the C library and its loader alone: every library that a program needs beside them is in the bundle.
cat >"$tmp/none.c" <<-'C'
	int main(void) { return 0; }
C
${CC:-cc} "$tmp/none.c" -o "$tmp/none" -Wl,--no-as-needed -lm -lpthread -ldl -lrt && with_libraries "$tmp/none"
for program in "$tree"/build/gpu/bin/*; do
	name=/tree/build/gpu/bin/$(basename "$program")
	in_root LD_LIBRARY_PATH=/tree/build/gpu/lib LD_TRACE_LOADED_OBJECTS=1 -- "$name" >"$tmp/out" 2>&1
	! grep "not found" "$tmp/out" >&2 && grep -q libc.so "$tmp/out" || wrong "$name does not find all it loads"
done
in_root LD_LIBRARY_PATH=/tree/build/gpu/lib -- /tree/build/gpu/bin/flatout devices h200 >"$tmp/out" 2>&1
grep -q 989 "$tmp/out" || wrong "the catalogue of devices is not in the bundle: $(cat "$tmp/out")"
in_root LD_LIBRARY_PATH=/tree/build/gpu/lib -- /tree/build/gpu/bin/flatout mfu --model llama-3.1-8b --seq 8192 --device h200 --devices 1 \
	--tokens-per-second 12000 >"$tmp/out" 2>&1
grep -q 'MFU [0-9.]* %' "$tmp/out" || wrong "a peak is not known: $(cat "$tmp/out")"

# Then with the tools of the scripts.
for tool in sh awk basename cat cp cut date df dirname env find grep head join ln mkdir mktemp mv nproc printf rm sed sleep sort tail timeout \
	tr uname wc; do
	path=$(command -v "$tool")
	case $path in
	/*) ;;
	*) path=/usr/bin/$tool ;;
	esac
	cp -L "$path" "$root/bin/$tool" && with_libraries "$path" || wrong "no '$tool' here"
done
mknod -m 666 "$root/dev/null" c 1 3 2>/dev/null && : >"$root/dev/null" || : >"$root/dev/null"

# ends STATUS RESULT-FOLDER COMMAND...: few and small results, and nothing left elsewhere
ends() {
	status=$1 results=$2
	shift 2
	in_root GPU_SOFTWARE=/tree/build/gpu OMP_WAIT_POLICY=passive LC_ALL=C -- /bin/sh "$@" >"$tmp/out" 2>&1
	got=$?
	[ "$got" = "$status" ] || wrong "$* ends with $got: $(cat "$tmp/out")"
	grep -q "the bundle in build/gpu" "$tmp/out" || wrong "$*: not the bundle's programs: $(head -n 3 "$tmp/out")"
	! grep "not found" "$tmp/out" || wrong "$*: a tool is missing"
	[ "$(find "$root$results" -type f | wc -l)" -le 8 ] || wrong "$*: more than 8 files: $(ls "$root$results")"
	[ -z "$(find "$root$results" -mindepth 1 -type d)" ] || wrong "$*: folders among the results"
	[ -z "$(find "$root$results" -size +16000k)" ] || wrong "$*: a file of more than 16 MB"
	[ -z "$(ls "$root/tmp")" ] || wrong "$*: left behind: $(ls "$root/tmp")"
	grep -q '"state":"done"' "$root$results/summary.json" || wrong "$*: summary.json: $(head -n 3 "$root$results/summary.json")"
	[ -s "$root$results/log.txt" ] || wrong "$*: no log"
}
ends 0 /first /tree/tests/gpu/first /first
[ "$(grep -c '^{"step":.*"result":"passed"' "$root/first/summary.json")" = 10 ] || wrong "first: $(grep -v '"result":"passed"' "$root/first/summary.json")"
grep -q '"name": "cuBLASLt"' "$root/first/summary.json" || wrong "first: no versions of libraries"
# What it measured spares the next script the measuring.
[ -s "$root/first/cuda-products.jsonl" ] || wrong "no cache of measured products"
cp "$root/first/cuda-products.jsonl" "$tree/build/gpu/"
ends 4 /second /tree/tests/gpu/second /second # no Python, so no PyTorch
[ "$(grep -c '^{"step":.*"result":"passed"' "$root/second/summary.json")" = 4 ] || wrong "second: $(grep -v '"result":"passed"' "$root/second/summary.json")"
[ "$(head -n 1 "$root/second/cuda-products.jsonl")" = "$(head -n 1 "$root/first/cuda-products.jsonl")" ] || wrong "the cache was not carried on"
# What these ran has no need to run again.
for program in kernels rows step optimizer comm attention lanes products; do
	rm -f "$tree/build/gpu/bin/test_cuda_$program"
done
ends 0 /run /tree/tests/gpu/run /run
for step in devices fp32_follows_cpu bf16_follows_cpu memory_as_planned 1b_learns; do
	grep -q "\"step\":\"$step\".*\"result\":\"passed\"" "$root/run/summary.json" || wrong "$step: $(cat "$root/run/summary.json")"
done
ends 0 /bench /tree/bench/gpu/run -o /bench ceilings
grep -q '"step_ms_without_gaps"' "$root/bench/results.jsonl" || wrong "bench: $(cat "$root/bench/log.txt")"
[ "$failed" = 0 ] && echo "bundle: whole"
exit $failed
