#!/usr/bin/env python3
"""Writes tests/golden/text: tokenizers trained by Hugging Face's `tokenizers`, and the ids that the
library gives for texts of all kinds. agent/engine/text/ must give the same ids.

usage: pip install tokenizers && tests/golden/make_tokenizers.py [DIR]
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

LINES = """The quick brown fox jumps over the lazy dog, and it's not the first time that it does so; they're all used to it.
You can't have it, we've said so and we'll say so again: I'd rather have 12 apples, 345 pears and 67890 plums for $3.14.
for (int i = 0; i < n; i++) {\n\tif (a[i] != b[i])\n\t\treturn -1;\n}\n
Größe, Übermut, straße: déjà vu, naïve café, señor, coração. Łódź, žluťoučký kůň.
Быстрая лиса прыгает через ленивую собаку. Ακόμη και η αλεπού.
快速的棕色狐狸跳过懒狗。速い茶色の狐がのろまな犬を飛び越える。 빠른 갈색 여우가 게으른 개를 뛰어넘는다.
שלום עולם، مرحبا بالعالم। नमस्ते दुनिया สวัสดีชาวโลก
😀 😃 👩‍👩‍👧 🇩🇪 ½ ² ① ٣٤٥ Ⅷ — “quoted” …""".split("\n")
CORPUS = [line.replace("\\n", "\n").replace("\\t", "\t") + "\n" for line in LINES] * 20

TEXTS = [
    "", " ", "  ", "a", "Hello, world!", "The quick brown fox", " leading and trailing ", "tabs\tand\nnew\r\nlines\r\r\n\n\n end",
    "it's IT'S they'Re we'LL i'm I'D can'T 'tis ''s '\u017f", "12345 1 22 333 4444 55555 1,234.56 ٣٤٥ ½²①Ⅷ",
    "a    b   c  d", "   \n   \n\n  x  \n", "\t\t\tx\t ", "\u00a0x\u00a0\u00a0y\u3000z\u2028w\u180ev\u200bu\u0085t\u001cs",
    "Größe déjà vu naïve café e\u0301 n\u0303", "Быстрая лиса 快速的棕色狐狸 速い 빠른 שלום नमस्ते สวัสดี", "😀😃 👩‍👩‍👧 🇩🇪🇫🇷 ☃️",
    "x" * 120, "ab" * 60, " " * 130, "\n" * 60, "the the the the" * 8, "!?!?!?...###$$$%%%^^^&&&***((()))", "http://example.org/a/b?c=d&e=f#g",
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|> <|endoftext|>", "<|endoftext", "<s> a </s>", "<s></s>x<s>", "<0x0A> <0xZZ>",
    "a <mask> b", "a<mask>b  <mask>  <mask>", "   <mask>", "<stop>  x", "<stop>\n\n<stop>", "word\u2581word \u2581 x", "\u2581", "  two  three   ",
    "<user>   hello<user>", "    indented\n        more", "\x00\x01\x02\x7f", "\ufeffbom", "\uffff\U0010ffff\ue000", "a\u0300\u0301\u0302b\u20dd", "ÿþ",
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n",
]
BYTES = [b"\xff", b"a\xffb", b"\xe2\x82", b"\xe2\x82x", b"caf\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"x \xfe\xff y z\n\x80\n", b"\xf0\x9f\x98 \xf0\x9f\x98\x80"]


# Texts for the tokenizers that normalize: composed and decomposed forms, marks in and out of order,
# Hangul, compatibility characters, white space, and characters newer than the library's tables of
# Unicode 9.
NORMALS = [
    "", " ", "Hello, World!", "e\u0301 \u00e9 E\u0301 \u00c9", "a\u0323\u0302 a\u0302\u0323 \u1ead \u1e9b\u0323", "\u212b \u2126 \u00c5 A\u030a",
    "\u1112\u1161\u11ab \ud55c \u1112\u1161 \uac00\u11a8 \u3131\u314f \uffa1\uffc2", "\ufb01 \uff21\uff22 \u2460 \u00bd \u2163 \ufdfa \u32a4 \u33c2",
    "\u30ab\u3099 \uff76\uff9e \u304b\u3099", "\u0915\u093c \u0958 \u09c7\u09be \u0bc6\u0bbe \u0dd9\u0dcf\u0dca", "\u0340\u0341\u0343\u0344 \u0374 \u037e \u0387",
    "x" + "\u0301\u0323" * 40 + "y", "\u0301 leading mark", "I \u0130 \u0131 \u03a3\u0391\u03a3 \u01c5 \u1e9e \u00df \u0410\u0411", "na\u00efve CAF\u00c9 \u017d\u0141",
    "  two  three \t\n ", "\u00a0nbsp\u2003em\u3000wide\u00a0", "\u200b\u200d\ufeff\u2028x", "``quoted''", "<|END|> a <|end|> b<|End|>", "<|\u1e69|> <|s\u0323\u0307|> <|s\u0307\u0323|>", "\uac00\u11a7\u11a8 \u1100\u1161\u11a7",
    "\u2126<|endoftext|>\u0301x", "<s>\u00e9</s>", "\U00011935\U00011930 \U00011938", "\u32ff \ua7f2 \U00010781 \U0001e030", "a\u0345\u1abf a\u1abf\u0345", "\u1cf2\u07fd x",
    "\u2581x \u2581", "\U0001d15e \U0001d1bb \U0002f800", "\u00e9" * 300 + "\u0301", "\u4e2d" * 260 + "\u0302\u6587", "<user>\u00c9 <user>\u0301",
]


def random_normals(n, seed):
    pick = random.Random(seed)
    pools = ["aeiouAEIOU", "\u0301\u0300\u0323\u0302\u0345\u0327", "éüÀÖñç", "\u1100\u1161\u11a8\uac00", "ﬁ①Ａｶﾞ", "कि\u093cা", " \u00a0\u3000", "\u0591\u05b0\u064b\u0651", "x1."]
    return ["".join(pick.choice(pick.choice(pools)) for _ in range(pick.randrange(1, 50))) for _ in range(n)]


def random_texts(n, seed):
    """Returns n texts of characters whose classes are the same in every recent Unicode version."""
    pick = random.Random(seed)
    pools = [" \t\n\r", "  ", "abcdefgh", "THEthe", "0123456789", "'’`\"", ".,;:!?-_()[]{}<>|/\\@#$%^&*+=~", "éüßñçøłžÀÖ", "жбдЫЯ", "αβγΩ",
             "中文字日本語", "한국어", "שלום", "مرحبا", "नमस्ते", "ไทย", "😀🎉👍", "½²①Ⅷ٣", "\u00a0\u2003\u3000\u2028", "\u0301\u0308\u200d\ufe0f", "\u2581", "\x00\x1b\x7f"]
    return ["".join(pick.choice(pick.choice(pools)) for _ in range(pick.randrange(1, 60))) for _ in range(n)]


def train(pre, size, special, alphabet):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    return t


def byte_level(pre, size, special, **model):
    t = train(pre, size, special, pre_tokenizers.ByteLevel.alphabet())
    o = json.loads(t.to_str())
    o["model"].update(model)
    t = Tokenizer.from_str(json.dumps(o))
    t.decoder = decoders.ByteLevel()
    return t


def characters(pre, size):
    """Returns a BPE of characters with the 256 byte tokens, as in LLaMA-2's file."""
    o = json.loads(train(pre, size, [], []).to_str())
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    words = [w for w in sorted(o["model"]["vocab"], key=o["model"]["vocab"].get) if w not in "快速的棕色狐狸"]
    vocab = {w: i for i, w in enumerate(first + words)}
    merges = [tuple(m) for m in o["model"]["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.add_special_tokens([AddedToken(w, normalized=False, special=True) for w in first[:3]])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def tokenizers():
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 700, ["<|endoftext|>"])
    llama = [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    t = byte_level(pre_tokenizers.Sequence(llama), 800, [], ignore_merges=True)
    t.add_special_tokens(["<|endoftext|>", "<s>", "</s>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])])
    yield "llama3", t
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), 600, ["<|endoftext|>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<stop>", rstrip=True), AddedToken("<s>", normalized=True)])
    t.add_tokens([AddedToken("    ", normalized=True), AddedToken("<user>", normalized=False), AddedToken("<s> a", normalized=False)])
    yield "added", t
    digits = [pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"), pre_tokenizers.Split(Regex(r"\s?\p{L}+|\p{N}+|.|\n"), "removed", invert=True),
              pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("the", "isolated"),
              pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    yield "sequence", byte_level(pre_tokenizers.Sequence(digits), 500, ["<|endoftext|>"])
    t = characters(pre_tokenizers.Metaspace(), 700)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.add_tokens([AddedToken("<user>", normalized=True)])
    yield "mixtral", t
    t = characters(pre_tokenizers.Metaspace(split=False, prepend_scheme="first"), 900)  # merges can cross blanks
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=False, prepend_scheme="first")
    t.add_tokens([AddedToken("<user>", normalized=True)])
    yield "metaspace", t


def normalizing():
    end = ["<|endoftext|>"]
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 330, end)  # as Qwen's
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken("<|\u1e69|>", normalized=True), AddedToken("<user>", normalized=False)])
    yield "nfc", t
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), 330, end)
    t.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                         normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend("\u00bb")])
    t.add_tokens([AddedToken("<|End|>", normalized=True), AddedToken("<user>", normalized=False)])
    yield "folded", t
    t = characters(pre_tokenizers.Metaspace(), 330)  # as LLaMA-2's, after NFKC
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581"), normalizers.NFC()])
    t.add_tokens([AddedToken("<user>", normalized=True)])
    yield "nfkc", t
    t = characters(pre_tokenizers.Metaspace(), 330)
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=False, prepend_scheme="first")
    yield "nfkd", t


