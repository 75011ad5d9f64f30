#include "agent/engine/train/resume.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/storage/storage.h"
#include "agent/engine/ckpt/memory/store.h"
#include "agent/engine/train/set_aside.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHECKPOINT_NAME = 64 };

int train_resume_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e)
{
	const char *dir = job->checkpoint.dir;
	int n = dir[0] ? snprintf(out, JOB_PATH, "%s", dir)
		       : snprintf(out, JOB_PATH, "%s/ckpt", run_dir);
	if (n >= JOB_PATH - CHECKPOINT_NAME)
		return err_set(e, ERR_USAGE,
			       "%s: the path of the checkpoints is too long; set checkpoint.dir to "
			       "a shorter one",
			       out);
	return 0;
}

/* --- the ranks agree --- */

/* The highest of the ranks' error codes (ERR_NONE: every rank succeeded), and the first rank that
 * has it. */
struct outcome {
	enum err_code code;
	int rank;
};

static int agree_on_error(struct comm *world, int rc, const struct err *mine, struct outcome *all,
			  struct err *e)
{
	int size = comm_size(world);
	int64_t word = (rc ? (int64_t)mine->code : ERR_NONE) * size + size - 1 - comm_rank(world);
	if (comm_all_reduce(world, &word, &word, 1, COMM_I64, COMM_MAX, e))
		return -1;
	*all = (struct outcome){ (enum err_code)(word / size), size - 1 - (int)(word % size) };
	return 0;
}

/* Sets the error that this rank returns: its own, or that another rank has failed. */
static int set_failure(int rc, const struct err *mine, const struct outcome *all, const char *what,
		       struct err *e)
{
	if (rc)
		return err_set(e, mine->code, "%s", mine->text);
	return err_set(e, ERR_PEER, "%s: rank %d failed (%s)", what, all->rank,
		       err_word(all->code));
}

/* Keeps the checkpoint, but hides it from the next search. */
static int rename_damaged(const char *path, struct err *e)
{
	char to[PATH_MAX];
	if (ckpt_storage_set_aside(ckpt_storage_of(path), path, TRAIN_DAMAGED, to, e))
		return err_prefix(e, "a damaged checkpoint");
	log_warn("%s: damaged; it is renamed to %s, and another one is used", path, to);
	return 0;
}

/* 1 if all ranks have loaded it; 0 if a rank found it damaged, with the error in *e. One rank's
 * warning is enough for the supervisor, and the other ranks do not pass for the cause. */
static int load_on_all(struct comm *world, const struct train_source *from,
		       const struct train_choice *c, json_t *model, const struct train_state *state,
		       struct ckpt_state *at, struct err *e)
{
	struct err why = ERR_INIT;
	int culprit;
	if (!train_state_load(world, from, model, state, at, &culprit, &why))
		return 1;
	bool other = culprit >= 0 && culprit != comm_rank(world);
	if (!other && culprit >= 0)
		log_line(why.code == ERR_CORRUPT ? LOG_WARN : LOG_INFO, "%s", why.text);
	if (other)
		err_set(e, ERR_PEER, "%s: rank %d failed (%s): %s", c->path, culprit,
			err_word(why.code), why.text);
	else
		err_set(e, why.code, "%s", why.text);
	return why.code == ERR_CORRUPT ? 0 : -1;
}

/* The damaged checkpoint is not used again. A copy that cannot be renamed is left out of this
 * search. */
static int set_damaged_aside(struct comm *world, const struct train_tiers *tiers,
			     const struct train_choice *c, struct train_refused *refused,
			     struct err *e)
{
	struct err mine = ERR_INIT;
	struct outcome all;
	bool leads = comm_rank(world) == 0;
	if (c->local && ckpt_local_lead(world, tiers->local->node, &leads, e))
		return -1;
	int rc = leads ? rename_damaged(c->path, &mine) : 0;
	if (rc && c->local && access(c->path, F_OK)) /* this node has no part of it */
		rc = 0;
	if (rc && c->tier == TRAIN_REMOTE && refused->n < TRAIN_REFUSED_MAX) {
		log_warn("%s", mine.text);
		refused->steps[refused->n++] = c->step;
		rc = 0;
	}
	if (agree_on_error(world, rc, &mine, &all, e))
		return -1;
	return all.code == ERR_NONE ? 0 : set_failure(rc, &mine, &all, c->path, e);
}

