#!/usr/bin/env bats
# Slurm's REST interface: an ordinary user submits, shows, changes and cancels jobs by a real slurmrestd, with a token, on a host whose
# PATH has no command of Slurm. The jobs themselves have srun.

load ../helpers

setup_file() {
	look_for_slurm
	command -v slurmrestd >/dev/null || export lacking="slurmrestd is not installed"
	compgen -G "/usr/lib/*/slurm*/auth_jwt.so" >/dev/null || export lacking="Slurm's JWT plugin is not installed"
	[[ -z $lacking ]] || return 0
	CLUSTER_REST=yes start_cluster 2
	make_data
	make_home
}

teardown_file() {
	stop_cluster
	rm -rf "${home-}"
}

setup() { [[ -z $lacking ]] || skip "$lacking"; }

teardown() {
	[[ -z $lacking ]] || return 0
	scancel --user=nobody || true
	wait_for 60 no_jobs
}

no_jobs() { [[ -z $(squeue -h -o %i) ]]; }

# Sets $home to a folder of the user nobody with programs, data, a job, a template, and a token in a file.
make_home() {
	local built template
	built=$(dirname "$(realpath "$MUSTER")")
	home=$(mktemp -d /tmp/rest.XXXXXX)
	export home
	install -D -t "$home/bin" "$built/muster"
	install -D -t "$home/libexec/muster" "$built/muster-agent"
	install -d "$home/templates"
	template=$home/templates/sbatch.in
	sed "s|^# The command and|export PATH=/usr/bin:/bin SLURM_CONF=$cluster/slurm.conf\nenv >$home/environment\n&|" "$top/templates/sbatch.in" >"$template"
	cp "$data".* "$home"
	data=$home/$(basename "$data") BATS_FILE_TMPDIR=$home make_tiny_job
	export tiny=$home/tiny.ini
	scontrol token username=nobody lifespan=3600 >"$home/token"
	chmod 600 "$home/token"
	chown -R nobody "$home"
	sed 's/.*\.//' "$home/token" >"$cluster/pattern"
	signature=$(sed 's/.*\.//' "$home/token")
	export signature
}

# as_user VARIABLE=VALUE... -- WORD...: runs muster as nobody, with these variables and a PATH without Slurm's commands.
as_user() {
	local variables=()
	while [[ $1 != -- ]]; do
		variables+=("$1")
		shift
	done
	shift
	(cd "$home" && setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH="$home/bin" HOME="$home" \
		MUSTER_TEMPLATES="$home/templates" "${variables[@]}" "$home/bin/muster" "$@")
}

by_rest() { as_user -- "$@" "slurm.rest=unix:$cluster/rest/socket" "slurm.rest_token_file=$home/token"; }

# submit NAME WORD...: sets $id.
submit() {
	local name=$1
	shift
	id=$(by_rest submit "$tiny" "job.name=$name" slurm.nodes=2 parallel.dp=2 "$@" 2>"$home/said")
	[[ $id =~ ^[0-9]+$ ]]
}

shown() { by_rest queue show "$1" --json | python3 -c "import json, sys; print(json.load(sys.stdin)[-1]['$2'])"; }
is_in() { [[ $(shown "$1" state) == "$2" ]]; }
has_step() { [[ $(grep -c '"step":' "$home/$1/metrics.jsonl" 2>/dev/null) -ge $2 ]]; }

@test "submit, show, update and cancel a job that waits" {
	submit waits slurm.options=--hold slurm.time=60 "slurm.comment=one two"
	grep -qF -- "--signal=B:TERM@120 is left out" "$home/said"
	[[ $(shown "$id" state) == PENDING && $(shown "$id" reason) == JobHeldUser && $(shown "$id" limit_minutes) == 60 ]]
	[[ $(shown "$id" comment) == "one two" && $(shown "$id" user) == nobody ]]
	run by_rest queue update "$home/waits" --time 30 --comment "three four"
	[[ $status -eq 0 && $output == "updated $id" ]]
	[[ $(shown "$home/waits" limit_minutes) == 30 && $(shown "$home/waits" comment) == "three four" ]]
	run by_rest queue show "$home/waits"
	[[ $status -eq 0 && $output == *"$id"*PENDING*JobHeldUser*"three four"* ]]
	run by_rest queue cancel "$home/waits"
	[[ $status -eq 0 && $output == "cancelled $id" ]]
	is_in "$id" CANCELLED
	run by_rest queue cancel "$home/waits"
	[[ $status -eq 3 && $output == *"no job of this run waits or runs"* ]]
	[[ $(wc -l <"$home/waits/submissions.jsonl") -eq 1 ]]
}

