#!/usr/bin/env bats
# Other users of this host can reach every port of its loopback interface. They learn nothing and stop nothing.

load ../helpers.bash

NOBODY=65534
stranger=$BATS_TEST_DIRNAME/../../build/tests/tools/stranger

setup_file() {
	make_data
	make_tiny_job
}

setup() {
	lacking=
	[[ $(id -u) -eq 0 ]] || lacking="only root can become another user"
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
	[[ -z ${flood-} ]] || kill -9 "$flood" 2>/dev/null || true
}

# Starts a run of four ranks that does not end by itself, and sets $pid.
start() { # name word...
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" job.steps=100000 parallel.dp=4 restart.backoff=0.05 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 3
}

stop() {
	kill -TERM "$pid"
	wait "$pid" || [[ $? -eq 75 ]]
	pid=
}

# Prints the PMIx part of the environment that the launcher gave to an agent.
agents_pmix() {
	local agent
	agent=$(pgrep -P "$pid" -x muster-agent | head -n 1)
	mapfile -d '' -t pmix_env < <(grep -z '^PMIX_' "/proc/$agent/environ")
	[[ ${#pmix_env[@]} -gt 3 ]]
}

@test "another user cannot join the PMIx server, though it knows every name" {
	[[ -z $lacking ]] || skip "$lacking"
	start outsider
	agents_pmix
	run timeout 120 env -i "${pmix_env[@]}" "$stranger" --uid $NOBODY pmix
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output != *muster.comm* ]]
	stop
	[[ $(event outsider generation-start | wc -l) -eq 1 ]]
}

@test "what the ranks publish through PMIx is sealed" {
	start sealed network.backend=tcp
	agents_pmix
	run timeout 120 env -i "${pmix_env[@]}" "$stranger" pmix
	[[ $status -eq 0 && ${#lines[@]} -eq 4 ]]
	for line in "${lines[@]}"; do
		[[ $line =~ ^[0-3]\ [A-Za-z0-9+/]{100,}=*$ ]]
		[[ $(base64 -d <<<"${line#* }" | grep -c -a -E '127\.0\.0\.1|muster|host') -eq 0 ]]
	done
	stop
}

@test "namespaces cannot be guessed, and differ from run to run" {
	start names restart.warm=no # agents that are kept do not meet through PMIx again
	agents_pmix
	first=$(printf '%s\n' "${pmix_env[@]}" | grep '^PMIX_NAMESPACE=')
	[[ $first =~ ^PMIX_NAMESPACE=muster-1-[0-9a-f]{32}$ ]]
	kill -9 "$(pgrep -P "$pid" -x muster-agent | tail -n 1)"
	wait_for 60 eval '[[ $(event_field names first-step generation) == 2 ]]'
	agents_pmix
	second=$(printf '%s\n' "${pmix_env[@]}" | grep '^PMIX_NAMESPACE=')
	[[ $second =~ ^PMIX_NAMESPACE=muster-2-[0-9a-f]{32}$ && ${first##*-} != "${second##*-}" ]]
	stop
}

@test "1,000 silent connections of another user keep no agent out" {
	[[ -z $lacking ]] || skip "$lacking"
	start flooded network.backend=tcp
	agent=$(pgrep -P "$pid" -x muster-agent | tail -n 1)
	# The other address is that of the consoles.
	address=$(ss -Hltnp | grep "pid=$pid," | grep -oE '127\.0\.0\.1:[0-9]+' |
		grep -vFf <(grep -oE '127\.0\.0\.1:[0-9]+' "$(run_folder flooded)/control"))
	mkfifo "$BATS_TEST_TMPDIR/end"
	"$stranger" --uid $NOBODY hold "$address" 1000 <"$BATS_TEST_TMPDIR/end" >"$BATS_TEST_TMPDIR/said" 3>&- &
	flood=$!
	exec 8>"$BATS_TEST_TMPDIR/end"
	wait_for 60 grep -q holding "$BATS_TEST_TMPDIR/said"
	killed=$(date +%s.%N)
	kill -9 "$agent"
	wait_for 60 eval '[[ $(event_field flooded first-step generation) == 2 ]]'
	after=$(span "$killed" "$(event_field flooded first-step time)")
	figure "a rank killed while another user holds 1,000 silent connections: first step of the next generation after $after s"
	exec 8>&-
	wait "$flood"
	flood=
	stop
	[[ $(event flooded generation-start | wc -l) -eq 2 ]]
}

@test "a run works on a host whose name has 63 letters" {
	[[ -z $lacking ]] || skip "$lacking"
	name=$(printf 'h%.0s' {1..63})
	run unshare --uts sh -c 'hostname "$1" && [ "$(hostname)" = "$1" ] && shift && exec "$@"' sh "$name" \
		"$MUSTER" run "$tiny" job.name=longname job.steps=6 parallel.dp=2
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $(count_agents longname) -eq 2 ]]
}
