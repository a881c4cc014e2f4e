#!/bin/sh
# Paths of any length that the system takes are used and shown whole, in results, errors and pages.
. "$(dirname "$0")/lib.sh"
part=$(printf 'd%.0s' $(seq 150))
long=$part
for _ in 2 3 4 5 6 7 8; do long=$long/$part; done # 1,207 bytes: more than any buffer that once held one
mkdir -p "$long" || exit 1

# whole FILE: the path is there in one piece.
whole() { grep -qF "$long" "$1" || wrong "the path is not whole in $1: $(head -c 300 "$1")"; }

run 0 init "$long/run.yaml"
whole out
run 2 init "$long/run.yaml"
whole err
run 3 program --program.file="$long/none"
whole err
run 0 program $tiny --dump="$long/step.txt"
[ -s "$long/step.txt" ] || wrong "--dump wrote nothing"
run 2 config "$long/step.txt"
whole err
run 0 flops --list --json="$long/presets.json"
[ -s "$long/presets.json" ] || wrong "--json= wrote nothing"
run 3 report "$long/none"
whole err
mkdir "$long/torn"
echo '{' >"$long/torn/run.json"
run '0|2' report "$long/torn" --html=page.html
whole out
run 3 diagnose "$long/none.json"
whole err
run 3 compare "$long/a" "$long/b"
whole err
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text "$long/text"
	tiny="$tiny --data.path=$long/text"
	run 0 train $tiny --run.dir="$long/run"
	whole out
	grep -qF "$long/run/checkpoints/step-00000006" out || wrong "where the checkpoint lies is cut: $(grep saved out)"
	grep -F '"event":"checkpoint"' "$long/run/log.jsonl" >checkpoints
	whole checkpoints
	run 0 train $tiny --run.dir="$long/run" --train.steps=8 --json
	whole out
	run 0 report "$long/run"
	whole out
	run 0 compare "$long/run" "$long/run"
	whole out
	run 0 eval "$long/run"
	whole out
	run 0 eval "$long/run" --data "$long/text"
	whole out
	run 0 data train-tokenizer "$long/text" --vocab=300 --out="$long/t.json"
	whole out
	run 0 data prepare "$long/text" --tokenizer="$long/t.json" --out="$long/prepared"
	whole out
	run 0 data inspect "$long/prepared/train.shard"
	whole out
	run 0 export "$long/run" --trace="$long/trace.json"
	whole out
	run 0 export "$long/run" --csv="$long/operations.csv"
	whole out
	run 0 generate "$long/run" --prompt the --tokens 2 --json
	whole out
	# What upsets a terminal is made visible wherever a name is shown.
	bad=$(printf 'line\n\033[31mred')
	for command in "train $tiny --checkpoint.every=2 --log.every=1 --run.dir" "report" "generate --prompt=a --tokens=1" "eval" "export --trace=t.json --force"; do
		case $command in
		train*) run 0 $command="$bad" ;;
		*) run 0 $command "$bad" ;;
		esac
		! cat out err | LC_ALL=C grep -q "$(printf '\033')" || wrong "'${command%% *}' prints an escape of a folder's name: $(cat -v out | grep -m 1 '\^\[')"
	done
fi
finish
