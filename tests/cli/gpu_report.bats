#!/usr/bin/env bats
# make check-gpu without make and without a GPU: its parts run over the emulator one by one, some fail, its programs are built.

load ../helpers

setup_file() {
	command -v python3 >/dev/null || skip "python3 is not here"
	built=$(dirname "$(realpath "${MUSTER:-$BATS_TEST_DIRNAME/../../build/muster}")")/tests/gpu
	# Every program of this machine except make.
	bin=$BATS_FILE_TMPDIR/bin
	mkdir "$bin"
	cp -s /usr/bin/* /bin/* "$bin/" 2>/dev/null || true
	rm -f "$bin"/*make
	decoy_peer "$BATS_FILE_TMPDIR/peer"
	export built bin
}

setup() {
	dir=$BATS_TEST_TMPDIR/x
	progs=$BATS_TEST_TMPDIR/programs
	mkdir "$progs"
}

decoy() { # file line...
	local file=$1
	shift
	printf '%s\n' '#!/bin/bash' "$@" >"$file"
	chmod +x "$file"
}

# A double of the PyTorch part.
decoy_peer() { # file
	decoy "$1" 'while read -r word rest; do case $word in' \
		'open) echo "{\"tokens\": 64, \"parameters\": 9, \"opened_s\": 1}" ;;' \
		'chose) echo "{\"ops\": [\"aten::_decoy_step\"], \"kernels\": []}" ;;' \
		'turn) echo "{\"seconds\": [0.5, 0.5], \"loss\": 1, \"peak_bytes\": 1000}" ;;' \
		'gemm) echo "{\"flops\": 1e9}" ;;' \
		'attention) echo "{\"forward_s\": 1, \"backward_s\": 2, \"chose\": {\"ops\": [\"aten::_decoy_attention\"], \"kernels\": [\"sdpa_decoy\"]}}" ;;' \
		'*) echo "{}" ;; esac; done'
}

report() { # part option...
	local part=$1
	shift
	run env PATH="$bin" "$top/tests/gpu/report" "$dir" --parts "$part" --peer "$BATS_FILE_TMPDIR/peer" "$@"
	echo "$output"
}

# Prints the state of a part in the report.
state_of() { # part
	python3 -m json.tool "$dir/report.json" >/dev/null
	awk -F' [|] ' -v part="| $1" '$1 == part { print $7 }' "$dir/report.md"
}

archived() { tar tzf "$dir/logs.tar.gz"; }

@test "each part runs alone over the emulator, in any order; after each the report has it and the earlier ones" {
	[[ -x $built/train && -x $built/conform ]] || skip "CUDA's headers are not here: there is no emulated GPU"
	local part done=()
	for part in train kernels step-llama-1b ops sanitizer comm build step-gpt2-50304 step-gpt2-50257; do
		[[ $(state_of "$part" 2>/dev/null) != "done" ]]
		report "$part" --emulator --programs "$built" --limit 240 --out "$dir/out"
		[[ $status -eq 0 && ${lines[-1]} =~ ^[0-9]+\ passed,\ 0\ failed,\ [0-9]+\ skipped$ ]]
		done+=("$part")
		for p in "${done[@]}"; do
			[[ $(state_of "$p") == "done" ]]
		done
		cmp "$dir/report.md" "$dir/out/report.md"
		cmp "$dir/logs.tar.gz" "$dir/out/logs.tar.gz"
		[[ $(archived) == *"parts/$part.json"* ]]
	done
	for part in "## Parts" "## Checks" "## Limits" "### gpt2-50304" "### gpt2-50257" "### llama-1b" "## Memory" "## Kernels" "## Attention" "PyTorch, pure" \
		"aten::_decoy_step" "aten::_decoy_attention" "sdpa_decoy" "cuBLASLt "; do
		grep -qF -- "$part" "$dir/report.md" || { echo "the report has no $part"; return 1; }
	done
	[[ $(archived) == *logs/train-gpt2-dropout.log*  && $(archived) == *logs/bench.log* ]]
}

@test "a part that fails, is killed, is late or breaks off leaves its results, and the parts after it run" {
	decoy "$progs/ops" 'echo "ok     rms_fwd: 3 sizes"' 'echo "FAILED gelu_fwd: off by 3"' 'echo "1 passed, 1 failed, 0 skipped"' 'exit 1'
	decoy "$progs/edges" 'echo "1 passed, 0 failed"'
	decoy "$progs/comm" 'echo "ok     staged"' 'echo "4 passed, 0 failed, 0 skipped"'
	decoy "$progs/train" 'echo "ok     gpt2: 2 losses"' 'kill -9 $$'
	decoy "$progs/kernels" 'echo "{\"op\": \"adamw\", \"model\": \"gpt2-50304\", \"what\": \"all\", \"seconds\": 0.001, \"bytes\": 1000, \"flops\": 0}"' \
		"sleep 1000 & echo \$! >$BATS_TEST_TMPDIR/child" 'wait'
	decoy "$progs/bench" 'read -r line; exit 3'
	: >"$progs/libmuster-cuda.so"
	report kernels,comm --toy --programs "$progs" --limit 10
	[[ $status -eq 1 && ${lines[-1]} == "4 passed, 1 failed, 0 skipped" ]]
	report ops,train,step-llama-1b --toy --programs "$progs"
	[[ $status -eq 1 && ${lines[-1]} == "4 passed, 5 failed, 0 skipped" ]]
	grep -q 'ops cuda | 1 | 1 | 0 .*gelu_fwd: off by 3' "$dir/report.md"
	grep -q 'train gpt2, dropout | 1 | 1 | 0 .*ended with -9' "$dir/report.md"
	grep -q '^| kernels | 0 | 1 | 0 .*ended by its time limit' "$dir/report.md"
	grep -q '^| adamw | gpt2-50304 ' "$dir/report.md"
	grep -q 'step llama-1b | 0 | 1 ' "$dir/report.md"
	grep -q '^| comm | 4 | 0 | 0 ' "$dir/report.md"
	[[ $(state_of comm) == "done" && $(state_of sanitizer) == "not run" ]]
	# The processes that a late program forked are ended too.
	wait_for 60 has_ended "$(<"$BATS_TEST_TMPDIR/child")"
	[[ $(archived) == *logs/train-gpt2-dropout.log* && $(archived) == *logs/kernels.log* ]]

	# What is no part's file does not keep the others from the report, nor does an answer of which no table can be made.
	echo 'cut {' >"$dir/parts/build.json"
	echo '[]' >"$dir/parts/sanitizer.json"
	decoy "$progs/kernels" 'echo 5' 'echo "{\"op\": \"adamw\", \"model\": \"m\", \"what\": \"all\", \"seconds\": \"soon\"}"'
	report kernels --toy --programs "$progs"
	[[ $(<"$dir/report.md") == *"report.json has the answers"* ]]
	decoy "$progs/kernels" 'exit 0'
	report kernels --toy --programs "$progs"
	[[ $(state_of build) == "its file cannot be read: "* && $(state_of sanitizer) == "its file belongs to another part" ]]
	run "$top/tests/gpu/report" "$progs/ops" --toy --programs "$progs" --parts comm
	[[ $status -eq 1 && $output == *"report: [Errno "*"name another folder"* ]]

	# When the part runs again alone, it replaces the failed one.
	decoy "$progs/train" 'echo "7 passed, 0 failed, 0 skipped"'
	report train --toy --programs "$progs"
	[[ $status -eq 0 && ${lines[-1]} == "7 passed, 0 failed, 0 skipped" ]]
	grep -q '^| train gpt2, dropout | 7 | 0 | 0 ' "$dir/report.md"
	grep -q 'gelu_fwd: off by 3' "$dir/report.md"
}

@test "ended by a signal in a part, the report has the earlier parts and this one's results so far" {
	decoy "$progs/comm" 'echo "4 passed, 0 failed, 0 skipped"'
	decoy "$progs/train" "echo \$\$ >$BATS_TEST_TMPDIR/started" 'exec sleep 1000'
	: >"$progs/libmuster-cuda.so"
	begun() { [[ -s $BATS_TEST_TMPDIR/started ]]; }
	ended() { ! kill -0 "$pid" 2>/dev/null; }
	"$top/tests/gpu/report" "$dir" --parts comm,train,sanitizer --toy --programs "$progs" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 begun
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	cat "$BATS_TEST_TMPDIR/out"
	[[ $rc -eq 1 && $(state_of comm) == "done" && $(state_of train) == "ended by SIGTERM" && $(state_of sanitizer) == "not run" ]]
	wait_for 60 has_ended "$(<"$BATS_TEST_TMPDIR/started")"

	rm "$BATS_TEST_TMPDIR/started"
	"$top/tests/gpu/report" "$dir" --parts train --toy --programs "$progs" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 begun
	kill -9 $pid "$(<"$BATS_TEST_TMPDIR/started")"
	wait $pid || true
	report comm --toy --programs "$progs"
	[[ $status -eq 0 && $(state_of comm) == "done" && $(state_of train) == "under way" ]]
}

@test "on a machine with a GPU, a backend that cannot be opened has failed; the report names GPU, driver and versions" {
	decoy "$bin/nvidia-smi" 'echo "Decoy GPU, 580.1, 143771 MiB, 9.0"'
	decoy "$progs/ops" 'echo "skip   cuda: it cannot be opened"' 'echo "0 passed, 0 failed, 1 skipped"'
	decoy "$progs/edges" 'echo "2 passed, 0 failed"'
	decoy "$progs/comm" 'echo "ok     staged"' 'echo "skip   nccl, one rank a GPU: there is no libnccl.so.2"' 'echo "1 passed, 0 failed, 1 skipped"'
	cp "$(dirname "$built")/doubles/cuda.so" "$progs/libcuda.so.1"
	cp "$progs/libcuda.so.1" "$progs/libcublasLt.so.13"
	cp "$progs/libcuda.so.1" "$progs/libnccl.so.2"
	: >"$progs/libmuster-cuda.so"
	LD_LIBRARY_PATH=$progs report ops,comm --programs "$progs"
	rm "$bin/nvidia-smi"
	[[ $status -eq 1 && ${lines[-1]} == "3 passed, 3 failed, 1 skipped" ]]
	grep -q '^- 1 × Decoy GPU, 143771 MiB, driver 580.1, ' "$dir/report.md"
	grep -q '^- versions: CUDA of the driver 13.0, .*cuBLASLt 13.1.0, NCCL 2.28.3' "$dir/report.md"
}

@test "without compute-sanitizer, PyTorch or time a part is skipped by name" {
	decoy "$progs/ops" 'echo "1 passed, 0 failed"'
	: >"$progs/libmuster-cuda.so"
	decoy "$bin/compute-sanitizer" 'echo "Error: Device not supported"' 'exit 1'
	report sanitizer --toy --programs "$progs"
	rm "$bin/compute-sanitizer"
	[[ $status -eq 0 && $output == *"skip   sanitizer: "*"compute-sanitizer refuses this device"* ]]
	decoy "$bin/compute-sanitizer" 'echo "1 passed, 0 failed"' '[[ $* != *racecheck*norm* ]] || echo "RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"'
	report sanitizer --toy --programs "$progs"
	rm "$bin/compute-sanitizer"
	[[ $status -eq 1 && $output == *"FAILED racecheck norm: "*"RACECHECK SUMMARY: 2 hazards"* && ${lines[-1]} == "7 passed, 1 failed, 0 skipped" ]]
	# Hazards in cuDNN's own kernels are not muster's; all others are.
	decoy "$bin/compute-sanitizer" '[[ $* != *racecheck*norm* ]] || { printf "%b\n" "$SAID"; code=9; }' 'echo "1 passed, 0 failed"' 'exit ${code-0}'
	local theirs='Error: Race reported between Read access at cudnn_generated_x+0x2f0' ours='Error: Race reported between Read access at norm_kernel+0x2f0'
	SAID="$theirs\nRACECHECK SUMMARY: 1 hazards displayed (1 errors, 0 warnings)" report sanitizer --toy --programs "$progs"
	[[ $status -eq 0 && $output == *"ok     racecheck norm: "*"racecheck: 1 in cuDNN's own kernels, none in others"* ]]
	SAID="$theirs\n$ours\nRACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)" report sanitizer --toy --programs "$progs"
	[[ $status -eq 1 && $output == *"FAILED racecheck norm: "*"RACECHECK SUMMARY: 2 hazards"* ]]
	SAID="${theirs/Error/Warning}\n$ours\nRACECHECK SUMMARY: 2 hazards displayed (1 errors, 1 warnings)" report sanitizer --toy --programs "$progs"
	[[ $status -eq 1 && $output == *"FAILED racecheck norm: "* ]]
	SAID="$theirs\nRACECHECK SUMMARY: 1 hazards displayed (1 errors, 0 warnings)\nERROR SUMMARY: 3 errors" report sanitizer --toy --programs "$progs"
	rm "$bin/compute-sanitizer"
	[[ $status -eq 1 && $output == *"FAILED racecheck norm: "*"ERROR SUMMARY: 3 errors"* ]]
	run env PATH="$bin" python3 -S "$top/tests/gpu/report" "$dir" --parts kernels --toy --programs "$progs"
	[[ $output == *"skip   PyTorch's attention: "*"has no torch"* ]]
	report ops --toy --programs "$progs" --seconds 1
	[[ $status -eq 0 && $output == *"skip   ops: "*"no time was left"* ]]
	report later --toy --programs "$progs"
	[[ $status -ne 0 && $output == *"there is no part later; there are build, ops, "* ]]
}

# Makes a tree of a few files with the makefiles' lists and this tree's builder.
small_tree() {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir -p "$tree"/{tests/gpu/emulator,tests/gpu/standin,kernels/{reference,cpu,low_precision,cuda},base}
	cp "$top"/tests/gpu/{build,programs}.py "$tree/tests/gpu/"
	cp "$top/kernels/kernels.mk" "$tree/kernels/"
	cp "$top/kernels/cuda/cuda.mk" "$tree/kernels/cuda/"
	cp "$top/tests/gpu/emulator/emulator.mk" "$tree/tests/gpu/emulator/"
	sed 's/^GPU_CHECK_FILES .*/GPU_CHECK_FILES := base\/*.c !base\/left_out.c\nREST := \\/; s/^GPU_PARTS.*/GPU_PARTS := ops bench/' \
		"$top/tests/gpu/sources.mk" >"$tree/tests/gpu/sources.mk"
	echo 'int add(int a, int b);' >"$tree/base/add.h"
	printf '#include "base/add.h"\nint add(int a, int b) { return a + b; }\n' >"$tree/base/add.c"
	echo 'int bad(void) { return 7; }' >"$tree/base/bad.c"
	echo '#error it is left out' >"$tree/base/left_out.c"
	echo 'int reference(void) { return 0; }' >"$tree/kernels/reference/reference.c"
	echo 'int backend(void) { return 0; }' >"$tree/kernels/backend.c"
	printf '#include "base/add.h"\nint main(void) { return add(-2, 2); }\n' >"$tree/tests/gpu/ops.c"
	printf 'int bad(void);\nint main(void) { return bad(); }\n' >"$tree/tests/gpu/bench.c"
}

