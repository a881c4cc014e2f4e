#!/bin/sh
# Stopping and going on: the bits of an uninterrupted run, whatever stopped it; refusals that say what is wrong.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
steps=40
long="$tiny --train.steps=$steps --checkpoint.every=5 --checkpoint.keep=3 --eval.every=10"
last=$(checkpoint . $steps)

# equal RUN [WHOLE]: its last checkpoint is that of the uninterrupted run, bit by bit.
equal() {
	same "${2:-whole}/$last/model.safetensors" "$1/$last/model.safetensors"
	same "${2:-whole}/$last/state.safetensors" "$1/$last/state.safetensors"
	# The last logged value of each step.
	losses "$1" | sort -n -s -k1,1 | awk '{ v[$1] = $0 } END { for (i = 1; i in v; i++) print v[i] }' >now
	losses "${2:-whole}" >then
	same then now
}
# start ARGUMENT...: in the background; $pid.
start() {
	"$bin" train "$@" >out 2>err </dev/null &
	pid=$!
}
run 0 train $long --run.dir=whole

# Ctrl-C: the step is finished, a checkpoint written, exit 130, and the same command goes on.
start $long --run.dir=cut --train.steps=4000
wait_for_lines cut/log.jsonl 3 $pid
kill -INT $pid
code=0
wait $pid || code=$?
want=130
judge "train, interrupted"
says "^flatout: stopped after step [0-9]* of 4000; the state is saved in 'cut/checkpoints/step-" "^hint: the same command goes on"
[ "$(ls cut/checkpoints | sort | tail -n 1)" = "$(sed -n "s/.*saved in 'cut\/checkpoints\/\(step-[0-9]*\)'.*/\1/p" err)" ] ||
	wrong "the checkpoint that the message names is not the newest"
# The schedule depends on train.steps, so bits are compared for a run of the same length.
start $long --run.dir=int
wait_for_lines int/log.jsonl 3 $pid
kill -TERM $pid
code=0
wait $pid || code=$?
want="130|0"
judge "train, terminated"
run 0 train $long --run.dir=int
equal int

# Half a run, then the rest. On a busy machine the run may be over before it is killed: then once more.
for try in 1 2 3 4 5 6 7 8; do
	rm -rf half
	start $long --run.dir=half --checkpoint.keep=0
	wait_for_lines half/log.jsonl $((steps / 2)) $pid
	# A checkpoint is written beside training: its steps may be done before it is.
	until ls half/checkpoints/step-* >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
	newest=$(ls half/checkpoints | sort | tail -n 1)
	[ "$newest" = "${last##*/}" ] || break
done
run 0 train $long --run.dir=half
says "^Resume:  *after step $(echo "$newest" | sed "s,step-0*,,")\$" "^step $steps/$steps"
equal half

# Killed at any moment: while preparing, between steps, while a checkpoint is written.
for lines in 0 1 6 7 13 24 37; do
	rm -rf hard
	start $long --run.dir=hard
	if [ $lines = 0 ]; then sleep 0.02; else wait_for_lines hard/log.jsonl $lines $pid; fi
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
	run 0 train $long --run.dir=hard
	equal hard
	[ -z "$(find hard -name '.tmp*')" ] || wrong "left over: $(find hard -name '.tmp*')"
done
# Killed again and again.
rm -rf hard
for lines in 4 9 16 23 30; do
	start $long --run.dir=hard
	wait_for_lines hard/log.jsonl $lines $pid
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
done
run 0 train $long --run.dir=hard
equal hard
valid hard/log.jsonl
[ "$(ls hard/checkpoints | wc -l)" -le 3 ] || wrong "checkpoint.keep=3 keeps $(ls hard/checkpoints | tr '\n' ' ')"

