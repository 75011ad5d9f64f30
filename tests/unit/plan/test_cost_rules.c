/* Properties that any prediction of the cost model must have. */
#include "plan/cost/devices.h"
#include "plan/cost/layer.h"
#include "tests/unit/plan/scene.h"
#include "tests/unit/plan/tables.h"
#include "topo/gpus.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct setting ours = { "recompute.mode=full", "dgx-h100", &cost_engine_muster };
static const struct run base = { 64, 8192, 48, 8, 2, 1, 64, 256, 2, 0 };

/* Changes one field of a machine that is a rate or a cost. Only compute, and links that serve it,
 * may be changed here. */
static struct cost_machine faster(const struct cost_machine *m, int what)
{
	struct cost_machine y = *m;
	if (what == 0)
		y.rates[RATE_PRODUCT_FWD].rate[0] *= 1.25;
	else if (what == 1)
		y.rates[RATE_MOVED].rate[0] *= 1.25;
	else if (what == 2)
		y.link_share *= 1.25;
	else if (what == 3)
		y.op /= 2;
	else if (what == 4)
		y.wave /= 2;
	else
		y.spread /= 2;
	return y;
}

static void a_faster_machine_takes_less(void **state)
{
	struct err e = ERR_INIT;
	struct cluster c;
	struct cost_machine m;
	(void)state;
	assert_int_equal(topo_cluster_open("dgx-h100:8", 0, &c, &e), 0);
	cost_machine_of(&c.kinds[0], true, 1, &m);
	topo_cluster_free(&c);
	double now = predict_on(&base, &ours, &m).total;
	near(now, predict(&base, &ours).total);
	for (int what = 0; what < 6; what++) {
		struct cost_machine better = faster(&m, what);
		double then = predict_on(&base, &ours, &better).total;
		if (!(then < now && then > 0.75 * now))
			fail_msg("change %d: %g s become %g", what, now, then);
	}
}

static void more_work_takes_longer(void **state)
{
	struct run more[4] = { base, base, base, base };
	double now = predict(&base, &ours).total;
	(void)state;
	more[0].layers += 8;
	more[1].hidden += 1024;
	more[2].global *= 2;
	more[3].devices /= 2;
	for (int i = 0; i < 4; i++)
		assert_true(predict(&more[i], &ours).total > 1.05 * now);
	struct setting longer = ours, again = ours;
	longer.words = "recompute.mode=full model.seq=4096";
	again.words = "recompute.mode=none";
	assert_true(predict(&base, &longer).total > 1.9 * now);
	assert_true(predict(&base, &again).total < 0.85 * now);
}

/* With twice the layers, everything takes twice as long, except the ends, the bubble's messages and
 * the replicas' last bucket. */
static void layers_count_evenly(void **state)
{
	struct run twice = base;
	(void)state;
	twice.layers *= 2;
	struct plan_time one = predict(&base, &ours), two = predict(&twice, &ours);
	near(two.recompute, 2 * one.recompute);
	assert_true(two.compute < 2 * one.compute && two.compute > 1.9 * one.compute);
	assert_true(two.tp < 2 * one.tp && two.tp > 1.9 * one.tp);
}

static void parts_add_up(void **state)
{
	/* clang-format off */
	static const struct setting settings[] = {
		{ "recompute.mode=full", "dgx-h100", &cost_engine_muster }, { "parallel.sp=yes", "dgx-a100", &cost_engine_muster },
		{ "parallel.zero=3", "dgx-a100", &cost_engine_muster }, { "recompute.mode=selective parallel.zero=1", "dgx-h100", &cost_engine_muster },
		{ "recompute.mode=full", "dgx-a100", &cost_engine_megatron_2021 },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		struct plan_time t = predict(&base, &settings[i]);
		const double parts[] = { t.compute, t.recompute, t.tp, t.cp,
					 t.ep,      t.pp,        t.dp, t.optimizer };
		double sum = 0;
		for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
			assert_true(isfinite(parts[k]) && parts[k] >= 0);
			sum += parts[k];
		}
		near(sum, t.total);
	}
}

/* The time that an engine hides or saves shows in its own term. */
static void each_property_of_an_engine_costs_its_part(void **state)
{
	struct cost_engine e = cost_engine_muster;
	struct setting s = ours;
	struct plan_time now = predict(&base, &ours), t;
	(void)state;
	s.engine = &e;
	e.hides_tp = false;
	t = predict(&base, &s);
	assert_true(t.tp > 1.2 * now.tp);
	near(t.compute, now.compute);
	e = cost_engine_muster;
	e.hides_dp = false;
	t = predict(&base, &s);
	assert_true(t.dp > 1.2 * now.dp);
	near(t.tp, now.tp);
	e = cost_engine_muster;
	e.stops_short = false;
	assert_true(predict(&base, &s).recompute > 1.2 * now.recompute);
	e = cost_engine_muster;
	e.waits = e.scatters = true;
	assert_true(predict(&base, &s).pp > now.pp);
	e = cost_engine_muster;
	e.attention = ATTENTION_CUDNN;
	t = predict(&base, &s);
	assert_true(t.compute < 0.98 * now.compute);
	e.attention = ATTENTION_STORED;
	assert_true(predict(&base, &s).compute > 1.02 * t.compute);
}

