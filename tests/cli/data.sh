#!/bin/sh
# flatout data: the same shards from every form of a text, killed and gone on; what is shown; a run on a prepared folder.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text

# One JSON line per document, and its packed forms.
lines() {
	for file in text/*.txt; do
		awk 'BEGIN { printf "{\"id\":1,\"text\":\"" } { printf "%s\\n", $0 } END { print "\",\"url\":null}" }' "$file"
	done
}
lines >c4.json
gzip -k c4.json
(head -n 20 c4.json | gzip; tail -n 20 c4.json | gzip) >members
run 0 data train-tokenizer text --vocab=300 --out=t.json --json
valid out
keys out schema path vocab checksum seconds
run 0 data prepare text --tokenizer=t.json --out=d0 --holdout=10
says "^Train:  *36 documents" "^Held out:  *4 documents" "trains on it"
run 0 data prepare c4.json --tokenizer=t.json --out=d1 --holdout=10 --json
cp out result.json
valid result.json
keys result.json schema path vocab tokenizer_checksum files skipped_binary skipped_empty skipped_bad bytes train_documents \
	train_tokens val_documents val_tokens resumed_bytes seconds
run 0 data prepare c4.json.gz --tokenizer=t.json --out=d2 --holdout=10 --threads=1
run 0 data prepare 'mem*' --tokenizer=t.json --out=d3 --holdout=10 --threads=3
code=0
cat c4.json.gz | "$bin" data prepare - --tokenizer=t.json --out=d4 --holdout=10 >out 2>err || code=$?
want=0
judge "data prepare -"
if command -v zstd >/dev/null; then
	zstd -q c4.json -o c4.zst
	run 0 data prepare c4.zst --tokenizer=t.json --out=d5 --holdout=10
else
	cp -r d4 d5
fi
for d in 1 2 3 4 5; do # a text in a file or in a line: the same tokens
	same d0/train.shard d$d/train.shard
	same d0/val.shard d$d/val.shard
	[ -z "$(find d$d -name '*.tmp' -o -name '*journal*')" ] || wrong "files are left in d$d"
done
run 0 data prepare c4.json --tokenizer=t.json --out=d1 --holdout=10
says "^nothing was left to do"

# What is shown, and what is refused.
run 0 data inspect d1 --seq=64
says "Documents:  *36" "^  packed " "^  bestfit " "^  split " "^  padded " "c4.json\|Sources:  *1 file"
run 0 data inspect d1 --seq=64 --json
valid out
keys out schema documents tokens checksum packing bestfit padding_tokens dropped_tokens documents_cut_needlessly
run 0 data inspect d1/val.shard
run 0 data inspect d1 --doc=0
says "document 0, .* from c4.json:" "river\|stone\|quick"
run 0 data inspect d1 --doc=0 --json
valid out
refused 2 "no document 36: the shard has 36" data inspect d1 --doc=36
refused 2 "no shard is named" data inspect
refused 3 "no such file" data inspect absent.shard
refused 2 "'text' holds no train.shard" data inspect text
refused 2 "needs at least one input" data prepare --out=x --vocab=300
refused 2 "no folder to write to" data prepare text --vocab=300
refused 2 "no tokenizer is named" data prepare text --out=x
refused 2 "exclude each other" data prepare text --out=x --vocab=300 --tokenizer=t.json
refused 2 "can be read only once" data prepare - --out=x --vocab=300
refused 2 "holds data prepared from other inputs" data prepare text --tokenizer=t.json --out=d1 --holdout=10
run 0 data prepare text --tokenizer=t.json --out=d1 --holdout=10 --replace
refused 2 "has no part 'prepair'; nearest is 'prepare'" data prepair
run 0 data
says "data prepare c4" "data train-tokenizer books" "data inspect c4"

# One bad line: where it is; left out where that is asked for. Names and texts from outside upset no terminal.
sed '7s/.*/{"text": "cut off/' c4.json >"bad$(printf '\033')[31m.jsonl"
refused 2 'bad.x1b\[31m.jsonl.:7: no JSON at byte' data prepare bad*.jsonl --tokenizer=t.json --out=bad --holdout=10
run 0 data prepare bad*.jsonl --tokenizer=t.json --out=bad --holdout=10 --on-error=skip
says "1 bad"
printf '{"text":"a\\u001b[31mred\\u0000 \\u0007"}\n' >evil.jsonl
cat evil.jsonl evil.jsonl evil.jsonl >evil3.jsonl
run 0 data prepare evil3.jsonl --tokenizer=t.json --out=evil --holdout=2
run 0 data inspect evil --doc=0
says 'a.x1b\[31mred.x00 .x07'
LC_ALL=C grep -q "$(printf '[\001-\010\013-\037]')" out && wrong "control characters reach the terminal"
head -c 300 c4.json.gz >cut.gz
refused 2 "the file was cut" data prepare cut.gz --tokenizer=t.json --out=cut
refused 2 "no text in" data prepare cut.gz --tokenizer=t.json --out=cut2 --on-error=skip --format=text
refused 2 "no field 'body'; there are 'id', 'text', 'url'" data prepare c4.json --field=body --format=jsonl --tokenizer=t.json --out=x

# Killed at random instants and called again: the same bytes.
i=0
while [ $i -lt 40 ]; do # a few mebibytes
	cat c4.json c4.json c4.json c4.json
	i=$((i + 1))
done >many.jsonl
run 0 data prepare many.jsonl text --tokenizer=t.json --out=whole --threads=2
i=0
while [ $i -lt 12 ]; do
	"$bin" data prepare many.jsonl text --tokenizer=t.json --out=killed --threads=$((i % 3 + 1)) --save-every=1ms >out 2>err &
	pid=$!
	sleep "0.$((i * 7 % 10))$((i * 3 % 10))"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	i=$((i + 1))
done
run 0 data prepare many.jsonl text --tokenizer=t.json --out=killed
for file in train.shard val.shard train.src val.src tokenizer.json; do
	same whole/$file killed/$file
done

# A run on the folder, packed best-fit, and on a compressed text as it is.
run 0 train $tiny --data.path=d1 --run.dir=r1 --data.packing=bestfit --json
[ ! -e r1/data ] || wrong "the prepared data was copied"
grep -q '"truncated": 0,' out || wrong "best-fit packing dropped tokens"
# What reads the run afterwards finds the shards where they are: the held-out text, and the names of documents.
run 0 eval r1 --threads=1
says "^Text:  *d1/val.shard" "^Logged: .*: the same"
run 0 train $tiny --data.path=d1 --run.dir=r5 --train.steps=40 --guard.spike-window=8 --guard.spike-z=1
says "documents* [0-9]* (text/doc[0-9]*.txt).* of 'd1/train.shard'"
mv d1 moved
refused 3 "held out is not in 'd1'" eval r1 --threads=1
mv moved d1
run 0 train $tiny --data.path=c4.json.gz --run.dir=r2
same r2/data/train.shard d0/train.shard
refused 2 "was prepared with 300 tokens, this run asks for 280" train $tiny --data.path=d1 --run.dir=r3 --data.vocab=280
refused 2 "cannot read its text from standard input" train $tiny --data.path=- --run.dir=r4
# An output inside the input is not read: neither on going on, nor by a run in the folder of its text.
mkdir own
for i in 0 1 2 3; do cp text/doc0$i.txt own; done
run 0 data prepare own --vocab=290 --out=own/tokens
mv own/tokens/val.shard held.shard
run 0 data prepare own --vocab=290 --out=own/tokens --replace
says "4 files"
cmp -s held.shard own/tokens/val.shard || wrong "the output was read as text"
run 0 data prepare own/ 'own/tok*' --vocab=290 --out=own/tokens --replace
says "4 files"
refused 2 "holds no files but our own output" data prepare own/tokens --tokenizer=own/tokens/tokenizer.json --out=own/tokens
rm -r own/tokens
run 0 train $tiny --data.path=./own/ --run.dir=own/run --data.vocab=290
run 0 data inspect own/run/data
says "Sources:  *4 files"
# Text that failed before anything was done can be mended: nothing has been begun.
printf '{"text":5}\n' >mended.jsonl
refused 2 "mended.jsonl':1" data prepare mended.jsonl --tokenizer=t.json --out=mended
yes '{"text":"a line of text"}' | head -n 60 >mended.jsonl
run 0 data prepare mended.jsonl --tokenizer=t.json --out=mended
finish
