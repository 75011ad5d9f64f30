#!/usr/bin/env bats
# The check of the floors finds what it is for.

load ../helpers

# breach FILE INCLUDE: a tree in which FILE holds that include; the check must refuse it.
breach() {
	local tree=$BATS_TEST_TMPDIR/tree
	mkdir -p "$tree"/{base,topo,plan,libcomm,kernels,agent/model,launcher}
	touch "$tree"/{base/err.h,topo/cluster.h,plan/plan.h,libcomm/comm.h,kernels/ops.h,agent/train.h,launcher/launch.h}
	echo "#include $2" >"$tree/$1"
	run "$top/tests/floors" "$tree"
	echo "$output"
	[[ $status -eq 1 && $output == *"$1:1:"* ]]
}

@test "the tree keeps to its floors" { "$top/tests/floors"; }
@test "base may not include from topo" { breach base/x.c '"topo/cluster.h"'; }
@test "the launcher may not include from the agent" { breach launcher/x.c '"agent/train.h"'; }
@test "kernels may not include from libcomm" { breach kernels/x.c '"libcomm/comm.h"'; }
@test "the model may not reach libcomm" { breach agent/model/x.c '"libcomm/comm.h"'; }
@test "the agent may not include the whole plan" { breach agent/x.c '"plan/plan.h"'; }
@test "a header must be named with its room" { breach plan/x.c '"plan.h"'; }
@test "hwloc stays in topo" { breach launcher/x.c '<hwloc.h>'; }
@test "PMIx stays in its two rooms" { breach libcomm/x.c '<pmix.h>'; }
