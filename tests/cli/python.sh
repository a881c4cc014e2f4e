#!/bin/sh
# python/flatout.py: its figures are those of the command, and what it cannot know is None.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "python: no python3"; exit 77; }
library=$(dirname "$bin")/libflatout.so.0
[ -e "$library" ] || { echo "python: no shared library beside $bin"; exit 77; }
# A library with a sanitizer in it loads into no program without one.
FLATOUT_LIBRARY=$library PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 "$python" -c 'import flatout; flatout.version()' >said 2>&1 ||
	! grep -q 'ASan runtime does not come first' said || { echo "python: the library has a sanitizer"; exit 77; }
cat >meter.py <<'E2'
import json, subprocess, sys, time
import flatout

meter = flatout.Meter("llama-3.1-8b", seq=8192, device="b200", devices=2)
assert meter.mfu() is None and meter.figures() == {}, "figures before the first step"
for _ in range(3):
    meter.step(tokens=2 * 21111, seconds=1.0)
told = json.loads(subprocess.check_output([sys.argv[1], "mfu", "--model", "llama-3.1-8b", "--seq", "8192", "--device", "b200",
                                           "--devices", "2", "--tokens-per-second", "42222", "--json"]))
for rule in ("mfu", "mfu_causal", "mfu_6n"):
    assert abs(meter.mfu(rule, "median") - told[rule]) < 1e-12, (rule, meter.mfu(rule), told[rule])
assert meter.tokens_per_second("mean") == 42222 and meter.steps == 3
assert set(meter.figures()) == {"mfu", "mfu_causal", "tokens_per_second"}
meter.reset()
assert meter.steps == 0 and meter.mfu() is None

# Without seconds the clock runs from step to step, and start() leaves out what lay between.
meter.step(8192)
time.sleep(0.02)
meter.step(8192)
assert meter.steps == 1 and meter.tokens_per_second("last") < 8192 / 0.02
time.sleep(0.2)
meter.start()
meter.step(8192)
assert meter.tokens_per_second("last") > 8192 / 0.2, "the pause before start() was counted"

assert flatout.Model("gpt2").parameters() == 124439808
assert abs(flatout.peak_flops("h100") - 989e12) < 1e9
for wrong in (lambda: flatout.Model("llama-9"), lambda: flatout.peak_flops("h999"), lambda: flatout.Model(config="{}"),
              lambda: flatout.Meter("gpt2", 1024), lambda: flatout.Meter("gpt2", 0, peak=1e12),
              lambda: flatout.Meter("gpt2", 1024, device="h100", peak=1e12)):
    try:
        wrong()
    except flatout.Error as e:
        assert str(e), "an error without a text"
    else:
        raise AssertionError("nothing was refused")
E2
FLATOUT_LIBRARY=$library PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 "$python" meter.py "$bin" || wrong "see above"
FLATOUT_LIBRARY=/nowhere/lib.so PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 "$python" -c 'import flatout; flatout.version()' >said 2>&1
grep -q "FLATOUT_LIBRARY: .*/nowhere/lib.so" said || wrong "a wrong FLATOUT_LIBRARY is not named: $(cat said)"
finish
