/* A deployment's job, which the agents get, has what the plan decided. */
#include "launcher/deployment.h"
#include "topo/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* One H100 whose memory has so many bytes; 0: its own. */
static struct deployment *deploy(const struct job *job, double memory)
{
	struct cluster c;
	struct deployment *d;
	struct err e = ERR_INIT;
	if (topo_cluster_open("dgx-h100:1", 0, &c, &e))
		fail_msg("%s", e.text);
	if (memory > 0)
		c.kinds[0].device_memory = memory;
	if (launcher_deployment_build(job, job->parallel.dp, job->open, &c, &d, &e))
		fail_msg("%s", e.text);
	return d;
}

static void agents_get_the_chunks_of_logits_that_fit(void **state)
{
	static const char *const words[] = {
		"model.family=llama", "model.layers=16", "model.hidden=2048",    "model.heads=32",
		"model.ffn=8192",     "model.seq=2048",  "model.vocab=128256",   "batch.micro=4",
		"batch.global=4",     "parallel.dp=1",   "precision.dtype=bf16", "job.device=cuda"
	};
	const double runtime = 2.0 * 1024 * 1024 * 1024;
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	if (job_load(NULL, words, (int)(sizeof words / sizeof *words), &job, &e))
		fail_msg("%s", e.text);
	struct deployment *d = deploy(&job, 0);
	assert_int_equal(d->job.batch.logits, 4096);
	double needs = d->plan.ranks[0].total;
	launcher_deployment_free(d);

	d = deploy(&job, needs + runtime - 1);
	assert_true(d->job.batch.logits < 4096 && d->job.batch.logits == d->plan.logits);
	assert_true(d->plan.ranks[0].total < needs);
	struct job agent;
	assert_int_equal(job_parse(d->job_text, "job.ini", &agent, &e), 0);
	assert_int_equal(agent.batch.logits, d->plan.logits);
	assert_int_equal(job.batch.logits, 4096); /* the next deployment starts from it */
	launcher_deployment_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agents_get_the_chunks_of_logits_that_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
