#include "launcher/rundir/log_file.h"

#include "base/file.h"
#include "base/segments.h"
#include "launcher/rundir/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DATE = 11, CLOCK = 12, MINUTE = 16 }; /* "YYYY-MM-DD ", "HH:MM:SS.mmm", "YYYY-MM-DD HH:MM" */

/* The rank in <node>-<rank>.log; -1: the name is another one. *dash is where the node ends. */
static int rank_of(const char *name, size_t *dash)
{
	const char *at = strrchr(name, '-');
	size_t digits = at ? strspn(at + 1, "0123456789") : 0;
	if (!at || at == name || !digits || digits > 9 || strcmp(at + 1 + digits, ".log"))
		return -1;
	*dash = (size_t)(at - name);
	return atoi(at + 1);
}

size_t rundir_log_part(const char *name)
{
	size_t n = strlen(name), at, unused;
	char log[NAME_MAX + 8];
	if (n < 4 || n > NAME_MAX || strcmp(name + n - 4, ".log"))
		return 0;
	for (at = n - 4; at && name[at - 1] >= '0' && name[at - 1] <= '9';)
		at--;
	if (at == n - 4 || !at || name[at - 1] != '.')
		return 0;
	snprintf(log, sizeof log, "%.*s.log", (int)(at - 1), name);
	return rank_of(log, &unused) >= 0 && segments_number(name, log) > 0 ? at - 1 : 0;
}

bool rundir_log_file_init(struct log_file *f, const char *name, double time)
{
	size_t dash = 0;
	int rank = rank_of(name, &dash);
	bool launch = !strcmp(name, "guard.log") || (rank >= 0 && !strncmp(name, "launch-", 7));
	*f = (struct log_file){ .rank = launch ? -1 : rank, .time = time };
	if (!launch && rank < 0)
		return false;
	f->name = strdup(name);
	f->node = launch ? NULL : strndup(name, dash);
	if (f->name && (launch || f->node))
		return true;
	rundir_log_file_fini(f);
	return false;
}

void rundir_log_file_fini(struct log_file *f)
{
	free(f->name);
	free(f->node);
	free(f->data);
	f->name = f->node = f->data = NULL;
}

void rundir_log_file_rest(struct log_file *f)
{
	if (f->begin < f->end)
		return;
	free(f->data);
	f->data = NULL;
	f->begin = f->end = f->room = 0;
}

/* --- Times --- */

/* Whether the text has this form; 0 stands for a digit. */
static bool has_form(const char *text, const char *form)
{
	for (; *form; text++, form++)
		if (*form == '0' ? *text < '0' || *text > '9' : *text != *form)
			return false;
	return true;
}

static int digits(const char *at, int n)
{
	int v = 0;
	while (n-- > 0)
		v = 10 * v + (*at++ - '0');
	return v;
}

/* Whether a text of the form "YYYY-MM-DD HH:MM:SS" is a time. */
static bool is_time(const char *text)
{
	int month = digits(text + 5, 2), day = digits(text + 8, 2);
	return month >= 1 && month <= 12 && day >= 1 && day <= 31 && digits(text + 11, 2) < 24 &&
	       digits(text + 14, 2) < 60 && digits(text + 17, 2) <= 60;
}

/* Seconds since 1970 of "YYYY-MM-DD HH:MM" in local time. */
static double minute_time(struct log_file *f, const char *text)
{
	if (memcmp(f->minute, text, MINUTE)) {
		struct tm tm = { .tm_year = digits(text, 4) - 1900,
				 .tm_mon = digits(text + 5, 2) - 1,
				 .tm_mday = digits(text + 8, 2),
				 .tm_hour = digits(text + 11, 2),
				 .tm_min = digits(text + 14, 2),
				 .tm_isdst = -1 };
		f->minute_at = (double)mktime(&tm);
		memcpy(f->minute, text, MINUTE);
	}
	return f->minute_at;
}

