#!/bin/sh
# flatout ladder: three rungs in five rounds, killed and gone on with, a rung that fails, files of rungs that are wrong.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text

cat >mine.yaml <<'END'
plain:
  pass: {merge-qkv: no, fuse-loss: 0}
merged:
  what: queries, keys and values from one matmul
  pass.merge-qkv: yes
loss:
  from: plain
  pass.fuse-loss: 16
END
base="$tiny --train.steps=20 --rungs=mine.yaml"

# What a rung leaves behind: every step once, however many turns it took.
whole() {
	for rung in plain merged loss; do
		[ "$(losses "$1/$rung" | sort -n -u | wc -l)" = 20 ] || wrong "rung '$rung' of '$1' has not 20 steps: $(losses "$1/$rung" | wc -l)"
	done
}

run 0 ladder $base --run.dir=one
cp out one.txt
says "^ *plain " "^ *merged " "^ *loss " "Measured: .* 15 of 15 turns done" "baseline" "about 94 %, five rounds" "^ *merged .*--pass.merge-qkv=yes" "predicted "
wide=$(LC_ALL=C.UTF-8 awk 'length($0) > 80' one.txt)
[ -z "$wide" ] || wrong "wider than 80 columns: $wide"
whole one
valid one/ladder.json
valid one/plan.json
valid one/text.json
grep -q '<svg' one/ladder.html && grep -q 'merged' one/ladder.html || wrong "ladder.html shows nothing"
keys one/ladder.json schema model cpu threads steps rounds seed rungs name what from change options verdict gain estimate low high level predicted mfu \
	mfu_causal mfu_document mfu_6n hfu median peak_flop_s padding quiet spans_share parts matmul planned_bytes measured_bytes losses check reference \
	deviation tolerance held_out training round_tokens_per_second text text_tokens text_seen text_passes text_reached load processors not_quiet
says "^Text: .*each rung saw"
[ "$(grep -c '"event":"eval","step":20' one/merged/log.jsonl)" = 1 ] || wrong "no held-out loss at the end"
# The first step of every turn is cold, one is metered: two of four count.
[ "$(grep -c '"timed_steps": 10,' one/ladder.json)" = 3 ] || wrong "not ten timed steps: $(grep '"timed_steps"' one/ladder.json | tr '\n' ' ')"
[ "$(grep -c '"metered_steps": 5,' one/ladder.json)" = 3 ] || wrong "not five metered steps: $(grep '"metered_steps"' one/ladder.json | tr '\n' ' ')"
# The order is drawn anew in each round, by the seed.
sed -n 's/^turn .*: round \([0-9]\), \([a-z]*\), .*/\1 \2/p' one.txt >order
[ "$(wc -l <order)" = 15 ] || wrong "not fifteen turns: $(cat order)"
[ "$(sed 's/ .*//' order | uniq -c | sed 's/ [0-9]*$//' | sort -u | tr -d ' ')" = 3 ] || wrong "rounds are not one after the other: $(cat order)"
[ "$(sed 's/.* //' order | paste -d' ' - - - | sort -u | wc -l)" -gt 1 ] || wrong "every round has the same order"
# A rung's losses are those of the run that its options make, and merging products changes roundings at most.
losses one/merged | sort -n >merged
run 0 train $tiny --train.steps=20 --eval.every=0 --run.dir=alone --pass.merge-qkv=yes --pass.fuse-loss=0 --checkpoint.every=0
losses alone | sort -n >alone.txt
same merged alone.txt

# Shown again, nothing is run; the same command has nothing to do.
run 0 ladder one --show
sed -n '/^Ladder: /,$p' one.txt >then
same out then
run 0 ladder one --show --brief
says "^ *plain " "^Pictures: "
[ "$(grep -c '^ *plain ' out)" = 1 ] || wrong "--brief prints more than the first table"
run 0 ladder one --show --json
valid out
# The turn of a ladder that was killed just now holds the lock a moment longer: that is waited for, a ladder that runs is not.
mkfifo held
flock one/lock sh -c 'echo >held; sleep 0.5' &
read -r _ <held
run 0 ladder $base --run.dir=one --json
valid out
wait
[ "$(grep -c '^turn' err)" = 0 ] || wrong "a finished ladder runs turns"
losses one/merged | sort -n >again
same merged again

