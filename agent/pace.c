#include "agent/pace.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread that sleeps usually wakes soon after its time even on busy cores. If it is later than this,
 * the process was stopped, or its whole machine, or it had no core. */
static const double stalled_s = 0.2;

void agent_pace_worked(struct pace *p, double seconds)
{
	if (!atomic_load_explicit(&p->trainer, memory_order_relaxed))
		atomic_store_explicit(&p->trainer, (int)syscall(SYS_gettid), memory_order_relaxed);
	atomic_fetch_add_explicit(&p->own_ns, (long long)(1e9 * seconds), memory_order_relaxed);
	atomic_fetch_add_explicit(&p->done, 1, memory_order_relaxed);
}

void agent_pace_woke(struct pace *p, double late)
{
	if (late > stalled_s)
		atomic_fetch_add(&p->stalled_ns, (long long)(1e9 * late));
}

/* Nanoseconds: the second number of the thread's schedstat (Linux,
 * Documentation/scheduler/sched-stats). 0: unknown. */
static long long read_delay(int thread)
{
	char path[64];
	long long ran, waited = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", thread);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%lld %lld", &ran, &waited) != 2)
		waited = 0;
	if (f)
		fclose(f);
	return waited;
}

void agent_pace_look(struct pace *p, double now, double every)
{
	int trainer = atomic_load(&p->trainer);
	if (!trainer || now < p->next_look)
		return;
	p->next_look = now + every;
	long long delay = read_delay(trainer);
	if (delay > 0) /* otherwise the sum would fall */
		atomic_store(&p->delay_ns, delay);
}

void agent_pace_fill(struct pace *p, struct msg_progress *m)
{
	m->done = atomic_load(&p->done);
	m->own_s = 1e-9 * (double)atomic_load(&p->own_ns);
	m->delay_s = 1e-9 * (double)atomic_load(&p->delay_ns);
	m->stalled_s = 1e-9 * (double)atomic_load(&p->stalled_ns);
}
