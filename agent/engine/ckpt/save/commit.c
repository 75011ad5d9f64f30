#include "agent/engine/ckpt/save/commit.h"

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/places/folder.h"
#include "agent/engine/ckpt/save/still.h"
#include "agent/engine/ckpt/places/upload.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NAME = sizeof((struct attempt *)0)->name };

int ckpt_commit_share_result(struct comm *group, int from, int rc, struct err *e)
{
	struct err shared = ERR_INIT, lost = ERR_INIT;
	if (comm_rank(group) == from && rc)
		shared = *e;
	if (comm_broadcast(group, &shared, sizeof shared, COMM_U8, from, &lost)) {
		*e = lost;
		return -1;
	}
	shared.text[sizeof shared.text - 1] = '\0';
	if (shared.code == ERR_NONE)
		return 0;
	*e = shared;
	return -1;
}

bool ckpt_group_is_lost(enum err_code code)
{
	return code == ERR_ABORTED || code == ERR_PEER || code == ERR_NET || code == ERR_TIMEOUT;
}

/* --- step 1 --- */

int ckpt_attempt_name(int64_t step, uint32_t generation, struct attempt *a, struct err *e)
{
	memset(a, 0, sizeof *a);
	if (getrandom(&a->nonce, sizeof a->nonce, 0) != sizeof a->nonce)
		return err_errno(e, ERR_IO, "cannot draw a random number for the attempt's name");
	snprintf(a->name, NAME, ATTEMPT_PREFIX "%08" PRId64 "-%u-%016" PRIx64, step, generation,
		 a->nonce);
	return 0;
}

int ckpt_attempt_make(const struct ckpt_storage *s, const char *dir, int64_t step,
		      uint32_t generation, struct attempt *a, struct err *e)
{
	if (ckpt_attempt_name(step, generation, a, e))
		return -1;
	if (ckpt_storage_join(a->path, sizeof a->path, dir, a->name, e) ||
	    s->ops->begin(s, a->path, true, e)) {
		a->name[0] = '\0';
		return -1;
	}
	return 0;
}

/* *made: rank 0's own result, which it also reports to itself. Fails only if the group fails. */
static int share_attempt(const struct commit *c, struct attempt *a, struct err *made, struct err *e)
{
	memset(a, 0, sizeof *a);
	if (comm_rank(c->group) == 0)
		ckpt_attempt_make(c->storage, c->dir, c->state.step, c->generation, a, made);
	if (comm_broadcast(c->group, a->name, NAME, COMM_U8, 0, e))
		return -1;
	a->name[NAME - 1] = '\0';
	if (strchr(a->name, '/'))
		return err_set(e, ERR_PROTO, "rank 0 sent %s as the name of an attempt", a->name);
	snprintf(a->path, sizeof a->path, "%s/%s", c->dir, a->name);
	return 0;
}

/* --- steps 2 and 3 --- */

static int write_shard(const struct commit *c, const struct attempt *a, struct manifest *part,
		       struct err *e)
{
	const struct ckpt_storage *s = c->storage;
	if (c->snapshot->err.code != ERR_NONE) {
		*e = c->snapshot->err;
		return -1;
	}
	if (!a->name[0])
		return 0;
	if (s->ops->begin(s, a->path, false, e) ||
	    ckpt_still_write(c->still, c->snapshot, s, a->path, comm_rank(c->group), part, e))
		return -1;
	return c->snapshot->n && s->ops->sync ? s->ops->sync(s, a->path, e) : 0;
}

/* A rank reports one byte, an err_code, followed by the manifest of its shard or by the error's
 * text. */
static void write_report(const struct commit *c, const struct attempt *a, const struct err *made,
			 struct buf *out)
{
	struct err e = *made;
	struct manifest part;
	ckpt_manifest_init(&part, &c->state, c->generation, c->model, c->layout);
	if (e.code != ERR_NONE || write_shard(c, a, &part, &e)) {
		unsigned char code = (unsigned char)e.code;
		buf_add(out, &code, 1);
		buf_puts(out, e.text);
	} else {
		buf_add(out, "\0", 1);
		ckpt_manifest_write_as(&part, true, out); /* rank 0 reads those of all ranks */
	}
	if (buf_failed(out)) {
		static const char none[] = { ERR_NOMEM };
		buf_fini(out);
		buf_add(out, none, 1);
	}
	ckpt_manifest_fini(&part);
}