# Builds ops and bench, and prints how many files were compiled.
build() { # folder
	run env PATH="$bin" "$tree/tests/gpu/build.py" "${1:-$dir}" ops bench
	echo "$output"
	compiled=${lines[-1]%% *}
}

@test "programs are built without make: only what has changed; copied programs are not built again" {
	small_tree
	build
	# add, bad, backend, reference twice, and the two programs.
	[[ $status -eq 0 && $compiled -eq 7 ]]
	"$dir/ops"
	build
	[[ $status -eq 0 && $compiled -eq 0 ]]
	# The builder compares contents, not times: of a header, and of each file that includes it.
	touch "$tree"/base/*
	build
	[[ $compiled -eq 0 ]]
	echo '/* Said again. */' >>"$tree/base/add.h"
	build
	[[ $status -eq 0 && $compiled -eq 2 ]]
	# The programs are copied to another folder, without the objects.
	mkdir "$BATS_TEST_TMPDIR/carried"
	cp "$dir"/{ops,bench,build.json} "$BATS_TEST_TMPDIR/carried/"
	build "$BATS_TEST_TMPDIR/carried"
	[[ $status -eq 0 && $compiled -eq 0 && ! -e $BATS_TEST_TMPDIR/carried/obj ]]
	# A program that does not start on this machine is built again.
	: >"$BATS_TEST_TMPDIR/carried/ops"
	build "$BATS_TEST_TMPDIR/carried"
	[[ $status -eq 0 && $compiled -eq 6 ]]
	"$BATS_TEST_TMPDIR/carried/ops"
}