/* Where muster cannot take cuDNN's attention, as with dropout of its weights, its own kernels count. */
static void attention_takes_longer_where_cudnn_cannot_be_used(void **state)
{
	struct setting without = ours;
	(void)state;
	without.words = "recompute.mode=full model.attn_dropout=0";
	assert_true(predict(&base, &ours).compute > 1.02 * predict(&base, &without).compute);
}

/* An engine that casts before it gathers sends half the bytes: inputs between tp ranks, parameters
 * between replicas. Without 8 bits it makes no difference. */
static void operands_in_8_bits_travel_in_8_bits(void **state)
{
	struct cost_engine e = cost_engine_muster;
	struct setting two = { "parallel.sp=yes parallel.zero=1", "dgx-h100", &cost_engine_muster },
		       eight = two;
	(void)state;
	eight.words = "parallel.sp=yes parallel.zero=1 precision.fp8=hybrid";
	struct plan_time before = predict(&base, &eight), wide = predict(&base, &two), t;
	two.engine = eight.engine = &e;
	e.gathers_eight = true;
	t = predict(&base, &eight);
	assert_true(t.tp < 0.9 * before.tp && t.tp > 0.5 * before.tp);
	near(t.compute, before.compute);
	near(predict(&base, &two).tp, wide.tp);
	e = cost_engine_muster;
	e.shards_eight = true;
	t = predict(&base, &eight);
	assert_true(t.dp < 0.95 * before.dp);
	near(t.tp, before.tp);
	near(predict(&base, &two).dp, wide.dp);
}

/* With 8 bits, an engine that casts the weights with each micro-batch computes longer. So does
 * every engine if the parameters are gathered for each micro-batch. */
static void weights_are_cast_once_per_step(void **state)
{
	struct cost_engine e = cost_engine_muster;
	struct setting once = { "parallel.zero=1 precision.fp8=hybrid", "dgx-h100",
				&cost_engine_muster },
		       each = once;
	(void)state;
	e.casts_once = false;
	each.engine = &e;
	assert_true(predict(&base, &each).compute > predict(&base, &once).compute);
	once.words = each.words = "parallel.zero=3 precision.fp8=hybrid";
	near(predict(&base, &each).compute, predict(&base, &once).compute);
	once.words = each.words = "parallel.zero=1";
	near(predict(&base, &each).compute, predict(&base, &once).compute);
}

/* Seconds of a linear of one micro-batch, less those of a job without 8 bits in which the products
 * take as long. */
static double cast_seconds(const char *words, enum linear linear, enum rate_class form)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 8, 1, 1, 64, 64, 1, 0 };
	static const struct engine_casts none[2];
	struct setting s = { words, "dgx-h100", &cost_engine_muster };
	struct cost_engine e = cost_engine_muster;
	struct cost_layer with, without;
	e.casts = none;
	open_scene(&x, &run, &s, NULL);
	struct cost_shard h = cost_shard_of(&x.of);
	cost_layer_set(&x.of, &h, &with);
	x.of.engine = &e;
	cost_layer_set(&x.of, &h, &without);
	free(x.stages);
	return with.linear[linear][form] - without.linear[linear][form];
}

#define EIGHT   "precision.dtype=bf16 precision.fp8=hybrid "
#define DELAYED EIGHT "precision.fp8_scaling=delayed "

/* With delayed scaling the ops that compute a tensor cast it: an activation and its gradient at no
 * cost, and a norm the stream's gradient, unless something changes that. Other tensors are read once
 * instead of twice. Attention's output is cast again, and with sp all gathered inputs are. */
