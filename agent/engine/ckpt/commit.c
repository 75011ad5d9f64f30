#include "agent/engine/ckpt/commit.h"

#include "agent/engine/ckpt/carry.h"
#include "agent/engine/ckpt/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NAME = sizeof((struct attempt *)0)->name };

int ckpt_commit_share_result(struct comm *group, int rc, struct err *e)
{
	struct err told = ERR_INIT, lost = ERR_INIT;
	if (comm_rank(group) == 0 && rc)
		told = *e;
	if (comm_broadcast(group, &told, sizeof told, COMM_U8, 0, &lost)) {
		*e = lost;
		return -1;
	}
	told.text[sizeof told.text - 1] = '\0';
	if (told.code == ERR_NONE)
		return 0;
	*e = told;
	return -1;
}

/* --- step 1 --- */

int ckpt_attempt_make(const struct ckpt_io *io, const char *dir, int64_t step, uint32_t generation,
		      struct attempt *a, struct err *e)
{
	memset(a, 0, sizeof *a);
	if (getrandom(&a->nonce, sizeof a->nonce, 0) != sizeof a->nonce)
		return err_errno(e, ERR_IO, "cannot draw a random number for the attempt's name");
	snprintf(a->name, NAME, ATTEMPT_PREFIX "%08" PRId64 "-%u-%016" PRIx64, step, generation,
		 a->nonce);
	if (snprintf(a->path, sizeof a->path, "%s/%s", dir, a->name) >= (int)sizeof a->path) {
		a->name[0] = '\0';
		return err_set(e, ERR_IO, "%s: the path is too long", dir);
	}
	if (io->mkdir(a->path, 0700)) {
		err_errno(e, ERR_IO, "%s: cannot make the folder", a->path);
		a->name[0] = '\0';
		return -1;
	}
	return 0;
}

/* *made: rank 0's own result, for the report to itself. Fails only when the group does. */
static int begin(const struct commit *c, struct attempt *a, struct err *made, struct err *e)
{
	memset(a, 0, sizeof *a);
	if (comm_rank(c->group) == 0)
		ckpt_attempt_make(c->io, c->dir, c->state.step, c->generation, a, made);
	if (comm_broadcast(c->group, a->name, NAME, COMM_U8, 0, e))
		return -1;
	a->name[NAME - 1] = '\0';
	if (strchr(a->name, '/'))
		return err_set(e, ERR_PROTO, "rank 0 names an attempt %s", a->name);
	snprintf(a->path, sizeof a->path, "%s/%s", c->dir, a->name);
	return 0;
}

/* --- steps 2 and 3 --- */

static int write_part(const struct commit *c, const struct attempt *a, struct manifest *part,
		      struct err *e)
{
	if (c->snapshot->err.code != ERR_NONE) {
		*e = c->snapshot->err;
		return -1;
	}
	if (!a->name[0])
		return 0;
	if (c->io->mkdir(a->path, 0700) && errno != EEXIST)
		return err_errno(e, ERR_IO, "%s: cannot make the folder", a->path);
	if (ckpt_snapshot_write(c->snapshot, c->io, a->path, comm_rank(c->group), part, e))
		return -1;
	return c->snapshot->n ? ckpt_io_sync_dir(c->io, a->path, e) : 0;
}

/* What a rank reports: one byte, an err_code; then the manifest of its shard, or the error's
 * text. */
static void report_part(const struct commit *c, const struct attempt *a, const struct err *made,
			struct buf *out)
{
	struct err e = *made;
	struct manifest part;
	ckpt_manifest_init(&part, &c->state, c->generation, c->model, c->layout);
	if (e.code != ERR_NONE || write_part(c, a, &part, &e)) {
		unsigned char code = (unsigned char)e.code;
		buf_add(out, &code, 1);
		buf_puts(out, e.text);
	} else {
		buf_add(out, "\0", 1);
		ckpt_manifest_write(&part, out);
	}
	if (buf_failed(out)) {
		static const char none[] = { ERR_NOMEM };
		buf_fini(out);
		buf_add(out, none, 1);
	}
	ckpt_manifest_fini(&part);
}

/* No memory on this rank alone: the others must not wait for it inside the collective. */
static int fail_all(const struct commit *c, struct err *e)
{
	comm_abort(c->group, e->text);
	return -1;
}

/* Everybody's reports, one behind the other, on rank 0; counts[rank] bytes each. */
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
		rc = fail_all(c, e);
		goto done;
	}
	if (comm_all_gather(c->group, &len, lens, 1, COMM_I64, e))
		goto done;
	for (int i = 0; i < size; i++)
		total += (*counts)[i] = (size_t)lens[i];
	if (comm_rank(c->group) == 0 && !(*all = malloc(total + 1))) {
		err_set(e, ERR_NOMEM, "no memory for %zu bytes of reports", total);
		rc = fail_all(c, e);
		goto done;
	}
	rc = comm_gatherv(c->group, mine->data, *all, *counts, COMM_U8, 0, e);
done:
	free(lens);
	return rc;
}

/* --- step 4, on rank 0 --- */

