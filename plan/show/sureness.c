#include "plan/show/sureness.h"

#include "base/human.h"
#include "plan/cost/sureness.h"

/* The published steps are of GPUs whose rates are known. */
static bool applies(const struct plan_peak *of)
{
	return of->flops > 0;
}

static const struct cost_sureness *sureness_of(const struct job *job)
{
	struct model_shape m;
	shape_of_job(job, &m);
	return cost_sureness_of(job, &m);
}

void show_sureness_print(const struct job *job, const struct plan_peak *of, double seconds,
			 struct buf *out)
{
	const struct cost_sureness *s = sureness_of(job);
	char least[HUMAN], most[HUMAN];
	if (!applies(of))
		return;
	buf_printf(
		out,
		"  likely between %s and %s: of %d published steps (%s), predictions were off by "
		"%.0f %% in the mean and %.0f %% at most\n",
		human_seconds(seconds / (1 + s->worst), least),
		human_seconds(seconds / (1 - s->worst), most), s->rows, s->regime, 100 * s->mean,
		100 * s->worst);
}

json_t *show_sureness_json(const struct job *job, const struct plan_peak *of)
{
	const struct cost_sureness *s = sureness_of(job);
	if (!applies(of))
		return json_null();
	return json_pack("{s:s, s:i, s:f, s:f}", "regime", s->regime, "published_steps", s->rows,
			 "mean_error", s->mean, "worst_error", s->worst);
}
