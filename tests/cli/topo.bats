#!/usr/bin/env bats
# `muster topo` describes machines as text, as a drawing and as JSON.

load ../helpers

setup_file() {
	doubles=$(dirname "$(realpath "$MUSTER")")/tests/doubles
	export doubles
}

# Runs it as if this host had the GPUs of that machine, outside any allocation.
topo_as() { # machine word...
	local machine=$1
	shift
	run env -u SLURM_JOB_ID -u CUDA_VISIBLE_DEVICES NVML_DOUBLE="$machine" LD_LIBRARY_PATH="$doubles" "$MUSTER" topo "$@"
	echo "$output"
}

@test "on a host without a GPU, the cores are the devices" {
	run env -u SLURM_JOB_ID "$MUSTER" topo --cluster local
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == "local: 1 node, "* && $output == *"host      "*"core"*"memory"* ]]
}

@test "the GPUs of this host are shown with model, NVLinks and matrix" {
	topo_as dgx-1
	[[ $status -eq 0 && ${lines[0]} == "local: 1 node, 8 devices" && $output == *"8 × V100-SXM2-32GB"* ]]
	[[ $output == *"GPU0      X   NV1   NV1   NV2   NV2 "* && $output == *"NV2   2 NVLinks, direct, 50.0 GB/s each way"* ]]
	topo_as dgx-h100
	[[ $status -eq 0 && $output == *"ports     PCIe 5.0 × 16, NVLink 4"* && $output == *"a switch connects all: 450 GB/s"* && $output == *"NV18  18 NVLinks into the NVSwitch, 450 GB/s each way"* ]]
}

@test "a lost GPU and links that are down are reported" {
	topo_as dgx-h100,lost=3
	[[ $status -eq 0 && ${lines[0]} == *" 7 devices" && $output == *"missing   1 GPU that did not answer: NVIDIA driver: GPU 3: GPU is lost"* ]]
	topo_as dgx-1,weak=0-3
	[[ $status -eq 0 && $output == *"GPU0      X   NV1   NV1   NV1   NV2 "* && $output == *"missing   2 NVLinks that are down"* ]]
}

@test "a driver that fails or gives wrong answers is reported, and the cores are the devices" {
	for trouble in init count many; do
		topo_as dgx-h100,$trouble
		[[ $status -eq 0 && $output == *"× cpu"* && $output == *"missing   GPUs: NVIDIA driver: "* ]]
	done
	for trouble in endless wild; do
		topo_as dgx-h100,$trouble
		[[ $status -eq 0 && ${lines[0]} == *" 8 devices" ]]
	done
}

@test "only GPUs that CUDA_VISIBLE_DEVICES names are devices" {
	run env -u SLURM_JOB_ID CUDA_VISIBLE_DEVICES=1,2 NVML_DOUBLE=dgx-1 LD_LIBRARY_PATH="$doubles" "$MUSTER" topo
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == *" 2 devices" && $output == *"GPU1      X   NV2"* ]]
	run env -u SLURM_JOB_ID CUDA_VISIBLE_DEVICES= NVML_DOUBLE=dgx-1 LD_LIBRARY_PATH="$doubles" "$MUSTER" topo
	echo "$output"
	[[ $status -eq 0 && $output == *"× cpu"* && $output == *"missing   GPUs: CUDA_VISIBLE_DEVICES is empty, which gives none"* ]]
	run env -u SLURM_JOB_ID CUDA_VISIBLE_DEVICES=MIG-c2 NVML_DOUBLE=dgx-h100,mig=2 LD_LIBRARY_PATH="$doubles" "$MUSTER" topo
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == *" 1 device" && $output == *"ports     PCIe 5.0 × 16, NVLink 4, partitioned (MIG)"* && $output == *"device    20 GiB"* ]]
	run env -u SLURM_JOB_ID CUDA_VISIBLE_DEVICES=9 NVML_DOUBLE=dgx-1 LD_LIBRARY_PATH="$doubles" "$MUSTER" topo
	echo "$output"
	[[ $status -eq 0 && $output == *"× cpu"* && $output == *"missing   GPUs: CUDA_VISIBLE_DEVICES names none that is here"* ]]
}

