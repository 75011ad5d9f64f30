#!/usr/bin/env bats
# muster generate continues texts from checkpoints of any layout, and refuses what it cannot use.

load ../helpers

tokenizers=$BATS_TEST_DIRNAME/../golden/text

setup_file() {
	make_data
	make_tiny_job
	run_tiny bytes
	"$MUSTER" data pack /usr/share/common-licenses/GPL-3 -o "$BATS_FILE_TMPDIR/ids" --tokenizer "$BATS_TEST_DIRNAME/../golden/text/mixtral.json"
	run_tiny experts model.family=mixtral model.experts=4 model.kv_heads=2 model.vocab=1024 "data.path=$BATS_FILE_TMPDIR/ids" \
		parallel.tp=2 parallel.pp=2 job.steps=5
}

setup() { cd "$BATS_TEST_TMPDIR"; }

generate() { "$MUSTER" generate "$@" --threads 1; }

# refused STATUS TEXT WORD...: succeeds if the command exits with STATUS, and prints TEXT on descriptor 2 and nothing on 1.
refused() {
	local want=$1 text=$2
	shift 2
	rc=0
	"$MUSTER" generate "$@" >out 2>err </dev/null || rc=$?
	cat out err
	[[ $rc -eq $want && ! -s out ]]
	grep -qF -- "$text" err
}

@test "a text continues its prompt, and the same seed gives the same text" {
	run_dir=$(run_folder bytes)
	generate "$run_dir" --prompt 'The GNU' --tokens 20 >one 2>err
	[[ ! -s err && $(stat -c %s one) -eq 21 ]]
	printf 'The GNU' | generate "$run_dir/ckpt" --tokens 20 >two
	cmp one two
	generate "$run_dir/ckpt/step-00000020" --prompt 'The GNU' --tokens 20 --seed 2 >three
	! cmp -s one three
	generate "$run_dir" --prompt 'The GNU' --tokens 20 --echo >four
	[[ $(head -c 7 four) == 'The GNU' ]]
	tail -c 21 four | cmp - one
}

@test "at temperature 0 the text does not depend on the seed" {
	run_dir=$(run_folder bytes)
	generate "$run_dir" --prompt x --tokens 20 --temperature 0 >one
	generate "$run_dir" --prompt x --tokens 20 --temperature 0 --seed 9 >two
	generate "$run_dir" --prompt x --tokens 20 --top-k 1 >three
	cmp one two
	cmp one three
}

@test "a full context is reported, and the text continues" {
	generate "$(run_folder bytes)" --prompt 'The GNU' --tokens 100 >out 2>err
	[[ $(stat -c %s out) -eq 101 ]]
	[[ $(<err) == "muster generate: the context of 32 tokens (model.seq) is full: from here on, the model sees only the second half of the context and the tokens after it" ]]
	printf '%0100d' 7 | generate "$(run_folder bytes)" --tokens 1 --json >out
	grep -q '"unseen": 84' out
	grep -q '"prompt_tokens": 100' out
}

@test "a model with experts, trained on four ranks, generates with its tokenizer" {
	run generate "$(run_folder experts)" --tokenizer "$tokenizers/mixtral.json" --prompt 'free software' --tokens 8 --json
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $(python3 -c 'import json, sys
o = json.load(sys.stdin)
print(o["step"], len(o["ids"]), o["prompt"], o["ended"], o["prompt_tokens"] > 1, isinstance(o["text"], str), o["tokens_per_s"] > 0)' \
		<<<"$output") == "5 8 free software False True True True" ]]
	end=$(generate "$(run_folder experts)" --tokenizer "$tokenizers/mixtral.json" --prompt 'free software' --tokens 1 --json | \
		python3 -c 'import json, sys; v = json.load(open(sys.argv[1]))["model"]["vocab"]; i = json.load(sys.stdin)["ids"][0]
print(next((k for k in v if v[k] == i and "\u2581" not in k and "<" not in k), ""))' "$tokenizers/mixtral.json")
	if [[ -n $end ]]; then # the first token drawn, as the one to stop behind
		run generate "$(run_folder experts)" --tokenizer "$tokenizers/mixtral.json" --prompt 'free software' --end "$end" --tokens 5 --json
		[[ $output == *'"ended": true'* && $output == *'"text": ""'* ]]
	fi
}

@test "the blank before the first new word is kept" {
	run_dir=$(run_folder experts)
	for ((seed = 1; seed <= 60; seed++)); do # until the first token drawn begins a word
		generate "$run_dir" --tokenizer "$tokenizers/mixtral.json" --prompt 'free software' --tokens 3 --seed $seed --json >out
		first=$(python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))["model"]["vocab"]
print({i: t for t, i in v.items()}[json.load(open("out"))["ids"][0]].replace("\u2581", "_"))' "$tokenizers/mixtral.json")
		[[ $first != _[a-z]* ]] || break
	done
	[[ $first == _[a-z]* ]]
	text=$(python3 -c 'import json; print(json.load(open("out"))["text"])')
	[[ $text == "${first//_/ }"* ]]
	generate "$run_dir" --tokenizer "$tokenizers/mixtral.json" --prompt 'free software' --tokens 3 --seed $seed --echo >out
	[[ $(<out) == "free software$text" ]]
}

@test "what cannot be done is refused by name" {
	run_dir=$(run_folder bytes)
	refused 1 "lost: no such file; name a checkpoint" lost --prompt x
	mkdir empty
	refused 1 "empty: no checkpoints" empty --prompt x
	refused 2 "one MODEL is needed" --prompt x
	refused 2 "the prompt is empty" "$run_dir"
	refused 2 "a vocabulary of 1024 tokens is not one of bytes; name its tokenizer.json" "$(run_folder experts)" --prompt x
	refused 2 "has 700 tokens, the model of" "$run_dir" --prompt x --tokenizer "$tokenizers/gpt2.json"
	refused 2 "--end names a token of a --tokenizer" "$run_dir" --prompt x --end x
	refused 2 "--end <none>: $tokenizers/mixtral.json has no such token" "$(run_folder experts)" --prompt x --tokenizer "$tokenizers/mixtral.json" --end '<none>'
	refused 2 "--tokens 0: a whole number from 1" "$run_dir" --prompt x --tokens 0
	refused 2 "--top-p 2: a number from 1e-09 to 1" "$run_dir" --prompt x --top-p 2
	refused 2 "--temperature nan: a number" "$run_dir" --prompt x --temperature nan
	refused 2 "--top-k 1.5: a whole number" "$run_dir" --prompt x --top-k 1.5
	refused 2 "--fast is not an option" "$run_dir" --fast
	cp -r "$run_dir/ckpt/step-00000020" broken
	for shard in broken/*.safetensors; do
		printf 'x' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") / 5)) conv=notrunc status=none
	done
	refused 1 "broken" broken --prompt x
}

@test "it has a help page" {
	run "$MUSTER" generate --help
	[[ $status -eq 0 ]]
	for part in SYNOPSIS DESCRIPTION OPTIONS EXAMPLES "EXIT STATUS"; do
		[[ $output == *"$part"* ]]
	done
	run "$MUSTER" --help
	[[ $output == *"  generate "* ]]
}
