#include "launcher/rundir/output.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "base/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A head is shorter. After a split that failed, the file grows by so much before the next try. */
enum { HEAD_BYTES = 512, RETRY_BYTES = 1 << 20 };

/* --- The head --- */

static const struct fields_row *head_rows(void)
{
	typedef struct rundir_head fields_struct;
	static const struct fields_row rows[] = { RUNDIR_HEAD_FIELDS(FIELDS_ROW) FIELDS_END };
	return rows;
}

char *rundir_head_text(const struct rundir_head *h)
{
	json_t *line = fields_json(head_rows(), h);
	char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	json_decref(line);
	return text;
}

bool rundir_head_read(const char *line, size_t n, struct rundir_head *out, json_t **doc)
{
	static const char begin[] = "{\"format\":";
	*doc = NULL;
	if (n < sizeof begin || memcmp(line, begin, sizeof begin - 1))
		return false;
	*doc = json_loadb(line, n, 0, NULL);
	if (json_is_object(*doc) && !fields_read(head_rows(), *doc, "head", out, NULL))
		return true;
	json_decref(*doc);
	*doc = NULL;
	return false;
}

int rundir_head_check(const struct rundir_head *h, const char *path, struct err *e)
{
	if (h->version <= RUNDIR_VERSION)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: a newer muster wrote the file (version %d of %.80s; this muster knows "
		       "versions up to %d); use that muster",
		       path, h->version, h->format, RUNDIR_VERSION);
}

static char *new_head(const struct rundir_output *o, uint32_t generation)
{
	char format[64];
	size_t stem = strcspn(o->name, ".");
	snprintf(format, sizeof format, "muster/%.*s", (int)stem, o->name);
	return rundir_head_text(&(struct rundir_head){
		.format = format,
		.version = RUNDIR_VERSION,
		.time = clock_wall_s(),
		.mono = clock_s(),
		.generation = generation,
	});
}

/* --- Opening --- */

static int open_file(const struct rundir_output *o, int *fd, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, o->folder, o->name);
	*fd = file_open(path, O_RDWR | O_APPEND | O_CREAT, FILE_OWN, e);
	return *fd < 0 ? -1 : 0;
}

/* Removes the end of a file whose last line has no newline: the muster that wrote it was killed, or
 * the disk was full. */
static void cut_torn_line(struct rundir_output *o)
{
	char end[4096];
	struct stat st;
	if (fstat(o->fd, &st))
		return;
	off_t left = o->size = st.st_size;
	while (left > 0) {
		size_t n = left < (off_t)sizeof end ? (size_t)left : sizeof end;
		if (file_pread_full(o->fd, end, n, left - (off_t)n))
			return;
		const char *newline = memrchr(end, '\n', n);
		left -= newline ? (off_t)(end + n - 1 - newline) : (off_t)n;
		if (newline)
			break;
	}
	o->torn = left < st.st_size && ftruncate(o->fd, left);
	if (!o->torn)
		o->size = left;
}

/* Lines of this version must not be appended to a file of a newer one. */
static int check_version(const struct rundir_output *o, struct err *e)
{
	char text[HEAD_BYTES], path[RUN_PATH];
	struct rundir_head h;
	json_t *doc;
	ssize_t n = pread(o->fd, text, sizeof text, 0);
	const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
	if (!end || !rundir_head_read(text, (size_t)(end - text), &h, &doc))
		return 0;
	run_path(path, o->folder, o->name);
	int rc = rundir_head_check(&h, path, e);
	json_decref(doc);
	return rc;
}

int rundir_output_open(struct rundir_output *o, const char *folder, const char *name, struct err *e)
{
	struct segments s;
	*o = (struct rundir_output){ .folder = folder, .name = name, .fd = -1, .split = o->split };
	if (segments_list(folder, name, &s, e))
		return -1;
	o->next = s.n ? s.numbers[s.n - 1] + 1 : 1;
	segments_free(&s);
	if (open_file(o, &o->fd, e))
		return -1;
	cut_torn_line(o);
	if (!check_version(o, e))
		return 0;
	rundir_output_close(o);
	return -1;
}

void rundir_output_close(struct rundir_output *o)
{
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
}

int rundir_output_renew(struct rundir_output *o)
{
	struct stat st;
	int fd;
	if (fstat(o->fd, &st) || st.st_nlink)
		return 0;
	if (open_file(o, &fd, NULL))
		return -1;
	close(o->fd);
	o->fd = fd;
	o->torn = false;
	o->size = fstat(fd, &st) ? 0 : st.st_size;
	return 1;
}

/* --- Writing --- */

/* Makes the file the next segment. Returns false, and leaves everything as it was, if it cannot. */
static bool split_file(struct rundir_output *o)
{
	char path[RUN_PATH], segment[RUN_PATH];
	int fd;
	run_path(path, o->folder, o->name);
	do
		segments_path(segment, o->folder, o->name, o->next++);
	while (file_exists(segment));
	/* The file has no name if an earlier split could not be undone. */
	if (file_exists(path) && rename(path, segment))
		return false;
	if (open_file(o, &fd, NULL)) {
		if (!rename(segment, path))
			o->next--;
		return false;
	}
	close(o->fd);
	o->fd = fd;
	o->size = 0;
	return true;
}

static bool split_if_long(struct rundir_output *o, size_t more)
{
	if (!o->split || o->torn || o->size + (off_t)more <= o->split || o->size == 0 ||
	    (o->refused && o->size < o->refused + RETRY_BYTES))
		return false;
	bool split = split_file(o);
	o->refused = split ? 0 : o->size;
	return split;
}

/* Removes the last `n` bytes of the file: the beginning of a line that was not written whole. */
static int cut_end(struct rundir_output *o, off_t n)
{
	struct stat st;
	return fstat(o->fd, &st) || st.st_size < n || ftruncate(o->fd, st.st_size - n) ? -1 : 0;
}

/* An incomplete line, because the disk is full, is removed; if that fails, the next line starts
 * after a newline. */
enum rundir_wrote rundir_output_write(struct rundir_output *o, uint32_t generation,
				      const char *text)
{
	struct buf line = BUF_INIT;
	bool split = split_if_long(o, strlen(text) + 1);
	char *head = o->size ? NULL : new_head(o, generation);
	if (head)
		buf_printf(&line, "%s\n", head);
	free(head);
	buf_printf(&line, "%s%s\n", o->torn ? "\n" : "", text);
	ssize_t n = buf_failed(&line) ? -1 : write(o->fd, line.data, line.len);
	bool whole = n == (ssize_t)line.len;
	if (n > 0)
		o->torn = !whole && cut_end(o, n);
	if (n > 0 && (whole || o->torn))
		o->size += n;
	buf_fini(&line);
	return !whole ? RUNDIR_LOST : split ? RUNDIR_WROTE_SPLIT : RUNDIR_WROTE;
}
