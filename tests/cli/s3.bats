#!/usr/bin/env bats
# Checkpoints in an object store: jobs write and resume there, checkpoints are copied there and back, and whatever the store
# does, nothing that was announced is lost and no wrong byte is taken.

load ../helpers
load s3

setup_file() {
	make_data
	make_tiny_job
	start_store
	run_tiny made job.steps=6 checkpoint.every=2 checkpoint.keep=2 parallel.tp=2 parallel.pp=2 parallel.dp=2
}

teardown_file() { stop_store; }

setup() {
	cd "$BATS_TEST_TMPDIR"
	plan ""
	here=$(run_folder made)/ckpt
	there=s3://models/$BATS_TEST_NUMBER
}

# same A B: both folders hold the same checkpoint of step 6, byte for byte.
same() { diff -r "$1/step-00000006" "$2/step-00000006"; }

# no_secret FILE...: the keys are in none of them.
no_secret() { ! grep -rnE 'SECRETTEST|TOKENTEST|Signature=' "$@"; }

@test "a checkpoint is pushed, listed, shown, verified and pulled" {
	run "$MUSTER" ckpt push "$(run_folder made)" "$there"
	echo "$output"
	[[ $status -eq 0 && $output == "$there/step-00000006: "*" in 8 files, 0 of them there already, "* ]]
	run "$MUSTER" ckpt push "$here" "$there"
	[[ $status -eq 0 && $output == "$there/step-00000006: is there already" ]]
	run "$MUSTER" ckpt push "$here" "$there" --all
	[[ $status -eq 0 && ${lines[1]} == "$there/step-00000004: "* ]]
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[0]} == *" 6 "*"$there/step-00000006" ]]
	run "$MUSTER" ckpt show "$there/step-00000006" --json
	[[ $status -eq 0 ]]
	run "$MUSTER" ckpt verify "$there"
	[[ $status -eq 0 && ${lines[0]} == "$there/step-00000006: ok" && ${lines[1]} == "$there/step-00000004: ok" ]]
	run "$MUSTER" ckpt pull "$there" back --json
	[[ $status -eq 0 && $output == *'"there_already": false'* ]]
	same "$here" back
	[[ $(stat -c %a back/step-00000006/* | sort -u) == 600 ]]
}

@test "a job writes its checkpoints to a store, prunes them there, and resumes from it" {
	run_tiny remote job.steps=8 checkpoint.every=2 checkpoint.keep=2 "checkpoint.dir=$there" parallel.dp=2
	run "$MUSTER" ckpt verify "$there"
	echo "$output"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[0]} == "$there/step-00000008: ok" && ${lines[1]} == "$there/step-00000006: ok" ]]
	run_tiny remote job.steps=10 checkpoint.every=2 checkpoint.keep=2 "checkpoint.dir=$there" parallel.tp=2
	[[ $(grep -c '"step":9[,}]' "$(run_folder remote)/metrics.jsonl") -eq 1 && $(grep -c '"step":8[,}]' "$(run_folder remote)/metrics.jsonl") -eq 1 ]]
	run_tiny other job.steps=10 "checkpoint.resume=$there/step-00000010"
	run "$MUSTER" ckpt ls "$there" --json
	[[ $output == *'"step": 10'*'"step": 8'* && $output != *'"step": 6'* ]]
	no_secret "$(run_folder remote)" "$BATS_FILE_TMPDIR"/*.out
}

@test "a store that refuses, cuts, loses answers or is late is asked again" {
	export MUSTER_S3_STALL_S=1 # a late answer is given up; elsewhere requests are counted
	for fault in 'every3 500' 'every3 503' 'every4 429 0.01' 'every3 cut' 'every3 lost' 'every4 half' '7 late 3'; do
		local to=$there/${fault// /-}
		plan "* $fault"
		run "$MUSTER" ckpt push "$here" "$to"
		echo "$fault: $output"
		[[ $status -eq 0 ]]
		run "$MUSTER" ckpt pull "$to" "back-${fault// /-}"
		echo "$output"
		[[ $status -eq 0 ]]
		local what=${fault#* }
		[[ $(requests '.*' "${what% *}") -gt 0 ]]
		same "$here" "back-${fault// /-}"
		plan ""
		run "$MUSTER" ckpt ls "$to" --json
		[[ $output != *attempt* && $status -eq 0 ]]
	done
}

@test "a store that lies about success is found, and what it announced before stays" {
	"$MUSTER" ckpt push "$here/step-00000004" "$there"
	for fault in 'PutObject * drop' 'PutObject 4 flip' 'PutObject * flip'; do
		plan "$fault"
		run "$MUSTER" ckpt push "$here" "$there"
		echo "$fault: $status $output"
		[[ $(requests PutObject) -gt 1 ]]
		if [[ $fault == *'*'* ]]; then
			[[ $status -eq 1 && $output == *"the store said that it keeps these bytes"* ]]
			plan ""
			run "$MUSTER" ckpt verify "$there"
			[[ $status -eq 0 && ${#lines[@]} -eq 1 && $output == *step-00000004:\ ok ]]
		else # the second attempt put it right
			[[ $status -eq 0 ]]
			plan ""
			"$MUSTER" ckpt verify "$there"
			break
		fi
	done
}

@test "a wrong byte that is read is found" {
	"$MUSTER" ckpt push "$here" "$there"
	for fault in 'GetObject 5-99 flip' 'GetObject 5-99 short'; do
		plan "$fault"
		run "$MUSTER" ckpt pull "$there/step-00000006" back
		echo "$fault: $output"
		[[ $status -eq 1 && ! -e back/step-00000006 ]]
	done
	plan ""
	"$MUSTER" ckpt pull "$there" back
	same "$here" back
}

@test "a push that was killed goes on where it was" {
	plan "PutObject 5-99 cut"
	run env AWS_MAX_ATTEMPTS=2 "$MUSTER" ckpt push "$here" "$there"
	[[ $status -eq 1 && $output == *"given up after 2 attempts"* ]]
	plan ""
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 0 && $output == "$there: no checkpoints" ]]
	run "$MUSTER" ckpt push "$here" "$there"
	echo "$output"
	[[ $status -eq 0 && $output == *" 3 of them there already"* ]]
	"$MUSTER" ckpt pull "$there" back
	same "$here" back
}

@test "a push that is killed at any of its requests loses nothing" {
	local when n status
	run_tiny alone job.steps=6 checkpoint.every=4 launch.devices=1
	here=$(run_folder alone)/ckpt
	for when in kill killed; do
		for ((n = 1; ; n++)); do
			"$MUSTER" ckpt push "$here/step-00000004" "$there/$when$n" >/dev/null
			plan "* $n $when"
			status=0
			bash -c 'echo $$ >"$0/victim"; exec "$@"' "$store" "$MUSTER" ckpt push "$here" "$there/$when$n" >out 2>&1 || status=$?
			plan ""
			echo "$when $n: $status"
			[[ $status -eq 137 || $status -eq 0 ]]
			[[ $status -ne 0 ]] || break
			"$MUSTER" ckpt verify "$there/$when$n" >out
			grep -q step-00000004:\ ok out
			"$MUSTER" ckpt push "$here" "$there/$when$n" >/dev/null
			run "$MUSTER" ckpt verify "$there/$when$n"
			[[ $status -eq 0 && ${#lines[@]} -eq 2 ]]
		done
		[[ $n -gt 10 ]]
	done
}

@test "a killed push in parts leaves uploads, which a later one aborts after a day" {
	local status=0
	run_tiny large job.steps=6 model.hidden=512 model.layers=2
	echo 90000 >"$store/age" # seconds by which new uploads look older
	plan 'UploadPart 2 kill'
	bash -c 'echo $$ >"$0/victim"; exec "$@"' "$store" "$MUSTER" ckpt push "$(run_folder large)" "$there" >out 2>&1 || status=$?
	rm "$store/age"
	[[ $status -eq 137 && $(requests CreateMultipartUpload) -eq 1 ]]
	plan ""
	"$MUSTER" ckpt push "$here" "$there/other" # another prefix: not its own
	[[ $(requests AbortMultipartUpload) -eq 0 ]]
	"$MUSTER" ckpt push "$here" "$there" --replace
	[[ $(requests AbortMultipartUpload) -eq 1 ]]
	"$MUSTER" ckpt verify "$there"
}

@test "a push in parts that is killed at any of its requests, to a store that fails too, loses nothing" {
	local when n step status points=0
	run_tiny parts job.steps=6 checkpoint.every=4 model.hidden=512 model.layers=2 launch.devices=1
	here=$(run_folder parts)/ckpt
	[[ -n ${MUSTER_LARGE-} ]] && step=1 || step=12
	draw_number $step
	for when in kill killed; do
		for ((n = 1 + drawn; ; n += step)); do
			local to=$there/$when$n
			plan "* $n $when" '* every4 503 0.01' 'UploadPart every3 cut' '* every5 lost'
			status=0
			bash -c 'echo $$ >"$0/victim"; exec "$@"' "$store" "$MUSTER" ckpt push "$here/step-00000006" "$to" >out 2>&1 || status=$?
			echo "$when $n: $status"
			[[ $status -eq 137 || $status -eq 0 ]]
			[[ $status -ne 0 ]] || break
			plan '* every4 503 0.01' 'UploadPart every3 cut' '* every5 lost'
			"$MUSTER" ckpt push "$here/step-00000006" "$to" >out
			plan ""
			"$MUSTER" ckpt verify "$to" >out
			[[ $(<out) == *step-00000006:\ ok ]]
			"$MUSTER" ckpt pull "$to" "back-$when$n" >out
			same "$here" "back-$when$n"
			rm -r "back-$when$n"
			points=$((points + 1))
		done
	done
	[[ $points -gt 2 ]]
	figure "$points requests"
}

@test "of two writers of one step the second fails, and names the first" {
	run_tiny rival job.steps=6 job.seed=9
	"$MUSTER" ckpt push "$here" "$there"
	plan 'GetObject 1-2 404' # it looks before the first has published
	run "$MUSTER" ckpt push "$(run_folder rival)" "$there"
	echo "$output"
	[[ $status -eq 1 && $output == *"another writer, $(uname -n)."*", published .attempt-00000006-"* ]]
	plan ""
	"$MUSTER" ckpt pull "$there" back
	same "$here" back
}

@test "another checkpoint of the step is replaced only on request" {
	run_tiny second job.steps=6 job.seed=8
	"$MUSTER" ckpt push "$here" "$there"
	run "$MUSTER" ckpt push "$(run_folder second)" "$there"
	[[ $status -eq 2 && $output == *"another checkpoint of this step is there"* ]]
	"$MUSTER" ckpt push "$(run_folder second)" "$there" --replace
	"$MUSTER" ckpt pull "$there" back
	same "$(run_folder second)/ckpt" back
}

@test "refusals are explained, and the keys are in none of them" {
	local case
	for case in 'AWS_SECRET_ACCESS_KEY=SECRETTESTX|refuses the signature' 'AWS_ACCESS_KEY_ID=AKIDX|does not know the access key' \
		'AWS_SESSION_TOKEN=TOKENTESTX|AWS_SESSION_TOKEN' 'AWS_ENDPOINT_URL_S3=ftp://x|AWS_ENDPOINT_URL' 'AWS_ENDPOINT_URL_S3=http://|AWS_ENDPOINT_URL' \
		'AWS_ENDPOINT_URL_S3=http://127.0.0.1:1|nobody listens' 'AWS_SECRET_ACCESS_KEY=|AWS_SECRET_ACCESS_KEY'; do
		run env AWS_MAX_ATTEMPTS=2 "${case%|*}" "$MUSTER" ckpt ls "$there"
		echo "$case: $output"
		[[ $status -ne 0 && $output == *"${case#*|}"* && $output != *SECRETTEST* && $output != *TOKENTEST* ]]
	done
	plan 'ListObjectsV2 * 404'
	run env AWS_MAX_ATTEMPTS=2 "$MUSTER" ckpt ls "$there"
	[[ $status -eq 2 && $output == *"nothing is known of this bucket"* ]]
	run env AWS_MAX_ATTEMPTS=2 AWS_ENDPOINT_URL_S3=http://nowhere.invalid "$MUSTER" ckpt ls "$there"
	[[ $status -eq 1 && $output == *nowhere.invalid* ]]
	plan '* * skew'
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 1 && $output == *"the clock of this host is "*" seconds "* ]]
	for case in xx s3:// s3://a 's3://bucket/\x01'; do
		run "$MUSTER" ckpt push "$here" "$(printf "$case")"
		[[ $status -eq 2 ]]
	done
	run "$MUSTER" ckpt push "$here" "$there" --limit x
	[[ $status -eq 2 ]]
}

@test "the keys come from a file that only its owner may read, or from a role" {
	"$MUSTER" ckpt push "$here" "$there"
	printf '[default]\naws_access_key_id = NO\naws_secret_access_key = NO\n[train]\naws_access_key_id = AKIDTEST\naws_secret_access_key = SECRETTEST\n' >keys
	chmod 644 keys
	unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
	export AWS_SHARED_CREDENTIALS_FILE=$PWD/keys AWS_PROFILE=train
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 1 && $output == *"chmod 600"* && $output != *SECRETTEST* ]]
	chmod 600 keys
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 0 && $output == *step-00000006 ]]
	AWS_PROFILE=none run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 1 && $output == *"no profile none"* ]]
	unset AWS_SHARED_CREDENTIALS_FILE AWS_PROFILE
	export HOME=$PWD
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 1 && $output == *"there are no keys"* ]]
	role
	run "$MUSTER" ckpt ls "$there"
	echo "$output"
	kill "$(<role.pid)"
	[[ $status -eq 0 && $output == *step-00000006 ]]
	[[ $(<role.log) == $'PUT /latest/api/token 21600\nGET /latest/meta-data/iam/security-credentials/ t0ken\nGET /latest/meta-data/iam/security-credentials/worker t0ken' ]]
}

# role: a service that gives this machine's role its keys.
role() {
	python3 - 3>&- <<-'PY' &
		import http.server, json, os
		class H(http.server.BaseHTTPRequestHandler):
		    def log_message(self, *a): pass
		    def do(self):
		        seen = self.headers.get("X-aws-ec2-metadata-token") or self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
		        print(self.command, self.path, seen, file=open("role.log", "a"))
		        body = "t0ken" if self.command == "PUT" else "worker" if self.path.endswith("/") else json.dumps(
		            {"AccessKeyId": "AKIDTEST", "SecretAccessKey": "SECRETTEST", "Token": "TOKENTEST", "Expiration": "2999-01-01T00:00:00Z"})
		        self.send_response(200)
		        self.end_headers()
		        self.wfile.write(body.encode())
		    do_GET = do_PUT = do
		s = http.server.HTTPServer(("127.0.0.1", 0), H)
		open("role.tmp", "w").write(str(s.server_address[1]))
		os.rename("role.tmp", "role.port")
		s.serve_forever()
	PY
	echo $! >role.pid
	until [[ -e role.port ]]; do kill -0 "$(<role.pid)" && sleep 0.01; done
	unset AWS_EC2_METADATA_DISABLED
	export AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:$(<role.port)
}
