#include "launcher/rundir/thin.h"

#include "base/file.h"
#include "base/segments.h"
#include "launcher/rundir/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPLIT_MOST = 64 << 20, SPLIT_LEAST = 4096, HEAD_BYTES = 512 };

static const struct {
	const char *name;
	int share;
} files[] = {
#define FILE_ROW(ENUM, file_name, file_share) { file_name, file_share },
	RUNDIR_FILES(FILE_ROW)
#undef FILE_ROW
};

const char *rundir_thin_name(enum rundir_file file)
{
	return files[file].name;
}

off_t rundir_thin_split(enum rundir_file file, int64_t keep)
{
	int64_t split = keep / files[file].share / 8;
	return split > SPLIT_MOST ? SPLIT_MOST : split < SPLIT_LEAST ? SPLIT_LEAST : split;
}

/* --- One segment --- */

/* Opens and locks the segment; on NFS only who may write can lock. Returns -1 without an error in *e
 * if another process thins it or has replaced it. */
static int open_segment(const char *path, struct err *e)
{
	struct stat a, b;
	int fd = file_open(path, O_RDWR, FILE_OWN, e);
	if (fd < 0)
		return -1;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &a) && !stat(path, &b) &&
	    a.st_ino == b.st_ino && a.st_dev == b.st_dev)
		return fd;
	close(fd);
	return -1;
}

/* A line of the segment that was read, with its newline. */
struct line {
	char *text;
	size_t room;
	ssize_t n; /* without the newline; -1: the end */
};

static void next_line(FILE *in, struct line *l)
{
	l->n = getline(&l->text, &l->room, in);
	if (l->n > 0 && l->text[l->n - 1] == '\n')
		l->n--;
}

/* Writes the head of the new segment. A segment of an older muster, without a head, gets one. */
static int write_head(enum rundir_file file, int level, const struct line *first, bool *is_head,
		      FILE *out)
{
	char format[64];
	struct rundir_head h;
	json_t *doc = NULL;
	*is_head = first->n > 0 && rundir_head_read(first->text, (size_t)first->n, &h, &doc);
	if (!*is_head) {
		snprintf(format, sizeof format, "muster/%.*s", (int)strcspn(files[file].name, "."),
			 files[file].name);
		h = (struct rundir_head){ .format = format, .version = RUNDIR_VERSION };
	}
	h.has_thinned = true;
	h.thinned = level;
	char *text = rundir_head_text(&h);
	int rc = text ? fprintf(out, "%s\n", text) : -1;
	free(text);
	json_decref(doc);
	return rc < 0 ? -1 : 0;
}

/* Copies the lines that stay. Returns 1; 0: it is to stop; -1: out of memory or disk. */
static int copy_lines(struct rundir_thinning *t, struct rundir_thin_filter *f,
		      enum rundir_file file, int level, FILE *in, FILE *out)
{
	struct line now = { 0 }, next = { 0 };
	bool is_head = false;
	next_line(in, &now);
	int rc = write_head(file, level, &now, &is_head, out) ? -1 : 1;
	if (is_head)
		next_line(in, &now);
	while (rc > 0 && now.n >= 0) {
		next_line(in, &next);
		if (rundir_thin_keeps(f, now.text, (size_t)now.n, next.n >= 0 ? next.text : NULL,
				      next.n >= 0 ? (size_t)next.n : 0) &&
		    (fwrite(now.text, 1, (size_t)now.n, out) != (size_t)now.n ||
		     putc('\n', out) == EOF))
			rc = -1;
		struct line used = now;
		now = next;
		next = used;
		if (rc > 0 && atomic_load_explicit(&t->stop, memory_order_relaxed))
			rc = 0;
	}
	if (rc > 0 && ferror(in))
		rc = -1;
	free(now.text);
	free(next.text);
	return rc;
}

/* Writes the new segment beside the old one, syncs it, and puts it in its place. */
static int replace_segment(struct rundir_thinning *t, struct rundir_thin_filter *f,
			   enum rundir_file file, int level, FILE *in, const char *path,
			   struct err *e)
{
	char beside[RUN_PATH + 8];
	snprintf(beside, sizeof beside, "%s.new", path);
	unlink(beside); /* of a process that was killed: who thins holds the segment's lock */
	int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	int rc = out ? copy_lines(t, f, file, level, in, out) : -1, error = errno;
	if (rc > 0 && (fflush(out) || fsync(fd))) {
		rc = -1;
		error = errno;
	}
	if (out)
		fclose(out);
	else if (fd >= 0)
		close(fd);
	if (rc > 0 && rename(beside, path)) {
		rc = -1;
		error = errno;
	}
	if (rc <= 0)
		unlink(beside);
	errno = error;
	return rc < 0 ? err_errno(e, file_error_code(error),
				  "%s: old lines cannot be thinned; they stay until the disk has "
				  "room",
				  path)
		      : rc;
}

