#!/bin/sh
# flatout mfu LOG: lines as the frameworks' current releases print them, behind what launchers put in front of them.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "mfu_releases: no python3"; exit 77; }
"$python" "$source/tests/cli/mfu_releases.py" "$bin" || wrong "see above"
finish
