#!/usr/bin/env bats
# tests/documents and tests/rooms_graph find the faults that they exist for. `make check` runs both on the tree itself.

load ../helpers

# A tree of links, with documents and templates of its own.
make_tree() {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir "$tree"
	ln -s "$top"/* "$tree"
	rm "$tree"/{README.md,doc,templates}
	cp -r "$top"/{README.md,doc,templates} "$tree"
}

@test "names that do not exist are found, each with its document" {
	make_tree
	cat >>"$tree/README.md" <<-'END'
		`muster dance` and `muster data wash` are no commands, `muster run --fast` and `--sideways` no options.
		`parallel.xp`, `[restart] endurance = 3` and `[paralel]` are no keys; see `tests/nothing.bats` and [nothing](doc/nothing.md).
		[No heading](doc/guide/data.md#nowhere), `make tea`, `make check TEA=1`, `MUSTER_NOTHING`.

		```ini
		[model]
		layer = 4
		```

		    muster plan templates/jobs/demo.ini --tea
	END
	run env MUSTER="$MUSTER" "$top/tests/documents" "$tree"
	echo "$output"
	[[ $status -eq 1 ]]
	for fault in "muster has no command dance" "muster has no command data wash" "muster run has no option --fast" \
		"no command of muster has the option --sideways" "[parallel] has no key xp" "[restart] has no key endurance" \
		"a job file has no section [paralel]" "there is no tests/nothing.bats" "the link doc/nothing.md leads to nothing" \
		"doc/guide/data.md has no heading #nowhere" "make has no target tea" "the Makefile does not use TEA" \
		"nothing reads MUSTER_NOTHING" "[model] has no key layer" "muster plan has no option --tea"; do
		[[ $output == *"README.md:"*"$fault"* ]]
	done
}

@test "documents that are out of date are found" {
	make_tree
	sed -i 's/| `steps` | `200`/| `steps` | `300`/' "$tree/doc/reference/keys.md"
	sed -i 's/a schedule/a timetable/' "$tree/doc/developer/recipes.md"
	sed -i 's/| 75 |/| 76 |/' "$tree/doc/reference/exit-status.md"
	sed -i '0,/| `unknown key`/s//| `no such thing as a key`/' "$tree/doc/guide/troubleshooting.md"
	printf 'more\n%.0s' {1..200} >>"$tree/README.md"
	run env MUSTER="$MUSTER" "$top/tests/documents" "$tree"
	echo "$output"
	[[ $status -eq 1 ]]
	[[ $output == *"doc/reference/keys.md:1: is not what doc/reference/make_keys prints"* ]]
	[[ $output == *"doc/developer/recipes.md:1: is not what doc/developer/make_recipes prints"* ]]
	[[ $output == *"doc/reference/exit-status.md:1: lists"* ]]
	[[ $output == *"no source prints \"no such thing as a key\""* ]]
	[[ $output == *"README.md:"*" lines; 200 are allowed"* ]]
}

@test "a job file of a document that cannot be planned, or differs from its table, is found" {
	make_tree
	page=$tree/doc/guide/from-torchrun.md
	sed -i '0,/^ffn = 13824/s//ffn = 13825x/; s/^tp = 8$/tp = 4/; s/^max_restarts = 3/max_restarts = 4/; s/^cluster = dgx-h100:4$/cluster = dgx-h100:5/' "$page"
	run env MUSTER="$MUSTER" "$top/tests/documents" "$tree"
	echo "$output"
	[[ $status -eq 1 ]]
	[[ $output == *"from-torchrun.md:"*"the table has restart.max_restarts = 3, and the job 4"* ]]
	[[ $output == *"from-torchrun.md:"*"the job asks for 4 nodes, and its cluster is dgx-h100:5"* ]]
	[[ $output == *"from-torchrun.md:"*"the job cannot be planned: "*'"13825x"'* ]]
	[[ $output == *"from-torchrun.md:"*"the job has 32 ranks on 64 GPUs"* && $output == *"the table has parallel.tp = 8, and the job 4"* ]]
}

@test "the rooms' graph is drawn, and a cycle or an unknown room is found" {
	run "$top/tests/rooms_graph"
	[[ $status -eq 0 && $output == *"-> base"* && $output == *"no cycle"* ]]
	"$top/tests/rooms_graph" --dot "$BATS_TEST_TMPDIR/rooms.dot"
	[[ $(head -n 1 "$BATS_TEST_TMPDIR/rooms.dot") == "digraph rooms {" ]]
	sed 's/^base .*/base | launcher/' "$top/rooms" >"$BATS_TEST_TMPDIR/cycle"
	run "$top/tests/rooms_graph" "$BATS_TEST_TMPDIR/cycle"
	[[ $status -eq 1 && $output == "rooms: a cycle: base -> launcher -> "*" -> base" ]]
	sed 's/^topo .*/topo | basement/' "$top/rooms" >"$BATS_TEST_TMPDIR/unknown"
	run "$top/tests/rooms_graph" "$BATS_TEST_TMPDIR/unknown"
	[[ $status -eq 1 && $output == "rooms: topo may include basement, which is no row" ]]
}
