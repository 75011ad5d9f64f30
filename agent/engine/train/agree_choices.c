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
	struct comm *group;
	char run_file[RUN_PATH], agreed[CHOICES_TEXT];
	struct buf text;
	bool known; /* the text is what the run agreed on before */
};

/* A key that says that the choices of a layout and stage are complete. */
static void write_agreed(const struct rank_view *v, char out[CHOICES_TEXT])
{
	const struct layout *l = &v->layout;
	snprintf(out, CHOICES_TEXT, AGREED "tp=%d cp=%d pp=%d dp=%d ep=%d micro=%lld stage=%d",
		 l->tp, l->cp, l->pp, l->dp, l->ep, (long long)v->job->batch.micro, v->at.pp);
}

static int color_of(const struct train_choices *t)
{
	char text[2 * CHOICES_TEXT];
	snprintf(text, sizeof text, "%s\t%s", choices_machine(t->choices), t->agreed);
	return (int)(hash_text(text) & INT32_MAX);
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
	write_agreed(view, t->agreed);
	if (comm_split(world, color_of(t), comm_rank(world), "choices", &t->group, e))
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
	if (!c || view->job->job.deterministic)
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

static void save(const struct train_choices *t, const char *path)
{
	struct err e = ERR_INIT;
	if (choices_save(t->choices, path, &e))
		log_warn("algorithms that were chosen are not kept: %s", e.text);
}

static int agree(struct train_choices *t, struct err *e)
{
	const bool first = comm_rank(t->group) == 0;
	char cache[PATH_MAX];
	if (t->known) {
		choices_agree(t->choices, t->text.data, t->text.len);
		return 0;
	}
	if (first) {
		if (choices_cache_path(cache, sizeof cache))
			save(t, cache);
		choices_put(t->choices, t->agreed, "", 1);
		buf_clear(&t->text);
		choices_write(t->choices, &t->text);
	}
	if (share_text(t, e))
		return -1;
	choices_agree(t->choices, t->text.data, t->text.len);
	if (first)
		save(t, t->run_file);
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
