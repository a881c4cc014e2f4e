#!/usr/bin/env python3
"""Makes tests/golden/tokenizer_*: what Hugging Face tokenizers says about the files and texts that test_tokenizer reads.

  python3 -m venv V && V/bin/pip install -r bench/tokenizer/requirements.txt
  V/bin/python tests/golden/tokenizer_make.py text        # writes tokenizer_text.txt
  bench_tokenizer tests/golden/tokenizer_text.txt 700 tests/golden/tokenizer_flatout.json
  V/bin/python tests/golden/tokenizer_make.py             # trains tokenizer_gpt2.json, tokenizer_llama3.json; encodes

tokenizer_ids.txt has one line per tokenizer: its file's name, then the ids of tokenizer_text.txt without special tokens.
tokenizer_mixed.docs has small documents of many scripts, marks in any order, spaces of all kinds and broken bytes: 8 bytes
of length (little endian), then the text. tokenizer_mixed.ids has for each tokenizer of NAMES and each document 8 bytes of
count, then ids of 2. bench/tokenizer/compare.py says what the ids of broken bytes are, and does the same with 100 MB.
Made with tokenizers 0.23.3 on 2026-11-21.
"""
import pathlib
import random
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("tokenizer_flatout.json", "tokenizer_gpt2.json", "tokenizer_llama3.json", "tokenizer_qwen2.json",
         "tokenizer_llama2.json", "tokenizer_metaspace.json")
TEXT = HERE / "tokenizer_text.txt"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = ("the model reads a row of tokens and predicts what follows; each step moves the weights a little. we measure how "
         "long that took, how much of it was useful work and where the rest went. don't trust a number you can't repeat: "
         "it's the median that they'll quote, I'd say, and we've seen 'em all. Größe, naïve, façade, Ångström, señor").split()
# Contractions with the long s, numbers of several scripts, line ends, every Unicode space (and U+180E, which is none
# today), marks, joiners, flags, characters outside the basic plane, code.
EDGES = ["it'\u017f DON'T we'LL", "1 22 333 4444 55555 \u0663\u0664\u0665\u0666 \u00b2\u00bd \u2167 \u09ea", "\r\n\r\n", "\n\n\n   \n x",
         "\t\tfor (int i = 0; i < n; i++) {\n\t\t\tsum += a[i] * b[i]; // FMA\n\t\t}\n", "   \t  ", "trailing   \n",
         "a\u0085b\u00a0c\u1680d\u180ee\u2003f\u2028g\u2029h\u202fi\u205fj\u3000k\u200bl\ufeffm",
         "\u4e2d\u6587\u5206\u8bcd\u6d4b\u8bd5\uff0c\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\ud55c\uad6d\uc5b4 \ubb38\uc7a5",
         "\u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 e\u0301a\u0308",
         "\U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467\ufe0f \U0001F1E9\U0001F1EA \U00020000\U0001D49C \U0010FFFF",
         "!!!???...---===***\r\n", "x" * 200 + "\n", "aaaaaaaabababab", " " * 90 + "end", "https://example.org/a?b=c&d=%20#e_f",
         "<|begin_of_tex|> <|x|>", "\u00ad\u0100\u0143 \x01\x02\x7f\u0080\u009f"]


def make_text():
    rng, out = random.Random(1), []
    for i in range(700):
        out.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 9))))
        out.append(rng.choice(EDGES) if i % 9 == 0 else rng.choice(["\n", " ", "\n\n", "  "]))
    TEXT.write_bytes("".join(out + EDGES).encode())


def main():
    import tokenizers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    text, alphabet = TEXT.read_bytes().decode(), sorted(pre_tokenizers.ByteLevel.alphabet())

    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.train_from_iterator([text], trainers.BpeTrainer(vocab_size=450, special_tokens=["<|endoftext|>"], show_progress=False,
                                                         initial_alphabet=alphabet))
    gpt2.save(str(HERE / "tokenizer_gpt2.json"))

    llama3 = Tokenizer(models.BPE(ignore_merges=True))
    llama3.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3.decoder = decoders.ByteLevel()
    llama3.train_from_iterator([text], trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=alphabet))
    llama3.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    llama3.save(str(HERE / "tokenizer_llama3.json"), pretty=False)

    with open(HERE / "tokenizer_ids.txt", "w") as f:
        for name in NAMES[:3]:
            t = Tokenizer.from_file(str(HERE / name))
            ids = t.encode(text, add_special_tokens=False).ids
            assert t.decode(ids, skip_special_tokens=False) == text
            print(name, *ids, file=f)
    mixed(text)


def mixed(text):
    sys.path.insert(0, str(HERE.parent.parent / "bench/tokenizer"))
    import compare
    from tokenizers import AddedToken, normalizers
    docs = [*compare.made(random.Random(2), 16 << 10, (20, 60, 150))]
    texts = [text] + [d.decode() for d in docs if compare.is_utf8(d)]
    qwen2 = compare.byte_level(compare.QWEN2, 420, texts, normalizers.NFC())
    qwen2.add_special_tokens(["<|endoftext|>"])
    qwen2.add_tokens([AddedToken("foo_bar", normalized=False), AddedToken("foo", normalized=False)])
    compare.save(HERE, "tokenizer_qwen2.json", qwen2)
    # Pieces of two words: merges that cross spaces, which Llama 2's own have not.
    llama2 = compare.sentence("\u2581*[^\u2581]+(?:\u2581[^\u2581]+)?|\u2581+", 800, texts, 150)
    compare.save(HERE, "tokenizer_llama2.json", llama2)
    llama2["normalizer"] = None
    llama2["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    compare.save(HERE, "tokenizer_metaspace.json", llama2)
    with open(HERE / "tokenizer_mixed.docs", "wb") as f:
        for d in docs:
            f.write(struct.pack("<q", len(d)) + d)
    with open(HERE / "tokenizer_mixed.ids", "wb") as f:
        for name in NAMES:
            for ids in compare.Reference(HERE / name).encode(docs):
                f.write(struct.pack(f"<q{len(ids)}H", len(ids), *ids))


if __name__ == "__main__":
    make_text() if sys.argv[1:] == ["text"] else main()
