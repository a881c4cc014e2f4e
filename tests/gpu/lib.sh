# Sourced by the scripts of this folder and by bench/gpu/run: the device, NVIDIA's libraries, our programs, then steps
# and what they leave. Plain sh.
#
# Results are few and small, as a machine lent for minutes takes them back: at most 8 files under 16 MiB in
# RESULT-FOLDER itself. What is not a result (run directories, checkpoints, caches, programs) lies in a scratch folder
# below $TMPDIR (/tmp), removed at the end.
#   summary.json         each step: result, figures, seconds, limit; written anew before and after each
#   log.txt              what each command said, as it came
#   cuda-products.jsonl  the cache of measured products; $GPU_CACHE, or build/gpu/cuda-products.jsonl, is what it starts from
#   device.csv           the device's clocks, power and temperature once a second

gpu_root=$(cd "$(dirname "$0")/../.." && pwd) || exit 3

# gpu_usage WORD...: -h or --help shows what the script's head says; another option is no folder.
gpu_usage() {
	case ${1:-} in
	-h | --help)
		sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	-*)
		echo "$0: no option '$1': '$0 --help' says what there is" >&2
		exit 2
		;;
	esac
	case ${GPU_SECONDS:-1} in
	*[!0-9]* | 0)
		echo "$0: GPU_SECONDS must be a whole number of seconds above 0, got '$GPU_SECONDS'" >&2
		exit 2
		;;
	esac
}

# GPU_SOFTWARE=BUILD-FOLDER: the scripts themselves are tried, with the programs of that build on its software device
# (docs/cuda-testing.md); models are then tiny, and nothing is proved of any hardware. A folder that has tests/cuda
# alone brings the device, and the programs are those of a bundle or a build, as on hardware.
[ -z "${GPU_SOFTWARE:-}" ] || GPU_SOFTWARE=$(cd "$GPU_SOFTWARE" && pwd) || exit 3

# gpu_device: exits 77 where there is none.
gpu_device() {
	[ -z "${GPU_SOFTWARE:-}" ] || return 0
	if ! { nvidia-smi -L 2>/dev/null | grep -q '^GPU' || [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; }; then
		echo "skipped: no CUDA device"
		exit 77
	fi
}

# gpu_wheels SUBFOLDER: those of NVIDIA's packages beside the PyTorch of python3, with ':' between.
gpu_wheels() {
	gpu_python=$(command -v python3 2>/dev/null) || return 0
	"$gpu_python" - "$1" <<-'END' 2>/dev/null
		import glob, os, sys
		try:
		    import nvidia
		    folders = [f for p in nvidia.__path__ for f in glob.glob(os.path.join(p, "*", sys.argv[1]))]
		except ImportError:
		    folders = []
		print(":".join(sorted(folders)))
	END
}

# Folders of NVIDIA's libraries: what the caller named, the toolkit, and those inside PyTorch's wheels.
gpu_libraries() {
	if [ -n "${GPU_SOFTWARE:-}" ]; then
		FLATOUT_CUDA_LIBRARIES=$GPU_SOFTWARE/tests/cuda
		export FLATOUT_CUDA_LIBRARIES
		return 0
	fi
	gpu_found=$(gpu_wheels lib) || gpu_found=
	for gpu_folder in "${CUDNN_HOME:-/nonexistent}/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/lib"; do
		[ -d "$gpu_folder" ] && FLATOUT_CUDA_LIBRARIES=${FLATOUT_CUDA_LIBRARIES:+$FLATOUT_CUDA_LIBRARIES:}$gpu_folder
	done
	FLATOUT_CUDA_LIBRARIES=${FLATOUT_CUDA_LIBRARIES:-}${gpu_found:+${FLATOUT_CUDA_LIBRARIES:+:}$gpu_found}
	export FLATOUT_CUDA_LIBRARIES
	# cuDNN loads its parts, and those their compiler, by name.
	gpu_load_from "$FLATOUT_CUDA_LIBRARIES"
}
# gpu_load_from FOLDERS: in front of the others. An empty one would be the current folder.
gpu_load_from() {
	[ -n "$1" ] || return 0
	LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
}

# The programs of a build folder that the scripts start and a bundle holds.
gpu_program_files() {
	for gpu_program in "$1/flatout" "$1/bench_gpu" "$1/bench_train_vs_torch" "$1"/tests/test_cuda_*; do
		case $gpu_program in
		*/test_cuda_simt) ;; # of the software device itself
		*) [ -f "$gpu_program" ] && [ -x "$gpu_program" ] && printf '%s\n' "$gpu_program" ;;
		esac
	done
}

