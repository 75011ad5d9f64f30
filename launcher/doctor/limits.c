/* limits: checks what the kernel and the control group allow. */
#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "base/meminfo.h"
#include "base/process.h"
#include "topo/host.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { FILES_MIN = 4096 };
#define ADDRESS_MIN (600.0 * (1 << 20)) /* libraries and one thread with its BLAS buffer */
#define SHM_MIN     (512.0 * (1 << 20)) /* NCCL's segments between the GPUs of a full node */

static const char *limit_text(rlim_t limit, bool bytes, char out[HUMAN])
{
	if (limit == RLIM_INFINITY)
		return "unlimited";
	if (bytes)
		return human_bytes((double)limit, out);
	snprintf(out, HUMAN, "%llu", (unsigned long long)limit);
	return out;
}

static bool has_infiniband(void)
{
	glob_t g;
	bool some = !glob("/sys/class/infiniband/*", 0, NULL, &g);
	if (some)
		globfree(&g);
	return some;
}

static void check_address_space(const struct needs *n, struct findings *f)
{
	char text[HUMAN], need[HUMAN];
	double limit = process_address_limit(), rank = n->ranks > 0 ? n->host_memory / n->ranks : 0;
	if (!limit)
		return;
	human_bytes(limit, text);
	if (n->cuda || rank + ADDRESS_MIN > limit)
		doctor_found_bad(f, FINDING_FAIL, "address space",
				 "ulimit -v unlimited (/etc/security/limits.conf: as)",
				 "ulimit -v limits it to %s, but an agent needs %s%s", text,
				 n->cuda ? "more for CUDA" : human_bytes(rank + ADDRESS_MIN, need),
				 n->cuda ? "" : " or more");
	else
		doctor_found_bad(f, FINDING_WARN, "address space",
				 "ulimit -v unlimited (/etc/security/limits.conf: as)",
				 "ulimit -v limits it to %s, and reserved memory counts too", text);
}

static void check_file_sizes(struct findings *f)
{
	struct rlimit sizes = { 0, 0 };
	char text[HUMAN];
	if (!getrlimit(RLIMIT_FSIZE, &sizes) && sizes.rlim_cur != RLIM_INFINITY)
		doctor_found_bad(f, FINDING_WARN, "file sizes",
				 "ulimit -f unlimited (/etc/security/limits.conf: fsize)",
				 "ulimit -f limits them to %s: larger files of a checkpoint or a "
				 "log cannot be written",
				 limit_text(sizes.rlim_cur, true, text));
}

void doctor_check_limits(const struct needs *n, struct findings *f)
{
	struct rlimit files = { 0, 0 }, locked = { 0, 0 };
	char text[HUMAN], most[HUMAN];
	(void)n;
	getrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_MEMLOCK, &locked);
	if (files.rlim_max < FILES_MIN)
		doctor_found_bad(
			f, FINDING_WARN, "open files",
			"raise the hard limit (ulimit -Hn 65536; /etc/security/limits.conf; "
			"Slurm: PropagateResourceLimitsExcept=NOFILE)",
			"at most %s: large jobs and data of many files need more",
			limit_text(files.rlim_max, false, text));
	else
		doctor_found_ok(f, "open files", "%s, up to %s",
				limit_text(files.rlim_cur, false, text),
				limit_text(files.rlim_max, false, most));
	check_address_space(n, f);
	check_file_sizes(f);
	if (locked.rlim_cur != RLIM_INFINITY && has_infiniband())
		doctor_found_bad(f, FINDING_WARN, "locked memory",
				 "ulimit -l unlimited (/etc/security/limits.conf; for Slurm's jobs "
				 "LimitMEMLOCK=infinity in slurmd's unit)",
				 "at most %s: NCCL may need more for InfiniBand",
				 limit_text(locked.rlim_cur, true, text));
	else
		doctor_found_ok(f, "locked memory", "%s", limit_text(locked.rlim_cur, true, text));
}

