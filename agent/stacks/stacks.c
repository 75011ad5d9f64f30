#include "agent/stacks/stacks.h"

#include "agent/stacks/frames.h"
#include "agent/stacks/threads.h"
#include "base/clock.h"
#include "base/human.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two reads of the threads, and the share of a core from which on a thread computes. */
enum { SAMPLE_MS = 150 };
static const double computes = 0.2, idles = 0.02;

const char *stacks_kind_word(enum stuck_kind kind)
{
	static const char *const words[] = {
#define STUCK_WORD(id, word, doc) word,
		STUCK_KINDS(STUCK_WORD)
#undef STUCK_WORD
	};
	return words[kind];
}

/* --- What one thread does ----------------------------------------------------------- */

static bool is_frozen(const struct thread *t)
{
	return strstr(t->wchan, "freezer") || strstr(t->wchan, "refrigerator");
}

/* The call concerns a file, not a connection. */
static bool is_in_file(const struct thread *t)
{
	return t->call.role == CALL_FILE && !stacks_link_waits(t->link);
}

static enum stuck_kind kind_of(const struct thread *t)
{
	if (t->state == 'Z' || t->state == 'X')
		return STUCK_GONE;
	if (t->state == 'T' || t->state == 't' || is_frozen(t))
		return STUCK_STOPPED;
	if (t->state == 'D')
		return STUCK_KERNEL;
	bool idle = t->ran_ns && t->share >= 0 && t->share < idles;
	if (t->share >= computes || (t->state == 'R' && !idle))
		return STUCK_COMPUTING;
	if (is_in_file(t) || t->call.role == CALL_OTHER)
		return STUCK_CALL;
	return t->state == 'S' ? STUCK_WAITING : STUCK_UNKNOWN;
}

/* The thread that holds the process: the first one, unless it waits for another that is stuck. */
static const struct thread *choose_thread(const struct threads *all)
{
	enum stuck_kind first = kind_of(&all->list[0]);
	for (int i = 1; i < all->n; i++)
		if (kind_of(&all->list[i]) == STUCK_KERNEL && first != STUCK_STOPPED)
			return &all->list[i];
	for (int i = 1; i < all->n && first == STUCK_WAITING; i++)
		if (is_in_file(&all->list[i]) && kind_of(&all->list[i]) == STUCK_CALL)
			return &all->list[i];
	for (int i = 1; i < all->n && first == STUCK_WAITING; i++)
		if (all->list[i].share >= computes)
			return &all->list[i];
	return &all->list[0];
}

/* --- The clause ------------------------------------------------------------------------ */

static void put_call(const struct thread *t, struct buf *b)
{
	if (!*t->call.name)
		return;
	buf_printf(b, "%s%s", strncmp(t->call.name, "system", 6) ? "the system call " : "",
		   t->call.name);
	if (*t->link)
		buf_printf(b, " of %s", t->link);
	else if (t->call.fd >= 0)
		buf_printf(b, " of descriptor %d", t->call.fd);
}

static void describe_stop(int pid, const struct thread *t, struct buf *b)
{
	char name[THREAD_NAME];
	int tracer = stacks_tracer_of(pid);
	if (is_frozen(t)) {
		buf_puts(b, "its cgroup is frozen");
	} else if (t->state == 't' && tracer) {
		stacks_proc_text(tracer, 0, "comm", name, sizeof name);
		buf_printf(b, "process %d (%s) traces it and has stopped it", tracer, name);
	} else {
		buf_puts(b, "its process is stopped by a signal");
	}
}

static void describe(int pid, enum stuck_kind kind, const struct thread *t, struct buf *b)
{
	if (kind == STUCK_GONE) {
		buf_puts(b, "its process has ended");
		return;
	}
	if (kind == STUCK_STOPPED) {
		describe_stop(pid, t, b);
		return;
	}
	if (t->tid == pid)
		buf_puts(b, "its training thread ");
	else
		buf_printf(b, "its thread %s ", t->name);
	if (kind == STUCK_COMPUTING) {
		buf_printf(b, "computes (%.0f %% of a core)", 100 * fmin(1, fmax(0, t->share)));
	} else if (kind == STUCK_UNKNOWN) {
		buf_printf(b, "is in state %c", t->state);
	} else {
		buf_puts(b, kind == STUCK_KERNEL    ? "is stuck in the kernel (state D"
			    : kind == STUCK_WAITING ? "waits"
						    : "is");
		if (kind == STUCK_KERNEL)
			buf_printf(b, "%s%s)", *t->wchan ? ", " : "", t->wchan);
		buf_puts(b, *t->call.name ? " in " : "");
		put_call(t, b);
	}
}

/* --- The report ------------------------------------------------------------------------ */

