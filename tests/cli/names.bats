#!/usr/bin/env bats
# `muster doctor` finds names that are resolved slowly, not at all, or to addresses that other nodes cannot use. Each case runs in
# namespaces with a host name, /etc/hosts, /etc/resolv.conf and /etc/nsswitch.conf of its own, and with a DNS server that never answers.

load ../helpers

setup() {
	unshare --mount --net --uts true 2>/dev/null || skip "namespaces cannot be made here"
	etc=$BATS_TEST_TMPDIR/etc
	mkdir -p "$etc" "$BATS_TEST_TMPDIR/bin"
	echo "hosts: files dns" >"$etc/nsswitch.conf"
	# 1 s for each of 2 attempts, where the default is 5 s.
	printf 'nameserver 127.0.0.53\noptions timeout:1 attempts:2\n' >"$etc/resolv.conf"
	printf '127.0.0.1 localhost\n10.9.8.1 c1\n' >"$etc/hosts"
	cat >"$BATS_TEST_TMPDIR/bin/enter" <<-'SH'
		#!/bin/bash
		# enter ETC COMMAND...: runs a command as host c1 with 10.9.8.1, and these files in /etc.
		etc=$1
		shift
		rm -f "$etc/../ready"
		hostname c1
		ip link set lo up
		ip address add 10.9.8.1/32 dev lo
		for file in "$etc"/*; do
			mount --bind "$file" "/etc/${file##*/}"
		done
		python3 -c 'import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(("127.0.0.53", 53)); print(flush=True); time.sleep(60)' > >(read -r; echo >"$etc/../ready") &
		silent=$!
		until [[ -e $etc/../ready ]]; do sleep 0.01; done
		"$@"
		status=$?
		kill $silent
		exit $status
	SH
	# Slurm's controller, as far as the check asks it. $addresses: NodeAddr of n1, n2, …
	cat >"$BATS_TEST_TMPDIR/bin/scontrol" <<-'SH'
		#!/bin/bash
		[[ $* == "--oneliner show node n[1-4]" ]] || exit 1
		for address in $addresses; do
			echo "NodeName=n$((++i)) NodeAddr=$address NodeHostName=$address"
		done
	SH
	# Slurm's own programs would look for a controller in that DNS.
	for program in srun sinfo; do
		printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/$program"
	done
	chmod +x "$BATS_TEST_TMPDIR"/bin/*
	unset SLURM_JOB_ID SLURM_JOB_NODELIST
}

# The lines about names that the doctor prints there, as JSON rows "LEVEL OBJECT: FOUND → REMEDY".
names() { # [VARIABLE=VALUE]...
	run unshare --mount --net --uts "$BATS_TEST_TMPDIR/bin/enter" "$etc" env "PATH=$BATS_TEST_TMPDIR/bin:$PATH" "$@" "$MUSTER" doctor --json
	output=$(python3 -c 'import json, sys
for n in json.load(sys.stdin)["nodes"]:
    for f in n["findings"]:
        if f["check"] in ("name", "names"):
            print(f["level"], f["object"] + ":", f["found"], "→", f["remedy"] or "")' <<<"$output")
	echo "$output"
}
in_job() { names SLURM_JOB_ID=7 "SLURM_JOB_NODELIST=n[1-4]" addresses="$1"; } # addresses

@test "a name with an entry in /etc/hosts is found at once" {
	names
	[[ $output == "ok host name: c1 is 10.9.8.1 → "$'\n'"ok node names: this is not an allocation → " ]]
}

@test "a host name that waits for DNS is reported with the time and the remedy" {
	echo '127.0.0.1 localhost' >"$etc/hosts"
	names
	[[ $output == "warn host name: c1: the answer took "[2-9]*" s ("*") → add the addresses and names of all nodes to /etc/hosts"*"/etc/resolv.conf"* ]]
	figure "$(head -n 1 <<<"$output" | cut -d '(' -f 1)"
}

@test "a DNS that takes longer than the check does is reported, and does not count as a check that hangs" {
	large
	echo '127.0.0.1 localhost' >"$etc/hosts"
	printf 'nameserver 127.0.0.53\noptions timeout:10 attempts:2\n' >"$etc/resolv.conf"
	names
	[[ $output == "warn host name: c1: no answer within 8 s → add the addresses"* ]]
}

@test "a host name with an address of another host is reported" {
	sed -i 's/10.9.8.1/10.9.8.2/' "$etc/hosts"
	in_job 10.9.8.1
	[[ $output == *"warn host name: c1 is 10.9.8.2, which is no address of this host → correct its entry"* ]]
}

@test "nodes whose addresses are numbers need no name" {
	in_job "10.9.8.1 10.9.8.2 fe80::7 10.9.8.4"
	[[ $output == *"ok node names: Slurm has an address of each of 4 nodes → "* ]]
}

@test "names of nodes that are slow, unknown or loopback are reported" {
	printf '10.9.8.2 c2\n127.0.1.1 c3\n' >>"$etc/hosts"
	in_job "c1 c2"
	[[ $output == *"ok node names: 2 of 2 look-ups answered in less than 1 s → "* ]]
	in_job "c1 c2 c3"
	[[ $output == *"warn node names: c3 is 127.0.1.1 here, a loopback address, but it is another node → correct its entry"* ]]
	in_job "c1 c4 c5"
	[[ $output == *"warn node names: 2 of 3 names are slow: c4: the answer took "[2-9]*" → add the addresses"* ]]
	: >"$etc/resolv.conf"
	echo "hosts: files" >"$etc/nsswitch.conf"
	in_job "c1 c4"
	[[ $output == *"warn node names: c4: "*"not known → add its address and name to /etc/hosts or DNS"* ]]
}

@test "a controller that does not answer is reported" {
	names SLURM_JOB_ID=7 SLURM_JOB_NODELIST=other
	[[ $output == *"warn node names: "*"scontrol"*" → look at the lines about Slurm"* ]]
}
