#!/usr/bin/env bats
# Templates that are not what they say are found by tests/documents. `make check` runs it on the tree itself.

load ../helpers

@test "a template that is not what it says is found" {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir "$tree"
	ln -s "$top"/* "$tree"
	rm "$tree/templates"
	cp -r "$top/templates" "$tree"
	cd "$tree/templates/jobs"
	sed -i 's/^hidden = 12288/hiden = 12288/' 175b.ini
	sed -i 's/on one node with 8 GPUs/on 2 nodes with 8 GPUs/' llama-7b.ini
	sed -i 's/^;     muster plan llama-70b.ini$/;     muster plan llama-70b.ini parallel.zero=4/; 2a ; The agents compute on the CPU.' llama-70b.ini
	sed -i 's/(refused: it does not fit)/(fits)/' llama-13b-zero3.ini
	sed -i '1s/.*/; a job/; 2a ; See also parallel.nothing.' demo.ini
	run env MUSTER="$MUSTER" "$top/tests/documents" "$tree"
	echo "$output"
	[[ $status -eq 1 ]]
	[[ $output == *"templates/jobs/175b.ini:1: cannot be planned: "*"did you mean hidden?"* ]]
	[[ $output == *"templates/jobs/llama-7b.ini:1: says 2 nodes with 8 GPUs; slurm.nodes, gpus_per_node and the cluster give ('1', '8', '1')"* ]]
	[[ $output == *"templates/jobs/llama-7b.ini:1: has 8 ranks on 16 GPUs"* ]]
	[[ $output == *"templates/jobs/llama-70b.ini:1: says that GPUs are not used"* ]]
	[[ $output == *"templates/jobs/llama-70b.ini:4: "*"parallel.zero=4\` ends with status 2, not 0"* ]]
	[[ $output == *"templates/jobs/llama-13b-zero3.ini:5: "*" ends with status 3, not 0"* ]]
	[[ $output == *"templates/jobs/demo.ini:1: the first line does not begin"* ]]
	[[ $output == *"templates/jobs/demo.ini:3: [parallel] has no key nothing"* ]]
}
