#!/bin/sh
# The scripts for a CUDA machine, where there is none: what they say of themselves, what they refuse, and with stand-ins for the device and
# the programs, that each option that they give exists, each step program that they ask for is legal, and each verdict can fail.
. "$(dirname "$0")/lib.sh"
needs_engine
unset GPU_CACHE GPU_SECONDS GPU_SOFTWARE GPU_PLAN GPU_LOG CUDNN_HOME OUT FLATOUT_CUDA_LIBRARIES

for script in tests/gpu/run tests/gpu/first tests/gpu/second tests/gpu/bundle tests/gpu/probe bench/gpu/run; do
	"$source/$script" --help >out 2>err || wrong "$script --help ended with $?"
	grep -q "$script" out && [ ! -s err ] || wrong "$script --help: $(cat out err)"
	code=0
	"$source/$script" --nonsense >out 2>err || code=$?
	[ "$code" = 2 ] && grep -q nonsense err || wrong "$script --nonsense ended with $code: $(cat out err)"
done
code=0
"$source/bench/gpu/run" ceilings nonsense >out 2>err || code=$?
[ "$code" = 2 ] && grep -q "no part 'nonsense'" err || wrong "a part that is not there: $code, $(cat out err)"

# The README's table of each script's steps is the script's own, and all steps together stay below ten minutes.
for script in first second; do
	"$source/tests/gpu/$script" --steps | tr '|' '\t' >steps
	awk -F' *[|] *' -v OFS='\t' -v head="## $script" '/^## / { on = $0 == head } on && $2 ~ /^[0-9]+$/ { gsub("`", "", $3); sub(" s$", "", $4); print $3, $4, $5 }' \
		"$source/tests/gpu/README.md" >told
	cmp -s steps told || wrong "steps of $script in README.md are not its own: $(diff steps told)"
	awk -F'\t' '{ s += $2 } END { exit !(NR && s <= 570) }' steps || wrong "the steps of $script take more than 570 s: $(cat steps)"
done

# A copy of the scripts beside a bundle of stand-ins; nvidia-smi says that there is a device. The toolkit is one, too.
mkdir -p tree/tests tree/bench path tree/build/gpu/bin tree/build/gpu/lib tree/docs scratch toolkit/include toolkit/lib64 wheels/cudnn/include \
	wheels/cudnn/lib
cp -r "$source/tests/gpu" tree/tests/
cp -r "$source/bench/gpu" tree/bench/
cat >path/nvidia-smi <<'END'
#!/bin/sh
[ "$1" = -L ] && echo "GPU 0: stand-in"
[ "$2" = --format=csv ] && printf 'timestamp, clock\n1, 1400 MHz, 690.5 W, 60, 0x4\n2, [N/A], [N/A], 60, 0x4\n'
exit 0
END
# Python with PyTorch, and with NVIDIA's packages in $WHEELS.
cat >path/python3 <<'END'
#!/bin/sh
[ -z "${NO_TORCH:-}" ] || exit 1
case $1 in
-) cat >/dev/null && [ -n "${WHEELS:-}" ] && echo "$WHEELS/cudnn/$2" ;;
esac
exit 0
END
: >toolkit/include/cublasLt.h
: >toolkit/lib64/libcudart.so
: >toolkit/lib64/libcublasLt.so
: >wheels/cudnn/include/cudnn.h
: >wheels/cudnn/lib/libcudnn.so.9
# A compiler whose programs end with $PROBE.
cat >path/stand-in-cc <<'END'
#!/bin/sh
echo "$@" >>"$LINKED"
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\necho "TFLOP/s"\nexit "${PROBE:-0}"\n' >"$2"
chmod +x "$2"
END
cat >tree/build/gpu/bin/flatout <<'END'
#!/bin/sh
if [ "$1 $2" = "devices --local" ]; then
	cat <<-JSON
		{
		  "devices": [
		    {
		      "memory_bytes": 150000000000,
		      "can_train": ${TRAIN:-true}
		    }
		  ],
		  "libraries": [
		    {
		      "name": "cuDNN",
		      "loaded": true,
		      "version": "${CUDNN:-9.19.0}"
		    }
		  ]
		}
	JSON
