#include "launcher/top/facts.h"

#include "launcher/rundir/scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct top_facts *top_facts_new(void)
{
	struct top_facts *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->samples = calloc(TOP_SAMPLES, sizeof *f->samples);
	f->look.id = RUNDIR_STATE_COUNT;
	f->log_rank = -1;
	if (f->samples)
		return f;
	free(f);
	return NULL;
}

void top_facts_free(struct top_facts *f)
{
	if (!f)
		return;
	console_look_fini(&f->look);
	free(f->ranks);
	free(f->samples);
	free(f->log);
	free(f);
}

struct top_facts *top_facts_copy(const struct top_facts *f)
{
	struct top_facts *c = malloc(sizeof *c);
	if (!c)
		return NULL;
	*c = *f;
	json_incref(c->look.object);
	size_t ranks = (size_t)f->world * sizeof *f->ranks;
	c->ranks = malloc(ranks ? ranks : 1);
	c->samples = malloc(TOP_SAMPLES * sizeof *f->samples);
	c->log = f->log ? strdup(f->log) : NULL;
	if (!c->ranks || !c->samples || (f->log && !c->log)) {
		top_facts_free(c);
		return NULL;
	}
	if (ranks)
		memcpy(c->ranks, f->ranks, ranks);
	memcpy(c->samples, f->samples, TOP_SAMPLES * sizeof *f->samples);
	return c;
}

/* --- ranks ------------------------------------------------------------------------------ */

int top_facts_set_world(struct top_facts *f, int world, struct err *e)
{
	if (world == f->world)
		return 0;
	struct top_rank *ranks = realloc(f->ranks, (size_t)(world ? world : 1) * sizeof *ranks);
	if (!ranks)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", world);
	for (int r = f->world; r < world; r++)
		ranks[r] = (struct top_rank){ .step = -1,
					      .silent_s = NAN,
					      .still_s = NAN,
					      .own_s = NAN,
					      .peers_s = NAN,
					      .wait_s = NAN,
					      .peak_bytes = NAN };
	f->ranks = ranks;
	f->world = world;
	return 0;
}

void top_facts_take_ranks(struct top_facts *f, int first, const json_t *list)
{
	size_t i;
	json_t *of;
	json_array_foreach(list, i, of)
	{
		struct rundir_state_rank r;
		if (rundir_state_rank_read(of, &r, NULL) || r.rank != first + (int)i ||
		    r.rank < 0 || r.rank >= f->world)
			continue;
		struct top_rank *to = &f->ranks[r.rank];
		snprintf(to->node, sizeof to->node, "%s", r.node);
		snprintf(to->phase, sizeof to->phase, "%s", r.phase);
		to->heard = true;
		to->step = r.step;
		to->silent_s = r.silent_s;
		to->still_s = r.still_s;
		to->own_s = r.has_own_s ? r.own_s : NAN;
		to->peers_s = r.has_peers_s ? r.peers_s : NAN;
		to->wait_s = r.has_wait_s ? r.wait_s : NAN;
		to->peak_bytes = r.has_peak_bytes ? (double)r.peak_bytes : NAN;
		to->slow = r.slow;
	}
}

/* --- the plan --------------------------------------------------------------------------- */

/* The coordinates that a person wants to see, in this order: those of degree 2 and more. */
static const char *const degrees[] = { "tp", "cp", "pp", "dp" };
enum { DEGREES = sizeof degrees / sizeof *degrees };

static int field_of(const json_t *fields, const char *name)
{
	size_t i;
	json_t *field;
	json_array_foreach(fields, i,
			   field) if (json_is_string(field) &&
				      !strcmp(json_string_value(field), name)) return (int)i;
	return -1;
}

static void append(char *to, size_t size, const char *text)
{
	size_t n = strlen(to);
	snprintf(to + n, size - n, "%s%s", n ? "." : "", text);
}

void top_facts_take_plan(struct top_facts *f, const json_t *plan)
{
	const json_t *fields = json_object_get(plan, "rank_fields");
	const json_t *ranks = json_object_get(plan, "ranks"),
		     *nodes = json_object_get(plan, "nodes");
	const json_t *layout = json_object_get(plan, "layout");
	int at[DEGREES], node = field_of(fields, "node");
	if ((int)json_array_size(ranks) != f->world || node < 0)
		return;
	*f->place_head = 0;
	for (int d = 0; d < DEGREES; d++) {
		bool split = json_integer_value(json_object_get(layout, degrees[d])) > 1;
		at[d] = split ? field_of(fields, degrees[d]) : -1;
		if (at[d] >= 0)
			append(f->place_head, sizeof f->place_head, degrees[d]);
	}
	for (int r = 0; r < f->world; r++) {
		const json_t *of = json_array_get(ranks, (size_t)r);
		json_int_t n = json_integer_value(json_array_get(of, (size_t)node));
		const char *name = json_string_value(json_array_get(nodes, (size_t)n));
		struct top_rank *to = &f->ranks[r];
		*to->place = 0;
		if (name)
			snprintf(to->node, sizeof to->node, "%s", name);
		for (int d = 0; d < DEGREES; d++) {
			char number[24];
			if (at[d] < 0)
				continue;
			snprintf(number, sizeof number, "%lld",
				 (long long)json_integer_value(json_array_get(of, (size_t)at[d])));
			append(to->place, sizeof to->place, number);
		}
	}
}

/* --- steps ------------------------------------------------------------------------------ */

static void take_sample(struct top_facts *f, const struct top_sample *s)
{
	while (f->n_samples && f->samples[f->n_samples - 1].step >= s->step)
		f->n_samples--;
	if (f->n_samples == TOP_SAMPLES) {
		memmove(f->samples, f->samples + 1, (TOP_SAMPLES - 1) * sizeof *f->samples);
		f->n_samples--;
	}
	f->samples[f->n_samples++] = *s;
}

void top_facts_take_metrics(struct top_facts *f, const char *text, size_t len)
{
	static const char *const keys[] = { "step", "loss", "tokens", "step_s" };
	struct rundir_scan scan;
	rundir_scan_init(&scan, keys, 4);
	for (const char *end; len && (end = memchr(text, '\n', len));) {
		double v[4];
		size_t n = (size_t)(end - text);
		if (rundir_scan_line(&scan, text, n, v) && v[0] >= 0 && v[0] < 1e15)
			take_sample(f, &(struct top_sample){ .step = (int64_t)v[0],
							     .loss = v[1],
							     .tokens_s = v[3] > 0 ? v[2] / v[3]
										  : NAN });
		text += n + 1;
		len -= n + 1;
	}
}
