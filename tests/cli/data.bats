#!/usr/bin/env bats
# muster data packs text files to tokens, and refuses what it cannot read.

load ../helpers

gpl=/usr/share/common-licenses/GPL-3

setup() { cd "$BATS_TEST_TMPDIR"; }

# refused STATUS TEXT WORD...: succeeds if the command exits with STATUS, and prints TEXT on descriptor 2 and nothing on 1.
refused() {
	local want=$1 text=$2
	shift 2
	rc=0
	"$MUSTER" "$@" >out 2>err </dev/null || rc=$?
	cat out err
	[[ $rc -eq $want && ! -s out ]]
	grep -qF -- "$text" err
}

@test "files become documents of bytes" {
	printf 'hello ' >a
	printf 'world\n' >b
	run "$MUSTER" data pack a b -o text
	[[ $status -eq 0 && $output == "text: 2 documents, 12 tokens (u8)" ]]
	[[ $(<text.bin) == "hello world" ]]
	[[ $(stat -c %s text.idx) -eq $((34 + 2 * 12 + 3 * 8)) ]]
	[[ $(stat -c %a text.bin text.idx) == $'600\n600' ]]
	run "$MUSTER" data show text
	[[ $status -eq 0 && $output == "text: 2 documents, 12 tokens (u8)" ]]
}

# llmc MAGIC VERSION COUNT WIDTH TOKEN...: writes a file of llm.c to descriptor 1.
llmc() {
	python3 -c 'import struct, sys
magic, version, count, width = map(int, sys.argv[1:5])
tokens = map(int, sys.argv[5:])
sys.stdout.buffer.write(struct.pack("<3i", magic, version, count) + bytes(1012) +
                        b"".join(t.to_bytes(width, "little") for t in tokens))' "$@"
}

@test "files of llm.c, and blends, are shown" {
	llmc 20240520 1 5 2 50256 1 2 50256 3 >gpt2.bin
	llmc 20240801 7 3 4 128000 1 2 >llama.bin
	printf 'hello ' >a
	"$MUSTER" data pack a -o text
	run "$MUSTER" data show gpt2.bin
	[[ $status -eq 0 && $output == "gpt2.bin: 2 documents, 5 tokens (u16, llm.c)" ]]
	run "$MUSTER" data show llama.bin
	[[ $status -eq 0 && $output == "llama.bin: 1 documents, 3 tokens (u32, llm.c)" ]]
	run "$MUSTER" data show '3 text 1 gpt2.bin'
	[[ $status -eq 0 && ${lines[0]} == "3 text 1 gpt2.bin: 3 documents, 11 tokens (mixed)" ]]
	[[ ${lines[1]} == "   75.00 %  text: 1 documents, 6 tokens (u8, Megatron)" ]]
	[[ ${lines[2]} == "   25.00 %  gpt2.bin: 2 documents, 5 tokens (u16, llm.c)" ]]
	run "$MUSTER" data show '3 text 1 gpt2.bin' --json
	[[ $(tr -d ' \n' <<<"$output") == *'"tokens":11,"type":"mixed","sources":[{"path":"text","format":"Megatron","type":"u8","share":0.75,'* ]]
	llmc 20240520 1 6 2 50256 1 2 50256 3 >short.bin
	refused 1 "short.bin: 1034 bytes, its header describes 1036 (6 u16 tokens)" data show short.bin
	refused 2 "the weight 1 is not followed by a path" data show '3 text 1'
}

@test "file names come from a list, one per line or separated by NULs" {
	printf x >'a b'
	printf yz >c
	: >empty
	printf 'a b\nc\nempty\n' >lines
	"$MUSTER" data pack @lines -o one
	find . -type f \( -name c -o -name 'a b' \) | sort | tr '\n' '\0' | "$MUSTER" data pack - -o two
	[[ $(<one.bin) == xyz && $(<two.bin) == xyz ]]
	run "$MUSTER" data pack @lines -o three --json
	[[ $(tr -d ' \n' <<<"$output") == '{"prefix":"three","documents":2,"empty":1,"tokens":3,"type":"u8"}' ]]
}

