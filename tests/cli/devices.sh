#!/bin/sh
# flatout devices: the table, one device, own files.
. "$(dirname "$0")/lib_expect.sh"

expect 0 "B200-SXM-HGX" devices
narrow
expect 0 "Aliases:" devices h100
narrow
expect 0 "989    1979" devices h100
expect 0 "2026-08-22" devices h100
expect 0 '"schema": 1' devices --json
expect 0 '"bf16": 2250' devices b200 --json
expect 0 '"name": "MI300X"' devices mi300x --json
for d in v100 a100 h100-pcie h200 h800 h20 b300 gb200 gb300 mi250x mi325x mi355x tpu-v5p gaudi2 l40s rtx-4090 rtx-5090; do
	expect 0 "Source:" devices $d
	narrow
done
expect 2 "nearest names" devices b20
expect 2 "nearest names: 'GB200-NVL72', 'GB300-NVL72'" devices gb
expect 2 "unexpected argument" devices b200 h100

printf 'name,bf16_dense_tflops,memory_gb,memory_tb_s,source,date\nmy-chip,123,9,1,own datasheet,2026-11-21\n' >"$tmp/own.csv"
expect 0 "own datasheet" devices my-chip --devices-file "$tmp/own.csv"
expect 0 "own.csv:2" devices my-chip --devices-file "$tmp/own.csv"
FLATOUT_DEVICES=$tmp/own.csv
export FLATOUT_DEVICES
expect 0 "my-chip" devices
expect 0 "123 TFLOP/s" mfu --params 7e9 --device my-chip --devices 1 --tokens-per-second 1
# What no shell expands, because it stood in quotes.
home=${HOME-}
HOME=$tmp
# shellcheck disable=SC2088
FLATOUT_DEVICES="~/own.csv"
export HOME
expect 0 "123 TFLOP/s" mfu --params 7e9 --device my-chip --devices 1 --tokens-per-second 1
HOME=$home
FLATOUT_DEVICES=$tmp/own.csv
printf 'name,bf16_dense_tflops,source\nmy-chip,fast,me\n' >"$tmp/own.csv"
expect 2 "own.csv:2: bf16_dense_tflops is 'fast'" devices
unset FLATOUT_DEVICES
expect 3 "none.csv" devices --devices-file "$tmp/none.csv"
# Rows of $FLATOUT_DATA/devices.csv are added to the built-in ones; a folder without that file is said, not skipped.
mkdir "$tmp/data"
FLATOUT_DATA=$tmp/data
export FLATOUT_DATA
expect 3 "FLATOUT_DATA names" devices
printf 'name,bf16_dense_tflops,source\nmy-chip,123,me\n' >"$tmp/data/devices.csv"
expect 0 "my-chip" devices
expect 0 "B200-SXM-HGX" devices
unset FLATOUT_DATA

# This machine: with the engine an answer in any case, 0 with a device to train on, 1 without.
expect 2 "leave the name out" devices h100 --local
if [ -z "${FLATOUT_HAS_ENGINE:-}" ]; then
	expect 3 "this build has no engine" devices --local
	exit $failed
fi
"$FLATOUT_BIN" devices --local >"$tmp/out" 2>&1
code=$?
[ $code = 0 ] || [ $code = 1 ] || { echo "FAILED: devices --local ended with $code"; failed=1; }
narrow
if [ $code = 1 ]; then
	grep -q "^Devices: *none: ." "$tmp/out" || grep -q "^Kernels: *none" "$tmp/out" || { echo "FAILED: no reason"; failed=1; }
fi
expect $code '"schema": 1' devices --local --json
for key in built architectures driver why devices libraries; do
	expect $code "\"$key\":" devices --local --json
done
exit $failed