static void casts_follow_the_scaling_and_the_ops_that_cast(void **state)
{
	(void)state;
	for (int l = 0; l < LINEARS; l++) {
		assert_true(cast_seconds(DELAYED, (enum linear)l, RATE_PRODUCT_FWD) <
			    cast_seconds(EIGHT, (enum linear)l, RATE_PRODUCT_FWD));
		assert_true(cast_seconds(DELAYED, (enum linear)l, RATE_PRODUCT_INPUT) <
			    cast_seconds(EIGHT, (enum linear)l, RATE_PRODUCT_INPUT));
		assert_true((cast_seconds(EIGHT, (enum linear)l, RATE_PRODUCT_WEIGHT) > 0) ==
			    (l == LINEAR_OUT));
		assert_true((cast_seconds(EIGHT "parallel.sp=yes", (enum linear)l,
					  RATE_PRODUCT_WEIGHT) > 0) == (l != LINEAR_DOWN));
	}
	near(cast_seconds(DELAYED, LINEAR_UP, RATE_PRODUCT_INPUT), 0);
	for (int l = LINEAR_OUT; l <= LINEAR_DOWN; l += LINEAR_DOWN - LINEAR_OUT) {
		double ahead = cast_seconds(DELAYED "model.dropout=0", (enum linear)l,
					    RATE_PRODUCT_INPUT);
		assert_true(cast_seconds(DELAYED "model.dropout=0 parallel.sp=yes", (enum linear)l,
					 RATE_PRODUCT_INPUT) > 1.5 * ahead);
		assert_true(cast_seconds(DELAYED "model.dropout=0.1", (enum linear)l,
					 RATE_PRODUCT_INPUT) > 1.5 * ahead);
	}
	assert_true(cast_seconds(DELAYED "parallel.sp=yes", LINEAR_UP, RATE_PRODUCT_FWD) >
		    cast_seconds(DELAYED, LINEAR_UP, RATE_PRODUCT_FWD));
}

/* The ops that cast gradients sum their columns: biases cost nothing more. */
static void biases_of_products_in_8_bits_have_no_pass(void **state)
{
	static const char *const words[] = { "precision.dtype=bf16", EIGHT };
	(void)state;
	for (int eight = 0; eight < 2; eight++) {
		static struct scene x;
		struct setting s = { words[eight], "dgx-h100", &cost_engine_muster };
		struct run run = { 64, 8192, 8, 1, 1, 1, 64, 64, 1, 0 };
		open_scene(&x, &run, &s, NULL);
		struct cost_shard h = cost_shard_of(&x.of);
		struct model_shape shape = *x.of.shape;
		double with = cost_layer_passes(&x.of, &h, PHASE_BACKWARD);
		assert_true(shape.bias && shape.qkv_bias);
		shape.bias = shape.qkv_bias = false;
		x.of.shape = &shape;
		double without = cost_layer_passes(&x.of, &h, PHASE_BACKWARD);
		assert_true(eight ? with == without : with > without);
		free(x.stages);
	}
}

/* Parameters that are gathered for each pass are cast in the forward and in the backward pass. */
static void zero_3_casts_weights_in_both_passes(void **state)
{
	(void)state;
	for (int form = RATE_PRODUCT_FWD; form <= RATE_PRODUCT_INPUT; form++)
		assert_true(
			cast_seconds(DELAYED "parallel.zero=3", LINEAR_UP, (enum rate_class)form) >
			1.1 * cast_seconds(DELAYED, LINEAR_UP, (enum rate_class)form));
}

/* The replicas' exchange of one chunk hides behind the passes through the others. */
static void chunks_hide_each_others_exchange(void **state)
{
	struct setting s = { "parallel.zero=1", "dgx-h100", &cost_engine_muster };
	struct run plain = { 64, 8192, 48, 4, 4, 1, 64, 32, 1, 0 }, cut = plain;
	(void)state;
	cut.chunks = 6;
	double whole = predict(&plain, &s).dp;
	assert_true(predict(&cut, &s).dp < 0.75 * whole);
	s.words = "parallel.zero=1 parallel.overlap=no";
	double waited = predict(&plain, &s).dp;
	assert_true(waited > 1.2 * whole);
	near(predict(&cut, &s).dp / waited, 1);
}

/* A backward pass in two halves gathers and reduces behind nothing, and gathers once more. The
 * weights' half has the second gather. */
static void split_passes_hide_no_transfer(void **state)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 8, 1, 1, 64, 64, 1, 0 };
	struct setting s = { "parallel.sp=yes", "dgx-h100", &cost_engine_muster };
	(void)state;
	open_scene(&x, &run, &s, NULL);
	struct cost_pass whole = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false }),
			 halves = whole;
	double half = place_seconds_all_reduce(&x.group_links[GROUP_TP], 2.0 * 2048 * 8192) / 2;
	cost_pass_halve(&halves);
	assert_true(halves.tp_bwd > whole.tp_bwd + 2 * half);
	near(halves.weight, whole.weight + 4 * half);
	near(halves.bwd, whole.bwd);
	free(x.stages);
}

/* It makes no difference for the wait for the slowest whether ranks share sequences or have their
 * own. */
static void ranks_of_a_sequence_wait_for_each_other(void **state)
{
	static const struct run whole = { 64, 8192, 8, 1, 1, 1, 64, 64, 1, 0 };
	struct setting shared = ours;
	struct cost_machine m;
	struct cluster c;
	struct err e = ERR_INIT;
	(void)state;
	shared.words = "recompute.mode=full parallel.cp=8 parallel.dp=8";
	assert_int_equal(topo_cluster_open("dgx-h100:8", 0, &c, &e), 0);
	cost_machine_of(&c.kinds[0], true, 1, &m);
	topo_cluster_free(&c);
	double spread = m.spread, work[2], wait[2];
	for (int i = 0; i < 2; i++) {
		const struct setting *s = i ? &shared : &ours;
		m.spread = 0;
		work[i] = predict_on(&whole, s, &m).total;
		m.spread = spread;
		wait[i] = predict_on(&whole, s, &m).total - work[i];
	}
	near(wait[1] / work[1], wait[0] / work[0]);
}