fi
[ "$1" = train ] || exit 0
shift
"$REAL" config "$@" >/dev/null || exit 2
for word; do
	case $word in
	--run.dir=*) dir=${word#*=} ;;
	--train.steps=*) steps=${word#*=} ;;
	esac
done
mkdir -p "$dir/checkpoints"
awk -v n="$steps" -v last="${LAST:-2}" -v planned="${PLANNED:-100}" -v measured="${MEASURED:-${PLANNED:-100}}" 'BEGIN {
	for (i = 1; i <= n; i++)
		printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"lr\":1}\n", i, 8 + (last - 8) * i / n
	printf "{\"event\":\"end\",\"planned_bytes\":%.0f,\"measured_bytes\":%.0f}\n", planned, measured
}' >"$dir/log.jsonl"
END
cat >tree/build/gpu/bin/bench_gpu <<'END'
#!/bin/sh
mode=all
for word; do
	shift
	case $word in
	--bench.sustain=*) mode=sustain ;;
	--bench.* | --train.device=*) ;;
	*) set -- "$@" "$word" ;;
	esac
done
"$REAL" program --no-operations "$@" >/dev/null || exit 2
mkdir -p "$FLATOUT_CACHE" && echo measured >>"$FLATOUT_CACHE/cuda-products.jsonl"
[ -z "${SILENT:-}" ] || exit 0
if [ $mode = sustain ]; then
	echo "{\"sustained\":\"square\",\"settled_tflop_s\":${SETTLED:-780.5},\"watts\":698.25,\"nvml\":null}"
else
	echo '{"operation":"attention","us_median":1500.5,"of_ceiling":0.80,"ms_per_step":48,"operands":""}'
	echo '{"operation":"attention_bwd","us_median":2000,"of_ceiling":0.70,"ms_per_step":64,"operands":""}'
	echo '{"step_ms_without_gaps":112}'
fi
END
cat >tree/build/gpu/bin/bench_train_vs_torch <<'END'
#!/bin/sh
peer=
for word; do
	shift
	[ "$word" != -- ] || peer=yes
	[ -z "$peer" ] || continue
	case $word in
	--bench.* | --train.device=*) ;;
	*) set -- "$@" "$word" ;;
	esac
done
"$REAL" program --no-operations "$@" >/dev/null || exit 2
mkdir -p "$FLATOUT_CACHE" && echo measured >>"$FLATOUT_CACHE/cuda-products.jsonl"
[ -z "${SILENT:-}" ] || exit 0
cat <<-JSON
	{"rounds":2,"peak_flop_s":989e12,"median":{"tokens_per_second":12000,"mfu":${MFU:-0.71},"mfu_causal":0.6},"best":{"tokens_per_second":13000,"mfu":0.9},"ratio_median":${RATIO:-1.25},"parts_ms":{"matmul":8},"parts_sum_ms":9.9,"round_ms":10,"attention_note":${NOTE:-null}}
JSON
END
# Those that `first` starts, each of them a test of this tree: a name that no test has would cost the step on a device.
programs=$(sed -n 's/.*programs_pass \(test_[a-z_ ]*[a-z]\).*/\1/p' "$source/tests/gpu/first")
tests=$(echo "$programs" | wc -w)
for program in $programs; do
	[ -f "$source/tests/cuda/$program.c" ] || wrong "tests/gpu/first starts '$program', which no test is"
done
for program in $programs; do
	printf '#!/bin/sh\nexit "${TESTS:-0}"\n' >tree/build/gpu/bin/$program
