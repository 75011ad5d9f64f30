/*
 * thinning — keeps the run's files of JSON lines below [metrics] keep (launcher/rundir/thin.h),
 * on a thread of libuv's pool, one at a time: training and the loop do not wait for it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_THINNING_H
#define MUSTER_LAUNCHER_SUPERVISE_THINNING_H

struct supervisor;
struct thinning_work;

struct thinning_state {
	struct thinning_work *work; /* NULL: nothing is thinned now */
	int failures;               /* in succession */
};

/* Begins when a file was split, and reports how the last one ended. */
void supervise_thinning_tick(struct supervisor *s);
/* Asks the thread to end soon; the loop frees what it needs once it has. */
void supervise_thinning_close(struct supervisor *s);

#endif