/* A GPU offloads over PCIe, which is slow. A processor only copies. */
static void offloading_costs_its_bytes(void **state)
{
	struct setting with = ours, optimizer = ours;
	struct plan_time now = predict(&base, &ours), t;
	(void)state;
	with.words = "recompute.mode=full offload.activations=yes";
	t = predict(&base, &with);
	/* [2 × 2048, 8192] in two bytes, for 24 layers, there and back at 50 GB/s, for each of 32
	 * micro-batches. */
	double tensor = 2.0 * 2 * 2048 * 8192, times = 2 * 24 * 32 / 50e9;
	assert_true(t.compute - now.compute > 0.9 * tensor * times &&
		    t.compute - now.compute < 3 * tensor * times);
	optimizer.words = "recompute.mode=full offload.optimizer=yes";
	t = predict(&base, &optimizer);
	assert_true(t.optimizer > 5 * now.optimizer);
	near(t.compute, now.compute);
	/* Two moments and, in 2-byte types, the masters are read and written. There are 24 layers
	 * of 12 × 8192² parameters and an eighth of 51200 × 8192, over 8 ranks. */
	double owned = (24 * 12 * 8192.0 * 8192 + 51200 * 8192.0) / 8;
	assert_true(fabs((t.optimizer - now.optimizer) / (6 * 4 * owned / 50e9) - 1) < 0.02);
}

/* Another program's update moves its own bytes, and an offloaded state travels as muster's
 * does. The host's idling, which makes passes of eager programs longer, makes no copy longer. */
static void offloading_costs_other_programs_as_much(void **state)
{
	static const enum job_engine engines[] = { ENGINE_MEGATRON_CORE, ENGINE_FSDP_EAGER };
	(void)state;
	for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
		struct setting s = ours;
		s.engine = cost_engines[engines[i]];
		struct plan_time now = predict(&base, &s), t;
		double owned = (24 * 12 * 8192.0 * 8192 + 51200 * 8192.0) / 8;
		s.words = "recompute.mode=full offload.optimizer=yes";
		t = predict(&base, &s);
		assert_true(fabs((t.optimizer - now.optimizer) / (6 * 4 * owned / 50e9) - 1) <
			    0.02);
		double copies[2];
		s.words = "recompute.mode=full offload.activations=yes";
		copies[0] = predict(&base, &s).compute - now.compute;
		s.engine = &cost_engine_muster;
		copies[1] = predict(&base, &s).compute - predict(&base, &ours).compute;
		assert_true(fabs(copies[0] / copies[1] - 1) < 1e-6);
	}
}

/* Muon's products: 5 iterations of 6 n FLOPs for each parameter of a hidden matrix of n rows. They
 * are in fp32, which an H100 computes at half the rate of bf16. */
static void muons_products_are_in_fp32(void **state)
{
	struct setting muon = ours, adamw = ours;
	struct plan_time with, without;
	double hidden = 24 * 12 * 8192.0 * 8192 / 8, flops = hidden * 5 * 6 * 8192;
	(void)state;
	muon.words = "recompute.mode=full optimizer.kind=muon";
	adamw.words = "recompute.mode=full";
	with = predict(&base, &muon);
	without = predict(&base, &adamw);
	double rate = flops / (with.optimizer - without.optimizer);
	assert_true(fabs(rate / (0.5 * 0.803 * 0.92 * 989.4e12) - 1) < 0.02);
	near(with.compute, without.compute);
}

/* On a processor that was measured in both types, the rate of fp32 is the measured one. */
static void fp32_products_take_the_rate_measured_in_fp32(void **state)
{
	struct measured m = { .cores = 1, .n_machines = 2 };
	struct node_kind k = { .device = "cpu", .devices = 1, .cores = 1, .measured = &m };
	struct cost_machine out;
	(void)state;
	for (int i = 0; i < 2; i++) {
		m.machines[i] =
			(struct measured_machine){ .agents = 1, .threads = 1, .low_precision = i };
		m.machines[i].machine.rates[RATE_PRODUCT_FWD] =
			(struct rate_curve){ 1, { 1 }, { i ? 200e9 : 100e9 } };
	}
	cost_machine_of_agents(&k, true, 1, 1, &out);
	near(cost_machine_seconds(&out, RATE_PRODUCT_FWD, 1e9), 0.005);
	near(cost_machine_fp32_product(&out, 1e9), 0.01);
	cost_machine_of_agents(&k, false, 1, 1, &out);
	near(cost_machine_seconds(&out, RATE_PRODUCT_FWD, 1e9), 0.01);
	near(cost_machine_fp32_product(&out, 1e9), 0.01);
}

