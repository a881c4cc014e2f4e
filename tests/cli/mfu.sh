#!/bin/sh
# flatout mfu: the worked examples, forms of input, contradictions.
. "$(dirname "$0")/lib_expect.sh"

B="mfu --model llama-3.1-8b --seq 8192 --device b200 --devices 1"
H="mfu --params 7e9 --device h100 --devices 8"
expect 0 "MFU 54.34 %" $B --tokens-per-second 21111
narrow
expect 0 "57.914" $B --tokens-per-second 21111
expect 0 "48.29 %" $B --tokens-per-second 21111
expect 0 "42.25 %" $B --tokens-per-second 21111
expect 0 '"mfu": 0.5433' $B --tokens-per-second 21111 --json
expect 0 '"mfu_causal": 0.4829' $B --tokens-per-second 21111 --json
expect 0 '"mfu_6n": 0.4224' $B --tokens-per-second 21111 --json
expect 0 '"tflops_per_device": 1222.63' $B --tokens-per-second 21111 --json
expect 0 '"peak_tflops": 2250' $B --tokens-per-second 21111 --json
expect 0 '"peak_source": "NVIDIA DGX B200' $B --tokens-per-second 21111 --json
expect 0 '"tokens_per_second": 21111' $B --tokens-per-second 21111 --json

expect 0 "MFU 14.50 %" $H --tokens-per-second 27307
narrow
expect 0 '"mfu": null' $H --tokens-per-second 27307 --json
expect 0 '"mfu_6n": 0.1449' $H --tokens-per-second 27307 --json
expect 0 "need --model and --seq" $H --tokens-per-second 27307 --json
# The same run told in three ways.
expect 0 "MFU 14.50 %" $H --step-seconds 1.2 --tokens-per-step 32768
expect 0 "MFU 14.50 %" $H --tokens-per-second-per-device 3413.333
expect 0 "32768 tokens" $H --step-seconds 1200ms --tokens-per-step 32768

# PaLM (2022), appendix B: 46.2 % with attention, 45.7 % without.
P="mfu --model palm-540b --seq 2048 --device tpu-v4 --devices 6144 --tokens-per-second 238.3k"
expect 0 "46.23 %" $P
expect 0 "45.73 %" $P
# DeepSeek-V3 with and without its multi-token-prediction module: 291.854 of 281.158 GFLOP per token.
D="mfu --model deepseek-v3 --seq 4096 --device h800 --devices 2048 --tokens-per-second 3.16M"
expect 0 "MFU 43.86 % (rule mfu, bf16)" $D
expect 0 "module is not counted: --mtp" $D
expect 0 "MFU 45.53 % (rule mfu, bf16, MTP counted)" $D --mtp
narrow
expect 0 "weights only, MTP" $D --mtp
expect 0 "deepseek-v3 with 1 multi-token-prediction module" $D --mtp
expect 0 '"mtp_counted": 1' $D --mtp --json
expect 0 '"mtp_counted": 0' $D --json
expect 2 "has no multi-token-prediction modules" $B --tokens-per-second 1 --mtp
expect 2 "'--mtp' goes with '--model'" $H --tokens-per-second 1 --mtp
# fp8 under both denominators.
expect 0 "27.17 %" $B --tokens-per-second 21111 --dtype fp8
expect 0 "  bf16        2250  54.34 %" $B --tokens-per-second 21111 --dtype fp8
expect 0 "  fp8         4500  27.17 %" $B --tokens-per-second 21111 --dtype fp8
expect 0 "1222.6 TFLOP/s per device by rule mfu" $B --tokens-per-second 21111 --dtype fp8
narrow
# All matmuls of the layers: 2 x 3 x 6,979,321,856 of 57.914 GFLOP.
expect 0 "--share fp8=0.723" $B --tokens-per-second 21111 --dtype fp8
expect 0 "--share fp8=S" $H --tokens-per-second 27307 --dtype fp8
# Where both precisions have one peak there is nothing to set beside it.
expect 0 "MFU 30.01 % (rule mfu, fp16)" mfu --model llama-3.1-8b --seq 8192 --device h100 --devices 16 --tokens-per-second 82000 --dtype fp16
grep -q "over each peak that fits" "$tmp/out" && { echo "FAILED: the bf16 peak stands beside an equal one"; failed=1; }
# Shares weight the peaks: 1 / (0.7 / 4500 + 0.3 / 2250) = 3461.54; 0.5 fp4, 0.2 fp8, 0.3 bf16: 4285.71.
expect 0 "MFU 35.32 % (rule mfu, 70 % fp8, 30 % bf16)" $B --tokens-per-second 21111 --share fp8=0.7
narrow
expect 0 "  weighted  3461.54  35.32 %" $B --tokens-per-second 21111 --share fp8=70%,bf16=30%
expect 0 "  bf16         2250  54.34 %" $B --tokens-per-second 21111 --share fp8=.7
expect 0 '"peak_kind": "weighted"' $B --tokens-per-second 21111 --share fp8=0.7 --json
expect 0 '"peak_tflops": 3461.53' $B --tokens-per-second 21111 --share fp8=0.7 --json
expect 0 '"dtype": "mixed"' $B --tokens-per-second 21111 --share fp8=0.7 --json
# Over the bf16 peak such a run may pass 100 %, over the weighted one it may not.
expect 0 "  bf16         2250  157.30 %" $B --tokens-per-second 61111 --share fp4=.5,fp8=.2
expect 0 "  weighted  4285.71   82.58 %" $B --tokens-per-second 61111 --share fp4=.5,fp8=.2
expect 2 "1 x B200-SXM-HGX in 70 % fp8, 30 % bf16 does at most" $B --tokens-per-second 90k --share fp8=0.7
expect 2 "or --share" $B --tokens-per-second 90k --share fp8=0.7
expect 2 "no published dense peak for fp4" $H --tokens-per-second 1 --share fp4=0.5
expect 2 "no published dense peak for bf16" mfu --params 7e9 --device v100 --devices 8 --tokens-per-second 1 --share fp16=0.9
expect 0 "125 TFLOP/s" mfu --params 7e9 --device v100 --devices 8 --tokens-per-second 1 --share fp16=1
expect 2 "'--share' and '--dtype' both say" $H --tokens-per-second 1 --share fp8=0.5 --dtype fp8
expect 2 "shares sum to 1.2, expected at most 1" $H --tokens-per-second 1 --share fp8=.6,bf16=.6
expect 2 "expected TYPE=SHARE" $H --tokens-per-second 1 --share fp8
# A model that is not counted: the way on.
printf '{"model_type": "mpt", "d_model": 4096}\n' >"$tmp/mpt.json"
expect 2 "hint: of a model that is not counted here, '--params N' in place of" mfu --model "$tmp/mpt.json" --seq 2048 --device h100 --devices 8 --tokens-per-second 1k

