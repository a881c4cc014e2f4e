#!/bin/sh
# flatout passes: what each optimisation does to a run's program; the last row on is the program that runs.
. "$(dirname "$0")/lib.sh"

run 0 passes $tiny
says "^passes of " "^ *the plain program " "^ *+ merge-qkv " "^ *+ merge-gate-up " "^ *+ fuse-elementwise " "^ *\* merge-qkv (rewrite): "
if LC_ALL=C.UTF-8 awk 'length($0) > 80' out | grep -q .; then
	wrong "wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
fi
run 0 passes $tiny --json
cp out p.json
valid p.json
keys p.json schema model plain all passes name kind doc state value instances model_flop executed_flop moved_bytes arena_bytes \
	persistent_bytes
# number FILE KEY: the last one of that name.
number() { sed -n "s/^ *\"$2\": \([0-9.e+]*\),*\$/\1/p" "$1" | tail -n 1; }
# "all" is what flatout program shows, and has not more operations than the plain program.
run 0 program $tiny --json
for key in instances arena_bytes persistent_bytes; do
	awk -v k="\"$key\":" '/"all":/ { on = 1 } on && $1 == k { print; exit }' p.json | tr -d ' ,' >all
	grep "\"$key\":" out | head -n 1 | tr -d ' ,' >program
	same all program
done
# Switched off it stands in the second table, with the same effect.
run 0 passes $tiny --pass.merge-qkv=no
says "^ *off; if one were on " "^ *merge-qkv  *"
! grep -q "^ *+ merge-qkv" out || wrong "merge-qkv is off and stands among those that are on"
# Every pass has its page, every page its pass, and an option of its name.
run 0 passes $tiny --json
sed -n 's/^ *"name": "\(.*\)",$/\1/p' out | sort >names
(cd "$source/docs/passes" && ls) | sed -n 's/\.md$//p' | grep -v '^README$' | sort >pages
for pass in $(cat names); do
	grep -qx "$pass" pages || grep -q "^## $pass\$" "$source"/docs/passes/*.md || wrong "pass $pass has no page in docs/passes"
	option=${pass%-weights} # pp-weights is the later half of pass.pp, behind recomputation
	{ "$bin" help train 2>/dev/null || "$bin" help config; } | grep -Eq -e "--(pass|optim|mesh)\.$option" || wrong "pass $pass has no option pass.$pass, optim.$pass or mesh.$pass"
done
printf 'pass:\n  merge-qkv: maybe\n' >bad.yaml
refused 2 "bad.yaml:2: 'pass.merge-qkv' must be" passes bad.yaml
"$bin" program $tiny --dump=p.txt >/dev/null
refused 2 "'p.txt'" passes --program.file=p.txt
finish
