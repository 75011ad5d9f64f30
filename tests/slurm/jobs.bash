# Functions for jobs in a cluster of tests/slurm/cluster. $id is the job's id; $words are the job's words on every command line.

no_jobs() { [[ -z $(squeue -h -o %i) ]]; }
all_idle() { [[ $(sinfo -h -o '%T %D') == "idle 4" ]]; }

# Prints what a failed test's last run had noticed. For teardown.
tell_events() {
	[[ -z ${BATS_TEST_COMPLETED-} && -n ${submitted-} ]] || return 0
	grep -v '"event":"ckpt"' "$(run_folder "$submitted")/events.jsonl" 2>/dev/null | tail -n 60 | cut -c 1-300
}

# Ends the jobs of a failed test before the next one, and brings back the nodes that it lost. For teardown.
end_jobs() {
	local node
	[[ -z ${lacking-} ]] || return 0
	tell_events
	if ! no_jobs; then
		scancel --signal=KILL --state=RUNNING || true
		scancel --user=root || true
	fi
	for node in ${killed_hosts-}; do
		start_slurmd "$node"
	done
	killed_hosts=""
	wait_for 60 no_jobs
	all_idle && return
	for node in n1 n2 n3 n4; do
		scontrol update "NodeName=$node" State=RESUME 2>/dev/null || true # it fails if the node is up
	done
	wait_for 60 all_idle
}

# Starts a cluster of two nodes, and makes the tiny job and its words. The run `alone` is the undisturbed one of the same job. For
# setup_file.
start_two_nodes() {
	start_cluster 2
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	words="slurm.nodes=2 slurm.cpus_per_task=4 parallel.dp=2 restart.backoff=0.1 job.steps=1200 checkpoint.every=100"
	export words
	run_tiny alone parallel.dp=2 job.steps=1200 checkpoint.every=0 launch.launcher=local
}

# has_bits_of RUN OTHER: the run has the losses of the other one, to the bit, and consumed each sample once.
has_bits_of() {
	"$losses" compare "$(run_folder "$2")/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 0 &&
		"$MUSTER" data audit "$(run_folder "$1")"
}

# Ends the jobs of a test. For teardown.
cancel_all() {
	tell_events
	[[ -n $lacking ]] || no_jobs || scancel --user=root
	wait_for 60 no_jobs
}

# submit NAME WORD...: submits the tiny job as NAME, and sets $id to the job's id and $submitted to NAME.
submit() {
	local name=$1
	submitted=$name
	shift
	# shellcheck disable=SC2086 # a list of words
	id=$("$MUSTER" submit "$tiny" "job.name=$name" $words "$@")
	[[ $id =~ ^[0-9]+$ ]]
}

# Prints a field of scontrol's line about job $id.
job_field() { scontrol --oneliner show job "$id" | grep -oP "(?<= $1=)\S+"; }
job_is() { [[ $(job_field JobState) =~ ^($1)$ ]]; }
job_over() { job_is "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL"; }

# ends_with STATUS: waits for the job's end, and succeeds if it has this exit status.
ends_with() {
	local name
	wait_for 300 job_over || return 1
	[[ $(job_field ExitCode) == "$1:0" ]] && return
	echo "state $(job_field JobState), exit $(job_field ExitCode)"
	name=$(job_field JobName)
	tail -n 30 "$(run_folder "$name")"/logs/{slurm,launch}-*
	return 1
}

# Prints the nodes on which agents of the run connected, or those of one generation.
nodes_of() { # run [generation]
	event "$1" hello | { [[ -z ${2-} ]] && cat || grep "\"generation\":$2[,}]"; } | grep -oP '"node":"\K[^"]+' | sort -u | tr '\n' ' '
}

# Prints the processes of this cluster whose command line matches a pattern, on a node or on all of them.
processes() { # pattern [node]
	grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null |
		{ [[ -z ${2-} ]] && cat || xargs -r grep -lzxF "SLURMD_NODENAME=$2" 2>/dev/null; } | cut -d / -f 3 | sort |
		comm -12 - <(pgrep -f -- "$1" | sort) | sort -n
}
agents() { processes "^$(realpath "$(dirname "$MUSTER")")/muster-agent" "$@"; }
no_agent() { [[ -z $(agents) ]]; }

# Prints the slurmd and the step managers of a node.
daemons_of() { # node
	find /proc/[0-9]*/fd -maxdepth 1 -lname "$(realpath "$cluster")/log/$1" 2>/dev/null | cut -d / -f 3 | sort -u
}

# Prints all processes of a node: its daemons, then its sruns, then its other processes of a job.
host_processes() { # node
	daemons_of "$1"
	processes "^srun " "$1" | sort -rn
	processes . "$1"
}

# Kills all of a node. First slurmd, until its port refuses connections: no dead node can be reached. Then the others by one command, in the
# order in which nothing of it reports the end of another part. They must not be stopped first: when the parent of a stopped process dies,
# the kernel sends SIGHUP and SIGCONT, and srun would end its step. So would the child of srun that outlives it; it has the higher pid.
# Sets $killed to the time, and adds the node to $killed_hosts.
kill_host() { # node
	local pids port
	port=$(sed -nE "s/^NodeName=$1 .* Port=([0-9]+) .*/\1/p" "$SLURM_CONF")
	pids=$(host_processes "$1" | awk '!seen[$1]++')
	killed_hosts+=" $1"
	kill -9 "$(slurmd_of "$1")"
	wait_for 60 refuses_connections "$port"
	killed=$EPOCHREALTIME
	# shellcheck disable=SC2086 # a list of pids
	kill -9 $pids 2>/dev/null || true # slurmd has ended
}

slurmd_of() { # node
	local pid
	for pid in $(daemons_of "$1"); do
		[[ $(<"/proc/$pid/comm") != slurmd ]] || echo "$pid"
	done
}

# Succeeds if nobody listens at the port of the loopback address.
refuses_connections() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; } # port

# Starts the slurmd of a node, unless it runs.
start_slurmd() { # node
	[[ -z $(daemons_of "$1") ]] || return 0
	rm -rf "$cluster"/spool/"$1"/stepd.slurm.pmix.* "$cluster"/tmp/"$1"/{pmix,spmix_appdir}*
	setsid slurmd -D -N "$1" </dev/null >"$cluster/log/$1.out" 2>&1 3>&- 4>&- &
	echo "$! $1" >>"$cluster/pids"
}

# Starts slurmctld, which a test has ended.
start_controller() {
	setsid slurmctld -D </dev/null >>"$cluster/log/slurmctld.out" 2>&1 3>&- 4>&- &
	echo "$! slurmctld" >>"$cluster/pids"
}
