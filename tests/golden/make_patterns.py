#!/usr/bin/env python3
"""Makes tests/golden/patterns.txt: how Hugging Face tokenizers cuts texts by patterns that PCRE2 runs here.

  python3 -m venv V && V/bin/pip install -r bench/tokenizer/requirements.txt
  V/bin/python tests/golden/make_patterns.py > tests/golden/patterns.txt

A line per pattern: the pattern, the number of pieces and FNV-1a (64 bits) of their lengths in bytes (each as 8 bytes, little endian), over
every character there is (in texts of 4,096 neighbours), then the same over 2,000 texts of random characters (random_text below,
which tests/unit/test_tokenizer_styles.c repeats). The first one is o200k's, the second DeepSeek's and Kimi's kind. Made with tokenizers 0.23.3.
"""
import struct

import tokenizers
from tokenizers import Regex, pre_tokenizers

O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = [
    O200K,
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{Han}+|[^\p{Han}]+",
    r"\P{Hiragana}+",
    r"[\p{Katakana}\p{Hang}]+|\p{Greek}+|\p{Arab}+|\p{^Common}+",
    r"\p{Devanagari}+|\p{Bengali}|\p{Latin}{1,5}",
    r"\p{Kawi}+|\p{Garay}+|\p{Zinh}+",
    r"\d{1,3}|\D+",
    r"[^\d\p{Uppercase Letter}]+",
    r"\p{Lu}\p{Ll}*|\p{Lt}|\p{Lm}|\p{Lo}+|\p{Mn}|\p{Mc}|\p{Me}",
    r"\p{Nd}+|\p{Nl}|\p{No}|\p{Pc}|\p{Pd}|\p{Ps}|\p{Pe}|\p{Pi}|\p{Pf}|\p{Po}+",
    r"\p{Sm}+|\p{Sc}|\p{Sk}|\p{So}+|\p{Zs}|\p{Zl}|\p{Zp}|\p{Cc}+|\p{Cf}|\p{Co}+|\p{Cn}+",
    r"\p{C}+|\p{Z}+|\p{S}+|\p{P}+|\p{M}+|\p{N}+|\p{L}+",
]
assert tokenizers.__version__ == "0.23.3", tokenizers.__version__


def random_text(seed):
    x, out = seed, []
    for i in range(60):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        c = (x >> 33) % (0x80, 0x3000, 0x110000, 0x2000)[i % 4]
        out.append(" " if i % 7 == 0 else chr(c) if not 0xd800 <= c < 0xe000 else "\u4e2d")
    return "".join(out)


def summed(split, texts):
    pieces, h = 0, 0xcbf29ce484222325
    for text in texts:
        for piece, _ in split.pre_tokenize_str(text):
            pieces += 1
            for b in struct.pack("<Q", len(piece.encode())):
                h = (h ^ b) * 0x100000001b3 % 2**64
    return f"{pieces} {h:016x}"


CHARS = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
ALL = ["".join(map(chr, CHARS[i:i + 4096])) for i in range(0, len(CHARS), 4096)]
for p in PATTERNS:
    split = pre_tokenizers.Split(Regex(p), "isolated")
    print(p, summed(split, ALL), summed(split, map(random_text, range(2000))), sep="\t")
