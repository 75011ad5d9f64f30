#include "launcher/descriptors.h"

#include <sys/resource.h>

/* Of a rank: its control connection and the pidfd of its process. The rest: standard streams, the run's files, the
 * loop's own, the PMIx server's pipe, Slurm's commands, and a few strangers. */
enum { A_RANK = 2, BESIDES = 32 };

int descriptors_allow(int ranks, struct err *e)
{
	rlim_t need = (rlim_t)ranks * A_RANK + BESIDES;
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return err_errno(e, ERR_UNSUPPORTED, "cannot read the limit of open files");
	if (limit.rlim_cur >= need)
		return 0;
	if (limit.rlim_max < need)
		return err_set(e, ERR_UNSUPPORTED, "%d agents need %llu open files, and the limit of this process is %llu; raise it "
			       "with ulimit -n %llu, or as root", ranks, (unsigned long long)need,
			       (unsigned long long)limit.rlim_max, (unsigned long long)need);
	limit.rlim_cur = need;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return err_errno(e, ERR_UNSUPPORTED, "cannot raise the limit of open files to %llu", (unsigned long long)need);
	return 0;
}
