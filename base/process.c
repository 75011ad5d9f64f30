#include "base/process.h"

#include "base/human.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set once, before any thread is started. */
static mode_t inherited_umask = 077;

static void hold_stdio(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

void process_signals(void)
{
	struct sigaction was;
	sigset_t none;
	for (int number = 1; number < NSIG; number++) {
		/* SIGKILL, SIGSTOP and those of the C library cannot be set, and need not be. */
		if (sigaction(number, NULL, &was) ||
		    (number == SIGHUP && was.sa_handler == SIG_IGN))
			continue;
		signal(number, SIG_DFL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void process_begin(void)
{
	hold_stdio();
	process_signals();
	signal(SIGXFSZ, SIG_IGN);
	inherited_umask = umask(077);
}

mode_t process_inherited_umask(void)
{
	return inherited_umask;
}

mode_t process_public_mode(void)
{
	return (0666 & ~inherited_umask) | 0600;
}

const char *process_write_remedy(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT:
		return "; free some room there";
	case EFBIG:
		return "; raise the limit of file sizes (ulimit -f unlimited; under Slurm in the "
		       "shell that submits)";
	default:
		return "";
	}
}

double process_address_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return 0;
	return (double)limit.rlim_cur;
}

/* Bytes of address space in use. */
static double address_space(void)
{
	double pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (f && fscanf(f, "%lf", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (double)sysconf(_SC_PAGESIZE);
}

int process_check_memory(const char *what, double bytes, struct err *e)
{
	char have[HUMAN], need[HUMAN];
	double limit = process_address_limit(), used = address_space();
	if (!limit || used + bytes <= limit)
		return 0;
	return err_set(e, ERR_NOMEM,
		       "%s: the limit of the address space is %s (ulimit -v), and %s are needed; "
		       "raise it: ulimit -v "
		       "unlimited",
		       what, human_bytes(limit, have), human_bytes(used + bytes, need));
}
