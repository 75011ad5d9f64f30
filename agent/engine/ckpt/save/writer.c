#include "agent/engine/ckpt/ckpt.h"

#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/places/local.h"
#include "agent/engine/ckpt/save/still.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct report_node {
	struct ckpt_report report;
	struct report_node *next;
};

struct ckpt_writer {
	struct commit commit;
	const struct ckpt_local *local; /* NULL: there is no local tier, or it cannot be used */
	bool local_failed;              /* its last save has; it was reported */
	unsigned where;                 /* the tiers of the current save */
	atomic_bool saving;             /* to DIR */
	char *dir;
	struct snapshot snapshot;
	pthread_t thread;
	bool busy;   /* the thread must be joined */
	int rc;      /* of the last commit; read after the join */
	int culprit; /* the rank that it failed on; -1: none in particular */
	struct err err;
	double started, stall_s;
	pthread_mutex_t lock; /* reports, stall_s */
	struct report_node *reports, **last;
};

/* If DIR cannot be written to, opening fails, before training starts. Attempts of dead writers only
 * waste space, so failing to remove them is no error. */
static int prepare_dir(const struct commit *c, const char *owner, struct err *e)
{
	if (c->storage->ops->prepare(c->storage, c->dir, e) ||
	    (owner && ckpt_folder_set_owner(c->storage, c->dir, owner, "checkpoint.dir", e)))
		return -1;
	ckpt_folder_remove_attempts(c->storage, c->dir, c->generation, NULL);
	return 0;
}

/* Takes ownership of the group. */
static struct ckpt_writer *new_writer(struct comm *group, const struct ckpt_options *opt)
{
	struct ckpt_writer *w = calloc(1, sizeof *w);
	char *dir = strdup(opt->dir);
	if (!w || !dir) {
		free(w);
		free(dir);
		return NULL;
	}
	w->dir = dir;
	w->snapshot.watch = opt->watch;
	w->culprit = -1;
	w->last = &w->reports;
	pthread_mutex_init(&w->lock, NULL);
	w->commit = (struct commit){
		.group = group,
		.storage = opt->storage ? opt->storage : ckpt_storage_of(opt->dir),
		.dir = dir,
		.node = opt->node,
		.keep = opt->keep,
		.keep_every = opt->keep_every,
		.uploads = opt->uploads,
		.generation = opt->generation,
		.model = json_incref(opt->model),
		.layout = json_incref(opt->layout),
		.expect = opt->expect,
		.n_expect = opt->n_expect,
		.attached = opt->attached,
		.snapshot = &w->snapshot,
		.still = ckpt_still_open(),
		.still_local = ckpt_still_open(),
		.gate = opt->gate,
	};
	return w;
}

/* All ranks fail with the error of one. The others report that it failed, so that nobody takes the
 * first one that complains for the culprit. */
static void blame_rank(struct comm *group, int culprit, struct err *e)
{
	if (culprit < 0 || culprit == comm_rank(group))
		return;
	err_prefix(e, "rank %d failed (%s)", culprit, err_word(e->code));
	e->code = ERR_PEER;
}

/* Without the local tier the run goes on. But a folder that belongs to another run, or to several
 * nodes, is a mistake of the job. */
static int open_local(struct ckpt_writer *w, const struct ckpt_local *local, struct err *e)
{
	struct err why = ERR_INIT;
	if (!local || !local->dir[0])
		return 0;
	if (!ckpt_local_open(w->commit.group, local, w->commit.generation, &why)) {
		w->local = local;
		return 0;
	}
	if (why.code == ERR_USAGE || ckpt_group_is_lost(why.code))
		return err_set(e, why.code, "%s", why.text);
	log_line(comm_rank(w->commit.group) ? LOG_INFO : LOG_WARN,
		 "there are no checkpoints on the nodes: checkpoint.local: %s", why.text);
	return 0;
}

int ckpt_writer_open(struct comm *world, const struct ckpt_options *opt, struct ckpt_writer **out,
		     struct err *e)
{
	struct comm *group;
	struct err result = ERR_INIT;
	if (comm_split(world, 0, comm_rank(world), "ckpt", &group, e))
		return -1;
	struct ckpt_writer *w = new_writer(group, opt);
	if (!w) {
		comm_close(group);
		return err_set(e, ERR_NOMEM, "no memory for a checkpoint writer");
	}
	int culprit = 0;
	int rc = comm_rank(group) == 0 ? prepare_dir(&w->commit, opt->owner, &result) : 0;
	if (ckpt_commit_share_result(group, 0, rc, &result) ||
	    ckpt_commit_check_shared(&w->commit, &culprit, &result) ||
	    open_local(w, opt->local, &result)) {
		blame_rank(group, culprit, &result);
		ckpt_writer_close(w);
		if (e)
			*e = result;
		return -1;
	}
	*out = w;
	return 0;
}

static void join_thread(struct ckpt_writer *w)
{
	if (w->busy)
		pthread_join(w->thread, NULL);
	w->busy = false;
}

