#!/bin/sh
# The pages as readers see them: in headless Chromium at 390 and 1,280 px, light and dark (tests/support/pages.py says what is looked
# at), and as well-formed XML.
built=$PWD
. "$(dirname "$0")/lib.sh"

[ -n "$python" ] || { echo "$name: no python3"; exit 77; }
browser=
for candidate in ${FLATOUT_BROWSER:-} chromium chromium-browser google-chrome; do
	command -v "$candidate" >/dev/null 2>&1 && browser=$candidate && break
done
[ -n "$browser" ] || { echo "$name: no Chromium (Debian: chromium)"; exit 77; }

# A run with all that a page shows: from the engine where there is one, from a log alone elsewhere.
mkdir run log
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	run 0 train $tiny --run.dir=run --checkpoint.every=3 --train.metered-every=4 --train.steps=12
	run 0 report run --html=run.html
	set -- run.html
else
	set --
fi
# Of a log alone, long, with guards, and with names that are long, odd or hostile.
awk 'BEGIN {
	for (i = 1; i <= 3000; i++) {
		s = i % 700 < 60 ? 0.31 : 0.1 + (i * 7919 % 100) / 5000
		printf "{\"event\":\"step\",\"step\":%d,\"loss\":%.5f,\"seconds\":%g,\"loss_tokens\":500,\"tokens_per_second\":%g,\"mfu\":%g,\"mfu_causal\":%g,\"hfu\":%g}\n", i, 2 + 6 / (1 + i / 50), s, 500 / s, 0.05 / s, 0.045 / s, 0.046 / s
		if (i % 300 == 0)
			printf "{\"event\":\"spike\",\"step\":%d,\"action\":\"warn\",\"loss\":9,\"z\":12.5}\n{\"event\":\"nonfinite\",\"step\":%d,\"action\":\"skip\",\"where\":\"a_name_without_any_space_that_is_so_long_that_no_telephone_has_room_for_it_in_one_line\"}\n", i, i
	}
}' >log/log.jsonl
cat >log/run.json <<'END'
{"schema": 1, "run": {"started": "<b>now</b>", "options": {"data.path": {"value": "/a/very/long/path/without/any/space/that/goes/on/and/on/and/on/until/it/ends.txt", "origin": "flag", "where": "--data.path"},
"sample.prompt": {"value": "</pre><script>document.title='broken'</script><img src='http://127.0.0.1:1/x'>", "origin": "flag", "where": "--sample.prompt"}}},
"machine": {"cpu": "\u202ereversed", "threads": 2, "isa": "avx2"}}
END
run 0 report log --html=log.html
set -- "$@" log.html
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	run 0 compare run log --html=compare.html
	set -- "$@" compare.html
fi
# A ladder with every kind of rung.
if [ -x "$built/test_ladder_html" ]; then
	"$built/test_ladder_html" ladder.html || wrong "no sample of a ladder"
	set -- "$@" ladder.html
fi

# Diagnoses of one rank, of 64, with hostile names, of a trace that shows nothing wrong.
if [ -x "$built/test_diagnose_html" ]; then
	for kind in one many hostile bare; do
		"$built/test_diagnose_html" diagnosis-$kind.html $kind || wrong "no sample of a diagnosis"
		set -- "$@" diagnosis-$kind.html
	done
fi
# And what the command writes of a small trace.
awk 'BEGIN {
	printf "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}], \"traceEvents\": [\n"
	event = "{\"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"cat\": \"%s\", \"name\": \"%s\", \"ts\": %d, \"dur\": %d, \"args\": {%s}}"
	for (n = 0; n < 6; n++) {
		at = n * 1000
		printf (n ? ",\n" : "") event ",\n", "user_annotation", "ProfilerStep#" n, at, 999, ""
		printf event ",\n", "user_annotation", "enumerate(DataLoader)#__next__", at, 400, ""
		printf event ",\n", "cuda_runtime", "cudaLaunchKernel", at + 410, 5, "\"correlation\": " n + 1
		printf event, "kernel", "ampere_sgemm_128x64_nn", at + 420, 500, "\"device\": 0, \"stream\": 7, \"correlation\": " n + 1
	}
	print "]}"
}' >trace.json
run '0|1' diagnose trace.json --html=diagnosis.html
set -- "$@" diagnosis.html

# Plans: of a pipeline of many stages, and of one device.
run 0 plan --model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 --global-tokens 16M --framework megatron --pp 32 --tokens 15T --kwh 0.05..0.12 --html=plan.html
run 0 plan --model gpt2 --cluster 1xH100 --seq 1024 --global-batch 64 --html=plan-one.html
run 0 ladder --plan --model llama-3.1-70b --cluster 2xHGX-B200 --seq 8192 --html=ladder-plan.html
run 0 compare --clusters 16xHGX-H100,16xHGX-B200 --model llama-3.1-70b --seq 8192 --global-batch 512 --tokens 15T --html=clusters.html
set -- "$@" plan.html plan-one.html ladder-plan.html clusters.html

for page; do
	"$python" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$page" || wrong "'$page' is not well formed"
done
code=0
"$python" "$source/tests/support/pages.py" "$browser" "$@" >seen || code=$?
[ "$code" = 77 ] && { cat seen; exit 77; }
[ "$code" = 0 ] || wrong "what a reader would see: $(cat seen)"
[ "$(grep -c ' 0 faults' seen)" = $(($# * 4)) ] || wrong "not every page was looked at: $(cat seen)"

# The looking itself: a page with a fault of each kind is told as such.
cat >bad.html <<'END'
<!DOCTYPE html><html><head><title>t</title></head><body style="background:#fff"><h1>h</h1><p style="color:#aaa">pale</p>
<p style="width:2000px">wide</p><p style="width:40px">a word and a word and a word and a word and a word and more</p><p style="position:absolute;top:5px">over</p><div style="overflow:hidden;width:20px;white-space:nowrap">cut off here</div>
<img src="http://127.0.0.1:1/x.png"><figure><svg role="img" width="5" height="5"><path d="M0 nan"/></svg></figure></body></html>
END
"$python" "$source/tests/support/pages.py" "$browser" bad.html >seen && wrong "a bad page passed"
for fault in 'px wide' 'contrast' 'overlap' 'cut off' 'squeezed' 'asks for' 'a figure of' 'caption' 'a path with' 'one ground'; do
	grep -q "$fault" seen || wrong "the check does not see: $fault"
done
finish
