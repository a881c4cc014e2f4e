#!/bin/sh
# flatout diagnose on the public traces in FLATOUT_TRACES: the figures that their owners published, and those of reference programs.
: "${FLATOUT_BIN:=flatout}" "${FLATOUT_SOURCE:=.}"
[ -n "${FLATOUT_TRACES:-}" ] && [ -f "$FLATOUT_TRACES/REF_exact.jsonl" ] || { echo "no FLATOUT_TRACES"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
exec python3 "$FLATOUT_SOURCE/tests/traces/check.py" "$FLATOUT_BIN" "$FLATOUT_TRACES"
