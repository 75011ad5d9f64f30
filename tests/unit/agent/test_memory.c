/*
 * The plan's memory equals the engine's. For each rank of each layout and strategy,
 * plan_memory_rank predicts to the byte what the engine and the optimizer then allocate, and a step
 * allocates nothing more. (test_train_state.c checks the snapshot where it is saved.)
 */
#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/server/server.h"
#include "plan/plan.h"
#include "plan/spec/speeds.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In each of these, another part is most of the memory: activations, logits in several chunks, or
 * parameters. */
#define GPT2 \
	"model.layers=6 model.hidden=64 model.vocab=300 model.seq=64 batch.micro=4 " \
	"batch.global=64 "
#define LLAMA \
	"model.family=llama model.layers=6 model.hidden=64 model.heads=8 model.kv_heads=4 " \
	"model.ffn=190 model.vocab=301 model.seq=64 " \
	"batch.micro=4 batch.global=64 "
#define LOGITS \
	"model.layers=4 model.hidden=16 model.vocab=60000 model.seq=128 batch.micro=4 " \
	"batch.global=64 "
#define PARAMS \
	"model.family=llama model.layers=8 model.hidden=128 model.ffn=352 model.vocab=128 " \
	"model.seq=8 model.tie_head=yes batch.micro=1 batch.global=64 "
#define MIXTRAL \
	"model.family=mixtral model.layers=4 model.hidden=64 model.heads=4 model.ffn=96 " \
	"model.experts=4 model.vocab=300 model.seq=64 " \
	"batch.micro=2 batch.global=32 "

static const char *const layouts[] = {
	GPT2,
	GPT2 "parallel.tp=2",
	GPT2 "parallel.pp=4",
	GPT2 "parallel.dp=2",
	GPT2 "parallel.tp=2 parallel.pp=2 parallel.dp=2",
	GPT2 "parallel.tp=4 parallel.pp=2",
	LLAMA,
	LLAMA "parallel.tp=2",
	LLAMA "parallel.pp=4",
	LLAMA "parallel.tp=2 parallel.pp=2 parallel.dp=2",
	LLAMA "parallel.tp=8",
	LOGITS,
	LOGITS "parallel.tp=2 parallel.pp=2 parallel.dp=2",
	PARAMS,
	PARAMS "parallel.tp=2 parallel.pp=2 parallel.dp=2",
	GPT2 "parallel.pp=2 launch.speeds=3,1",
	GPT2 "parallel.dp=2 launch.speeds=3,1",
	GPT2 "parallel.pp=3 parallel.stages=3,1,2",
};

static const char *const sharded[] = {
	GPT2 "parallel.dp=4 parallel.zero=1",
	GPT2 "parallel.dp=4 parallel.zero=2",
	GPT2 "parallel.dp=4 parallel.zero=3",
	PARAMS "parallel.dp=2 parallel.zero=1",
	PARAMS "parallel.dp=2 parallel.zero=2",
	PARAMS "parallel.dp=2 parallel.zero=3",
	PARAMS "parallel.dp=3 batch.global=48 parallel.zero=3",
	PARAMS "parallel.tp=2 parallel.dp=2 parallel.zero=3",
	PARAMS "parallel.dp=2 parallel.cp=2 parallel.zero=2",
	PARAMS "parallel.pp=2 parallel.dp=2 parallel.zero=1",
	PARAMS "parallel.pp=2 parallel.dp=2 parallel.zero=3",
	PARAMS "optimizer.kind=sgd parallel.dp=2 parallel.zero=1",
	PARAMS "optimizer.kind=sgd",
	PARAMS "optimizer.kind=adafactor parallel.dp=2 parallel.zero=1",
	PARAMS "optimizer.kind=adafactor parallel.tp=2 parallel.pp=2",
	MIXTRAL "optimizer.kind=adafactor parallel.dp=4 parallel.ep=2 parallel.zero=3",
	PARAMS "optimizer.kind=adafactor offload.optimizer=yes",
	PARAMS "optimizer.kind=muon parallel.dp=3 batch.global=48 parallel.zero=1",
	LLAMA "optimizer.kind=muon parallel.tp=8",
	PARAMS "optimizer.kind=muon parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=2",
	MIXTRAL "optimizer.kind=muon parallel.dp=4 parallel.ep=2 parallel.zero=3",
	PARAMS "optimizer.kind=muon offload.optimizer=yes parallel.dp=2 parallel.zero=3",
	PARAMS "parallel.dp=4 parallel.zero=1 parallel.zero_shard=node",
	PARAMS "parallel.dp=4 parallel.zero=2 parallel.zero_shard=node",
	PARAMS "parallel.dp=4 parallel.zero=3 parallel.zero_shard=node",
	MIXTRAL "parallel.dp=4 parallel.ep=2 parallel.zero=3 parallel.zero_shard=node",
	PARAMS "offload.optimizer=yes",
	PARAMS "offload.optimizer=yes parallel.dp=2 parallel.zero=3",
};