/* This rank has no memory for its report. It aborts the group, so that the others do not wait for
 * it inside the collective. */
static int abort_group(const struct commit *c, struct err *e)
{
	comm_abort(c->group, e->text);
	return -1;
}

/* Gathers the reports on rank 0, one after the other; counts[rank] bytes each. */
static int gather_reports(const struct commit *c, const struct buf *mine, char **all,
			  size_t **counts, struct err *e)
{
	int size = comm_size(c->group), rc = -1;
	size_t total = 0;
	int64_t len = (int64_t)mine->len, *lens = calloc((size_t)size, sizeof *lens);
	*counts = calloc((size_t)size, sizeof **counts);
	*all = NULL;
	if (!lens || !*counts) {
		err_set(e, ERR_NOMEM, "no memory for the reports of %d ranks", size);
		rc = abort_group(c, e);
		goto done;
	}
	if (comm_all_gather(c->group, &len, lens, 1, COMM_I64, e))
		goto done;
	for (int i = 0; i < size; i++)
		total += (*counts)[i] = (size_t)lens[i];
	if (comm_rank(c->group) == 0 && !(*all = malloc(total + 1))) {
		err_set(e, ERR_NOMEM, "no memory for %zu bytes of reports", total);
		rc = abort_group(c, e);
		goto done;
	}
	rc = comm_gatherv(c->group, mine->data, *all, *counts, COMM_U8, 0, e);
done:
	free(lens);
	return rc;
}

int ckpt_commit_write(const struct commit *c, const struct attempt *a, const struct err *made,
		      char **all, size_t **counts, struct err *e)
{
	struct buf mine = BUF_INIT;
	write_report(c, a, made, &mine);
	int rc = gather_reports(c, &mine, all, counts, e);
	buf_fini(&mine);
	return rc;
}

/* --- step 4, on rank 0 --- */

static int merge_report(struct manifest *m, int rank, const char *text, size_t n, struct err *e)
{
	char who[32];
	struct manifest part;
	snprintf(who, sizeof who, "rank %d", rank);
	if (n == 0)
		return err_set(e, ERR_PROTO, "%s sent an empty report of its shard", who);
	if (text[0])
		return err_set(e, (enum err_code)text[0], "%s: %.*s", who,
			       n > 1 ? (int)(n - 1) : -1,
			       n > 1 ? text + 1 : "no memory for its report");
	if (ckpt_manifest_parse(text + 1, n - 1, who, &part, e))
		return -1;
	int rc = ckpt_manifest_merge(m, &part, e);
	ckpt_manifest_fini(&part);
	return rc ? err_prefix(e, "%s", who) : 0;
}

static int check_expected(const struct commit *c, const struct manifest *m, struct err *e)
{
	for (int i = 0; i < c->n_expect; i++) {
		const struct ckpt_tensor *want = &c->expect[i];
		const struct manifest_tensor *have = ckpt_manifest_find(m, want->name);
		if (!have)
			return err_set(e, ERR_INTERNAL,
				       "tensor %.95s: no rank saved any part of it", want->name);
		if (have->dims != want->dims || have->shape[0] != want->shape[0] ||
		    (want->dims == 2 && have->shape[1] != want->shape[1]))
			return err_set(e, ERR_INTERNAL,
				       "tensor %.95s: the shape that was saved is not the model's",
				       want->name);
	}
	if (c->expect && m->n_tensors != c->n_expect)
		return err_set(e, ERR_INTERNAL,
			       "%" PRId64 " tensors were saved, but the model has %d", m->n_tensors,
			       c->n_expect);
	return 0;
}