# Our programs: a bundle that tests/gpu/bundle made elsewhere and that runs here, else a build on this machine. Sets
# gpu_bin.
gpu_programs() {
	gpu_bin=$gpu_scratch/bin
	mkdir -p "$gpu_bin"
	if [ -n "${GPU_SOFTWARE:-}" ] && [ -x "$GPU_SOFTWARE/flatout" ]; then
		gpu_program_files "$GPU_SOFTWARE" | while read -r gpu_program; do
			ln -s "$gpu_program" "$gpu_bin/"
		done
		echo "programs: $GPU_SOFTWARE, on a software device"
		return 0
	fi
	if [ -x "$gpu_root/build/gpu/bin/flatout" ]; then
		gpu_bin=$gpu_root/build/gpu/bin
		gpu_load_from "$gpu_root/build/gpu/lib"
		if "$gpu_bin/flatout" --version >/dev/null 2>&1; then
			echo "programs: the bundle in build/gpu"
			gpu_commit=$(cat "$gpu_root/build/gpu/commit" 2>/dev/null) || gpu_commit=unknown # the tree may be another by now
			return 0
		fi
		echo "the bundle in build/gpu does not run here: building"
	fi
	[ -z "${gpu_no_build:-}" ] || {
		echo "no bundle in build/gpu that runs here: make one with tests/gpu/bundle on a machine that can build" >&2
		exit 3
	}
	gpu_build_here
}
gpu_build_here() {
	gpu_cudnn=$(printf '%s\n' "$FLATOUT_CUDA_LIBRARIES" | tr ':' '\n' | grep '/cudnn/lib$' | head -n 1)
	[ -n "${CUDNN_HOME:-}" ] || [ -z "$gpu_cudnn" ] || { CUDNN_HOME=$(dirname "$gpu_cudnn") && export CUDNN_HOME; }
	gpu_build=$gpu_root/build/gpu-here
	{ cmake -S "$gpu_root" -B "$gpu_build" -DCMAKE_BUILD_TYPE=Release -DFLATOUT_CUDA=ON -DFLATOUT_TESTS=ON -DFLATOUT_TEST_GROUPS=cuda &&
		cmake --build "$gpu_build" -j "$(nproc)" && cmake --build "$gpu_build" -j "$(nproc)" --target bench_gpu bench_train_vs_torch
	} >>"$gpu_log" 2>&1 || {
		tail -n 20 "$gpu_log"
		echo "the build failed (log.txt). It needs Flatout's libraries beside the toolkit; where they cannot be installed, run"
		echo "tests/gpu/bundle on a machine that has them and bring build/gpu along."
		exit 3
	}
	gpu_bin=$gpu_scratch/bin
	gpu_program_files "$gpu_build" | while read -r gpu_program; do
		cp "$gpu_program" "$gpu_bin/"
	done
	echo "programs: built here"
}

gpu_state() {
	timeout 10 nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null
}

