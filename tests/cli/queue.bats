#!/usr/bin/env bats
# `muster queue` and `muster submit` with a double of slurmrestd that speaks v0.0.41, also over TLS. tests/slurm/rest.bats has the tests
# with a real slurmrestd.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	command -v openssl >/dev/null && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
		-subj /CN=localhost -addext subjectAltName=DNS:localhost \
		-keyout "$BATS_FILE_TMPDIR/key" -out "$BATS_FILE_TMPDIR/certificate" 2>/dev/null
	cat >"$BATS_FILE_TMPDIR/server.py" <<-'PYTHON'
		import http.server, json, os, ssl, sys
		folder, tls = sys.argv[1], sys.argv[2:]
		number = lambda n: {"set": True, "infinite": False, "number": n}
		answers = {
		    "/openapi/v3": {"paths": {"/slurm/v0.0.41/job/submit": {}}},
		    "/slurm/v0.0.41/partitions": {"partitions": [{"name": "main", "nodes": {"total": 4}, "partition": {"state": ["UP"]}}]},
		    "/slurm/v0.0.41/nodes": {"nodes": [{"name": "n%d" % i, "state": ["IDLE"], "cpus": 4, "real_memory": 1000, "gres": "",
		                                        "features": [], "partitions": ["main"]} for i in range(4)]},
		    "/slurm/v0.0.41/job/submit": {"errors": [], "job_id": 77},
		    "/slurm/v0.0.41/job/77": {"errors": [], "jobs": [{"job_id": 77, "job_state": ["PENDING"], "state_reason": "Priority",
		                                                      "name": "sub", "node_count": number(2), "time_limit": number(60)}]},
		}
		class Handler(http.server.BaseHTTPRequestHandler):
		    def answer(self):
		        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
		        with open(folder + "/requests", "a") as f:
		            print(self.command, self.path, body, file=f)
		        found = answers.get(self.path.split("?")[0])
		        if self.path.endswith("/submit") and os.path.exists(folder + "/lose"):
		            return
		        if self.path.endswith("/submit") and os.path.exists(folder + "/refuse"):
		            found = None
		        data = json.dumps(found or {"errors": [{"error": "Invalid job id specified"}]}).encode()
		        self.send_response(200 if found else 500)
		        self.send_header("Content-Type", "application/json")
		        self.send_header("Content-Length", str(len(data)))
		        self.end_headers()
		        self.wfile.write(data)
		    do_GET = do_POST = do_DELETE = answer
		    def log_message(self, *words):
		        pass
		server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
		if tls:
		    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
		    context.load_cert_chain(*tls)
		    server.socket = context.wrap_socket(server.socket, server_side=True)
		with open(folder + "/port.new", "w") as f:
		    print(server.server_port, file=f)
		os.rename(folder + "/port.new", folder + "/port")
		server.serve_forever()
	PYTHON
}

setup() { export SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJhbmEifQ.c2VjcmV0; }

teardown() { [[ -z ${server-} ]] || kill "$server"; }

start_server() { # words of the certificate
	python3 "$BATS_FILE_TMPDIR/server.py" "$BATS_TEST_TMPDIR" "$@" 3>&- &
	server=$!
	wait_for 60 test -e "$BATS_TEST_TMPDIR/port"
	port=$(<"$BATS_TEST_TMPDIR/port")
}

@test "a job is submitted, shown, changed and cancelled by v0.0.41" {
	start_server
	export MUSTER_SLURM_REST=http://localhost:$port
	run "$MUSTER" submit "$tiny" job.name=sub slurm.nodes=2 parallel.dp=2 slurm.time=60
	echo "$output"
	[[ $status -eq 0 && $(grep -cx 77 <<<"$output") -eq 1 ]]
	grep "^POST /slurm/v0.0.41/job/submit " "$BATS_TEST_TMPDIR/requests" | cut -d ' ' -f 3- | python3 -c '
import json, sys
job = json.load(sys.stdin)["job"]
assert job["minimum_nodes"] == job["maximum_nodes"] == 2, job
assert job["kill_warning_signal"] == "TERM" and job["kill_warning_flags"] == ["BATCH_JOB"], job
assert job["time_limit"] == {"set": True, "infinite": False, "number": 60}, job
assert not [word for word in job["environment"] if "c2VjcmV0" in word], job'
	grep -q '"job":"77"' "$(run_folder sub)/submissions.jsonl"
	run "$MUSTER" queue show "$(run_folder sub)"
	[[ $status -eq 0 && $output == *"77         PENDING"*Priority* ]]
	run "$MUSTER" queue update "$tiny" job.name=sub --time 1:30:00
	[[ $status -eq 0 && $output == "updated 77" ]]
	grep -qF 'POST /slurm/v0.0.41/job/77 {"time_limit":{"set":true,"infinite":false,"number":90}}' "$BATS_TEST_TMPDIR/requests"
	run "$MUSTER" queue cancel 77 --signal USR1
	[[ $status -eq 0 && $output == "signalled 77" ]]
	grep -qF 'DELETE /slurm/v0.0.41/job/77?signal=10' "$BATS_TEST_TMPDIR/requests"
	run "$MUSTER" queue show 78
	[[ $status -eq 3 && $output == *"job 78"*"is unknown, or ended"* ]]
}