static const char *const recomputed[] = {
	GPT2 "recompute.mode=selective",
	GPT2 "recompute.mode=full",
	GPT2 "recompute.mode=full recompute.every=2",
	GPT2 "recompute.mode=selective recompute.every=4 parallel.pp=3",
	GPT2 "recompute.mode=full parallel.pp=3",
	LLAMA "recompute.mode=selective",
	LLAMA "recompute.mode=full recompute.every=3 parallel.tp=2 parallel.sp=yes",
	GPT2 "offload.activations=yes",
	LLAMA "offload.activations=yes parallel.pp=2 recompute.mode=selective",
	MIXTRAL "recompute.mode=selective",
	MIXTRAL "recompute.mode=full",
	MIXTRAL "recompute.mode=full recompute.every=3 parallel.pp=2",
};

static const char *const sequences[] = {
	GPT2 "parallel.tp=2 parallel.sp=yes",
	LLAMA "parallel.tp=4 parallel.sp=yes",
	LLAMA "parallel.tp=8 parallel.sp=yes",
	GPT2 "parallel.cp=2",
	LLAMA "parallel.cp=4",
	LLAMA "parallel.cp=2 parallel.tp=2 parallel.sp=yes",
	GPT2 "model.dropout=0.1 model.attn_dropout=0.1",
	LLAMA "model.dropout=0.1 parallel.tp=2 parallel.sp=yes",
	MIXTRAL,
	MIXTRAL "parallel.dp=2 parallel.ep=2",
	MIXTRAL "parallel.tp=2",
	MIXTRAL "parallel.tp=2 parallel.dp=2 parallel.ep=2 parallel.zero=2",
};

static const char *const scheduled[] = {
	GPT2 "parallel.pp=4 parallel.schedule=gpipe",
	LLAMA "parallel.pp=2 parallel.schedule=gpipe",
	GPT2 "parallel.pp=4 parallel.schedule=naive",
	GPT2 "parallel.pp=2 parallel.schedule=interleaved",
	GPT2 "parallel.pp=2 parallel.schedule=interleaved parallel.chunks=3",
	LLAMA "parallel.pp=2 parallel.tp=2 parallel.sp=yes parallel.schedule=interleaved "
	      "parallel.dp=2 parallel.zero=1",
	GPT2 "parallel.pp=2 parallel.schedule=breadth-first",
	GPT2 "parallel.pp=4 parallel.schedule=zb-h1",
	LLAMA "parallel.pp=3 parallel.schedule=zb-v",
	GPT2 "parallel.pp=2 parallel.schedule=zb-v recompute.mode=full",
	GPT2 "parallel.pp=2 parallel.schedule=zb-h1 recompute.mode=selective",
	MIXTRAL "parallel.pp=2 parallel.schedule=zb-h1 recompute.mode=full",
	MIXTRAL "parallel.pp=2 parallel.schedule=zb-v",
	MIXTRAL "parallel.pp=2 parallel.schedule=interleaved recompute.mode=full",
};

static const char *const low_precision[] = {
	GPT2 "precision.dtype=bf16",
	LLAMA "precision.dtype=fp16",
	LLAMA "precision.dtype=bf16 parallel.dp=2 parallel.zero=1",
	PARAMS "precision.dtype=bf16 parallel.dp=2 parallel.zero=3",
	PARAMS "precision.dtype=bf16 offload.optimizer=yes",
	GPT2 "precision.dtype=bf16 model.dropout=0.1 parallel.tp=2 parallel.sp=yes "
	     "recompute.mode=selective",
	GPT2 "precision.dtype=bf16 precision.fp8=hybrid parallel.tp=2 parallel.sp=yes",
	LLAMA "precision.dtype=fp16 precision.fp8=e4m3 parallel.pp=2",
	LLAMA "precision.dtype=bf16 precision.fp8=e4m3 precision.fp8_scaling=delayed parallel.pp=2",
	MIXTRAL "precision.dtype=bf16 precision.fp8=hybrid",
	MIXTRAL "precision.dtype=bf16",
	LLAMA "precision.dtype=bf16 parallel.pp=2 parallel.schedule=zb-v",
};

