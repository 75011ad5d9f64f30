#include "agent/engine/train/choose.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/train/set_aside.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *train_tier_word(enum train_tier tier)
{
	static const char *const words[TRAIN_TIER_COUNT] = {
		[TRAIN_LOCAL] = "local", [TRAIN_DIR] = "dir",       [TRAIN_REMOTE] = "remote",
		[TRAIN_NAMED] = "named", [TRAIN_MEMORY] = "memory",
	};
	return words[tier];
}

static void log_note(const char *text, void *arg)
{
	(void)arg;
	log_warn("%s", text);
}

/* A checkpoint of which the nodes lack a part is what a lost node leaves behind. */
static void log_expected(const char *text, void *arg)
{
	(void)arg;
	log_info("%s", text);
}

/* --- what is where --- */

static bool is_in(const char *path, const char *dir)
{
	char parent[JOB_PATH + 4];
	const struct ckpt_storage *s = ckpt_storage_of(dir);
	snprintf(parent, sizeof parent, "%s/..", path);
	if (s->ops->same)
		return s->ops->same(s, parent, dir);
	size_t n = strlen(dir);
	return !strncmp(path, dir, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

static bool is_same(const char *a, const char *b)
{
	return ckpt_storage_same(ckpt_storage_of(a), a, b);
}

static int find_damaged(void *arg, const char *name, struct err *e)
{
	bool *found = arg;
	(void)e;
	*found |= !strncmp(name, TRAIN_DAMAGED, strlen(TRAIN_DAMAGED));
	return 0;
}

/* A folder that cannot be listed counts as one without damaged checkpoints. */
static bool holds_damaged(const char *dir)
{
	const struct ckpt_storage *s = ckpt_storage_of(dir);
	bool found = false;
	s->ops->list(s, dir, find_damaged, &found, NULL);
	return found;
}

/* Which checkpoints of local and remote may be used. */
struct filter {
	const json_t *rollbacks;
	const struct train_refused *refused; /* NULL: none */
};

static bool accepts(const void *arg, int64_t step, uint32_t generation)
{
	const struct filter *f = arg;
	for (int i = 0; f->refused && i < f->refused->n; i++)
		if (f->refused->steps[i] == step)
			return false;
	return !train_is_undone(f->rollbacks, step, generation);
}

static int64_t step_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && !strncmp(slash, "/step-", 6) ? strtoll(slash + 6, NULL, 10) : -1;
}

/* --- on rank 0 --- */

struct candidate {
	char *path; /* NULL: none */
	int64_t step;
	int64_t unread; /* the step of a checkpoint that cannot be read now; -1: none */
	struct err err; /* why the tier cannot be searched, or has nothing that is valid */
};

static void search_tier(const char *dir, const struct ckpt_wish *wish, struct candidate *c)
{
	struct ckpt_wish w = *wish;
	*c = (struct candidate){ .step = -1, .unread = -1 };
	w.unread = &c->unread;
	if (dir && *dir && !ckpt_latest_of(dir, &w, &c->path, &c->err) && c->path)
		c->step = step_of(c->path);
}

/* The copies of another run are not this one's to resume from. */
static bool owns_remote(const struct train_tiers *tiers, struct candidate *c)
{
	*c = (struct candidate){ .step = -1, .unread = -1 };
	return !tiers->remote || !*tiers->remote || !tiers->owner ||
	       !ckpt_folder_check_owner(ckpt_storage_of(tiers->remote), tiers->remote, tiers->owner,
					"checkpoint.remote", &c->err);
}

/* The highest step; of one step the first tier. */
static enum train_tier best_of(const struct candidate c[TRAIN_NAMED])
{
	enum train_tier best = TRAIN_LOCAL;
	for (enum train_tier t = TRAIN_DIR; t < TRAIN_NAMED; t++)
		if (c[t].step > c[best].step)
			best = t;
	return best;
}

/* Nothing valid was found. A tier that could not be searched may have a checkpoint that the run
 * must not start over on top of. */
static int check_nothing_is_lost(const struct candidate c[TRAIN_NAMED],
				 const struct train_tiers *tiers, struct err *e)
{
	static const enum train_tier order[] = { TRAIN_DIR, TRAIN_REMOTE, TRAIN_LOCAL };
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		const struct err *why = &c[order[i]].err;
		bool known = order[i] != TRAIN_REMOTE || tiers->copied ||
			     why->code == ERR_CORRUPT || why->code == ERR_USAGE;
		if (why->code != ERR_NONE && known)
			return err_set(e, why->code, "%s", why->text);
		if (why->code != ERR_NONE)
			log_warn("checkpoint.remote: %s; the run has copied nothing there yet",
				 why->text);
	}
	const char *dirs[] = { tiers->dir, tiers->local ? tiers->local->dir : "", tiers->remote };
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		if (dirs[i] && *dirs[i] && holds_damaged(dirs[i]))
			return err_set(e, ERR_CORRUPT,
				       "%s: every checkpoint of the run proved damaged (%s…); "
				       "repair one and remove that prefix from its name, or move "
				       "them away to start from the beginning",
				       dirs[i], TRAIN_DAMAGED);
	return 0;
}