/* --- Replicas --- */

/* 8 per node, 8 micro-batches each */
static const struct run replicas = { 64, 8192, 8, 1, 1, 1, 64, 1024, 2, 0 };

/* slower: the factor by which the network is slower. */
static struct plan_time of_replicas(const char *words, const struct cost_engine *engine,
				    double flops, double slower)
{
	static struct scene x;
	struct setting s = { words, "dgx-h100", engine };
	struct plan_time t;
	open_scene(&x, &replicas, &s, NULL);
	x.of.node_replicas = 8;
	x.machine.rates[RATE_PRODUCT_FWD].rate[0] *= flops;
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		x.group_links[kind].across.bandwidth /= slower;
	cost_step(&x.of, &t);
	free(x.stages);
	return t;
}

/* This holds however much of the replicas' transfers is hidden: the seconds of a pass hide one
 * transfer, not two. */
static void faster_passes_shorten_a_step_of_transfers(void **state)
{
	static const char *const words[] = { "parallel.zero=0",
					     "parallel.zero=1",
					     "parallel.zero=2",
					     "parallel.zero=3",
					     "model.family=mixtral parallel.zero=0",
					     "model.family=mixtral parallel.zero=2 parallel.ep=2",
					     "model.family=mixtral parallel.zero=3" };
	(void)state;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		for (double slower = 1; slower < 2000; slower *= 10) {
			double now = of_replicas(words[i], &cost_engine_muster, 1, slower).total,
			       then = of_replicas(words[i], &cost_engine_muster, 1.25, slower)
					      .total;
			if (!(then < now))
				fail_msg("%s: %g s become %g", words[i], now, then);
		}
}

/* Shards inside a node are summed over the nodes once per step. Nothing else crosses nodes. */
static void shards_in_nodes_cross_them_once(void **state)
{
	static const char *const words[] = { "parallel.zero=1 parallel.zero_shard=node",
					     "parallel.zero=2 parallel.zero_shard=node",
					     "parallel.zero=3 parallel.zero_shard=node" };
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct plan_time near_by = of_replicas(words[i], &cost_engine_muster, 1, 100),
				 far = of_replicas(words[i], &cost_engine_muster, 1, 200);
		/* 8 nodes form a ring for an eighth of 6.9 billion gradients of 4 bytes, at 50 GB/s
		 * × 0.8 / 100. */
		double once = 2 * 7 / 8. * 6.9e9 / 8 * 4 / 0.4e9;
		if (!(far.dp - near_by.dp > 0.97 * once && far.dp - near_by.dp < 1.06 * once))
			fail_msg("%s: %g s more, not %g", words[i], far.dp - near_by.dp, once);
	}
}

/* With parallel.overlap = no, each transfer is waited for. */
static void without_overlap_nothing_hides(void **state)
{
	static const char *const words[][2] = {
		{ "parallel.zero=0", "parallel.zero=0 parallel.overlap=no" },
		{ "parallel.zero=1", "parallel.zero=1 parallel.overlap=no" },
		{ "parallel.zero=3", "parallel.zero=3 parallel.overlap=no" }
	};
	(void)state;
	for (int i = 0; i < 3; i++)
		assert_true(of_replicas(words[i][1], &cost_engine_muster, 1, 1).dp >
			    1.5 * of_replicas(words[i][0], &cost_engine_muster, 1, 1).dp);
}

/* The new parameters arrive while the next step begins. */
static void published_parameters_come_beside_the_next_pass(void **state)
{
	struct cost_engine e = cost_engine_muster;
	(void)state;
	e.gathers_ahead = false;
	double now = of_replicas("parallel.zero=1", &cost_engine_muster, 1, 1).dp;
	assert_true(of_replicas("parallel.zero=1", &e, 1, 1).dp > 1.2 * now);
}

/* Seconds of the replicas' exchange of a small model on a device or a host. */
static double of_small(const char *words)
{
	static const struct run small = { 16, 1024, 24, 1, 1, 1, 64, 1024, 2, 0 };
	struct setting s = { words, "dgx-h100", &cost_engine_muster };
	return predict(&small, &s).dp;
}

/* On a device a bucket of 64 M elements has the fixed cost of one operation. It holds five of the
 * layers, each of which is an operation of its own elsewhere, and under zero 3. */
static void buckets_on_devices_have_one_fixed_cost(void **state)
{
	(void)state;
	double buckets = of_small("job.device=cuda parallel.zero=1 parallel.overlap=no"),
	       units = of_small("job.device=cpu parallel.zero=1 parallel.overlap=no");
	if (!(buckets < 0.95 * units))
		fail_msg("%g s in buckets, %g s in units", buckets, units);
	near(of_small("job.device=cuda parallel.zero=3 parallel.overlap=no"),
	     of_small("job.device=cpu parallel.zero=3 parallel.overlap=no"));
}