# The gradient norm of the step before is part of the state where it bounds the next one.
norm="$long --pass.optimizer-in-backward=yes --optim.clip-norm=previous --optim.clip=0.3"
run 0 train $norm --run.dir=norm
for lines in 7 23; do
	start $norm --run.dir=norm-cut
	wait_for_lines norm-cut/log.jsonl $lines $pid
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
done
run 0 train $norm --run.dir=norm-cut
equal norm-cut norm
! cmp -s norm/$last/model.safetensors whole/$last/model.safetensors || wrong "a bound by the last norm changes nothing"

# Other threads than compute are not part of the state, nor is where the text lies.
mv text elsewhere
run 0 train $long --run.dir=half --train.steps=45
says "^Resume:  *after step $steps"
mv elsewhere text

# More steps than before: goes on. Fewer: nothing to do.
run 0 train $tiny --run.dir=more --train.precision=fp32
cp -r more base
run 0 train $tiny --run.dir=more --train.precision=fp32 --train.steps=9
says "^Resume:  *after step 6"
grep -q "learning rate changes" err && wrong "a learning rate that stays is said to change"
cp -r more slower
run 0 train $tiny --run.dir=slower --train.precision=fp32 --train.steps=12 --optim.lr=0.5e-4
says "^warning: the learning rate changes from here on: optim.lr was .* and is 5e-5\$"
run 0 train $tiny --run.dir=more --train.precision=fp32 --train.steps=3
says "nothing to do"

# Two processes in one folder would take each other's files away: the second one is refused, and the first does not notice.
start $tiny --run.dir=busy --train.steps=100000 --eval.every=0
wait_for_lines busy/log.jsonl 2 $pid
mv err first
refused 3 "another process is training in 'busy'" train $tiny --run.dir=busy --train.steps=100000
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || wrong "the process that was first ended with $code: $(cat first)"

# What cannot go on says why, in one sentence, and leaves the checkpoint as it was.
again="train $tiny --train.steps=9 --train.precision=fp32 --run.dir=more"
rm -rf more && cp -r base more
refused 2 "train.precision is fp32 there and bf16 here" $again --train.precision=bf16
says "^hint: set train.precision=fp32 or choose another run.dir"
refused 2 "run.seed is 1 there and 2 here" $again --run.seed=2
refused 2 "model.ffn is 64 there and 96 here" $again --model.ffn=96
refused 2 "model.layers is 1 there and 2 here" $again --model.layers=2
refused 2 "model.tied is no there and yes here" $again --model.tied=yes
# The same shapes of all tensors, and another model.
refused 2 "model.heads is 2 there and 4 here; model.kv-heads is 1 there and 2 here; model.head-dim is 16 there and 8 here" $again \
	--model.heads=4 --model.kv-heads=2 --model.head-dim=8
says "^hint: set model.heads=2, model.kv-heads=1, model.head-dim=16 or choose another run.dir"
config=base/checkpoints/step-00000006/config.json
for change in 's/"rope_theta": [0-9.e+]*/"rope_theta": 777.0/|rope_theta is [0-9e+]* there and 777 here' \
	's/"rms_norm_eps": [0-9.e-]*/"rms_norm_eps": 0.25/|rms_norm_eps is [0-9e-]* there and 0.25 here' \
	's/"rope_scaling": null/"rope_scaling": {"rope_type": "linear", "factor": 2.0}/|rope_scaling.factor is 1 there and 2 here; .*rope_type is default there and linear here' \
	's/"model_type": "llama"/"model_type": "mistral", "sliding_window": 8/|sliding_window is 0 there and 8 here; model_type is llama there and mistral here'; do
	sed "${change%%|*}" $config >other.json
	differ $config other.json
	refused 2 "${change#*|}" $again --model.name=other.json
	says "^hint: let model.name be a copy of that checkpoint's config.json or choose another run.dir"
done
# Rows in a step may change: the text goes on after what was seen, and that is said.
rm -rf more && cp -r base more
run 0 $again --train.micro-batches=4
says "^warning: rows in a step: 4 in the checkpoint, 8 from here on"
[ "$(sed -n 's/^ *"loader_next_step": \([0-9]*\),$/\1/p' more/checkpoints/step-00000009/training.json)" = 6 ] ||
	wrong "6 steps of 4 rows and 3 of 8 do not end behind 6 steps of 8"
