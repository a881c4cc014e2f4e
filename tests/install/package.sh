# The archive of `make dist` and the package of `make deb`: unpacked elsewhere they run; made twice they are the same bytes.
. "$(dirname "$0")/lib.sh"
arch=$(uname -m)
pack() { SOURCE_DATE_EPOCH=1790000000 sh "$FLATOUT_SOURCE/tools/package" "$1" "$FLATOUT_BUILD" "$2" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }; }

pack dist "$tmp/one"
pack dist "$tmp/two"
archive=$tmp/one/flatout-$version-linux-$arch.tar.gz
[ -s "$archive" ] || { wrong "no '$archive': $(ls "$tmp/one")"; exit 1; }
cmp "$archive" "$tmp/two/$(basename "$archive")" || wrong "two archives of one build differ"
tar -tzvf "$archive" | awk '$2 != "root/root" && $2 != "0/0" { exit 1 }' || wrong "files of the archive have an owner"
mkdir "$tmp/some where"
tar -xzf "$archive" -C "$tmp/some where" || wrong "the archive does not unpack"
top="$tmp/some where/flatout-$version"
usable "$top"
# It says which libraries it needs: exactly those of the program and of libflatout.
for file in "$top/bin/flatout" "$(find "$top" -name libflatout.so)"; do
	readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
done | sort -u >"$tmp/needed"
while read -r library; do
	grep -q "^  $library" "$top/README.txt" || wrong "README.txt does not name '$library'"
done <"$tmp/needed"
[ "$(grep -c '^  [a-z].*\.so' "$top/README.txt")" = "$(wc -l <"$tmp/needed")" ] || wrong "README.txt names others: $(cat "$top/README.txt")"

command -v dpkg-deb >/dev/null 2>&1 || { echo "package: no dpkg-deb here: the package was not checked"; exit $failed; }
command -v dpkg-shlibdeps >/dev/null 2>&1 || { echo "package: no dpkg-shlibdeps here (dpkg-dev): the package was not checked"; exit $failed; }
pack deb "$tmp/one"
pack deb "$tmp/two"
deb=$(echo "$tmp"/one/flatout_"$version"_*.deb)
cmp "$deb" "$tmp/two/$(basename "$deb")" || wrong "two packages of one build differ"
dpkg-deb -I "$deb" >"$tmp/info" || wrong "dpkg-deb -I fails"
for words in "Package: flatout" "Version: $version" "Architecture: $(dpkg --print-architecture)" "Depends: .*libc6 (>= .*libjansson4" "Installed-Size: [1-9]" \
	"Description: why training is slow" "flatout diagnose" "Maintainer: "; do
	grep -q "$words" "$tmp/info" || wrong "the control file lacks '$words': $(cat "$tmp/info")"
done
dpkg-deb -c "$deb" >"$tmp/files" || wrong "dpkg-deb -c fails"
for file in usr/bin/flatout usr/lib/ usr/share/man/man1/flatout.1.gz usr/share/bash-completion/completions/flatout usr/include/flatout.h \
	usr/share/doc/flatout/copyright usr/share/doc/flatout/changelog.gz usr/share/zsh/vendor-completions/_flatout; do
	grep -q " \./$file" "$tmp/files" || wrong "the package lacks '$file'"
done
grep -v '^l' "$tmp/files" | awk '{ print $1, $2, $6 }' | grep -E '^.{5}w|^.{8}w| (/|\./tmp|\./home)|^[^ ]+ (root/[^r]|[^r])' && wrong "modes or owners of the above"
dpkg-deb -x "$deb" "$tmp/root" || wrong "the package does not unpack"
usable "$tmp/root/usr"
dpkg-deb -e "$deb" "$tmp/control"
(cd "$tmp/root" && md5sum -c --quiet "$tmp/control/md5sums") || wrong "md5sums are wrong"
[ "$(wc -l <"$tmp/control/md5sums")" = "$(find "$tmp/root" -type f | wc -l)" ] || wrong "md5sums is not about all files"
grep -q '^libflatout 0 flatout' "$tmp/control/shlibs" || wrong "no shlibs file"
grep -q 'activate-noawait ldconfig' "$tmp/control/triggers" || wrong "the loader's cache is not refreshed"
exit $failed