/* The time at the begin of a line; NAN: it has none. */
static double line_time(struct log_file *f, const char *line)
{
	char text[DATE + CLOCK + 1];
	struct tm tm;
	time_t dated = (time_t)f->dated;
	if (has_form(line, "0000-00-00 00:00:00.000 ") && is_time(line)) {
		const char *s = line + MINUTE + 1;
		return minute_time(f, line) + digits(s, 2) + digits(s + 3, 3) * 1e-3;
	}
	if (!has_form(line, "00:00:00.000 ") || !localtime_r(&dated, &tm))
		return NAN;
	strftime(text, sizeof text, "%Y-%m-%d ", &tm);
	memcpy(text + DATE, line, CLOCK);
	if (!is_time(text))
		return NAN;
	const char *s = text + MINUTE + 1;
	double at = minute_time(f, text) + digits(s, 2) + digits(s + 3, 3) * 1e-3;
	return at > f->dated + 1 ? at - 86400 : at;
}

/* --- Reading --- */

/* Makes room for more of the line that the buffer holds the begin of. */
static int make_room(struct log_file *f, size_t room, struct err *e)
{
	if (f->begin) {
		memmove(f->data, f->data + f->begin, f->end - f->begin);
		f->end -= f->begin;
		f->begin = 0;
	}
	if (f->data && f->end < f->room)
		return 0;
	size_t want = !f->data ? room : 2 * f->room;
	char *data = realloc(f->data, want + 1); /* a NUL follows */
	if (!data)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", f->name);
	f->data = data;
	f->room = want;
	return 0;
}

/* --- Parts --- */

static ino_t inode_of(const char *path)
{
	struct stat st;
	return stat(path, &st) ? 0 : st.st_ino;
}

static const char *folder_of(const struct log_file *f, const struct log_folders *in)
{
	return f->local ? in->local : in->shared;
}

/* The lowest part in the folder above this number, and the one that the file which was read has become. 0: none. */
static int look_for_parts(const struct log_file *f, const char *folder, uint32_t above,
			  uint32_t *lowest, uint32_t *same, struct err *e)
{
	struct segments s;
	char path[RUN_PATH];
	*lowest = *same = 0;
	if (segments_list(folder, f->name, &s, e))
		return -1;
	for (int i = s.n - 1; i >= 0 && s.numbers[i] > above; i--) {
		*lowest = s.numbers[i];
		segments_path(path, folder, f->name, s.numbers[i]);
		if (f->inode && inode_of(path) == f->inode)
			*same = s.numbers[i];
	}
	segments_free(&s);
	return 0;
}

/* No part up to this number has what follows: if something of the file was read, all were read. */
static uint32_t read_up_to(const struct log_file *f)
{
	uint32_t seen = !f->inode ? 0 : f->own ? f->own - 1 : f->highest;
	return seen > f->known ? seen : f->known;
}

static int step_to(struct log_file *f, uint32_t part, off_t at)
{
	f->at = at;
	f->part = f->known = part;
	f->parted = true;
	f->own = 0;
	return 1;
}

/* Steps to the part that the file which was read has become, or to the first part that was not read, which may be
 * in the run folder already. Returns 0 if there is none. */
static int find_part(struct log_file *f, const struct log_folders *in, struct err *e)
{
	uint32_t next, same, shared = 0, unused;
	if (look_for_parts(f, folder_of(f, in), f->known, &next, &same, e))
		return -1;
	if (same)
		return step_to(f, same, f->at);
	if (f->local && look_for_parts(f, in->shared, read_up_to(f), &shared, &unused, e))
		return -1;
	if (shared && (!next || shared < next))
		return step_to(f, shared, f->inode ? f->at : 0);
	return next ? step_to(f, next, 0) : 0;
}

void rundir_log_file_note_part(struct log_file *f, const char *folder, uint32_t number)
{
	char path[RUN_PATH];
	if (number > f->highest)
		f->highest = number;
	segments_path(path, folder, f->name, number);
	if (f->inode && inode_of(path) == f->inode)
		f->own = number;
}

/* The part was read, or is gone. */
static void leave_part(struct log_file *f)
{
	f->part = 0;
	f->inode = 0;
	f->at = 0;
}

/* Opens a part or the file (0). Returns 0 if it does not exist. */
static int open_number(const struct log_file *f, const char *folder, uint32_t number, int *fd,
		       struct stat *st, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	segments_path(path, folder, f->name, number);
	*fd = file_open(path, O_RDONLY, FILE_OWN, &why);
	if (*fd < 0)
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	if (!fstat(*fd, st))
		return 1;
	close(*fd);
	return err_errno(e, ERR_IO, "%s: cannot read", path);
}