int ckpt_attempt_publish(const struct ckpt_storage *s, const char *dir, const struct attempt *a,
			 const struct manifest *m, char path[1024], struct err *e)
{
	char name[32], aside[PATH_MAX];
	struct buf text = BUF_INIT;
	snprintf(name, sizeof name, "step-%08" PRId64, m->state.step);
	if (ckpt_manifest_prove(m, e) || ckpt_storage_join(path, 1024, dir, name, e))
		return -1;
	snprintf(aside, sizeof aside, "%s.%016" PRIx64, path, a->nonce);
	ckpt_manifest_write(m, &text);
	int rc = buf_failed(&text)
			 ? err_set(e, ERR_NOMEM, "%s: no memory to write its manifest", a->path)
			 : s->ops->commit(s, a->path, path, aside, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

int ckpt_commit_merge(const struct commit *c, const struct attempt *a, const char *all,
		      const size_t *counts, struct manifest *m, int *culprit, struct err *e)
{
	int rc = 0;
	ckpt_manifest_init(m, &c->state, c->generation, c->model, c->layout);
	for (int r = 0; r < comm_size(c->group) && !rc; r++) {
		rc = merge_report(m, r, all, counts[r], e);
		all += counts[r];
		if (rc)
			*culprit = r;
	}
	if (!rc)
		rc = check_expected(c, m, e) ||
		     (c->attached && ckpt_attached_write(c->attached, c->storage, a->path, m, e)) ||
		     (c->gate && c->gate->pass(c->gate->arg, c->state.step, e));
	return rc ? -1 : 0;
}

static int publish_checkpoint(const struct commit *c, const struct attempt *a, const char *all,
			      const size_t *counts, struct ckpt_report *report, int *culprit,
			      struct err *e)
{
	struct manifest m;
	int rc = ckpt_commit_merge(c, a, all, counts, &m, culprit, e) ||
				 ckpt_attempt_publish(c->storage, c->dir, a, &m, report->path, e)
			 ? -1
			 : 0;
	report->bytes = ckpt_manifest_bytes(&m);
	report->step = c->state.step;
	ckpt_manifest_fini(&m);
	return rc;
}

/* The steps that stay until they are copied to the remote place. */
struct needs {
	int64_t *steps, n;
};

static bool is_needed(const void *arg, const struct folder_entry *entry)
{
	const struct needs *needs = arg;
	for (int64_t i = 0; i < needs->n; i++)
		if (needs->steps[i] == entry->step)
			return true;
	return false;
}

static void prune(const struct commit *c, struct err *e)
{
	struct needs needs = { 0 };
	const struct folder_keep keep = { .last = c->keep,
					  .every = c->keep_every,
					  .committed = c->state.step,
					  .needs = is_needed,
					  .arg = &needs };
	if (c->uploads &&
	    ckpt_upload_needs(c->storage, c->dir, c->uploads, &needs.steps, &needs.n, e))
		return;
	ckpt_folder_prune(c->storage, c->dir, &keep, e);
	free(needs.steps);
}

static void remove_obsolete(const struct commit *c, const struct attempt *a, int rc,
			    struct ckpt_report *report)
{
	struct err e = ERR_INIT;
	if (rc && a->name[0])
		c->storage->ops->remove(c->storage, a->path, &e);
	if (rc)
		return;
	prune(c, &e);
	ckpt_folder_remove_attempts(c->storage, c->dir, c->generation, &e);
	snprintf(report->note, sizeof report->note, "%.255s", e.text);
}

/* The result of the commit and the rank that it depended on, from rank 0 to all. */
static int share_outcome(const struct commit *c, int rc, int *culprit, struct err *e)
{
	struct err lost = ERR_INIT;
	int32_t who = *culprit;
	*culprit = -1;
	if (comm_broadcast(c->group, &who, 1, COMM_I32, 0, &lost)) {
		*e = lost;
		return -1;
	}
	if (!ckpt_commit_share_result(c->group, 0, rc, e))
		return 0;
	*culprit = who;
	return -1;
}

static int commit_snapshots(const struct commit *c, struct ckpt_report *report, int *culprit,
			    struct err *e)
{
	struct attempt a;
	struct err made = ERR_INIT;
	char *all = NULL;
	size_t *counts = NULL;
	*culprit = -1;
	if (share_attempt(c, &a, &made, e))
		return -1;
	int rc = ckpt_commit_write(c, &a, &made, &all, &counts, e);
	if (!rc) {
		if (comm_rank(c->group) == 0) {
			*culprit = 0;
			rc = publish_checkpoint(c, &a, all, counts, report, culprit, e);
			if (rc)
				err_prefix(e, "checkpoint of step %" PRId64, c->state.step);
			remove_obsolete(c, &a, rc, report);
		}
		rc = share_outcome(c, rc, culprit, e);
	}
	free(all);
	free(counts);
	return rc;
}

int ckpt_commit_snapshots(const struct commit *c, struct ckpt_report *report, int *culprit,
			  struct err *e)
{
	char path[PATH_MAX];
	int rc = commit_snapshots(c, report, culprit, e);
	snprintf(path, sizeof path, "%.4000s/step-%08" PRId64, c->dir, c->state.step);
	ckpt_still_settle(c->still, c->storage, rc ? NULL : path);
	return rc;
}
