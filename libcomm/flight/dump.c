#include "libcomm/flight/dump.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "base/thread.h"
#include "libcomm/group.h"
#include "libcomm/shm/futex.h"
#include "libcomm/flight/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The text --- */

/* Length of the UTF-8 character at s; 0: it is not one. */
static int utf8_length(const unsigned char *s)
{
	int n = *s < 0x80                 ? 1
		: *s >= 0xc2 && *s < 0xe0 ? 2
		: (*s & 0xf0) == 0xe0     ? 3
		: *s >= 0xf0 && *s < 0xf5 ? 4
					  : 0;
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms and surrogates. */
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] >= 0xa0) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* Bytes that are not UTF-8, such as those of a text cut off within a character, become question
 * marks. */
static void put_text(struct buf *b, const char *text)
{
	buf_puts(b, "\"");
	for (const unsigned char *s = (const unsigned char *)text; *s;) {
		int n = utf8_length(s);
		if (*s < 0x20)
			buf_printf(b, "\\u%04x", *s);
		else if (*s == '"' || *s == '\\')
			buf_printf(b, "\\%c", *s);
		else if (n)
			buf_add(b, s, (size_t)n);
		else
			buf_puts(b, "?");
		s += n ? n : 1;
	}
	buf_puts(b, "\"");
}

struct moment {
	int64_t mono, wall_us;
};

static void put_time(struct buf *b, const struct moment *now, const char *name, int64_t ns)
{
	if (ns)
		buf_printf(b, ", \"%s\": %" PRId64, name, now->wall_us - (now->mono - ns) / 1000);
}

static void put_messages(struct buf *b, const struct record *r)
{
	buf_printf(b, ", \"messages\": %d, \"peers\": [", r->messages);
	for (int i = 0; i < r->listed; i++)
		buf_printf(b, "%s{\"%s\": %d, \"nth\": %" PRIu32 ", \"bytes\": %" PRIu64 "}",
			   i ? ", " : "", r->message[i].send ? "to" : "from", r->message[i].peer,
			   r->message[i].nth, r->message[i].bytes);
	buf_puts(b, "]");
}

static void put_record(struct buf *b, const struct moment *now, const struct record *r)
{
	static const char *const states[] = {
		[RECORD_NONE] = "none", [RECORD_QUEUED] = "queued", [RECORD_RUNNING] = "running",
		[RECORD_DONE] = "done", [RECORD_FAILED] = "failed",
	};
	bool begun = r->state != RECORD_QUEUED;
	buf_printf(b, "{\"number\": %" PRIu64 ", \"op\": \"%s\", \"state\": \"%s\"", r->number,
		   comm_op_word(r->kind), states[r->state]);
	if (begun)
		buf_printf(b, ", \"seq\": %" PRIu32 ", \"bytes\": %" PRIu64, r->seq, r->bytes);
	if (r->kind != OP_P2P && r->kind != OP_BARRIER)
		buf_printf(b, ", \"type\": \"%s\"", comm_op_type_word(r->type));
	if (comm_op_has(r->kind, OP_REDUCES))
		buf_printf(b, ", \"redop\": \"%s\"", comm_op_redop_word(r->redop));
	if (comm_op_has(r->kind, OP_ROOTED))
		buf_printf(b, ", \"root\": %d", r->root);
	if (r->algorithm)
		buf_printf(b, ", \"algorithm\": \"%s\"", r->algorithm);
	put_time(b, now, "queued_us", r->queued);
	put_time(b, now, "start_us", r->start);
	put_time(b, now, "end_us", r->end);
	if (begun && r->kind == OP_P2P)
		put_messages(b, r);
	buf_puts(b, "}");
}

/* The operations of a group, which it has recorded. */
struct recorded {
	struct record *ops; /* to be freed */
	int n;
	int64_t lost; /* others, for which there was no room */
};

/* The last operations. */
static int read_ring(const struct comm *c, struct recorded *out, struct err *e)
{
	*out = (struct recorded){ .ops = calloc(RECORDER_OPS, sizeof *out->ops) };
	if (!out->ops)
		return err_set(e, ERR_NOMEM, "no memory for the flight recorder's text");
	out->n = comm_recorder_read(c->recorder, out->ops);
	return 0;
}

