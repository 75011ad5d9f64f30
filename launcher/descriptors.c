#include "launcher/descriptors.h"

#include "base/human.h"
#include "base/process.h"

#include <sys/resource.h>

/* Per rank: its control connection. Per node: those of its guard and its helper. Per child: the pidfd of its
 * process. In addition: standard streams, the
 * run's files, those of the loop, the PMIx server's pipe, Slurm's commands, and a few strangers. */
enum { IN_ADDITION = 32 };

int launcher_descriptors_allow(int ranks, int nodes, struct err *e)
{
	rlim_t need = (rlim_t)ranks + (rlim_t)(nodes ? 2 * nodes : ranks) + IN_ADDITION;
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return err_errno(e, ERR_UNSUPPORTED, "cannot read the limit of open files");
	if (limit.rlim_cur >= need)
		return 0;
	if (limit.rlim_max < need)
		return err_set(e, ERR_UNSUPPORTED,
			       "%d agents need %llu open files, but the limit of this process is "
			       "%llu; raise it with ulimit -n %llu, or as root",
			       ranks, (unsigned long long)need, (unsigned long long)limit.rlim_max,
			       (unsigned long long)need);
	limit.rlim_cur = need;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return err_errno(e, ERR_UNSUPPORTED, "cannot raise the limit of open files to %llu",
				 (unsigned long long)need);
	return 0;
}

/* Bytes per thread: its stack and the buffer of the BLAS. In addition: code, libraries, memory that
 * malloc reserves. */
#define PER_THREAD ((128.0 + 8) * (1 << 20))
#define THE_REST   (400.0 * (1 << 20))

int launcher_address_space_allows(const struct job *job, const struct plan *p, struct err *e)
{
	double limit = process_address_limit(), most = 0;
	char have[HUMAN], need[HUMAN];
	if (!limit)
		return 0;
	if (job->job.device == DEVICE_CUDA)
		return err_set(e, ERR_UNSUPPORTED,
			       "the limit of the address space is %s (ulimit -v), but CUDA "
			       "reserves more than any such limit; remove it: ulimit -v unlimited",
			       human_bytes(limit, have));
	for (int i = 0; i < p->world; i++) {
		double rank = p->ranks[i].total + p->ranks[i].threads * PER_THREAD + THE_REST;
		most = rank > most ? rank : most;
	}
	if (most <= limit)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "the limit of the address space is %s (ulimit -v), but an agent of this "
		       "plan may need %s; remove it: ulimit -v unlimited",
		       human_bytes(limit, have), human_bytes(most, need));
}