struct kept {
	const struct train_tiers *tiers;
	int64_t step;
};

static bool stays(const void *arg, int64_t step, uint32_t generation)
{
	const struct kept *k = arg;
	return step <= k->step && !train_is_undone(k->tiers->rollbacks, step, generation);
}

/* The nodes keep no checkpoints of steps that the run has not reached: together with nodes that are
 * lost now and return later, they could become whole again. */
static int drop_later_ones(struct comm *world, const struct train_tiers *tiers, int64_t step,
			   struct err *e)
{
	const struct kept kept = { tiers, step };
	struct err why = ERR_INIT;
	bool leads;
	if (!tiers->local || !tiers->local->dir[0])
		return 0;
	if (ckpt_local_lead(world, tiers->local->node, &leads, e))
		return -1;
	if (leads && ckpt_local_remove(tiers->local, stays, &kept, &why))
		log_warn("checkpoint.local: older checkpoints remain: %s", why.text);
	return 0;
}

/* --- the copies in memory --- */

/* One resume. */
struct resume {
	struct comm *world;
	const char *requested;
	const struct train_tiers *tiers;
	struct ckpt_store *memory;
	int64_t step; /* of the state in memory; -1: there is none */
	uint32_t generation;
	struct train_refused refused;
	json_t *model;
	const struct train_state *state;
};

static bool is_done(const void *arg, int64_t step, uint32_t generation)
{
	return !train_is_undone(arg, step, generation);
}

static bool is_chosen(const void *arg, int64_t step, uint32_t generation)
{
	const struct resume *r = arg;
	return step == r->step && generation == r->generation;
}

static bool is_none(const void *arg, int64_t step, uint32_t generation)
{
	(void)arg;
	(void)step;
	(void)generation;
	return false;
}

static int find_in_memory(struct resume *r, struct err *e)
{
	int culprit;
	r->step = -1;
	if (!r->memory)
		return 0;
	ckpt_store_retain(r->memory, is_done, r->tiers->rollbacks);
	return ckpt_recover_find(r->world, r->memory, &r->step, &r->generation, &culprit, e) < 0
		       ? -1
		       : 0;
}

/* The files that copies do not have. A run without a checkpoint has none. */
static int load_attached(const struct resume *r, const struct train_choice *c, struct err *e)
{
	struct err mine = ERR_INIT;
	struct manifest m;
	int rc = 0;
	if (!c->path[0])
		return 0;
	if (c->local)
		return ckpt_local_attached(r->world, c->local, r->state->attached, e);
	if (r->state->attached) {
		rc = ckpt_manifest_load(c->path, &m, &mine);
		if (!rc) {
			ckpt_attached_fini(r->state->attached);
			rc = ckpt_attached_load(c->path, &m, r->state->attached, &mine);
			ckpt_manifest_fini(&m);
		}
	}
	return ckpt_agree_result(r->world, rc, &mine, e);
}

/* 1: loaded; 0: the copies could not be used, and a checkpoint is used in their place; -1. */
static int load_from_memory(struct resume *r, const struct train_choice *c, struct ckpt_state *at,
			    struct err *e)
{
	struct err why = ERR_INIT;
	int culprit, rc = train_state_recover(r->world, r->memory, r->model, r->state, at, &culprit,
					      &why);
	bool first = comm_rank(r->world) == 0;
	if (rc == 1) {
		log_line(first ? LOG_INFO : LOG_DEBUG,
			 "continuing from step %lld, copied in memory", (long long)at->step);
		return load_attached(r, c, e) ? -1 : 1;
	}
	if (rc < 0 && ckpt_group_is_lost(why.code))
		return err_set(e, why.code, "%s", why.text);
	log_line(first && rc < 0 ? LOG_WARN : LOG_INFO,
		 "step %lld in memory cannot be used: %s; the run continues from a checkpoint",
		 (long long)r->step, rc < 0 ? why.text : "a copy is gone");
	return train_state_clear(r->state, e);
}

