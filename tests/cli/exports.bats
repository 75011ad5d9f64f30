#!/usr/bin/env bats
# What other tools read of a run: TensorBoard's reader, promtool and Grafana's schema read what muster writes. These come from
# PyPI and Debian; where one cannot be installed, its test is skipped and names it.

load ../helpers

# The run `board` loses a rank, then its muster, so it has steps that were trained twice or thrice in two event files.
setup_file() {
	make_data
	make_tiny_job
	export python=$BATS_FILE_TMPDIR/venv/bin/python
	long=(job.steps=400 checkpoint.every=50 data.eval_every=100 parallel.tp=2 metrics.tensorboard=yes
		"metrics.textfile=$BATS_FILE_TMPDIR/board.prom")
	run_tiny board "${long[@]}" &
	wait_for 60 step_reached board 80
	kill -9 "$(agent_pid board 1)"
	wait_for 60 generation_steps board 2
	wait_for 60 step_reached board 170
	kill -9 "$(<"$(run_folder board)/lock")"
	wait || true
	run_tiny board "${long[@]}"
}

setup() { cd "$BATS_TEST_TMPDIR"; }

# A test that has failed leaves its run.
teardown() { [[ -z ${muster-} ]] || kill -9 "$muster" 2>/dev/null || true; }

# get URL [HEADER: VALUE]: prints the body. It fails, and prints the status, if that is not 200.
get() {
	python3 - "$@" <<-'PY'
		import sys, urllib.error, urllib.request
		headers = dict(h.split(": ", 1) for h in sys.argv[2:])
		try:
		    sys.stdout.write(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), timeout=30).read().decode())
		except urllib.error.HTTPError as e:
		    sys.exit(f"status {e.code}")
	PY
}

# start_listening NAME WORD...: starts the run, which trains until it is stopped, and sets $muster to its process and $url to
# where it is scraped.
start_listening() {
	local name=$1
	shift
	run_tiny "$name" job.steps=1000000 metrics.listen=127.0.0.1:0 "$@" &
	job=$!
	wait_for 60 step_reached "$name" 3
	muster=$(<"$(run_folder "$name")/lock")
	url=$(grep -o 'http://[^ ]*' "$BATS_FILE_TMPDIR/$name.out")
}

stop_listening() {
	kill "$muster"
	wait "$job" || [[ $? -eq 75 ]]
	muster=
}

# The loop hands the numbers over once a second.
scrape_has() { [[ $(get "$url") == *"$1"* ]]; }

# fetch KIND SECONDS WHAT COMMAND...: runs a command that needs the network. All commands of a kind have these seconds together, and
# none of them is run after one that has failed. Without success it skips the test, and says WHAT is missing.
fetch() {
	local spent=$BATS_FILE_TMPDIR/spent-$1 most=$2 what=$3 used=0 began=$SECONDS
	shift 3
	[[ ! -e $spent ]] || used=$(<"$spent")
	[[ $used -lt $most ]] || skip "$what"
	timeout -k 1 $((most - used)) "$@" >fetch.log 2>&1 </dev/null || {
		echo "$most" >"$spent"
		skip "$what"
	}
	echo $((used + SECONDS - began)) >"$spent"
}

