/*
 * What NCCL takes of a GPU's memory: groups that share connections count once, and the bytes are
 * the sums of plan/memory_library.h.
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

enum { WORDS = 10 };

static struct job job_of(const char *const *words, int n)
{
	struct job job;
	struct err e = ERR_INIT;
	if (job_load(NULL, words, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

/* The MiB with these words, without the table of peers. */
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
	double tables = 576.0 * 32 * layout_world(&l);
	double bytes = plan_memory_library(&job, &m, &l);
	return bytes > 0 ? (bytes - tables) / MIB : 0;
}

static void the_bytes_are_those_of_the_groups(void **state)
{
	(void)state;
	static const struct {
		const char *words[WORDS];
		double mib;
	} rows[] = {
		/* none without groups, without a GPU, and for another program */
		{ { "model.family=llama", "parallel.dp=1" }, 0 },
		{ { "model.family=llama", "parallel.dp=8", "job.device=cpu" }, 0 },
		{ { "model.family=llama", "parallel.dp=8", "plan.engine=megatron-2022",
		    "precision.dtype=bf16" },
		  0 },
		/* replicas: the world's ring serves them */
		{ { "model.family=llama", "parallel.dp=2" }, 32 * INSIDE + 2 * NVLS },
		{ { "model.family=llama", "parallel.dp=8" }, 2 * 32 * INSIDE + 8 * NVLS },
		{ { "model.family=llama", "parallel.dp=64" }, 2 * 32 * INSIDE + 8 * NVLS },
		{ { "model.family=llama", "parallel.dp=64", "parallel.zero=3" },
		  2 * 32 * INSIDE + 8 * NVLS },
		/* shards inside nodes and their copies, which have a ring each */
		{ { "model.family=llama", "parallel.dp=64", "parallel.zero=3",
		    "parallel.zero_shard=node" },
		  2 * 2 * 16 * BETWEEN + 8 * NVLS },
		/* without overlap, a group takes as many processors as it can inside a node */
		{ { "model.family=llama", "parallel.tp=2", "parallel.dp=2", "parallel.overlap=no" },
		  2 * 32 * INSIDE + 32 * INSIDE + 2 * NVLS + 2 * NVLS },
		/* tp's ring is the world's; its NVLS buffers are its own */
		{ { "model.family=llama", "parallel.tp=8" }, 2 * 32 * INSIDE + 8 * NVLS },
		{ { "model.family=llama", "parallel.tp=8", "parallel.dp=4" },
		  2 * 32 * INSIDE + 2 * 16 * BETWEEN + 8 * NVLS },
		/* kv heads that ranks share */
		{ { "model.family=llama", "parallel.tp=8", "model.kv_heads=4" },
		  2 * 32 * INSIDE + 32 * INSIDE + 8 * NVLS },
		/* one communicator for the pipeline's messages, however many chunks */
		{ { "model.family=llama", "parallel.pp=2" }, 32 * INSIDE + 8 * INSIDE },
		{ { "model.family=llama", "parallel.pp=4", "model.tie_head=yes" },
		  2 * 32 * INSIDE + 2 * 8 * INSIDE + 32 * INSIDE },
		{ { "model.family=llama", "parallel.tp=4", "parallel.pp=4", "parallel.dp=4" },
		  2 * 32 * INSIDE + 2 * 16 * BETWEEN + 2 * NVLS + 4 * NVLS + 2 * 8 * INSIDE },
		/* a sequence's ring sends one way */
		{ { "model.family=llama", "parallel.cp=4" },
		  2 * 32 * INSIDE + 4 * NVLS + 32 * INSIDE },
		/* experts: all ranks of a node with each other, and pools for those of others */
		{ { "model.family=mixtral", "parallel.dp=8", "parallel.ep=8" },
		  2 * 32 * INSIDE + 8 * NVLS + 7 * 32 * INSIDE },
		{ { "model.family=mixtral", "model.experts=16", "parallel.dp=16",
		    "parallel.ep=16" },
		  2 * 32 * INSIDE + 8 * NVLS + 7 * 32 * INSIDE + 2 * 32 * 2 },
		{ { "model.family=mixtral", "parallel.dp=8", "parallel.ep=4" },
		  2 * 32 * INSIDE + 8 * NVLS + 16 * BETWEEN + 2 * NVLS + 3 * 32 * INSIDE },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int n = 0;
		while (n < WORDS && rows[i].words[n])
			n++;
		double mib = library(rows[i].words, n);
		if (fabs(mib - rows[i].mib) > 1e-6)
			fail_msg("row %zu, %s %s: %.3f MiB, expected %.3f", i, rows[i].words[0],
				 rows[i].words[1], mib, rows[i].mib);
	}
}

/* The world's table of peers is what grows with ranks beyond a node. */
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
			assert_true(bytes - last == 576.0 * 32 * dp / 2);
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
