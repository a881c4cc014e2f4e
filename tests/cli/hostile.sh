#!/bin/sh
# Files from outside that mean harm: one sentence and exit 2 or 3, never a signal, never silence.
. "$(dirname "$0")/lib.sh"
make_text text
engine=${FLATOUT_HAS_ENGINE:-}
# Each case is a process. All of them run under a sanitizer, which sees what goes wrong in silence; elsewhere a part has to do.
if [ "${FLATOUT_SANITIZED:-}" ]; then
	values="-1 0 99999 4294967296 9223372036854775808 nan 1e308 x" bytes="377 200 001"
else
	values="-1 99999 9223372036854775808 x" bytes="377"
fi

# hostile FILE ARGUMENT...: run, exit 2 or 3, one sentence that names the file.
hostile() {
	file=$1
	shift
	refused "2|3" "$file" "$@"
}
# survives ARGUMENT...: any answer but a crash.
survives() {
	run "0|1|2|3" "$@"
	[ "$code" = 0 ] || [ -s err ] || wrong "'flatout $*' ended with $code and says nothing"
}
# cuts FILE ARGUMENT...: FILE ends at many places; the command must survive all.
cuts() {
	file=$1
	shift
	cp "$file" good
	size=$(wc -c <good)
	for k in 0 1 2 3 5 7 11 13 15; do
		head -c $((size * k / 16)) good >"$file"
		survives "$@"
	done
	cp good "$file"
}

# ---- config.json ----
mkdir model
config='"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 300'
printf '{%s}' "$config" >model/config.json
run 0 config --model.name=model
cuts model/config.json config --model.name=model
bad_model() {
	printf '%s' "$1" >model/config.json
	hostile model config --model.name=model
}
bad_model ''
bad_model '[]'
bad_model '{}'
bad_model 'null'
bad_model '{"model_type": "llama"'
bad_model '{"model_type": 7}'
bad_model "{$config, \"num_hidden_layers\": 2}"
for pair in num_hidden_layers:0 num_hidden_layers:-1 num_hidden_layers:1e99 num_hidden_layers:9223372036854775807 hidden_size:31 hidden_size:0 \
	hidden_size:4611686018427387904 num_attention_heads:3 num_attention_heads:0 intermediate_size:-5 vocab_size:0 vocab_size:99999999999 'hidden_size:"32"' \
	hidden_size:null hidden_size:[] num_attention_heads:2.5; do
	key=${pair%%:*}
	printf '{%s}' "$config" | sed "s/\"$key\": [0-9]*/\"$key\": ${pair#*:}/" >model/config.json
	hostile model config --model.name=model
done
for extra in '"num_key_value_heads": 0' '"num_key_value_heads": 3' '"num_key_value_heads": -1' '"head_dim": 0' '"head_dim": 15' '"head_dim": 1e6' \
	'"rms_norm_eps": -1' '"rms_norm_eps": "x"' '"rope_theta": 0' '"rope_theta": -5' '"rope_theta": []' '"rope_scaling": {"rope_type": "yarn"}' \
	'"rope_scaling": {"rope_type": "llama3"}' '"rope_scaling": {"rope_type": "llama3", "factor": 0, "low_freq_factor": 1, "high_freq_factor": 1, "original_max_position_embeddings": 0}' \
	'"rope_scaling": 7' '"hidden_act": "tanh"' '"attention_bias": true' '"tie_word_embeddings": "yes"' '"max_position_embeddings": -1'; do
	printf '{%s, %s}' "$config" "$extra" >model/config.json
	survives config --model.name=model
	survives program --model.name=model --data.seq=32 --no-operations
done
head -c 200000 /dev/zero | tr '\0' '[' >model/config.json
hostile model config --model.name=model
head -c 5000 /dev/urandom >model/config.json
hostile model config --model.name=model
printf '{"model_type": "llama\033[31m\033]0;title\007"}' >model/config.json
hostile model config --model.name=model
printf '{%s}' "$config" | LC_ALL=C sed "s/llama/\xff\xfe/" >model/config.json
hostile model config --model.name=model