void doctor_check_memory(const struct needs *n, struct findings *f)
{
	const struct host *h;
	struct err e = ERR_INIT;
	char free_text[HUMAN], all_text[HUMAN], need[HUMAN], total_text[HUMAN];
	double there = meminfo_read("MemAvailable"), total = meminfo_read("MemTotal");
	if (topo_host_get(&h, &e)) {
		doctor_found_bad(f, FINDING_FAIL, "memory", "run lstopo (package hwloc)", "%s",
				 e.text);
		return;
	}
	bool cut = h->memory < 0.98 * total;
	there = there < h->memory ? there : h->memory;
	human_bytes(there, free_text);
	human_bytes(h->memory, all_text);
	if (n->host_memory > there)
		doctor_found_bad(
			f, FINDING_FAIL, "memory",
			"end other programs, request more memory (Slurm: --mem=0), or use more "
			"nodes",
			"the job's %d rank%s on this node need%s %s, but %s of %s are available",
			n->ranks, human_s(n->ranks), n->ranks == 1 ? "s" : "",
			human_bytes(n->host_memory, need), free_text, all_text);
	else if (cut)
		doctor_found_ok(f, "memory",
				"%s available; the control group grants %s of the node's %s",
				free_text, all_text, human_bytes(total, total_text));
	else
		doctor_found_ok(f, "memory", "%s of %s available", free_text, all_text);
}

void doctor_check_shm(const struct needs *n, struct findings *f)
{
	struct statvfs s;
	char text[HUMAN], all[HUMAN];
	bool matters = n->cuda || doctor_has_driver();
	if (statvfs("/dev/shm", &s)) {
		if (matters)
			doctor_found_bad(f, FINDING_WARN, "/dev/shm",
					 "mount a tmpfs there: NCCL needs it", "it does not exist");
		else
			doctor_found_ok(f, "/dev/shm", "it does not exist, but only GPUs need it");
		return;
	}
	double there = (double)s.f_bavail * (double)s.f_frsize;
	human_bytes(there, text);
	human_bytes((double)s.f_blocks * (double)s.f_frsize, all);
	if (matters && there < SHM_MIN)
		doctor_found_bad(f, FINDING_WARN, "/dev/shm",
				 "start a container with --shm-size=8g or --ipc=host, or remove "
				 "files that old "
				 "runs left there",
				 "%s of %s free, which is too little for NCCL", text, all);
	else
		doctor_found_ok(f, "/dev/shm", "%s of %s free", text, all);
}

/* The CPU time that the control group allows, in CPUs; 0: no limit. Inside a container the
 * process's own group is the root of the mount. */
static double cpu_quota(void)
{
	double quota = 0, period = 0;
	FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
	if (file && fscanf(file, "%lf %lf", &quota, &period) != 2)
		quota = 0;
	if (file)
		fclose(file);
	return quota > 0 && period > 0 ? quota / period : 0;
}

void doctor_first_line(const char *path, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	out[0] = '\0';
	if (file && !fgets(out, (int)size, file))
		out[0] = '\0';
	if (file)
		fclose(file);
	out[strcspn(out, "\n")] = '\0';
}

void doctor_check_cpu(const struct needs *n, struct findings *f)
{
	const struct host *h;
	struct err e = ERR_INIT;
	char governor[64], driver[64];
	double quota = cpu_quota();
	(void)n;
	if (topo_host_get(&h, &e)) {
		doctor_found_bad(f, FINDING_FAIL, "cores", "run lstopo (package hwloc)", "%s",
				 e.text);
		return;
	}
	if (quota > 0 && quota < h->n_cores)
		doctor_found_bad(f, FINDING_WARN, "cores",
				 "request one CPU per thread, or lower launch.threads",
				 "%d, but the control group grants the CPU time of %.1f",
				 h->n_cores, quota);
	else
		doctor_found_ok(f, "cores", "%d in %d NUMA domain%s", h->n_cores, h->n_numa,
				human_s(h->n_numa));
	doctor_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
			  sizeof governor);
	doctor_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", driver,
			  sizeof driver);
	/* intel_pstate and amd-pstate raise the clock even if their governor is "powersave". */
	if (!strcmp(governor, "powersave") && !strstr(driver, "pstate"))
		doctor_found_bad(f, FINDING_WARN, "governor",
				 "cpupower frequency-set -g performance",
				 "powersave: the clocks stay low");
	else if (*governor)
		doctor_found_ok(f, "governor", "%s", governor);
}
