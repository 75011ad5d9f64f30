/*
 * health — what a rank's node and device show that tells sick from slow.
 *
 * kinds.c has the table of all kinds of evidence, one row each: how it is read, from which value on
 * it is a reason, and its sentence. Files of /proc and /sys and NVIDIA's management library are
 * read; nothing is written, and no other process is disturbed.
 *
 * A window begins with health_open() or with the end of the one before. health_sample() reads what
 * changes quickly, such as clocks; health_judge() reads the rest, compares it with the start of the
 * window and returns the findings. Counters that go backwards, because the process has moved to
 * another cgroup or a device was reset, begin again.
 *
 * One thread uses a struct health. It should not be a thread that others wait for: NVIDIA's library
 * does not return while its driver hangs.
 */
#ifndef MUSTER_AGENT_HEALTH_HEALTH_H
#define MUSTER_AGENT_HEALTH_HEALTH_H

#include <stdbool.h>

enum {
	HEALTH_TEXT = 300,
	HEALTH_OBJECT = 64,
	HEALTH_FINDINGS = 32 /* at most, of a window */
};

struct health_finding {
	const char *kind;
	double share; /* of the window that it explains, 0 to 1; causes are compared by it */
	bool alarm;   /* a defect, whether the rank is slow or not; once per kind and process */
	bool node;    /* about the whole node, not about this rank */
	char object[HEALTH_OBJECT]; /* the device, or "" */
	char text[HEALTH_TEXT];     /* a sentence without its final point, "its cgroup …" */
};

struct health_options {
	const char *root;    /* the folder that holds proc/ and sys/; NULL: "/" */
	int pid;             /* 0: this process; for tests */
	bool node;           /* also watch what all ranks of the node share */
	const char *disk;    /* a folder on the disk that is watched; NULL: none */
	const char *gpu;     /* PCI address; NULL: none */
	const char *library; /* of NVIDIA; NULL: NVML_LIBRARY */
};

struct health;

/* Copies the options. NULL: no memory. */
struct health *health_open(const struct health_options *o, double now);
void health_close(struct health *h); /* takes NULL */

/* The thread that trains; 0: unknown yet. */
void health_set_thread(struct health *h, int thread);
void health_sample(struct health *h);
/* Ends a window. Returns the number of findings, at most HEALTH_FINDINGS, in the order of the
 * table. */
int health_judge(struct health *h, double now, struct health_finding out[HEALTH_FINDINGS]);

/* Whether the last window gives a reason to ask which other process uses this one's cores. That
 * costs a look at every process, and the answer takes a second: health_others_begin() now,
 * health_note_others() then. It changes the text of the findings "delay" of this window, and of the
 * next ones. */
bool health_suspects_others(const struct health *h, double now);
void health_note_others(struct health *h, double now, const char *text,
			struct health_finding *findings, int n);
/* The CPUs on which the process may run, such as "0-3,8"; "": unknown. */
const char *health_cpus(const struct health *h);

/* Means of the last window, in MHz; 0: unknown. */
double health_clock(const struct health *h);
double health_gpu_clock(const struct health *h);

#endif
