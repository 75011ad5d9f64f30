#include "agent/engine/data/ledger_parts.h"

#include "agent/engine/data/ledger_merge.h"
#include "base/file.h"
#include "base/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 512, WRITE_BYTES = 1 << 20, LOCK_TRIES = 500, LOCK_PAUSE_NS = 10000000 };

static bool same_file(int fd, const char *path)
{
	struct stat a, b;
	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The head of the file; its kind is another one if the file has none. */
static void read_head(int fd, struct ledger_line *out)
{
	char text[HEAD_BYTES];
	ssize_t n = pread(fd, text, sizeof text, 0);
	const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
	if (!end || data_ledger_parse(text, (size_t)(end - text), out, NULL))
		*out = (struct ledger_line){ .kind = LEDGER_STEPS };
}

/* --- the file that is written --- */

/* Returns 1 if the file is open and, where locks exist, locked; 0: another process is just splitting
 * it. */
static int try_file(const char *path, int *fd, bool *locked, struct err *e)
{
	*fd = file_open(path, O_RDWR | O_CREAT | O_APPEND, FILE_OWN, e);
	if (*fd < 0)
		return -1;
	int rc = flock(*fd, LOCK_SH | LOCK_NB);
	*locked = !rc;
	if ((rc && errno != EWOULDBLOCK) || (!rc && same_file(*fd, path)))
		return 1;
	close(*fd);
	return 0;
}

/* Lines of this version must not be appended to a file of a newer one. */
static int check_version(int fd, const char *path, struct err *e)
{
	struct ledger_line head;
	read_head(fd, &head);
	int rc = head.kind == LEDGER_HEAD ? data_ledger_check(&head, e) : 0;
	data_ledger_line_fini(&head);
	return rc ? err_prefix(e, "%s", path) : 0;
}

int data_ledger_open_file(const char *run, int *fd, bool *locked, struct err *e)
{
	char path[RUN_PATH];
	segments_path(path, run, LEDGER_NAME, 0);
	int rc = 0;
	for (int i = 0; i < LOCK_TRIES && !rc; i++) {
		rc = try_file(path, fd, locked, e);
		if (!rc)
			nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE_NS }, NULL);
	}
	if (!rc)
		return err_set(e, ERR_IO, "%s: another process has locked it; end that process",
			       path);
	if (rc > 0 && !check_version(*fd, path, e))
		return 0;
	if (rc > 0)
		close(*fd);
	return -1;
}

/* Gives the file the name of the next part. */
static bool rename_file(const char *run, const char *path, char part[RUN_PATH])
{
	struct segments s;
	struct stat st;
	if (segments_list(run, LEDGER_NAME, &s, NULL))
		return false;
	uint32_t number = s.n ? s.numbers[s.n - 1] + 1 : 1;
	segments_free(&s);
	segments_path(part, run, LEDGER_NAME, number);
	return lstat(part, &st) && errno == ENOENT && !rename(path, part);
}

/* Puts a new file behind the descriptor. Another thread may sync the descriptor meanwhile: then it
 * syncs the old file, which is durable already, or the new one. */
static bool replace_file(const char *run, int fd)
{
	bool locked = false;
	int to = -1;
	if (data_ledger_open_file(run, &to, &locked, NULL))
		return false;
	bool done = locked && dup3(to, fd, O_CLOEXEC) >= 0;
	close(to);
	return done;
}

bool data_ledger_split(const char *run, int fd)
{
	char path[RUN_PATH], part[RUN_PATH];
	segments_path(path, run, LEDGER_NAME, 0);
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		/* The attempt may have released the shared lock, and another process may have split
		 * the file then. */
		flock(fd, LOCK_SH);
		return !same_file(fd, path) && !access(path, F_OK) && replace_file(run, fd);
	}
	bool done = same_file(fd, path) && !fdatasync(fd) && rename_file(run, path, part);
	if (done && !replace_file(run, fd)) {
		/* Another process may have created the file anew. Then this one goes on with the
		 * part, whose lock keeps it from being merged. */
		if (!link(part, path))
			unlink(part);
		done = false;
	}
	if (!done)
		flock(fd, LOCK_SH);
	file_sync_dir(run, NULL);
	return done;
}

/* --- merging --- */

