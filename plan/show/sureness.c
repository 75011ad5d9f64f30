#include "plan/show/sureness.h"

#include "base/human.h"
#include "plan/cost/sureness.h"

void show_sureness_print(const struct job *job, const struct plan_peak *of, double seconds,
			 struct buf *out)
{
	struct model_shape m;
	struct cost_interval likely;
	char least[HUMAN], most[HUMAN];
	shape_of_job(job, &m);
	const struct cost_sureness *s = cost_sureness_of(job, &m);
	if (!cost_sureness_interval(job, &m, of->flops, seconds, &likely))
		return;
	buf_printf(
		out,
		"  likely between %s and %s: of %d published steps (%s), predictions were off by "
		"%.0f %% in the mean and %.0f %% at most\n",
		human_seconds(likely.least, least), human_seconds(likely.most, most), s->rows,
		s->regime, 100 * s->mean, 100 * s->worst);
}

json_t *show_sureness_json(const struct job *job, const struct plan_peak *of, double seconds)
{
	struct model_shape m;
	struct cost_interval likely;
	shape_of_job(job, &m);
	const struct cost_sureness *s = cost_sureness_of(job, &m);
	if (!cost_sureness_interval(job, &m, of->flops, seconds, &likely))
		return json_null();
	return json_pack("{s:f, s:f, s:s, s:i, s:f, s:f}", "least_seconds", likely.least,
			 "most_seconds", likely.most, "regime", s->regime, "published_steps",
			 s->rows, "mean_error", s->mean, "worst_error", s->worst);
}