static void report_thread(int pid, const struct thread *t, struct buf *b)
{
	char stack[4096];
	buf_printf(b, "thread %d %s: state %c, %.1f s of CPU", t->tid, t->name, t->state,
		   1e-9 * (double)t->ran_ns);
	if (t->share >= 0)
		buf_printf(b, ", now %.0f %% of a core", 100 * t->share);
	if (*t->wchan)
		buf_printf(b, ", sleeps in %s", t->wchan);
	if (*t->call.name) {
		buf_puts(b, ", in ");
		put_call(t, b);
	}
	buf_puts(b, "\n");
	stacks_proc_text(pid, t->tid, "stack", stack, sizeof stack); /* only root may read it */
	for (char *line = stack, *end; *line; line = end) {
		end = line + strcspn(line, "\n");
		end += *end == '\n';
		buf_printf(b, "    %.*s\n", (int)strcspn(line, "\n"), line);
	}
}

static void report_threads(int pid, const struct threads *all, struct buf *b)
{
	for (int i = 0; i < all->n; i++)
		report_thread(pid, &all->list[i], b);
	if (all->more)
		buf_printf(b, "%d more threads\n", all->more);
}

/* Runs the debugger, unless it could only wait: a thread in state D does not stop for it. */
static void debug_process(int pid, const struct threads *all, int tid, double seconds,
			  char frame[FRAME_NAME], struct buf *report)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	for (int i = 0; i < all->n; i++)
		if (all->list[i].state == 'D' || all->list[i].state == 't') {
			buf_printf(
				report,
				"no debugger was run: thread %d would not answer it (state %c)\n",
				all->list[i].tid, all->list[i].state);
			return;
		}
	int rc = stacks_debug(pid, seconds, &text, &e);
	stacks_frame_of(buf_str(&text), tid, frame);
	if (rc)
		buf_printf(report, "no stacks: %s\n", e.text);
	else if (!*frame)
		buf_puts(report, "the debugger printed no function of this thread\n");
	buf_add(report, buf_str(&text), text.len);
	buf_fini(&text);
}

/* --- The process ------------------------------------------------------------------------ */

/* A pid alone may be that of another process by now. */
static bool exists(const struct process_id *who)
{
	struct process_id self;
	struct process_stat stat;
	process_id_self(&self);
	return !strcmp(who->boot, self.boot) && who->pid_space == self.pid_space &&
	       !process_stat_read(who->pid, &stat) && stat.start == who->start;
}

/* What is known, and whom to tell. */
struct examiner {
	int pid;
	void (*known)(void *arg, const struct stuck *found, struct buf *report, bool last);
	void *arg;
};

static void tell(const struct examiner *x, enum stuck_kind kind, struct buf *clause,
		 struct buf *body, bool last)
{
	struct stuck found = { .kind = kind };
	struct buf report = BUF_INIT;
	snprintf(found.text, sizeof found.text, "%.*s", STUCK_TEXT - 1, buf_str(clause));
	human_plain(found.text);
	buf_printf(&report, "process %d: %s\n\n", x->pid, found.text);
	buf_add(&report, buf_str(body), body->len);
	x->known(x->arg, &found, &report, last);
	buf_fini(&report);
}

static void tell_gone(const struct examiner *x)
{
	struct buf clause = BUF_INIT, body = BUF_INIT;
	buf_puts(&clause, "its process has ended");
	tell(x, STUCK_GONE, &clause, &body, true);
	buf_fini(&clause);
}

static void examine(const struct examiner *x, double seconds)
{
	static struct threads before, now;
	struct buf clause = BUF_INIT, body = BUF_INIT;
	char frame[FRAME_NAME] = "";
	double begun = clock_s();
	stacks_threads_read(x->pid, &before);
	poll(NULL, 0, SAMPLE_MS);
	stacks_threads_read(x->pid, &now);
	stacks_threads_compare(&before, &now, clock_s() - begun);
	if (!now.n) {
		tell_gone(x);
		return;
	}
	const struct thread *t = choose_thread(&now);
	enum stuck_kind kind = kind_of(t);
	describe(x->pid, kind, t, &clause);
	report_threads(x->pid, &now, &body);
	buf_puts(&body, "\n");
	tell(x, kind, &clause, &body, false);
	debug_process(x->pid, &now, t->tid, seconds - (clock_s() - begun), frame, &body);
	if (*frame && kind != STUCK_STOPPED && kind != STUCK_GONE)
		buf_printf(&clause, ", in %s", frame);
	tell(x, kind, &clause, &body, true);
	buf_fini(&clause);
	buf_fini(&body);
}

void stacks_take(const struct process_id *who, double seconds,
		 void (*known)(void *arg, const struct stuck *found, struct buf *report, bool last),
		 void *arg)
{
	const struct examiner x = { .pid = who->pid, .known = known, .arg = arg };
	if (exists(who))
		examine(&x, seconds);
	else
		tell_gone(&x);
}
