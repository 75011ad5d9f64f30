#include "agent/task/output.h"

#include "agent/task/lines.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/human.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	PIPE = 1 << 20, /* if the system allows it */
	READ = 64 << 10,
	KEEP = 64 << 10, /* the end of a stream that is not dropped */
	REST_MS = 1,
	TAIL_LINES = 40,
	TAIL_BYTES = 8 << 10,
	TAIL_LINE = TAIL_BYTES / 4 - 1 /* of one line, without its newline */
};
/* How often a flooded pipe is emptied; how long a flood is dropped before lines are taken again, as a
 * share of a second's budget; how often the log gets a line about dropped output. */
static const double empty_s = 0.0004, resume_share = 0.25, note_s = 10;
static const double default_rate = 8 << 20, burst_seconds = 4;

struct tail {
	int lines;
	size_t len;
	char text[TAIL_BYTES + 1];
};

struct stream {
	struct task_output *o;
	enum task_stream which;
	int fd; /* -1: it has ended */
	struct task_lines *lines;
	struct tail tail;
	double budget, budget_at; /* bytes of log */
	double taken;             /* bytes that were read since the last block */
	bool full;                /* there may be more to read */
	bool dropping, gap;       /* gap: something was dropped since */
	uint64_t dropped, noted;  /* bytes; those that the log has a line about */
	double noted_at;
};

struct task_output {
	struct task_output_options opt;
	struct stream streams[TASK_STREAMS];
	int stop, null;
	pthread_t thread;
	bool runs;
	struct buf block; /* lines that are to be written */
	size_t head_len;
	char head[LOG_HEAD];
	char data[READ];
};

static const char *const words[TASK_STREAMS] = { "out", "err" };

/* --- Lines --- */

static void drop_first_line(struct tail *t)
{
	const char *end = memchr(t->text, '\n', t->len);
	size_t n = end ? (size_t)(end - t->text) + 1 : t->len;
	t->len -= n;
	t->lines--;
	memmove(t->text, t->text + n, t->len);
}

static void add_to_tail(struct tail *t, const char *text, size_t len)
{
	len = task_lines_cut(text, len, TAIL_LINE);
	while (t->lines == TAIL_LINES || t->len + len + 1 > TAIL_BYTES)
		drop_first_line(t);
	memcpy(t->text + t->len, text, len);
	t->len += len;
	t->text[t->len++] = '\n';
	t->text[t->len] = '\0';
	t->lines++;
}

static void write_line(struct stream *s, const char *text, size_t len)
{
	struct task_output *o = s->o;
	buf_add(&o->block, o->head, o->head_len);
	buf_add(&o->block, text, len);
	buf_add(&o->block, "\n", 1);
	if (o->opt.line)
		o->opt.line(o->opt.arg, s->which, text, len);
}

/* A pass of struct task_lines. */
static void take_line(void *arg, const char *text, size_t len)
{
	struct stream *s = arg;
	add_to_tail(&s->tail, text, len);
	write_line(s, text, len);
}

static void set_head(struct stream *s)
{
	s->o->head_len = log_head(words[s->which], s->o->head);
}

static void write_block(struct stream *s)
{
	struct buf *b = &s->o->block;
	/* Text that gives no line, such as states of progress bars, is work too. */
	s->budget -= fmax((double)b->len, s->taken);
	s->taken = 0;
	if (b->len)
		log_block(b->data, b->len);
	if (buf_failed(b) || b->cap > 4 * READ)
		buf_fini(b);
	else
		buf_clear(b);
}

/* --- What is too much --- */

static void refill(struct stream *s, double now)
{
	const struct task_output_options *opt = &s->o->opt;
	s->budget = fmin(opt->burst, s->budget + opt->rate * (now - s->budget_at));
	s->budget_at = now;
}

static void note_dropped(struct stream *s, double now)
{
	char size[HUMAN], rate[HUMAN], text[160];
	if (s->dropped == s->noted)
		return;
	int n = snprintf(text, sizeof text, "... %s of output were dropped: more than %s",
			 human_count((double)(s->dropped - s->noted), "B", size),
			 human_count(s->o->opt.rate, "B/s", rate));
	set_head(s);
	write_line(s, text, (size_t)n);
	s->noted = s->dropped;
	s->noted_at = now;
}