@test "a submission whose answer is lost keeps its files, and one that is refused leaves nothing" {
	start_server
	export MUSTER_SLURM_REST=http://localhost:$port
	touch "$BATS_TEST_TMPDIR/refuse"
	run "$MUSTER" submit "$tiny" job.name=refused
	echo "$output"
	[[ $status -eq 3 && $output == *"Invalid job id specified"* && ! -e $(run_folder refused) ]]
	touch "$BATS_TEST_TMPDIR/lose"
	run "$MUSTER" submit "$tiny" job.name=lost
	echo "$output"
	[[ $status -ne 0 && $output == *"The job may be in the queue all the same"* && -e $(run_folder lost)/submit-1.ini ]]
}

@test "a run folder of another user, or one that others may write to, is not believed: its server would get the token" {
	[[ $EUID -eq 0 ]] || skip "needs root, to own a file as another user"
	start_server
	local run=$BATS_TEST_TMPDIR/foreign
	mkdir "$run"
	echo '{"submission":1,"job":"77","time":1}' >"$run/submissions.jsonl"
	sed "s|^\[launch\]|[slurm]\nrest = http://localhost:$port\n&|" "$tiny" >"$run/submit-1.ini"
	chmod 777 "$run"
	run "$MUSTER" queue show "$run"
	[[ $status -eq 3 && $output == *"muster sends no token to the server that it names"* ]]
	chmod 755 "$run"
	chown nobody "$run"
	run "$MUSTER" queue show "$run"
	[[ $status -eq 3 && $output == *"another user owns this run folder"* ]]
	[[ ! -e $BATS_TEST_TMPDIR/requests ]]
	chown root "$run"
	run "$MUSTER" queue show "$run"
	[[ $status -eq 0 && $output == *"77         PENDING"* ]]
}

@test "a certificate that the system does not trust is refused, and slurm.rest_ca_file makes it trusted" {
	command -v openssl >/dev/null || skip "openssl is not installed"
	start_server "$BATS_FILE_TMPDIR/certificate" "$BATS_FILE_TMPDIR/key"
	run "$MUSTER" queue show 77 "slurm.rest=https://localhost:$port"
	echo "$output"
	[[ $status -eq 3 && $output == *"certificate of the server is not trusted"* ]]
	run "$MUSTER" queue show 77 "slurm.rest=https://localhost:$port" "slurm.rest_ca_file=$BATS_FILE_TMPDIR/certificate"
	echo "$output"
	[[ $status -eq 0 && $output == *PENDING* ]]
	run "$MUSTER" queue show 77 "slurm.rest=https://127.0.0.1:$port" "slurm.rest_ca_file=$BATS_FILE_TMPDIR/certificate"
	[[ $status -eq 3 && $output == *"certificate of the server is not trusted, or is for another name"* ]]
	[[ $(wc -l <"$BATS_TEST_TMPDIR/requests") -eq 2 ]]
}

@test "mistakes on the command line" {
	while IFS='|' read -r words text; do
		# shellcheck disable=SC2086 # a list of words
		run "$MUSTER" queue $words
		echo "$words: $status: $output"
		[[ $status -eq 2 && $output == *"$text"* ]]
	done <<-'ROWS'
		|needs one of show, update and cancel
		shwo 7|did you mean show
		show|needs a run, a job file or the id of a job
		show 7 8|one word too many
		show 7 --signal TERM|"--signal" is not an option of show
		cancel 7 --signal NOW|is not a signal
		update 7|needs an option that says what to change
		update 7 --time soon|is not a time limit
		update 7 --nice x|is not a number
		update 7 --time|--time needs a value
		show 7 slurm.rest=http://login:6820|anyone on the way could read the token
		show 7 slurm.rset=unix:/s|did you mean rest
	ROWS
	run "$MUSTER" queue show none
	[[ $status -ne 0 && $output == *"no job was submitted for this run"* ]]
}