struct part {
	uint32_t number;
	uint32_t holds; /* 0: it is not merged */
	off_t size;
	bool covered; /* a later one holds its lines */
};

struct parts {
	struct part *of;
	int n;
};

static void look_at(const char *run, struct part *p)
{
	char path[RUN_PATH];
	struct ledger_line head;
	struct stat st;
	segments_path(path, run, LEDGER_NAME, p->number);
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	if (fd < 0)
		return;
	read_head(fd, &head);
	if (head.kind == LEDGER_HEAD && head.holds <= p->number)
		p->holds = (uint32_t)head.holds;
	p->size = fstat(fd, &st) ? 0 : st.st_size;
	data_ledger_line_fini(&head);
	close(fd);
}

static int list_parts(const char *run, struct parts *out, struct err *e)
{
	struct segments s;
	if (segments_list(run, LEDGER_NAME, &s, e))
		return -1;
	*out = (struct parts){ .of = calloc((size_t)s.n + 1, sizeof *out->of), .n = s.n };
	for (int i = 0; i < s.n && out->of; i++) {
		out->of[i].number = s.numbers[i];
		look_at(run, &out->of[i]);
		for (int k = 0; k < i && out->of[i].holds; k++)
			out->of[k].covered |= out->of[k].number >= out->of[i].holds;
	}
	segments_free(&s);
	return out->of ? 0 : err_set(e, ERR_NOMEM, "%s: no memory to list the folder", run);
}

/* Opens and locks a part. NULL without an error in *e: another process merges it. */
static FILE *open_part(const char *path, struct err *e)
{
	int fd = file_open(path, O_RDWR, FILE_OWN, e);
	FILE *f = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && same_file(fd, path) ? fdopen(fd, "r")
										  : NULL;
	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* Calls `each` for the lines of the file. Returns 1; 0: it is to stop. */
static int each_line(struct ledger_merging *m, FILE *in,
		     int (*each)(void *arg, const char *line, size_t n, struct err *e), void *arg,
		     struct err *e)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int rc = 1;
	rewind(in);
	while (rc > 0 && (n = getline(&line, &room, in)) >= 0) {
		size_t used = (size_t)n - (n > 0 && line[n - 1] == '\n');
		if (atomic_load_explicit(&m->stop, memory_order_relaxed))
			rc = 0;
		else if (each(arg, line, used, e))
			rc = -1;
	}
	if (rc > 0 && ferror(in))
		rc = err_errno(e, ERR_IO, "cannot read");
	free(line);
	return rc;
}

struct merge_out {
	struct ledger_merger *merger;
	struct buf text;
	int fd;
};

static int flush_text(struct merge_out *o, size_t above, struct err *e)
{
	if (o->text.len <= above)
		return 0;
	if (file_write_full(o->fd, o->text.data, o->text.len))
		return err_errno(e, file_error_code(errno), "cannot write");
	buf_clear(&o->text);
	return 0;
}

static int look(void *arg, const char *line, size_t n, struct err *e)
{
	return data_ledger_merger_look(((struct merge_out *)arg)->merger, line, n, e);
}

static int precede(void *arg, const char *line, size_t n, struct err *e)
{
	return data_ledger_merger_precede(((struct merge_out *)arg)->merger, line, n, e);
}

static int add(void *arg, const char *line, size_t n, struct err *e)
{
	struct merge_out *o = arg;
	return data_ledger_merger_add(o->merger, line, n, &o->text, e) ||
			       flush_text(o, WRITE_BYTES, e)
		       ? -1
		       : 0;
}

/* Reads the parts before number `holds`. Returns 1; 0: it is to stop. */
static int read_earlier(struct ledger_merging *m, const struct parts *parts, uint32_t holds,
			struct merge_out *o, struct err *e)
{
	char path[RUN_PATH];
	int rc = 1;
	for (int i = 0; i < parts->n && parts->of[i].number < holds && rc > 0; i++) {
		segments_path(path, m->run, LEDGER_NAME, parts->of[i].number);
		int fd = parts->of[i].covered ? -1 : file_open(path, O_RDONLY, FILE_OWN, NULL);
		FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
		if (f)
			rc = each_line(m, f, precede, o, e);
		if (f)
			fclose(f);
		else if (fd >= 0)
			close(fd);
	}
	return rc;
}

