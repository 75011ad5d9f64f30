#include "plan/cost/chip.h"
#include "plan/plan.h"
#include "plan/show/placement.h"
#include "plan/show/program.h"
#include "plan/show/train_time.h"
#include "plan/show/missing.h"
#include "plan/show/plan.h"
#include "plan/show/sureness.h"

static json_t *json_of_model(const struct job *job, const struct model_shape *m)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I}", "family",
			 job_word(job, offsetof(struct job, model.family)), "layers",
			 (json_int_t)m->layers, "hidden", (json_int_t)m->hidden, "heads",
			 (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads, "head_dim",
			 (json_int_t)m->head_dim, "ffn", (json_int_t)m->ffn, "vocab",
			 (json_int_t)m->vocab, "seq", (json_int_t)m->seq, "tied_head", (int)m->tied,
			 "parameters", (json_int_t)shape_params(m));
}

static json_t *json_of_stages(const struct plan *p)
{
	json_t *list = json_array();
	for (int i = 0; i < layout_n_stages(&p->layout); i++) {
		const struct stage *s = &p->stages[i];
		int pp, chunk;
		layout_holder(&p->layout, i, &pp, &chunk);
		const struct plan_rank *r = plan_largest(p, pp);
		json_array_append_new(
			list,
			json_pack("{s:[i,i], s:b, s:b, s:i, s:i, s:i, s:{s:f, s:f, s:f, s:f, s:f, "
				  "s:f, s:f}}",
				  "layers", s->layer_lo, s->layer_hi, "embedding", (int)s->first,
				  "head", (int)s->last, "pp", pp, "chunk", chunk, "live",
				  p->schedule.rows[pp].slots.live[chunk], "bytes", "parameters",
				  r->params, "gradients", r->grads, "optimizer", r->optimizer,
				  "activations", r->activations, "buffers", r->buffers, "snapshot",
				  r->snapshot, "total", r->total));
	}
	return list;
}

/* A rank is [tp, cp, dp, pp, node, slot]. This short form lets ten thousand ranks fit into a
 * message. */
static json_t *json_of_ranks(const struct plan *p)
{
	json_t *list = json_array();
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		json_array_append_new(list, json_pack("[i,i,i,i,i,i]", r->at.tp, r->at.cp, r->at.dp,
						      r->at.pp, r->node, r->slot));
	}
	return list;
}

/* Adds one number per replica and one per rank if they are not all equal. */
static void add_unequal(const struct plan *p, json_t *j)
{
	json_t *micros = json_array(), *threads = json_array();
	bool shares = false, agents = false;
	for (int i = 0; i < p->layout.dp; i++) {
		shares |= p->shares[i].micros != p->micros;
		json_array_append_new(micros, json_integer(p->shares[i].micros));
	}
	for (int i = 0; i < p->world; i++) {
		agents |= p->ranks[i].threads != p->threads;
		json_array_append_new(threads, json_integer(p->ranks[i].threads));
	}
	if (shares)
		json_object_set(j, "replica_micros", micros);
	if (agents)
		json_object_set(j, "rank_threads", threads);
	json_decref(threads);
	json_decref(micros);
}

static json_t *json_of_nodes(const struct cluster *c, const struct plan *p)
{
	json_t *list = json_array();
	int last = 0;
	for (int i = 0; i < p->world; i++)
		last = p->ranks[i].node > last ? p->ranks[i].node : last;
	for (int i = 0; i <= last; i++)
		json_array_append_new(list, json_string(c->nodes[i].name));
	return list;
}

json_t *show_step_time_json(const struct plan_time *t)
{
	static const char *const keys[STEP_PART_COUNT] = {
#define STEP_PART_KEY(with, ENUM, member, name, transfers, doc) #member,
		STEP_PARTS(STEP_PART_KEY, )
#undef STEP_PART_KEY
	};
	json_t *o = json_object();
	for (int i = 0; i < STEP_PART_COUNT; i++)
		json_object_set_new(o, keys[i], json_real(t->parts[i]));
	json_object_set_new(o, "total", json_real(t->total));
	return o;
}

/* Which constants of each GPU were measured, as in the plan's text. */
static json_t *json_of_chips(const struct job *job, const struct cluster *c)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_kinds; i++) {
		struct buf text = BUF_INIT;
		if (!c->kinds[i].chip)
			continue;
		cost_chip_text(&c->kinds[i], job, &text);
		if (!buf_failed(&text))
			json_array_append_new(list, json_string(text.data));
		buf_fini(&text);
	}
	return list;
}

/* What a plan of a program has, too. */
static json_t *json_of_places(const struct job *job, const struct cluster *cluster,
			      const struct plan *p)
{
	json_t *j = json_pack("{s:i, s:s, s:s, s:{s:i, s:i, s:i, s:i, s:i, s:i, s:s}, s:i, s:i}",
			      "version", 1, "name", job->job.name, "cluster", cluster->name,
			      "layout", "tp", p->layout.tp, "cp", p->layout.cp, "ep", p->layout.ep,
			      "dp", p->layout.dp, "pp", p->layout.pp, "chunks", p->layout.chunks,
			      "order", "tp-cp-ep-dp-pp", "world", p->world, "threads", p->threads);
	if (!j)
		return NULL;
	json_object_set_new(j, "nodes", json_of_nodes(cluster, p));
	json_object_set_new(j, "rank_fields",
			    json_pack("[s,s,s,s,s,s]", "tp", "cp", "dp", "pp", "node", "slot"));
	json_object_set_new(j, "ranks", json_of_ranks(p));
	json_object_set_new(j, "placement", show_placement_json(cluster, p));
	json_object_set_new(j, "figures", json_string(cluster->figures));
	json_object_set_new(j, "warning", json_string(p->warning));
	return j;
}

static void add_training(const struct job *job, const struct cluster *cluster, const struct plan *p,
			 json_t *j)
{
	struct plan_peak peak;
	const char *schedule = job_word(job, offsetof(struct job, parallel.schedule));
	json_object_set_new(j, "model", json_of_model(job, &p->shape));
	json_object_set_new(j, "micros", json_integer(p->micros));
	json_object_set_new(j, "schedule", json_string(schedule));
	json_object_set_new(j, "batch_micro", json_integer(job->batch.micro));
	json_object_set_new(j, "batch_global", json_integer(job->batch.global));
	json_object_set_new(j, "engine", json_string(show_program_word(job)));
	json_object_set_new(j, "stages", json_of_stages(p));
	add_unequal(p, j);
	json_object_set_new(j, "device_bytes", json_real(p->memory));
	json_object_set_new(j, "nccl_bytes", json_real(p->library));
	json_object_set_new(j, "logits_mib", json_integer(p->logits));
	json_object_set_new(j, "step_seconds", show_step_time_json(&p->time));
	plan_peak_of(cluster, p, &peak);
	json_object_set_new(j, "sureness", show_sureness_json(job, &peak, p->time.total));
	json_object_set_new(j, "train", show_train_time_json(job, cluster, p));
	json_object_set_new(j, "chips", json_of_chips(job, cluster));
	json_object_set_new(j, "missing", show_missing_json(cluster, p));
}

json_t *show_plan_json(const struct job *job, const struct cluster *cluster, const struct plan *p)
{
	json_t *j = json_of_places(job, cluster, p);
	if (j && job_has_program(job))
		json_object_set_new(j, "program", json_string(job->job.program));
	else if (j)
		add_training(job, cluster, p, j);
	return j;
}