static int stop_tape(const struct comm *c, struct recorded *out, struct err *e)
{
	(void)e;
	out->ops = comm_recorder_tape_stop(c->recorder, &out->n, &out->lost);
	return 0;
}

static void put_group(struct buf *b, const struct moment *now, const struct comm *c,
		      const struct recorded *of)
{
	uint32_t seq, messages;
	comm_recorder_counts(c->recorder, &seq, &messages);
	buf_puts(b, "{\"name\": ");
	put_text(b, c->name);
	buf_printf(b,
		   ", \"id\": \"%016" PRIx64
		   "\", \"backend\": \"%s\", \"rank\": %d, \"members\": [",
		   c->id, comm_backend(c), c->rank);
	for (int r = 0; r < c->size; r++)
		buf_printf(b, "%s%d", r ? ", " : "", c->members[r]);
	buf_printf(b, "],\n\"seq\": %" PRIu32 ", \"messages\": %" PRIu32, seq, messages);
	if (of->lost)
		buf_printf(b, ", \"lost\": %" PRId64, of->lost);
	buf_puts(b, ", \"ops\": [");
	for (int i = 0; i < of->n; i++) {
		buf_puts(b, i ? ",\n" : "\n");
		put_record(b, now, &of->ops[i]);
	}
	buf_puts(b, "]}");
}

static void put_error(struct buf *b, struct world *w)
{
	buf_puts(b, "\"error\": ");
	if (!world_failed(w)) {
		buf_puts(b, "null,\n");
		return;
	}
	buf_printf(b, "{\"code\": \"%s\", \"text\": ", err_word(w->first.code));
	put_text(b, w->first.text);
	buf_puts(b, "},\n");
}

/* read: where the operations come from. */
static int put_world(struct buf *b, struct world *w,
		     int (*read)(const struct comm *c, struct recorded *out, struct err *e),
		     struct err *e)
{
	int rc = 0;
	struct moment now = { .mono = clock_ns() };
	now.wall_us = (now.mono + clock_wall_offset_ns()) / 1000;
	buf_printf(b, "{\"muster_comm_dump\": 1, \"rank\": %d, \"size\": %d, \"host\": ", w->rank,
		   w->size);
	put_text(b, w->peers[w->rank].host);
	buf_printf(b, ", \"pid\": %d, \"time_us\": %" PRId64 ",\n", (int)getpid(), now.wall_us);
	put_error(b, w);
	buf_puts(b, "\"groups\": [");
	pthread_mutex_lock(&w->lock); /* groups are opened and closed meanwhile */
	for (struct comm *c = w->groups; c; c = c->next) {
		struct recorded of = { 0 };
		rc |= read(c, &of, e);
		put_group(b, &now, c, &of);
		buf_puts(b, c->next ? ",\n" : "");
		free(of.ops);
	}
	pthread_mutex_unlock(&w->lock);
	buf_puts(b, "]}\n");
	return !rc && buf_failed(b)
		       ? err_set(e, ERR_NOMEM, "no memory for the flight recorder's text")
		       : rc;
}

/* --- The file --- */

/* The file is complete or absent. It need not survive a crash of the machine, so nothing is
 * synced. */
static int write_file(const char *path, const struct buf *text, struct err *e)
{
	static _Atomic unsigned count;
	char temporary[PATH_MAX];
	if (snprintf(temporary, sizeof temporary, "%s.%d-%u", path, (int)getpid(), count++) >=
	    (int)sizeof temporary)
		return err_set(e, ERR_USAGE, "%s: the path is too long", path);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create the flight recorder's file",
				 temporary);
	int rc = file_write_full(fd, text->data, text->len);
	int cause = errno;
	close(fd);
	if (!rc && !rename(temporary, path))
		return 0;
	cause = rc ? cause : errno;
	unlink(temporary);
	errno = cause;
	return err_errno(e, ERR_IO, "%s: cannot write the flight recorder", path);
}

