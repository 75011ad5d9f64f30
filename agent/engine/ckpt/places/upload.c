/* upload: one checkpoint from a DIR to the remote place. */
#include "agent/engine/ckpt/places/upload.h"

#include "agent/engine/ckpt/ckpt.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a manifest: {"digest": "<32 hex digits>", */
enum { DIGEST_AT = 12, DIGEST_END = DIGEST_AT + UPLOADS_DIGEST - 1 };

struct upload {
	const struct upload_options *opt;
	const struct ckpt_storage *from, *to;
	struct upload_log log;
	struct folder_entry *list;
	bool *wanted, *there; /* there: it needs no copy */
	char (*digests)[UPLOADS_DIGEST];
	int64_t n;
};

/* The digest in the manifest's first line. */
static int read_digest(const struct ckpt_storage *s, const char *dir, const char *entry,
		       char out[UPLOADS_DIGEST], struct err *e)
{
	char folder[PATH_MAX], path[PATH_MAX], line[DIGEST_END];
	struct ckpt_file *f;
	struct digest parsed;
	if (ckpt_storage_join(folder, sizeof folder, dir, entry, e) ||
	    ckpt_storage_join(path, sizeof path, folder, MANIFEST_NAME, e) ||
	    s->ops->open(s, path, &f, e))
		return -1;
	int rc = f->size < DIGEST_END
			 ? err_set(e, ERR_CORRUPT, "%s: too short: the file was cut", path)
			 : s->ops->read(f, 0, line, DIGEST_END, e);
	s->ops->close(f);
	if (rc)
		return -1;
	memcpy(out, line + DIGEST_AT, UPLOADS_DIGEST - 1);
	out[UPLOADS_DIGEST - 1] = '\0';
	return ckpt_digest_parse(out, &parsed)
		       ? 0
		       : err_set(e, ERR_CORRUPT, "%s: its first line is not that of a manifest",
				 path);
}

static const struct upload_line *find_line(const struct upload_log *log, int64_t step,
					   const char *digest)
{
	for (int64_t i = 0; i < log->n; i++)
		if (log->lines[i].step == step && !strcmp(log->lines[i].digest, digest))
			return &log->lines[i];
	return NULL;
}

/* --- what is due --- */

void ckpt_upload_wanted(const struct upload_rules *rules, const struct folder_entry *list,
			int64_t n, bool *wanted)
{
	int64_t due = 0;
	for (int64_t i = 0; i < n; i++) {
		int64_t step = list[i].step;
		wanted[i] = false;
		/* One that is being replaced has its step twice. */
		if (strchr(list[i].name, '.') ||
		    (rules->every > 0 && step % rules->every && step != rules->last))
			continue;
		bool for_good = rules->keep_every > 0 && step % rules->keep_every == 0;
		wanted[i] = rules->keep <= 0 || due < rules->keep || for_good;
		due++;
	}
}

static int read_log(const struct ckpt_storage *s, const char *dir, struct upload_log *out,
		    struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	*out = (struct upload_log){ .uploading = -1 };
	if (ckpt_storage_join(path, sizeof path, dir, UPLOADS_NAME, e))
		return -1;
	int rc = ckpt_storage_read_whole(s, path, UPLOADS_BYTES, &text, NULL)
			 ? 0
			 : ckpt_upload_parse(text.data, text.len, out, e);
	buf_fini(&text);
	return rc;
}

int ckpt_upload_needs(const struct ckpt_storage *s, const char *dir,
		      const struct upload_rules *rules, int64_t **steps, int64_t *n, struct err *e)
{
	struct folder_entry *list;
	struct upload_log log;
	int64_t entries;
	*steps = NULL;
	*n = 0;
	if (ckpt_folder_list(s, dir, &list, &entries, e))
		return -1;
	bool *wanted = calloc((size_t)entries + 1, sizeof *wanted);
	*steps = calloc((size_t)entries + 1, sizeof **steps);
	if (!wanted || !*steps || read_log(s, dir, &log, e)) {
		free(wanted);
		free(*steps);
		free(list);
		*steps = NULL;
		return err_set(e, ERR_NOMEM, "%s: no memory for a list of %" PRId64 " checkpoints",
			       dir, entries);
	}
	ckpt_upload_wanted(rules, list, entries, wanted);
	for (int64_t i = 0; i < entries; i++) {
		char digest[UPLOADS_DIGEST] = "";
		bool known = wanted[i] && !read_digest(s, dir, list[i].name, digest, NULL) &&
			     find_line(&log, list[i].step, digest);
		if ((wanted[i] && !known) || list[i].step == log.uploading)
			(*steps)[(*n)++] = list[i].step;
	}
	ckpt_upload_log_fini(&log);
	free(wanted);
	free(list);
	return 0;
}

