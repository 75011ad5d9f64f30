#include "agent/metrics/report.h"

#include <math.h>
#include <stddef.h>

static const struct {
	const char *name;
	size_t at;
} whole[] = {
#define FIELD(name) { #name, offsetof(struct step_report, name) }
	FIELD(step), FIELD(samples), FIELD(tokens), FIELD(peak_bytes),
}, real[] = {
	FIELD(loss), FIELD(grad_norm), FIELD(lr),
	FIELD(step_s), FIELD(data_s), FIELD(compute_s), FIELD(recompute_s), FIELD(tp_s), FIELD(cp_s), FIELD(ep_s), FIELD(pp_s), FIELD(dp_s), FIELD(optimizer_s),
	FIELD(checkpoint_s), FIELD(other_s),
#undef FIELD
};

void report_close(struct step_report *r)
{
	double known = r->data_s + r->compute_s + r->recompute_s + r->tp_s + r->cp_s + r->ep_s + r->pp_s + r->dp_s + r->optimizer_s + r->checkpoint_s;
	r->other_s = fmax(0, r->step_s - known);
	r->step_s = known + r->other_s;
}

static const struct {
	const char *name;
	size_t at;
} routers[] = {
#define FIELD(name) { #name, offsetof(struct step_report, name) }
	FIELD(cross_entropy), FIELD(balance_loss), FIELD(z_loss),
#undef FIELD
};

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

json_t *report_step(const struct step_report *r)
{
	json_t *o = json_object();
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		json_object_set_new(o, whole[i].name,
				    json_integer(*(const int64_t *)((const char *)r + whole[i].at)));
	for (size_t i = 0; i < sizeof real / sizeof *real; i++)
		json_object_set_new(o, real[i].name, number(*(const double *)((const char *)r + real[i].at)));
	for (size_t i = 0; r->routed && i < sizeof routers / sizeof *routers; i++)
		json_object_set_new(o, routers[i].name, number(*(const double *)((const char *)r + routers[i].at)));
	if (r->loss_scale > 0) {
		json_object_set_new(o, "loss_scale", json_real(r->loss_scale));
		json_object_set_new(o, "skipped", json_boolean(r->skipped));
	}
	return o;
}

json_t *report_eval(int64_t step, double loss)
{
	return json_pack("{s:I, s:o}", "step", (json_int_t)step, "loss", number(loss));
}
