/* looks: many runs at once. */
#include "launcher/console/looks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

/* A look waits for a supervisor, a share or Slurm, and needs few descriptors while it does. */
enum { THREADS_MAX = 100, DESCRIPTORS_EACH = 8 };

struct work {
	struct console_looks *all;
	size_t n;
	atomic_size_t next;
};

static void *look_at_some(void *arg)
{
	struct work *w = arg;
	for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->n;) {
		struct console_looks *l = &w->all[i];
		l->failed = console_look(l->run, LOOK_QUICK, &l->look, &l->why) != 0;
	}
	return NULL;
}

static size_t choose_threads(size_t runs)
{
	struct rlimit files;
	size_t most = THREADS_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur / DESCRIPTORS_EACH < most)
		most = (size_t)files.rlim_cur / DESCRIPTORS_EACH;
	return runs < most ? runs : most;
}

void console_looks(struct console_looks *all, size_t n)
{
	pthread_t threads[THREADS_MAX];
	struct work w = { .all = all, .n = n };
	size_t more = 0, wanted = choose_threads(n);
	/* This thread is one of them, and does all of it if there can be no others. */
	while (more + 1 < wanted && !pthread_create(&threads[more], NULL, look_at_some, &w))
		more++;
	look_at_some(&w);
	while (more)
		pthread_join(threads[--more], NULL);
}