def of_bytes(t, data):
    """Returns the ids of bytes. Each byte that is not valid UTF-8 is a token of its own. The bytes
    between such bytes are encoded as a text."""
    ids, text = [], ""
    letters = {v: k for k, v in zip(range(256), byte_letters())}
    for c in data.decode("utf-8", "surrogateescape") + "\udc00":
        if not 0xDC00 <= ord(c) <= 0xDCFF:
            text += c
            continue
        ids += t.encode(text, add_special_tokens=False).ids if text else []
        text = ""
        if ord(c) > 0xDC00:
            ids.append(t.token_to_id(next(k for k, v in letters.items() if v == ord(c) - 0xDC00)))
    return ids


def byte_letters():
    """Returns GPT-2's letter of each byte, computed by the library."""
    probe = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    out = []
    for byte in range(256):  # alone, or as the last or the first byte of a character
        c = chr(byte) if byte < 0x80 else (bytes([0xC4, byte]) if byte < 0xC0 else None)
        if c is None:
            lead = {range(0xC2, 0xE0): b"\x80", range(0xE1, 0xED): b"\x80\x80", range(0xF1, 0xF4): b"\x80\x80\x80"}
            rest = next((v for k, v in lead.items() if byte in k), {0xE0: b"\xa0\x80", 0xED: b"\x80\x80", 0xEE: b"\x80\x80", 0xEF: b"\x80\x80",
                                                                  0xF0: b"\x90\x80\x80", 0xF4: b"\x80\x80\x80"}.get(byte))
            out.append(probe.pre_tokenize_str((bytes([byte]) + rest).decode())[0][0][0] if rest else chr(byte))
        else:
            out.append(probe.pre_tokenize_str(c if isinstance(c, str) else c.decode())[0][0][-1])
    out[0xC0], out[0xC1] = "À", "Á"
    return out


