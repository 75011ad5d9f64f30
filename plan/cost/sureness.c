#include "plan/cost/sureness.h"

enum { LONG = 16 * 1024 };

static bool is_mixture(const struct job *job, const struct model_shape *m)
{
	(void)job;
	return m->experts > 0;
}

static bool is_long(const struct job *job, const struct model_shape *m)
{
	(void)job;
	return m->seq >= LONG;
}

static bool is_in_8_bits(const struct job *job, const struct model_shape *m)
{
	(void)m;
	return job->precision.fp8 != FP8_OFF;
}

static bool is_zero_3(const struct job *job, const struct model_shape *m)
{
	(void)m;
	return job->parallel.zero == 3;
}

static bool is_any(const struct job *job, const struct model_shape *m)
{
	(void)job;
	(void)m;
	return true;
}

/* In the order in which a job is looked up. */
static const struct {
	bool (*is)(const struct job *job, const struct model_shape *m);
	struct cost_sureness s;
} regimes[] = {
	{ is_mixture, { "moe", "mixtures of experts", 72, 0.057, 0.19 } },
	{ is_long, { "long", "sequences of 16k to 131k tokens", 38, 0.046, 0.205 } },
	{ is_in_8_bits, { "fp8", "products in 8 bits", 45, 0.065, 0.165 } },
	{ is_zero_3, { "fsdp", "FSDP and ZeRO-3", 79, 0.055, 0.235 } },
	{ is_any, { "schedules", "dense models in pipelines", 59, 0.04, 0.12 } },
};
enum { REGIMES = sizeof regimes / sizeof *regimes };

const struct cost_sureness *cost_sureness_of(const struct job *job, const struct model_shape *m)
{
	int i = 0;
	while (!regimes[i].is(job, m))
		i++;
	return &regimes[i].s;
}

const struct cost_sureness *cost_sureness_at(int i)
{
	return i < REGIMES ? &regimes[i].s : NULL;
}
