#include "launcher/fork.h"

#include "base/process.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

pid_t launcher_fork_blocked(void)
{
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	pid_t pid = fork();
	if (pid)
		sigprocmask(SIG_SETMASK, &old, NULL);
	return pid;
}

void launcher_fork_reset_signals(void)
{
	struct sigaction was;
	for (int number = 1; number < NSIG; number++) {
		if (sigaction(number, NULL, &was) || was.sa_handler == SIG_DFL ||
		    was.sa_handler == SIG_IGN)
			continue;
		signal(number, SIG_IGN); /* this drops a pending signal */
		signal(number, SIG_DFL);
	}
	process_signals();
}
