#!/usr/bin/env python3
"""Our tokenizer against Hugging Face tokenizers: every id on 100 MB of mixed text, and the speed on the same two cores.

  python3 -m venv V && V/bin/pip install -r bench/tokenizer/requirements.txt
  cmake --build build/release --target bench_tokenizer
  V/bin/python bench/tokenizer/compare.py D text          # D/docs: the text, from this machine's files and made up
  V/bin/python bench/tokenizer/compare.py D train         # D/*.json: tokenizers of the published styles and sizes
  V/bin/python bench/tokenizer/compare.py D ids build/release/bench_tokenizer     # compares, document by document
  V/bin/python bench/tokenizer/compare.py D speed build/release/bench_tokenizer   # interleaved; 2 threads each

The text depends on what is installed, so its SHA-256 is printed. A document of bytes that are not all UTF-8 has no Python
string: its valid runs and the broken bytes between them are compared one by one (see pieces_of), as docs/data.md says.
"""
import array
import gettext
import gzip
import hashlib
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("RAYON_NUM_THREADS", "2")
import tokenizers  # noqa: E402
import unicodedata2  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
MARK = "\u2581"
DOC_BYTES = 64 << 10   # documents are cut to at most this
BATCH_BYTES = 2 << 20  # so that Hugging Face's encodings stay below a gigabyte
SOURCES = (("/usr/share/man", 22), ("/usr/share/locale", 22), ("/usr/share/perl", 8), ("/usr/share/doc", 12), ("/usr/share/vim", 6),
           ("/usr/share/i18n", 5), ("python", 14))  # megabytes of each at most
MADE = 24  # megabytes made up


# ---- text

def read_source(path):
    if path.suffix == ".mo":
        with open(path, "rb") as f:
            return "\n".join(v for k, v in sorted(gettext.GNUTranslations(f)._catalog.items(), key=str)
                             if isinstance(v, str)).encode()
    return (gzip.open(path) if path.suffix == ".gz" else open(path, "rb")).read()


def files_of(root):
    if root == "python":
        root = pathlib.Path(tokenizers.__file__).parent.parent
        return [p for p in sorted(pathlib.Path(root).rglob("*.py"))]
    return [p for p in sorted(pathlib.Path(root).rglob("*")) if p.is_file() and not p.is_symlink()]


def natural(rng):
    for root, megabytes in SOURCES:
        left, paths = megabytes << 20, files_of(root)
        rng.shuffle(paths)
        for p in paths:
            if left <= 0:
                break
            try:
                data = read_source(p)
            except (OSError, ValueError, EOFError, UnicodeError, AttributeError, struct.error):
                continue
            if b"\0" in data[:4096] or not data:
                continue
            for i in range(0, min(len(data), 1 << 20), DOC_BYTES):  # cut anywhere: some cuts break a character
                yield data[i:i + DOC_BYTES]
                left -= len(data[i:i + DOC_BYTES])


