#!/bin/sh
# A few random kills of random ranks, with resume: the short form of tests/cluster/kills, which tests/nightly runs for long.
[ -n "${FLATOUT_HAS_ENGINE:-}" ] || { echo "launch_kills: this build has no engine"; exit 77; }
[ -e "${FLATOUT_MPI_PLUGIN:-$(dirname "$FLATOUT_BIN")/libflatout-mpi.so}" ] || { echo "launch_kills: no MPI plugin"; exit 77; }
FO_STEPS=301 exec sh "$(dirname "$0")/../cluster/kills" 3 1