/* Writes the merged lines of both files; before may be NULL. Returns 1; 0: it is to stop. */
static int merge_files(struct ledger_merging *m, const struct parts *parts, FILE *before, FILE *in,
		       uint32_t holds, int fd, struct err *e)
{
	struct merge_out o = { .fd = fd };
	if (data_ledger_merger_open(&o.merger, e))
		return -1;
	int rc = read_earlier(m, parts, holds, &o, e);
	if (rc > 0 && before)
		rc = each_line(m, before, look, &o, e);
	rc = rc > 0 ? each_line(m, in, look, &o, e) : rc;
	if (rc > 0 && data_ledger_write_head(&o.text, m->generation, holds, e))
		rc = -1;
	if (rc > 0 && before)
		rc = each_line(m, before, add, &o, e);
	rc = rc > 0 ? each_line(m, in, add, &o, e) : rc;
	if (rc > 0 && (data_ledger_merger_end(o.merger, &o.text, e) || flush_text(&o, 0, e)))
		rc = -1;
	if (rc > 0 && fsync(fd))
		rc = err_errno(e, file_error_code(errno), "cannot sync");
	data_ledger_merger_close(o.merger);
	buf_fini(&o.text);
	return rc;
}

/* Writes the merged part beside the old one and puts it in its place. */
static int replace_part(struct ledger_merging *m, const struct parts *parts, const char *path,
			uint32_t holds, FILE *before, FILE *in, struct err *e)
{
	char *beside;
	if (asprintf(&beside, "%s.new", path) < 0)
		return err_set(e, ERR_NOMEM, "%s: no memory to merge its lines", path);
	unlink(beside); /* of a process that was killed: who merges holds the part's lock */
	int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int rc = fd < 0 ? err_errno(e, file_error_code(errno), "cannot create")
			: merge_files(m, parts, before, in, holds, fd, e);
	if (fd >= 0)
		close(fd);
	if (rc > 0 && rename(beside, path))
		rc = err_errno(e, file_error_code(errno), "cannot rename");
	if (rc <= 0)
		unlink(beside);
	free(beside);
	if (rc > 0 && file_sync_dir(m->run, e))
		rc = -1;
	return rc < 0 ? err_prefix(e, "%s: its lines cannot be merged", path) : rc;
}

/* Merges a part with the merged one before it, NULL: with none. */
static int merge_part(struct ledger_merging *m, const struct parts *parts, const struct part *prior,
		      const struct part *p, struct err *e)
{
	char path[RUN_PATH], other[RUN_PATH];
	struct err why = ERR_INIT;
	segments_path(path, m->run, LEDGER_NAME, p->number);
	FILE *in = open_part(path, &why), *before = NULL;
	if (!in)
		return why.code == ERR_NONE ? 0 : err_set(e, why.code, "%s", why.text);
	if (prior) {
		segments_path(other, m->run, LEDGER_NAME, prior->number);
		before = open_part(other, NULL);
	}
	int rc = replace_part(m, parts, path, before ? prior->holds : p->number, before, in, e);
	if (rc > 0)
		m->merged++;
	if (rc > 0 && before)
		unlink(other);
	if (before)
		fclose(before);
	fclose(in);
	return rc;
}

/* Removes the parts that a crash left although a later one holds their lines. */
static void remove_covered(const char *run, const struct parts *parts)
{
	char path[RUN_PATH];
	for (int i = 0; i < parts->n; i++) {
		segments_path(path, run, LEDGER_NAME, parts->of[i].number);
		if (parts->of[i].covered)
			unlink(path);
	}
}

/* Merges the first part that is not merged and has a number above *after. Returns 1; 0: there is none.
 * *after becomes its number. */
static int merge_next(struct ledger_merging *m, uint32_t *after, struct err *e)
{
	struct parts parts;
	const struct part *prior = NULL, *p = NULL;
	if (list_parts(m->run, &parts, e))
		return -1;
	remove_covered(m->run, &parts);
	for (int i = 0; i < parts.n && !p; i++) {
		const struct part *at = &parts.of[i];
		if (!at->covered && !at->holds && at->number > *after)
			p = at;
		else if (!at->covered)
			prior = at->holds && at->size <= m->most ? at : NULL;
	}
	int rc = p ? merge_part(m, &parts, prior, p, e) : 0;
	if (p)
		*after = p->number;
	rc = rc < 0 ? -1 : p != NULL;
	free(parts.of);
	return rc;
}