@test "a file that does not compile affects only the programs that need it, until it is repaired" {
	small_tree
	echo 'int bad(void) { return 7 }' >"$tree/base/bad.c"
	build
	[[ $status -eq 1 && $output == *"ok     ops"* && $output == *"FAILED bench: base/bad.c does not compile"* ]]
	"$dir/ops"
	grep -q 'base/bad.c:1' "$dir/build.log"
	echo 'int bad(void) { return 0; }' >"$tree/base/bad.c"
	build
	[[ $status -eq 0 && $compiled -eq 1 ]]
	"$dir/bench"
}

@test "make and the builder use the same files, and libsodium's stand-in has what they call" {
	lib=$(dirname "$(dirname "$built")")/lib
	[[ -e $lib/gpu-check.a ]] || skip "CUDA's headers are not here"
	list=$("$top/tests/gpu/build.py" "$dir" --list --emulator ops)
	of() { { ar t "$lib/gpu-check.a"; ar t "$lib/kernels.a"; } | wc -l; }
	# Its objects, without the program's own and those of the libraries that stand for CUDA's.
	[[ $(grep -c -v -e ' obj/cuda/' -e ' obj/tests/gpu/ops.c.o' <<<"$list") -eq $(of) ]]
	cd "$top"
	gcc -std=c11 -D_GNU_SOURCE -Itests/gpu/standin -I. -DCPU_ISA=v2 -DNARROW_ISA=base -fsyntax-only -Werror=implicit-function-declaration \
		$(awk '{ print $1 }' <<<"$list" | grep -v -e '^kernels/' -e '^tests/gpu/' | sort -u)
}
