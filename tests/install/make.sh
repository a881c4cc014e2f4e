# The way in: `make` needs no test library and no perfect compiler, what is missing is one line, `make install` and `uninstall` leave
# nothing behind.
. "$(dirname "$0")/lib.sh"
cd "$FLATOUT_SOURCE" || exit 1

# What `make` configures, on a machine without cmocka: no test, no -Werror; nor for who takes the preset alone.
mkdir "$tmp/bin"
cat >"$tmp/bin/pkg-config" <<END
#!/bin/sh
for word; do
	case " \${NOT_HERE:-cmocka} " in *" \$word "*) exit 1 ;; esac
done
exec $(command -v pkg-config) "\$@"
END
chmod +x "$tmp/bin/pkg-config"
fake() { env PKG_CONFIG="$tmp/bin/pkg-config" PATH="$tmp/bin:$PATH" "$@"; }
make -n BUILD="$tmp/user" >"$tmp/out" 2>&1
grep -q 'FLATOUT_TESTS=OFF' "$tmp/out" || wrong "make builds tests: $(cat "$tmp/out")"
options=$(sed -n 's/^sh tools\/configure //p' "$tmp/out" | head -n 1)
# shellcheck disable=SC2086 # words on purpose
fake sh tools/configure $options -DFLATOUT_CUDA=OFF >"$tmp/out" 2>&1 || wrong "make without cmocka: $(cat "$tmp/out")"
fake cmake --preset release -B "$tmp/preset" -DFLATOUT_CUDA=OFF >"$tmp/out" 2>&1 || wrong "the preset without cmocka: $(cat "$tmp/out")"
for build in user preset; do
	cmake --build "$tmp/$build" --target help >"$tmp/out" 2>&1
	grep -q -e '[.] flatout$' "$tmp/out" || wrong "$build: no target 'flatout'"
	grep -e '[.] test' -e cmocka "$tmp/out" && wrong "$build: the above is built without need"
	grep -m 1 -e -Werror "$tmp/$build/compile_commands.json" && wrong "$build: a user's new compiler stops at a warning"
done

# Everything that is missing, in one line to paste.
NOT_HERE="jansson libzstd" fake sh tools/configure "$tmp/lacks" --preset release -DFLATOUT_TESTS=OFF -DFLATOUT_CUDA=OFF >"$tmp/out" 2>&1 &&
	wrong "a build without jansson"
grep -q '^ *apt-get install libjansson-dev libzstd-dev$' "$tmp/out" || wrong "missing libraries are told so: $(cat "$tmp/out")"
[ "$(wc -l <"$tmp/out")" -le 6 ] || wrong "two missing libraries take many lines: $(cat "$tmp/out")"
# Other systems: the line that docs/install.md has.
for system in "dnf install" "pacman -S --needed"; do
	mkdir "$tmp/${system%% *}"
	printf '#!/bin/sh\n' >"$tmp/${system%% *}/${system%% *}"
	chmod +x "$tmp/${system%% *}/${system%% *}"
	line=$(PATH=$tmp/${system%% *} "$(command -v sh)" -c '. tools/deps.sh; fo_probe() { return 1; }; fo_tell "$FO_NEED_BUILD"' | sed -n 's/^  //p')
	case $line in
	"$system "*) ;;
	*) wrong "$system: $line" ;;
	esac
	grep -qxF "$line" docs/install.md || wrong "docs/install.md has another line than: $line"
done
line=$(sh -c '. tools/deps.sh; fo_probe() { return 1; }; fo_missing "$FO_NEED_BUILD" 1' | tr '\n' ' ')
grep -qxF "apt-get install ${line% }" docs/install.md || wrong "docs/install.md has another line than: apt-get install $line"

# Installed, and gone again: what was there before stays, and nothing else.
try() { make -s "$@" BUILD="$FLATOUT_BUILD" >"$tmp/out" 2>&1 || wrong "make $*: $(cat "$tmp/out")"; }
mkdir -p "$tmp/pre fix/bin"
echo mine >"$tmp/pre fix/bin/other"
find "$tmp/pre fix" | sort >"$tmp/before"
try install PREFIX="$tmp/pre fix"
grep -q "bin' is not in PATH" "$tmp/out" || wrong "install says nothing of PATH: $(cat "$tmp/out")"
grep -q 'LD_LIBRARY_PATH=' "$tmp/out" || wrong "install says nothing of libflatout: $(cat "$tmp/out")"
usable "$tmp/pre fix"
# The next version has a file less; a name that leads out of the tree is not followed.
echo old >"$tmp/pre fix/share/flatout/old"
echo keep >"$tmp/outside"
printf 'f share/flatout/old\nf ../outside\nf %s\n' "$tmp/outside" >>"$tmp/pre fix/share/flatout/files"
try install PREFIX="$tmp/pre fix"
[ ! -e "$tmp/pre fix/share/flatout/old" ] || wrong "a file of the last version stays"
[ -e "$tmp/outside" ] || wrong "a file outside the prefix was removed"
[ ! -e "$FLATOUT_BUILD/install_manifest.txt" ] || wrong "a file of who installs stays in the build folder"
try uninstall PREFIX="$tmp/pre fix"
find "$tmp/pre fix" | sort | cmp -s - "$tmp/before" || wrong "uninstall left or took: $(find "$tmp/pre fix" | sort | diff "$tmp/before" -)"
make -s uninstall BUILD="$FLATOUT_BUILD" PREFIX="$tmp/pre fix" >"$tmp/out" 2>&1 && wrong "uninstall of nothing says nothing"
grep -q 'PREFIX and DESTDIR' "$tmp/out" || wrong "uninstall of nothing says: $(cat "$tmp/out")"

try install PREFIX=/usr DESTDIR="$tmp/dest"
usable "$tmp/dest/usr"
grep -q PATH "$tmp/out" && wrong "who packs is told of PATH: $(cat "$tmp/out")"
try uninstall PREFIX=/usr DESTDIR="$tmp/dest"
[ -z "$(find "$tmp/dest" ! -type d)" ] || wrong "DESTDIR: left: $(find "$tmp/dest" ! -type d)"
exit $failed
