/* local: one checkpoint in the folders of all nodes, or in none. */
#include "agent/engine/ckpt/places/local.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/save/commit.h"
#include "agent/engine/ckpt/save/still.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int share_name(const struct commit *c, struct attempt *a, struct err *e)
{
	struct err made = ERR_INIT;
	int rc = 0;
	memset(a, 0, sizeof *a);
	if (comm_rank(c->group) == 0)
		rc = ckpt_attempt_name(c->state.step, c->generation, a, &made);
	if (ckpt_agree_result(c->group, rc, &made, e) ||
	    comm_broadcast(c->group, a, sizeof *a, COMM_U8, 0, e))
		return -1;
	a->name[sizeof a->name - 1] = '\0';
	if (!*a->name || strchr(a->name, '/'))
		return err_set(e, ERR_PROTO, "rank 0 sent %s as the name of an attempt", a->name);
	return ckpt_storage_join(a->path, sizeof a->path, c->dir, a->name, e);
}

/* Rank 0 writes the manifest to `text`, proven. */
static int make_manifest(const struct commit *c, const struct attempt *a, const char *all,
			 const size_t *counts, struct ckpt_report *report, struct buf *text,
			 struct err *e)
{
	struct manifest m;
	int culprit = -1;
	int rc = ckpt_commit_merge(c, a, all, counts, &m, &culprit, e) || ckpt_manifest_prove(&m, e)
			 ? -1
			 : 0;
	if (!rc)
		ckpt_manifest_write(&m, text);
	if (!rc && buf_failed(text))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to write its manifest", a->path);
	report->bytes = ckpt_manifest_bytes(&m);
	report->step = c->state.step;
	ckpt_manifest_fini(&m);
	return rc;
}

/* The manifest from rank 0 to all. */
static int share_text(struct comm *group, struct buf *text, struct err *e)
{
	int64_t n = (int64_t)text->len;
	struct err mine = ERR_INIT;
	if (comm_broadcast(group, &n, 1, COMM_I64, 0, e))
		return -1;
	char *to = comm_rank(group) == 0 ? text->data : buf_room(text, (size_t)n);
	int rc = to ? 0 : err_set(&mine, ERR_NOMEM, "no memory for a manifest");
	if (ckpt_agree_result(group, rc, &mine, e) ||
	    comm_broadcast(group, to, (size_t)n, COMM_U8, 0, e))
		return -1;
	text->len = (size_t)n;
	return 0;
}

/* On the leaders. A failed publication leaves the attempt, or an entry that is removed by its
 * path. */
static int publish(const struct commit *c, const struct attempt *a, const char *path,
		   const struct buf *text, struct err *e)
{
	char aside[PATH_MAX + 24];
	snprintf(aside, sizeof aside, "%s.%016" PRIx64, path, a->nonce);
	return c->storage->ops->commit(c->storage, a->path, path, aside, text->data, text->len, e);
}

struct local_commit {
	struct commit here; /* in the folder of this node */
	struct attempt attempt;
	bool leads, published;
	bool unknown; /* whether all nodes have published it: the group failed when they were asked */
	char path[PATH_MAX];
};

static int write_all(struct local_commit *l, struct ckpt_report *report, struct buf *text,
		     struct err *e)
{
	const struct commit *c = &l->here;
	struct err made = ERR_INIT, mine = ERR_INIT;
	char *all = NULL;
	size_t *counts = NULL;
	int rc = ckpt_commit_write(c, &l->attempt, &made, &all, &counts, e);
	if (!rc) {
		int first = comm_rank(c->group) == 0 ? make_manifest(c, &l->attempt, all, counts,
								     report, text, &mine)
						     : 0;
		rc = ckpt_agree_result(c->group, first, &mine, e) || share_text(c->group, text, e)
			     ? -1
			     : 0;
	}
	free(all);
	free(counts);
	return rc;
}

static int commit_all(struct local_commit *l, struct ckpt_report *report, struct err *e)
{
	const struct commit *c = &l->here;
	struct buf text = BUF_INIT;
	struct err mine = ERR_INIT;
	int rc = write_all(l, report, &text, e);
	if (!rc) {
		int own = l->leads ? publish(c, &l->attempt, l->path, &text, &mine) : 0, culprit;
		l->published = l->leads && !own;
		rc = ckpt_agree(c->group, own, &mine, &culprit, e);
		l->unknown = rc && culprit < 0;
	}
	buf_fini(&text);
	return rc;
}

/* Sets where this rank writes, and begins nothing. */
static int begin(struct local_commit *l, const struct commit *c, const struct ckpt_local *local,
		 struct err *e)
{
	char name[32];
	l->here = *c;
	l->here.still = c->still_local;
	l->here.dir = local->dir;
	l->here.storage = local->storage ? local->storage : ckpt_storage_of(local->dir);
	snprintf(name, sizeof name, "step-%08" PRId64, c->state.step);
	return ckpt_local_lead(c->group, local->node, &l->leads, e) ||
			       ckpt_storage_join(l->path, sizeof l->path, local->dir, name, e) ||
			       share_name(&l->here, &l->attempt, e)
		       ? -1
		       : 0;
}

/* On the leaders. If the result is not known, another node may have learned that all have published
 * it, and have removed what is older; so this one keeps both. */
static void tidy(const struct local_commit *l, const struct ckpt_local *local, int rc,
		 struct ckpt_report *report)
{
	const struct ckpt_storage *s = l->here.storage;
	struct err e = ERR_INIT;
	if (rc) {
		if (!l->published || !l->unknown)
			s->ops->remove(s, l->published ? l->path : l->attempt.path, NULL);
		return;
	}
	ckpt_local_prune(s, local->dir, local->keep, l->here.state.step, &e);
	ckpt_folder_remove_attempts(s, local->dir, l->here.generation, &e);
	snprintf(report->note, sizeof report->note, "%.255s", e.text);
}

int ckpt_local_commit(const struct commit *c, const struct ckpt_local *local,
		      struct ckpt_report *report, struct err *e)
{
	struct local_commit *l = calloc(1, sizeof *l);
	struct err mine = ERR_INIT;
	int rc = l ? 0 : err_set(&mine, ERR_NOMEM, "no memory to write a checkpoint");
	if (ckpt_agree_result(c->group, rc, &mine, e)) {
		free(l);
		return -1;
	}
	rc = begin(l, c, local, e);
	if (!rc) {
		rc = commit_all(l, report, e);
		snprintf(report->path, sizeof report->path, "%.1000s", l->path);
		if (l->leads)
			tidy(l, local, rc, report);
	}
	ckpt_still_settle(l->here.still, l->here.storage, rc ? NULL : l->path);
	free(l);
	if (rc)
		err_prefix(e, "checkpoint of step %" PRId64 " in %s", c->state.step, local->dir);
	return rc;
}