# same_as_sbatch NAME WORD...: submits the job by REST and its script by sbatch, and compares what Slurm says of both.
same_as_sbatch() {
	local name=$1 field by_rest by_sbatch
	shift
	id=$(by_rest submit "$tiny" "job.name=$name" "$@" slurm.options=--hold)
	by_rest submit --dry-run "$tiny" "job.name=$name" "$@" slurm.options=--hold | sed "s|--output=.*|--output=/dev/null|" >"$home/script"
	other=$(cd "$home" && setpriv --reuid=nobody --regid=nogroup --clear-groups env -u signature sbatch --parsable "$home/script")
	for field in NumNodes NumTasks NumCPUs CPUs/Task TimeLimit Requeue TresPerNode Nice Partition TRES NtasksPerN:B:S:C MinCPUsNode \
		OverSubscribe ExcNodeList ReqNodeList Dependency WorkDir JobName; do
		by_rest=$(scontrol --oneliner show job "$id" | grep -oP "(?<= $field=)\S+") || true
		by_sbatch=$(scontrol --oneliner show job "$other" | grep -oP "(?<= $field=)\S+") || true
		echo "$field: $by_rest, sbatch: $by_sbatch"
		[[ $by_rest == "$by_sbatch" ]]
	done
}

@test "what the request asks for is what sbatch would ask for" {
	same_as_sbatch same slurm.nodes=2 parallel.dp=2 slurm.cpus_per_task=2 slurm.requeue=no slurm.gpus_per_node=1 slurm.time=1:00:00
	same_as_sbatch range slurm.nodes=1-2 parallel.dp=2 slurm.exclude=n2 slurm.dependency=singleton slurm.exclusive=yes
	same_as_sbatch gres slurm.nodes=1 slurm.gres=gpu:2 slurm.nodelist=n2 parallel.dp=2 slurm.exclusive=user
}

@test "a job that was submitted without Slurm's commands trains to its end, and no file has the token" {
	submit trains &
	while [[ -n $(jobs -r) ]]; do
		# the pattern is not on a command line of this test
		run grep -lsf "$cluster/pattern" /proc/[0-9]*/cmdline
		[[ -z $output ]]
	done
	wait $!
	id=$(grep -oP '"job":"\K[0-9]+' "$home/trains/submissions.jsonl")
	wait_for 60 is_in "$id" COMPLETED
	[[ $(last_step_of trains) -eq 20 ]]
	[[ -s $home/trains/logs/slurm-$id.out && $(stat -c %U:%a "$home/trains/logs/slurm-$id.out") == nobody:600 ]]
	grep -q "^SLURM_SUBMIT_DIR=$home$" "$home/environment"
	run grep -rlsF -- "$signature" "$home" "$cluster/log" "$cluster/spool" "$cluster/state"
	echo "$output"
	[[ $output == "$home/token" ]]
}

last_step_of() { tail -n 1 "$home/$1/metrics.jsonl" | grep -oP '"step":\K[0-9]+'; }

@test "a token in the environment reaches neither the job nor a file" {
	token=$(sed 's/SLURM_JWT=//' "$home/token")
	id=$(as_user "SLURM_JWT=$token" "MUSTER_SLURM_REST=unix:$cluster/rest/socket" -- submit "$tiny" job.name=secret)
	wait_for 60 is_in "$id" COMPLETED
	run grep -rlsF -- "$signature" "$home" "$cluster/log" "$cluster/spool" "$cluster/state"
	[[ $output == "$home/token" ]]
	[[ -z $(grep SLURM_JWT "$home/environment") ]]
}