@test "the same files give the same bytes" {
	for name in one two; do
		"$MUSTER" data pack /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 -o $name
	done
	cmp one.bin two.bin
	cmp one.idx two.idx
}

@test "a missing file, a folder, or no bytes at all: nothing is packed" {
	printf x >a
	: >empty
	refused 1 "missing: cannot open" data pack a missing -o text
	refused 2 ".: is a folder; name files" data pack a . -o text
	refused 2 "the 1 files hold no byte" data pack empty -o text
	refused 1 "nowhere/text" data pack a -o nowhere/text
	refused 1 "lost: cannot open" data pack @lost -o text
	[[ $(ls -A) == $'a\nempty\nerr\nout' ]]
}

@test "an input file that the output would replace is refused, and is kept" {
	printf '\1\0\2\0' >train.bin
	printf '\3\0\4\0' >val.bin
	ln -s train.bin other
	cp train.bin before
	refused 2 "train.bin: is to be packed, and -o train would replace it" data pack train.bin val.bin -o train --dtype u16
	refused 2 "other: is to be packed" data pack val.bin other -o ./train --raw
	cmp train.bin before
	run "$MUSTER" data pack train.bin val.bin -o both --dtype u16
	[[ $status -eq 0 ]]
}

@test "wrong arguments are refused with the reason and exit 2" {
	refused 2 "-o PREFIX is missing" data pack a
	refused 2 "no files" data pack -o text
	refused 2 "-o needs a value" data pack a -o
	refused 2 "--fast is not an option" data pack a -o text --fast
	refused 2 "one PREFIX is needed" data show
	refused 2 "there is no mend" data mend
	refused 2 "usage: muster data" data
}

@test "damaged token files are refused by name" {
	"$MUSTER" data pack $gpl -o text
	refused 1 "nothing.idx: no such file" data show nothing
	truncate -s -1 text.bin
	refused 1 "text.bin: 35148 bytes, its index describes 35149" data show text
	"$MUSTER" data pack $gpl -o text
	truncate -s -1 text.idx
	refused 1 "text.idx: " data show text
	"$MUSTER" data pack $gpl -o text
	printf '\x07' | dd of=text.idx bs=1 seek=17 conv=notrunc status=none
	refused 1 "text.idx: type code 7 does not hold tokens" data show text
	cp /usr/share/common-licenses/GPL-3 text.idx
	refused 1 "text.idx: not a Megatron index" data show text
}

@test "each tool has a help page" {
	for tool in "data pack" "data show" "data audit" "ckpt ls" "ckpt show" "ckpt verify" "bench step" "bench gemm"; do
		run "$MUSTER" $tool --help
		[[ $status -eq 0 ]]
		for part in SYNOPSIS EXAMPLES "EXIT STATUS"; do
			[[ $output == *"$part"* ]]
		done
	done
	run "$MUSTER" ckpt --help
	[[ $status -eq 0 && $output == *verify* ]]
}

