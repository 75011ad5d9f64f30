#include "agent/engine/ckpt/folder.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* "step-DIGITS", perhaps with a suffix behind a dot. */
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

/* Newest first; of one step, the plain name before a replaced one. */
static int by_step(const void *a, const void *b)
{
	const struct folder_entry *x = a, *y = b;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	return strcmp(x->name, y->name);
}

int ckpt_folder_list(const char *dir, struct folder_entry **out, int64_t *n, struct err *e)
{
	struct folder_entry *list = NULL, entry;
	int64_t count = 0;
	struct dirent *f;
	*out = NULL;
	*n = 0;
	DIR *d = opendir(dir);
	if (!d)
		return errno == ENOENT ? 0
				       : err_errno(e, ERR_IO, "%s: cannot open the folder", dir);
	while ((f = readdir(d))) {
		if (!parse_name(f->d_name, &entry))
			continue;
		struct folder_entry *more = realloc(list, (size_t)(count + 1) * sizeof *list);
		if (!more) {
			closedir(d);
			free(list);
			return err_set(e, ERR_NOMEM, "%s: no memory to list it", dir);
		}
		list = more;
		list[count++] = entry;
	}
	closedir(d);
	if (count)
		qsort(list, (size_t)count, sizeof *list, by_step);
	*out = list;
	*n = count;
	return 0;
}

int ckpt_folder_set_owner(const char *dir, const char *run, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	struct err none = ERR_INIT;
	int rc = 0;
	if (snprintf(path, sizeof path, "%s/RUN", dir) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", dir);
	if (file_slurp_own(path, PATH_MAX, &text, &none)) {
		rc = none.code == ERR_NOTFOUND ? file_replace(path, run, strlen(run), e)
					       : err_set(e, none.code, "%s", none.text);
	} else if (strcmp(buf_str(&text), run)) {
		rc = err_set(e, ERR_USAGE,
			     "%s holds the checkpoints of the run %s; give this one a "
			     "checkpoint.dir of its own (checkpoint.resume "
			     "may name one of these), or, when that run goes on under this name, "
			     "remove %s",
			     dir, buf_str(&text), path);
	}
	buf_fini(&text);
	return rc;
}

static int check_size(const char *folder, const char *name, int64_t size, const char *what,
		      struct err *e)
{
	char path[PATH_MAX];
	struct stat st;
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", folder);
	if (lstat(path, &st))
		return err_errno(e, errno == ENOENT ? ERR_CORRUPT : ERR_IO,
				 "%s: a %s of the checkpoint cannot be found", path, what);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_CORRUPT,
			       "%s: is %s; a checkpoint holds regular files only: copy the %s "
			       "itself there",
			       path, S_ISLNK(st.st_mode) ? "a symbolic link" : "no regular file",
			       what);
	if (st.st_size != size)
		return err_set(e, ERR_CORRUPT,
			       "%s: %lld bytes, the manifest says %" PRId64
			       ": the file was cut or replaced",
			       path, (long long)st.st_size, size);
	return 0;
}

int ckpt_folder_check_sizes(const char *folder, const struct manifest *m, struct err *e)
{
	for (int64_t i = 0; i < m->n_files; i++)
		if (check_size(folder, m->files[i].name, m->files[i].size, "shard", e))
			return -1;
	for (int i = 0; i < m->n_carried; i++)
		if (check_size(folder, m->carried[i].name, m->carried[i].size, "file", e))
			return -1;
	return 0;
}

int ckpt_folder_check(const char *dir, const struct folder_entry *entry, struct manifest *out,
		      struct err *e)
{
	char path[PATH_MAX];
	struct manifest m;
	if (snprintf(path, sizeof path, "%s/%s", dir, entry->name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", dir);
	if (ckpt_manifest_load(path, &m, e))
		return -1;
	int rc = m.state.step == entry->step
			 ? 0
			 : err_set(e, ERR_CORRUPT,
				   "%s: its manifest is of step %" PRId64
				   ": the folder was renamed or its manifest replaced",
				   path, m.state.step);
	if (rc || ckpt_folder_check_sizes(path, &m, e)) {
		ckpt_manifest_fini(&m);
		return -1;
	}
	*out = m;
	return 0;
}

static int remove_in(const struct ckpt_io *io, const char *dir, const char *name, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", dir);
	return ckpt_io_remove_folder(io, path, e);
}

/* Whether its writer is of `generation` or an earlier one, and so dead; commit.c makes the
 * names. */
static bool is_left(const char *name, uint32_t generation)
{
	int64_t step;
	uint32_t of;
	if (strncmp(name, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX)))
		return false;
	return sscanf(name + strlen(ATTEMPT_PREFIX), "%" SCNd64 "-%" SCNu32 "-", &step, &of) != 2 ||
	       of <= generation;
}

int ckpt_folder_remove_attempts(const struct ckpt_io *io, const char *dir, uint32_t generation,
				struct err *e)
{
	int rc = 0;
	struct dirent *f;
	DIR *d = opendir(dir);
	if (!d)
		return err_errno(e, ERR_IO, "%s: cannot open the folder", dir);
	while ((f = readdir(d)))
		if (is_left(f->d_name, generation))
			rc |= remove_in(io, dir, f->d_name, e);
	closedir(d);
	return rc;
}

static bool is_valid(const char *dir, const struct folder_entry *entry)
{
	struct manifest m;
	if (ckpt_folder_check(dir, entry, &m, NULL))
		return false;
	ckpt_manifest_fini(&m);
	return true;
}

/* 1: it stays and counts, 0: it stays but is damaged, -1: it goes. */
static int judge(const char *dir, const struct folder_entry *entry, int64_t kept, int64_t keep,
		 int64_t committed)
{
	if (entry->step == committed)
		return strchr(entry->name, '.') ? -1 : 1;
	if (keep > 0 && kept >= keep)
		return -1;
	return keep <= 0 || is_valid(dir, entry);
}

int ckpt_folder_prune(const struct ckpt_io *io, const char *dir, int64_t keep, int64_t committed,
		       struct err *e)
{
	struct folder_entry *list;
	int64_t n, kept = 0;
	int rc = 0;
	if (ckpt_folder_list(dir, &list, &n, e))
		return -1;
	for (int64_t i = 0; i < n; i++) {
		int verdict = judge(dir, &list[i], kept, keep, committed);
		if (verdict < 0)
			rc |= remove_in(io, dir, list[i].name, e);
		else
			kept += verdict;
	}
	free(list);
	return rc;
}