/* --- Mixtures and shared heads --- */

/* Full recomputation repeats all of a mixture: both its all-to-alls, and its last product, because
 * the gates' gradients need the result (agent/engine/model/moe.c, model_moe_recompute). Selective
 * recomputation repeats norms and attention. */
static void mixtures_are_recomputed_as_they_are(void **state)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 1, 1, 1, 64, 64, 1, 0 };
	struct setting s = { "model.family=mixtral model.dropout=0 model.attn_dropout=0 "
			     "parallel.ep=8 recompute.mode=full",
			     "dgx-h100", &cost_engine_muster };
	(void)state;
	open_scene(&x, &run, &s, NULL);
	struct cost_pass t = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
	near(t.again, t.fwd + t.ep_fwd);
	x.job.recompute.mode = RECOMPUTE_SELECTIVE;
	t = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
	double stream = 2.0 * 2048 * 8192,
	       attention = cost_machine_attention(&x.machine, ATTENTION_MUSTER, RATE_ATTENTION_FWD,
						  2 * 2048.0 * 8192 * 2048, 2048, 128);
	near(t.again, attention + 2 * cost_machine_seconds(&x.machine, RATE_NORM_FWD, 2 * stream));
	free(x.stages);
}

/* cuDNN's backward pass with sums in any order counts where it is faster. */
static void sums_in_any_order_make_the_backward_pass_faster(void **state)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 1, 1, 1, 64, 64, 1, 0 };
	struct setting s = { "model.family=mixtral model.dropout=0 model.attn_dropout=0 "
			     "parallel.ep=8",
			     "dgx-h100", &cost_engine_muster };
	const struct stage stage = { 1, 2, false, false };
	(void)state;
	open_scene(&x, &run, &s, NULL);
	const double flops = 2.5 * 2 * 2048.0 * 8192 * 2048,
		     ordered = cost_machine_attention(&x.machine, ATTENTION_MUSTER,
						      RATE_ATTENTION_BWD, flops, 2048, 128),
		     any = cost_machine_attention(&x.machine, ATTENTION_CUDNN, RATE_ATTENTION_BWD,
						  flops, 2048, 128);
	struct cost_pass ordered_pass = cost_pass_of(&x.of, &stage);
	x.job.job.deterministic = DETERMINISTIC_ANY_ORDER;
	struct cost_pass any_pass = cost_pass_of(&x.of, &stage);
	assert_true(any < 0.9 * ordered);
	near(cost_backward(&ordered_pass) - cost_backward(&any_pass), ordered - any);
	near(ordered_pass.fwd, any_pass.fwd);
	free(x.stages);
}

/* A mixture's rows are gathered before their experts are known, and summed after the last
 * expert. */
static void a_mixtures_sums_hide_behind_nothing(void **state)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 8, 1, 1, 64, 64, 1, 0 };
	struct setting s = { "model.family=mixtral model.dropout=0 model.attn_dropout=0 "
			     "parallel.ep=8 parallel.sp=yes",
			     "dgx-h100", &cost_engine_muster };
	(void)state;
	open_scene(&x, &run, &s, NULL);
	struct cost_pass mixed = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
	x.shape.experts = x.shape.top = 0;
	struct cost_pass dense = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
	double half = place_seconds_all_reduce(&x.group_links[GROUP_TP], 2.0 * 2048 * 8192) / 2;
	assert_true(mixed.tp_fwd > dense.tp_fwd && mixed.tp_fwd < 4 * half);
	/* two of its three transfers were hidden by products of two experts' size */
	assert_true(mixed.tp_bwd > dense.tp_bwd + half);
	free(x.stages);
}

/* The passes of a mixture's inner layer: 32 experts on 4 nodes of 8 devices. */
static struct cost_pass of_mixture(const char *words, const struct cost_engine *engine,
				   double latency)
{
	static struct scene x;
	static const struct run run = { 64, 8192, 8, 1, 1, 1, 32, 64, 1, 0 };
	struct setting s = { words, "dgx-h100", engine };
	open_scene(&x, &run, &s, NULL);
	x.group_links[GROUP_EP].across.latency += latency;
	struct cost_pass t = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
	free(x.stages);
	return t;
}

#define MIXTURE "model.family=mixtral model.dropout=0 model.attn_dropout=0 model.experts=32 "

