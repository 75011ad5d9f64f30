#include "plan/search/config.h"

#include "plan/spec/job/keys.h"
#include "plan/spec/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#define AT(section, key) offsetof(struct job, section.key)

struct search_config search_config_of(const struct job *job, int dp)
{
	struct layout l = layout_of(job, dp);
	struct search_config c = {
		.tp = l.tp,
		.cp = l.cp,
		.ep = l.ep,
		.dp = l.dp,
		.pp = l.pp,
		.chunks = l.chunks,
		.micro = (int)job->batch.micro,
		.every = (int)job->recompute.every,
		.zero = (int)job->parallel.zero,
		.schedule = job->parallel.schedule,
		.shard = job->parallel.zero_shard,
		.mode = job->recompute.mode,
		.sp = job->parallel.sp,
		.activations = job->offload.activations,
		.optimizer = job->offload.optimizer,
	};
	memcpy(c.speeds, job->launch.speeds, sizeof c.speeds);
	return c;
}

void search_config_apply(const struct search_config *c, struct job *job)
{
	if (job->open & OPEN_STAGES)
		memset(job->parallel.stages, 0, sizeof job->parallel.stages);
	job->parallel.tp = c->tp;
	job->parallel.cp = c->cp;
	job->parallel.ep = c->ep;
	job->parallel.dp = c->dp;
	job->parallel.pp = c->pp;
	job->parallel.chunks = schedule_kinds[c->schedule]->chunks_most > 1 ? c->chunks : 0;
	job->parallel.schedule = c->schedule;
	job->parallel.sp = c->sp;
	job->parallel.zero = c->zero;
	job->parallel.zero_shard = c->shard;
	job->parallel.automatic = false;
	job->recompute.mode = c->mode;
	job->recompute.every = c->every;
	job->offload.activations = c->activations;
	job->offload.optimizer = c->optimizer;
	job->batch.micro = c->micro;
	memcpy(job->launch.speeds, c->speeds, sizeof c->speeds);
	job->open = 0;
}

struct layout search_config_layout(const struct search_config *c)
{
	return (struct layout){ .tp = c->tp,
				.cp = c->cp,
				.dp = c->dp,
				.pp = c->pp,
				.ep = c->ep,
				.chunks = c->chunks,
				.vee = schedule_kinds[c->schedule]->vee };
}

int search_config_weight(const struct search_config *c)
{
	int degrees = (c->tp > 1) + (c->cp > 1) + (c->ep > 1) + (c->pp > 1);
	int ways = (*c->speeds != '\0') + c->zero + (c->shard != ZERO_SHARD_ALL) +
		   2 * (c->mode != RECOMPUTE_NONE) + (c->every > 1) + c->sp;
	return 64 * degrees +
	       4 * (schedule_kinds[c->schedule]->complexity + ways + 3 * c->activations +
		    3 * c->optimizer) +
	       (c->chunks > 2);
}

int search_config_order(const struct search_config *a, const struct search_config *b)
{
	const int left[] = {
		a->tp,         a->cp,        a->ep,    a->dp,          a->pp,
		a->chunks,     a->micro,     a->every, a->zero,        (int)a->schedule,
		(int)a->shard, (int)a->mode, a->sp,    a->activations, a->optimizer
	};
	const int right[] = {
		b->tp,         b->cp,        b->ep,    b->dp,          b->pp,
		b->chunks,     b->micro,     b->every, b->zero,        (int)b->schedule,
		(int)b->shard, (int)b->mode, b->sp,    b->activations, b->optimizer
	};
	int i = 0, n = (int)(sizeof left / sizeof *left);
	while (i + 1 < n && left[i] == right[i])
		i++;
	return left[i] != right[i] ? left[i] - right[i] : strcmp(a->speeds, b->speeds);
}

bool search_config_same(const struct search_config *a, const struct search_config *b)
{
	return search_config_order(a, b) == 0;
}