done
chmod +x path/* tree/build/gpu/bin/*
PATH=$PWD/path:$PATH REAL=$bin TMPDIR=$PWD/scratch CUDA_HOME=$PWD/toolkit CC=stand-in-cc LINKED=$PWD/linked
export PATH REAL TMPDIR CUDA_HOME CC LINKED
system_cudnn=
[ ! -e /usr/include/cudnn.h ] && [ ! -e "/usr/include/$(uname -m)-linux-gnu/cudnn.h" ] || system_cudnn=yes

# on CODE VARIABLE=VALUE... SCRIPT ARGUMENT...; nothing may be left in the scratch folder
on() {
	want=$1
	shift
	code=0
	env "$@" >out 2>err || code=$?
	[ "$code" = "$want" ] || wrong "'$*' ended with $code, not $want: $(cat out err)"
	[ -z "$(ls scratch)" ] || wrong "'$*' left behind: $(ls scratch)"
	rm -rf scratch/*
}
# left FOLDER FILE...: exactly these results, and a summary that is JSON
left() {
	folder=$1
	shift
	[ "$(ls "$folder")" = "$(printf '%s\n' "$@" | sort)" ] || wrong "results in $folder: $(ls "$folder")"
	valid "$folder/summary.json"
}
# decided FOLDER STEP RESULT [TEXT]: what its summary says of a step
decided() {
	grep "\"step\":\"$2\"" "$1/summary.json" | grep -q "\"result\":\"$3.*${4:-}" ||
		wrong "$1, $2 is not '$3 ${4:-}': $(grep "\"step\":\"$2\"" "$1/summary.json")"
}

# ---- is it right? ----

on 0 tree/tests/gpu/run one
grep -q "^$((7 + tests)) passed, 0 failed, 0 skipped" out || wrong "not every check passed: $(cat out)"
left one 1b.jsonl bf16.jsonl device.csv fp32.jsonl log.txt summary.json
on 1 LAST=9 tree/tests/gpu/run two # losses that rise
grep -q "^fp32_follows_cpu *failed" out && grep -q "^1b_learns *failed" out || wrong "rising losses passed: $(cat out)"
# Memory: libraries and graphs take some hundred MiB beside any plan, small or large; more than 2 % of it and 512 MiB is a wrong plan, and
# so is less than 98 % of it.
for case in "381681664 926180000 0" "381681664 926200000 1" "20000000000 20936870000 0" "20000000000 20936872000 1" \
	"20000000000 19600001000 0" "20000000000 19599999000 1"; do
	set -- $case
	on "$3" PLANNED="$1" MEASURED="$2" tree/tests/gpu/run three
	if [ "$3" = 0 ]; then result=passed; else result=failed; fi
	decided three memory_as_planned $result
	decided three 1b_as_planned $result
done
on 1 TESTS=1 tree/tests/gpu/run four
on 0 TESTS=77 tree/tests/gpu/run five
grep -q "$tests skipped" out || wrong "a skipped test does not count as one: $(cat out)"
# What hangs is ended.
sed 's/gpu_check "$(basename "$program")" 240/gpu_check "$(basename "$program")" 1/' "$source/tests/gpu/run" >tree/tests/gpu/run
printf '#!/bin/sh\nexec sleep 20\n' >tree/build/gpu/bin/test_cuda_hangs
chmod +x tree/build/gpu/bin/test_cuda_hangs
on 1 tree/tests/gpu/run six
grep -q "test_cuda_hangs *failed (over 1 s)" out || wrong "what hangs is not ended: $(cat out)"
rm tree/build/gpu/bin/test_cuda_hangs

on 0 tree/bench/gpu/run -o bench sustained ceilings long 8b fp8 small ladder torch1b
! grep -q failed out || wrong "a part asks for what is not there: $(cat out)"
left bench cuda-products.jsonl device.csv log.txt results.jsonl summary.json
valid bench/results.jsonl
grep -q '^{"part":"steps","label":"8B, 16k, bf16"' bench/results.jsonl && grep -q '"settled_tflop_s"' bench/results.jsonl || wrong "results.jsonl: $(cat bench/results.jsonl)"
on 0 tree/bench/gpu/run -o bench 32k
grep -q '"settled_tflop_s"' bench/results.jsonl || wrong "a second call threw away what the first one measured"
grep -q '"label":"8B, 16k, bf16"' bench/summary.json && wrong "the summary is not that of the last call"

# The programs of a build folder, on the device beside them: named from here.
mkdir -p soft/tests/cuda
cp tree/build/gpu/bin/flatout tree/build/gpu/bin/bench_gpu soft/
on 0 GPU_SOFTWARE=soft tree/bench/gpu/run -o bench3 sustained
grep -q "^programs: $PWD/soft, on a software device" out && grep -q '"software_device":true' bench3/summary.json || wrong "not that folder's programs: $(cat out)"

# ---- the probe: what wheels bring is found, what could not run is said ----

on 0 WHEELS="$PWD/wheels" tree/tests/gpu/probe probe
decided probe attention passed
grep "probe_attention.c" linked | grep -q -e "wheels/cudnn/lib/libcudnn.so.9 " || wrong "the wheel's library is not linked: $(cat linked)"
[ -n "$system_cudnn" ] || grep "probe_attention.c" linked | grep -q -e "-I$PWD/wheels/cudnn/include" || wrong "nor its header found: $(cat linked)"
left probe device.csv log.txt summary.json
if [ -z "$system_cudnn" ]; then
	on 4 tree/tests/gpu/probe probe
	decided probe attention skipped "no 'cudnn.h'"
	decided probe gemm passed
fi
on 1 PROBE=1 tree/tests/gpu/probe probe
on 77 PROBE=77 tree/tests/gpu/probe probe
on 2 tree/tests/gpu/probe probe nonsense

# ---- the first minutes ----

full="WHEELS=$PWD/wheels"
all="machine kernels attention sustained products operations step loss fp8 pack"
on 0 "$full" tree/tests/gpu/first first
left first cuda-products.jsonl device.csv log.txt summary.json
for step in $all; do
	decided first $step passed
done
decided first machine passed "go on: cuDNN 9.19.0"
decided first attention passed '112.0 ms of 32 layers at 8k, within 116.*"probe":"passed"'
decided first sustained passed '76 % is within reach.*"watts":698.25'
decided first operations passed 'furthest below its ceiling: attention_bwd'
decided first step passed 'MFU 71.0 %: as predicted, 68 to 74 %, parts make 99.0 % of a step'
decided first loss passed '1.0000 times as fast'
decided first fp8 passed '702.2 TFLOP/s of the 950'
grep -q '"machine":{' first/summary.json && grep -q '"state":"done"' first/summary.json || wrong "summary: $(cat first/summary.json)"
# Each verdict can be the other, and each step can fail; the others run all the same.
on 1 "$full" TESTS=1 SETTLED=700 MFU=0.6 tree/tests/gpu/first first
decided first kernels "failed (status 1)"
decided first products "failed (status 1)"
decided first attention "failed (status 1)"
decided first sustained passed "below the 775"
decided first step passed "below the 68 % predicted"
on 1 "$full" SILENT=1 tree/tests/gpu/first first
for step in attention sustained operations step loss fp8; do
	decided first $step failed
done
on 1 "$full" NOTE='"no cuDNN"' tree/tests/gpu/first first
decided first step failed 'no figure of this step counts: no cuDNN'
on 1 "$full" PROBE=1 tree/tests/gpu/first first
decided first attention failed
if [ -z "$system_cudnn" ]; then
	on 0 tree/tests/gpu/first first # no cudnn.h: said, and what our own programs show stands
	decided first attention passed '"probe":"not run'
fi
# Below cuDNN 9.18, and without a device that can be used, nothing after it means anything.
for case in CUDNN=9.17.1 TRAIN=false; do
	on 1 "$full" $case tree/tests/gpu/first first
	decided first machine failed 'stop: '
	decided first kernels "not run"
	decided first pack "not run"
done
decided first machine failed "no device that this build can use"
on 0 "$full" CUDNN=10.0.1 tree/tests/gpu/first first

# A carried cache is what it starts from.
echo carried >carried
on 0 "$full" GPU_CACHE=carried tree/tests/gpu/first first
[ "$(head -n 1 first/cuda-products.jsonl)" = carried ] || wrong "the cache was not taken along: $(cat first/cuda-products.jsonl)"
cp carried tree/build/gpu/cuda-products.jsonl
on 0 "$full" tree/tests/gpu/second second
[ "$(head -n 1 second/cuda-products.jsonl)" = carried ] || wrong "the bundle's cache was not taken along: $(cat second/cuda-products.jsonl)"
rm tree/build/gpu/cuda-products.jsonl
on 2 GPU_CACHE=none tree/tests/gpu/first first
# Results that find no room leave no halves beside the last whole ones; a limit on files stands for a disk that is full.
(
	trap '' XFSZ
	ulimit -f 4
	exec env "$full" GPU_SECONDS=5 tree/tests/gpu/first tight
) >out 2>err && wrong "results without room: $(cat out)"
ls tight/*.new >/dev/null 2>&1 && wrong "halves of results stay: $(ls tight)"
rm -rf scratch/*
# A time that is no number of seconds would leave none for any step.
for script in first second; do
	for seconds in 9m 0 -5 1.5; do
		on 2 GPU_SECONDS=$seconds tree/tests/gpu/$script first
		grep -q "GPU_SECONDS must be .* got '$seconds'" err || wrong "GPU_SECONDS=$seconds: $(cat out err)"
	done
done

# Never more than was given: what is not reached is said.
printf '#!/bin/sh\nexec sleep 60\n' >tree/build/gpu/bin/test_cuda_kernels
for seconds in 3 12 48; do # a busy machine may need more than the first of them to come to the kernels
	on 1 "$full" GPU_SECONDS=$seconds tree/tests/gpu/first first
	grep '"step":"kernels"' first/summary.json | grep -q '"result":"not run"' || break
done
decided first kernels "failed (over "
decided first pack "not run" "no time left"

# stopped SIGNAL CODE: while a step runs; what there was is left.
stopped() {
	rm -rf first
	env "$full" tree/tests/gpu/first first >out 2>err &
	pid=$!
	until grep -q '"step":"kernels","result":"running"' first/summary.json 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
	kill "-$1" $pid
	code=0
	wait $pid || code=$?
	[ "$code" = "$2" ] || wrong "$1: ended with $code: $(cat out err)"
	valid first/summary.json
	decided first machine passed
	grep -q "150000000000" first/log.txt || wrong "$1: the log lacks what was said: $(cat first/log.txt)"
}
stopped TERM 143
decided first kernels interrupted
[ -z "$(ls scratch)" ] || wrong "TERM: left behind: $(ls scratch)"
stopped KILL 137
decided first kernels running
rm -rf scratch/*
printf '#!/bin/sh\nexit "${TESTS:-0}"\n' >tree/build/gpu/bin/test_cuda_kernels

# ---- the second ----

on 0 "$full" tree/tests/gpu/second second
left second 1b.jsonl cuda-products.jsonl device.csv log.txt summary.json
decided second 1b_learns passed "60 steps, loss"
decided second 16k passed "MFU 71.0 %"
decided second 32k passed "below the goal of 84 %"
decided second torch1b passed "1.250 times as fast as PyTorch, at least 1.2"
decided second ladder passed "27 rungs measured"
on 1 "$full" LAST=9 MFU=0.85 RATIO=1.1 tree/tests/gpu/second second
decided second 1b_learns failed
decided second 32k passed "the goal is reached"
decided second torch1b passed "less than 1.2"
on 1 "$full" PLANNED=20000000000 MEASURED=22000000000 SILENT=1 tree/tests/gpu/second second
decided second 1b_learns failed
decided second 16k failed
on 4 NO_TORCH=1 tree/tests/gpu/second second
decided second torch1b skipped "no PyTorch"

# Without a bundle they do not build: that would take the minutes.
mv tree/build/gpu/bin away
on 3 tree/tests/gpu/first first
grep -q "tests/gpu/bundle" err || wrong "what to do is not said: $(cat out err)"
mv away tree/build/gpu/bin
if [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
	rm path/nvidia-smi
	command -v nvidia-smi >/dev/null 2>&1 || on 77 tree/tests/gpu/first none
fi
finish
