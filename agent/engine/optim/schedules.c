#include "agent/engine/optim/optim.h"

#include <math.h>

/* Each shape returns the share of (lr - min_lr) that the rate has above min_lr at a step after the
 * warm-up. t: 0 at the end of the warm-up, 1 at decay_steps. */
static double cosine(const struct job *job, int64_t step, double t)
{
	(void)job, (void)step;
	return 0.5 * (1 + cos(t * M_PI));
}

static double linear(const struct job *job, int64_t step, double t)
{
	(void)job, (void)step;
	return 1 - t;
}

static double constant(const struct job *job, int64_t step, double t)
{
	(void)job, (void)step, (void)t;
	return 1;
}

/* The formula gives the rate itself, which never reaches min_lr; convert it to the share above. */
static double inverse_sqrt(const struct job *job, int64_t step, double t)
{
	(void)t;
	double lr = job->optimizer.lr, least = job->optimizer.min_lr;
	double begin = job->optimizer.warmup > 0 ? (double)job->optimizer.warmup : 1;
	double rate = lr * sqrt(begin / fmax((double)step, begin));
	return lr > least ? fmax(rate - least, 0) / (lr - least) : 0;
}

/* Warm-up, stable, decay: linear over the last `cooldown` steps. The last step has min_lr. */
static double wsd(const struct job *job, int64_t step, double t)
{
	(void)t;
	int64_t left = job->job.steps - 1 - step, cooldown = job->optimizer.cooldown;
	if (left >= cooldown || cooldown == 0)
		return 1;
	return left > 0 ? (double)left / (double)cooldown : 0;
}

static double (*const shapes[])(const struct job *job, int64_t step, double t) = {
	[LR_COSINE] = cosine,     [LR_LINEAR] = linear,
	[LR_CONSTANT] = constant, [LR_INVERSE_SQRT] = inverse_sqrt,
	[LR_WSD] = wsd,
};

double optim_lr(const struct job *job, int64_t step)
{
	double lr = job->optimizer.lr, least = job->optimizer.min_lr;
	int64_t warmup = job->optimizer.warmup;
	int64_t decay = job->optimizer.decay_steps ? job->optimizer.decay_steps : job->job.steps;
	if (step < warmup)
		return lr * (double)(step + 1) / (double)warmup;
	double t = decay > warmup ? (double)(step - warmup) / (double)(decay - warmup) : 1;
	return least + (lr - least) * shapes[job->optimizer.schedule](job, step, t < 1 ? t : 1);
}