@test "text becomes the ids of a tokenizer.json" {
	tokenizers=$BATS_TEST_DIRNAME/../golden/text
	printf 'the quick brown fox, 12345 naïve' >a
	printf '\xff\x00' >b
	: >empty
	run "$MUSTER" data pack a b empty -o text --tokenizer "$tokenizers/gpt2.json" --end '<|endoftext|>' --json
	[[ $status -eq 0 && $(tr -d ' \n' <<<"$output") == '{"prefix":"text","documents":2,"empty":1,"tokens":'*',"type":"u16"}' ]]
	tokens=$(grep -oP '"tokens": \K[0-9]+' <<<"$output")
	[[ $(stat -c %s text.bin) -eq $((2 * tokens)) ]]
	ids=($(od -An -v -tu2 -w2 text.bin))
	end=$(grep -oP '"id":\K[0-9]+(?=,"content":"<\|endoftext\|>")' "$tokenizers/gpt2.json")
	[[ ${ids[-1]} -eq $end && ${ids[-4]} -eq $end ]]
	run "$MUSTER" data show text
	[[ $status -eq 0 && $output == "text: 2 documents, $tokens tokens (u16)" ]]
	"$MUSTER" data pack a -o bare --tokenizer "$tokenizers/gpt2.json"
	[[ $(stat -c %s bare.bin) -eq $((2 * (tokens - 4))) ]]
	cmp -n "$(stat -c %s bare.bin)" bare.bin text.bin
	cat a | "$MUSTER" data pack /dev/stdin -o piped --tokenizer "$tokenizers/gpt2.json" # a pipe, too
	cmp bare.bin piped.bin
}

@test "a vocabulary above 65536 gives wider tokens" {
	sed 's/{"id":0,"content":"<unk>"/{"id":70000,"content":"<far>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},&/' \
		"$BATS_TEST_DIRNAME/../golden/text/mixtral.json" >far.json
	printf 'x<far>' >a
	run "$MUSTER" data pack a -o text --tokenizer far.json --begin '<s>'
	[[ $status -eq 0 && $output == "text: 1 documents, 4 tokens (i32)" ]]
	[[ $(od -An -tu4 -j12 text.bin | tr -d ' ') -eq 70000 ]]
}

@test "an unsupported part of a tokenizer is refused by name" {
	tokenizers=$BATS_TEST_DIRNAME/../golden/text
	printf x >a
	refused 2 "--begin and --end name tokens of a --tokenizer" data pack a -o text --end x
	refused 2 "--end <|none|>: $tokenizers/gpt2.json has no such token" data pack a -o text --tokenizer "$tokenizers/gpt2.json" --end '<|none|>'
	refused 1 "lost.json: " data pack a -o text --tokenizer lost.json
	sed 's/"type":"BPE"/"type":"Unigram"/' "$tokenizers/gpt2.json" >unigram.json
	refused 1 "unigram.json: model Unigram: is not supported; muster supports BPE" data pack a -o text --tokenizer unigram.json
	refused 1 "a: line 1: " data pack a -o text --tokenizer a
	refused 1 "missing: cannot open" data pack a missing -o text --tokenizer "$tokenizers/gpt2.json"
	refused 2 "the 1 files hold no byte" data pack /dev/null -o text --tokenizer "$tokenizers/gpt2.json"
	[[ $(ls -A) == $'a\nerr\nout\nunigram.json' ]]
}

packs=$BATS_TEST_DIRNAME/../golden/packs

@test "lines of JSON become documents, compressed or not" {
	for file in lines.jsonl lines.json escaped.ndjson lines.json.gz lines.jsonl.zst; do
		run "$MUSTER" data pack "$packs/$file" -o "${file//./-}"
		[[ $status -eq 0 && $output == "${file//./-}: 5 documents, 85 tokens (u8); empty ones left out: 1" ]]
		cmp lines-jsonl.bin "${file//./-}.bin"
		cmp lines-jsonl.idx "${file//./-}.idx"
	done
	[[ $(head -c 13 lines-jsonl.bin) == 'Hello, world!' ]]
	"$MUSTER" data pack "$packs/lines.jsonl" -o bodies --field meta.body
	[[ $(head -c 13 bodies.bin) == 'HELLO, WORLD!' ]]
	"$MUSTER" data pack /dev/stdin -o piped --field text <"$packs/lines.json.gz"
	cmp lines-jsonl.bin piped.bin
	tokenizer=$BATS_TEST_DIRNAME/../golden/text/gpt2.json
	"$MUSTER" data pack "$packs/lines.jsonl.zst" -o ids --tokenizer "$tokenizer" --end '<|endoftext|>'
	run "$MUSTER" data show ids
	[[ $output == "ids: 5 documents, "* ]]
	end=$(grep -oP '"id":\K[0-9]+(?=,"content":"<\|endoftext\|>")' "$tokenizer")
	[[ $(od -An -v -tu2 -w2 ids.bin | grep -cx " *$end") -eq 5 ]]
	run "$MUSTER" data pack "$packs/text.txt.gz" "$packs/text.zst" -o text --json
	[[ $(grep -oP '"documents": \K[0-9]+' <<<"$output") -eq 2 ]]
	[[ $(grep -oP '"with_nuls": \K[0-9]+' <<<"$output") -eq 2 ]]
	"$MUSTER" data pack "$packs/text.txt.gz" -o text 2>err
	[[ $(<err) == "muster data pack: 1 file with NULs, packed as text (the first: $packs/text.txt.gz)"* ]]
	[[ $(head -c 5 text.bin) == Hello ]]
}