# gpu_sizes [PLAN]: of models, rows and measurements. On the software device a tiny model has every dimension that a
# kernel may look at: heads in groups, two layers, widths for fp8; rows of 8k, 16k and 32k differ in length, the loss
# has two chunks and more. With PLAN, a size of memory, nothing runs there, and sizes are the real ones. many,
# several, few: micro-batches of a step.
# shellcheck disable=SC2034 # for those who source this
gpu_sizes() {
	if [ -n "${GPU_SOFTWARE:-}" ] && [ -z "${1:-}" ]; then
		tiny="--model.layers=2 --model.hidden=64 --model.heads=4 --model.kv-heads=2 --model.head-dim=16 --model.ffn=128 --model.vocab=128"
		k8=32 k16=64 k32=128 loss=16 many=2 several=2 few=2 ladder_rounds=1
		seconds=0.001 block=0.001 sustain=0.2 square=64
		llama8b=$tiny llama1b="$tiny --model.tied=yes" llama3b=$tiny
		shape8b="--hidden 64 --ffn 128 --heads 4 --kv-heads 2 --layers 2 --vocab 128 --theta 500000 --seq 32"
		shape1b="$shape8b --tied"
	else
		k8=8192 k16=16384 k32=32768 loss=2048 many=16 several=8 few=4 ladder_rounds="1 2 3"
		seconds=0.3 block=0.5 sustain=20 square=8192
		llama8b=--model.name=llama-3.1-8b llama1b=--model.name=llama-3.2-1b llama3b=--model.name=llama-3.2-3b
		shape8b="--hidden 4096 --ffn 14336 --heads 32 --kv-heads 8 --layers 32 --vocab 128256 --theta 500000 --seq 8192"
		shape1b="--hidden 2048 --ffn 8192 --heads 32 --kv-heads 8 --layers 16 --vocab 128256 --tied --theta 500000 --seq 8192"
	fi
	# The state formats that hold the 8B without recomputation: 8 bytes a parameter, exact master weights.
	exact="--optim.master=split --optim.moments=bf16"
	# Weights without master, rounded at random: what 32k leaves room for.
	least="--optim.master=none --optim.moments=bf16"
	# Chunks of 512 tokens, the processor's default, leave the head's weight gradient bound by memory: each adds to 2.1
	# GB of fp32.
	chunk="--pass.fuse-loss=$loss"
}

# ---- results and scratch ----

gpu_files_most=8
gpu_file_most=$((15 * 1024 * 1024)) # of a log: under 16 MiB with what the end adds

# gpu_results NAME FOLDER [more]: gpu_out, gpu_scratch, gpu_log; with "more" the log goes on where FOLDER has one.
gpu_results() {
	gpu_script=$1
	mkdir -p "$2" && gpu_out=$(cd "$2" && pwd) || exit 3
	gpu_scratch=$(mktemp -d "${TMPDIR:-/tmp}/flatout-gpu.XXXXXX") || exit 3
	gpu_log=${GPU_LOG:-$gpu_out/log.txt} # GPU_LOG: of a script that started this one
	[ "${3:-}" = more ] || rm -f "$gpu_log" "$gpu_out/device.csv" "$gpu_out/cuda-products.jsonl" "$gpu_out/summary.json"
	FLATOUT_CACHE=$gpu_scratch/cache
	export FLATOUT_CACHE
	gpu_passed=0 gpu_failed=0 gpu_skipped=0 gpu_missed=0
	gpu_software=false
	[ -z "${GPU_SOFTWARE:-}" ] || gpu_software=true
	gpu_child='' gpu_watcher='' gpu_name='' gpu_how=running gpu_end_at='' gpu_note=''
	gpu_began_at=$(date +%s)
	gpu_began_text=$(date -u +%FT%TZ)
	gpu_commit=$(gpu_commit_of_tree) || gpu_commit=unknown
	mkdir "$FLATOUT_CACHE"
	: >"$gpu_scratch/steps"
	exec 3>&1 # the console, also while a step's output goes to the log
	trap 'gpu_close' EXIT
	trap 'gpu_interrupted 129' HUP
	trap 'gpu_interrupted 130' INT
	trap 'gpu_interrupted 143' TERM
	: >>"$gpu_log"
	gpu_from_cache=${GPU_CACHE:-}
	gpu_carried=$gpu_root/build/gpu/cuda-products.jsonl
	[ -n "$gpu_from_cache" ] || [ ! -f "$gpu_carried" ] || gpu_from_cache=$gpu_carried
	[ -z "$gpu_from_cache" ] || cp "$gpu_from_cache" "$FLATOUT_CACHE/cuda-products.jsonl" || {
		echo "$0: no cache of measured products '$gpu_from_cache' (GPU_CACHE)" >&2
		exit 2
	}
}

gpu_commit_of_tree() { git -C "$gpu_root" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null; }

# A reader never meets half a file: what is there stays until what is new is whole.
gpu_replace() {
	cat >"$gpu_out/$1.new" && mv "$gpu_out/$1.new" "$gpu_out/$1" || {
		rm -f "$gpu_out/$1.new" # no room: half a file would only be one more to bring back
		return 1
	}
}
gpu_keep_cache() {
	[ ! -s "$FLATOUT_CACHE/cuda-products.jsonl" ] || gpu_replace cuda-products.jsonl <"$FLATOUT_CACHE/cuda-products.jsonl"
}