static void set_origin(struct train_origin *from, enum train_tier tier, const char *path,
		       const struct train_choice *c)
{
	from->tier = tier;
	from->saved = c->path[0] && c->tier == TRAIN_DIR ? c->step : -1;
	snprintf(from->path, sizeof from->path, "%s", path);
}

/* Sets whether any rank had copies. */
static int forget_copies(struct resume *r, bool *any, struct err *e)
{
	struct err mine = ERR_INIT;
	struct store_copy copy;
	int64_t held = 0;
	int culprit;
	*any = false;
	if (!r->memory)
		return 0;
	for (int owner = 0; owner < ckpt_store_owners(r->memory); owner++)
		held += ckpt_store_list(r->memory, owner, 0, &copy);
	if (ckpt_agree_most(r->world, 0, &mine, &held, &culprit, e))
		return -1;
	ckpt_store_forget(r->memory);
	*any = held > 0;
	return 0;
}

/* --- the checkpoints --- */

/* 1: loaded; 0: there is none; -1; 2: it proved damaged, and another one is to be chosen. If copies in
 * memory took part in the load, they may be what is damaged: the same one is then loaded without them. */
static int load_choice(struct resume *r, const struct train_choice *c, struct ckpt_state *at,
		       struct err *e)
{
	const struct train_source from = { c->path, c->local, r->memory };
	int rc = c->path[0] ? load_on_all(r->world, &from, c, r->model, r->state, at, e) : 0;
	bool copies = false;
	if (rc == 1 && train_state_check_loaded(r->world, &from, r->state, e))
		rc = -1;
	if (!rc && c->path[0] && forget_copies(r, &copies, e))
		return -1;
	if (!c->path[0]) {
		rc = drop_later_ones(r->world, r->tiers, 0, e);
	} else if (copies) {
		rc = train_state_clear(r->state, e) ? -1 : 2;
	} else if (rc == 1) {
		if (comm_rank(r->world) == 0 && c->tier != TRAIN_NAMED)
			log_info("resuming from %s (checkpoint.%s)", c->path,
				 train_tier_word(c->tier));
		rc = drop_later_ones(r->world, r->tiers, at->step, e) ? -1 : 1;
	} else if (!rc && c->tier == TRAIN_NAMED) {
		rc = -1;
	} else if (!rc) {
		/* A failed load may have filled moments, which must start at zero. */
		rc = train_state_clear(r->state, e) ||
				     set_damaged_aside(r->world, r->tiers, c, &r->refused, e)
			     ? -1
			     : 2;
	}
	return rc;
}

static int resume_once(struct resume *r, struct ckpt_state *at, struct train_origin *from,
		       struct err *e)
{
	struct train_choice c;
	int rc = 0;
	if (train_choose(r->world, r->requested, r->tiers, &r->refused, r->model, &c, e))
		return -1;
	if (r->step >= 0 && r->step >= c.step) {
		rc = load_from_memory(r, &c, at, e);
		set_origin(from, TRAIN_MEMORY, train_tier_word(TRAIN_MEMORY), &c);
		if (rc == 1 && drop_later_ones(r->world, r->tiers, at->step, e))
			rc = -1;
		if (rc == 0)
			r->step = -1;
	}
	if (rc == 0) {
		rc = load_choice(r, &c, at, e);
		set_origin(from, c.tier, c.path, &c);
		r->step = -1; /* what is in memory is older, or of no use */
	}
	train_choice_fini(&c);
	return rc;
}

int train_resume(struct comm *world, const char *requested, const struct train_tiers *tiers,
		 struct ckpt_store *memory, json_t *model, const struct train_state *state,
		 struct ckpt_state *at, struct train_origin *from, struct err *e)
{
	struct resume r = { .world = world,
			    .requested = *requested ? requested : "none",
			    .tiers = tiers,
			    .memory = memory,
			    .model = model,
			    .state = state };
	int rc = find_in_memory(&r, e) ? -1 : 2;
	while (rc == 2)
		rc = resume_once(&r, at, from, e);
	if (rc >= 0 && memory)
		ckpt_store_retain(memory, r.step >= 0 ? is_chosen : is_none, &r);
	if (rc == 1 && param_store_sync_params(state->store, at->step, e))
		rc = -1;
	return rc;
}
