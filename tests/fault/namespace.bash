# Functions for runs in a network namespace of their own, whose connections the kernel slows down. A bats file loads this file to ask
# whether that is possible here; the script that it starts in the namespace sources this file for the rest.

# Skips the test unless this host permits such a namespace, and has the programs for it.
need_namespace() {
	[[ $EUID -eq 0 ]] || skip "needs root, for a network namespace"
	command -v tc >/dev/null && command -v ss >/dev/null || skip "iproute2 is not installed"
	unshare -n true 2>/dev/null || skip "this host permits no network namespace"
}

# Polls until the shell command succeeds. After that time it names the command, and fails.
wait_until() { # seconds command
	local i
	for ((i = 0; i < $1 * 10; i++)); do
		! eval "$2" || return 0
		sleep 0.1
	done
	echo "not within $1 s: $2"
	return 1
}

# Prints the process of the run's agent that has this rank.
pid_of() { # events.jsonl rank
	grep -oP "\"event\":\"hello\".*\"rank\":$2,\"pid\":\K[0-9]+" "$1"
}

# Adds a class to the loopback interface, for which the kernel sends that slowly. Packets get there by slow_down.
add_slow_class() { # rate burst
	tc qdisc add dev lo root handle 1: htb default 10
	tc class add dev lo parent 1: classid 1:10 htb rate 10gbit burst 1m quantum 60000
	tc class add dev lo parent 1: classid 1:20 htb rate "$1" burst "$2"
}

# Leads the packets that match into that class.
slow_down() { # match...
	tc filter add dev lo parent 1: protocol ip u32 "$@" flowid 1:20
}