# gpu_text TEXT: as a JSON string.
gpu_text() {
	printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | LC_ALL=C tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

gpu_summary() {
	{
		printf '{"script":"%s","state":"%s","began":"%s","seconds":%d,' "$gpu_script" "$gpu_how" "$gpu_began_text" \
			"$(($(date +%s) - gpu_began_at))"
		printf '"commit":"%s","software_device":%s,' "$gpu_commit" "$gpu_software"
		printf '"passed":%d,"failed":%d,"skipped":%d,"not_run":%d,\n"steps":[\n' "$gpu_passed" "$gpu_failed" "$gpu_skipped" "$gpu_missed"
		sed '$!s/$/,/' "$gpu_scratch/steps"
		[ -z "$gpu_name" ] || {
			[ ! -s "$gpu_scratch/steps" ] || printf ,
			printf '{"step":%s,"result":"%s"}\n' "$(gpu_text "$gpu_name")" "$gpu_how"
		}
		printf '],\n"machine":'
		cat "$gpu_scratch/machine.json" 2>/dev/null || echo null
		printf '}\n'
	} | gpu_replace summary.json
}

# What a program of ours knows of the machine, for the summary.
gpu_machine() {
	[ -n "$gpu_name" ] || gpu_deadline=$(($(date +%s) + 20))
	gpu_run "$gpu_bin/flatout" devices --local --json >"$gpu_scratch/machine" 2>/dev/null
	grep -q '"libraries"' "$gpu_scratch/machine" && mv "$gpu_scratch/machine" "$gpu_scratch/machine.json"
	return 0
}

gpu_watch() {
	command -v nvidia-smi >/dev/null 2>&1 || return 0
	nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active --format=csv -l 1 \
		>>"$gpu_out/device.csv" 2>/dev/null 3>&- &
	gpu_watcher=$!
}

# ---- steps ----

# gpu_run COMMAND...: until the step's time is over. In the background, so that a signal to this script is seen at
# once.
gpu_run() {
	gpu_left=$((gpu_deadline - $(date +%s)))
	[ "$gpu_left" -gt 0 ] || return 124
	timeout -k 5 "$gpu_left" "$@" 3>&- &
	gpu_child=$!
	gpu_status=0
	wait "$gpu_child" || gpu_status=$?
	gpu_child=
	return "$gpu_status"
}

# What the step that runs, or ran last, has said.
gpu_section() { tail -c "+$((gpu_from + 1))" "$gpu_log"; }
# gpu_figure NAME VALUE: of the step; nothing is null. gpu_verdict TEXT: what its figures decide.
gpu_figure() { gpu_figures="$gpu_figures${gpu_figures:+,}\"$1\":${2:-null}"; }
gpu_verdict() {
	gpu_decided=$1
	[ "$gpu_software" = false ] || gpu_decided="$1 (on a software device: of no hardware)"
}
# gpu_field NAME: the last number of that name in the JSON on standard input.
gpu_field() { sed -n "s/.*\"$1\": *\\([-+.0-9eE]*\\)[^-+.0-9eE].*/\\1/p" | tail -n 1; }

# Clock and power while the step ran, of the lines that device.csv got; those that cannot be read do not count.
gpu_clock() {
	[ -f "$gpu_out/device.csv" ] || return 0
	tail -n "+$((gpu_rows + 1))" "$gpu_out/device.csv" | awk -F, '$2 ~ /^ *[0-9]/ && $3 ~ /^ *[0-9]/ { n++; mhz += $2; watts += $3 }
		END { if (n) printf ",\"mean_sm_mhz\":%.0f,\"mean_watts\":%.0f", mhz / n, watts / n }'
}

# gpu_check NAME SECONDS DECIDES COMMAND...: COMMAND is gpu_run with a program, or a function that starts its programs
# by gpu_run. One line on the console, one object in summary.json. Returns COMMAND's status.
gpu_check() {
	gpu_name=$1 gpu_limit=$2 gpu_decides=$3
	shift 3
	gpu_figures='' gpu_decided='' gpu_status_of=0
	gpu_step_began=$(date +%s.%N)
	gpu_deadline=$((${gpu_step_began%.*} + gpu_limit))
	[ -z "$gpu_end_at" ] || [ "$gpu_deadline" -lt "$gpu_end_at" ] || gpu_deadline=$gpu_end_at
	gpu_rows=0
	[ ! -f "$gpu_out/device.csv" ] || gpu_rows=$(wc -l <"$gpu_out/device.csv")
	gpu_summary
	printf '\n==== %s, %s: %s\n' "$gpu_name" "$(date -u +%FT%TZ)" "$*" >>"$gpu_log"
	gpu_from=$(wc -c <"$gpu_log")
	if [ -n "$gpu_note" ]; then
		echo "not run: $gpu_note" >>"$gpu_log"
		gpu_word="not run" gpu_missed=$((gpu_missed + 1)) gpu_status_of=1
	elif [ "$gpu_deadline" -le "${gpu_step_began%.*}" ]; then
		echo "not run: no time left" >>"$gpu_log"
		gpu_word="not run" gpu_missed=$((gpu_missed + 1)) gpu_status_of=1
	else
		"$@" >>"$gpu_log" 2>&1 || gpu_status_of=$?
		gpu_judge
	fi
	gpu_record
	return "$gpu_status_of"
}
gpu_judge() {
	case $gpu_status_of in
	0) gpu_word=passed gpu_passed=$((gpu_passed + 1)) ;;
	77) gpu_word=skipped gpu_skipped=$((gpu_skipped + 1)) ;;
	*)
		gpu_failed=$((gpu_failed + 1))
		gpu_word="failed (status $gpu_status_of)"
		# 124: ended by TERM; 137: by KILL after it, unless it came before the time was over, from elsewhere.
		[ "$gpu_status_of" != 124 ] && { [ "$gpu_status_of" != 137 ] || [ "$(date +%s)" -lt "$gpu_deadline" ]; } ||
			gpu_word="failed (over $((gpu_deadline - ${gpu_step_began%.*})) s)"
		;;
	esac
}
gpu_record() {
	gpu_took=$(awk -v a="$gpu_step_began" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
	gpu_last=$(gpu_section | tail -n 1 | cut -c 1-400)
	printf '{"step":%s,"decides":%s,"result":"%s","seconds":%s,"limit_s":%d,"verdict":%s,"figures":{%s}%s,"last":%s}\n' \
		"$(gpu_text "$gpu_name")" "$(gpu_text "$gpu_decides")" "$gpu_word" "$gpu_took" "$gpu_limit" "$(gpu_text "$gpu_decided")" "$gpu_figures" "$(gpu_clock)" \
		"$(gpu_text "$gpu_last")" >>"$gpu_scratch/steps"
	gpu_shown=$gpu_name
	gpu_name=
	gpu_keep_cache
	gpu_summary
	[ -n "$gpu_decided" ] || gpu_decided=$gpu_last
	printf '%-24s %-18s %6s s  %s\n' "$gpu_shown" "$gpu_word" "$gpu_took" "$gpu_decided" >&3
	case $gpu_word in
	failed*) gpu_section | tail -n 8 | sed 's/^/    /' >&3 ;;
	esac
}