# More than the devices can do is an error that says which input to doubt.
expect 2 "an MFU of 137.26 % (rule mfu_causal) cannot be: 1 x B200-SXM-HGX in bf16 does at most 43713 tokens/s of this model, not 60000" $B --tokens-per-second 60k
expect 2 "hint: doubt --tokens-per-second (at most 43713), --devices (at least 2), --model, or --dtype (fp8 or fp4 has such a peak)" $B --tokens-per-second 60k
expect 2 '"kind":"argument"' $B --tokens-per-second 60k --json
expect 2 "hint: is 90000 the throughput of all 8 devices? then it is --tokens-per-second" $H --tokens-per-second-per-device 90k
expect 2 "hint: doubt --step-seconds (at least 0.174 s) or --tokens-per-step (at most 188" $H --step-seconds 1ms --tokens-per-step 32768
expect 2 "cannot be" mfu --params 8B --device h100 --devices 1 --tokens-per-second 1e6
# The full rule may pass 100 % where causal kernels do half of the attention: then the causal one stands first.
L="mfu --model llama-3.1-8b --seq 128k --device h100 --devices 8 --tokens-per-second 50k"
expect 0 "MFU 93.60 % (rule mfu_causal" $L
narrow
expect 0 "rule mfu counts attention over all pairs" $L
expect 0 '"tflops_rule": "mfu_causal"' $L --json

# Numbers as people write them; what could mean two things is said.
expect 0 "MFU 16.57 %" mfu --params 8B --device h100 --devices 8 --tokens-per-second 27307
expect 0 "note: --seq: 8k is taken as 8192 tokens" mfu --model meta-llama/Llama-3.1-8B --seq 8k --device b200 --devices 1 --tokens-per-second 21111
expect 0 "MFU 54.34 %" mfu --model https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct --seq 8K --device b200 --devices 1 --tokens-per-second 21111
expect 0 "note: --tokens-per-step: 32k is taken as 32768 tokens" $H --step-seconds 1.2 --tokens-per-step 32k
expect 0 "MFU 14.50 %" $H --step-seconds 1.2 --tokens-per-step 32k
expect 2 "and meta-llama/Llama-3.1-8B on Hugging Face" mfu --model meta-llama/Llama-3.1-8Bx --seq 8k --device b200 --devices 1 --tokens-per-second 1

expect 2 "'H100-SXM5-80GB'" mfu --params 7e9 --device h10 --devices 8 --tokens-per-second 1
expect 2 "no published dense peak for bf16, only for: fp32, fp16" mfu --params 7e9 --device v100 --devices 8 --tokens-per-second 1
expect 0 "125 TFLOP/s" mfu --params 7e9 --device v100 --devices 8 --tokens-per-second 1 --dtype fp16
expect 2 "both say what was trained" $B --params 8e9 --tokens-per-second 1
expect 2 "neither '--model' nor '--params'" mfu --device h100 --devices 8 --tokens-per-second 1
expect 2 "'--seq' is missing" mfu --model gpt2 --device h100 --devices 8 --tokens-per-second 1
expect 2 "knows no attention" $H --seq 2048 --tokens-per-second 1
expect 2 "'--device' is missing" mfu --params 7e9 --devices 8 --tokens-per-second 1
expect 2 "'--devices' is missing" mfu --params 7e9 --device h100 --tokens-per-second 1
expect 2 "no throughput" $H
expect 2 "more than one throughput" $H --tokens-per-second 1 --step-seconds 1 --tokens-per-step 1
expect 2 "more than one throughput" $H --tokens-per-second 1 --tokens-per-second-per-device 1
expect 2 "needs '--tokens-per-step'" $H --step-seconds 1
expect 2 "needs '--step-seconds'" $H --tokens-per-step 5
expect 2 "'--devices' must be" mfu --params 7e9 --device h100 --devices -1 --tokens-per-second 1
expect 2 "'--tokens-per-second' must be" $H --tokens-per-second 1e999
expect 2 "'--params' must be" mfu --params inf --device h100 --devices 8 --tokens-per-second 1
expect 2 "go with a LOG" $H --tokens-per-second 1 --html=x.html
exit $failed