@test "a line that is not a document is refused with its number, or left out and counted" {
	printf '{"text": "a"}\n{"text": "b"\n{"body": "c"}\n{"text": "d"}\n' >some.jsonl
	refused 1 "some.jsonl:2: " data pack some.jsonl -o text
	refused 1 'some.jsonl:1: there is no field "body"; the object has "text": name the one to pack with --field' \
		data pack some.jsonl -o text --field body
	[[ $(ls -A) == $'err\nout\nsome.jsonl' ]]
	run "$MUSTER" data pack some.jsonl -o text --skip-bad --json
	[[ $status -eq 0 && $output == *'"skipped": 2'* ]]
	run "$MUSTER" data pack some.jsonl -o text --skip-bad
	[[ $status -eq 0 && $output == *"2 lines left out; the first: some.jsonl:2: "* ]]
	[[ $(<text.bin) == ad ]]
	head -c 300 "$packs/lines.json.gz" >cut.json.gz
	refused 1 "cut.json.gz: the gzip file ends too early, at byte 300: it was truncated" data pack cut.json.gz -o text --skip-bad
	refused 1 "list.json:1: a list of JSON begins here" data pack "$packs/list.json" -o text
	printf '{\n  "text": "a"\n}\n' >pretty.json
	refused 1 "jq -c . pretty.json" data pack pretty.json -o text
	"$MUSTER" data pack pretty.json -o raw --raw
	cmp pretty.json raw.bin
}

@test "files of other kinds are refused by name with the command that converts them" {
	for row in 'table.parquet:a Parquet file:pyarrow.parquet' 'stream.arrow:an Arrow stream:open_stream' 'file.arrow:an Arrow file:open_file' \
		'ids.npy:a NumPy array:--dtype i32' 'text.xz:compressed by xz:xz -dk' 'text.tar.gz:a tar archive:tar -xf' \
		'train.i64:not text (59 NULs:--raw'; do
		IFS=: read -r file kind command <<<"$row"
		refused 1 "$file: is $kind" data pack "$packs/$file" -o text
		grep -qF -- "$command" err
		refused 1 "$file: is $kind" data pack "$packs/$file" -o text --tokenizer "$BATS_TEST_DIRNAME/../golden/text/gpt2.json"
	done
	"$MUSTER" data pack "$packs/table.parquet" -o raw --raw
	cmp "$packs/table.parquet" raw.bin
}

@test "the conversion commands work" {
	python3 -c 'import numpy, pyarrow' 2>/dev/null || skip "python3 has no numpy and pyarrow"
	"$MUSTER" data pack "$packs/lines.jsonl" -o want
	muster() { "$MUSTER" "$@"; }
	for file in table.parquet file.arrow stream.arrow table.feather; do
		cp "$packs/$file" .
		rc=0
		"$MUSTER" data pack $file -o text 2>err || rc=$?
		[[ $rc -eq 1 ]]
		eval "$(sed 's/.*convert it: //' err)"
		"$MUSTER" data pack $file.jsonl -o text
		cmp want.bin text.bin
		cmp want.idx text.idx
	done
	for file in ids.npy ids.npz; do
		cp "$packs/$file" .
		"$MUSTER" data pack $file -o text 2>err || rc=$?
		eval "$(sed 's/.*convert it: //; s/PREFIX/text/' err)"
		[[ $(od -An -v -td4 -w4 text.bin | tr -d ' ' | tr '\n' ' ') == "15496 11 995 50256 1 2 50256 65535 0 " ]]
	done
}

