#include "agent/engine/train/resume.h"

#include "agent/engine/ckpt/storage.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prefix of the name of a checkpoint that was found to be damaged. */
#define DAMAGED "damaged-"

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

static void log_note(const char *text, void *arg)
{
	(void)arg;
	log_warn("%s", text);
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

/* --- which checkpoint --- */

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
	*found |= !strncmp(name, DAMAGED, strlen(DAMAGED));
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

/* The run's own checkpoints come before the one that the job names, so that the same command
 * continues after a stop. A run never trains past a checkpoint of a later step, because the next
 * restart would resume from that one. */
static int choose_path(const char *requested, const char *dir, const char *latest,
		       const char **chosen, struct err *e)
{
	bool named = strcmp(requested, "none") && strcmp(requested, "auto");
	if (latest && !strcmp(requested, "none"))
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = none, but the run has the checkpoint %s "
			       "already; remove the key to resume from it, or start a new run "
			       "under another job.name",
			       latest);
	if (latest && named && is_in(requested, dir) && !is_same(requested, latest))
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = %s, but the run has a later checkpoint, %s; "
			       "move the later ones away, or resume from that one under another "
			       "job.name",
			       requested, latest);
	if (!latest && holds_damaged(dir))
		return err_set(e, ERR_CORRUPT,
			       "%s: every checkpoint of the run proved damaged (%s…); repair one "
			       "and remove that prefix from its name, or move them away to start "
			       "from the beginning",
			       dir, DAMAGED);
	*chosen = latest ? latest : named ? requested : "";
	if (latest && named && !is_same(requested, latest))
		log_info("resuming from %s, which this run has written; checkpoint.resume = %s was "
			 "used for its first start",
			 latest, requested);
	return 0;
}

/* World rank 0 decides, because the ranks' clients may see different folders; all ranks get the
 * path ("": none). */
static int choose_checkpoint(struct comm *world, const char *requested, const char *dir,
			     json_t *model, char path[JOB_PATH], struct err *e)
{
	struct err mine = ERR_INIT;
	struct outcome all;
	int rc = 0;
	memset(path, 0, JOB_PATH);
	if (comm_rank(world) == 0) {
		char *latest = NULL;
		const char *chosen = "";
		rc = ckpt_latest(dir, model, &latest, log_note, NULL, &mine) ||
				     choose_path(requested, dir, latest, &chosen, &mine)
			     ? -1
			     : 0;
		snprintf(path, JOB_PATH, "%s", chosen);
		free(latest);
	}
	if (agree_on_error(world, rc, &mine, &all, e))
		return -1;
	if (all.code != ERR_NONE)
		return set_failure(rc, &mine, &all, dir, e);
	return comm_broadcast(world, path, JOB_PATH, COMM_U8, 0, e);
}

/* Keeps the checkpoint, but hides it from the next search. */
static int rename_damaged(const char *path, struct err *e)
{
	char to[PATH_MAX];
	if (ckpt_storage_set_aside(ckpt_storage_of(path), path, DAMAGED, to, e))
		return err_prefix(e, "a damaged checkpoint");
	log_warn("%s: damaged; it is renamed to %s, and the checkpoint before it is used", path,
		 to);
	return 0;
}

/* 1 if all ranks have loaded it; 0 if a rank found it damaged, with the error in *e. One rank's
 * warning is enough for the supervisor, and the other ranks do not pass for the cause. */
static int load_on_all(struct comm *world, const char *path, json_t *model,
		       const struct train_state *state, struct ckpt_state *at, struct err *e)
{
	struct err why = ERR_INIT;
	int culprit;
	if (!train_state_load(world, path, model, state, at, &culprit, &why))
		return 1;
	bool other = culprit >= 0 && culprit != comm_rank(world);
	if (!other && culprit >= 0)
		log_line(why.code == ERR_CORRUPT ? LOG_WARN : LOG_INFO, "%s", why.text);
	if (other)
		err_set(e, ERR_PEER, "%s: rank %d failed (%s): %s", path, culprit,
			err_word(why.code), why.text);
	else
		err_set(e, why.code, "%s", why.text);
	return why.code == ERR_CORRUPT ? 0 : -1;
}

int train_resume(struct comm *world, const char *requested, const char *dir, json_t *model,
		 const struct train_state *state, struct ckpt_state *at, struct err *e)
{
	for (;;) {
		char path[JOB_PATH];
		if (choose_checkpoint(world, *requested ? requested : "none", dir, model, path, e))
			return -1;
		if (!path[0])
			return 0;
		int rc = load_on_all(world, path, model, state, at, e);
		if (rc == 1 && train_state_check_loaded(world, path, state, e))
			return -1;
		if (rc == 1)
			return param_store_sync_params(state->store, at->step, e) ? -1 : 1;
		if (rc || !strcmp(path, requested))
			return -1;
		struct err mine = ERR_INIT;
		struct outcome all;
		/* A failed load may have filled moments, which must start at zero. */
		train_state_clear(state);
		rc = comm_rank(world) == 0 ? rename_damaged(path, &mine) : 0;
		if (agree_on_error(world, rc, &mine, &all, e))
			return -1;
		if (all.code != ERR_NONE)
			return set_failure(rc, &mine, &all, path, e);
	}
}
