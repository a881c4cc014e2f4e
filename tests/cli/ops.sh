#!/bin/sh
# flatout ops: docs/ops.md is its output, the JSON lists the same operations.
# FLATOUT_UPDATE=1 writes docs/ops.md anew instead of comparing.
set -eu
bin=${FLATOUT_BIN:?}
source=${FLATOUT_SOURCE:-.}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "ops: $*" >&2; exit 1; }

"$bin" ops >"$dir/ops"
{
	cat <<'END'
# Operations

The output of `flatout ops`, made from `src/program/ops.def` and held to it by `tests/cli/ops.sh`. After a change of the
table: `FLATOUT_UPDATE=1 FLATOUT_BIN=build/release/flatout sh tests/cli/ops.sh`.

Per operation: name, class (what it needs: the matrix unit, memory, the wire, the host) and category (its row of the
step profile); what it computes; its operands with the access modes that a program may use for them (`?`: may be
absent). [architecture.md](architecture.md#operands-and-access-modes) says what the modes mean.

```
END
	cat "$dir/ops"
	echo '```'
} >"$dir/ops.md"
if [ "${FLATOUT_UPDATE:-0}" = 1 ]; then
	cp "$dir/ops.md" "$source/docs/ops.md"
fi
diff "$source/docs/ops.md" "$dir/ops.md" ||
	fail "docs/ops.md is not what flatout ops says (FLATOUT_UPDATE=1 writes it anew)"

long=$(awk 'length($0) > 80' "$dir/ops")
[ -z "$long" ] || fail "wider than 80 columns: $long"
# A name stands at the beginning of a line; JSON and text list the same ones in the same order.
sed -n 's/^\([a-z_0-9]*\)  (.*/\1/p' "$dir/ops" >"$dir/names"
"$bin" ops --json >"$dir/json"
grep -q '"schema": 1' "$dir/json" || fail "--json has no schema"
# Operations have a class behind the name, operands have not.
awk -F'"' '/"name": / { name = $4 } /"class": / { print name }' "$dir/json" |
	diff "$dir/names" - || fail "--json lists other operations"
[ "$(wc -l <"$dir/names")" -ge 19 ] || fail "fewer than 19 operations"
"$bin" ops more >"$dir/out" 2>&1 && fail "an argument too many is accepted"
grep -q "unexpected argument 'more'" "$dir/out" || fail "an argument too many is not named"
