"""Opens pages in headless Chromium over its debugging pipe and checks what a reader would see. Standard library only.

    pages.py CHROMIUM [--shots FOLDER] PAGE...    (screenshots of whole pages, in pieces, into FOLDER)

Each page at 390 and 1,280 px, light and dark. Prints a line per fault; exit 1 where there is one, 77 where the browser does not start."""
import base64, fcntl, json, os, select, subprocess, sys, tempfile, time

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
TILE = 1600  # height of a screenshot

# What is wrong on a page, as a list of sentences; runs inside it.
LOOK = r"""
(() => {
  const faults = [], name = e => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined ? '.' + e.className : '') +
      ' "' + e.textContent.trim().slice(0, 40) + '"';
  const doc = document.documentElement;
  if (doc.scrollWidth > innerWidth) faults.push('the page is ' + doc.scrollWidth + ' px wide in a window of ' + innerWidth);
  if (!document.title) faults.push('no title');
  if (!document.querySelector('h1')) faults.push('no heading');

  // Each piece of text as it is painted, with its own rectangles.
  const pieces = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement, style = getComputedStyle(e);
    if (!node.nodeValue.trim() || e.closest('title,desc,style') || style.visibility === 'hidden') continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects())
      if (r.width > 0 && r.height > 0) pieces.push({ e, r, style });
  }
  if (pieces.length < 5) faults.push('only ' + pieces.length + ' pieces of text are visible');
  for (const { e, r } of pieces) {
    if (r.left < -0.5 || r.right > innerWidth + 0.5) faults.push('text leaves the window: ' + name(e));
    for (let b = e; b; b = b.parentElement) {
      const s = getComputedStyle(b), box = b.getBoundingClientRect();
      if (s.overflowX !== 'visible' && (r.left < box.left - 1 || r.right > box.right + 1)) faults.push('text is cut off: ' + name(e));
    }
  }
  // Overlaps: more than 2 px both ways (line boxes touch).
  pieces.sort((a, b) => a.r.top - b.r.top);
  for (let i = 0; i < pieces.length; i++)
    for (let k = i + 1; k < pieces.length && pieces[k].r.top < pieces[i].r.bottom - 2; k++) {
      const a = pieces[i].r, b = pieces[k].r;
      const w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const least = Math.min(a.height, b.height) * 0.3;
      if (w > 2 && h > least) faults.push('texts overlap: ' + name(pieces[i].e) + ' and ' + name(pieces[k].e));
    }

  // Squeezed: many short lines where the page has room for fewer.
  const lines = new Map();
  for (const { e, r } of pieces) {
    const l = lines.get(e) || { n: 0, w: 0 };
    lines.set(e, { n: l.n + 1, w: Math.max(l.w, r.width) });
  }
  for (const [e, l] of lines)
    if (l.n > 4 && l.w < 90) faults.push('text is squeezed into ' + l.n + ' lines: ' + name(e));

  // Contrast by WCAG 2.1: relative luminance of the text's colour against the first ground behind it.
  const parse = c => { const m = c.match(/rgba?\(([\d.]+),? ([\d.]+),? ([\d.]+)(?:[,/ ]+([\d.]+))?/); return m ? [+m[1], +m[2], +m[3], m[4] === undefined ? 1 : +m[4]] : null; };
  const lum = c => [0.2126, 0.7152, 0.0722].reduce((sum, k, i) => { const v = c[i] / 255; return sum + k * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
  const ground = (e, r) => {
    const x = (r.left + r.right) / 2, y = (r.top + r.bottom) / 2;
    for (let b = e; b; b = b.parentElement) {
      const stack = b.classList && (b.classList.contains('stack') || b.classList.contains('lane'));
      if (stack)  // labels on the parts of a bar or the spans of a lane: the one below the middle of the text
        for (const p of b.querySelectorAll('rect')) {
          const q = p.getBoundingClientRect();
          if (q.left <= x && x <= q.right && q.top <= y && y <= q.bottom) return parse(getComputedStyle(p).fill);
        }
      const c = parse(getComputedStyle(b).backgroundColor);
      if (c && c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const told = new Set();
  let least = 99;
  for (const { e, r, style } of pieces) {
    const a = lum(parse(style.color)), b = lum(ground(e, r));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    least = Math.min(least, ratio);
    const key = style.color + e.className;
    if (ratio < 4.5 && !told.has(key)) { told.add(key); faults.push('contrast ' + ratio.toFixed(2) + ': ' + name(e)); }
  }
  // Small print: 12 px at least.
  for (const { e, style } of pieces)
    if (parseFloat(style.fontSize) < 12) { faults.push('text of ' + style.fontSize + ': ' + name(e)); break; }

  let marks = 0, charts = 0;
  for (const f of document.querySelectorAll('figure')) {
    if (!f.checkVisibility()) continue;
    const r = f.getBoundingClientRect(), svg = [...f.querySelectorAll('svg[role=img]')];
    charts++;
    if (r.width < innerWidth * 0.5 || r.height < 40) faults.push('a figure of ' + Math.round(r.width) + ' x ' + Math.round(r.height) + ' px: ' + name(f));
    if (!f.querySelector('figcaption') || !f.querySelector('figcaption').textContent) faults.push('a figure without caption');
    if (!svg.length && !f.querySelector('.none')) faults.push('a figure without picture: ' + name(f));
    for (const s of svg) {
      const q = s.getBoundingClientRect();
      if (q.width < 100 || q.height < 15) faults.push('a picture of ' + Math.round(q.width) + ' x ' + Math.round(q.height) + ' px in ' + name(f));
      if (!s.getAttribute('aria-label')) faults.push('a picture without a name in ' + name(f));
      marks += s.querySelectorAll('path,rect').length;
    }
  }
  for (const e of document.querySelectorAll('path')) {
    const d = e.getAttribute('d');
    if (/nan|inf/i.test(d)) { faults.push('a path with ' + d.match(/.{0,10}(nan|inf).{0,10}/i)[0]); break; }
  }
  return { faults, pieces: pieces.length, charts, marks, contrast: Math.round(least * 100) / 100, height: doc.scrollHeight,
           colour: getComputedStyle(document.body).backgroundColor };
})()
"""


