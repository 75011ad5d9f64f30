#include "agent/engine/train/step_report.h"

#include <math.h>

void train_step_report_close(struct step_report *r)
{
	double known = 0;
	r->other_s = 0;
#define ADD_PART(with, ENUM, member, name, transfers, doc) known += r->member##_s;
	STEP_PARTS(ADD_PART, )
#undef ADD_PART
	r->other_s = fmax(0, r->step_s - known);
	r->step_s = known + r->other_s;
}
