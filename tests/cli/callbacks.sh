#!/bin/sh
# python/flatout.py in transformers' Trainer and in Lightning, and 'flatout mfu' on what the Trainer prints and saves
# (tests/readers/trainer.txt); skipped where these are not installed.
. "$(dirname "$0")/lib.sh"
library=$(ls "$(dirname "$bin")"/libflatout.so.0 2>/dev/null) || { echo "callbacks: no libflatout.so.0 beside $bin"; exit 77; }
python=${FLATOUT_PYTHON:-$source/build/venv-callbacks/bin/python}
[ -x "$python" ] || python=$(command -v python3) || { echo "callbacks: no python3"; exit 77; }
"$python" -c 'import torch, transformers' 2>/dev/null || { echo "callbacks: no torch and transformers"; exit 77; }
FLATOUT_LIBRARY=$library PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= \
	"$python" "$source/tests/readers/trainer.py" "$bin" >said 2>err || wrong "$(tail -n 3 said) $(tail -n 3 err)"
cat said
finish
