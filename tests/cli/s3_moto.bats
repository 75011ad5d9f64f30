#!/usr/bin/env bats
# Checkpoints in another implementation of S3, moto, with boto3 as a second client. Both are Python modules; without them the
# tests are skipped.

load ../helpers

setup_file() {
	export lacking=""
	python3 -c 'import moto.server, boto3' 2>/dev/null || lacking="python3 has no modules moto and boto3"
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	cd "$BATS_FILE_TMPDIR"
	python3 - 3>&- >moto.log 2>&1 <<-'PY' &
		import os, threading
		from moto.server import ThreadedMotoServer
		server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
		server.start()
		open("port.tmp", "w").write(str(server.get_host_and_port()[1]))
		os.rename("port.tmp", "port")
		threading.Event().wait()
	PY
	echo $! >moto.pid
	until [[ -e port ]]; do kill -0 "$(<moto.pid)" && sleep 0.05; done
	export AWS_ENDPOINT_URL=http://127.0.0.1:$(<port) AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-1
	export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=SECRETTEST AWS_DEFAULT_REGION=us-east-1
	boto 's3.create_bucket(Bucket="models")'
	run_tiny made job.steps=6 checkpoint.every=2 checkpoint.keep=2 parallel.tp=2 parallel.pp=2
}

teardown_file() { [[ -n $lacking ]] || kill "$(<"$BATS_FILE_TMPDIR/moto.pid")"; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
	cd "$BATS_TEST_TMPDIR"
	here=$(run_folder made)/ckpt
	prefix=$BATS_TEST_NUMBER
	there=s3://models/$prefix
}

# boto LINES: runs them with the client s3 of boto3.
boto() {
	PREFIX=${prefix-} HERE=${here-} python3 -c "import boto3, json, os, sys
s3 = boto3.client('s3')
prefix, here = os.environ['PREFIX'], os.environ['HERE']
$1"
}

@test "a checkpoint is pushed, verified and pulled, and boto3 reads the same bytes" {
	run "$MUSTER" ckpt push "$here" "$there"
	echo "$output"
	[[ $status -eq 0 ]]
	run "$MUSTER" ckpt verify "$there"
	[[ $status -eq 0 && $output == "$there/step-00000006: ok" ]]
	"$MUSTER" ckpt pull "$there" back
	diff -r "$here/step-00000006" back/step-00000006
	boto 'pointer = json.load(s3.get_object(Bucket="models", Key=f"{prefix}/step-00000006")["Body"])
keys = [o["Key"] for o in s3.list_objects_v2(Bucket="models", Prefix=prefix + "/" + pointer["attempt"] + "/")["Contents"]]
names = sorted(os.listdir(here + "/step-00000006"))
assert sorted(k.rsplit("/", 1)[1] for k in keys) == names, keys
for k in keys:
    got = s3.get_object(Bucket="models", Key=k, ChecksumMode="ENABLED")["Body"].read()
    assert got == open(here + "/step-00000006/" + k.rsplit("/", 1)[1], "rb").read(), k
assert not s3.list_multipart_uploads(Bucket="models").get("Uploads")'
}

@test "muster reads a checkpoint that boto3 has written" {
	boto 'for name in os.listdir(here + "/step-00000004"):
    s3.upload_file(here + "/step-00000004/" + name, "models", f"{prefix}/step-00000004/{name}")'
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 0 && $output == *" 4 "*"$there/step-00000004" ]]
	run "$MUSTER" ckpt verify "$there"
	[[ $status -eq 0 ]]
	"$MUSTER" ckpt pull "$there" back
	diff -r "$here/step-00000004" back/step-00000004
	run_tiny resumed job.steps=6 "checkpoint.resume=$there/step-00000004"
	boto 'key = f"{prefix}/step-00000004/shard-00001.safetensors"
bad = bytearray(s3.get_object(Bucket="models", Key=key)["Body"].read())
bad[-5] ^= 1
s3.put_object(Bucket="models", Key=key, Body=bytes(bad))'
	run "$MUSTER" ckpt verify "$there"
	[[ $status -eq 1 && $output == *shard-00001.safetensors* ]]
}

@test "a job trains into the store, prunes there and resumes from it" {
	run_tiny remote job.steps=8 checkpoint.every=2 checkpoint.keep=2 "checkpoint.dir=$there" parallel.dp=2
	run "$MUSTER" ckpt verify "$there"
	echo "$output"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[0]} == *step-00000008:\ ok && ${lines[1]} == *step-00000006:\ ok ]]
	run_tiny remote job.steps=10 checkpoint.every=2 checkpoint.keep=2 "checkpoint.dir=$there"
	[[ $(grep -c '"step":8[,}]' "$(run_folder remote)/metrics.jsonl") -eq 1 ]]
	# Two checkpoints and the name of the run: nothing else remains.
	boto 'rows = [o["Key"].split("/")[1] for o in s3.list_objects_v2(Bucket="models", Prefix=prefix + "/")["Contents"]]