int comm_dump(struct comm *c, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = put_world(&text, c->world, read_ring, e);
	if (rc == 0)
		rc = write_file(path, &text, e);
	buf_fini(&text);
	return rc;
}

/* --- The tape --- */

void comm_tape_start(struct comm *c)
{
	struct world *w = c->world;
	pthread_mutex_lock(&w->lock);
	for (struct comm *g = w->groups; g; g = g->next)
		comm_recorder_tape_start(g->recorder);
	pthread_mutex_unlock(&w->lock);
}

int comm_tape_stop(struct comm *c, struct buf *out, struct err *e)
{
	return put_world(out, c->world, stop_tape, e);
}

/* --- At the first error --- */

enum { WRITING, WRITTEN, LEFT_ALONE };

struct writing { /* freed by the thread that started the writer; by the writer if it was detached */
	struct buf text;
	char dir[PATH_MAX], path[RUN_PATH];
	_Atomic uint32_t state;
	struct err err;
};

static void writing_free(struct writing *job)
{
	buf_fini(&job->text);
	free(job);
}

static void *writer_main(void *arg)
{
	struct writing *job = arg;
	if (file_make_dirs(job->dir, &job->err) == 0)
		write_file(job->path, &job->text, &job->err);
	if (atomic_exchange(&job->state, WRITTEN) == LEFT_ALONE)
		writing_free(job);
	else
		futex_wake_all(&job->state); /* the job exists until this thread is joined */
	return NULL;
}

/* After this, the first error also reports why it could not be dumped. */
static void keep_dump_error(struct world *w, const char *text)
{
	snprintf(w->dump_error, sizeof w->dump_error, "%.*s", (int)sizeof w->dump_error - 1, text);
	atomic_store_explicit(&w->dump_failed, true, memory_order_release);
}

/* Waits for the writer, for a limited time. */
static void await_writer(struct world *w, struct writing *job, pthread_t thread)
{
	int64_t end = clock_ns() + DUMP_WAIT_MS * 1000000LL, left;
	while (atomic_load(&job->state) == WRITING && (left = end - clock_ns()) > 0)
		futex_wait(&job->state, WRITING, left);
	uint32_t writing = WRITING;
	if (atomic_compare_exchange_strong(&job->state, &writing, LEFT_ALONE)) {
		pthread_detach(thread);
		keep_dump_error(w, "the flight recorder could not be written in time");
		return;
	}
	pthread_join(thread, NULL);
	if (job->err.code)
		keep_dump_error(w, job->err.text);
	writing_free(job);
}

void comm_dump_first_error(struct world *w)
{
	pthread_t thread;
	struct writing *job = w->dump_dir ? calloc(1, sizeof *job) : NULL;
	if (!w->dump_dir)
		return;
	if (!job || put_world(&job->text, w, read_ring, &job->err) < 0) {
		keep_dump_error(w, "there is no memory to write the flight recorder");
		if (job)
			writing_free(job);
		return;
	}
	snprintf(job->dir, sizeof job->dir, "%s", w->dump_dir);
	run_path_recorder(job->path, w->dump_dir, w->rank);
	if (thread_start(&thread, "flight", writer_main, job) == 0) {
		await_writer(w, job, thread);
		return;
	}
	keep_dump_error(w, "no thread could be started to write the flight recorder");
	writing_free(job);
}

int comm_dump_open(struct world *w, const char *dir, struct err *e)
{
	char path[RUN_PATH];
	pthread_mutex_init(&w->dump_lock, NULL);
	if (!dir || !*dir)
		return 0;
	if (strlen(dir) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "dump_dir: the path is too long");
	w->dump_dir = strdup(dir);
	if (!w->dump_dir)
		return err_set(e, ERR_NOMEM,
			       "no memory for the name of the flight recorder's folder");
	run_path_recorder(path, dir, w->rank);
	if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
		return err_errno(e, ERR_IO, "%s: cannot remove an earlier world's flight recorder",
				 path);
	return 0;
}

void comm_dump_close(struct world *w)
{
	free(w->dump_dir);
	pthread_mutex_destroy(&w->dump_lock);
}
