#include "agent/engine/ckpt/storage/s3_active.h"

#include <pthread.h>

enum { THREADS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	pthread_t thread;
	struct s3_download *download; /* NULL: unused */
} active[THREADS];

/* A file is parked only by the thread that read it last. */
void ckpt_s3_active_set(struct s3_download *d)
{
	struct s3_download *before = NULL;
	int free_row = -1, own = -1;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < THREADS; i++) {
		if (!active[i].download)
			free_row = i;
		else if (pthread_equal(active[i].thread, pthread_self()))
			own = i;
		else if (active[i].download == d) /* it has moved to this thread */
			active[i].download = NULL;
	}
	if (own >= 0 && active[own].download != d)
		before = active[own].download;
	if (own < 0)
		own = free_row;
	if (own >= 0) {
		active[own].thread = pthread_self();
		active[own].download = d;
	}
	pthread_mutex_unlock(&lock);
	if (before)
		s3_download_park(before);
}

void ckpt_s3_active_drop(struct s3_download *d)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < THREADS; i++)
		if (active[i].download == d)
			active[i].download = NULL;
	pthread_mutex_unlock(&lock);
}
