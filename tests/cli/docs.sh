#!/bin/sh
# The documents: links lead somewhere, every command and page is listed, and what README.md and docs/start-slow-run.md tell to paste works.
#
# In those two pages a block that begins with "$ COMMAND" shows output: each line below is in the command's output, in that order; "..."
# stands for any lines. In a block without "$" each line that is cheap is run (with --dry-run where it would train), of others it is
# checked that what they start exists.
. "$(dirname "$0")/lib_expect.sh"
cd "$FLATOUT_SOURCE" || exit 1
wrong() { echo "FAILED: docs: $*"; failed=1; }

# Pages of the tree, not of builds.
pages=$(find . -name '*.md' ! -path './build*' ! -path './.*' ! -path '*/node_modules/*' | sort)
for page in $pages; do
	folder=$(dirname "$page")
	awk '/^ *```/ { code = !code } !code' "$page" | grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//' | while read -r link; do
		case $link in http*: | http*://* | mailto:*) continue ;; esac
		file=${link%%#*}
		anchor=
		case $link in *"#"*) anchor=${link#*#} ;; esac
		target=${file:+$folder/$file}
		target=${target:-$page}
		[ -e "$target" ] || { echo "$page: '$link' leads nowhere"; continue; }
		[ -n "$anchor" ] && [ -f "$target" ] || continue
		case $target in *.md) ;; *) continue ;; esac
		# GitHub's anchors: lower case, blanks to hyphens, without punctuation.
		awk '/^```/ { code = !code } !code && /^#+ /' "$target" | sed 's/^#* //' | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' |
			grep -qxF -- "$anchor" || echo "$page: '$link': no such heading"
	done
done >"$tmp/links"
[ ! -s "$tmp/links" ] || wrong "$(cat "$tmp/links")"

for command in $("$FLATOUT_BIN" --help | awk '/^[A-Z][a-z]*:$/ { on = 1; next } /^$/ { on = 0 } on && !/^ *data [a-z]/ { print $1 }' | sort -u); do
	grep -q "](${command%%-*}\.md)" docs/commands/README.md || wrong "docs/commands/README.md does not link '$command'"
done
for page in docs/*.md; do
	[ "$page" = docs/README.md ] || grep -q "($(basename "$page")[#)]" docs/README.md || wrong "docs/README.md does not list $page"
done

# ---- what is pasted ----
work=$tmp/work
mkdir -p "$work/build/release" "$tmp/bin"
ln -s "$FLATOUT_BIN" "$tmp/bin/flatout"
for name in examples docs data demo test Makefile; do
	ln -s "$FLATOUT_SOURCE/$name" "$work/$name"
done
PATH=$tmp/bin:$PATH
export PATH

# shows PAGE NUMBER: the block's command says what stands below it
shows() {
	command=$(sed -n '1s/^\$ //p' "$tmp/block")
	sed 1d "$tmp/block" | grep -v '^\.\.\.$' >"$tmp/want"
	(cd "$work" && COLUMNS=80 sh -c "$command") >"$tmp/got" 2>&1
	status=$?
	[ $status -le 1 ] || wrong "$1: '$command' ends with $status: $(tail -n 2 "$tmp/got")"
	[ -s "$tmp/want" ] || wrong "$1: '$command' shows nothing"
	# Each wanted line, searched from behind the last one found.
	awk 'FNR == NR { want[++n] = $0; next } k < n && $0 == want[k + 1] { k++ } END { if (k < n) { print want[k + 1]; exit 1 } }' \
		"$tmp/want" "$tmp/got" >"$tmp/lacks" || wrong "$1: '$command' does not say: $(cat "$tmp/lacks")"
}
# paste PAGE: each line of the block
paste() {
	# A line goes on behind a backslash; a comment ends it.
	sed -e ':a' -e '/\\$/N; s/ *\\\n */ /; ta' -e 's/ \{1,\}# .*$//' "$tmp/block" | while read -r line; do
		set -f
		# shellcheck disable=SC2086 # words on purpose
		set -- $line
		set +f
		case $line in
		"" | "#"*) continue ;;
		"make "* | make)
			make -n -C "$FLATOUT_SOURCE" "${2:-all}" >/dev/null 2>&1 || echo "no '$line'"
			;;
		"sudo make "*) make -n -C "$FLATOUT_SOURCE" "$3" >/dev/null 2>&1 || echo "no '$line'" ;;
		./*) [ -x "$FLATOUT_SOURCE/$1" ] || echo "'$1' is not there" ;;
		"scp build/static/flatout-static "*) ;; # `make static` and its test
		"nsys "* | "for "* | "export PATH="*) ;;
		flatout*trace-before*) ;; # traces of the reader
		"flatout train "* | "flatout demo"* | "flatout generate "* | "flatout ladder "*)
			[ -n "${FLATOUT_HAS_ENGINE:-}" ] || continue
			[ "$2" = train ] && line="$line --dry-run" || line="flatout help $2"
			(cd "$work" && sh -c "$line") >"$tmp/got" 2>&1 || echo "'$line': $(tail -n 2 "$tmp/got")"
			;;
		flatout*)
			(cd "$work" && sh -c "$line") >"$tmp/got" 2>&1
			status=$?
			# 1: something was found
			[ $status -le 1 ] || echo "'$line' ends with $status: $(tail -n 2 "$tmp/got")"
			;;
		*) echo "'$line' is of a kind that this test does not know" ;;
		esac
	done >"$tmp/bad"
	[ ! -s "$tmp/bad" ] || wrong "$1: $(cat "$tmp/bad")"
}
for page in README.md docs/start-slow-run.md; do
	# Blocks without a language, one file each; the demo's output is no command.
	rm -f "$tmp"/block.*
	awk -v to="$tmp/block." '/^<!-- demo output -->/ { skip = 1 }
		/^```/ { if (open) { open = 0; close(file) } else { open = 1; if ($0 == "```" && !skip) { file = to sprintf("%03d", ++n); printf "" >file } else file = ""; skip = 0 } next }
		open && file != "" { print >file }' "$page"
	found=0
	for file in "$tmp"/block.*; do
		[ -e "$file" ] || continue
		found=$((found + 1))
		cp "$file" "$tmp/block"
		case $(head -n 1 "$file") in
		'$ '*) shows "$page" ;;
		*) paste "$page" ;;
		esac
	done
	[ $found -ge 3 ] || wrong "$page: only $found blocks were understood"
done
exit $failed