assert {r for r in rows if not r.startswith(".attempt-")} == {"RUN", "step-00000008", "step-00000010"}, rows
assert len({r for r in rows if r.startswith(".attempt-")}) == 2, rows'
}

@test "a large file is written in parts" {
	run_tiny large job.steps=6 model.hidden=512 model.layers=2
	here=$(run_folder large)/ckpt
	[[ -n $(find "$here/step-00000006" -name 'shard-*' -size +17000k) ]]
	"$MUSTER" ckpt push "$here" "$there"
	run "$MUSTER" ckpt verify "$there"
	[[ $status -eq 0 ]]
	boto 'tags = [o["ETag"] for o in s3.list_objects_v2(Bucket="models", Prefix=prefix)["Contents"] if o["Size"] > 1 << 24]
assert tags and all("-" in t for t in tags), tags'
	boto 'for o in s3.list_objects_v2(Bucket="models", Prefix=prefix)["Contents"]:
    if o["Size"] > 1 << 24:
        assert s3.get_object(Bucket="models", Key=o["Key"])["Body"].read() == open(here + "/step-00000006/" + o["Key"].rsplit("/", 1)[1], "rb").read()'
}

@test "orphaned uploads of dead writers are aborted" {
	boto 's3.create_multipart_upload(Bucket="models", Key=f"{prefix}/.attempt-00000002-0-00ff/shard-00000.safetensors")
s3.create_multipart_upload(Bucket="models", Key=f"{prefix}/mine")'
	run_tiny orphan job.steps=6 "checkpoint.dir=$there"
	boto 'left = [u["Key"] for u in s3.list_multipart_uploads(Bucket="models").get("Uploads", [])]
assert left == [f"{prefix}/mine"], left'
}

@test "a run copies its checkpoints there behind training, and without its folder resumes from the copies" {
	words=(checkpoint.every=5 checkpoint.keep=1 "checkpoint.remote=$there" checkpoint.remote_keep=2)
	run_tiny whole job.steps=18 parallel.dp=2
	run_tiny whole job.steps=24 parallel.dp=2
	run_tiny copied job.steps=18 parallel.dp=2 "${words[@]}"
	run "$MUSTER" ckpt verify "$there"
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == *step-00000018:\ ok && ${lines[1]} == *step-00000015:\ ok && ${#lines[@]} -eq 2 ]]
	run "$MUSTER" ckpt ls "$(run_folder copied)"
	[[ $output == *"remote"*step-00000018* ]]
	rm -r "$(run_folder copied)/ckpt"
	run_tiny copied job.steps=24 parallel.dp=2 "${words[@]}"
	[[ $(event_field copied ready step) -eq 18 ]]
	has_same_bits copied whole
	run "$MUSTER" ckpt diff "$(run_folder whole)/ckpt/step-00000024" "$there/step-00000024"
	echo "$output"
	[[ $status -eq 0 ]]
}

@test "an upload that was killed with its run is continued, and boto3 finds one checkpoint and no parts" {
	words=(checkpoint.every=0 "checkpoint.remote=$there")
	"$MUSTER" run "$tiny" job.name=cut job.steps=8 "${words[@]}" checkpoint.remote_bandwidth=50000 \
		</dev/null >"$BATS_FILE_TMPDIR/cut.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 boto 'assert [o for o in s3.list_objects_v2(Bucket="models", Prefix=prefix + "/").get("Contents", []) if "/shard-" in o["Key"]]' 2>/dev/null
	child=$(pgrep -P $pid -x muster-agent)
	kill -9 $pid
	wait_for 60 has_ended "$child"
	run "$MUSTER" ckpt ls "$there"
	[[ $status -eq 0 && $output == *"no checkpoints"* ]]
	run_tiny cut job.steps=8 "${words[@]}"
	"$MUSTER" ckpt verify "$there/step-00000008"
	boto 'rows = {o["Key"].split("/")[1] for o in s3.list_objects_v2(Bucket="models", Prefix=prefix + "/")["Contents"]}
assert len([r for r in rows if r.startswith(".attempt-")]) == 1 and "step-00000008" in rows, rows
assert not [u for u in s3.list_multipart_uploads(Bucket="models").get("Uploads", []) if u["Key"].startswith(prefix + "/")]'
}