int data_ledger_merge_parts(struct ledger_merging *m, struct err *e)
{
	uint32_t after = 0;
	int rc = 1;
	while (rc > 0 && !atomic_load(&m->stop))
		rc = merge_next(m, &after, e);
	return rc < 0 ? -1 : 0;
}

/* --- reading --- */

/* Appends a file. Returns 0 if it does not exist. */
static int slurp_file(const char *run, uint32_t number, size_t most, struct buf *out, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	segments_path(path, run, LEDGER_NAME, number);
	if (out->len > most)
		return err_set(e, ERR_CORRUPT, "%s: the ledger is larger than %zu bytes", path,
			       most);
	if (file_slurp_own(path, most - out->len, out, &why))
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	if (out->len && out->data[out->len - 1] != '\n')
		buf_puts(out, "\n");
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "%s: no memory to read it", path) : 1;
}

/* If the part, which is the last of `s`, holds the lines of earlier ones, the text of these is
 * removed. at[i]: where the text of s->numbers[i] begins. */
static void drop_held(struct buf *out, const struct segments *s, size_t *at, int n)
{
	struct ledger_line head;
	const char *text = out->data + at[n], *end;
	end = out->len > at[n] ? memchr(text, '\n', out->len - at[n]) : NULL;
	if (!end || end - text > HEAD_BYTES ||
	    data_ledger_parse(text, (size_t)(end - text), &head, NULL))
		return;
	int first = 0;
	while (head.holds && first < n && s->numbers[first] < head.holds)
		first++;
	if (head.kind == LEDGER_HEAD && head.holds && first < n) {
		size_t size = at[n] - at[first];
		memmove(out->data + at[first], out->data + at[n], out->len - at[n]);
		out->len -= size;
		for (int i = first; i <= n; i++)
			at[i] = at[first];
	}
	data_ledger_line_fini(&head);
}

static int slurp_parts(const char *run, const struct segments *s, size_t most, struct buf *out,
		       struct err *e)
{
	size_t *at = calloc((size_t)s->n + 1, sizeof *at);
	int rc = at ? 0 : err_set(e, ERR_NOMEM, "%s: no memory for the ledger", run);
	for (int i = 0; i < s->n && rc >= 0; i++) {
		at[i] = out->len;
		rc = slurp_file(run, s->numbers[i], most, out, e);
		if (rc > 0)
			drop_held(out, s, at, i);
	}
	free(at);
	return rc < 0 ? -1 : 0;
}

static ino_t file_number(const char *path)
{
	struct stat st;
	return stat(path, &st) ? 0 : st.st_ino;
}

/* Reads everything once. Returns 0 if the files were split or merged meanwhile. */
static int slurp_once(const char *run, size_t most, struct buf *out, struct err *e)
{
	char path[RUN_PATH];
	struct segments before, after = { 0 };
	segments_path(path, run, LEDGER_NAME, 0);
	ino_t file = file_number(path);
	if (segments_list(run, LEDGER_NAME, &before, e))
		return -1;
	int rc = slurp_parts(run, &before, most, out, e), there = 0;
	if (!rc)
		there = rc = slurp_file(run, 0, most, out, e);
	if (rc >= 0)
		rc = segments_list(run, LEDGER_NAME, &after, e);
	bool same = !rc && file == file_number(path) && before.n == after.n &&
		    !memcmp(before.numbers ? before.numbers : (uint32_t *)"",
			    after.numbers ? after.numbers : (uint32_t *)"",
			    (size_t)after.n * sizeof *after.numbers);
	if (same && !there && !before.n)
		rc = err_set(e, ERR_NOTFOUND, "%s: no such file", path);
	segments_free(&before);
	segments_free(&after);
	return rc < 0 ? -1 : same;
}

int data_ledger_slurp(const char *run, size_t most, struct buf *out, struct err *e)
{
	enum { TRIES = 100 };
	size_t begin = out->len;
	for (int i = 0; i < TRIES; i++) {
		out->len = begin;
		int rc = slurp_once(run, most, out, e);
		if (rc)
			return rc > 0 ? 0 : -1;
	}
	return err_set(e, ERR_IO, "%s/" LEDGER_NAME ": its parts change too often; try again", run);
}