# What contradicts --show is refused; a folder that cannot be written to is shown all the same, and told of.
refused 2 "'--train.steps' says nothing to --show" ladder one --show --steps=5
refused 2 "'--run.dir' says nothing to --show" ladder one --show --run.dir=zz
run 0 ladder --show --run.dir=one
rm one/ladder.json
mkdir one/ladder.json
run 0 ladder one --show
says "15 of 15 turns done" "^warning: .*ladder.json"
run 3 ladder $base --run.dir=one
says "15 of 15 turns done" "ladder.json"
rmdir one/ladder.json
mkdir -p locked/lock
# A training run's folder is no place for a ladder.
refused 2 "'alone' is the directory of a training run" ladder $base --run.dir=alone
refused 3 "locked/lock" ladder $base --run.dir=locked

# Killed at any moment and gone on with: the same losses.
for lines in 2 13; do
	rm -f kill.txt
	"$bin" ladder $base --run.dir=two >kill.txt 2>err </dev/null &
	pid=$!
	wait_for_lines kill.txt "$lines" $pid
	sleep 0.05
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
done
run 0 ladder $base --run.dir=two
whole two
for rung in plain merged loss; do
	losses one/$rung | sort -n -u >then
	losses two/$rung | sort -n -u >now
	same then now
done
# Ctrl-C (SIGTERM to the ladder alone) saves and says how to go on.
"$bin" ladder $base --run.dir=three >int.txt 2>err </dev/null &
pid=$!
wait_for_lines int.txt 4 $pid
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || wrong "an interrupted ladder ends with $code: $(tail -n 2 err)"
grep -q "stopped in round" err && grep -q "the same command goes on" err || wrong "no word of how to go on: $(tail -n 3 err)"
run 0 ladder $base --run.dir=three
losses three/loss | sort -n -u >now
losses one/loss | sort -n -u >then
same then now

# A reader that goes away (| head) stops no ladder: every turn is done, and the exit code says that the text was lost.
rm -rf two
code=$( { "$bin" ladder $base --run.dir=two 2>err </dev/null; echo $? >code; } | head -n 1 >/dev/null; cat code)
[ "$code" = 3 ] || wrong "a ladder whose output nobody reads ends with $code"
whole two
run 0 ladder two --show
says "Measured: .* 15 of 15 turns done"
# A run is no ladder.
refused 2 "'alone' is the directory of a training run, not of a ladder" ladder alone --show
says "flatout report alone"
# A ladder that has only begun says so.
mkdir part
cp -r two/plan.json two/text.json two/plain part/
run 0 ladder part --show
says "^Planned: .* 5 of 15 turns done" "not finished: 5 of 15 turns are done" "^ *merged .*not measured"

# Another configuration in the same folder is refused by name.
refused 2 "option optim.lr was" ladder $base --run.dir=one --optim.lr=1e-3
refused 2 "steps was 20, is 40 now" ladder $base --run.dir=one --train.steps=40
sed 's/fuse-loss: 16/fuse-loss: 8/' mine.yaml >other.yaml
refused 2 "rung 'loss', change 1: value was" ladder $tiny --train.steps=20 --rungs=other.yaml --run.dir=one

# A rung that cannot be trained fails; the others go on.
cat >bad.yaml <<'END'
plain:
  pass.fuse-loss: 0
huge:
  program.file: nowhere.txt
fine:
  from: plain
  pass.fuse-loss: 16
END
run 0 ladder $tiny --train.steps=20 --rungs=bad.yaml --run.dir=bad
says "rung 'huge' failed and is left out: .*nowhere.txt" "^ *huge .*FAILED" "^ *fine .*not resolved\|^ *fine .*gain\|^ *fine .*LOSS\|^ *fine .*not known"
[ "$(losses bad/fine | sort -n -u | wc -l)" = 20 ] || wrong "a rung suffers from another's failure"
grep -q '"verdict": "failed"' bad/ladder.json || wrong "the failure is not in ladder.json"
# Losses that leave their reference's: exit 1.
printf 'plain: {pass.fuse-loss: 0}\nfaster: {optim.lr: 0.1}\n' >left.yaml
run 1 ladder $tiny --train.steps=20 --rungs=left.yaml --run.dir=left
says "the losses of rung 'faster' left those of 'plain'" "LEFT"

# Nothing was measured: neither a gain nor a level is spoken of, and the end is no success.
printf 'plain: {program.file: nowhere.txt}\nmerged: {pass.merge-qkv: no}\n' >none.yaml
run 3 ladder $tiny --train.steps=20 --rungs=none.yaml --run.dir=none
says "^ *plain .*FAILED" "the baseline, failed" "not known before a rung"
! grep -q "interval of about" out || wrong "a level without an interval"
rm none.yaml