static int add_report(struct manifest *m, int rank, const char *text, size_t n, struct err *e)
{
	char who[32];
	struct manifest part;
	snprintf(who, sizeof who, "rank %d", rank);
	if (n == 0)
		return err_set(e, ERR_PROTO, "%s sent an empty report of its shard", who);
	if (text[0])
		return err_set(e, (enum err_code)text[0], "%s: %.*s", who, n > 1 ? (int)(n - 1) : 9,
			       n > 1 ? text + 1 : "no memory");
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
			return err_set(e, ERR_INTERNAL, "tensor %.95s: no rank gave a part of it",
				       want->name);
		if (have->dims != want->dims || have->shape[0] != want->shape[0] ||
		    (want->dims == 2 && have->shape[1] != want->shape[1]))
			return err_set(
				e, ERR_INTERNAL,
				"tensor %.95s: it was given with another shape than the model's",
				want->name);
	}
	if (c->expect && m->n_tensors != c->n_expect)
		return err_set(e, ERR_INTERNAL, "%" PRId64 " tensors were given, the model has %d",
			       m->n_tensors, c->n_expect);
	return 0;
}

static int put_manifest(const struct ckpt_io *io, const struct attempt *a, const struct manifest *m,
			struct err *e)
{
	char path[PATH_MAX], tmp[PATH_MAX];
	struct buf text = BUF_INIT;
	if (snprintf(path, sizeof path, "%s/" MANIFEST_NAME, a->path) >= (int)sizeof path ||
	    snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
		return err_set(e, ERR_IO, "%s: the path is too long", a->path);
	ckpt_manifest_write(m, &text);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path)
				   : ckpt_io_write_file(io, tmp, text.data, text.len, e);
	if (!rc && ckpt_io_rename(io, tmp, path))
		rc = err_errno(e, ERR_IO, "%s: cannot rename to %s", tmp, path);
	if (!rc)
		rc = ckpt_io_sync_dir(io, a->path, e);
	buf_fini(&text);
	return rc;
}

static int publish(const struct ckpt_io *io, const char *dir, int64_t step, const struct attempt *a,
		   char path[1024], struct err *e)
{
	char aside[PATH_MAX];
	if (snprintf(path, 1024, "%s/step-%08" PRId64, dir, step) >= 1024 ||
	    snprintf(aside, sizeof aside, "%s.%016" PRIx64, path, a->nonce) >= (int)sizeof aside)
		return err_set(e, ERR_IO, "%s: the path is too long", dir);
	int rc = ckpt_io_rename(io, a->path, path);
	if (rc && (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)) {
		if (ckpt_io_rename(io, path, aside))
			return err_errno(e, ERR_IO, "%s: cannot rename to %s", path, aside);
		rc = ckpt_io_rename(io, a->path, path);
		if (rc) {
			err_errno(e, ERR_IO, "%s: cannot rename to %s", a->path, path);
			ckpt_io_rename(io, aside, path);
			return -1;
		}
	}
	if (rc)
		return err_errno(e, ERR_IO, "%s: cannot rename to %s", a->path, path);
	return ckpt_io_sync_dir(io, dir, e);
}

int ckpt_attempt_publish(const struct ckpt_io *io, const char *dir, const struct attempt *a,
			 const struct manifest *m, char path[1024], struct err *e)
{
	return ckpt_manifest_prove(m, e) || put_manifest(io, a, m, e) ||
			       publish(io, dir, m->state.step, a, path, e)
		       ? -1
		       : 0;
}

static int finish(const struct commit *c, const struct attempt *a, const char *all,
		  const size_t *counts, struct ckpt_report *report, struct err *e)
{
	struct manifest m;
	int rc = 0;
	ckpt_manifest_init(&m, &c->state, c->generation, c->model, c->layout);
	for (int r = 0; r < comm_size(c->group) && !rc; r++) {
		rc = add_report(&m, r, all, counts[r], e);
		all += counts[r];
	}
	if (!rc)
		rc = check_expected(c, &m, e) ||
		     (c->carry && ckpt_attached_write(c->carry, c->io, a->path, &m, e)) ||
		     (c->gate && c->gate->pass(c->gate->arg, c->state.step, e)) ||
		     ckpt_attempt_publish(c->io, c->dir, a, &m, report->path, e);
	report->bytes = ckpt_manifest_bytes(&m);
	report->step = c->state.step;
	ckpt_manifest_fini(&m);
	return rc ? -1 : 0;
}

static void clean_up(const struct commit *c, const struct attempt *a, int rc,
		     struct ckpt_report *report)
{
	struct err e = ERR_INIT;
	if (rc && a->name[0])
		ckpt_io_remove_folder(c->io, a->path, &e);
	if (rc)
		return;
	ckpt_folder_prune(c->io, c->dir, c->keep, c->state.step, &e);
	ckpt_folder_remove_attempts(c->io, c->dir, c->generation, &e);
	snprintf(report->note, sizeof report->note, "%.255s", e.text);
}

int ckpt_commit_snapshots(const struct commit *c, struct ckpt_report *report, struct err *e)
{
	struct attempt a;
	struct err made = ERR_INIT;
	struct buf mine = BUF_INIT;
	char *all = NULL;
	size_t *counts = NULL;
	if (begin(c, &a, &made, e))
		return -1;
	report_part(c, &a, &made, &mine);
	int rc = gather_reports(c, &mine, &all, &counts, e);
	if (!rc) {
		if (comm_rank(c->group) == 0) {
			rc = finish(c, &a, all, counts, report, e);
			if (rc)
				err_prefix(e, "checkpoint of step %" PRId64, c->state.step);
			clean_up(c, &a, rc, report);
		}
		rc = ckpt_commit_share_result(c->group, rc, e);
	}
	free(all);
	free(counts);
	buf_fini(&mine);
	return rc;
}