/* --- the file UPLOADS --- */

/* Lines of what is not in DIR any more are dropped. */
static int write_log(const struct upload *u, int64_t uploading, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	if (ckpt_storage_join(path, sizeof path, u->opt->dir, UPLOADS_NAME, e))
		return -1;
	if (uploading >= 0)
		buf_printf(&text, "uploading %" PRId64 "\n", uploading);
	for (int64_t i = 0; i < u->n; i++) {
		const struct upload_line *l = find_line(&u->log, u->list[i].step, u->digests[i]);
		if (u->there[i])
			buf_printf(&text, "%s %" PRId64 " %s\n",
				   l && l->damaged ? "damaged" : "done", u->list[i].step,
				   u->digests[i]);
	}
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path)
				   : u->from->ops->put(u->from, path, buf_str(&text), text.len, e);
	buf_fini(&text);
	return rc;
}

static int add_line(struct upload_log *log, int64_t step, const char *digest, bool damaged,
		    struct err *e)
{
	struct upload_line *more = realloc(log->lines, (size_t)(log->n + 1) * sizeof *more);
	if (!more)
		return err_set(e, ERR_NOMEM, "no memory for a list of %" PRId64 " uploads",
			       log->n + 1);
	log->lines = more;
	more[log->n] = (struct upload_line){ .step = step, .damaged = damaged };
	snprintf(more[log->n++].digest, UPLOADS_DIGEST, "%s", digest);
	return 0;
}

static int64_t parse_step(const char *text, const char **end)
{
	size_t digits = strspn(text, "0123456789");
	*end = text + digits;
	return digits && digits <= 18 ? strtoll(text, NULL, 10) : -1;
}

static int parse_line(const char *line, struct upload_log *out, struct err *e)
{
	const char *rest = line;
	struct digest parsed;
	bool damaged = !strncmp(line, "damaged ", 8), done = !strncmp(line, "done ", 5);
	if (!strncmp(line, "uploading ", 10)) {
		int64_t step = parse_step(line + 10, &rest);
		out->uploading = *rest ? out->uploading : step;
		return 0;
	}
	if (!damaged && !done)
		return 0;
	int64_t step = parse_step(line + (damaged ? 8 : 5), &rest);
	if (step < 0 || *rest != ' ' || !ckpt_digest_parse(rest + 1, &parsed))
		return 0;
	return add_line(out, step, rest + 1, damaged, e);
}

int ckpt_upload_parse(const char *text, size_t n, struct upload_log *out, struct err *e)
{
	const char *end = text + n;
	int rc = 0;
	*out = (struct upload_log){ .uploading = -1 };
	while (text < end && !rc) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t length = (size_t)((stop ? stop : end) - text);
		char line[80];
		snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : 0), text);
		rc = parse_line(line, out, e);
		text += length + 1;
	}
	if (rc)
		ckpt_upload_log_fini(out);
	return rc;
}

void ckpt_upload_log_fini(struct upload_log *log)
{
	free(log->lines);
	*log = (struct upload_log){ .uploading = -1 };
}

/* --- one upload --- */

static int visit_remote(void *arg, const char *name, struct err *e)
{
	struct upload *u = arg;
	(void)e;
	for (int64_t i = 0; i < u->n; i++)
		if (!strcmp(u->list[i].name, name) &&
		    find_line(&u->log, u->list[i].step, u->digests[i]))
			u->there[i] = true;
	return 0;
}

/* Sets what is wanted and what is there. What the log names counts only if the remote place still
 * has it, or if it is damaged. */
static int look_around(struct upload *u, struct err *e)
{
	const struct upload_options *o = u->opt;
	if (ckpt_folder_list(u->from, o->dir, &u->list, &u->n, e) ||
	    read_log(u->from, o->dir, &u->log, e))
		return -1;
	size_t n = (size_t)u->n + 1;
	u->wanted = calloc(n, sizeof *u->wanted);
	u->there = calloc(n, sizeof *u->there);
	u->digests = calloc(n, sizeof *u->digests);
	if (!u->wanted || !u->there || !u->digests)
		return err_set(e, ERR_NOMEM, "%s: no memory for a list of %" PRId64 " checkpoints",
			       o->dir, u->n);
	ckpt_upload_wanted(&o->rules, u->list, u->n, u->wanted);
	for (int64_t i = 0; i < u->n; i++) {
		/* One without a manifest is damaged, or was removed just now. */
		if (u->wanted[i] &&
		    read_digest(u->from, o->dir, u->list[i].name, u->digests[i], NULL))
			u->wanted[i] = false;
		const struct upload_line *l = find_line(&u->log, u->list[i].step, u->digests[i]);
		u->there[i] = l && l->damaged;
	}
	return u->to->ops->list(u->to, o->remote, visit_remote, u, e);
}

