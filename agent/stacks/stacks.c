#include "agent/stacks/stacks.h"

#include "agent/stacks/frames.h"
#include "agent/stacks/python.h"
#include "agent/stacks/threads.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/human.h"
#include "base/process_stat.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What is examined, and whom to tell. */
struct examiner {
	int pid;
	bool agent; /* it is one of muster's agents */
	void (*known)(void *arg, const struct stuck *found, struct buf *report, bool last);
	void *arg;
};

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

/* agent: the process is one of muster's agents, whose threads sleep while they wait for others. */
static enum stuck_kind kind_of(const struct thread *t, bool agent)
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
	if (t->call.role == CALL_SLEEP && !agent)
		return STUCK_SLEEPING;
	return t->state == 'S' ? STUCK_WAITING : STUCK_UNKNOWN;
}

/* The thread that holds the process: the first one, unless it waits for another that is stuck. */
static const struct thread *choose_thread(const struct threads *all, bool agent)
{
	enum stuck_kind first = kind_of(&all->list[0], agent);
	bool others = agent && first == STUCK_WAITING;
	for (int i = 1; i < all->n; i++)
		if (kind_of(&all->list[i], agent) == STUCK_KERNEL && first != STUCK_STOPPED)
			return &all->list[i];
	for (int i = 1; i < all->n && others; i++)
		if (is_in_file(&all->list[i]) && kind_of(&all->list[i], agent) == STUCK_CALL)
			return &all->list[i];
	for (int i = 1; i < all->n && others; i++)
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

static void describe_thread(const struct examiner *x, const struct thread *t, struct buf *b)
{
	if (t->tid != x->pid)
		buf_printf(b, "its thread %s ", t->name);
	else
		buf_puts(b, x->agent ? "its training thread " : "its main thread ");
}

static void describe_work(enum stuck_kind kind, const struct thread *t, struct buf *b)
{
	buf_printf(b, "%s (%.0f %% of a core)",
		   kind == STUCK_COMPUTING ? "computes" : "waits and spins",
		   100 * fmin(1, fmax(0, t->share)));
}

static void describe_call(enum stuck_kind kind, const struct thread *t, struct buf *b)
{
	buf_puts(b, kind == STUCK_KERNEL     ? "is stuck in the kernel (state D"
		    : kind == STUCK_WAITING  ? "waits"
		    : kind == STUCK_SLEEPING ? "sleeps"
					     : "is");
	if (kind == STUCK_KERNEL)
		buf_printf(b, "%s%s)", *t->wchan ? ", " : "", t->wchan);
	buf_puts(b, *t->call.name ? " in " : "");
	put_call(t, b);
}

static void describe(const struct examiner *x, enum stuck_kind kind, const struct thread *t,
		     struct buf *b)
{
	bool works = kind_of(t, x->agent) == STUCK_COMPUTING;
	if (kind == STUCK_GONE) {
		buf_puts(b, "its process has ended");
		return;
	}
	if (kind == STUCK_STOPPED) {
		describe_stop(x->pid, t, b);
		return;
	}
	describe_thread(x, t, b);
	if (works)
		describe_work(kind, t, b);
	else if (kind == STUCK_UNKNOWN)
		buf_printf(b, "is in state %c", t->state);
	else
		describe_call(kind, t, b);
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

/* The functions that the thread is in; "": unknown. */
enum { WHERE = 2 * PYTHON_FRAME + 16 };

/* py-spy does not stop the process, so it runs whatever the threads do. What it reads may change
 * meanwhile. */
static void debug_python(int pid, int tid, double seconds, char where[WHERE], struct buf *report)
{
	enum { TRIES = 3 };
	double end = clock_s() + seconds;
	struct python_frames frames = { .inner = "" };
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	int rc = 0;
	for (int i = 0; i < TRIES && !rc && !*frames.inner; i++) {
		buf_clear(&text);
		rc = stacks_debug(DEBUGGER_PYTHON, pid, end - clock_s(), &text, &e);
		stacks_python_frames(buf_str(&text), tid, tid == pid, &frames);
	}
	if (rc)
		buf_printf(report, "no stacks of Python: %s\n", e.text);
	buf_add(report, buf_str(&text), text.len);
	buf_puts(report, "\n");
	buf_fini(&text);
	snprintf(where, WHERE, "%s%s%s", frames.inner, *frames.caller ? ", called by " : "",
		 frames.caller);
}

/* Runs the debugger, unless it could only wait: a thread in state D does not stop for it. */
static void debug_native(int pid, const struct threads *all, int tid, double seconds,
			 char where[WHERE], struct buf *report)
{
	char frame[FRAME_NAME] = "";
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
	int rc = stacks_debug(DEBUGGER_NATIVE, pid, seconds, &text, &e);
	stacks_frame_of(buf_str(&text), tid, frame);
	snprintf(where, WHERE, "%s", frame);
	if (rc)
		buf_printf(report, "no stacks: %s\n", e.text);
	else if (!*frame)
		buf_puts(report, "the debugger printed no function of this thread\n");
	buf_add(report, buf_str(&text), text.len);
	buf_fini(&text);
}

static void debug_process(const struct examiner *x, const struct threads *all, int tid,
			  double seconds, char where[WHERE], struct buf *report)
{
	double end = clock_s() + seconds;
	*where = '\0';
	if (!x->agent && stacks_is_python(x->pid))
		debug_python(x->pid, tid, seconds / 2, where, report);
	if (!*where)
		debug_native(x->pid, all, tid, end - clock_s(), where, report);
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

/* Otherwise it is the program of a task. */
static bool is_agent(int pid)
{
	static const char name[] = "muster-agent";
	char path[64], its[PATH_MAX], ours[PATH_MAX], comm[THREAD_NAME];
	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	ssize_t n = readlink(path, its, sizeof its),
		m = readlink("/proc/self/exe", ours, sizeof ours);
	stacks_proc_text(pid, 0, "comm", comm, sizeof comm);
	return (n > 0 && n == m && !memcmp(its, ours, (size_t)n)) || !strcmp(comm, name);
}

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

/* All that the kernel shows, from two reads. */
static const struct threads *read_threads(int pid)
{
	static struct threads before, now;
	double begun = clock_s();
	stacks_threads_read(pid, &before);
	poll(NULL, 0, SAMPLE_MS);
	stacks_threads_read(pid, &now);
	stacks_threads_compare(&before, &now, clock_s() - begun);
	return &now;
}

/* The clause with what a debugger has found. A thread of a program that waits for other ranks in a
 * library may use its core for that. */
static enum stuck_kind add_where(const struct examiner *x, enum stuck_kind kind,
				 const struct thread *t, const char *where, struct buf *clause)
{
	if (!*where || kind == STUCK_STOPPED || kind == STUCK_GONE)
		return kind;
	if (!x->agent && kind == STUCK_COMPUTING && frame_waits(where)) {
		kind = STUCK_WAITING;
		buf_clear(clause);
		describe(x, kind, t, clause);
	}
	buf_printf(clause, ", in %s", where);
	return kind;
}

/* A task is often a shell that waits for the program, so that one is examined. */
static void follow_child(struct examiner *x, struct buf *body)
{
	enum { DEEPEST = 8 };
	int child;
	for (int i = 0; i < DEEPEST && (child = stacks_child_of(x->pid)); i++) {
		buf_printf(body, "process %d waits for its child, process %d\n", x->pid, child);
		x->pid = child;
	}
}

static void examine(struct examiner *x, double seconds)
{
	struct buf clause = BUF_INIT, body = BUF_INIT;
	char where[WHERE];
	double end = clock_s() + seconds;
	if (!x->agent)
		follow_child(x, &body);
	const struct threads *now = read_threads(x->pid);
	if (!now->n) {
		tell_gone(x);
		buf_fini(&body);
		return;
	}
	const struct thread *t = choose_thread(now, x->agent);
	enum stuck_kind kind = kind_of(t, x->agent);
	describe(x, kind, t, &clause);
	report_threads(x->pid, now, &body);
	buf_puts(&body, "\n");
	tell(x, kind, &clause, &body, false);
	debug_process(x, now, t->tid, end - clock_s(), where, &body);
	kind = add_where(x, kind, t, where, &clause);
	tell(x, kind, &clause, &body, true);
	buf_fini(&clause);
	buf_fini(&body);
}

void stacks_take(const struct process_id *who, double seconds,
		 void (*known)(void *arg, const struct stuck *found, struct buf *report, bool last),
		 void *arg)
{
	struct examiner x = {
		.pid = who->pid, .agent = is_agent(who->pid), .known = known, .arg = arg
	};
	if (exists(who))
		examine(&x, seconds);
	else
		tell_gone(&x);
}
