#include "agent/engine/train/step_report.h"

#include <math.h>

void train_step_report_close(struct step_report *r)
{
	double known = r->data_s + r->compute_s + r->recompute_s + r->tp_s + r->cp_s + r->ep_s +
		       r->pp_s + r->dp_s + r->optimizer_s + r->checkpoint_s;
	r->other_s = fmax(0, r->step_s - known);
	r->step_s = known + r->other_s;
}
