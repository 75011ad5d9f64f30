#!/usr/bin/env bats
# tests/floors finds each kind of breach.

load ../helpers

setup() {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir -p "$tree"
	cp "$top/rooms" "$tree"
	sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$top/rooms" | while read -r room; do
		if [[ $room == *.c ]]; then touch "$tree/$room"; else mkdir -p "$tree/$room"; fi
	done
	touch "$tree"/{base/err.h,topo/cluster.h,plan/plan.h,libcomm/comm.h,agent/engine/train/train.h}
}

# breach FILE INCLUDE: succeeds if the check refuses a tree in which FILE has that #include.
breach() {
	echo "#include $2" >"$tree/$1"
	run "$top/tests/floors" "$tree"
	echo "$output"
	[[ $status -eq 1 && $output == *"$1:1:"* ]]
}

@test "the tree keeps to its table of rooms" { "$top/tests/floors"; }
@test "base may not include from topo" { breach base/x.c '"topo/cluster.h"'; }
@test "the launcher may not include from the agent" { breach launcher/x.c '"agent/engine/train/train.h"'; }
@test "kernels may not include from libcomm" { breach kernels/x.c '"libcomm/comm.h"'; }
@test "the model may not include libcomm" { breach agent/engine/model/x.c '"libcomm/comm.h"'; }
@test "the agent may include only plan/spec from plan" { breach agent/x.c '"plan/plan.h"'; }
@test "a header must be named with its room" { breach plan/x.c '"plan.h"'; }
@test "hwloc stays in topo" { breach launcher/x.c '<hwloc.h>'; }
@test "PMIx stays in its two rooms" { breach libcomm/x.c '<pmix.h>'; }

@test "a row of the table may not name a row below it, so rooms have no circle" {
	sed -i 's/^base .*/base | topo/' "$tree/rooms"
	run "$top/tests/floors" "$tree"
	[[ $status -eq 1 && $output == *"base names topo"* ]]
}
