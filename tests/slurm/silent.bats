#!/usr/bin/env bats
# A node falls silent: no process of it runs, and no packet reaches it or is answered. The cluster is in a network namespace of its own,
# where each node has an address.

load ../helpers
load jobs

network=10.99.0

setup_file() {
	look_for_slurm
	[[ -z $lacking ]] || return 0
	setsid unshare --net sleep infinity </dev/null >/dev/null 2>&1 3>&- 4>&- &
	namespace=$!
	export namespace
	if ! wait_for 60 is_apart || ! inside ip link add v0 type veth peer name v1; then
		lacking="needs the right to make a network namespace with a veth device"
		return 0
	fi
	inside ip link set lo up
	inside ip link set v0 up
	inside ip link set v1 up
	# Packets to an address that is gone leave through v0, and nobody answers.
	inside ip route add $network.0/24 dev v0
	for i in 1 2 3 4; do
		inside ip address add $network.$i/32 dev v0
		inside ip neighbour add $network.$i lladdr 02:00:00:00:00:0$i dev v0 nud permanent
	done
	cluster=$(mktemp -d /tmp/slurm.XXXXXX)
	export cluster
	CLUSTER_NETWORK=$network CLUSTER_TIMEOUT=300 inside "$top/tests/slurm/cluster" start "$cluster" 4
	. "$cluster/env"
	make_data
	make_tiny_job
}

teardown_file() {
	if [[ -n ${cluster-} ]]; then
		inside "$top/tests/slurm/cluster" stop "$cluster"
		rm -rf "$cluster"
	fi
	[[ -z ${namespace-} ]] || kill "$namespace"
}

setup() { [[ -z $lacking ]] || skip "$lacking"; }

# The namespace belongs to `sleep`, which is ended last.
inside() { nsenter --net="/proc/$namespace/ns/net" "$@"; }
is_apart() { [[ $(readlink "/proc/$namespace/ns/net") != $(readlink /proc/self/ns/net) ]]; }

# silence NODE: stops all of a node's processes and removes its address. Sets $silenced to the time.
silence() {
	local pids
	pids=$(host_processes "$1" | sort -u)
	silenced=$EPOCHREALTIME
	# shellcheck disable=SC2086 # a list of pids
	kill -STOP $pids
	inside ip address del "$network.${1#n}/32" dev v0
	stopped=$pids
}

run_is_done() { [[ -n $(event silent done) ]]; }

# Ends the stopped processes of the silent node.
teardown() {
	local pid
	for pid in ${stopped-}; do
		[[ $(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) != T ]] || kill -9 "$pid" 2>/dev/null || true
	done
}

@test "a node falls silent: it is lost after the silence limit, and the run continues without it" {
	large
	inside "$MUSTER" submit "$tiny" job.name=silent slurm.nodes=3 slurm.spares=1 slurm.gpus_per_node=2 slurm.cpus_per_task=1 \
		restart.backoff=0.1 parallel.tp=2 parallel.pp=1 parallel.dp=3 batch.global=24 job.steps=600 checkpoint.every=20
	wait_for 60 step_reached silent 45
	[[ $(nodes_of silent 1) == "n1 n2 n3 " ]]
	silence n2
	# Slurm waits for the node before it lets the job end.
	wait_for 120 run_is_done
	[[ $(event_field silent done status) -eq 0 ]]
	[[ $(event_field silent rank-lost node) == n2 ]]
	[[ $(nodes_of silent 2) == "n1 n3 n4 " ]]
	grep -q 'n2 cannot be reached' "$(run_folder silent)"/logs/slurm-*.out
	run "$MUSTER" data audit "$(run_folder silent)"
	[[ $status -eq 0 ]]
	figure "a silent node: lost after $(span "$silenced" "$(event_field silent rank-lost time)") s," \
		"first step $(span "$(event_field silent rank-lost time)" "$(event_field silent first-step time)") s later"
}
