# Completion scripts: the shells accept them, and bash offers what the help lists.
set -u
bin=${FLATOUT_BIN:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
wrong() { echo "completion: $*"; failed=1; }

for shell in bash zsh fish; do
	"$bin" completion $shell >"$tmp/$shell" || wrong "'completion $shell' failed"
	if command -v $shell >/dev/null 2>&1; then
		$shell -n "$tmp/$shell" || wrong "$shell does not accept its script"
	else
		echo "completion: no $shell here: its script was not checked by it"
	fi
done
for arguments in "completion" "completion csh" "completion bash zsh"; do
	# shellcheck disable=SC2086 # words on purpose
	"$bin" $arguments >"$tmp/out" 2>&1 && wrong "'$arguments' is accepted"
done
# Every command and each of its flags is in each script.
"$bin" --help | awk '/^[A-Z][a-z]*:$/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' >"$tmp/commands"
while read -r name; do
	"$bin" help "$name" | awk '/^  --/ { sub(/^\[no-\]/, "", $1); sub(/^--(\[no-\])?/, "", $1); sub(/\[=.*/, "", $1); print $1 }' >"$tmp/flags"
	while read -r flag; do
		grep -q "^	$name) flags=.* --$flag[= ]" "$tmp/bash" || wrong "bash: no '$name --$flag'"
		sed -n "/^	$name)/,/;;\$/p" "$tmp/zsh" | grep -q -- "--$flag[=[]" || wrong "zsh: no '$name --$flag'"
		grep -q -- "_from $name' -l $flag " "$tmp/fish" || wrong "fish: no '$name --$flag'"
	done <"$tmp/flags"
done <"$tmp/commands"

command -v bash >/dev/null 2>&1 || exit $failed
# reply WORD...: what bash offers for the last word, as readline splits them.
reply() {
	# shellcheck disable=SC2016 # bash expands it
	(cd "$tmp" && bash -c '. ./bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flatout 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"' - "$@")
}
offers() { # EXPECTED WORD...: exactly these, in this order
	want=$1
	shift
	got=$(reply "$@" | tr '\n' ' ')
	[ "${got% }" = "$want" ] || wrong "'$*': offered '${got% }', expected '$want'"
}
mkdir "$tmp/a folder" && : >"$tmp/a.yaml"
offers "flops" flatout fl
offers "mfu" flatout mf
offers "bash" flatout completion b
offers "devices" flatout help dev
offers "--model=" flatout flops --mod
offers "llama-3.1-8b" flatout flops --model = llama-3.1-8
offers "llama-3.1-8b" flatout flops --model llama-3.1-8
offers "--model=llama-3.1-8b" flatout flops --model=llama-3.1-8
offers "MI350X MI355X" flatout mfu --device = MI35
offers "MI355X" flatout mfu --device = MI355
offers "fp8" flatout mfu --dtype fp8
offers "a.yaml" flatout config a.
offers "a folder" flatout config --run.dir = "a f"
offers "" flatout flops --seq 1
offers "--json --json=" flatout ops --js
if "$bin" help data >/dev/null 2>&1; then
	offers "data" flatout da
	offers "prepare" flatout data pr
	offers "--holdout=" flatout data prepare text --ho
	offers "skip" flatout data prepare --on-error = sk
	offers "jsonl" flatout data train-tokenizer --format jso
fi
exit $failed
