#include "base/segments.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 1024 };

/* The length of the name before ".jsonl". */
static size_t stem_length(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot ? (size_t)(dot - name) : strlen(name);
}

void segments_path(char out[RUN_PATH], const char *folder, const char *name, uint32_t number)
{
	size_t stem = stem_length(name);
	if (number)
		snprintf(out, RUN_PATH, "%s/%.*s.%u%s", folder, (int)stem, name, number,
			 name + stem);
	else
		run_path(out, folder, name);
}

long segments_number(const char *file, const char *name)
{
	size_t stem = stem_length(name), digits;
	if (strncmp(file, name, stem) || file[stem] != '.')
		return -1;
	const char *at = file + stem + 1;
	digits = strspn(at, "0123456789");
	if (!digits || digits > 9 || *at == '0' || strcmp(at + digits, name + stem))
		return -1;
	return strtol(at, NULL, 10);
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

static int add_number(struct segments *s, int *room, uint32_t number)
{
	if (s->n == *room) {
		int more = *room ? 2 * *room : 16;
		uint32_t *numbers = reallocarray(s->numbers, (size_t)more, sizeof *numbers);
		if (!numbers)
			return -1;
		s->numbers = numbers;
		*room = more;
	}
	s->numbers[s->n++] = number;
	return 0;
}

static int list_once(const char *folder, const char *name, struct segments *out, struct err *e)
{
	struct segments s = { .n = 0 };
	struct dirent *at;
	int room = 0, rc = 0, more = 0;
	DIR *d = file_list_open(folder);
	if (!d && errno != ENOENT)
		return err_errno(e, file_error_code(errno), "%s: cannot list the folder", folder);
	while (d && !rc && (more = file_list_next(d, &at)) > 0) {
		long number = segments_number(at->d_name, name);
		if (number > 0 && add_number(&s, &room, (uint32_t)number))
			rc = err_set(e, ERR_NOMEM, "%s: no memory to list the folder", folder);
	}
	if (!rc && more < 0)
		rc = err_errno(e, ERR_IO, "%s: cannot list the folder", folder);
	if (d)
		closedir(d);
	if (rc) {
		segments_free(&s);
		return -1;
	}
	if (s.n)
		qsort(s.numbers, (size_t)s.n, sizeof *s.numbers, compare_numbers);
	*out = s;
	return 0;
}

/* A scan of a folder may miss a name that is added meanwhile, and see one that is added later. A
 * second scan sees every segment up to the highest number of the first one, because it existed
 * before. */
int segments_list(const char *folder, const char *name, struct segments *out, struct err *e)
{
	struct segments first, s;
	if (list_once(folder, name, &first, e))
		return -1;
	if (!first.n) {
		*out = first;
		return 0;
	}
	uint32_t highest = first.numbers[first.n - 1];
	segments_free(&first);
	if (list_once(folder, name, &s, e))
		return -1;
	while (s.n && s.numbers[s.n - 1] > highest)
		s.n--;
	*out = s;
	return 0;
}

void segments_free(struct segments *s)
{
	free(s->numbers);
	*s = (struct segments){ .n = 0 };
}

/* --- Reading on and on --- */

void segments_reader_init(struct segments_reader *r, const char *folder, const char *name)
{
	*r = (struct segments_reader){ .name = name, .fd = -1 };
	snprintf(r->folder, sizeof r->folder, "%s", folder);
}

void segments_reader_fini(struct segments_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	segments_free(&r->list);
	r->next = 0;
}

/* Reads the list again and steps over the segments that were opened. Returns 1 if another one is
 * there. */
static int list_again(struct segments_reader *r, struct err *e)
{
	segments_free(&r->list);
	r->next = 0;
	if (segments_list(r->folder, r->name, &r->list, e))
		return -1;
	while (r->next < r->list.n && r->list.numbers[r->next] <= r->number)
		r->next++;
	return r->next < r->list.n;
}

/* Opens the segment or the file. Returns 0 if it does not exist. */
static int open_number(struct segments_reader *r, uint32_t number, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	segments_path(path, r->folder, r->name, number);
	r->fd = file_open(path, O_RDONLY, FILE_OWN, &why);
	if (r->fd < 0)
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	r->current = !number;
	r->at = 0;
	r->last = '\n';
	return 1;
}

/* Returns 1 if a file was opened, and 0 if there is none to read on in. */
static int open_next(struct segments_reader *r, struct err *e)
{
	for (;;) {
		int rc = r->next < r->list.n ? 1 : list_again(r, e);
		if (rc < 0)
			return -1;
		if (rc) {
			r->number = r->list.numbers[r->next++];
			if ((rc = open_number(r, r->number, e)))
				return rc;
			continue;
		}
		if ((rc = open_number(r, 0, e)) <= 0)
			return rc;
		/* The file may have become a segment after the list was read. */
		if (!(rc = list_again(r, e)))
			return 1;
		close(r->fd);
		r->fd = -1;
		if (rc < 0)
			return -1;
	}
}

static bool same_file(int fd, const char *path)
{
	struct stat a, b;
	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The first line of a file, without its newline. Returns its length; 0: it is empty or too long. */
static size_t first_line(int fd, char *line, size_t room)
{
	ssize_t n = TEMP_FAILURE_RETRY(pread(fd, line, room, 0));
	const char *end = n > 0 ? memchr(line, '\n', (size_t)n) : NULL;
	return end ? (size_t)(end - line) : 0;
}

/* Whether the segment is what is open, or was made of it by leaving out lines. */
static bool same_lines(int fd, const char *path)
{
	char ours[HEAD_MAX], theirs[HEAD_MAX];
	if (same_file(fd, path))
		return true;
	int segment = file_open(path, O_RDONLY, FILE_OWN, NULL);
	if (segment < 0)
		return false;
	size_t n = first_line(fd, ours, sizeof ours);
	size_t m = first_line(segment, theirs, sizeof theirs);
	close(segment);
	return n > 1 && m > n && ours[n - 1] == '}' && theirs[n - 1] == ',' &&
	       !memcmp(ours, theirs, n - 1);
}

/* Whether nothing more is written to what is open: it is a segment, or another file has its name
 * now. */
static bool is_complete(const struct segments_reader *r)
{
	char path[RUN_PATH];
	if (!r->current)
		return true;
	segments_path(path, r->folder, r->name, 0);
	return !access(path, F_OK) && !same_file(r->fd, path);
}

/* The file that was read is a segment now, unless somebody deleted it: finds its number. */
static int step_over(struct segments_reader *r, struct err *e)
{
	char path[RUN_PATH];
	int rc = r->current ? list_again(r, e) : 0;
	for (int i = r->next; rc > 0 && i < r->list.n; i++) {
		segments_path(path, r->folder, r->name, r->list.numbers[i]);
		if (same_lines(r->fd, path)) {
			r->number = r->list.numbers[i];
			r->next = i + 1;
			break;
		}
	}
	close(r->fd);
	r->fd = -1;
	return rc < 0 ? -1 : 0;
}

ssize_t segments_read(struct segments_reader *r, char *data, size_t n, struct err *e)
{
	for (;;) {
		int rc = r->fd < 0 ? open_next(r, e) : 1;
		if (rc <= 0)
			return rc;
		bool complete = is_complete(r); /* looked at before what may be the last read */
		ssize_t got = pread(r->fd, data, n, r->at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, ERR_IO, "%s/%s: cannot read", r->folder, r->name);
		if (got > 0) {
			r->at += got;
			r->last = data[got - 1];
			return got;
		}
		if (!complete)
			return 0;
		bool torn = r->last != '\n';
		if (step_over(r, e))
			return -1;
		if (torn) {
			data[0] = '\n';
			return 1;
		}
	}
}

/* --- The end --- */

struct end_part {
	int fd;
	off_t from;
	size_t n;
};

/* 1: it is open; 0: there is no such file; -1: an error. */
static int open_part(const char *path, size_t most, struct end_part *out, struct err *e)
{
	struct err why = ERR_INIT;
	struct stat st;
	out->fd = file_open(path, O_RDONLY, FILE_OWN, &why);
	if (out->fd < 0)
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	if (fstat(out->fd, &st)) {
		close(out->fd);
		return err_errno(e, ERR_IO, "%s: cannot read", path);
	}
	out->n = (uint64_t)st.st_size < most ? (size_t)st.st_size : most;
	out->from = st.st_size - (off_t)out->n;
	return 1;
}

/* The file is parts[0] if it is there; adds as many of the last segments as are needed, the last one
 * first. Sets *n. */
static int open_segments(const char *folder, const char *name, size_t most, struct end_part *parts,
			 const struct segments *s, int *n, struct err *e)
{
	char path[RUN_PATH];
	int there = *n, rc = 0;
	most -= there ? parts[0].n : 0;
	for (int i = s->n - 1; i >= 0 && most > 0 && rc >= 0; i--) {
		segments_path(path, folder, name, s->numbers[i]);
		if (there && same_lines(parts[0].fd, path))
			continue;
		rc = open_part(path, most, &parts[*n], e);
		if (rc > 0)
			most -= parts[(*n)++].n;
	}
	return rc < 0 ? -1 : 0;
}

/* Appends the parts, of which the last one comes first, and closes them. */
static int read_parts(const struct end_part *parts, int n, struct buf *out)
{
	int rc = 0;
	while (n-- > 0) {
		char *to = !rc && parts[n].n ? buf_room(out, parts[n].n) : NULL;
		if (to && file_pread_full(parts[n].fd, to, parts[n].n, parts[n].from))
			rc = -1;
		else if (to)
			out->len += parts[n].n;
		close(parts[n].fd);
	}
	return rc;
}

/* The file is opened before the segments are listed: if it is split in between, it is in the list as
 * well, and otherwise every segment is. */
int segments_read_end(const char *folder, const char *name, size_t most, struct buf *out,
		      struct err *e)
{
	struct segments s = { 0 };
	struct end_part newest;
	char path[RUN_PATH];
	segments_path(path, folder, name, 0);
	int n = open_part(path, most, &newest, e), rc = n;
	if (rc < 0)
		return -1;
	rc = segments_list(folder, name, &s, e);
	struct end_part *parts = rc ? NULL : calloc((size_t)s.n + 1, sizeof *parts);
	if (!rc && !parts)
		rc = err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	if (rc) {
		if (n)
			close(newest.fd);
		segments_free(&s);
		return -1;
	}
	parts[0] = newest;
	rc = open_segments(folder, name, most, parts, &s, &n, e);
	if (read_parts(parts, n, out) && !rc)
		rc = err_errno(e, ERR_IO, "%s: cannot read", path);
	free(parts);
	segments_free(&s);
	if (!rc && buf_failed(out))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	return rc;
}
