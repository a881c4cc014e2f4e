#!/bin/sh
# Three published accounts of slow clusters (docs/seed-figures.md), predicted: each remedy in its published order.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "$name: no python3"; exit 77; }
"$python" "$source/tests/cli/predict_seeds.py" "$bin" "$source" || failed=1
finish
