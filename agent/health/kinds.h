/*
 * kinds — the table of the kinds of evidence. Only the files of this room include it.
 *
 * To add a kind: a row in health_kinds[] of kinds.c, with a function that reads its value, and a
 * test in tests/unit/agent/test_health.c. The supervisor needs no change: it compares causes by
 * `share` and prints their sentences.
 */
#ifndef MUSTER_AGENT_HEALTH_KINDS_H
#define MUSTER_AGENT_HEALTH_KINDS_H

#include "agent/health/group.h"
#include "agent/health/health.h"
#include "topo/discover/gpu_watch.h"

#include <stddef.h>

enum health_type {
	HEALTH_SHARE, /* a counter of seconds; its value is seconds per second, at most 1 */
	HEALTH_RATE,  /* a counter; its value is the increase per second */
	HEALTH_RISE,  /* a counter; its value is the increase in the window */
	HEALTH_LEVEL, /* its value is the mean of the samples */
	HEALTH_RATIO  /* two counters; its value is the quotient of their increases */
};

enum health_scope {
	HEALTH_OF_RANK,
	HEALTH_OF_NODE, /* one rank of the node reads it */
	HEALTH_OF_GPU
};

struct health_kind {
	const char *word, *unit;
	enum health_type type;
	enum health_scope scope;
	bool often; /* sampled each second, not only at the end of a window */
	/* *second: the divisor, of HEALTH_RATIO. False: unknown on this host. */
	bool (*read)(struct health *h, double *value, double *second);
	double from; /* it is a reason from this value on; 0: it never is, and is only compared */
	bool alarm;
	/* share of the window that it explains: cost, or the value times cost for a share */
	double cost;
	/* {value}: the value with its unit; {detail}: what `detail` prints */
	const char *sentence;
	void (*detail)(const struct health *h, char *out, size_t size);
};

extern const struct health_kind health_kinds[];
extern const int health_n_kinds;

struct health_series {
	double first, last, sum; /* of the window */
	double first_second, last_second;
	int n;       /* values in the sum */
	bool began;  /* `first` is set */
	bool warned; /* an alarm was given */
	double value;
	bool known; /* `value` is that of the last window */
};

/* The errors of each device at the last reading, to name the one whose errors increase. */
enum { HEALTH_DEVICES = 32 };
struct health_devices {
	double total; /* of all increases */
	int n;
	struct {
		char name[HEALTH_OBJECT];
		double errors;
	} list[HEALTH_DEVICES];
};

struct health {
	struct health_options o;
	char root[512], disk[512], gpu_bus[32];
	int thread;
	double began, asked; /* times: of the window; of the last look at other processes */
	struct health_series *series; /* [health_n_kinds] */
	struct gpu_watch *watch;
	bool gpu_read;        /* `gpu` is of this window */
	struct gpu_state gpu; /* its errors and links, at the end of a window */
	unsigned xid;         /* the last one; 0: none */
	unsigned disk_major, disk_minor;
	char disk_name[32], others[160], cpus[256], nic[HEALTH_OBJECT];
	int nice;
	struct health_devices nic_errors, nic_drops, ib_errors, ib_down;
	struct health_group cpu_group, memory_group;
};

/* proc/<pid>/name of the process, or proc/<pid>/task/<thread>/name of its training thread. */
bool health_read_own(const struct health *h, const char *name, char *out, size_t size);
bool health_read_thread(const struct health *h, const char *name, char *out, size_t size);
/* The series of a kind, which must exist, by its word. */
const struct health_series *health_series_of(const struct health *h, const char *word);
/* The value of a kind in the last window, by its word; 0: unknown. */
double health_value(const struct health *h, const char *word);

/* counters.c: how much the counters whose names are in the list, which ends with NULL, have
 * increased since the first call with the same `seen`, over the node's network interfaces or
 * InfiniBand ports. A device that appears later counts from then on. most: the device with the
 * largest increase since the last call; it is not changed if there is none. */
bool health_sum_net(const char *root, const char *const *names, struct health_devices *seen,
		    double *sum, char most[HEALTH_OBJECT]);
bool health_sum_infiniband(const char *root, const char *const *names, struct health_devices *seen,
			   double *sum, char most[HEALTH_OBJECT]);

#endif