int rundir_thin_segment(struct rundir_thinning *t, enum rundir_file file, uint32_t number,
			int level, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	struct rundir_thin_filter *f;
	segments_path(path, t->folder, files[file].name, number);
	int fd = open_segment(path, &why);
	if (fd < 0)
		return why.code == ERR_NONE ? 0 : err_set(e, why.code, "%s", why.text);
	FILE *in = fdopen(fd, "r");
	if (!in) {
		close(fd);
		return err_set(e, ERR_NOMEM, "%s: no memory to thin it", path);
	}
	int rc = rundir_thin_filter_open(file, level, t->generation, &f, e);
	if (!rc) {
		rc = replace_segment(t, f, file, level, in, path, e);
		rundir_thin_filter_close(f);
	}
	fclose(in);
	return rc;
}

/* --- All segments of a file --- */

struct segment {
	uint32_t number;
	off_t size;
	int level;
	bool stays; /* it cannot be thinned now */
};

/* How often the segment was thinned, as its head says. */
static int read_level(int fd)
{
	char text[HEAD_BYTES];
	struct rundir_head h;
	json_t *doc;
	int level = 0;
	ssize_t n = pread(fd, text, sizeof text, 0);
	const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
	if (end && rundir_head_read(text, (size_t)(end - text), &h, &doc)) {
		if (h.has_thinned && h.thinned > 0)
			level = h.thinned > RUNDIR_THIN_LEVELS ? RUNDIR_THIN_LEVELS
							       : (int)h.thinned;
		json_decref(doc);
	}
	return level;
}

/* Size and level. A segment that cannot be read counts as empty, and stays. */
static void look_at(const char *folder, const char *name, struct segment *s)
{
	char path[RUN_PATH];
	struct stat st;
	segments_path(path, folder, name, s->number);
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	s->stays = fd < 0 || fstat(fd, &st);
	s->size = s->stays ? 0 : st.st_size;
	s->level = s->stays ? 0 : read_level(fd);
	if (fd >= 0)
		close(fd);
}

/* The oldest segment of this level if all of them take more than `most`, otherwise NULL. */
static struct segment *oldest_over(struct segment *of, int n, int level, off_t most)
{
	struct segment *oldest = NULL;
	off_t sum = 0;
	for (int i = 0; i < n; i++) {
		if (of[i].level != level)
			continue;
		sum += of[i].size;
		if (!oldest && !of[i].stays && of[i].size > 0)
			oldest = &of[i];
	}
	return sum > most ? oldest : NULL;
}

/* Thins the segment to the next level; the last level is removed. */
static void raise_level(struct rundir_thinning *t, enum rundir_file file, struct segment *s)
{
	char path[RUN_PATH];
	struct err e = ERR_INIT;
	segments_path(path, t->folder, files[file].name, s->number);
	if (s->level == RUNDIR_THIN_LEVELS) {
		t->removed += !unlink(path);
		s->stays = true;
		s->size = 0;
		return;
	}
	int level = s->level + 1, rc = rundir_thin_segment(t, file, s->number, level, &e);
	if (rc > 0) {
		look_at(t->folder, files[file].name, s);
		s->level = level;
		t->thinned++;
	} else {
		s->stays = true;
		if (rc < 0 && t->why.code == ERR_NONE)
			t->why = e;
	}
}

static void thin_file(struct rundir_thinning *t, enum rundir_file file)
{
	struct segments list;
	char path[RUN_PATH];
	struct stat st;
	if (segments_list(t->folder, files[file].name, &list, &t->why))
		return;
	struct segment *of = calloc((size_t)list.n + 1, sizeof *of), *s;
	for (int i = 0; of && i < list.n; i++) {
		of[i].number = list.numbers[i];
		look_at(t->folder, files[file].name, &of[i]);
	}
	run_path(path, t->folder, files[file].name);
	off_t share = (off_t)(t->keep / files[file].share), own = stat(path, &st) ? 0 : st.st_size;
	/* The file itself grows on until it is split. */
	off_t split = rundir_thin_split(file, t->keep);
	own = own > split ? own : split;
	for (int level = 0; of && level <= RUNDIR_THIN_LEVELS; level++) {
		off_t most = (share >> (level + 1)) - (level ? 0 : own);
		while (!atomic_load(&t->stop) && (s = oldest_over(of, list.n, level, most)))
			raise_level(t, file, s);
	}
	free(of);
	segments_free(&list);
}

void rundir_thin(struct rundir_thinning *t)
{
	for (int i = 0; i < RUNDIR_FILE_COUNT && !atomic_load(&t->stop); i++)
		thin_file(t, (enum rundir_file)i);
}