# ---- run.yaml: errors.sh has more ----
printf 'train: {steps: 6}\noptim: {warmup: 1}\nmodel: {layers: 1}\n' >run.yaml
cuts run.yaml config run.yaml
i=0
while [ $i -lt 12 ]; do
	cp good run.yaml
	printf "\\$(printf %03o $((i * 21 + 1)))" | dd of=run.yaml bs=1 seek=$((i * 4)) conv=notrunc 2>/dev/null
	survives config run.yaml
	i=$((i + 1))
done
awk 'BEGIN { print "a: &a [x,x,x,x,x,x,x,x,x]"; for (c = 98; c < 107; c++) printf "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1 }' >run.yaml
run 2 config run.yaml
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "key%d: 1\n", i }' >run.yaml
run 2 config run.yaml
[ "$(wc -l <err)" -lt 120 ] || wrong "20000 mistakes fill $(wc -l <err) lines"
printf 'sample: {prompt: "\\u001b[31m"}\ntrain: {steps: "\\e[1m"}\n' >run.yaml
hostile run.yaml config run.yaml

# ---- step programs ----
run 0 program $tiny --dump=good.txt
cp good.txt p.txt
cuts p.txt program --program.file=p.txt --no-operations
broken() {
	hostile p.txt program --program.file=p.txt --no-operations
}
: >p.txt
broken
echo hello >p.txt
broken
head -c 100000 /dev/urandom >p.txt
broken
printf 'flatout-program 3\nend\n' >p.txt
broken
# One number of each kind of line replaced by what it should never be.
for kind in model run rank buffer param block op arg slot; do
	for value in $values ''; do
		for field in 2 3 4 5 6 8 10 12 15 17 18; do
			awk -v kind=$kind -v field=$field -v value="$value" '!done && $1 == kind && NF >= field {
				if (index($field, "=")) { split($field, kv, "="); $field = kv[1] "=" value } else $field = value; done = 1 } { print }' good.txt >p.txt
			cmp -s good.txt p.txt || survives program --program.file=p.txt --no-operations
		done
	done
done
# Lines that are missing or twice.
lines=$(wc -l <good.txt)
i=2
while [ $i -le "$lines" ]; do
	sed "${i}d" good.txt >p.txt
	survives program --program.file=p.txt --no-operations
	sed "${i}p" good.txt >p.txt
	survives program --program.file=p.txt --no-operations
	i=$((i + 1 + lines / 60))
done
printf 'flatout-program 3\nname \033[31mred\n' >p.txt
broken
sed 's/^name .*/name \x1b[31mred/' good.txt >p.txt
run "0|2" program --program.file=p.txt --no-operations
if LC_ALL=C tr -d '\n\t\040-\176\200-\377' <out | grep -q .; then
	wrong "control characters of a program's name reach the terminal"
fi

# More parameters x layers than 32 bits count.
run 0 program $tiny --train.micro-batches=1 --model.layers=10000 --no-operations --dump=deep.txt
awk '$1 == "param" && !done { done = 1; for (i = 0; i < 429497; i++) print } { print }' deep.txt >p.txt
broken
rm p.txt deep.txt

[ "$engine" ] || finish

# What passes as a program must also run, or be refused: never read or write what is not its own.
for edit in 's/ 1e-05$/ 1e300/' 's/^\(op .* adamw .*\) 1$/\1 0/' '/ host_in .* 1 0 0$/d' '/ host_out /d' 's/^name .*/name \x1b[31mred/' \
	's/ compute / copy /' 's/ compute / tp /2' 's/norm_eps=[^ ]*/norm_eps=0/' 's/rope.theta=[^ ]*/rope.theta=1e-300/' 's/max_position=[0-9]*/max_position=1/'; do
	sed "$edit" good.txt >p.txt
	rm -rf hr
	survives train $tiny --run.dir=hr --program.file=p.txt
	if LC_ALL=C tr -d '\n\t\040-\176\200-\377' <out | grep -q .; then
		wrong "control characters of a program reach the terminal"
	fi
done
rm -rf hr