class Browser:
    def __init__(self, program, folder):
        there, mine = os.pipe()
        back, its = os.pipe()
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--user-data-dir=" + folder, "--remote-debugging-pipe", "--hide-scrollbars", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-extensions", "about:blank"]
        # The browser reads commands from descriptor 3 and answers on 4; moved out of the way first, they may be these two.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (there, its)]
        self.process = subprocess.Popen(words, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=lambda: [os.dup2(ends[0], 3), os.dup2(ends[1], 4)])
        for fd in (there, its, *ends):
            os.close(fd)
        self.out, self.back, self.text, self.number, self.events = mine, back, b"", 0, []
        self.session = None

    def read(self, until):
        while b"\0" not in self.text:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.back, 1 << 20)
            if not more:
                raise EOFError("the browser ended")
            self.text += more
        line, self.text = self.text.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, seconds=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session and not method.startswith("Target."):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            answer = self.read(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def wait(self, method, seconds=60):
        until = time.monotonic() + seconds
        while True:
            for i, event in enumerate(self.events):
                if event["method"] == method:
                    return self.events.pop(i)
            answer = self.read(until)
            if "method" in answer:
                self.events.append(answer)

    def open(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(domain + ".enable")

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return answer["result"].get("value")

    def close(self):
        try:
            self.call("Browser.close", seconds=5)
        except (OSError, EOFError, TimeoutError, RuntimeError):
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def look(browser, page, width, scheme, shots):
    address = "file://" + os.path.abspath(page)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.events.clear()
    browser.call("Page.navigate", url=address)
    browser.wait("Page.loadEventFired")
    # Closed details are read open: what is hidden until then must fit as well.
    browser.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    seen = browser.evaluate(LOOK)
    faults = seen["faults"]
    for event in browser.events:
        if event["method"] == "Network.requestWillBeSent" and event["params"]["request"]["url"] != address:
            faults.append("asks for " + event["params"]["request"]["url"][:100])
        if event["method"] == "Log.entryAdded":
            faults.append("the browser complains: " + event["params"]["entry"]["text"][:200])
    for top in range(0, seen["height"] if shots else 0, TILE):
        shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                            clip={"x": 0, "y": top, "width": width, "height": min(TILE, seen["height"] - top), "scale": 1})
        name = "%s-%d-%s-%d.png" % (os.path.basename(page).rsplit(".", 1)[0], width, scheme, top // TILE + 1)
        with open(os.path.join(shots, name), "wb") as f:
            f.write(base64.b64decode(shot["data"]))
    return seen


def main():
    words = sys.argv[1:]
    shots = None
    if "--shots" in words:
        at = words.index("--shots")
        shots = words[at + 1]
        del words[at:at + 2]
    program, pages = words[0], words[1:]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, folder)
        try:
            try:
                browser.open()
            except (OSError, EOFError, TimeoutError) as e:
                print("skipped: %s does not start: %s" % (program, e))
                return 77
            for page in pages:
                grounds = set()
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        seen = look(browser, page, width, scheme, shots)
                        grounds.add((scheme, seen["colour"]))
                        for fault in seen["faults"]:
                            print("%s, %d px, %s: %s" % (page, width, scheme, fault))
                        wrong += len(seen["faults"])
                        print("%s, %d px, %s: %d texts, %d figures, %d marks, contrast %.2f, %d px high, %d faults" %
                              (os.path.basename(page), width, scheme, seen["pieces"], seen["charts"], seen["marks"],
                               seen["contrast"], seen["height"], len(seen["faults"])))
                if len({colour for _, colour in grounds}) != 2:
                    print("%s: light and dark have one ground" % page)
                    wrong += 1
        finally:
            browser.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
