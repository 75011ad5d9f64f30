#include "base/pin.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads digits at *at; -1 when there are none or they name no cpu. */
static int read_cpu(const char **at)
{
	int cpu = -1;
	while (**at >= '0' && **at <= '9') {
		cpu = (cpu < 0 ? 0 : cpu) * 10 + (**at - '0');
		if (cpu >= CPU_SETSIZE)
			return -1;
		++*at;
	}
	return cpu;
}

int pin_cpus(const char *list, struct err *e)
{
	if (!*list)
		return 0;
	cpu_set_t set;
	CPU_ZERO(&set);
	for (const char *at = list; *at;) {
		int lo = read_cpu(&at), hi = lo;
		if (lo >= 0 && *at == '-') {
			at++;
			hi = read_cpu(&at);
		}
		bool last = *at == '\0';
		if (lo < 0 || hi < lo || (!last && *at != ','))
			return err_set(e, ERR_USAGE, "cpu list \"%s\": not of the form 0-3,8",
				       list);
		for (int cpu = lo; cpu <= hi; cpu++)
			CPU_SET(cpu, &set);
		at += !last;
	}
	if (sched_setaffinity(0, sizeof set, &set))
		return err_errno(e, ERR_UNSUPPORTED, "cannot bind to cpus %s", list);
	return 0;
}

enum { DOMAINS_MAX = 1024, WORD = CHAR_BIT * sizeof(unsigned long) };

int pin_memory(int numa, struct err *e)
{
	unsigned long mask[DOMAINS_MAX / WORD] = { 0 };
	if (numa < 0)
		return 0;
	if (numa >= DOMAINS_MAX)
		return err_set(e, ERR_UNSUPPORTED, "NUMA domain %d: domains from 0 to %d are known",
			       numa, DOMAINS_MAX - 1);
	mask[numa / (int)WORD] = 1UL << numa % (int)WORD;
	if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)DOMAINS_MAX))
		return err_errno(e, ERR_UNSUPPORTED, "cannot prefer the memory of NUMA domain %d",
				 numa);
	return 0;
}