# ---- tokenizer.json ----
run 0 train $tiny --run.dir=base
use_tokenizer() { survives train $tiny --run.dir=r --data.tokenizer=t.json; rm -rf r; }
cp base/data/tokenizer.json t.json
size=$(wc -c <t.json)
for k in 0 1 3 6 9 12 15; do
	head -c $((size * k / 16)) base/data/tokenizer.json >t.json
	hostile t.json train $tiny --run.dir=r --data.tokenizer=t.json
done
for text in '[]' '{}' 'null' '{"model": {}}' '{"model": {"type": "BPE", "vocab": [], "merges": {}}}' '{"model": {"type": "Unigram"}}' '"x"'; do
	printf '%s' "$text" >t.json
	hostile t.json train $tiny --run.dir=r --data.tokenizer=t.json
done
for edit in 's/"id": 298/"id": 99999999/' 's/"id": 298/"id": -1/' 's/"id": 298/"id": 3/' 's/: 17,/: 18,/' 's/: 17,/: 1e9,/' 's/: 17,/: 2147483647,/' \
	's/"Regex": "[^"]*/"Regex": "(((((((((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+b/' 's/"Regex": "[^"]*/"Regex": "(/' 's/"Regex": "[^"]*/"Regex": "/' \
	's/"type": "BPE"/"type": "WordPiece"/' 's/"ignore_merges": false/"ignore_merges": 7/' 's/"normalizer": null/"normalizer": {"type": "NFC"}/' \
	's/"merges": \[/"merges": ["a", /' 's/"merges": \[/"merges": [7, /' 's/"merges": \[/"merges": ["zzzz yyyy", /' 's/<|end_of_text|>/<|\\u001b[31m|>/g'; do
	sed "$edit" base/data/tokenizer.json >t.json
	use_tokenizer
done
head -c 50000 /dev/urandom >t.json
hostile t.json train $tiny --run.dir=r --data.tokenizer=t.json
head -c 200000 /dev/zero | tr '\0' '{' >t.json
hostile t.json train $tiny --run.dir=r --data.tokenizer=t.json

# ---- shards ----
cp base/data/train.shard good
size=$(wc -c <good)
use_shard() {
	rm -rf r
	mkdir r
	cp -r base/data r/data
	cp bad r/data/train.shard
	hostile train.shard train $tiny --run.dir=r
}
for at in 0 7 8 12 16 23 24 31 32 39 40 48 56 63 64 100; do
	for byte in $bytes; do
		cp good bad
		printf "\\$byte" | dd of=bad bs=1 seek=$at conv=notrunc 2>/dev/null
		cmp -s good bad || use_shard
	done
done
for length in 0 1 8 63 64 65 $((size - 1)); do
	head -c "$length" good >bad
	use_shard
done
cat good good >bad
use_shard
head -c 5000 /dev/urandom >bad
use_shard

# ---- checkpoints: safetensors whose manifest was made to fit are beyond a shell; resume.sh damages each file ----
for text in '' '[]' '{}' '{"schema": 2}' '{"schema": 1, "files": []}' '{"schema": 1, "files": {"../../x": {}}}' '{"schema": 1e400}' "$(head -c 3000 /dev/zero | tr '\0' '[')"; do
	rm -rf r
	cp -r base r
	printf '%s' "$text" >r/checkpoints/step-00000006/manifest.json
	hostile step-00000006 train $tiny --run.dir=r --train.steps=9
done
# A safetensors file as text, a text as everything.
survives train $tiny --run.dir=st --data.path=base/checkpoints/step-00000006/model.safetensors
hostile model.safetensors config base/checkpoints/step-00000006/model.safetensors
hostile state.safetensors program --program.file=base/checkpoints/step-00000006/state.safetensors
# A pipe that nobody writes into does not hang the run.
if mkfifo pipe 2>/dev/null && command -v timeout >/dev/null; then
	want=2 code=0
	timeout 20 "$bin" train $tiny --run.dir=pr --data.path=pipe >out 2>err </dev/null || code=$?
	judge "train --data.path=PIPE"
	sentence
fi
for device in /dev/null /dev/zero; do
	hostile $device train $tiny --run.dir=dr --data.path=$device
done
finish
