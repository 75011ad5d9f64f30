#include "plan/show/search.h"

#include "plan/search/fit.h"
#include "plan/show/missing.h"
#include "plan/show/plan.h"
#include "plan/show/program.h"
#include "plan/show/sureness.h"

#include <stddef.h>
#include <stdlib.h>

json_t *show_search_json_config(const struct search_config *c)
{
	return json_pack(
		"{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:i, s:s, s:s, s:i, s:b, s:b, s:i, s:s}",
		"tp", c->tp, "cp", c->cp, "ep", c->ep, "dp", c->dp, "pp", c->pp, "chunks",
		c->chunks, "schedule",
		job_enum_word(offsetof(struct job, parallel.schedule), (int)c->schedule), "sp",
		(int)c->sp, "zero", c->zero, "zero_shard",
		job_enum_word(offsetof(struct job, parallel.zero_shard), (int)c->shard),
		"recompute", job_enum_word(offsetof(struct job, recompute.mode), (int)c->mode),
		"every", c->every, "offload_activations", (int)c->activations, "offload_optimizer",
		(int)c->optimizer, "micro", c->micro, "speeds", c->speeds);
}

static json_t *json_of_found(const struct search_found *f, double best)
{
	return json_pack("{s:o, s:o, s:f, s:f, s:f}", "layout",
			 show_search_json_config(&f->leaf.config), "step_seconds",
			 show_step_time_json(&f->time), "lost", f->time.total / best - 1, "bytes",
			 f->memory, "device_bytes", f->limit);
}

/* How sure the time of the best layout is. */
static json_t *sureness_of_best(const struct job *job, const struct search_found *f)
{
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	json_t *j = NULL;
	if (mine) {
		*mine = *job;
		search_config_apply(&f->leaf.config, mine);
		j = show_sureness_json(mine, &f->peak, f->time.total);
	}
	free(mine);
	return j;
}

static json_t *json_of_leaf(const struct eval_leaf *l)
{
	json_t *parts = json_object();
	for (int i = 0; i < FIT_PARTS; i++)
		json_object_set_new(parts, search_fit_part_name(i),
				    json_real(search_fit_part(&l->rank, i)));
	return json_pack("{s:o, s:f, s:f, s:f, s:i, s:o}", "layout",
			 show_search_json_config(&l->config), "seconds", l->time.total, "bytes",
			 l->rank.total, "device_bytes", l->limit, "pp", l->rank.at.pp, "parts",
			 parts);
}

json_t *show_search_json(const struct job *job, const struct cluster *c, const struct search *s)
{
	json_t *found = json_array(), *misfits = json_array(), *front = json_array();
	json_t *best = json_of_found(&s->found[0], s->found[0].time.total);
	json_object_set_new(best, "sureness", sureness_of_best(job, &s->found[0]));
	json_object_set_new(best, "warning", json_string(s->found[0].warning));
	for (int i = 1; i < s->n; i++)
		json_array_append_new(found, json_of_found(&s->found[i], s->found[0].time.total));
	for (int i = 0; i < s->n_misfits; i++)
		json_array_append_new(misfits, json_of_leaf(&s->misfits[i]));
	for (int i = 0; i < s->n_front; i++)
		json_array_append_new(front, json_of_leaf(&s->front[i]));
	return json_pack("{s:i, s:s, s:s, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "version",
			 1, "name", job->job.name, "engine", show_program_word(job), "cluster",
			 c->name, "devices", plan_devices(c), "considered",
			 (json_int_t)s->considered, "fitting", (json_int_t)s->fitting, "best", best,
			 "runners_up", found, "too_large", misfits, "front", front, "missing",
			 show_missing_json(c, NULL));
}
