#!/bin/sh
# Our checkpoints in Hugging Face transformers: equal logits. Needs Python with torch and transformers
# (tests/golden/requirements.txt), which nothing else here does: skipped where python3, or FLATOUT_PYTHON, has none.
set -u
: "${FLATOUT_SOURCE:=.}"
python=${FLATOUT_PYTHON:-python3}
[ -n "${FLATOUT_HAS_ENGINE:-}" ] && [ -x ./test_export ] || exit 77
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null || exit 77
dir=$(mktemp -d ./export.XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
FLATOUT_EXPORT_DIR=$dir ./test_export >"$dir.log" 2>&1 || { cat "$dir.log"; rm -f "$dir.log"; exit 1; }
rm -f "$dir.log"
"$python" "$FLATOUT_SOURCE/tests/golden/check_export.py" "$dir"