def continuations(t):
    """Returns what a streamer prints after a prompt: the text of all ids without the text of the
    prompt's ids. The ids are split at each place."""
    out = []
    for text in ["The quick brown fox, it's", "  two  three", "Größe 中文 x", "a<s> b </s> c"]:
        ids = t.encode(text).ids
        whole = t.decode(ids)
        for n in range(1, len(ids)):
            prompt = t.decode(ids[:n])
            if whole.startswith(prompt):  # no character is split
                out.append({"ids": ids, "prompt": n, "text": whole[len(prompt):]})
    return out


def main():
    os.makedirs(OUT, exist_ok=True)
    texts, normals = TEXTS + random_texts(60, 1), NORMALS + random_normals(80, 2)
    for name, t, texts in [(n, t, texts) for n, t in tokenizers()] + [(n, t, normals) for n, t in normalizing()]:
        t.save(os.path.join(OUT, name + ".json"), pretty=False)
        cases = []
        for text in texts:
            plain = t.encode(text, add_special_tokens=False)
            one = {"hex": text.encode().hex(), "ids": plain.ids, "text": t.decode(plain.ids)}
            if name == "folded" and "\ufffd" in one["text"]:  # it decodes an added token in normalized form, with its letters split
                del one["text"]
            cases.append(one)
        for data in BYTES if name in ("gpt2", "llama3") else []:
            cases.append({"hex": data.hex(), "ids": of_bytes(t, data)})
        with open(os.path.join(OUT, name + ".ids"), "w") as f:
            json.dump({"before": t.encode("").ids, "continuations": continuations(t), "cases": cases}, f, separators=(",", ":"), ensure_ascii=True)
            f.write("\n")


main()