static const char *const served[] = {
	GPT2 "parallel.sync=server",
	GPT2 "parallel.dp=2 parallel.sync=server",
	PARAMS "parallel.dp=3 batch.global=48 parallel.sync=server parallel.staleness=0",
	MIXTRAL "parallel.dp=4 parallel.sync=server optimizer.kind=sgd",
};

struct rank_result {
	double predicted, opened, stepped;
};

struct training {
	struct job job;
	struct model_shape shape;
	struct layout layout;
	struct stage stages[64];
	struct batch_share shares[16];
	struct rank_result *accounts; /* [world], shared */
};

static void load_job(const char *text, struct training *c)
{
	const char *words[32];
	char copy[512];
	int n = 0;
	struct err e = ERR_INIT;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	if (job_load(NULL, words, n, &c->job, &e))
		fail_msg("%s: %s", text, e.text);
	shape_of_job(&c->job, &c->shape);
	c->layout = layout_of(&c->job, c->job.parallel.dp ? (int)c->job.parallel.dp : 1);
	if (speeds_stages(&c->job, &c->shape, &c->layout, c->stages, &e) ||
	    batch_split(&c->job, &c->shape, &c->layout, c->stages, c->shares, &e))
		fail_msg("%s: %s", text, e.text);
}

/* The ranks are placed as on 2 nodes. */
static int node_of(const struct training *c, int rank)
{
	return 2 * rank / layout_world(&c->layout);
}

/* Counts as plan_rank does. */
static int replicas_on_node(const struct training *c, struct coords at)
{
	int node_replicas = 0, node = node_of(c, layout_rank(&c->layout, at));
	for (int i = 0; i < layout_world(&c->layout); i++) {
		struct coords other = layout_coords(&c->layout, i);
		node_replicas += node_of(c, i) == node && other.tp == at.tp && other.pp == at.pp;
	}
	return node_replicas;
}

static double predict(const struct training *c, struct coords at)
{
	struct plan_rank r = { .at = at, .threads = 1, .node_replicas = replicas_on_node(c, at) };
	plan_memory_rank(&c->job, &c->shape, &c->layout, c->shares[at.dp].micros, c->stages, false,
			 &r);
	/* The trainer, not the engine, holds the tokens. */
	double ahead = fmin((double)c->job.data.prefetch + 1, (double)c->job.job.steps);
	return r.total - ahead * 2 * sizeof(int32_t) * (double)c->shares[at.dp].micros *
				 (double)(c->job.batch.micro * c->job.model.seq);
}

static int run_step(const struct training *c, struct engine *engine, struct coords at,
		    struct err *e)
{
	int64_t n = c->shares[at.dp].micros * c->job.batch.micro * c->job.model.seq;
	int32_t *tokens = calloc((size_t)n, sizeof *tokens);
	double loss;
	if (!tokens)
		return err_set(e, ERR_NOMEM, "no memory for the test's tokens");
	struct engine_batch batch = { .inputs = tokens,
				      .targets = tokens,
				      .sample = c->shares[at.dp].first,
				      .loss_scale = 1 };
	int rc = pipeline_step(engine, &batch, &loss, e);
	free(tokens);
	return rc;
}

/* The optimizer state belongs to the rank, or to the rank's server. */
struct keeper_of_state {
	struct optim *optim;
	struct param_server *server;
};

static int open_state(const struct training *c, const struct rank_view *v, struct engine *engine,
		      struct comm *world, struct keeper_of_state *s, struct err *e)
{
	if (c->job.parallel.sync == SYNC_SERVER) {
		struct server_options o = {
			.view = v,
			.catalogue = pipeline_catalogue(engine),
			.world = world,
			.backend_name = "cpu",
			.worker = pipeline_store(engine),
			.backend = pipeline_backend(engine),
		};
		return param_server_open(&o, &s->server, e);
	}
	struct optim_options o = { .backend = pipeline_backend(engine),
				   .store = pipeline_store(engine),
				   .job = &c->job,
				   .spill_dir = "/tmp" };
	return optim_open(&o, &s->optim, e);
}