@test "arrays of token ids without a header, such as nanoGPT's train.bin, are packed" {
	run "$MUSTER" data pack "$packs/train.bin" -o ids --dtype u16 --end-id 50256
	[[ $status -eq 0 && $output == "ids: 3 documents, 9 tokens (u16); the largest id is 65535" ]]
	cmp "$packs/train.bin" ids.bin
	run "$MUSTER" data show ids
	[[ $status -eq 0 && $output == "ids: 3 documents, 9 tokens (u16)" ]]
	run "$MUSTER" data pack "$packs/train.u32" "$packs/train.u32" -o two --dtype u32 --json
	[[ $(tr -d ' \n' <<<"$output") == '{"prefix":"two","documents":2,"empty":0,"tokens":18,"largest":65535,"type":"i32"}' ]]
	gzip -c "$packs/train.bin" >train.bin.gz
	"$MUSTER" data pack train.bin.gz -o unpacked --dtype u16
	cmp "$packs/train.bin" unpacked.bin
	refused 1 "train.bin: token 7 is 65535, and ids are 0 to 50256" data pack "$packs/train.bin" -o no --dtype u16 --vocab 50257
	refused 1 "train.bin: 18 bytes are not a whole number of ids of 4 bytes (u32)" data pack "$packs/train.bin" -o no --dtype u32
	refused 1 "ids.npy: is a NumPy array" data pack "$packs/ids.npy" -o no --dtype u16
	refused 2 "--dtype f32: no such type of token ids; known: u16, u32, i32, i64" data pack "$packs/train.bin" -o no --dtype f32
	refused 2 "--dtype is for files of token ids" data pack "$packs/train.bin" -o no --dtype u16 --field text
	refused 2 "--end-id and --vocab are for token ids" data pack "$packs/train.bin" -o no --end-id 1
	refused 2 "--vocab 0: a whole number from 1" data pack "$packs/train.bin" -o no --dtype u16 --vocab 0
	refused 2 "--raw packs bytes as they are" data pack "$packs/train.bin" -o no --raw --skip-bad
	[[ ! -e no.bin && ! -e no.idx ]]
}

@test "characters that are newer than PCRE2's Unicode classes are reported once" {
	tokenizers=$BATS_TEST_DIRNAME/../golden/text
	printf 'a \xf0\x9e\x80\xb1b \xef\xbf\xbf' >a # U+1E031 is a letter since Unicode 15; U+FFFF will never be any character
	printf 'c \xf0\x9e\x80\xb0 \xf0\x9e\x80\xb0' >b
	"$MUSTER" data pack a b -o text --tokenizer "$tokenizers/gpt2.json" >out 2>err
	[[ $(<err) == "muster data pack: 3 characters are newer than Unicode "*", whose classes cut the text into words (the first: U+1E031); "* ]]
	[[ $(wc -l <err) -eq 1 ]]
	run "$MUSTER" data pack a b -o text --tokenizer "$tokenizers/gpt2.json" --json
	[[ $output == *'"newer_characters": 3'* ]]
	"$MUSTER" data pack a b -o text --tokenizer "$tokenizers/mixtral.json" 2>err # it cuts at blanks
	[[ ! -s err ]]
	printf 'na\xc3\xafve \xe4\xb8\xad' >c
	"$MUSTER" data pack c -o text --tokenizer "$tokenizers/gpt2.json" 2>err
	[[ ! -s err ]]
}
