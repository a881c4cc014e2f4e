#!/bin/sh
# Texts of the program (errors, hints, help, what it prints) name no option that the command which they are about does not have.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -n "$python" ] || { echo "hints: no python3"; exit 77; }
"$bin" completion options >options || wrong "the program does not list its options"
"$python" "$source/tests/cli/hints.py" "$source" <options >said || wrong "$(cat said)"
# The check can fail: a hint of the past, and one that is right.
mkdir -p old/src/data old/src/cli
echo 'fo_hint(st, "raise --max-document, or leave such lines out");' >old/src/data/read.c
"$python" "$source/tests/cli/hints.py" old <options >said && wrong "--max-document passes as an option of train"
echo 'fo_hint(st, "flatout data prepare --max-document takes them; see train --steps, --data.path");' >old/src/data/read.c
"$python" "$source/tests/cli/hints.py" old <options >said || wrong "$(cat said)"
finish
