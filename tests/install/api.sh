# The examples against the installed tree, found by pkg-config: C shared and static, as C99 and as C++; Python by ctypes.
. "$(dirname "$0")/lib.sh"
pc=$(find "$FLATOUT_STAGE" -name flatout.pc)
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
examples=$FLATOUT_STAGE/share/doc/flatout/examples/api
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$FLATOUT_BUILD/CMakeCache.txt")

[ "$(pkg-config --modversion flatout)" = "$version" ] || wrong "flatout.pc has version $(pkg-config --modversion flatout)"
lines=$(wc -l <"$examples/meter.c")
[ "$lines" -le 40 ] || wrong "meter.c has $lines lines"

# right NAME: what a run said. The stand-in waits 30 ms for 16384 tokens: at most 49.97 % of 64 x 989 TFLOP/s, which no
# machine can pass, less on a busy one; causal is 0.89 of it whatever the time.
right() {
	awk '/^median MFU/ { full = $3; causal = $8 } /^step/ { steps++ } /^of 989 TFLOP/ { peak = 1 }
		END { exit !(steps == 4 && peak && full > 1 && full <= 50.0 && causal / full > 0.87 && causal / full < 0.91) }' "$tmp/out" ||
		wrong "$1 says: $(cat "$tmp/out")"
}
# shellcheck disable=SC2046 # flags are words
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror "$examples/meter.c" -o "$tmp/meter" $(pkg-config --cflags --libs flatout) || wrong "meter.c does not compile"
LD_LIBRARY_PATH=$libdir "$tmp/meter" >"$tmp/out" 2>&1 || wrong "meter: $(cat "$tmp/out")"
right meter
# shellcheck disable=SC2046
"$cc" "$examples/meter.c" -o "$tmp/meter-static" $(pkg-config --cflags flatout) "$libdir/libflatout.a" \
	$(pkg-config --static --libs-only-l flatout | sed 's/-lflatout//') || wrong "meter.c does not link to libflatout.a"
"$tmp/meter-static" >"$tmp/out" 2>&1 || wrong "static meter: $(cat "$tmp/out")"
right "static meter"
# The library's own words where something is wrong.
FLATOUT_DEVICES=/nonexistent LD_LIBRARY_PATH=$libdir "$tmp/meter" >"$tmp/out" 2>&1 && wrong "a missing FLATOUT_DEVICES is no error"
grep -q "^meter: .*nonexistent" "$tmp/out" || wrong "meter says: $(cat "$tmp/out")"
make -s -C "$examples" OUT="$tmp/by-make" >"$tmp/out" 2>&1 && [ -x "$tmp/by-make" ] || wrong "examples/api/Makefile: $(cat "$tmp/out")"

printf '#include <flatout.h>\n#include <flatout.h>\nint main() { return flatout_meter_steps(NULL) == -1 ? 0 : 1; }\n' >"$tmp/user.cc"
for cxx in g++ clang++; do
	command -v $cxx >/dev/null 2>&1 || { echo "api: no $cxx here: the header was not checked by it"; continue; }
	# shellcheck disable=SC2046
	$cxx -std=c++11 -Wall -Wextra -Wpedantic -Werror "$tmp/user.cc" -o "$tmp/user" $(pkg-config --cflags --libs flatout) || wrong "$cxx: the header does not compile"
	LD_LIBRARY_PATH=$libdir "$tmp/user" || wrong "$cxx: the program fails"
done

if command -v python3 >/dev/null 2>&1; then
	FLATOUT_LIB=$libdir/libflatout.so.0 python3 "$examples/meter.py" >"$tmp/out" 2>&1 || wrong "meter.py: $(cat "$tmp/out")"
	right meter.py
else
	echo "api: no python3 here: meter.py was not checked"
fi
exit $failed