rm -rf more && cp -r base more
# A checkpoint that does not say what it was made from goes on, and what could not be compared is named.
if [ -n "$python" ] && "$python" -c 'import xxhash' 2>/dev/null; then
	"$python" - more/checkpoints/step-00000006 <<-'END'
	import json, os, sys, xxhash
	run, manifest = os.path.join(sys.argv[1], "run.json"), os.path.join(sys.argv[1], "manifest.json")
	text = open(run).read().replace('"passes"', '"old"').replace('"val_shard_checksum"', '"older"')
	open(run, "w").write(text)
	m = json.load(open(manifest))
	m["files"]["run.json"] = {"bytes": len(text), "xxh3_64": "%016x" % xxhash.xxh3_64_intdigest(text.encode())}
	json.dump(m, open(manifest, "w"))
	END
	run 0 $again
	says "^warning: checkpoint .* does not record pass.fp8, .*checksum of val.shard.*: not compared"
fi
rm -rf more && cp -r base more
rm -rf more && cp -r base more
mkdir other
sed 's/fox/wolf/g' text/doc01.txt >other/a.txt
cp text/doc02.txt text/doc03.txt other/
run 0 train $tiny --run.dir=foreign --data.path=other
refused 2 "tokenizer" $again --data.tokenizer=foreign/data/tokenizer.json
refused 2 "data.path\|'more/data'" $again --data.path=other
rm -rf more && cp -r base more
cp foreign/data/*.shard foreign/data/tokenizer.json more/data/
refused 2 "checksum of the tokenizer is [0-9a-f]* there and [0-9a-f]* here; checksum of train.shard is .*; checksum of val.shard is" $again
says "^hint: restore the files in 'more/data' or choose another run.dir"
# Held-out text alone: another share of the same documents, trained on with the old ones' shard.
rm -rf more && cp -r base more
run 0 train $tiny --run.dir=share --data.holdout=5 --data.tokenizer=base/data/tokenizer.json
cp share/data/val.shard more/data/
refused 2 "of checkpoint '[^']*': checksum of val.shard is [0-9a-f]* there and [0-9a-f]* here\$" $again
rm -rf more && cp -r base more
run 0 $again
cmp -s base/checkpoints/step-00000006/model.safetensors more/checkpoints/step-00000006/model.safetensors ||
	wrong "a refusal changed the checkpoint"

# Damage: a byte flipped in, the end cut off, or the whole of each file gone.
for file in config.json model.safetensors tokenizer.json state.safetensors training.json manifest.json run.json; do
	for how in flip cut empty gone; do
		rm -rf more && cp -r base more
		victim=more/checkpoints/step-00000006/$file
		case $how in
		flip) flip "$victim" ;;
		cut) head -c $(($(wc -c <"$victim") * 2 / 3)) "$victim" >part && cp part "$victim" ;;
		empty) : >"$victim" ;;
		gone) rm "$victim" ;;
		esac
		refused "2|3" "$file" $again
	done
done
for file in tokenizer.json train.shard val.shard; do
	for how in flip cut empty; do
		rm -rf more && cp -r base more
		victim=more/data/$file
		case $how in
		flip) flip "$victim" ;;
		cut) head -c $(($(wc -c <"$victim") * 2 / 3)) "$victim" >part && cp part "$victim" ;;
		empty) : >"$victim" ;;
		esac
		refused "2|3" "'more/data" $again
	done
done
# What preparation made is made again when it is gone, with the same result.
rm -rf more && cp -r base more
rm -r more/data
run 0 $again
same base/data/train.shard more/data/train.shard
# A folder that is called like a checkpoint and is none: the one before it is taken, and that is said.
rm -rf more && cp -r base more
mkdir more/checkpoints/step-00000008
run 0 $again
says "^warning: .*step-00000008.*; going on from 'more/checkpoints/step-00000006' instead"
rm -rf more && cp -r base more
mkdir -p more/checkpoints/.tmp-step-00000007 more/checkpoints/notes
: >more/checkpoints/step-latest
run 0 $again
[ ! -e more/checkpoints/.tmp-step-00000007 ] || wrong "a left-over temporary folder stays"
[ -e more/checkpoints/notes ] || wrong "a folder that is not ours was removed"

# Writing that fails leaves the last checkpoint whole. Files may have at most 512 bytes x LIMIT; what the limit hits depends.
for limit in 1 8 30 60 100; do
	rm -rf full && cp -r base full
	code=0
	(trap '' XFSZ; ulimit -f $limit; exec "$bin" train $tiny --train.steps=9 --train.precision=fp32 --run.dir=full >/dev/null 2>err </dev/null) ||
		code=$?
	want="0|3"
	judge "train with files of at most $((limit * 512)) bytes"
	[ $code = 0 ] || sentence
	[ $code = 0 ] || same base/checkpoints/step-00000006/state.safetensors full/checkpoints/step-00000006/state.safetensors
	run 0 train $tiny --train.steps=9 --train.precision=fp32 --run.dir=full
done
rm -rf fresh
for limit in 1 5 10 30; do
	code=0
	(trap '' XFSZ; ulimit -f $limit; exec "$bin" train $tiny --run.dir=fresh >/dev/null 2>err </dev/null) || code=$?
	want=3
	judge "a first run with files of at most $((limit * 512)) bytes"
	sentence
done
run 0 train $tiny --run.dir=fresh
run 0 train $tiny --run.dir=plain
same plain/checkpoints/step-00000006/model.safetensors fresh/checkpoints/step-00000006/model.safetensors
if [ -c /dev/full ] && ! (echo x >/dev/full) 2>/dev/null; then
	rm -rf more && cp -r base more
	rm more/log.jsonl
	ln -s /dev/full more/log.jsonl
	refused 3 "cannot write 'more/log.jsonl'" $again
fi
mkdir disk
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=200k none disk 2>/dev/null; then
	refused 3 "a checkpoint of this run takes .*, and the disk of 'disk/run' has .* free" train $tiny --run.dir=disk/run
	umount disk
	# Room for the checkpoint's tensors, not for all that lies beside them.
	mount -t tmpfs -o size=452k none disk
	refused 3 "[Nn]o space left" train $tiny --run.dir=disk/run
	umount disk
else
	echo "resume: a full disk was not checked: that needs root and mount"
fi

# Folders that cannot be written, files that cannot be read.
: >file
refused 3 "file" train $tiny --run.dir=file/run
refused 3 "file" train $tiny --run.dir=file
mkdir locked secret open
cp text/doc01.txt text/doc02.txt secret/
chmod 555 locked
chmod 000 secret/doc02.txt
chmod 777 open
if [ "$(id -u)" = 0 ]; then
	# Root may do all: as nobody, where that is possible.
	chmod 755 "$tmp"
	nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
	mkdir nobody
	chmod 777 nobody
	cat >as_nobody <<-END
	#!/bin/sh
	XDG_CACHE_HOME=$tmp/nobody exec $nobody "$bin" "\$@"
	END
	chmod 755 as_nobody
	bin=$tmp/as_nobody
fi
if "$bin" --version >/dev/null 2>&1; then
	refused 3 "locked" train $tiny --run.dir=locked/run
	refused 3 "locked" train $tiny --run.dir=locked
	refused 3 "secret/doc02.txt': permission denied" train $tiny --run.dir=open/run --data.path=secret
	chmod 000 secret
	refused 3 "'secret': permission denied" train $tiny --run.dir=open/run --data.path=secret
	refused 3 "locked/run.yaml" init locked/run.yaml
	refused 3 "locked/p.txt" program $tiny --dump=locked/p.txt
else
	echo "resume: unreadable files and locked folders were not checked: root may do all, and nobody cannot run '$FLATOUT_BIN'"
fi
finish
