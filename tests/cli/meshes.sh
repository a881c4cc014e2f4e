#!/bin/sh
# flatout program --meshes: of all meshes of some ranks those are listed that the run can have, with the program's own figures; the
# others are refused as the program is.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "meshes: no python3"; exit 77; }

wide="$tiny --train.rows=4 --model.heads=4 --model.kv-heads=2 --model.vocab=320 --pass.recompute=none"
run 0 program $wide --meshes=8
says "meshes of 8 ranks for " "mesh  *shard  *data  *cp  *tp  *pp  *persists  *arena" "^  1x1x2x2x2 " "^. not 2x4x1x1x1: 2 stages x 1 part" "^. not 1x1x1x1x8: 8 ranks of a tp group cannot share 4"
if awk 'length($0) > 80' out | grep -q .; then
	wrong "wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
fi
for cp in ring heads; do
	run 0 program $wide --meshes=8 --pass.cp=$cp --json
	valid out
	cp out meshes.json
	keys meshes.json schema model ranks meshes pp replicate shard cp tp received_bytes received_from received_on weight_bytes master_bytes moment_bytes copy_bytes \
		persistent_bytes kept_bytes gradient_bytes arena_low_bytes arena_high_bytes planned_persistent_bytes planned_arena_bytes not_planned refused why
	"$python" - <<'END' >cases
import json
j = json.load(open("meshes.json"))
mesh = lambda x: "--mesh.pp=%d --mesh.pp-layers=even --mesh.replicate=%d --mesh.shard=%d --mesh.cp=%d --mesh.tp=%d" % (x["pp"], x["replicate"], x["shard"], x["cp"], x["tp"])
for x in j["meshes"]:
    if x["pp"] == 1: # of stages rank 0 is not the one that has most
        print(0, int(x["received_bytes"]), x["persistent_bytes"], x["arena_low_bytes"], x["arena_high_bytes"],
              x["planned_persistent_bytes"] + x["planned_arena_bytes"], mesh(x))
for x in j["refused"]:
    print(2, 0, 0, 0, 0, 0, mesh(x))
END
	[ "$(grep -c "pp=1 " cases)" -eq 20 ] || wrong "there are 20 meshes of 8 ranks without a pipeline, not $(grep -c "pp=1 " cases)"
	while read -r status received persists low high planned options; do
		run "$status" program $wide --ranks=8 --pass.cp=$cp --no-operations --json $options
		[ "$status" = 0 ] || continue
		# Rank 0's: vocabulary, rows and columns are shared evenly here, so that all ranks have the same.
		"$python" - "$received" "$persists" "$low" "$high" "$planned" <<'END' || wrong "$options: not the figures of the program"
import json, sys
j = json.load(open("out"))
received, persists, low, high, planned = map(int, sys.argv[1:])
ok = persists == j["persistent_bytes"] and low <= j["max_live_bytes"] <= high
ok = ok and planned == j["persistent_bytes"] + j["arena_bytes"] # --meshes planned it from fewer micro-batches, without the verifier
sys.exit(not (ok and 0 <= received - j["received_bytes"] <= 192)) # loss and norms go to the last rank of a group, 8 bytes x 8 ranks each
END
	done <cases
done
# More ranks than rows: what has rows of its own is refused by them.
run 0 program $wide --meshes=16
says "not 1x16x1x1x1: 16 groups of ranks cannot share the rows"
cp out one
run 0 program $wide --meshes=16 --mesh.pp=1 --mesh.ranks=2 --mesh.cp=2
same out one
run 0 program $wide --meshes=1
says "^  1x1x1x1x1 "
refused 2 "no mesh of 7 ranks can train this run" program $wide --meshes=7
refused 3 "with fp8 is not known without its program" program $wide --pass.fp8=current --meshes=2
refused 2 "train.batch-rows leaves open" program $wide --train.batch-rows=8 --meshes=2
refused 2 "dump writes one program, and --meshes makes none" program $wide --meshes=2 --dump=x.txt
finish