void search_config_print(const struct search_config *c, struct buf *out)
{
	buf_printf(out, "tp %d", c->tp);
	if (c->cp > 1)
		buf_printf(out, " × cp %d", c->cp);
	buf_printf(out, " × dp %d × pp %d", c->dp, c->pp);
	if (c->ep > 1)
		buf_printf(out, ", ep %d", c->ep);
	if (c->pp > 1)
		buf_printf(out, ", %s", job_enum_word(AT(parallel, schedule), (int)c->schedule));
	if (schedule_kinds[c->schedule]->chunks_most > schedule_kinds[c->schedule]->chunks_least)
		buf_printf(out, " %d", c->chunks);
	buf_printf(out, ", micro %d", c->micro);
	if (*c->speeds)
		buf_puts(out, ", unequal shares");
	if (c->sp)
		buf_puts(out, ", sp");
	if (c->zero)
		buf_printf(out, ", ZeRO %d%s", c->zero,
			   c->shard == ZERO_SHARD_NODE ? " inside nodes" : "");
	if (c->mode != RECOMPUTE_NONE)
		buf_printf(out, ", %s recomputation",
			   job_enum_word(AT(recompute, mode), (int)c->mode));
	if (c->mode != RECOMPUTE_NONE && c->every > 1)
		buf_printf(out, " of 1 layer in %d", c->every);
	if (c->activations || c->optimizer)
		buf_printf(out, ", offloaded %s%s%s", c->activations ? "activations" : "",
			   c->activations && c->optimizer ? " and " : "",
			   c->optimizer ? "optimizer" : "");
}

/* The keys that a configuration decides, except the stages, in the order of the table. */
/* clang-format off */
static const size_t decided[] = {
	AT(parallel, tp), AT(parallel, cp), AT(parallel, pp), AT(parallel, dp), AT(parallel, ep), AT(parallel, chunks), AT(parallel, schedule),
	AT(parallel, sp), AT(parallel, zero), AT(parallel, zero_shard), AT(recompute, mode), AT(recompute, every), AT(offload, activations),
	AT(offload, optimizer), AT(batch, micro), AT(launch, speeds),
};
/* clang-format on */
enum { DECIDED = sizeof decided / sizeof *decided };

static void value_of(const struct search_config *c, const struct job_key *key, struct buf *out)
{
	struct job *job = calloc(1, sizeof *job); /* too large for a small stack */
	if (!job)
		return;
	search_config_apply(c, job);
	job_value_write(key, job, out);
	free(job);
}

/* Whether the key is printed: degrees and the batch always are, other keys if they differ from the
 * default. */
static bool said(const struct search_config *c, size_t offset, const struct job_key *key,
		 const char *value)
{
	return offset == AT(parallel, tp) || offset == AT(parallel, pp) ||
	       offset == AT(parallel, dp) || offset == AT(batch, micro) ||
	       (offset == AT(parallel, schedule) && c->pp > 1) || strcmp(value, key->def);
}

void search_config_lines(const struct search_config *c, struct buf *out)
{
	const char *section = "";
	for (int i = 0; i < DECIDED; i++) {
		const struct job_key *key = &job_keys[job_key_at(decided[i])];
		struct buf value = BUF_INIT;
		value_of(c, key, &value);
		if (said(c, decided[i], key, buf_str(&value))) {
			if (strcmp(section, key->section))
				buf_printf(out, "[%s]\n", key->section);
			section = key->section;
			buf_printf(out, "%s = %s\n", key->name, buf_str(&value));
		}
		buf_fini(&value);
	}
}

void search_config_changes(const struct search_config *from, const struct search_config *to,
			   struct buf *out)
{
	bool any = false;
	for (int i = 0; i < DECIDED; i++) {
		const struct job_key *key = &job_keys[job_key_at(decided[i])];
		struct buf was = BUF_INIT, is = BUF_INIT;
		value_of(from, key, &was);
		value_of(to, key, &is);
		if (strcmp(buf_str(&was), buf_str(&is))) {
			buf_printf(out, "%s%s.%s = %s", any ? ", " : "", key->section, key->name,
				   buf_str(&is));
			any = true;
		}
		buf_fini(&was);
		buf_fini(&is);
	}
}
