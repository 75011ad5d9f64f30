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
	{ is_mixture, { "moe", "mixtures of experts", 72, 0.062, 0.18 } },
	{ is_long, { "long", "sequences of 16k tokens and more", 44, 0.044, 0.175 } },
	{ is_in_8_bits, { "fp8", "products in 8 bits", 76, 0.044, 0.155 } },
	{ is_zero_3, { "fsdp", "FSDP and ZeRO-3", 143, 0.042, 0.26 } },
	{ is_any, { "schedules", "dense models in 16 bits", 99, 0.037, 0.12 } },
};
enum { REGIMES = sizeof regimes / sizeof *regimes };

const struct cost_sureness *cost_sureness_of(const struct job *job, const struct model_shape *m)
{
	int i = 0;
	while (!regimes[i].is(job, m))
		i++;
	return &regimes[i].s;
}

bool cost_sureness_interval(const struct job *job, const struct model_shape *m, double flops,
			    double seconds, struct cost_interval *out)
{
	/* The published steps are of GPUs whose rates are known, and none is in fp32. */
	if (flops <= 0 || job->precision.dtype == DTYPE_FP32)
		return false;
	double worst = cost_sureness_of(job, m)->worst;
	*out = (struct cost_interval){ seconds / (1 + worst), seconds / (1 - worst) };
	return true;
}

const struct cost_sureness *cost_sureness_at(int i)
{
	return i < REGIMES ? &regimes[i].s : NULL;
}