/* A layer takes at least as long as its host needs to start it; a shorter start costs nothing. */
static void a_mixtures_layer_waits_for_its_host(void **state)
{
	struct cost_engine slow = cost_engine_megatron_core, graphs = slow;
	(void)state;
	graphs.starts = 0;
	struct cost_pass t = of_mixture(MIXTURE "parallel.ep=8", &graphs, 0);
	slow.starts = (cost_forward(&t) + cost_backward(&t)) / 2;
	struct cost_pass late = of_mixture(MIXTURE "parallel.ep=8", &slow, 0);
	near(cost_forward(&late), slow.starts);
	near(cost_backward(&late), cost_backward(&t));
	slow.starts = 2 * cost_backward(&t);
	late = of_mixture(MIXTURE "parallel.ep=8", &slow, 0);
	near(cost_backward(&late), slow.starts);
	near(late.ep_bwd, t.ep_bwd);
	slow.starts = 0.9 * cost_forward(&t);
	late = of_mixture(MIXTURE "parallel.ep=8", &slow, 0);
	near(cost_forward(&late), cost_forward(&t));
}

/* There is one message to each other node, or to each other rank. */
static void every_message_of_a_route_has_its_latency(void **state)
{
	struct cost_engine e = cost_engine_megatron_core;
	(void)state;
	e.starts = 0;
	for (int once = 0; once < 2; once++) {
		e.routes_once = once;
		double now = of_mixture(MIXTURE "parallel.ep=32", &e, 0).ep_fwd,
		       then = of_mixture(MIXTURE "parallel.ep=32", &e, 1).ep_fwd;
		near(then - now, 2 * (once ? 3 : 31));
	}
}

/* What another micro-batch's work hides of a route takes the machine's share of its time. */
static void routes_hide_behind_another_micro_batch(void **state)
{
	struct cost_engine e = cost_engine_megatron_core;
	(void)state;
	e.starts = 0;
	struct cost_pass open = of_mixture(MIXTURE "parallel.ep=32", &e, 0);
	e.hides_ep = true;
	e.hides = 1;
	struct cost_pass hidden = of_mixture(MIXTURE "parallel.ep=32", &e, 0);
	near(1 + hidden.ep_fwd, 1 + fmax(0, open.ep_fwd - open.fwd));
	near(1 + hidden.ep_bwd, 1 + fmax(0, open.ep_bwd - open.bwd));
	hidden = of_mixture(MIXTURE "parallel.ep=32", &e, 1);
	near(hidden.ep_fwd, open.ep_fwd + 2 * 3 - open.fwd);
}

/* Rows are sorted for the ranks, and where they arrive for the rank's experts if it has several. */
static void rows_are_sorted_where_experts_differ(void **state)
{
	struct cost_engine e = cost_engine_megatron_core;
	static const struct cost_engine_pass own[] = {
		{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_ROUTED] = 1 } },
		{ .times = 0 }
	};
	static const struct cost_engine_pass all[] = {
		{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_SORTED] = 1 } },
		{ .times = 0 }
	};
	static const struct cost_engine_pass none[] = { { .times = 0 } };
	(void)state;
	e.starts = 0;
	for (int several = 0; several < 2; several++) {
		const char *words = several ? MIXTURE "parallel.ep=8" : MIXTURE "parallel.ep=32";
		e.passes = none;
		double nothing = of_mixture(words, &e, 0).fwd;
		e.passes = own;
		double sent = of_mixture(words, &e, 0).fwd - nothing;
		e.passes = all;
		double received = of_mixture(words, &e, 0).fwd - nothing;
		assert_true(sent > 0);
		near(1 + received, several ? 1 + sent : 1);
	}
}

/* If there are more tp ranks than key-value heads, each rank holds a whole head. */
static void shared_heads_are_copied(void **state)
{
	static struct scene x;
	static const struct run eight = { 64, 8192, 8, 8, 1, 1, 64, 64, 1, 0 };
	struct cost_pass t[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct setting s = { i ? "model.family=llama model.kv_heads=8"
				       : "model.family=llama model.kv_heads=2",
				     "dgx-h100", &cost_engine_muster };
		open_scene(&x, &eight, &s, NULL);
		t[i] = cost_pass_of(&x.of, &(struct stage){ 1, 2, false, false });
		free(x.stages);
	}
	near(t[0].fwd, t[1].fwd);
	near(t[0].bwd, t[1].bwd);
}

/* Products that fill the last wave are the most efficient. One more tile takes one more wave. */
static void waves_are_whole(void **state)
{
	struct cost_machine m = { .rates = { [RATE_PRODUCT_FWD] = { 1, { 1 }, { 100e12 } },
					     [RATE_MOVED] = { 1, { 1 }, { 1e15 } } },
				  .units = 100,
				  .wave = 1e-6 };
	double full = cost_machine_product(&m, RATE_PRODUCT_FWD, 2560, 4096, 1280, 2),
	       over = cost_machine_product(&m, RATE_PRODUCT_FWD, 2561, 4096, 1280, 2);
	(void)state;
	near(full, 2 * 256 * 128 * 4096 / 1e12 + 1e-6);
	assert_true(over > 1.1 * full);
	near(cost_machine_product(&m, RATE_PRODUCT_INPUT, 2560, 1280, 4096, 2), full);
	near(cost_machine_product(&m, RATE_PRODUCT_WEIGHT, 4096, 1280, 2560, 2), full);
	m.rates[RATE_MOVED].rate[0] = 1e9; /* now the rate of memory */
	near(cost_machine_product(&m, RATE_PRODUCT_FWD, 2560, 4096, 1280, 2),
	     2.0 * (2560 * 4096 + 4096 * 1280 + 2560 * 1280) / 1e9);
}