/* A later checkpoint that cannot be read now may be valid. The next start may find it. */
static int check_nothing_is_newer(const struct candidate c[TRAIN_NAMED], int64_t step,
				  struct err *e)
{
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++)
		if (c[t].unread > step)
			return err_set(e, c[t].err.code, "%s", c[t].err.text);
	return 0;
}

/* The other tiers' troubles, if there is a checkpoint in spite of them. */
static void warn_about_tiers(const struct candidate c[TRAIN_NAMED])
{
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++)
		if (c[t].err.code != ERR_NONE)
			log_warn("checkpoint.%s: %s; the run resumes from another tier",
				 train_tier_word(t), c[t].err.text);
}

/* The run's own checkpoints come before the one that the job names, so that the same command
 * continues after a stop. A run never trains past a checkpoint of a later step, because the next
 * restart would resume from that one. latest: NULL: the run has none. */
static int check_request(const char *requested, const struct train_tiers *tiers, const char *latest,
			 bool *named, struct err *e)
{
	*named = strcmp(requested, "none") && strcmp(requested, "auto");
	if (latest && !strcmp(requested, "none"))
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = none, but the run has the checkpoint %s "
			       "already; remove the key to resume from it, or start a new run "
			       "under another job.name",
			       latest);
	bool own = *named && (is_in(requested, tiers->dir) ||
			      (tiers->remote && *tiers->remote && is_in(requested, tiers->remote)));
	bool same = latest && *named &&
		    (is_same(requested, latest) || (own && step_of(requested) == step_of(latest)));
	if (latest && own && !same)
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = %s, but the run has a later checkpoint, %s; "
			       "move the later ones away, or resume from that one under another "
			       "job.name",
			       requested, latest);
	if (latest && *named && !same)
		log_info("resuming from %s, which this run has written; checkpoint.resume = %s was "
			 "used for its first start",
			 latest, requested);
	return 0;
}

static int choose_tier(const char *requested, const struct train_tiers *tiers,
		       const struct candidate c[TRAIN_NAMED], struct train_choice *out,
		       struct err *e)
{
	enum train_tier best = best_of(c);
	const char *latest = c[best].step >= 0 ? c[best].path : NULL;
	bool named;
	if (c[TRAIN_REMOTE].err.code == ERR_USAGE)
		return err_set(e, ERR_USAGE, "%s", c[TRAIN_REMOTE].err.text);
	if ((latest && check_nothing_is_newer(c, c[best].step, e)) ||
	    (!latest && check_nothing_is_lost(c, tiers, e)) ||
	    check_request(requested, tiers, latest, &named, e))
		return -1;
	if (latest)
		warn_about_tiers(c);
	out->tier = latest ? best : TRAIN_NAMED;
	out->step = latest ? c[best].step : -1;
	snprintf(out->path, sizeof out->path, "%s", latest ? latest : named ? requested : "");
	return 0;
}

