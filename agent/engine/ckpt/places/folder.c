#include "agent/engine/ckpt/places/folder.h"

#include "agent/engine/ckpt/places/hold.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of entries that grows. */
struct entry_list {
	struct folder_entry *entries;
	int64_t n;
	uint32_t generation; /* attempts of this generation and of earlier ones are collected */
};

static int append_entry(struct entry_list *l, const struct folder_entry *entry, struct err *e)
{
	struct folder_entry *more = realloc(l->entries, (size_t)(l->n + 1) * sizeof *more);
	if (!more)
		return err_set(e, ERR_NOMEM, "no memory for a list of %" PRId64 " checkpoints",
			       l->n + 1);
	l->entries = more;
	l->entries[l->n++] = *entry;
	return 0;
}

/* A DIR that does not exist is empty. */
static int list_entries(const struct ckpt_storage *s, const char *dir, ckpt_storage_visit *collect,
			struct entry_list *l, struct err *e)
{
	struct err why = ERR_INIT;
	if (!s->ops->list(s, dir, collect, l, &why) || why.code == ERR_NOTFOUND)
		return 0;
	free(l->entries);
	*l = (struct entry_list){ 0 };
	return err_set(e, why.code, "%s", why.text);
}

/* "step-DIGITS", or "step-DIGITS.SUFFIX". */
static bool parse_name(const char *name, struct folder_entry *out)
{
	size_t digits = strncmp(name, "step-", 5) ? 0 : strspn(name + 5, "0123456789");
	if (digits == 0 || digits > 18 || (name[5 + digits] != '\0' && name[5 + digits] != '.'))
		return false;
	if (strlen(name) >= sizeof out->name)
		return false;
	strcpy(out->name, name);
	out->step = strtoll(name + 5, NULL, 10);
	return true;
}

static int collect_checkpoint(void *arg, const char *name, struct err *e)
{
	struct folder_entry entry;
	return parse_name(name, &entry) ? append_entry(arg, &entry, e) : 0;
}

/* Orders the highest step first. Of one step, the plain name comes before a replaced checkpoint. */
static int compare_entries(const void *a, const void *b)
{
	const struct folder_entry *x = a, *y = b;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	return strcmp(x->name, y->name);
}

int ckpt_folder_list(const struct ckpt_storage *s, const char *dir, struct folder_entry **out,
		     int64_t *n, struct err *e)
{
	struct entry_list l = { 0 };
	if (list_entries(s, dir, collect_checkpoint, &l, e))
		return -1;
	if (l.n)
		qsort(l.entries, (size_t)l.n, sizeof *l.entries, compare_entries);
	*out = l.entries;
	*n = l.n;
	return 0;
}

static int settle_owner(const struct ckpt_storage *s, const char *dir, const char *run,
			const char *key, bool set, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = 0;
	if (ckpt_storage_join(path, sizeof path, dir, "RUN", e))
		return -1;
	if (ckpt_storage_read_whole(s, path, PATH_MAX, &text, &why))
		rc = why.code == ERR_NOTFOUND ? set ? s->ops->put(s, path, run, strlen(run), e) : 0
					      : err_set(e, why.code, "%s", why.text);
	else if (strcmp(buf_str(&text), run))
		rc = err_set(e, ERR_USAGE,
			     "%s holds the checkpoints of the run %s; set %s to "
			     "another folder (checkpoint.resume may name one of these "
			     "checkpoints), or, if that run continues under this name, remove %s",
			     dir, buf_str(&text), key, path);
	buf_fini(&text);
	return rc;
}

int ckpt_folder_set_owner(const struct ckpt_storage *s, const char *dir, const char *run,
			  const char *key, struct err *e)
{
	return settle_owner(s, dir, run, key, true, e);
}

int ckpt_folder_check_owner(const struct ckpt_storage *s, const char *dir, const char *run,
			    const char *key, struct err *e)
{
	return settle_owner(s, dir, run, key, false, e);
}

static int check_size(const struct ckpt_storage *s, const char *folder, const char *name,
		      int64_t size, const char *what, struct err *e)
{
	char path[PATH_MAX];
	int64_t found;
	struct err why = ERR_INIT;
	if (ckpt_storage_join(path, sizeof path, folder, name, e))
		return -1;
	if (s->ops->size(s, path, &found, &why))
		return why.code == ERR_NOTFOUND
			       ? err_set(e, ERR_CORRUPT,
					 "%s: a %s of the checkpoint cannot be found", path, what)
			       : err_set(e, why.code, "%s", why.text);
	if (found != size)
		return err_set(e, ERR_CORRUPT,
			       "%s: has %" PRId64 " bytes, but the manifest says %" PRId64
			       ": the file was truncated or replaced",
			       path, found, size);
	return 0;
}

int ckpt_folder_check_sizes(const struct ckpt_storage *s, const char *path,
			    const struct manifest *m, struct err *e)
{
	for (int64_t i = 0; i < m->n_files; i++)
		if (check_size(s, path, m->files[i].name, m->files[i].size, "shard", e))
			return -1;
	for (int i = 0; i < m->n_attached; i++)
		if (check_size(s, path, m->attached[i].name, m->attached[i].size, "file", e))
			return -1;
	return 0;
}

