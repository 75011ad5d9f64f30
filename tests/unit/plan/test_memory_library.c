/*
 * What NCCL takes of a GPU's memory: the bytes are the sums of plan/memory_library.h over all
 * groups.
 */
#include "plan/memory_library.h"
#include "plan/search/fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define MIB (1024.0 * 1024)

/* MiB of a connection: inside a node, and by the network. */
#define INSIDE  12.0
#define BETWEEN (2 * (4 + 4.6875))
/* MiB of NVLS for a rank of a group in the node. */
#define NVLS 32.0
/* Bytes of a rank in a channel's table of peers. */
#define PEER 576.0

enum { WORDS = 10 };

static struct job job_of(const char *const *words, int n)
{
	struct job job;
	struct err e = ERR_INIT;
	if (job_load(NULL, words, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

/* The MiB with these words. */
static double library(const char *const words[], int n)
{
	const char *all[WORDS + 8] = { "model.layers=8",   "model.heads=16", "model.hidden=1024",
				       "model.vocab=4096", "model.seq=128",  "batch.micro=1",
				       "batch.global=512", "job.device=cuda" };
	for (int i = 0; i < n; i++)
		all[8 + i] = words[i];
	struct job job = job_of(all, 8 + n);
	struct layout l = layout_of(&job, job.parallel.dp ? (int)job.parallel.dp : 1);
	struct model_shape m;
	shape_of_job(&job, &m);
	return plan_memory_library(&job, &m, &l) / MIB;
}

static void the_bytes_are_those_of_the_groups(void **state)
{
	(void)state;
	static const struct {
		const char *words[WORDS];
		double mib;
		int peers; /* ranks times channels, over all groups */
	} rows[] = {
		/* none without groups, without a GPU, and for another program */
		{ { "model.family=llama", "parallel.dp=1" }, 0, 0 },
		{ { "model.family=llama", "parallel.dp=8", "job.device=cpu" }, 0, 0 },
		{ { "model.family=llama", "parallel.dp=8", "plan.engine=megatron-2022",
		    "precision.dtype=bf16" },
		  0,
		  0 },
		/* replicas, and all ranks with two channels */
		{ { "model.family=llama", "parallel.dp=2" }, 18 * BETWEEN + 2 * NVLS, 18 * 2 },
		{ { "model.family=llama", "parallel.dp=8" }, 2 * 18 * BETWEEN + 8 * NVLS, 18 * 8 },
		{ { "model.family=llama", "parallel.dp=64" },
		  2 * 18 * BETWEEN + 8 * NVLS,
		  18 * 64 },
		{ { "model.family=llama", "parallel.dp=64", "parallel.zero=3" },
		  2 * 18 * BETWEEN + 8 * NVLS,
		  18 * 64 },
		/* shards inside nodes and their copies, which have a ring each */
		{ { "model.family=llama", "parallel.dp=64", "parallel.zero=3",
		    "parallel.zero_shard=node" },
		  2 * (2 + 2 * 16) * BETWEEN + 8 * NVLS,
		  34 * 64 },
		/* without overlap, a group takes as many processors as it can inside a node */
		{ { "model.family=llama", "parallel.tp=2", "parallel.dp=2", "parallel.overlap=no" },
		  2 * 2 * BETWEEN + 2 * 32 * INSIDE + 2 * NVLS + 2 * NVLS,
		  2 * 4 + 32 * 2 + 32 * 2 },
		{ { "model.family=llama", "parallel.tp=8" },
		  2 * 2 * BETWEEN + 2 * 32 * INSIDE + 8 * NVLS,
		  2 * 8 + 32 * 8 },
		{ { "model.family=llama", "parallel.tp=8", "parallel.dp=4" },
		  2 * 2 * BETWEEN + 2 * 32 * INSIDE + 2 * 16 * BETWEEN + 8 * NVLS,
		  2 * 32 + 32 * 8 + 16 * 4 },
		/* kv heads that ranks share */
		{ { "model.family=llama", "parallel.tp=8", "model.kv_heads=4" },
		  2 * 2 * BETWEEN + 2 * 32 * INSIDE + 32 * INSIDE + 8 * NVLS,
		  2 * 8 + 32 * 8 + 32 * 2 },
		/* one communicator for the pipeline's messages, however many chunks */
		{ { "model.family=llama", "parallel.pp=2" },
		  2 * BETWEEN + 8 * INSIDE,
		  2 * 2 + 8 * 2 },
		{ { "model.family=llama", "parallel.pp=4", "model.tie_head=yes" },
		  2 * 2 * BETWEEN + 2 * 8 * INSIDE + 32 * INSIDE,
		  2 * 4 + 8 * 4 + 32 * 2 },
		{ { "model.family=llama", "parallel.tp=4", "parallel.pp=4", "parallel.dp=4" },
		  2 * 18 * BETWEEN + 2 * 32 * INSIDE + 2 * NVLS + 4 * NVLS + 2 * 8 * INSIDE,
		  2 * 64 + 32 * 4 + 16 * 4 + 8 * 4 },
		/* a sequence's ring sends one way */
		{ { "model.family=llama", "parallel.cp=4" },
		  2 * 18 * BETWEEN + 4 * NVLS + 32 * INSIDE,
		  18 * 4 + 32 * 4 },
		/* experts: all ranks of a node with each other, and pools for those of others */
		{ { "model.family=mixtral", "parallel.dp=8", "parallel.ep=8" },
		  2 * 18 * BETWEEN + 8 * NVLS + 7 * 32 * INSIDE,
		  18 * 8 + 32 * 8 },
		{ { "model.family=mixtral", "model.experts=16", "parallel.dp=16",
		    "parallel.ep=16" },
		  2 * 18 * BETWEEN + 8 * NVLS + 7 * 32 * INSIDE + 2 * 32 * 2,
		  18 * 16 + 32 * 16 },
		{ { "model.family=mixtral", "parallel.dp=8", "parallel.ep=4" },
		  2 * 18 * BETWEEN + 8 * NVLS + 16 * BETWEEN + 2 * NVLS + 3 * 32 * INSIDE,
		  18 * 8 + 16 * 2 + 32 * 4 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int n = 0;
		while (n < WORDS && rows[i].words[n])
			n++;
		double mib = library(rows[i].words, n),
		       expected = rows[i].mib + PEER * rows[i].peers / MIB;
		if (fabs(mib - expected) > 1e-6)
			fail_msg("row %zu, %s %s: %.3f MiB, expected %.3f", i, rows[i].words[0],
				 rows[i].words[1], mib, expected);
	}
}

/* Beyond a node, only the tables of peers grow with the ranks. */
static void a_larger_world_takes_more(void **state)
{
	(void)state;
	double last = 0;
	for (int dp = 1; dp <= 4096; dp *= 2) {
		char degree[32];
		const char *words[] = { "model.family=llama", "batch.global=4096", "batch.micro=1",
					degree };
		snprintf(degree, sizeof degree, "parallel.dp=%d", dp);
		struct job job = job_of(words, 4);
		struct layout l = layout_of(&job, dp);
		struct model_shape m;
		job.job.device = DEVICE_CUDA;
		shape_of_job(&job, &m);
		double bytes = plan_memory_library(&job, &m, &l);
		assert_true(dp == 1 ? bytes == 0 : bytes > last);
		if (dp > 16)
			assert_true(bytes - last == PEER * 18 * dp / 2);
		last = bytes;
	}
}

/* Half a GiB of the limit is NCCL's already. */
static void a_limit_is_lowered_by_what_exceeds_its_share(void **state)
{
	double gib = 1024 * MIB;
	(void)state;
	assert_true(search_fit_beside(78 * gib, 0) == 78 * gib);
	assert_true(search_fit_beside(78 * gib, gib / 2) == 78 * gib);
	assert_true(search_fit_beside(78 * gib, 2 * gib) == 76.5 * gib);
	assert_true(search_fit_beside(2 * gib, 8 * gib) == gib);
	assert_true(search_fit_beside(0, 8 * gib) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bytes_are_those_of_the_groups),
		cmocka_unit_test(a_larger_world_takes_more),
		cmocka_unit_test(a_limit_is_lowered_by_what_exceeds_its_share),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
