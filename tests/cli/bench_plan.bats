#!/usr/bin/env bats
# muster bench calibrate measures this host; muster bench plan compares predictions with measurements.

load ../helpers

setup_file() {
	export file=$BATS_FILE_TMPDIR/here.json
	"$MUSTER" bench calibrate --quick --ranks 2 --seconds 0.0002 "$file" >"$BATS_FILE_TMPDIR/out"
}

small="model.layers=2 model.hidden=32 model.vocab=64 model.seq=32 batch.micro=1 batch.global=4"

@test "calibrate writes every operation and exchange, and a plan reports that it uses them" {
	grep -q "written to $file" "$BATS_FILE_TMPDIR/out"
	python3 - "$file" <<-'PY'
		import json, sys
		c = json.load(open(sys.argv[1]))
		assert c["version"] == 2 and c["ranks"] == 2 and c["gemm"]["flops"] > 0, c
		assert {l["transport"] for l in c["links"]} == {"shm", "tcp"}
		assert {m["storage"] for m in c["machines"]} == {"fp32", "bf16"}
		for m in c["machines"]:
		    assert len(m["rates"]) == 16 and m["agents"] * m["threads"] <= c["cores"], m
		assert len(c["exchanges"]) == 2 * 6 and {(x["group"], x["crowd"]) for x in c["exchanges"]} == {(2, 2)}
	PY
	run "$MUSTER" plan "$top/templates/jobs/demo.ini" "launch.calibration=$file"
	[[ $status -eq 0 && $output == *"links inside a node with 2 ranks and every operation as measured on"* ]]
}

@test "plan prints predictions beside measurements: parts add up to the step, memory is as predicted" {
	run "$MUSTER" bench plan --calibration "$file" --rounds 1 --steps 2 --json $small --layout parallel.dp=2 \
		--layout "parallel.pp=2 recompute.mode=full"
	[[ $status -eq 0 ]]
	python3 - <<-PY
		import json
		d = json.loads("""$output""")
		assert [f["agents"] for f in d["forms"]] == [2, 2], d
		for f in d["forms"]:
		    for side in "predicted", "measured":
		        parts = f[side]
		        assert abs(sum(s for name, s in parts.items() if name != "step_s") - parts["step_s"]) < 1e-9, parts
		        assert parts["compute_s"] > 0
		    paired = f["predicted"]["step_s"] / (f["measured"]["step_s"] * f["speed"]) - 1
		    assert f["speed"] > 0 and abs(f["paired_error"] - paired) < 1e-6, f
		    assert abs(f["memory_error"]) < 0.05 and f["best_s"] <= f["measured"]["step_s"], f
		assert d["forms"][1]["predicted"]["recompute_s"] > 0 and d["forms"][1]["measured"]["recompute_s"] > 0
	PY
	run "$MUSTER" bench plan --calibration "$file" --rounds 1 --steps 1 --parts $small
	[[ $status -eq 0 && $output == *"predicted  compute"*"measured   compute"*"time     off by"*"memory   off by"* ]]
}

@test "wrong arguments, and a machine that is not calibrated, are refused" {
	refused() { # TEXT WORD...
		local text=$1
		shift
		run "$MUSTER" bench "$@"
		[[ $status -eq 2 && $output == *"$text"* ]]
	}
	refused "--ranks is 2 to" calibrate --ranks 1
	refused "one FILE" calibrate a b
	refused "--rounds is 1 to" plan --rounds 0
	refused "no layout has" plan --only nothing
	refused "was not calibrated; run muster bench calibrate" plan launch.calibration=none
	refused "parallel.pp=3" plan --calibration "$file" $small --layout parallel.pp=3
}
