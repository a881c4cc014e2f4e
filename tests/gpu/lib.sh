# Sourced by tests/gpu/run, tests/gpu/bundle and bench/gpu/run: the device, NVIDIA's libraries, our programs. Plain sh.

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
}

# GPU_SOFTWARE=BUILD-FOLDER: the scripts themselves are tried, with the programs of that build on its software device
# (docs/cuda-testing.md); models are then tiny, and nothing is proved of any hardware.

# gpu_device: exits 77 where there is none.
gpu_device() {
	[ -z "${GPU_SOFTWARE:-}" ] || return 0
	if ! { nvidia-smi -L 2>/dev/null | grep -q '^GPU' || [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; }; then
		echo "skipped: no CUDA device"
		exit 77
	fi
}

# Folders of NVIDIA's libraries: what the caller named, the toolkit, and those inside PyTorch's wheels.
gpu_libraries() {
	if [ -n "${GPU_SOFTWARE:-}" ]; then
		FLATOUT_CUDA_LIBRARIES=$GPU_SOFTWARE/tests/cuda
		export FLATOUT_CUDA_LIBRARIES
		return 0
	fi
	gpu_python=$(command -v python3 2>/dev/null) || gpu_python=
	gpu_wheels=
	if [ -n "$gpu_python" ]; then
		gpu_wheels=$("$gpu_python" - <<-'END' 2>/dev/null
			import glob, os
			try:
			    import nvidia
			    folders = [f for p in nvidia.__path__ for f in glob.glob(os.path.join(p, "*", "lib"))]
			except ImportError:
			    folders = []
			print(":".join(sorted(folders)))
		END
		) || gpu_wheels=
	fi
	for gpu_folder in "${CUDNN_HOME:-/nonexistent}/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/lib"; do
		[ -d "$gpu_folder" ] && FLATOUT_CUDA_LIBRARIES=${FLATOUT_CUDA_LIBRARIES:+$FLATOUT_CUDA_LIBRARIES:}$gpu_folder
	done
	FLATOUT_CUDA_LIBRARIES=${FLATOUT_CUDA_LIBRARIES:-}${gpu_wheels:+${FLATOUT_CUDA_LIBRARIES:+:}$gpu_wheels}
	export FLATOUT_CUDA_LIBRARIES
	# cuDNN loads its parts, and those their compiler, by name.
	LD_LIBRARY_PATH=$FLATOUT_CUDA_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
}

# Our programs: a bundle that tests/gpu/bundle made elsewhere and that runs here, else a build on this machine. Sets gpu_bin.
gpu_programs() {
	if [ -n "${GPU_SOFTWARE:-}" ]; then
		gpu_bin=$1/bin
		mkdir -p "$gpu_bin"
		for gpu_program in "$GPU_SOFTWARE/flatout" "$GPU_SOFTWARE/bench_gpu" "$GPU_SOFTWARE/bench_train_vs_torch" "$GPU_SOFTWARE"/tests/test_cuda_*; do
			[ -x "$gpu_program" ] && ln -sf "$gpu_program" "$gpu_bin/"
		done
		echo "programs: $GPU_SOFTWARE, on a software device"
		return 0
	fi
	gpu_bin=$gpu_root/build/gpu/bin
	if [ -x "$gpu_bin/flatout" ]; then
		LD_LIBRARY_PATH=$gpu_root/build/gpu/lib:$LD_LIBRARY_PATH
		"$gpu_bin/flatout" --version >/dev/null 2>&1 && { echo "programs: the bundle in build/gpu"; return 0; }
		echo "the bundle in build/gpu does not run here: building"
	fi
	gpu_cudnn=$(printf '%s\n' "$FLATOUT_CUDA_LIBRARIES" | tr ':' '\n' | grep '/cudnn/lib$' | head -n 1)
	[ -n "${CUDNN_HOME:-}" ] || [ -z "$gpu_cudnn" ] || { CUDNN_HOME=$(dirname "$gpu_cudnn") && export CUDNN_HOME; }
	gpu_build=$gpu_root/build/gpu-here
	{ cmake -S "$gpu_root" -B "$gpu_build" -DCMAKE_BUILD_TYPE=Release -DFLATOUT_CUDA=ON -DFLATOUT_TESTS=ON -DFLATOUT_TEST_GROUPS=cuda &&
		cmake --build "$gpu_build" -j "$(nproc)" && cmake --build "$gpu_build" -j "$(nproc)" --target bench_gpu bench_train_vs_torch
	} >"$1/build.log" 2>&1 || {
		tail -n 20 "$1/build.log"
		echo "the build failed (build.log). It needs Flatout's libraries beside the toolkit; where they cannot be installed, run"
		echo "tests/gpu/bundle on a machine that has them and bring build/gpu along."
		exit 3
	}
	gpu_bin=$1/bin
	mkdir -p "$gpu_bin"
	cp "$gpu_build/flatout" "$gpu_build"/bench_gpu "$gpu_build"/bench_train_vs_torch "$gpu_build"/tests/test_cuda_* "$gpu_bin"
	echo "programs: built here"
}

gpu_state() {
	nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null
}
