#include "agent/engine/train/agree_choices.h"

#include "base/choices.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/run_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first word of the keys that say which layouts the run has agreed on. */
#define AGREED "agreed "

struct train_choices {
	struct choices *choices; /* the backend's */
	struct comm *group;      /* of ranks on the same kind of machine */
	int stage, stages;
	char run_file[RUN_PATH], agreed[CHOICES_TEXT];
	struct buf text;
	bool known; /* the text is what the run agreed on before */
};

/* Sets the key that says that the choices of a layout are complete, with the stages that the group
 * holds: a kind of machine may hold others after a restart. Collective over the group. */
static int write_agreed(struct train_choices *t, const struct rank_view *v, struct err *e)
{
	const struct layout *l = &v->layout;
	const int32_t own = v->at.pp;
	const size_t ranks = (size_t)comm_size(t->group);
	int32_t *all = malloc(ranks * sizeof *all);
	char *held = calloc((size_t)l->pp + 1, 1);
	int rc = all && held ? comm_all_gather(t->group, &own, all, 1, COMM_I32, e)
			     : err_set(e, ERR_NOMEM, "no memory for %zu ranks", ranks);
	if (!rc) {
		memset(held, '0', (size_t)l->pp);
		for (size_t r = 0; r < ranks; r++)
			held[all[r]] = '1';
		snprintf(t->agreed, sizeof t->agreed,
			 AGREED "tp=%d cp=%d pp=%d dp=%d ep=%d micro=%lld stages=%016llx%s", l->tp,
			 l->cp, l->pp, l->dp, l->ep, (long long)v->job->batch.micro,
			 (unsigned long long)hash_text(held),
			 v->job->job.deterministic == DETERMINISTIC_ANY_ORDER ? " any-order" : "");
	}
	free(all);
	free(held);
	return rc;
}

static int color_of(const struct train_choices *t)
{
	return (int)(hash_text(choices_machine(t->choices)) & INT32_MAX);
}

/* The choices that the run agreed on, or else what is known from earlier runs. */
static void read_files(struct train_choices *t)
{
	struct choices *all = choices_open();
	struct err e = ERR_INIT;
	char cache[PATH_MAX];
	unsigned char value;
	size_t length;
	if (!all)
		return;
	choices_set_machine(all, choices_machine(t->choices));
	if (choices_load(all, t->run_file, &e))
		log_warn("algorithms are measured again: %s", e.text);
	t->known = choices_find(all, t->agreed, &value, sizeof value, &length);
	if (!t->known && choices_cache_path(cache, sizeof cache) && choices_load(all, cache, &e))
		log_warn("algorithms are measured again: %s", e.text);
	if (!t->known) /* the text goes into the cache, for other runs too */
		choices_drop(all, AGREED);
	/* those may have changed when the text is written into the file */
	choices_drop_others(all);
	choices_write(all, &t->text);
	choices_close(all);
}

/* All ranks of the group get the text of its first rank. */
static int share_text(struct train_choices *t, struct err *e)
{
	const bool first = comm_rank(t->group) == 0;
	int64_t words[] = { (int64_t)t->text.len, t->known };
	if (buf_failed(&t->text))
		words[0] = 0;
	if (comm_broadcast(t->group, words, 2, COMM_I64, 0, e))
		return -1;
	t->known = words[1];
	if (!first)
		buf_clear(&t->text);
	char *to = first ? t->text.data : buf_room(&t->text, (size_t)words[0]);
	if (words[0] && !to)
		return err_set(e, ERR_NOMEM, "choices of algorithms: no memory for %lld bytes",
			       (long long)words[0]);
	t->text.len = (size_t)words[0];
	return words[0] ? comm_broadcast(t->group, to, (size_t)words[0], COMM_U8, 0, e) : 0;
}

static int begin(struct train_choices *t, struct comm *world, const struct rank_view *view,
		 struct err *e)
{
	t->stage = view->at.pp;
	t->stages = view->layout.pp;
	if (comm_split(world, color_of(t), comm_rank(world), "choices", &t->group, e) ||
	    write_agreed(t, view, e))
		return -1;
	if (comm_rank(t->group) == 0)
		read_files(t);
	return share_text(t, e);
}

int train_choices_begin(struct comm *world, const struct rank_view *view, struct backend *k,
			const char *run_dir, int64_t step, struct train_choices **out,
			struct err *e)
{
	struct choices *c = backend_choices(k);
	*out = NULL;
	if (!c || view->job->job.deterministic == DETERMINISTIC_YES)
		return 0;
	struct train_choices *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(e, ERR_NOMEM, "choices of algorithms: no memory");
	t->choices = c;
	run_path(t->run_file, run_dir, RUN_CHOICES);
	if (begin(t, world, view, e)) {
		train_choices_close(t);
		return err_prefix(e, "choices of algorithms");
	}
	if (t->known && step > 0) {
		choices_agree(c, t->text.data, t->text.len);
		train_choices_close(t);
		return 0;
	}
	if (!t->known) {
		choices_set_mode(c, CHOICES_PROPOSED);
		choices_read(c, t->text.data, t->text.len, true);
	}
	*out = t;
	return 0;
}

