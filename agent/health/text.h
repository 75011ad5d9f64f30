/*
 * text — parsers of the texts in /proc and /sys that tell sick from slow.
 *
 * The kernel writes these texts, but a container runtime or a test may put anything in their place,
 * and the names in them come from any user. So a parser reads no byte behind the end of its text,
 * and returns false for a text that it does not understand; *out is then unchanged.
 * tests/fuzz/fuzz_health.c holds them to that.
 */
#ifndef MUSTER_AGENT_HEALTH_TEXT_H
#define MUSTER_AGENT_HEALTH_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first size - 1 bytes of root/path and ends them with NUL. root: NULL for "/". False:
 * the file cannot be read, or is empty. */
bool health_text_read(const char *root, const char *path, char *out, size_t size);

/* The number behind a key at the start of a line: "key 12" or "key: 12". */
bool health_text_value(const char *text, const char *key, double *out);

/* Seconds in which at least one task waited: `total` of the line "some" of a pressure file (Linux,
 * Documentation/accounting/psi). */
bool health_text_pressure(const char *text, double *out);

/* A process, from its file stat (proc_pid_stat(5)). */
struct health_process {
	int pid;
	char name[20];
	double faults;  /* major page faults */
	double seconds; /* of CPU time, user and system */
	int nice;
	int cpu; /* on which it ran last */
};
bool health_text_process(const char *text, struct health_process *out);

/* The second number of schedstat: seconds in which a thread could run but had no core. */
bool health_text_delay(const char *text, double *out);

/* A block device, from /proc/diskstats (Linux, Documentation/admin-guide/iostats). */
struct health_disk {
	char name[32];
	double requests; /* finished reads and writes */
	double seconds;  /* that these took, added up */
};
bool health_text_disk(const char *text, unsigned major, unsigned minor, struct health_disk *out);

/* A column of a protocol in /proc/net/snmp, such as "Tcp" and "RetransSegs". */
bool health_text_protocol(const char *text, const char *protocol, const char *column, double *out);

/* The mean of the lines "cpu MHz" of /proc/cpuinfo, in MHz. */
bool health_text_clock(const char *text, double *out);

/* The path of a cgroup in /proc/<pid>/cgroup. controller: such as "cpu", for version 1; "": the
 * group of version 2. */
bool health_text_group(const char *text, const char *controller, char *out, size_t size);

/* Reads a kernel list of CPUs, such as "0-3,8", and sets the flags of those below n. False: it is
 * not such a list. */
bool health_text_cpus(const char *text, bool *out, int n);

#endif
