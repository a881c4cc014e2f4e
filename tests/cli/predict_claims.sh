#!/bin/sh
# flatout predict --device: what must not be said with confidence. A profile that claims more than the device can do, a row of one's own
# catalogue that does not say what it is, rows that end at documents.
. "$(dirname "$0")/lib.sh"
small="--model.name=llama-3.2-1b --data.seq=2048 --train.rows=1 --train.micro-batches=2"

# profile KEY=VALUE: one product of a profile
profile() {
	printf '{"device":"NVIDIA H200","seq":2048,"distinct_operations":1}\n{"operation":"matmul","key":"1","category":"matmul",%s,%s}\n' \
		'"count":1,"operands":"1x1 bf16","us_median":100,"us_best":100' "$1" >profile
}
profile '"tflop_s":700'
run 0 predict --device h200 $small --profile profile
profile '"tflop_s":5000'
refused 2 "bf16 matmuls reach 5000 TFLOP/s, and H200-SXM-141GB has 1236 at most" predict --device h200 $small --profile profile

# A row of one's own without a kind is not called "no GPU"; with it the step is predicted.
printf 'name,bf16_dense_tflops,memory_gb,memory_tb_s,source,date\nmine,400,96,3.2,own data sheet,2026-11-21\n' >devices.csv
FLATOUT_DEVICES=$PWD/devices.csv
export FLATOUT_DEVICES
refused 3 "does not say what kind of device it is" predict --device mine $small
printf 'name,kind,bf16_dense_tflops,memory_gb,memory_tb_s,source,date\nmine,gpu,400,96,3.2,own data sheet,2026-11-21\n' >devices.csv
run 0 predict --device mine $small
says "^Device: *mine: 400 TFLOP/s dense bf16"

# Rules that count whole rows promise too much where attention ends at documents: the one that counts these stands beside them.
for more in "" --budget; do
	run 0 predict --device h200 $small $more
	! grep -q mfu_document out || wrong "mfu_document of unbroken rows: $(grep mfu_document out)"
	run 0 predict --device h200 $small $more --documents=100
	says mfu_document
done
# Fewer than a thousand tokens a second have their unit too.
run 0 predict --device h200 --model.name=llama-3.2-1b --data.seq=2 --train.rows=1 --train.micro-batches=1
says "^Step: .* [0-9]* tok/s ([0-9]* tok/s to [0-9]* tok/s)"
finish
