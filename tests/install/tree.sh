# The installed tree: what is in it, that it runs after a move, what the libraries export.
. "$(dirname "$0")/lib.sh"
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$FLATOUT_BUILD/CMakeCache.txt")

rm -rf "$FLATOUT_STAGE" "$FLATOUT_STAGE.dest"
cmake --install "$FLATOUT_BUILD" --prefix "$FLATOUT_STAGE" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
for file in bin/flatout include/flatout.h "$libdir/libflatout.so" "$libdir/libflatout.so.0" "$libdir/libflatout.a" "$libdir/pkgconfig/flatout.pc" \
	share/doc/flatout/data/devices.csv share/doc/flatout/LICENSE share/doc/flatout/NOTICE share/doc/flatout/README.md \
	share/doc/flatout/docs/metrics.md share/doc/flatout/examples/api/meter.c share/doc/flatout/examples/first/run.yaml \
	share/bash-completion/completions/flatout share/zsh/site-functions/_flatout share/fish/vendor_completions.d/flatout.fish; do
	[ -s "$FLATOUT_STAGE/$file" ] || wrong "no '$file'"
done
# A page for flatout, for each command and for a command's own ("data prepare"), nothing else.
"$FLATOUT_STAGE/bin/flatout" --help | awk '/^[A-Z][a-z]*:$/ { on = 1; next } /^$/ { on = 0 } on { print "flatout-" $1 }' >"$tmp/want"
echo flatout >>"$tmp/want"
"$FLATOUT_STAGE/bin/flatout" help data | sed -n 's/^  flatout data \([a-z-]*\) .*/flatout-data-\1/p' >>"$tmp/want"
for two in "predict cluster" "plan machine" "ladder plan" "compare clusters"; do
	# shellcheck disable=SC2086 # two words on purpose
	"$FLATOUT_STAGE/bin/flatout" $two --help >/dev/null && echo "flatout-$two" | tr ' ' - >>"$tmp/want"
done
for page in "$FLATOUT_STAGE"/share/man/man1/*; do
	basename "$page" | sed 's/\.1\(\.gz\)*$//'
done | sort >"$tmp/got"
sort "$tmp/want" | cmp -s - "$tmp/got" || wrong "pages: $(diff "$tmp/want" "$tmp/got")"
if command -v mandoc >/dev/null 2>&1; then
	for page in "$FLATOUT_STAGE"/share/man/man1/*.gz; do
		gzip -dc "$page" >"$tmp/page.1"
		mandoc -T lint "$tmp/page.1" | grep -v 'referenced manual not found' && wrong "$page has complaints"
	done
fi

# DESTDIR stands in front of the prefix and changes no content.
DESTDIR=$FLATOUT_STAGE.dest cmake --install "$FLATOUT_BUILD" --prefix /opt/there >"$tmp/log" 2>&1 || wrong "DESTDIR: $(cat "$tmp/log")"
diff -r "$FLATOUT_STAGE" "$FLATOUT_STAGE.dest/opt/there" >"$tmp/out" || wrong "with DESTDIR: $(cat "$tmp/out")"
# Moved, under a name with a blank.
mv "$FLATOUT_STAGE.dest/opt/there" "$tmp/moved tree"
rm -rf "$FLATOUT_STAGE.dest"
usable "$FLATOUT_STAGE"
usable "$tmp/moved tree"
# What trains starts there too, from the example and the text that came with it.
if grep -q '^flatout-train$' "$tmp/want"; then
	doc="$tmp/moved tree/share/doc/flatout"
	(cd "$tmp" && "$tmp/moved tree/bin/flatout" train "$doc/examples/first/run.yaml" --data.path="$doc/docs" --dry-run) >"$tmp/out" 2>&1 ||
		wrong "train --dry-run: $(cat "$tmp/out")"
fi
ln -s "$tmp/moved tree/bin/flatout" "$tmp/flatout"
(cd / && "$tmp/flatout" devices h100) >"$tmp/out" 2>&1 || wrong "by a link: $(cat "$tmp/out")"

# The header's functions and nothing else.
sed -n 's/^FLATOUT_API.* \**\(flatout_[a-z0-9_]*\)(.*/\1/p' "$FLATOUT_STAGE/include/flatout.h" | sort >"$tmp/header"
[ "$(wc -l <"$tmp/header")" -ge 19 ] || wrong "the header declares only: $(cat "$tmp/header")"
nm -D --defined-only "$FLATOUT_STAGE/$libdir/libflatout.so" | awk '{ print $3 }' | sort >"$tmp/exported"
cmp -s "$tmp/header" "$tmp/exported" || wrong "libflatout.so exports: $(diff "$tmp/header" "$tmp/exported")"
nm -g --defined-only "$FLATOUT_STAGE/$libdir/libflatout.a" | awk 'NF == 3 { print $3 }' | sort >"$tmp/archive"
cmp -s "$tmp/header" "$tmp/archive" || wrong "libflatout.a exports: $(diff "$tmp/header" "$tmp/archive")"
nm -D --defined-only "$FLATOUT_STAGE/bin/flatout" | grep -E ' (fo|flatout)_' && wrong "the program exports the above"
readelf -d "$FLATOUT_STAGE/$libdir/libflatout.so" >"$tmp/out"
grep -q 'SONAME.*\[libflatout\.so\.0\]' "$tmp/out" || wrong "soname: $(cat "$tmp/out")"
# MPI is in the plugin alone, which exports one function; the program has no name of MPI in it.
plugin=lib/flatout/libflatout-mpi.so
if [ -e "$FLATOUT_BUILD/libflatout-mpi.so" ]; then
	[ -s "$FLATOUT_STAGE/$plugin" ] || wrong "no '$plugin'"
	nm -D --defined-only "$FLATOUT_STAGE/$plugin" | awk '{ print $3 }' >"$tmp/out"
	[ "$(cat "$tmp/out")" = fo_mpi_plugin ] || wrong "the MPI plugin exports: $(cat "$tmp/out")"
fi
nm -D "$FLATOUT_STAGE/bin/flatout" | grep -E ' (MPI|PMPI|ompi)_' && wrong "the program names MPI's functions"
readelf -d "$FLATOUT_STAGE/bin/flatout" | grep -i 'NEEDED.*mpi' && wrong "the program needs MPI"
# Who embeds a meter should not get a training engine's libraries with it.
grep NEEDED "$tmp/out" | grep -v -E '\[(libjansson|libm|libc|ld-linux[a-z0-9-]*)\.so\.[0-9]*\]' && wrong "libflatout.so needs the above"
grep -E 'R(UN)?PATH' "$tmp/out" && wrong "libflatout.so has the above"
exit $failed
