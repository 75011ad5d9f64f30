#include "base/thread.h"

#include <stdio.h>

void thread_block_signals(sigset_t *before)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

void thread_restore_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

int thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *arg)
{
	char cut[THREAD_NAME];
	sigset_t before;
	thread_block_signals(&before);
	int rc = pthread_create(thread, NULL, work, arg);
	thread_restore_signals(&before);
	if (rc)
		return rc;
	snprintf(cut, sizeof cut, "%s", name);
	pthread_setname_np(*thread, cut);
	return 0;
}
