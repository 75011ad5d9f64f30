# The object store of tests/doubles/s3_server.py, for the bats files that use one. For setup_file and teardown_file.

# start_store: starts it; $store is its folder. Its keys are in the environment.
start_store() {
	export store=$BATS_FILE_TMPDIR/store
	mkdir "$store"
	python3 "$top/tests/doubles/s3_server.py" "$store" 3>&- &
	echo $! >"$store/pid"
	until [[ -e $store/port ]]; do kill -0 "$(<"$store/pid")" && sleep 0.01; done
	export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(<"$store/port") AWS_EC2_METADATA_DISABLED=true
	export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=SECRETTEST AWS_SESSION_TOKEN=TOKENTEST
}

stop_store() {
	kill "$(<"$store/pid")"
}

# plan LINES: the store's failures from now on.
plan() {
	printf '%s\n' "$@" >"$store/plan.new"
	mv "$store/plan.new" "$store/plan"
	: >"$store/log"
}

# requests OPERATION [WHAT]: how many came since the plan was made.
requests() {
	grep -c "^$1 .* ${2-}" "$store/log" || true
}