static size_t bytes_in(const struct stream *s)
{
	int n = 0;
	return ioctl(s->fd, FIONREAD, &n) || n < 0 ? 0 : (size_t)n;
}

/* The last bytes stay in the pipe. */
static void drop(struct stream *s)
{
	size_t n = bytes_in(s);
	if (n <= KEEP)
		return;
	ssize_t gone = splice(s->fd, NULL, s->o->null, NULL, n - KEEP, SPLICE_F_NONBLOCK);
	if (gone <= 0)
		return;
	if (!s->gap)
		task_lines_gap(s->lines);
	s->gap = true;
	s->dropped += (uint64_t)gone;
}

static double resume_at(const struct task_output_options *opt)
{
	return fmin(opt->rate * resume_share, opt->burst / 2);
}

static void go_on(struct stream *s)
{
	s->dropping = s->gap = false;
}

/* --- Streams --- */

static void end_stream(struct stream *s)
{
	task_lines_end(s->lines);
	close(s->fd);
	s->fd = -1;
}

/* Takes at most `most` bytes, and returns how many. 0: nothing is there. */
static size_t read_stream(struct stream *s, size_t most, double now)
{
	ssize_t n = read(s->fd, s->o->data, most < READ ? most : READ);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		end_stream(s);
		return 0;
	}
	s->taken += (double)n;
	s->full = n == READ;
	task_lines_feed(s->lines, s->o->data, (size_t)n, now);
	return (size_t)n;
}

static void serve(struct stream *s, short events, double now)
{
	refill(s, now);
	set_head(s);
	s->full = false;
	if (s->fd >= 0 && s->dropping) {
		drop(s);
		if (s->budget >= resume_at(&s->o->opt) || events & POLLHUP)
			go_on(s);
	} else if (s->fd >= 0 && events) {
		read_stream(s, READ, now);
	}
	task_lines_flush(s->lines, now);
	if (s->fd < 0 || (!s->dropping && now >= s->noted_at + note_s))
		note_dropped(s, now);
	write_block(s);
	s->dropping |= s->fd >= 0 && s->budget <= 0 && !(events & POLLHUP);
}

/* What is in the pipe now, but not what comes meanwhile. */
static void drain(struct stream *s)
{
	double now = clock_s();
	if (s->fd >= 0 && s->dropping)
		drop(s);
	set_head(s);
	size_t left = s->fd >= 0 ? bytes_in(s) : 0, n = 1;
	for (; left && n; left -= n)
		n = read_stream(s, left, now);
	if (s->fd >= 0)
		end_stream(s);
	note_dropped(s, now);
	write_block(s);
}

/* --- The thread --- */

static double wake_at(const struct stream *s, double now)
{
	double at = task_lines_due(s->lines);
	if (s->dropping)
		at = fmin(at, now + empty_s);
	if (s->dropped > s->noted)
		at = fmin(at, fmax(now + empty_s, s->noted_at + note_s));
	return at;
}

/* How long to wait for output. NULL: without limit. Milliseconds are too coarse for a flood. */
static const struct timespec *waiting_time(const struct task_output *o, double now,
					   struct timespec *out)
{
	double at = INFINITY;
	for (int i = 0; i < TASK_STREAMS; i++)
		at = fmin(at, wake_at(&o->streams[i], now));
	if (at == INFINITY)
		return NULL;
	double left = fmax(0, at - now);
	*out = (struct timespec){ .tv_sec = (time_t)left,
				  .tv_nsec = (long)((left - floor(left)) * 1e9) };
	return out;
}

/* A program that writes often and little must not wake the thread each time. A flood does not. */
static void let_more_come(const struct task_output *o)
{
	struct pollfd stop = { .fd = o->stop, .events = POLLIN };
	for (int i = 0; i < TASK_STREAMS; i++)
		if (o->streams[i].full || o->streams[i].dropping)
			return;
	poll(&stop, 1, REST_MS);
}