static double taken(const struct engine *engine, const struct keeper_of_state *s)
{
	return (double)(pipeline_peak_bytes(engine) +
			(s->server ? param_server_peak_bytes(s->server) : 0));
}

static int measure_rank(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct rank_result *a = &c->accounts[comm_rank(world)];
	struct coords at = layout_coords(&c->layout, comm_rank(world));
	struct rank_view view = { 0 };
	struct engine_options opt = { .view = &view,
				      .world = world,
				      .backend_name = "cpu",
				      .threads = 1,
				      .spill_dir = "/tmp",
				      .node = node_of(c, comm_rank(world)) };
	struct engine *engine = NULL;
	struct keeper_of_state state = { 0 };
	int rc = rank_view_init(&c->job, &c->layout, comm_rank(world), &view, e) ||
				 pipeline_open(&opt, &engine, e) ||
				 open_state(c, &view, engine, world, &state, e)
			 ? -1
			 : 0;
	if (!rc) {
		a->predicted = predict(c, at);
		a->opened = taken(engine, &state);
		rc = run_step(c, engine, at, e);
		a->stepped = taken(engine, &state);
	}
	param_server_close(state.server);
	optim_close(state.optim);
	pipeline_close(engine);
	rank_view_fini(&view);
	return rc;
}

/* All tokens are the same, so they choose the same experts. The memory of a mixture therefore
 * grows during the step. */
static bool is_predicted(const struct training *c, const struct rank_result *a)
{
	return a->predicted > 0 && a->predicted == a->opened &&
	       (a->stepped == a->opened || c->shape.experts);
}

static void check_layouts(const char *const *list, size_t n)
{
	size_t bytes = WORLD_MAX * sizeof(struct rank_result);
	struct rank_result *accounts = world_shared(bytes);
	static struct training c;
	int wrong = 0;
	for (size_t i = 0; i < n; i++) {
		load_job(list[i], &c);
		c.accounts = accounts;
		int world = layout_world(&c.layout);
		memset(accounts, 0, bytes);
		assert_int_equal(world_run(world, measure_rank, &c), 0);
		const struct rank_result *most = accounts;
		for (int r = 0; r < world; r++) {
			if (accounts[r].opened > most->opened)
				most = &accounts[r];
			if (is_predicted(&c, &accounts[r]))
				continue;
			wrong++;
			printf("  rank %d: %.0f bytes predicted, %.0f taken, %.0f in a step\n", r,
			       accounts[r].predicted, accounts[r].opened, accounts[r].stepped);
		}
		const char *words = strstr(list[i], "batch.global=");
		printf("    %-7s %-60s %9.0f predicted, %9.0f measured: %+.2f %%\n",
		       job_word(&c.job, offsetof(struct job, model.family)), strchr(words, ' ') + 1,
		       most->predicted, most->stepped, 100 * (most->predicted / most->stepped - 1));
	}
	assert_int_equal(wrong, 0);
	world_unshared(accounts, bytes);
}

#define CHECK(list) check_layouts(list, sizeof list / sizeof *list)

static void layouts_take_what_was_predicted(void **state)
{
	(void)state;
	CHECK(layouts);
}

static void zero_shards_as_predicted(void **state)
{
	(void)state;
	CHECK(sharded);
}

static void recomputation_saves_as_predicted(void **state)
{
	(void)state;
	CHECK(recomputed);
}

static void sequences_are_cut_and_experts_placed_as_predicted(void **state)
{
	(void)state;
	CHECK(sequences);
}

static void schedules_keep_what_was_predicted(void **state)
{
	(void)state;
	CHECK(scheduled);
}

static void narrow_storage_takes_what_was_predicted(void **state)
{
	(void)state;
	CHECK(low_precision);
}

static void servers_take_what_was_predicted(void **state)
{
	(void)state;
	CHECK(served);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layouts_take_what_was_predicted),
		cmocka_unit_test(zero_shards_as_predicted),
		cmocka_unit_test(recomputation_saves_as_predicted),
		cmocka_unit_test(sequences_are_cut_and_experts_placed_as_predicted),
		cmocka_unit_test(schedules_keep_what_was_predicted),
		cmocka_unit_test(servers_take_what_was_predicted),
		cmocka_unit_test(narrow_storage_takes_what_was_predicted),
	};
	return cmocka_run_group_tests_name("memory, predicted and taken", tests, NULL, NULL);
}