@test "--cluster reads what --json prints" {
	topo_as pair --json
	echo "$output" >"$BATS_TEST_TMPDIR/this.json"
	topo_as pair
	local here=$output
	run "$MUSTER" topo --cluster "$BATS_TEST_TMPDIR/this.json"
	diff <(echo "$here") <(echo "$output")
	run "$MUSTER" topo --cluster "$BATS_TEST_TMPDIR/this.json:3"
	[[ $status -eq 0 && ${lines[0]} == *": 3 nodes, 12 devices" ]]
}

@test "the places of GPUs and adapters come from hwloc" {
	HWLOC_XMLFILE=$BATS_TEST_DIRNAME/topo.xml topo_as pair
	[[ $status -eq 0 && ${lines[0]} == *" 4 devices" ]]
	[[ $output == *"2 packages"* && $output == *"NUMA 0  cores 0-1"* && $output == *"NUMA 1  cores 2-3"* ]]
	# GPU0 and mlx5_0 on one switch; GPU1 on another switch of that switch; GPU2 on the same host bridge as mlx5_1.
	[[ $output == *"GPU0  0000:34:00.0  ── PIX ── mlx5_0"* && $output == *"GPU1  0000:36:00.0  ── PXB ── mlx5_0"* ]]
	[[ $output == *"GPU2  0000:39:00.0  ── PHB ── mlx5_1"* && $output == *"GPU3  0000:3b:00.0  ── NODE ── mlx5_1"* ]]
	[[ $output == *"GPU0      X   NV2   SYS   SYS     0"* && $output != *"missing"* ]]
}

