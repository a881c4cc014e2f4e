#!/bin/sh
# The ladder of matmul.inc: each rung is the production source with one idea taken back (or another constant), built against
# an existing build folder and measured with bench/products, one thread, processor time, all rungs in turn.
#
#   dev/kernel/vec/ladder.sh BUILD_DIR [OUTxIN] [SECONDS]
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
build=${1:?usage: ladder.sh BUILD_DIR [OUTxIN] [SECONDS]}
shape=${2:-768x768}
seconds=${3:-0.5}
cc=${CC:-gcc}
LIBS=${LIBS:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# rung NAME SED_EXPRESSION: the object comes before the library, so its symbols win.
rung() {
	sed "$2" "$root/src/kernel/x86/matmul.inc" >"$dir/$1.inc"
	printf '#define FO_LANES 8\n#define FO_NAME(x) x##_avx2\n#include "%s"\n' "$dir/$1.inc" >"$dir/$1.c"
	$cc -std=gnu11 -O3 -fopenmp -mavx2 -mfma -mf16c -I"$root/src" -c "$dir/$1.c" -o "$dir/$1.o"
	$cc -std=gnu11 -O2 -fopenmp -I"$root/src" "$root/bench/products/products.c" "$dir/$1.o" \
		"$build/libflatout_engine.a" "$build/libflatout_know.a" $LIBS -lm -o "$dir/$1"
	names="$names $1"
}

names=
rung production ''
rung depth_192 's/FO_LANES == 8 ? 384 : 256/192/'
rung depth_256 's/FO_LANES == 8 ? 384 : 256/256/'
rung depth_512 's/FO_LANES == 8 ? 384 : 256/512/'
rung scalar_pack 's/int64_t whole = depth \/ 8 \* 8;/int64_t whole = 0;/'
rung narrow_block 's/cols > 2048 ? 2048/cols > 1024 ? 1024/; s/2048 : 4096, MM_MR/1024 : 1024, MM_MR/'
rung no_prefetch 's/__builtin_prefetch(c + .*;/(void)c;/'
for round in 1 2; do
	for name in $names; do
		"$dir/$name" --isa avx2 --clock cpu --seconds "$seconds" --only "$shape" | sed "s/^{/{\"rung\": \"$name\", /"
	done
done