static int64_t count_left(const struct upload *u)
{
	int64_t left = 0;
	for (int64_t i = 0; i < u->n; i++)
		left += u->wanted[i] && !u->there[i];
	return left;
}

/* The checkpoint was removed while it was read. */
static bool is_gone(const struct upload *u, int64_t i)
{
	struct err e = ERR_INIT;
	return !ckpt_storage_has(u->from, u->opt->dir, u->list[i].name, &e) && e.code == ERR_NONE;
}

/* Removes what the remote place does not keep. An interrupted copy of a step that is not wanted any
 * more goes, too. */
static void tidy_remote(const struct upload *u, int64_t step, struct upload_result *result)
{
	const struct upload_rules *r = &u->opt->rules;
	const struct folder_keep keep = { .last = r->keep,
					  .every = r->keep_every,
					  .committed = step };
	struct err e = ERR_INIT;
	ckpt_folder_prune(u->to, u->opt->remote, &keep, &e);
	ckpt_folder_remove_attempts(u->to, u->opt->remote, UINT32_MAX, &e);
	snprintf(result->note, sizeof result->note, "%.255s", e.text);
}

/* ERR_CORRUPT means to the caller that the original is damaged. */
static int fail_remote(struct err *e)
{
	if (e->code == ERR_CORRUPT)
		e->code = ERR_IO;
	return -1;
}

/* ERR_CORRUPT of a copy may also mean that the remote place changed the bytes. */
static bool is_damaged(const char *path)
{
	struct err why = ERR_INIT;
	return ckpt_verify(path, &why) && why.code == ERR_CORRUPT;
}

static int copy_entry(struct upload *u, int64_t i, struct upload_result *result, struct err *e)
{
	const struct upload_options *o = u->opt;
	char path[PATH_MAX];
	const struct ckpt_copy_options copy = { .bytes_per_s = o->bytes_per_s,
						.replace = true,
						.cancel = o->cancel,
						.result = &result->copy };
	if (ckpt_storage_join(path, sizeof path, o->dir, u->list[i].name, e) ||
	    write_log(u, u->list[i].step, e))
		return -1;
	int rc = ckpt_copy(path, o->remote, &copy, e);
	if (rc && e->code == ERR_CORRUPT && is_gone(u, i))
		return err_set(e, ERR_NOTFOUND, "%s: it was removed while it was copied", path);
	bool damaged = rc && e->code == ERR_CORRUPT && is_damaged(path);
	if (rc && !damaged)
		return fail_remote(e);
	if (add_line(&u->log, u->list[i].step, u->digests[i], damaged, rc ? NULL : e))
		return -1;
	u->there[i] = true;
	if (!rc)
		tidy_remote(u, u->list[i].step, result);
	return write_log(u, -1, rc ? NULL : e) || rc ? -1 : 0;
}

/* The newest one first: it is worth most. */
static int upload_next(struct upload *u, struct upload_result *result, struct err *e)
{
	for (int64_t i = 0; i < u->n; i++) {
		if (!u->wanted[i] || u->there[i])
			continue;
		result->left = count_left(u);
		int rc = copy_entry(u, i, result, e);
		result->left = count_left(u);
		return rc ? -1 : 1;
	}
	result->left = 0;
	return write_log(u, -1, e);
}

static void close_upload(struct upload *u)
{
	ckpt_upload_log_fini(&u->log);
	free(u->list);
	free(u->wanted);
	free(u->there);
	free(u->digests);
}

int ckpt_upload_one(const struct upload_options *opt, struct upload_result *result, struct err *e)
{
	struct upload u = { .opt = opt,
			    .from = ckpt_storage_of(opt->dir),
			    .to = ckpt_storage_of(opt->remote) };
	*result = (struct upload_result){ .left = -1 };
	if (u.to->ops->prepare(u.to, opt->remote, e) ||
	    ckpt_folder_set_owner(u.to, opt->remote, opt->owner, "checkpoint.remote", e))
		return fail_remote(e);
	int rc = look_around(&u, e) ? -1 : upload_next(&u, result, e);
	close_upload(&u);
	return rc;
}