/* --- After the first step ----------------------------------------------------------------- */

/* counts[r]: the bytes of rank r's proposals if it is the first rank of its stage, otherwise 0.
 * stages[r]: its stage. */
static int count_proposals(const struct train_choices *t, int64_t *stages, size_t *counts,
			   struct err *e)
{
	const int ranks = comm_size(t->group);
	const int64_t own[] = { t->stage, buf_failed(&t->text) ? 0 : (int64_t)t->text.len };
	int64_t *all = malloc((size_t)ranks * sizeof own);
	bool *seen = calloc((size_t)t->stages, sizeof *seen);
	int rc = -1;
	if (!all || !seen)
		err_set(e, ERR_NOMEM, "no memory for %d ranks", ranks);
	else
		rc = comm_all_gather(t->group, own, all, 2, COMM_I64, e);
	for (int r = 0; !rc && r < ranks; r++) {
		stages[r] = all[2 * r];
		counts[r] = seen[stages[r]] ? 0 : (size_t)all[2 * r + 1];
		seen[stages[r]] = true;
	}
	free(all);
	free(seen);
	return rc;
}

/* Adds the proposals of all stages, which follow one another in `text` by rank. Where two stages
 * have chosen for the same shape, the first stage's choice counts. */
static void merge_stages(const struct train_choices *t, const char *text, const int64_t *stages,
			 const size_t *counts, struct choices *to)
{
	for (int stage = 0; stage < t->stages; stage++) {
		const char *at = text;
		for (int r = 0; r < comm_size(t->group); at += counts[r++])
			if (stages[r] == stage && counts[r])
				choices_read(to, at, counts[r], false);
	}
}

/* Gathers the proposals of all stages on the group's first rank, into *merged, which is NULL on
 * other ranks. */
static int gather_proposals(struct train_choices *t, int64_t *stages, size_t *counts,
			    struct choices *merged, struct err *e)
{
	struct buf all = BUF_INIT;
	size_t bytes = 0;
	if (count_proposals(t, stages, counts, e))
		return -1;
	for (int r = 0; r < comm_size(t->group); r++)
		bytes += counts[r];
	char *to = merged && bytes ? buf_room(&all, bytes) : NULL;
	int rc = merged && bytes && !to
			 ? err_set(e, ERR_NOMEM, "no memory for %zu bytes", bytes)
			 : comm_gatherv(t->group, t->text.data, to, counts, COMM_U8, 0, e);
	if (!rc && merged)
		merge_stages(t, to, stages, counts, merged);
	buf_fini(&all);
	return rc;
}

/* Sets the text of the group's first rank to what all agree on. */
static int merge(struct train_choices *t, struct choices *merged, struct err *e)
{
	const size_t ranks = (size_t)comm_size(t->group);
	int64_t *stages = malloc(ranks * sizeof *stages);
	size_t *counts = malloc(ranks * sizeof *counts);
	buf_clear(&t->text);
	choices_write(t->choices, &t->text);
	int rc = stages && counts ? gather_proposals(t, stages, counts, merged, e)
				  : err_set(e, ERR_NOMEM, "no memory for %zu ranks", ranks);
	if (!rc && merged) {
		choices_put(merged, t->agreed, "", 1);
		buf_clear(&t->text);
		choices_write(merged, &t->text);
	}
	free(stages);
	free(counts);
	return rc;
}

static void save(const struct choices *c, const char *path)
{
	struct err e = ERR_INIT;
	if (choices_save(c, path, &e))
		log_warn("algorithms that were chosen are not kept: %s", e.text);
}

/* The other ranks have the text already, and wait for no file. */
static void save_files(const struct train_choices *t, struct choices *merged)
{
	char cache[PATH_MAX];
	save(merged, t->run_file);
	choices_drop(merged, AGREED);
	if (choices_cache_path(cache, sizeof cache))
		save(merged, cache);
}

static int agree_anew(struct train_choices *t, struct err *e)
{
	const bool first = comm_rank(t->group) == 0;
	struct choices *merged = first ? choices_open() : NULL;
	int rc = -1;
	if (first && !merged)
		return err_set(e, ERR_NOMEM, "no memory for a table");
	if (merged)
		choices_set_machine(merged, choices_machine(t->choices));
	if (!merge(t, merged, e) && !share_text(t, e)) {
		choices_agree(t->choices, t->text.data, t->text.len);
		rc = 0;
	}
	if (!rc && merged)
		save_files(t, merged);
	choices_close(merged);
	return rc;
}

static int agree(struct train_choices *t, struct err *e)
{
	if (!t->known)
		return agree_anew(t, e);
	choices_agree(t->choices, t->text.data, t->text.len);
	return 0;
}

int train_choices_agree(struct train_choices **t, struct err *e)
{
	if (!*t)
		return 0;
	int rc = agree(*t, e);
	train_choices_close(*t);
	*t = NULL;
	return rc ? err_prefix(e, "choices of algorithms") : 0;
}

void train_choices_close(struct train_choices *t)
{
	if (!t)
		return;
	comm_close(t->group);
	buf_fini(&t->text);
	free(t);
}