static void every_preset_has_a_machine(void **state)
{
	static const char *const names[] = { "dgx-1",     "dgx-2",     "dgx-a100",    "dgx-h100",
					     "dgx-h200",  "dgx-b200",  "gb200-nvl72", "h200",
					     "pcie-a100", "pcie-l40s", "p4d",         "mi300x" };
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct err e = ERR_INIT;
		struct cluster c;
		struct cost_machine bf16, fp32;
		assert_int_equal(topo_cluster_open(names[i], 0, &c, &e), 0);
		cost_machine_of(&c.kinds[0], true, 1, &bf16);
		cost_machine_of(&c.kinds[0], false, 1, &fp32);
		double share = bf16.rates[RATE_PRODUCT_FWD].rate[0] / c.kinds[0].device_flops;
		assert_true(share > 0.4 && share < 0.9);
		double slower = bf16.rates[RATE_PRODUCT_FWD].rate[0] /
				fp32.rates[RATE_PRODUCT_FWD].rate[0];
		/* before TF32, there was no faster type for fp32 */
		near(slower, strncmp(c.kinds[0].device, "V100", 4) ? 2 : 8);
		assert_true(bf16.units > 0);
		topo_cluster_free(&c);
	}
}

/* The units of every GPU model that a reader may find are known. A large product loses little in
 * its last wave. */
static void every_known_gpu_has_units(void **state)
{
	(void)state;
	for (int i = 0; topo_gpu_at(i); i++) {
		struct node_kind k = { .devices = 1 };
		struct cost_machine m;
		topo_gpu_fill(topo_gpu_at(i), &k);
		cost_machine_of(&k, true, 1, &m);
		if (m.units < 1)
			fail_msg("%s", k.device);
		double best = 2 * 8192.0 * 8192 * 8192 / m.rates[RATE_PRODUCT_FWD].rate[0],
		       tiled = cost_machine_product(&m, RATE_PRODUCT_FWD, 8192, 8192, 8192, 2);
		assert_true(tiled >= best && tiled < 1.15 * best);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_faster_machine_takes_less),
		cmocka_unit_test(more_work_takes_longer),
		cmocka_unit_test(layers_count_evenly),
		cmocka_unit_test(parts_add_up),
		cmocka_unit_test(each_property_of_an_engine_costs_its_part),
		cmocka_unit_test(attention_takes_longer_where_cudnn_cannot_be_used),
		cmocka_unit_test(operands_in_8_bits_travel_in_8_bits),
		cmocka_unit_test(weights_are_cast_once_per_step),
		cmocka_unit_test(casts_follow_the_scaling_and_the_ops_that_cast),
		cmocka_unit_test(biases_of_products_in_8_bits_have_no_pass),
		cmocka_unit_test(zero_3_casts_weights_in_both_passes),
		cmocka_unit_test(chunks_hide_each_others_exchange),
		cmocka_unit_test(split_passes_hide_no_transfer),
		cmocka_unit_test(ranks_of_a_sequence_wait_for_each_other),
		cmocka_unit_test(offloading_costs_its_bytes),
		cmocka_unit_test(offloading_costs_other_programs_as_much),
		cmocka_unit_test(muons_products_are_in_fp32),
		cmocka_unit_test(fp32_products_take_the_rate_measured_in_fp32),
		cmocka_unit_test(faster_passes_shorten_a_step_of_transfers),
		cmocka_unit_test(shards_in_nodes_cross_them_once),
		cmocka_unit_test(without_overlap_nothing_hides),
		cmocka_unit_test(published_parameters_come_beside_the_next_pass),
		cmocka_unit_test(buckets_on_devices_have_one_fixed_cost),
		cmocka_unit_test(sums_in_any_order_make_the_backward_pass_faster),
		cmocka_unit_test(mixtures_are_recomputed_as_they_are),
		cmocka_unit_test(a_mixtures_sums_hide_behind_nothing),
		cmocka_unit_test(a_mixtures_layer_waits_for_its_host),
		cmocka_unit_test(every_message_of_a_route_has_its_latency),
		cmocka_unit_test(routes_hide_behind_another_micro_batch),
		cmocka_unit_test(rows_are_sorted_where_experts_differ),
		cmocka_unit_test(shared_heads_are_copied),
		cmocka_unit_test(waves_are_whole),
		cmocka_unit_test(every_preset_has_a_machine),
		cmocka_unit_test(every_known_gpu_has_units),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
