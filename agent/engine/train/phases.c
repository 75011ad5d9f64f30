#include "agent/engine/train/phases.h"

#include "base/clock.h"

#include <string.h>

double train_phases_lap(struct phases *p, const char *name, double *since)
{
	double now = clock_s(), spent = now - *since;
	int i = 0;
	while (i < p->n && strcmp(p->rows[i].name, name))
		i++;
	if (i == PHASES_MAX)
		i--;
	if (i == p->n)
		p->rows[p->n++].name = name;
	p->rows[i].seconds += spent;
	*since = now;
	return spent;
}

json_t *train_phases_json(const struct phases *p)
{
	json_t *o = json_object();
	for (int i = 0; i < p->n; i++)
		json_object_set_new(o, p->rows[i].name, json_real(p->rows[i].seconds));
	return o;
}
