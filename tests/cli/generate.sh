#!/bin/sh
# flatout generate: text from a run, a checkpoint, a copied folder; greedy, seeded, piped; its limits and refusals.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
run 0 train $tiny --run.dir=run --data.vocab=290 --sample.tokens=8 --sample.prompt=the
says "^Sample: "

G="generate run --threads 1 --tokens 12"
run 0 $G --prompt 'the quick' --json
cp out a.json
valid a.json
keys a.json schema model step precision isa threads temperature top_k top_p seed stop prompt_tokens tokens ids text \
	prompt_seconds prompt_tokens_per_second tokens_per_second bytes_per_token bytes_per_second read_bytes_per_second \
	bandwidth_share
says '"tokens": 12' '"step": 6' '"precision": "bf16"' '"read_bytes_per_second": null'
ids() { tr -d ' \n' <"$1" | sed 's/.*"ids":\[\([^]]*\)\].*/\1/'; }
# The same seed, the same text; another seed, another; from a file and through a pipe too.
run 0 $G --prompt 'the quick' --json
[ "$(ids out)" = "$(ids a.json)" ] || wrong "the same seed gave another text"
run 0 $G --prompt 'the quick' --json --seed 2
[ "$(ids out)" != "$(ids a.json)" ] || wrong "another seed gave the same text"
printf 'the quick' >prompt.txt
run 0 $G --prompt-file prompt.txt --json
[ "$(ids out)" = "$(ids a.json)" ] || wrong "a prompt from a file gave another text"
code=0 want=0
"$bin" $G --json <prompt.txt >out 2>err || code=$?
judge "generate from standard input"
[ "$(ids out)" = "$(ids a.json)" ] || wrong "a prompt through a pipe gave another text"
# Greedy: the same for every seed; one candidate is greedy too.
run 0 $G --prompt 'the quick' --json --temperature 0 --precision fp32
cp out greedy.json
run 0 $G --prompt 'the quick' --json --top-k 1 --seed 9 --precision fp32
[ "$(ids out)" = "$(ids greedy.json)" ] || wrong "top-k 1 is not greedy"
run 0 $G --prompt 'the quick' --json --top-p 0.000001 --top-k 0 --seed 9 --precision fp32
[ "$(ids out)" = "$(ids greedy.json)" ] || wrong "a tiny top-p is not greedy"
# The checkpoint itself, and a copy of it without what Hugging Face does not know.
run 0 generate "$(checkpoint run 6)" --threads 1 --tokens 12 --prompt 'the quick' --json
[ "$(ids out)" = "$(ids a.json)" ] || wrong "the checkpoint gave another text than its run"
mkdir hf
cp "$(checkpoint run 6)"/config.json "$(checkpoint run 6)"/model.safetensors "$(checkpoint run 6)"/tokenizer.json hf
run 0 generate hf --threads 1 --tokens 12 --prompt 'the quick' --json
[ "$(ids out)" = "$(ids a.json)" ] || wrong "a plain folder gave another text"
says '"step": null'
# For people: prompt and continuation on standard output, speed on standard error; nothing that upsets a terminal.
run 0 $G --prompt 'the quick'
grep -q '^the quick' out || wrong "the prompt does not begin the text"
grep -q '^Prompt: .* tokens/s' err || wrong "no speed of the prompt"
grep -q '^Text:  *12 tokens' err || wrong "no speed of the text"
if LC_ALL=C tr -d '\n\t\040-\176\200-\377' <out | grep -q .; then
	wrong "control characters in the text"
fi
run 0 $G --prompt "$(printf 'a\033[31mb\001')" --temperature 0
grep -q '^a\\x1b\[31mb\\x01' out || wrong "control characters of the prompt are not made visible"
# An empty prompt is the start of a document.
run 0 $G --prompt ''
# The end of the model's positions.
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 10/' hf/config.json >c && mv c hf/config.json
run 0 generate hf --tokens 500 --prompt 'the' --no-stop-at-eos
grep -q "10 positions are used up" err || wrong "the end of the context is not told"
run 0 generate hf --tokens 500 --prompt 'the' --no-stop-at-eos --json
says '"stop": "context"'
refused 2 "the model has 10 positions" generate hf --prompt 'the quick brown fox jumps over the lazy dog again and again'
# Refusals.
refused 2 "which model" generate
refused 2 "is not there" generate nowhere
refused 2 "without config.json or checkpoints" generate text
refused 2 "a file, not the folder" generate text/doc00.txt
refused 2 "both say what to continue" $G --prompt a --prompt-file prompt.txt
refused 3 "no-such-file" $G --prompt-file no-such-file
refused 2 "'--temperature' must be" $G --prompt a --temperature -1
refused 2 "'--top-p' must be" $G --prompt a --top-p 0
refused 2 "'--tokens' must be" $G --prompt a --tokens 0
mkdir -p fresh/checkpoints
refused 2 "has no checkpoint yet" generate fresh --prompt a
rm hf/tokenizer.json
refused 2 "has no tokenizer.json" generate hf --prompt a
flip "$(checkpoint run 6)/model.safetensors"
refused 2 "is damaged" $G --prompt a
finish