/* The file of the node is gone. If the log is in the run folder now, steps to the part that the file has
 * become. */
static int follow_move(struct log_file *f, const struct log_folders *in, struct err *e)
{
	struct stat st;
	char path[RUN_PATH];
	uint32_t next, unused;
	segments_path(path, in->shared, f->name, 0);
	if (lstat(path, &st))
		return 0;
	if (look_for_parts(f, in->shared, read_up_to(f), &next, &unused, e))
		return -1;
	off_t at = f->inode ? f->at : 0;
	f->local = false;
	f->inode = 0;
	return step_to(f, next, next ? at : 0);
}

/* Opens the part or the file that is to be read. Returns 0 if it does not exist. */
static int open_file(struct log_file *f, const struct log_folders *in, int *fd, struct stat *st,
		     struct err *e)
{
	int there = open_number(f, folder_of(f, in), f->part, fd, st, e);
	if (there || !f->local)
		return there;
	if (f->part) /* it has its number there, too */
		return open_number(f, in->shared, f->part, fd, st, e);
	int moved = follow_move(f, in, e);
	return moved <= 0 ? moved : open_number(f, in->shared, f->part, fd, st, e);
}

/* Opens what is to be read next. Returns 0 if there is nothing. Parts are looked for after the file was
 * opened: if it is split in between, it is in the list. */
static int open_next(struct log_file *f, const struct log_folders *in, int *fd, struct stat *st,
		     struct err *e)
{
	for (;;) {
		int there = open_file(f, in, fd, st, e);
		if (there < 0 || (there && f->part))
			return there;
		if (f->part) {
			leave_part(f);
			continue;
		}
		bool same = there && st->st_ino == f->inode;
		int rc = !same && (f->inode || f->parted) ? find_part(f, in, e) : 0;
		if (rc && there)
			close(*fd);
		if (rc < 0)
			return -1;
		if (rc)
			continue;
		if (there && (!same || st->st_size < f->at))
			f->at = 0; /* a new file has this name */
		if (there)
			f->inode = st->st_ino;
		return there;
	}
}

/* Reads more of the log. Returns how much; 0: there is no more by now. */
static ssize_t read_more(struct log_file *f, const struct log_folders *in, struct err *e)
{
	struct stat st;
	ssize_t n;
	int fd;
	for (;;) {
		int there = open_next(f, in, &fd, &st, e);
		if (there <= 0)
			return there;
		f->dated = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
		do
			n = pread(fd, f->data + f->end, f->room - f->end, f->at);
		while (n < 0 && errno == EINTR);
		close(fd);
		if (n < 0)
			return err_errno(e, ERR_IO, "%s/%s: cannot read", folder_of(f, in),
					 f->name);
		f->at += n;
		f->end += (size_t)n;
		if (n || !f->part)
			return n;
		leave_part(f);
	}
}

static int take_line(struct log_file *f, char *end, bool newline)
{
	f->line = f->data + f->begin;
	f->begin = (size_t)(end - f->data) + newline;
	if (newline)
		*end = '\0';
	else
		f->data[f->end] = '\0';
	double time = f->cut ? NAN : line_time(f, f->line);
	if (time > f->time || isnan(f->time))
		f->time = time;
	f->cut = !newline;
	return 1;
}

int rundir_log_file_next(struct log_file *f, const struct log_folders *in, size_t room, bool parts,
			 struct err *e)
{
	f->line = NULL;
	for (size_t seen = 0;;) {
		char *from = f->data ? f->data + f->begin + seen : NULL;
		char *end = from ? memchr(from, '\n', f->end - f->begin - seen) : NULL;
		if (end)
			return take_line(f, end, true);
		seen = f->end - f->begin;
		if (seen >= RUNDIR_LOG_LINE_MAX)
			return take_line(f, f->data + f->end, false);
		if (make_room(f, room, e))
			return -1;
		ssize_t n = read_more(f, in, e);
		if (n < 0)
			return -1;
		if (!n)
			return parts && seen ? take_line(f, f->data + f->end, false) : 0;
	}
}