static void *pump(void *arg)
{
	struct task_output *o = arg;
	struct pollfd fds[TASK_STREAMS + 1] = { [TASK_STREAMS] = { .fd = o->stop,
								   .events = POLLIN } };
	struct timespec time;
	do {
		for (int i = 0; i < TASK_STREAMS; i++)
			fds[i] = (struct pollfd){
				.fd = o->streams[i].fd,
				.events = o->streams[i].dropping ? 0 : POLLIN,
			};
		if (ppoll(fds, TASK_STREAMS + 1, waiting_time(o, clock_s(), &time), NULL) < 0)
			continue;
		for (int i = 0; i < TASK_STREAMS; i++)
			serve(&o->streams[i], fds[i].revents, clock_s());
		let_more_come(o);
	} while (!fds[TASK_STREAMS].revents);
	for (int i = 0; i < TASK_STREAMS; i++)
		drain(&o->streams[i]);
	return NULL;
}

/* --- Open and close --- */

static int open_stream(struct task_output *o, enum task_stream which, int *end)
{
	struct stream *s = &o->streams[which];
	int fds[2];
	s->lines = task_lines_open(take_line, s);
	if (!s->lines || pipe2(fds, O_CLOEXEC))
		return -1;
	fcntl(fds[0], F_SETFL, O_NONBLOCK); /* the program's end blocks */
	fcntl(fds[0], F_SETPIPE_SZ, PIPE);
	s->fd = fds[0];
	s->budget = o->opt.burst;
	s->budget_at = clock_s();
	s->noted_at = -INFINITY;
	*end = fds[1];
	return 0;
}

static void init(struct task_output *o, const struct task_output_options *opt)
{
	o->opt = *opt;
	if (!opt->rate)
		o->opt.rate = default_rate;
	if (!opt->burst)
		o->opt.burst = o->opt.rate * burst_seconds;
	o->stop = o->null = -1;
	for (int i = 0; i < TASK_STREAMS; i++)
		o->streams[i] = (struct stream){ .o = o, .which = (enum task_stream)i, .fd = -1 };
}

static int begin(struct task_output *o, int ends[TASK_STREAMS])
{
	o->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	o->null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < TASK_STREAMS; i++)
		if (open_stream(o, (enum task_stream)i, &ends[i]))
			return -1;
	o->runs = o->stop >= 0 && o->null >= 0 &&
		  !thread_start(&o->thread, "muster-output", pump, o);
	return o->runs ? 0 : -1;
}

int task_output_open(const struct task_output_options *opt, struct task_output **out,
		     int ends[TASK_STREAMS], struct err *e)
{
	int fds[TASK_STREAMS] = { -1, -1 };
	struct task_output *o = calloc(1, sizeof *o);
	if (o)
		init(o, opt);
	if (o && !begin(o, fds)) {
		memcpy(ends, fds, sizeof fds);
		*out = o;
		return 0;
	}
	for (int i = 0; i < TASK_STREAMS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	task_output_close(o);
	return err_set(
		e, ERR_NOMEM,
		"job.program: no memory, descriptors (ulimit -n) or threads (ulimit -u) to take "
		"its output");
}

void task_output_finish(struct task_output *o)
{
	if (!o->runs)
		return;
	eventfd_write(o->stop, 1);
	pthread_join(o->thread, NULL);
	o->runs = false;
}

const char *task_output_tail(const struct task_output *o)
{
	const struct tail *err = &o->streams[TASK_ERR].tail;
	return err->len ? err->text : o->streams[TASK_OUT].tail.text;
}

void task_output_close(struct task_output *o)
{
	if (!o)
		return;
	task_output_finish(o);
	for (int i = 0; i < TASK_STREAMS; i++) {
		if (o->streams[i].fd >= 0)
			close(o->streams[i].fd);
		task_lines_close(o->streams[i].lines);
	}
	if (o->stop >= 0)
		close(o->stop);
	if (o->null >= 0)
		close(o->null);
	buf_fini(&o->block);
	free(o);
}