def made(rng, left, sizes=(40, 400, 4000, 20000)):
    """`left` bytes of texts that no file has: every letter there is, emoji, spaces of all kinds, marks in any order, broken bytes."""
    by_script, marks, spaces = {}, [], []
    for c in range(0x110000):
        if 0xd800 <= c < 0xe000:
            continue
        category = unicodedata2.category(chr(c))
        if category[0] in "LN":
            by_script.setdefault(c >> 8, []).append(chr(c))
        elif category[0] == "M":
            marks.append(chr(c))
        elif category[0] == "Z" or chr(c).isspace():
            spaces.append(chr(c))
    blocks = sorted(by_script)
    emoji = [chr(c) for c in [*range(0x1f300, 0x1f650), *range(0x1f680, 0x1f700), *range(0x1f900, 0x1fa00)]]
    edges = ["'s", "'S", "'\u017f", "don't", "WE'LL", "'re", "\r\n", "\n\n", "  ", "\t", "   \n ", "123", "4567", "\u00bd", "...", "!?",
             "--", "\u2581", "\u2581\u2581", "<0x0A>", "<s>", "</s>", "<unk>", "<|endoftext|>", "_", "foo_bar", "=>", "\u200d", "\ufe0f"]
    while left > 0:
        kind, out = rng.randrange(8), []
        scripts = [by_script[b] for b in rng.choices(blocks, k=3)]
        size = rng.choice(sizes)
        while len(out) < size:
            k = rng.randrange(10)
            if kind == 0 or k < 4:
                out += rng.choices(rng.choice(scripts), k=rng.randrange(1, 9)) + [" "]
            elif k == 4:
                out += rng.choices(edges, k=rng.randrange(1, 4))
            elif k == 5:
                out += [rng.choice(emoji), rng.choice(("", "\ufe0f", "\u200d" + rng.choice(emoji), "\U0001f3fd"))]
            elif k == 6:
                out += [rng.choice(rng.choice(scripts))] + rng.choices(marks, k=rng.randrange(1, 4))
            elif k == 7:
                out += rng.choices(spaces + [" "] * 9 + ["\n"] * 3, k=rng.randrange(1, 6))
            elif k == 8:
                out.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
            else:
                out.append(chr(rng.randrange(0x110000)))
        text = "".join(out).encode("utf-8", "surrogatepass")  # a lone surrogate is broken UTF-8
        if kind == 6:
            text = bytearray(text)
            for _ in range(1 + len(text) // 50):
                text[rng.randrange(len(text))] = rng.randrange(256)
        elif kind == 7:
            text = rng.randbytes(size)
        yield bytes(text)
        left -= len(text)


def make_text(d):
    rng, digest, counts = random.Random(1), hashlib.sha256(), [0, 0, 0]
    docs = [*natural(rng), *made(rng, MADE << 20)]
    rng.shuffle(docs)
    with open(d / "docs", "wb") as f:
        for doc in docs:
            digest.update(doc)
            f.write(struct.pack("<q", len(doc)) + doc)
            counts = [counts[0] + 1, counts[1] + len(doc), counts[2] + (b"\xff" in doc or not is_utf8(doc))]
    print(f"{counts[0]} documents, {counts[1] / 1e6:.1f} MB, {counts[2]} of them not UTF-8, SHA-256 {digest.hexdigest()}")


def is_utf8(doc):
    try:
        doc.decode()
        return True
    except UnicodeDecodeError:
        return False


def read_docs(d):
    with open(d / "docs", "rb") as f:
        while head := f.read(8):
            yield f.read(struct.unpack("<q", head)[0])


# ---- tokenizers

def sample(d, megabytes):
    out, left = [], megabytes << 20
    for doc in read_docs(d):
        if left > 0 and is_utf8(doc):
            out.append(doc.decode())
            left -= len(doc)
    return out


def byte_level(pattern, vocab, texts, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, show_progress=False,
                                                     initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return t


def sentence(pattern, vocab, texts, alphabet=4000):
    """Trained on pieces of a pattern, then given Llama 2's layout: special tokens, bytes, the rest; no pre-tokenizer."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", MARK)
    t.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab - 259, show_progress=False, limit_alphabet=alphabet))
    trained = json.loads(t.to_str())
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    have = set(tokens)
    tokens += [k for k, _ in sorted(trained["model"]["vocab"].items(), key=lambda x: x[1]) if k not in have]
    # The text may spell "</s>"; a merge to the special token would read it from there.
    trained["model"]["merges"] = [m for m in trained["model"]["merges"] if not have & {*m, "".join(m)}]
    trained["model"].update(vocab={k: i for i, k in enumerate(tokens)}, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    trained["added_tokens"] = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                                "normalized": False, "special": True} for i in range(3)]
    trained["pre_tokenizer"] = None
    trained["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    trained["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return trained


def save(d, name, t):
    text = json.dumps(t, ensure_ascii=False) if isinstance(t, dict) else t.to_str(pretty=True)
    (d / name).write_text(text)
    print(f"{name}: {Tokenizer.from_str(text).get_vocab_size()} tokens", flush=True)


def train(d):
    t = byte_level(None, 50256, sample(d, 16))
    t.add_special_tokens(["<|endoftext|>"])
    save(d, "gpt2.json", t)
    t = byte_level(LLAMA3, 128000, sample(d, 32), ignore_merges=True)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    save(d, "llama3.json", t)
    t = byte_level(QWEN2, 50000, sample(d, 16), normalizers.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("foo_bar", normalized=False), AddedToken("<tool>", normalized=False)])
    save(d, "qwen2.json", t)
    words = sentence(f"{MARK}*[^{MARK}]+|{MARK}+", 32000, sample(d, 12))
    save(d, "llama2.json", words)
    words["normalizer"] = None
    words["pre_tokenizer"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    save(d, "llama2_metaspace.json", words)
    save(d, "llama2_phrases.json", sentence(f"{MARK}*[^{MARK}]+(?:{MARK}[^{MARK}]+)?|{MARK}+", 32000, sample(d, 6)))


NAMES = ("gpt2", "llama3", "qwen2", "llama2", "llama2_metaspace", "llama2_phrases")


# ---- ids

class Reference:
    """Hugging Face's ids for bytes."""

    def __init__(self, path):
        self.whole = Tokenizer.from_file(str(path))
        config = json.loads(self.whole.to_str())
        self.sentence = config["model"]["byte_fallback"]
        for part in ([config["normalizer"]] if config["normalizer"] else []) if self.sentence else []:
            part["normalizers"] = part["normalizers"][-1:]
        if self.sentence and config["pre_tokenizer"]:
            config["pre_tokenizer"]["prepend_scheme"] = "never"
        self.rest = Tokenizer.from_str(json.dumps(config))
        # The mark stands in front of a text that begins with broken bytes, too.
        self.mark = ([self.whole.token_to_id(MARK)]
                     if self.whole.encode("x", add_special_tokens=False).ids != self.rest.encode("x", add_special_tokens=False).ids
                     else [])
        for t in (self.whole, self.rest):
            t.encode_special_tokens = True  # in a text they are text
        order = [*range(33, 127), *range(0xa1, 0xad), *range(0xae, 0x100)]
        order += [b for b in range(256) if b not in order]
        self.letter = {b: chr(b if i < 188 else 256 + i - 188) for i, b in enumerate(order)}

    def pieces_of(self, doc):
        """Texts, and between them the bytes that are no UTF-8: those are encoded by the model alone, as one piece."""
        return [p for p in re.split("([\udc80-\udcff]+)", doc.decode("utf-8", "surrogateescape")) if p]

    def broken(self, piece):
        raw = [ord(c) - 0xdc00 for c in piece]
        if self.sentence:
            return [self.whole.token_to_id(f"<0x{b:02X}>") for b in raw]
        return [x.id for x in self.whole.model.tokenize("".join(self.letter[b] for b in raw))]

    def encode(self, docs):
        parts, firsts, rests = [], [], []
        for doc in docs:
            for i, p in enumerate(self.pieces_of(doc)):
                if "\udc80" <= p[0] <= "\udcff":
                    parts.append((0, None, (self.mark if i == 0 else []) + self.broken(p)))
                elif i == 0:
                    parts.append((0, firsts, len(firsts)))
                    firsts.append(p)
                else:
                    parts.append((0, rests, len(rests)))
                    rests.append(p)
            parts.append(None)
        a, b = ([e.ids for e in t.encode_batch_fast(texts, add_special_tokens=False)]  # as encode_batch, without offsets
                for t, texts in ((self.whole, firsts), (self.rest, rests)))
        out = []
        for p in parts:
            if p is None:
                yield out
                out = []
            else:
                out += p[2] if p[1] is None else (a if p[1] is firsts else b)[p[2]]


def batches(docs):
    batch, size = [], 0
    for doc in docs:
        batch.append(doc)
        size += len(doc)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def ids(d, bench, names):
    wrong = 0
    for name in names:
        out, again = d / f"{name}.ids", d / f"{name}.again.json"
        subprocess.run([bench, "encode", d / f"{name}.json", d / "docs", "2", out, again], check=True, stdout=subprocess.DEVNULL)
        reference, saved = Reference(d / f"{name}.json"), Reference(again)
        docs = tokens = size = different = 0
        with open(out, "rb") as f:
            for k, batch in enumerate(batches(read_docs(d))):
                # What we have read and written again must say the same: every tenth batch through that file.
                for doc, want in zip(batch, (saved if k % 10 == 9 else reference).encode(batch), strict=True):
                    got = array.array("i", f.read(4 * struct.unpack("<q", f.read(8))[0]))
                    docs, tokens, size = docs + 1, tokens + len(want), size + len(doc)
                    if got != array.array("i", want):
                        different += 1
                        got = list(got)
                        at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
                        if different <= 3:
                            print(f"{name}: document {docs - 1} differs at id {at}: {got[at - 2:at + 4]} / {want[at - 2:at + 4]}: "
                                  f"{reference.whole.decode(want[max(0, at - 3):at + 4])!r}")
            assert not f.read(1)
        wrong += different
        out.unlink()
        print(f"{name:18} {docs} documents, {size / 1e6:.1f} MB, {tokens} ids: {different} documents differ", flush=True)
    return wrong


# ---- speed

def speed(d, bench, names, rounds=5, megabytes=8):
    """Wall and CPU seconds, one round after the other: on a shared machine the CPU's are the steadier."""
    docs = [x for x in read_docs(d) if is_utf8(x)][::7]
    while sum(map(len, docs)) > megabytes << 20:
        docs.pop()
    size = sum(map(len, docs)) / 1e6
    with open(d / "speed", "wb") as f:
        for doc in docs:
            f.write(struct.pack("<q", len(doc)) + doc)
    texts = [list(map(bytes.decode, b)) for b in batches(docs)]
    for name in names:
        t, ours, theirs = Tokenizer.from_file(str(d / f"{name}.json")), [], []
        t.encode_special_tokens = True
        for _ in range(rounds):
            said = subprocess.run([bench, "encode", d / f"{name}.json", d / "speed", "2"], check=True, capture_output=True, text=True)
            ours.append(tuple(map(float, re.search(r"([\d.]+) s, CPU ([\d.]+) s", said.stdout).groups())))
            wall = cpu = 0.0
            for batch in texts:
                start = time.perf_counter(), time.process_time()
                encoded = t.encode_batch(batch, add_special_tokens=False)
                wall, cpu = wall + time.perf_counter() - start[0], cpu + time.process_time() - start[1]
                del encoded
            theirs.append((wall, cpu))
        for k, what in enumerate(("wall", "CPU")):
            ratios = sorted(h[k] / o[k] for o, h in zip(ours, theirs))
            rates = [sorted(size / x[k] for x in side) for side in (ours, theirs)]
            print(f"{name:18} {size:.1f} MB, {rounds} rounds, MB per {what} second, median (best): ours {rates[0][rounds // 2]:.2f} "
                  f"({rates[0][-1]:.2f}), encode_batch {rates[1][rounds // 2]:.2f} ({rates[1][-1]:.2f}); ratio {ratios[rounds // 2]:.1f}, "
                  f"lowest {ratios[0]:.1f}, best / best {rates[0][-1] / rates[1][-1]:.1f}", flush=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    d = pathlib.Path(sys.argv[1])
    d.mkdir(parents=True, exist_ok=True)
    if sys.argv[2] == "text":
        make_text(d)
    elif sys.argv[2] == "train":
        train(d)
    elif sys.argv[2] == "ids":
        sys.exit(1 if ids(d, sys.argv[3], sys.argv[4:] or NAMES) else 0)
    else:
        speed(d, sys.argv[3], sys.argv[4:] or NAMES)


if __name__ == "__main__":
    main()