int ckpt_folder_check(const struct ckpt_storage *s, const char *dir,
		      const struct folder_entry *entry, struct manifest *out, struct err *e)
{
	char path[PATH_MAX];
	struct manifest m;
	if (ckpt_storage_join(path, sizeof path, dir, entry->name, e) ||
	    ckpt_manifest_load_from(s, path, &m, e))
		return -1;
	int rc = 0;
	if (m.state.step != entry->step)
		rc = err_set(e, ERR_CORRUPT,
			     "%s: its manifest is of step %" PRId64
			     ": the folder was renamed or its manifest replaced",
			     path, m.state.step);
	if (rc || ckpt_folder_check_sizes(s, path, &m, e)) {
		ckpt_manifest_fini(&m);
		return -1;
	}
	*out = m;
	return 0;
}

static int remove_entry(const struct ckpt_storage *s, const char *dir, const char *name,
			struct err *e)
{
	char path[PATH_MAX];
	if (ckpt_storage_join(path, sizeof path, dir, name, e))
		return -1;
	return s->ops->remove(s, path, e);
}

/* A checkpoint that is being read stays until the next time. */
static int remove_unread(const struct ckpt_storage *s, const char *dir, const char *name,
			 struct err *e)
{
	char path[PATH_MAX];
	struct ckpt_hold hold;
	if (ckpt_storage_join(path, sizeof path, dir, name, e))
		return -1;
	if (!ckpt_hold_take(&hold, path, CKPT_HOLD_REMOVE))
		return 0;
	int rc = s->ops->remove(s, path, e);
	ckpt_hold_release(&hold);
	return rc;
}

/* commit.c makes the names: .attempt-STEP-GENERATION-NONCE. The writer of an attempt of
 * `generation` or of an earlier one is dead. */
static bool is_abandoned(const char *name, uint32_t generation)
{
	int64_t step;
	uint32_t of;
	if (strncmp(name, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX)))
		return false;
	return sscanf(name + strlen(ATTEMPT_PREFIX), "%" SCNd64 "-%" SCNu32 "-", &step, &of) != 2 ||
	       of <= generation;
}

static int collect_abandoned(void *arg, const char *name, struct err *e)
{
	struct entry_list *l = arg;
	struct folder_entry entry = { .step = 0 };
	if (!is_abandoned(name, l->generation))
		return 0;
	snprintf(entry.name, sizeof entry.name, "%.*s", (int)sizeof entry.name - 1, name);
	return append_entry(l, &entry, e);
}

int ckpt_folder_remove_attempts(const struct ckpt_storage *s, const char *dir, uint32_t generation,
				struct err *e)
{
	struct entry_list l = { .generation = generation };
	int rc = 0;
	if (list_entries(s, dir, collect_abandoned, &l, e))
		return -1;
	for (int64_t i = 0; i < l.n; i++)
		rc |= remove_entry(s, dir, l.entries[i].name, e);
	free(l.entries);
	return rc;
}

static bool is_valid(const struct ckpt_storage *s, const char *dir,
		     const struct folder_entry *entry)
{
	struct manifest m;
	if (ckpt_folder_check(s, dir, entry, &m, NULL))
		return false;
	ckpt_manifest_fini(&m);
	return true;
}

int ckpt_folder_sweep(const struct ckpt_storage *s, const char *dir, const struct folder_judge *j,
		      struct err *e)
{
	int (*take_out)(const struct ckpt_storage *, const char *, const char *,
			struct err *) = j->spares_readers ? remove_unread : remove_entry;
	struct folder_entry *list;
	int64_t n, counted = 0;
	int rc = 0;
	if (ckpt_folder_list(s, dir, &list, &n, e))
		return -1;
	for (int64_t i = 0; i < n; i++) {
		enum folder_verdict v = j->judge(j->arg, &list[i], counted);
		if (v == FOLDER_GOES)
			rc |= take_out(s, dir, list[i].name, e);
		counted += v == FOLDER_COUNTS;
	}
	free(list);
	return rc;
}

struct prune {
	const struct ckpt_storage *storage;
	const char *dir;
	const struct folder_keep *keep;
};

/* Kept whatever its age. */
static bool is_needed(const struct folder_keep *keep, const struct folder_entry *entry)
{
	if (keep->every > 0 && entry->step > 0 && entry->step % keep->every == 0)
		return true;
	return keep->needs && keep->needs(keep->arg, entry);
}

/* The valid checkpoints count. */
static enum folder_verdict judge_by_age(const void *arg, const struct folder_entry *entry,
					int64_t counted)
{
	const struct prune *p = arg;
	const struct folder_keep *keep = p->keep;
	if (entry->step == keep->committed)
		return strchr(entry->name, '.') ? FOLDER_GOES : FOLDER_COUNTS;
	if (keep->last > 0 && counted >= keep->last)
		return is_needed(keep, entry) ? FOLDER_COUNTS : FOLDER_GOES;
	return keep->last <= 0 || is_valid(p->storage, p->dir, entry) ? FOLDER_COUNTS
								      : FOLDER_STAYS;
}

int ckpt_folder_prune(const struct ckpt_storage *s, const char *dir, const struct folder_keep *keep,
		      struct err *e)
{
	const struct prune p = { s, dir, keep };
	const struct folder_judge by_age = { judge_by_age, &p, .spares_readers = true };
	return ckpt_folder_sweep(s, dir, &by_age, e);
}