# What is held out depends on neither packing nor rows: the same weights (none is moved) have the same loss.
held_out() {
	run 0 train $tiny --train.steps=3 --optim.lr=0 --checkpoint.every=0 --run.dir="$@"
	sed -n 's/.*"event":"eval","step":3,"loss":\([^,]*\),.*/\1/p' "$1/log.jsonl" >"$1.loss"
	[ -s "$1.loss" ] || wrong "no held-out loss in '$1'"
}
held_out even --eval.packing=packed
held_out cut --data.packing=padded --train.rows=4 --eval.batches=1 --eval.packing=packed
held_out other --data.packing=padded
same even.loss cut.loss
differ even.loss other.loss

# Every rung of the built-in ladder sees the whole text sooner or later, however long its documents are, and no rung less than
# padding costs it; one that cuts documents off says so above the table, in the picture and in ladder.json.
printf 'untuned: {data.packing: split}\npacked: {data.packing: packed}\nheads: {from: untuned, data.packing: padded}\n' >seen.yaml
run 0 ladder $tiny --train.steps=20 --rungs=seen.yaml --run.dir=seen --brief
tr '\n' ' ' <out | tr -s ' ' | grep -q ' Text: .*heads saw [0-9.]* % of the text, [0-9.]* times over (its rows cut [0-9.]* % off)' ||
	wrong "the table does not say in its title what was cut off: $(grep -A 2 '^Text' out)"
grep -q "Training losses: .*heads saw" seen/ladder.html || wrong "the picture of the losses does not say what was trained on"
[ -z "$python" ] || "$python" - seen <<-'END' || wrong "the shares of the text are not those of the rows"
	import json, sys
	ladder = json.load(open(sys.argv[1] + "/ladder.json"))
	rung = {r["name"]: r for r in ladder["rungs"]}
	n = 20 * 4 * 32 / ladder["text_tokens"]  # steps, rows, tokens of a row
	assert rung["untuned"]["text_reached"] == rung["packed"]["text_reached"] == 1
	assert abs(rung["packed"]["text_passes"] - n) < 1e-12, (rung["packed"], n)
	# Documents of three rows and more: half a row of each is padding at worst.
	assert 0.8 * n < rung["untuned"]["text_passes"] <= n, (rung["untuned"]["text_passes"], n)
	# Tokens with loss: all but the last of a document.
	assert abs(rung["untuned"]["text_passes"] * (1 - 0.02) * ladder["text_tokens"] / 20 - rung["untuned"]["useful_tokens_per_step"]) < 10
	assert rung["heads"]["text_seen"] <= rung["heads"]["text_reached"] < 0.5
END
run 0 ladder $tiny --train.steps=20 --run.dir=built
[ "$(grep -c '"text_reached": 1,' built/ladder.json)" = "$(grep -c '"text_reached"' built/ladder.json)" ] ||
	wrong "a rung of the built-in ladder never sees some of the text: $(grep '"text' built/ladder.json | sort | uniq -c)"

# A model that no rung could train is refused once, before any begins.
refused 2 "cannot train model 'gpt2'" ladder --model.name=gpt2 --data.path=text --train.steps=20 --run.dir=none2
[ ! -e none2 ] || wrong "a ladder that was refused left a folder"

# Mistakes, all at once, each with its line.
printf 'a:\n  pass.fuse-los: 3\nb:\n  from: c\n  train.rows: none\n  run.dir: x\n' >wrong.yaml
run 2 ladder $tiny --train.steps=20 --rungs=wrong.yaml --run.dir=w
says "wrong.yaml:2: unknown key 'pass.fuse-los'; nearest is 'pass.fuse-loss'" "wrong.yaml:4: rung 'b' starts from 'c'" "wrong.yaml:5:" \
	"wrong.yaml:6: 'run.dir' is the same for all rungs"
refused 3 "none.yaml" ladder $tiny --train.steps=20 --rungs=none.yaml --run.dir=w
refused 2 "at least 20" ladder $tiny --train.steps=19 --run.dir=w
refused 2 "rounds' must be" ladder $tiny --rounds=4 --run.dir=w
refused 3 "plan.json" ladder w2 --show
mkdir w2
echo '{"schema": 9}' >w2/plan.json
refused 2 "not a plan of a ladder" ladder w2 --show
[ ! -e w ] || wrong "a ladder that was refused left a folder"
finish
