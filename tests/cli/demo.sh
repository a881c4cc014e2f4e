#!/bin/sh
# flatout demo: the whole of it in seconds, on text of our own; what it refuses.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
# About 400 kB: enough for 2048 tokens.
for file in text/*.txt; do
	awk -v n="$file" '{ for (i = 0; i < 12; i++) print n, i, $0, length($0) * NR * i }' "$file" >more.txt
	cat more.txt >>"$file"
done

# An earlier demo's folder is replaced.
mkdir d
: >d/flatout-demo
: >d/stale
run 0 demo --text=text --dir=d --minutes=0.05 --json=demo.json
[ ! -e d/stale ] || wrong "an earlier demo's folder was not replaced"
# A warning is one line however long, as errors are, and depends on the load (a loss spike of a short run, another kernel set that
# is faster just now): it is no part of the screen.
grep -v '^warning: ' err >screen
[ -s demo.json ] || wrong "--json=FILE wrote nothing before the ladder took the place of the process"
valid demo.json
keys demo.json schema first_loss mean_loss val_loss bigram_loss tokens_per_second mfu mfu_causal mfu_6n peak_source profile unattributed planned_bytes \
	measured_bytes sample checkpoint
! grep -q '"bigram_loss": null' demo.json || wrong "no bigram loss"
! grep -q '"sample": null' demo.json || wrong "no sample"
awk '/"profile"/ { on = 1; next } on && /}/ { on = 0 } on { gsub(/,/, ""); s += $2 } END { d = s - 1; exit !(d < 1e-9 && d > -1e-9) }' demo.json ||
	wrong "the profile's parts do not sum to 1"
says "^Probe: " "^Loss: " "^Speed: " "^Saved: " "^Sample: "
[ "$(ls d/checkpoints | wc -l)" = 1 ] || wrong "not one checkpoint"
# The screen of the training begins with the losses; the ladder's turns follow.
awk '/^Loss:/ { on = 1 } /^turn/ { exit } on' screen >last
wide=$(awk 'length($0) > 80' screen)
[ -z "$wide" ] || wrong "wider than 80 columns: $wide"
[ "$(wc -l <last)" -le 24 ] || wrong "the last screen has $(wc -l <last) lines, at most 24 fit"

# The ladder at the end: four rungs on the same model and the same shards.
says "^Ladder: " "^ *baseline " "^ *packing " "^ *keep " "^ *fused " "Measured: .* 20 of 20 turns done" "^Pictures: .*d/ladder/ladder.html"
[ "$(sed -n 's/^ *"verdict": //p' d/ladder/ladder.json | wc -l)" = 4 ] || wrong "not four rungs"
[ -s d/ladder/ladder.html ] || wrong "no ladder.html"
[ ! -e d/ladder/data ] || wrong "the ladder has made shards of its own"
run 0 ladder d/ladder --show
says "^ *fused "
# Without it: only the training. An earlier demo's folder is replaced, ladder and all.
run 0 demo --text=text --dir=d --minutes=0.05 --no-ladder
[ ! -e d/ladder ] || wrong "an earlier demo's ladder is still there"
! grep -q "^turn" out || wrong "--no-ladder runs a ladder"

# A folder that is not a demo's stays.
mkdir mine
: >mine/precious
refused 2 "'mine' exists and is not an earlier demo's folder" demo --text=text --dir=mine --minutes=0.1
[ -e mine/precious ] || wrong "a folder that is not ours was removed"
refused 3 "nowhere" demo --text=nowhere --dir=e --minutes=0.1
: >empty.txt
refused "2|3" "" demo --text=empty.txt --dir=e --minutes=0.1
refused 2 "'--minutes' must be" demo --minutes=0
refused 2 "unexpected argument" demo text
finish