@test "the signal TERM by REST makes a run write a checkpoint and stop; the chain's next job is cancelled first" {
	submit stops job.steps=100000
	wait_for 60 has_step stops 5
	run by_rest queue cancel "$home/stops" --signal TERM
	[[ $status -eq 0 && $output == "signalled $id" ]]
	wait_for 60 is_in "$id" FAILED
	[[ -n $(ls "$home/stops/ckpt") ]]
	run by_rest submit "$tiny" job.name=chain --chain 3 slurm.options=--hold
	[[ $status -eq 0 ]]
	run by_rest queue cancel "$home/chain"
	[[ $status -eq 0 && ${#lines[@]} -eq 3 && ${lines[0]#* } -gt ${lines[2]#* } ]]
}

@test "a job that Slurm could never start is refused before it is queued" {
	while IFS='|' read -r words text; do
		# shellcheck disable=SC2086 # a list of words
		run by_rest submit "$tiny" job.name=never $words
		echo "$words: $status: $output"
		[[ $status -ne 0 && $output == *"$text"* && ! -e $home/never ]]
	done <<-'ROWS'
		slurm.nodes=40|40 nodes are requested, but partition main has 2
		slurm.partition=none|there is no partition none; the partitions are main
		slurm.constraint=h100|h100
		slurm.nodelist=n7|partition main has no node n7
		slurm.options=--spread-job|Slurm's REST interface (v0.0.38) has nothing like it
		slurm.switches=1|Slurm's REST interface (v0.0.38) has nothing like it
	ROWS
	no_jobs
}

@test "tokens that Slurm refuses, and a job of another user" {
	local other
	cp "$home/token" "$home/broken"
	sed -i 's/\.[^.]*$/.AAAA/' "$home/broken"
	chown nobody "$home/broken"
	run as_user -- queue show 1 "slurm.rest=unix:$cluster/rest/socket" "slurm.rest_token_file=$home/broken"
	echo "$output"
	[[ $status -eq 3 && $output == *"get a new token with"* ]]
	run as_user SLURM_USER_NAME=root -- queue show 1 "slurm.rest=unix:$cluster/rest/socket" "slurm.rest_token_file=$home/token"
	[[ $status -eq 3 && $output == *"is user nobody's, but SLURM_USER_NAME is root"* ]]
	other=$(cd / && env -u signature sbatch --parsable --hold --output=/dev/null --wrap true)
	run by_rest queue cancel "$other"
	echo "$output"
	[[ $status -eq 3 && $output == *"permission denied"* ]]
	scancel "$other"
}

@test "queue show, update and cancel by Slurm's commands say the same" {
	submit both slurm.options=--hold slurm.time=60 "slurm.comment=one two"
	by_rest queue show "$id" --json >"$home/by_rest.json"
	"$MUSTER" queue show "$id" --json >"$home/by_commands.json"
	diff "$home/by_rest.json" "$home/by_commands.json"
	# An empty variable chooses the commands for a run that was submitted by REST.
	MUSTER_SLURM_REST="" "$MUSTER" queue show "$home/both" --json | diff "$home/by_rest.json" -
	MUSTER_SLURM_REST="" "$MUSTER" queue update "$home/both" --time 20 --comment "three  four"
	[[ $(shown "$id" limit_minutes) == 20 && $(shown "$id" comment) == "three  four" ]]
	"$MUSTER" queue cancel "$id"
	is_in "$id" CANCELLED
	run "$MUSTER" queue cancel 99999
	[[ $status -eq 3 && $output == *"nvalid job id"* ]]
}

@test "v0.0.38 cannot signal before the time limit, and the run stops in time by itself" {
	large
	submit limit job.steps=10000000 slurm.time=2 slurm.signal_before=20 slurm.requeue=no
	wait_for 200 is_in "$id" FAILED
	grep -q '"cause":"time-limit"' "$home/limit/events.jsonl"
	[[ -n $(ls "$home/limit/ckpt") ]]
}
