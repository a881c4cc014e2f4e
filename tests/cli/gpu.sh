#!/bin/sh
# The scripts for a CUDA machine, where there is none: what they say of themselves, what they refuse, and with stand-ins for the device and
# the programs, that each option that they give exists, each step program that they ask for is legal, and each verdict can fail.
. "$(dirname "$0")/lib.sh"
needs_engine

for script in tests/gpu/run tests/gpu/bundle tests/gpu/probe bench/gpu/run; do
	"$source/$script" --help >out 2>err || wrong "$script --help ended with $?"
	grep -q "$script" out && [ ! -s err ] || wrong "$script --help: $(cat out err)"
	code=0
	"$source/$script" --nonsense >out 2>err || code=$?
	[ "$code" = 2 ] && grep -q nonsense err || wrong "$script --nonsense ended with $code: $(cat out err)"
done
code=0
"$source/bench/gpu/run" ceilings nonsense >out 2>err || code=$?
[ "$code" = 2 ] && grep -q "no part 'nonsense'" err || wrong "a part that is not there: $code, $(cat out err)"

# A copy of the scripts beside a bundle of stand-ins; nvidia-smi says that there is a device.
mkdir -p tree/tests tree/bench path tree/build/gpu/bin tree/build/gpu/lib tree/docs
cp -r "$source/tests/gpu" tree/tests/
cp -r "$source/bench/gpu" tree/bench/
cat >path/nvidia-smi <<'END'
#!/bin/sh
[ "$1" = -L ] && echo "GPU 0: stand-in"
exit 0
END
cat >tree/build/gpu/bin/flatout <<'END'
#!/bin/sh
[ "$1" = train ] || exit 0
shift
"$REAL" config "$@" >/dev/null || exit 2
for word; do
	case $word in
	--run.dir=*) dir=${word#*=} ;;
	--train.steps=*) steps=${word#*=} ;;
	esac
done
mkdir -p "$dir"
awk -v n="$steps" -v last="${LAST:-2}" -v measured="${MEASURED:-100}" 'BEGIN {
	for (i = 1; i <= n; i++)
		printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"lr\":1}\n", i, 8 + (last - 8) * i / n
	printf "{\"event\":\"end\",\"planned_bytes\":100,\"measured_bytes\":%d}\n", measured
}' >"$dir/log.jsonl"
END
cat >tree/build/gpu/bin/bench_gpu <<'END'
#!/bin/sh
for word; do
	shift
	case $word in
	--bench.* | --train.device=*) ;;
	*) set -- "$@" "$word" ;;
	esac
done
"$REAL" program --no-operations "$@" >/dev/null || exit 2
echo "{}"
END
printf '#!/bin/sh\nexit "${TESTS:-0}"\n' >tree/build/gpu/bin/test_cuda_stand_in
cp tree/build/gpu/bin/bench_gpu tree/build/gpu/bin/bench_train_vs_torch
chmod +x path/nvidia-smi tree/build/gpu/bin/*
PATH=$PWD/path:$PATH REAL=$bin
export PATH REAL

# on CODE VARIABLE=VALUE... SCRIPT ARGUMENT...
on() {
	want=$1
	shift
	code=0
	env "$@" >out 2>err || code=$?
	[ "$code" = "$want" ] || wrong "'$*' ended with $code, not $want: $(cat out err)"
}
on 0 tree/tests/gpu/run one
grep -q "^6 passed, 0 failed, 0 skipped" out || wrong "not every check passed: $(cat out)"
grep -q '^\[{"check":"devices","result":"passed".*}\]$' one/results.json || wrong "results.json: $(cat one/results.json)"
on 1 LAST=9 tree/tests/gpu/run two # losses that rise
grep -q "^fp32_follows_cpu *failed" out && grep -q "^1b_learns *failed" out || wrong "rising losses passed: $(cat out)"
on 1 MEASURED=103 tree/tests/gpu/run three
grep -q "^memory_as_planned *failed" out && grep -q "^5 passed, 1 failed" out || wrong "a wrong plan passed: $(cat out)"
on 1 TESTS=1 tree/tests/gpu/run four
on 0 TESTS=77 tree/tests/gpu/run five
grep -q "1 skipped" out || wrong "a skipped test does not count as one: $(cat out)"
# What hangs is ended.
sed 's/check "$(basename "$program")" 240/check "$(basename "$program")" 1/' "$source/tests/gpu/run" >tree/tests/gpu/run
printf '#!/bin/sh\nexec sleep 20\n' >tree/build/gpu/bin/test_cuda_stand_in
on 1 tree/tests/gpu/run six
grep -q "test_cuda_stand_in *failed (over 1 s)" out || wrong "what hangs is not ended: $(cat out)"

on 0 tree/bench/gpu/run -o bench sustained ceilings long 8b fp8 small ladder
! grep -q failed out || wrong "a part asks for what is not there: $(cat out)"
finish
