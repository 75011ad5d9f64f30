/*
 * pace — what the training thread has done, for the message progress: its finished steps, the
 * seconds of them that it spent on its own samples, and those in which it could not run. The
 * supervisor compares the ranks by them (launcher/supervise/stragglers.h). All are sums since the
 * agent started.
 */
#ifndef MUSTER_AGENT_PACE_H
#define MUSTER_AGENT_PACE_H

#include "base/msg.h"

#include <stdatomic.h>

/* Zero-initialized. */
struct pace {
	atomic_llong done, own_ns; /* finished steps; their nanoseconds without waits for others */
	atomic_llong delay_ns;   /* in which the training thread was ready to run but had no core */
	atomic_llong stalled_ns; /* in which the control thread should have run and did not */
	atomic_int trainer;      /* the training thread's id; 0: no step is finished */
	double next_look;        /* time; used by the control thread only */
};

/* A step is finished; `seconds` of it without waits. The training thread calls it. */
void agent_pace_worked(struct pace *p, double seconds);
/* The control thread woke up so many seconds after its time. It calls this and the next one. */
void agent_pace_woke(struct pace *p, double late);
/* Asks the kernel how long the training thread has waited for a core, once in `every` seconds: that
 * is a read from /proc. */
void agent_pace_look(struct pace *p, double now, double every);
/* Writes the sums. Any thread. */
void agent_pace_fill(struct pace *p, struct msg_progress *m);

#endif