# install PACKAGE: makes a Python with this package of PyPI for this file, or skips the test.
install() {
	[[ -x ${python%/*}/pip ]] || fetch pip 45 "python3 -m venv does not work" python3 -m venv "${python%/bin/python}"
	fetch pip 45 "$1 cannot be installed from PyPI" "${python%/*}/pip" install -q --disable-pip-version-check --only-binary :all: \
		--retries 1 --timeout 10 "$1"
}

# Sets $promtool, or skips the test. Debian's package prometheus is unpacked, not installed: it would start a server.
find_promtool() {
	promtool=$(command -v promtool) && return
	promtool=$BATS_FILE_TMPDIR/prometheus/usr/bin/promtool
	[[ ! -x $promtool ]] || return 0
	fetch apt 15 "promtool is neither installed nor can Debian's package prometheus be downloaded" sh -c \
		'cd "$0" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb unpacked && mv unpacked prometheus' "$BATS_FILE_TMPDIR"
}

# --- Tables ------------------------------------------------------------------------

@test "export --csv writes each step once, with the numbers of metrics.jsonl" {
	"$MUSTER" export "$(run_folder board)" --csv -o board.csv
	[[ $(wc -l <"$(run_folder board)/metrics.jsonl") -gt 400 ]]
	python3 - board.csv "$(run_folder board)" <<-'PY'
		import csv, json, sys
		raw = open(sys.argv[1], "rb").read()
		assert raw.endswith(b"\r\n") and raw.count(b"\n") == raw.count(b"\r\n")
		rows = list(csv.DictReader(open(sys.argv[1], newline="")))
		assert [int(r["step"]) for r in rows] == list(range(1, 401))
		last = {}
		for line in open(sys.argv[2] + "/metrics.jsonl"):
		    line = json.loads(line)
		    if "step" in line:
		        last[line["step"]] = line
		for r in rows:
		    for name, value in last[int(r["step"])].items():
		        if name in r:
		            assert float(r[name]) == value, (name, r)
		    assert float(r["tokens"]) == 256 and r["z_loss"] == ""
		assert set(last[1]) - {"mono"} <= set(rows[0]), set(last[1]) - set(rows[0])
		evals = {}
		for line in open(sys.argv[2] + "/events.jsonl"):
		    line = json.loads(line)
		    if line.get("event") == "eval":
		        evals[line["step"]] = line["loss"]
		assert {int(r["step"]): float(r["eval_loss"]) for r in rows if r["eval_loss"]} == evals and len(evals) == 4
	PY
	MUSTER_RUNS=$BATS_FILE_TMPDIR "$MUSTER" export board --csv | cmp - board.csv
	MUSTER_RUNS=$BATS_FILE_TMPDIR "$MUSTER" export --csv board | cmp - board.csv
}

@test "export names what is wrong with its words, the run and the file" {
	run "$MUSTER" export
	[[ $status -eq 2 && $output == *"a run is missing"* ]]
	run "$MUSTER" export --tensorboard out
	[[ $status -eq 2 && $output == *"a run is missing"* ]]
	run "$MUSTER" export "$(run_folder board)"
	[[ $status -eq 2 && $output == *"choose one of --csv and --tensorboard"* ]]
	run "$MUSTER" export "$(run_folder board)" --tensorboard out -o file
	[[ $status -eq 2 && $output == *"-o FILE is for --csv"* ]]
	run "$MUSTER" export nothing --csv
	[[ $status -eq 3 && $output == *"neither a run folder nor the name of a run"* ]]
	run "$MUSTER" export "$(run_folder board)" --csv -o none/board.csv
	[[ $status -eq 1 && $output == *"none/board.csv: cannot write: No such file"* ]]
	mkdir empty
	cp "$(run_folder board)/job.ini" empty
	run "$MUSTER" export empty --csv -o empty.csv
	[[ $status -eq 3 && $output == *"finished no step"* ]]
	[[ ! -e empty.csv && -z $(ls ./*.tmp 2>/dev/null) ]]
	"$MUSTER" export empty --csv >out.csv || [[ $? -eq 3 ]]
	[[ ! -s out.csv ]]
	run "$MUSTER" export "$(run_folder board)" --tensorboard /dev/null/boards
	[[ $status -eq 1 && $output == *"/dev/null/boards"* ]]
	run "$MUSTER" export empty --tensorboard boards
	[[ $status -eq 3 && -z $(ls boards) ]]
}

@test "a damaged line is counted and left out" {
	mkdir bad
	cp "$(run_folder board)/job.ini" bad
	{ head -n 20 "$(run_folder board)/metrics.jsonl"; echo '{"time":1,'; echo '[]'; } >bad/metrics.jsonl
	run "$MUSTER" export bad --csv -o bad.csv
	[[ $status -eq 0 && $output == *"2 lines of the run's files cannot be read, and are left out"* ]]
	[[ $(wc -l <bad.csv) -ge 20 ]]
}

# --- TensorBoard ---------------------------------------------------------------------

@test "TensorBoard reads each step of a run with restarts once" {
	install tensorboard
	[[ $(ls "$(run_folder board)/tensorboard" | wc -l) -eq 2 ]]
	"$MUSTER" export "$(run_folder board)" --csv -o board.csv
	"$MUSTER" export "$(run_folder board)" --tensorboard later
	"$python" - board.csv "$(run_folder board)/tensorboard" later <<-'PY'
		import csv, json, struct, sys
		from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
		from tensorboard.plugins.hparams import plugin_data_pb2
		rows = list(csv.DictReader(open(sys.argv[1], newline="")))
		events = [json.loads(l) for l in open(sys.argv[2] + "/../events.jsonl")]
		# A rank that is killed right after a checkpoint no longer reports it.
		saved = sorted({e["step"] for e in events if e.get("event") == "ckpt"})
		single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
		columns = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/lr": "lr", "speed/step_seconds": "step_s",
		    "step_parts/compute": "compute_s", "step_parts/other": "other_s", "memory/peak_bytes": "peak_bytes"}
		for folder in sys.argv[2:]:
		    a = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
		    a.Reload()
		    for tag, column in columns.items():
		        got = [(s.step, s.value) for s in a.Scalars(tag)]
		        assert got == [(int(r["step"]), single(float(r[column]))) for r in rows], (folder, tag)
		    evals = [(s.step, s.value) for s in a.Scalars("eval/loss")]
		    assert evals == [(int(r["step"]), single(float(r["eval_loss"]))) for r in rows if r["eval_loss"]], evals
		    steps = [s.step for s in a.Scalars("checkpoint/seconds")]
		    assert steps == saved and steps[-1] == 400, (steps, saved)
		    assert b"hidden" in a.Tensors("plan")[0].tensor_proto.string_val[0]
		    assert b"[optimizer]" in a.Tensors("job")[0].tensor_proto.string_val[0]
		    data = lambda tag: plugin_data_pb2.HParamsPluginData.FromString(
		        a.SummaryMetadata("_hparams_/" + tag).plugin_data.content)
		    start = data("session_start_info").session_start_info
		    assert start.hparams["optimizer.lr"].number_value == 1e-3 and start.hparams["model.family"].string_value == "gpt2"
		    assert {i.name for i in data("experiment").experiment.hparam_infos} == set(start.hparams)
		    assert data("session_end_info").session_end_info.status == 1
	PY
	figure "$(cat "$(run_folder board)"/tensorboard/* | wc -c) bytes of event files for $(wc -l <"$(run_folder board)/metrics.jsonl") steps"
}

# --- Prometheus ------------------------------------------------------------------------

@test "a run answers scrapes with its numbers" {
	start_listening live data.eval_every=10 checkpoint.every=20 metrics.ranks=yes parallel.tp=2
	wait_for 60 step_reached live 30
	wait_for 60 scrape_has 'state="training"} 1'
	wait_for 60 scrape_has muster_checkpoint_step
	get "$url" >first.prom
	get "$url" "Accept: application/openmetrics-text; version=1.0.0" >live.om
	wait_for 60 step_reached live $(($(last_step live) + 20))
	before=$(grep '^muster_step{' first.prom)
	changed() { [[ $(get "$url" | grep '^muster_step{') != "$before" ]]; }
	wait_for 60 changed
	run get "${url%metrics}other"
	[[ $output == "status 404" ]]
	stop_listening
	grep -q '^muster_ranks{run="live",host="[^"]*"} 2$' first.prom
	grep -q '^muster_rank_step{.*rank="1",node=' first.prom
	[[ $(grep -c '^muster_state{.*} 1$' first.prom) -eq 1 ]]
	[[ $(tail -n 1 live.om) == "# EOF" ]]
	python3 - first.prom "$(run_folder live)" <<-'PY'
		import json, re, sys
		values = {}
		for line in open(sys.argv[1]):
		    if not line.startswith("#"):
		        name, labels, value = re.fullmatch(r'(\w+)\{(.*)\} (\S+)\n', line).groups()
		        values.setdefault(name, []).append(float(value))
		lines = [json.loads(l) for l in open(sys.argv[2] + "/metrics.jsonl")]
		lines = [l for l in lines if "step" in l]
		last = next(l for l in lines if l["step"] == values["muster_step"][0])
		for name, key in (("loss", "loss"), ("grad_norm", "grad_norm"), ("learning_rate", "lr"), ("step_seconds", "step_s")):
		    assert values["muster_" + name] == [last[key]], name
		assert values["muster_tokens_total"] == [sum(l["tokens"] for l in lines if l["step"] <= last["step"])]
		spent = sum(l["step_s"] for l in lines if l["step"] <= last["step"])
		assert abs(sum(values["muster_step_time_seconds_total"]) / spent - 1) < 1e-6
	PY
}

@test "promtool and Prometheus' client accept both formats" {
	find_promtool
	start_listening checked data.eval_every=10 checkpoint.every=20 metrics.ranks=yes parallel.tp=2
	wait_for 60 scrape_has muster_eval_loss
	wait_for 60 scrape_has muster_checkpoint_step
	get "$url" >checked.prom
	get "$url" "Accept: application/openmetrics-text; version=1.0.0" >checked.om
	stop_listening
	for text in checked.prom "$BATS_FILE_TMPDIR/board.prom"; do
		run "$promtool" check metrics <"$text"
		echo "$output"
		[[ $status -eq 0 && -z $output ]]
	done
	install prometheus-client
	"$python" - checked.om <<-'PY'
		import sys
		from prometheus_client.openmetrics.parser import text_string_to_metric_families
		families = {f.name: f for f in text_string_to_metric_families(open(sys.argv[1]).read())}
		assert families["muster_tokens"].type == "counter" and families["muster_tokens"].samples[0].value > 0
		assert len(families["muster_rank_step"].samples) == 2
	PY
}

@test "a token is required where it is given, and stays out of the run folder" {
	export MUSTER_METRICS_TOKEN=a-secret-of-many-characters
	start_listening guarded
	run get "$url"
	[[ $output == "status 401" ]]
	run get "$url" "Authorization: Bearer another-secret-of-them"
	[[ $output == "status 401" ]]
	get "$url" "Authorization: Bearer a-secret-of-many-characters" | grep -q muster_step
	stop_listening
	run grep -rl a-secret-of-many "$(run_folder guarded)" "$BATS_FILE_TMPDIR/guarded.out"
	[[ -z $output ]]
}

@test "exports that cannot work are named once, and the run is done" {
	start_listening first
	taken=${url#http://}
	echo a-secret-of-many-characters >token
	chmod 644 token
	run_tiny second metrics.listen="${taken%/metrics}" metrics.textfile=/proc/muster.prom
	run_tiny third metrics.listen=127.0.0.1:0 metrics.token_file="$PWD/token"
	run_tiny fourth metrics.listen=192.0.2.1:9400
	stop_listening
	[[ $(grep -c "metrics.listen: .*Address already in use; choose another port" "$BATS_FILE_TMPDIR/second.out") -eq 1 ]]
	[[ $(grep -c "metrics.textfile: .*/proc/muster.prom" "$BATS_FILE_TMPDIR/second.out") -eq 1 ]]
	grep -q "token: the secret in it is yours alone.*chmod 600" "$BATS_FILE_TMPDIR/third.out"
	grep -q "192.0.2.1:9400: other machines can reach this address.*metrics.token_file" "$BATS_FILE_TMPDIR/fourth.out"
}

@test "the textfile shows how the run has ended" {
	[[ $(stat -c %a "$BATS_FILE_TMPDIR/board.prom") == 644 ]]
	grep -q '^muster_state{run="board",host="[^"]*",state="done"} 1$' "$BATS_FILE_TMPDIR/board.prom"
	grep -q '^muster_step{run="board",host="[^"]*"} 400$' "$BATS_FILE_TMPDIR/board.prom"
	[[ -z $(ls "$BATS_FILE_TMPDIR"/*.tmp 2>/dev/null) ]]
	python3 - "$BATS_FILE_TMPDIR/board.prom" "$(run_folder board)/time.jsonl" <<-'PY'
		import json, re, sys
		text = open(sys.argv[1]).read()
		last = [json.loads(l) for l in open(sys.argv[2])][-1]
		parts = {p: float(v) for p, v in re.findall(r'^muster_time_seconds\{.*part="(\w+)"\} (\S+)$', text, re.M)}
		assert {p + "_s" for p in parts} <= set(last), parts
		# The ranks go on to stop between the last line and the last text.
		for part, seconds in parts.items():
		    more = seconds - last[part + "_s"]
		    assert abs(more) < 1e-5 or (part == "stop" and more > 0), (part, seconds, last)
		assert 0 < float(re.search(r'^muster_goodput_ratio\{.*\} (\S+)$', text, re.M).group(1)) < 1
	PY
}

# --- Grafana -----------------------------------------------------------------------------

# Every name in launcher/exports/gauges.h, and those of the series with further labels.
list_names() {
	grep -oP '^\tX\(\w+,\s+\w+,\s+"\K\w+' "$top/launcher/exports/gauges.h" | sed 's/^/muster_/'
	grep -oP 'muster_\w+(?=\{)' "$BATS_FILE_TMPDIR/board.prom"
	printf '%s\n' muster_rank_step muster_rank_still_seconds
}

@test "the dashboard asks for numbers that exist, and doc/guide/monitoring.md explains each of them" {
	list_names | sort -u >names
	[[ $(wc -l <names) -gt 30 ]]
	python3 - "$top" <<-'PY'
		import json, re, sys
		names = set(open("names").read().split())
		board = json.load(open(sys.argv[1] + "/templates/grafana/muster.json"))
		asked = [t["expr"] for p in board["panels"] for t in p["targets"]]
		asked += [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
		for expr in asked:
		    assert re.findall(r"muster_\w+", expr), expr
		    assert set(re.findall(r"muster_\w+", expr)) <= names, expr
		guide = open(sys.argv[1] + "/doc/guide/monitoring.md").read()
		assert set(re.findall(r"`(muster_\w+)", guide)) == names, set(re.findall(r"`(muster_\w+)", guide)) ^ names
	PY
}

# The fields are those of Grafana's documentation of the JSON model of dashboards.
@test "the dashboard has the fields of Grafana's model, and its panels do not overlap" {
	python3 - "$top/templates/grafana/muster.json" <<-'PY'
		import json, sys
		board = json.load(open(sys.argv[1]))
		top = {"id", "uid", "title", "description", "tags", "timezone", "editable", "graphTooltip", "time", "timepicker", "templating",
		    "annotations", "refresh", "schemaVersion", "version", "panels", "links"}
		panel = {"id", "type", "title", "description", "datasource", "gridPos", "fieldConfig", "options", "targets"}
		assert set(board) <= top and {"uid", "title", "panels", "schemaVersion", "time", "templating"} <= set(board)
		assert "id" not in board  # an import makes its own
		assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
		cells = set()
		for p in board["panels"]:
		    assert set(p) == panel and p["type"] in ("stat", "gauge", "timeseries"), p["title"]
		    assert set(p["fieldConfig"]) == {"defaults", "overrides"} and set(p["gridPos"]) == {"x", "y", "w", "h"}
		    g = p["gridPos"]
		    mine = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
		    assert g["x"] + g["w"] <= 24 and not mine & cells, p["title"]
		    cells |= mine
		    assert len({t["refId"] for t in p["targets"]}) == len(p["targets"])
		    assert all(t["datasource"] == p["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for t in p["targets"])
		variables = [v["name"] for v in board["templating"]["list"]]
		assert variables == ["datasource", "run"]
	PY
}

@test "Grafana's own schema reads the dashboard without a loss" {
	install grafana-foundation-sdk
	"$python" - "$top/templates/grafana/muster.json" <<-'PY'
		import json, sys
		from grafana_foundation_sdk.cog.encoder import JSONEncoder
		from grafana_foundation_sdk.models.dashboard import Dashboard
		board = json.load(open(sys.argv[1]))
		back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
		def compare(a, b, at):
		    if isinstance(a, dict):
		        for key, value in a.items():
		            if value not in ({}, [], None, ""):
		                assert isinstance(b, dict) and key in b, f"{at}/{key} is no field of the schema"
		                compare(value, b[key], f"{at}/{key}")
		    elif isinstance(a, list):
		        assert len(a) == len(b), at
		        for i, (x, y) in enumerate(zip(a, b)):
		            compare(x, y, f"{at}/{i}")
		    else:
		        assert a == b, (at, a, b)
		compare(board, back, "")
	PY
}

@test "promtool parses every expression of the dashboard" {
	find_promtool
	python3 - "$top/templates/grafana/muster.json" >rules.yml <<-'PY'
		import json, sys
		board = json.load(open(sys.argv[1]))
		print("groups:\n- name: dashboard\n  rules:")
		for n, t in enumerate(t for p in board["panels"] for t in p["targets"]):
		    expr = t["expr"].replace("$__rate_interval", "1m").replace("$run", ".*")
		    print(f"  - record: dashboard:{n}\n    expr: {json.dumps(expr)}")
	PY
	run "$promtool" check rules rules.yml
	echo "$output"
	[[ $status -eq 0 ]]
}