void ckpt_writer_close(struct ckpt_writer *w)
{
	if (!w)
		return;
	join_thread(w);
	ckpt_still_close(w->commit.still);
	ckpt_still_close(w->commit.still_local);
	while (w->reports) {
		struct report_node *next = w->reports->next;
		free(w->reports);
		w->reports = next;
	}
	pthread_mutex_destroy(&w->lock);
	ckpt_snapshot_fini(&w->snapshot);
	json_decref(w->commit.model);
	json_decref(w->commit.layout);
	comm_close(w->commit.group);
	free(w->dir);
	free(w);
}

static void add_report(struct ckpt_writer *w, const struct ckpt_report *report)
{
	struct report_node *node = calloc(1, sizeof *node);
	if (!node)
		return;
	node->report = *report;
	pthread_mutex_lock(&w->lock);
	node->report.stall_s = w->stall_s;
	*w->last = node;
	w->last = &node->next;
	pthread_mutex_unlock(&w->lock);
}

/* A failure is a warning until it works again. One of the group is found by the next collective,
 * too. */
static void commit_local(struct ckpt_writer *w)
{
	struct ckpt_report report = { .local = true };
	struct err e = ERR_INIT;
	bool first = comm_rank(w->commit.group) == 0;
	int rc = ckpt_local_commit(&w->commit, w->local, &report, &e);
	report.seconds = clock_s() - w->started;
	if (!rc && first)
		add_report(w, &report);
	if (rc && !w->local_failed)
		log_line(first ? LOG_WARN : LOG_INFO,
			 "%s; checkpoints on the nodes fail, those in %s do not depend on them",
			 e.text, w->dir);
	if (!rc && w->local_failed && first)
		log_info("checkpoints on the nodes work again");
	w->local_failed = rc != 0;
}

static void *commit_thread(void *arg)
{
	struct ckpt_writer *w = arg;
	struct ckpt_report report = { 0 };
	w->rc = 0;
	if (w->where & CKPT_TO_LOCAL)
		commit_local(w);
	if (!(w->where & CKPT_TO_DIR))
		return NULL;
	w->rc = ckpt_commit_snapshots(&w->commit, &report, &w->culprit, &w->err);
	report.seconds = clock_s() - w->started;
	if (!w->rc && comm_rank(w->commit.group) == 0)
		add_report(w, &report);
	atomic_store(&w->saving, false);
	return NULL;
}

static void start_thread(struct ckpt_writer *w, void *(*work)(void *))
{
	w->busy = thread_start(&w->thread, "checkpoint", work, w) == 0;
}

/* If no thread can be created, the commit runs here: slower, but done. */
static void start_commit(struct ckpt_writer *w)
{
	start_thread(w, commit_thread);
	if (!w->busy)
		commit_thread(w);
}

static void *touch_thread(void *arg)
{
	struct ckpt_writer *w = arg;
	ckpt_snapshot_touch(&w->snapshot);
	return NULL;
}

void ckpt_writer_prepare(struct ckpt_writer *w, const struct ckpt_tensor *tensors, int n)
{
	if (!w->busy && !ckpt_snapshot_reserve(&w->snapshot, tensors, n, NULL))
		start_thread(w, touch_thread);
}

int ckpt_save(struct ckpt_writer *w, const struct ckpt_state *state,
	      const struct ckpt_tensor *tensors, int n, struct err *e)
{
	return ckpt_save_to(w, CKPT_TO_DIR, state, tensors, n, e);
}

bool ckpt_saving(const struct ckpt_writer *w)
{
	return atomic_load(&w->saving);
}

const char *ckpt_failure(const struct ckpt_writer *w)
{
	/* The thread sets rc and err before it clears `saving`. */
	return !ckpt_saving(w) && w->rc ? w->err.text : NULL;
}

int ckpt_save_to(struct ckpt_writer *w, unsigned where, const struct ckpt_state *state,
		 const struct ckpt_tensor *tensors, int n, struct err *e)
{
	double begun = clock_s();
	if (ckpt_wait(w, e))
		return -1;
	if (!w->local)
		where &= CKPT_TO_DIR;
	if (!where)
		return 0;
	w->where = where;
	atomic_store(&w->saving, (where & CKPT_TO_DIR) != 0);
	w->commit.state = *state;
	w->started = begun;
	ckpt_snapshot_take(&w->snapshot, tensors, n);
	pthread_mutex_lock(&w->lock);
	w->stall_s = clock_s() - begun;
	pthread_mutex_unlock(&w->lock);
	start_commit(w);
	return 0;
}

int ckpt_wait(struct ckpt_writer *w, struct err *e)
{
	join_thread(w);
	int rc = w->rc;
	if (rc && e)
		*e = w->err;
	w->rc = 0;
	w->err = (struct err)ERR_INIT;
	return rc;
}

void ckpt_blame(const struct ckpt_writer *w, struct err *e)
{
	blame_rank(w->commit.group, w->culprit, e);
}

int ckpt_committed(struct ckpt_writer *w, struct ckpt_report *out)
{
	pthread_mutex_lock(&w->lock);
	struct report_node *node = w->reports;
	if (node) {
		w->reports = node->next;
		if (!w->reports)
			w->last = &w->reports;
		*out = node->report;
	}
	pthread_mutex_unlock(&w->lock);
	free(node);
	return node != NULL;
}
