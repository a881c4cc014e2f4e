#!/bin/sh
# flatout flops: figures, forms of output, refusals.
. "$(dirname "$0")/lib_expect.sh"

F="flops --model llama-3.1-8b --seq 8192"
expect 0 "57.914" $F
narrow
expect 0 "8,030,261,248" $F
expect 0 "7,504,924,672" $F
expect 0 "51.472" $F
expect 0 "45.030" $F
expect 0 '"schema": 1' $F --json
expect 0 '"params": 8030261248' $F --json
expect 0 '"params_embedding": 525336576' $F --json
expect 0 '"params_matmul": 7504924672' $F --json
expect 0 '"params_active": 8030261248' $F --json
expect 0 '"mfu": 57914449920' $F --json
expect 0 '"mfu_causal": 51471998976' $F --json
expect 0 '"mfu_6n": 45029548032' $F --json
expect 0 '"name": "scores"' $F --json

# GPT-3's budget: 3.14e23 by the paper; the attention products come on top. Device-days: 3.142e23 / 989e12 / 86400.
expect 0 "3.142e+23 by mfu_6n" flops --model gpt3-175b --seq 2048 --tokens 300e9
narrow
expect 0 "H100-SXM5-80GB" flops --model gpt3-175b --seq 2048 --tokens 300e9
expect 0 '"total_flop"' flops --model llama-3.1-8b --seq 8192 --tokens 15T --json
expect 0 "bf16 2250 TFLOP/s, dense" $F --tokens 1e12 --device b200
expect 0 "4500 TFLOP/s, dense" $F --tokens 1e12 --device b200 --dtype fp8

for m in deepseek-v3 mixtral-8x7b gpt2 palm-540b llama-3.2-1b; do
	expect 0 "per token, rule mfu" flops --model $m --seq 16384 --tokens 1T --device b200
	narrow
done
expect 0 "37,552,282,624" flops --model deepseek-v3 --seq 4096
# Its multi-token-prediction module: not counted, and said; with --mtp a layer, a projection and the head once more.
expect 0 "1 multi-token-prediction module: --mtp counts it" flops --model deepseek-v3 --seq 4096
expect 0 '"mtp_counted": 0' flops --model deepseek-v3 --seq 4096 --json
expect 0 "deepseek-v3 with 1 multi-token-prediction module" flops --model deepseek-v3 --seq 4096 --mtp
narrow
expect 0 "682,636,472,320" flops --model deepseek-v3 --seq 4096 --mtp
expect 0 "with the head 2 times" flops --model deepseek-v3 --seq 4096 --mtp
expect 0 "mtp projection" flops --model deepseek-v3 --seq 4096 --mtp --json
expect 2 "has no multi-token-prediction modules to count" flops --model gpt2 --seq 1024 --mtp
grep -q "Not counted" "$tmp/out" && { echo "FAILED: a model without modules speaks of them"; failed=1; }
expect 0 "note: the model states at most 1024 positions" flops --model gpt2 --seq 4096
expect 0 "deepseek-v3" flops --list
narrow
expect 0 '"name": "gpt3-175b"' flops --list --json

printf '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
"intermediate_size": 128, "vocab_size": 256}' >"$tmp/config.json"
# 2 x (4 x 64 x 64 + 3 x 64 x 128 + 2 x 64) + 64 + 2 x 256 x 64
expect 0 "115,008" flops --model "$tmp" --seq 16
expect 0 "115,008" flops --model "$tmp/config.json" --seq 16
printf '{"model_type": "llama", "num_hidden_layers": 2e9}' >"$tmp/config.json"
expect 2 "'num_hidden_layers' is a real number" flops --model "$tmp" --seq 16
head -c 3000 /dev/urandom >"$tmp/config.json"
expect 2 "not JSON" flops --model "$tmp" --seq 16

expect 2 "'--model' is missing" flops --seq 8192
expect 2 "'--seq' is missing" flops --model gpt2
expect 2 "'llama-3.1-8b'" flops --model llama-3.1-8 --seq 8192
expect 2 "unknown device 'h10'" $F --tokens 1e12 --device h10
expect 2 "no published dense peak for fp4" $F --tokens 1e12 --device h100 --dtype fp4
expect 2 "unknown precision" $F --dtype fp7
expect 2 "'--seq' must be" flops --model gpt2 --seq 0
expect 2 "'--tokens' must be" $F --tokens nan
expect 2 "unexpected argument" $F extra
expect 3 "/none/devices.csv" $F --tokens 1e12 --devices-file "$tmp/none/devices.csv"
exit $failed