# gpu_steps TABLE: each line is name|seconds|what it decides; the step is the function step_NAME. All together end
# after 570 s, or what GPU_SECONDS says: a machine is lent for ten minutes. Limits are those of a device; a software
# one on a busy machine gets ten times as much. Ends the script.
gpu_steps() {
	gpu_slow=1
	[ "$gpu_software" = false ] || gpu_slow=10
	gpu_end_at=$((gpu_began_at + ${GPU_SECONDS:-$((570 * gpu_slow))}))
	printf '%s\n' "$1" >"$gpu_scratch/table"
	while IFS='|' read -r gpu_row_name gpu_row_limit gpu_row_decides <&4; do
		gpu_check "$gpu_row_name" $((gpu_row_limit * gpu_slow)) "$gpu_row_decides" "step_$gpu_row_name"
	done 4<"$gpu_scratch/table"
	echo "$gpu_passed passed, $gpu_failed failed, $gpu_skipped could not run, $gpu_missed not reached; results in $gpu_out"
	[ "$gpu_failed" = 0 ] && [ "$gpu_missed" = 0 ] || exit 1
	[ "$gpu_skipped" = 0 ] || exit 4
	exit 0
}

# ---- training runs ----

gpu_losses() { sed -n 's/^{"event":"step","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"; }

# gpu_planned RUN: the plan of that run against what the driver counted, which is the plan and, on a device, what
# libraries load and build at their first use: the machine code of the kernels of cuBLASLt and cuDNN, and graphs, some
# hundred MiB whatever the model's size. So 512 MiB are allowed for above the plan, and nothing below: a plan that is
# too large refuses runs that would fit.
gpu_planned() {
	sed -n 's/.*"event":"end".*"planned_bytes":\([0-9]*\).*"measured_bytes":\([0-9]*\).*/\1 \2/p' \
		"$gpu_scratch/$1/log.jsonl" 2>/dev/null | tail -n 1 |
		awk 'NF == 2 { printf "planned %.0f bytes, measured %.0f: %+.2f %% and %+.0f MiB\n", $1, $2, 100 * ($2 / $1 - 1), ($2 - $1) / 1048576
				exit !($2 >= 0.98 * $1 && $2 <= 1.02 * $1 + 512 * 1048576) }
			END { if (!NR) { print "the log does not say"; exit 1 } }'
}
# A model of a size that people train, on every optimisation's default: it learns, nothing is refused. Its checkpoint,
# some 14 GB, would show nothing more: test_cuda_step has checked one. On the software device a tiny one has only to
# end below where it began.
gpu_learns() {
	gpu_prose=$gpu_root/docs gpu_below=0.8
	set -- --model.name=llama-3.2-1b --model.vocab=4096 --data.vocab=4096 --data.seq=2048 --train.rows=4 \
		--train.micro-batches=1 --optim.warmup=5
	[ "$gpu_software" = false ] || {
		gpu_prose=$gpu_root/docs/commands gpu_below=1
		set -- --model.layers=1 --model.hidden=32 --model.heads=2 --model.kv-heads=1 --model.head-dim=16 --model.ffn=64 --model.vocab=300 \
			--data.seq=32 --train.rows=2 --optim.warmup=5
	}
	gpu_run "$gpu_bin/flatout" train "$@" --data.path="$gpu_prose" --train.steps=60 --train.device=cuda --run.dir="$gpu_scratch/1b" \
		--sample.tokens=0 --eval.every=60 --eval.batches=2 --checkpoint.last=no || return $?
	cp "$gpu_scratch/1b/log.jsonl" "$gpu_out/1b.jsonl"
	gpu_losses "$gpu_scratch/1b" | awk -v below="$gpu_below" '{ n++; if (n <= 5) a += $2 / 5; last[n % 5] = $2 }
		END { for (i in last) b += last[i] / 5; printf "%d steps, loss %.3f to %.3f\n", n, a, b; exit !(n == 60 && b < below * a) }'
}

