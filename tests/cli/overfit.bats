#!/usr/bin/env bats
# A model can overfit 100 lines: its loss comes near the entropy of the lines, and it completes each line from its beginning.

load ../helpers

# Writes 100 lines of 48 bytes, so that each is a sample. The first three words of a line occur in no other line, and no part of
# them alone determines the rest.
write_lines() {
	awk 'BEGIN {
		split("red blue green grey amber black white brown violet golden", colour)
		split("owl fox otter crane badger lynx heron marten raven toad", animal)
		split("carries counts hides paints mends borrows sells guards finds weighs", does)
		split("lamps maps bells ropes coins jars kites drums seeds books", thing)
		split("Oslo Lima Cairo Quito Delhi Turin Perth Dakar Busan Tunis", place)
		for (i = 0; i < 100; i++) {
			one = i % 10
			ten = int(i / 10)
			printf "%-47s\n", sprintf("the %s %s %s %d %s in %s.", colour[one + 1], animal[ten + 1], does[(i * 7 + ten) % 10 + 1],
				i * i % 89 + 2, thing[(i * 3 + ten * 7) % 10 + 1], place[(i * i + 3) % 10 + 1])
		}
	}'
}

setup_file() {
	cd "$BATS_FILE_TMPDIR"
	write_lines >lines
	{ cat lines; echo; } >text # a sample's last target is the byte behind it
	"$MUSTER" data pack text -o text
	cat >overfit.ini <<-INI
		[job]
		run_dir = $BATS_FILE_TMPDIR
		steps = 400
		seed = 7
		[model]
		family = llama
		layers = 2
		hidden = 64
		heads = 4
		vocab = 256
		seq = 48
		[parallel]
		dp = 2
		[batch]
		micro = 10
		global = 20
		[optimizer]
		lr = 5e-3
		min_lr = 1e-4
		warmup = 10
		beta2 = 0.95
		[data]
		path = $BATS_FILE_TMPDIR/text
		validation = 0
		[checkpoint]
		every = 0
		[launch]
		threads = 1
	INI
}

# overfits NAME LEAST WORD...: trains, and succeeds if the last loss is at most 0.025 above LEAST.
overfits() {
	local name=$1 least=$2
	shift 2
	"$MUSTER" run "$BATS_FILE_TMPDIR/overfit.ini" "job.name=$name" "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1
	run "$losses" final "$(run_folder "$name")/metrics.jsonl"
	figure "$name: the loss is ${output#* } after ${output%% *} steps; $least is the least"
	awk -v loss="${output#* }" -v least="$least" 'BEGIN { exit !(loss > least - 0.01 && loss < least + 0.025) }'
}

# knows NAME: succeeds if the first three words of every ninth line give the rest of it.
knows() {
	local line words said wrong=0
	while IFS= read -r line; do
		words=$(cut -d' ' -f1-3 <<<"$line")
		said=$("$MUSTER" generate "$(run_folder "$1")" --prompt "$words" --tokens $((47 - ${#words})) --temperature 0 --threads 1)
		[[ $words$said == "$line" ]] || { echo "want [$line]"; echo "got  [$words$said]"; wrong=$((wrong + 1)); }
	done < <(awk 'NR % 9 == 1' "$BATS_FILE_TMPDIR/lines")
	[[ $wrong -eq 0 ]]
}

@test "the lines are 100, all different, and so are their beginnings" {
	[[ $(sort -u "$BATS_FILE_TMPDIR/lines" | wc -lc | tr -s ' ') == " 100 4800" ]]
	[[ $(cut -d' ' -f1-3 "$BATS_FILE_TMPDIR/lines" | sort -u | wc -l) -eq 100 ]]
}

# No model can predict which of the 100 lines comes: ln 100 / 48 per byte.
@test "a llama memorizes 100 lines" {
	overfits llama 0.096
	knows llama
}

# The loss includes the balancing loss, at least 1 for each layer: 2 × model.aux_loss.
@test "a mixture of experts memorizes them too, on two ranks with half of the experts each" {
	overfits mixtral 0.116 model.family=mixtral model.experts=4 model.ffn=96 parallel.ep=2 job.steps=500
	knows mixtral
}
