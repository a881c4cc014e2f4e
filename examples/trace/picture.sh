#!/bin/sh
# Takes docs/diagnosis.png, the picture in README.md: the top of the page that diagnose writes of the example trace. Needs chromium.
#   examples/trace/picture.sh [FLATOUT]
set -eu
cd "$(dirname "$0")/../.."
flatout=${1:-build/release/flatout}
page=$(mktemp -d)
trap 'rm -rf "$page"' EXIT
"$flatout" diagnose examples/trace/slow-loader.json.gz --model llama-3.2-1b --seq 2048 --tokens-per-step 8192 --html "$page/page.html" >/dev/null || [ $? = 1 ]
# No sandbox: as root, in a container, chromium would not start; the page is ours.
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb --window-size=1100,665 \
	--screenshot="$PWD/docs/diagnosis.png" "file://$page/page.html" >/dev/null 2>&1
ls -l docs/diagnosis.png