static int choose_on_first(const char *requested, const struct train_tiers *tiers,
			   const struct filter *filter, json_t *model,
			   const struct ckpt_local_found *local, const struct err *local_err,
			   struct train_choice *out, struct err *e)
{
	struct candidate *c = calloc(TRAIN_NAMED, sizeof *c);
	const struct ckpt_wish own = { .model = model, .note = log_note };
	const struct ckpt_wish copies = {
		.model = model, .accepts = accepts, .arg = filter, .note = log_note
	};
	if (!c)
		return err_set(e, ERR_NOMEM, "no memory to look for checkpoints");
	search_tier(tiers->dir, &own, &c[TRAIN_DIR]);
	if (owns_remote(tiers, &c[TRAIN_REMOTE]))
		search_tier(tiers->remote, &copies, &c[TRAIN_REMOTE]);
	c[TRAIN_LOCAL].unread = -1;
	c[TRAIN_LOCAL].step = local ? local->manifest.state.step : -1;
	c[TRAIN_LOCAL].path = local ? strdup(local->path) : NULL;
	c[TRAIN_LOCAL].err = *local_err;
	int rc = choose_tier(requested, tiers, c, out, e);
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++)
		free(c[t].path);
	free(c);
	return rc;
}

/* --- on all ranks --- */

/* *found: NULL if there is none. *why: why the tier cannot be used; only errors of the group fail. */
static int search_local(struct comm *world, const struct train_tiers *tiers,
			const struct filter *filter, json_t *model, struct ckpt_local_found **found,
			struct err *why, struct err *e)
{
	const struct ckpt_wish wish = {
		.model = model, .accepts = accepts, .arg = filter, .note = log_expected
	};
	struct err mine = ERR_INIT;
	*found = NULL;
	if (!tiers->local || !tiers->local->dir[0])
		return 0;
	struct ckpt_local_found *f = calloc(1, sizeof *f);
	int rc = f ? 0 : err_set(&mine, ERR_NOMEM, "no memory to look for checkpoints");
	if (ckpt_agree_result(world, rc, &mine, e)) {
		free(f);
		return -1;
	}
	rc = ckpt_local_latest(world, tiers->local, &wish, f, why);
	if (rc == 1)
		*found = f;
	else
		free(f);
	if (rc >= 0 || !ckpt_group_is_lost(why->code))
		return 0;
	return err_set(e, why->code, "%s", why->text);
}

void train_choice_fini(struct train_choice *c)
{
	if (c->local)
		ckpt_local_found_fini(c->local);
	free(c->local);
	c->local = NULL;
}

/* The other ranks do not pass for the cause. */
static int agree(struct comm *world, int rc, const struct err *mine, const char *dir, struct err *e)
{
	struct err why = ERR_INIT;
	if (!ckpt_agree_result(world, rc, mine, &why))
		return 0;
	if (rc || ckpt_group_is_lost(why.code))
		return err_set(e, why.code, "%s", why.text);
	return err_set(e, ERR_PEER, "%s: rank 0 failed (%s)", dir, err_word(why.code));
}

/* World rank 0 decides, because the ranks' clients may see different folders. */
int train_choose(struct comm *world, const char *requested, const struct train_tiers *tiers,
		 const struct train_refused *refused, json_t *model, struct train_choice *out,
		 struct err *e)
{
	const struct filter local = { tiers->rollbacks, NULL };
	const struct filter remote = { tiers->rollbacks, refused };
	struct ckpt_local_found *found;
	struct err mine = ERR_INIT, local_err = ERR_INIT;
	memset(out, 0, sizeof *out);
	if (search_local(world, tiers, &local, model, &found, &local_err, e))
		return -1;
	out->local = found;
	int rc = comm_rank(world) == 0 ? choose_on_first(requested, tiers, &remote, model, found,
							 &local_err, out, &mine)
				       : 0;
	int32_t tier = out->tier;
	if (agree(world, rc, &mine, tiers->dir, e) ||
	    comm_broadcast(world, out->path, sizeof out->path, COMM_U8, 0, e) ||
	    comm_broadcast(world, &out->step, 1, COMM_I64, 0, e) ||
	    comm_broadcast(world, &tier, 1, COMM_I32, 0, e)) {
		train_choice_fini(out);
		return -1;
	}
	out->tier = (enum train_tier)tier;
	if (out->tier == TRAIN_LOCAL)
		snprintf(out->path, sizeof out->path, "%.1000s", found->path);
	else
		train_choice_fini(out);
	return 0;
}