@test "a hundred thousand devices fit on a page" {
	run "$MUSTER" topo --cluster dgx-h100:12500
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == "dgx-h100:12500: 12500 nodes, 100000 devices"* && ${#lines[@]} -lt 60 ]]
}

@test "only terminals get colours" {
	run "$MUSTER" topo --cluster dgx-1
	[[ $status -eq 0 && $output != *$'\e'* ]]
	run env TERM=xterm-256color script -qec "$(printf %q "$MUSTER") topo --cluster dgx-1" /dev/null
	[[ $status -eq 0 && $output == *$'\e[38;5;71m'*NV2* ]]
	run env NO_COLOR=1 TERM=xterm-256color script -qec "$(printf %q "$MUSTER") topo --cluster dgx-1" /dev/null
	[[ $status -eq 0 && $output == *NV2* && $output != *$'\e'* ]]
}

@test "drawings are well-formed XML and show every device" {
	for machine in dgx-1 dgx-2 dgx-h100:16 gb200-nvl72:36 dgx-a100:3+dgx-h100:40 dgx-h100:12500 pcie-l40s local; do
		"$MUSTER" topo --cluster "$machine" --svg "$BATS_TEST_TMPDIR/a.svg" >/dev/null
		python3 - "$BATS_TEST_TMPDIR/a.svg" "$machine" <<-'PY'
			import sys, xml.etree.ElementTree as tree
			root = tree.parse(sys.argv[1]).getroot()
			words = [t.text for t in root.iter('{http://www.w3.org/2000/svg}text')]
			assert sys.argv[2] in words, words
			x, y, w, h = map(float, root.get('viewBox').split())
			for r in root.iter('{http://www.w3.org/2000/svg}rect'):
			    assert float(r.get('width')) >= 0 and -1 <= float(r.get('x') or 0) <= w and -1 <= float(r.get('y') or 0) <= h, r.attrib
			    assert float(r.get('x') or 0) + float(r.get('width')) <= w and float(r.get('y') or 0) + float(r.get('height')) <= h, r.attrib
			if sys.argv[2] in ('dgx-1', 'dgx-2'):
			    n = 8 if sys.argv[2] == 'dgx-1' else 16
			    assert all('GPU%d' % i in words for i in range(n)), words
		PY
	done
	(umask 022 && "$MUSTER" topo --cluster dgx-1 --svg "$BATS_TEST_TMPDIR/b.svg") >/dev/null
	(umask 077 && "$MUSTER" topo --cluster dgx-1 --svg "$BATS_TEST_TMPDIR/c.svg") >/dev/null
	[[ $(stat -c %a "$BATS_TEST_TMPDIR"/{b,c}.svg | xargs) == "644 600" ]]
}

# Changes the description of a DGX-1 to sixteen GPUs in groups of 4, on NUMA domains of 4 and 4 and …, or of 4 and 12.
sixteen() {
	"$MUSTER" topo --cluster dgx-1 --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
k = d["kinds"][0]
last = int(sys.argv[1]) - 1
part = k["parts"][0]
k["devices"] = d["devices"] = 16
k["numa"] = last + 1
for n in k["nics"]:
    n["numa"] = 0
k["parts"] = [dict(part, name="GPU%d" % i, numa=min(i // 4, last), nic=i // 4) for i in range(16)]
names = [("NVL", 2, 5e10), ("NVL", 1, 2.5e10), ("PXB", 0, 1.2e10), ("PHB", 0, 1.1e10), ("NODE", 0, 1e10), ("SYS", 0, 9e9)]
k["link_types"] = k["link_types"][:1] + [{"kind": w, "lanes": n, "bandwidth": b, "latency": 1e-5} for w, n, b in names]
k["links"] = [[0 if i == j else 1 if i // 4 == j // 4 else 2 if abs(i - j) == 4 else 3 + abs(i - j) % 4 for j in range(16)] for i in range(16)]
json.dump(d, sys.stdout)
' "$1" >"$BATS_TEST_TMPDIR/sixteen.json"
	echo "$BATS_TEST_TMPDIR/sixteen.json"
}

@test "sixteen GPUs with direct links have a place each, inside their card" {
	for domains in 1 2 4; do
		"$MUSTER" topo --cluster "$(sixteen "$domains")" --svg "$BATS_TEST_TMPDIR/16.svg" >/dev/null
		python3 - "$BATS_TEST_TMPDIR/16.svg" <<-'PY'
			import sys, xml.etree.ElementTree as tree
			svg = '{http://www.w3.org/2000/svg}'
			root = tree.parse(sys.argv[1]).getroot()
			def box(r): return [float(r.get(k) or 0) for k in ('x', 'y', 'width', 'height')]
			def inside(a, b): return a[0] >= b[0] and a[1] >= b[1] and a[0] + a[2] <= b[0] + b[2] and a[1] + a[3] <= b[1] + b[3]
			def apart(a, b): return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
			card = next(box(r) for r in root.iter(svg + 'rect') if r.get('rx') == '14.0')
			key = card[1] + card[3]
			gpus = [box(r) for r in root.iter(svg + 'rect') if r.get('fill') == '#1f5fa8' and float(r.get('y')) < key]
			assert len(gpus) == 16 and all(inside(g, card) for g in gpus), gpus
			for i, a in enumerate(gpus):
			    for b in gpus[i + 1:]:
			        assert apart(a, b), (a, b)
			for l in root.iter(svg + 'line'):
			    for x, y in (('x1', 'y1'), ('x2', 'y2')):
			        assert float(l.get(y)) > key or inside([float(l.get(x)), float(l.get(y)), 0, 0], card), l.attrib
			# A character of this size is at most 9 pixels wide on average.
			texts = [t for t in root.iter(svg + 'text') if card[1] < float(t.get('y')) < key]
			for t in texts:
			    w = 9 * len(t.text) * (0 if t.get('class') == 'head' else 1)
			    x = float(t.get('x')) - (w if t.get('text-anchor') == 'end' else w / 2 if t.get('class') not in ('sub', 'head') else 0)
			    assert inside([x, float(t.get('y')), w, 0], card), t.text
			links = ' '.join(t.text for t in texts if t.get('class') == 'sub' and t.get('text-anchor') is None)
			assert all(w in links for w in ('2 NVLinks, direct: 50.0 GB/s', 'over the interconnect of the sockets: 9.0 GB/s, 10.0 µs')), links
		PY
	done
}

@test "wrong arguments and files that cannot be written are refused with one line" {
	run "$MUSTER" topo --svg
	[[ $status -eq 2 && $output == *"--svg needs a value"* ]]
	run "$MUSTER" topo --cluster dgx-1 --svg /nonexistent/a.svg
	echo "$output"
	[[ $status -ne 0 && $output == *"/nonexistent"* ]]
}