# A signal: what runs is ended, and what there is stays.
gpu_interrupted() {
	gpu_how=interrupted
	[ -z "$gpu_child" ] || { kill "$gpu_child" && wait "$gpu_child"; } 2>/dev/null
	exit "$1"
}

# At the end, however it comes.
gpu_close() {
	gpu_code=$?
	trap '' HUP INT TERM
	[ -z "$gpu_watcher" ] || kill "$gpu_watcher" 2>/dev/null
	[ "$gpu_how" = interrupted ] || gpu_how="done"
	gpu_keep_cache
	[ -n "${GPU_LOG:-}" ] || gpu_trim "$gpu_log"
	gpu_summary
	rm -rf "$gpu_scratch"
	gpu_many=$(find "$gpu_out" -type f | wc -l)
	gpu_large=$(find "$gpu_out" -type f -size +16383k)
	[ "$gpu_many" -le "$gpu_files_most" ] ||
		echo "$gpu_out has $gpu_many files: more than $gpu_files_most may not come back from a machine that is lent" >&3
	[ -z "$gpu_large" ] || echo "16 MiB or more, may not come back from a machine that is lent: $gpu_large" >&3
	exit "$gpu_code"
}
# gpu_trim FILE: its beginning and its end, where it is too large to be brought back.
gpu_trim() {
	[ "$(wc -c <"$1")" -gt "$gpu_file_most" ] || return 0
	{
		head -c $((gpu_file_most / 3)) "$1"
		printf '\n\n==== left out here: the log was too large\n\n'
		tail -c $((gpu_file_most / 3)) "$1"
	} >"$gpu_scratch/trimmed"
	cat "$gpu_scratch/trimmed" >"$1"
}
