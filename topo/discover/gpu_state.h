/*
 * gpu_state — how the GPUs of this host are at this moment, as NVIDIA's management library tells
 * it: memory, errors, heat, who uses them.
 *
 * What lasts (model, links, where it hangs) is a cluster's description (topo/cluster.h); this is
 * not part of one: `muster doctor` and an agent before it trains ask for it. What a driver or a
 * model does not tell is -1, "" or 0, as each line says. The calls may take seconds on a driver
 * that is in trouble, and for ever on one that hangs.
 */
#ifndef MUSTER_TOPO_DISCOVER_GPU_STATE_H
#define MUSTER_TOPO_DISCOVER_GPU_STATE_H

#include "base/err.h"
#include "topo/discover/nvml.h"

#include <stdbool.h>
#include <stdint.h>

/* Why its clocks are lower than they could be; only what somebody should see to: no idle GPU, no
 * clocks set by hand. */
enum {
	GPU_SLOW_POWER_CAP = 1,
	GPU_SLOW_THERMAL = 2,
	GPU_SLOW_POWER_BRAKE = 4,
	GPU_SLOW_HARDWARE = 8
};

enum { GPU_PROCESSES_MOST = 32 };
struct gpu_process {
	int pid;
	double bytes;         /* -1: not told */
	char name[TOPO_NAME]; /* of its program, or "" */
};

struct gpu_state {
	int index; /* by PCI address */
	/* why it does not answer; below only its name, UUID and address may be told then. "": it
	 * does */
	char trouble[200];
	char name[TOPO_NAME], uuid[96], bus[16];
	/* bytes; -1. Of the instance, where a process sees one */
	double memory, memory_free, memory_reserved;
	/* generations and lanes, now and at most; 0 */
	int pcie, pcie_width, pcie_most, pcie_width_most;
	int links, links_up; /* NVLinks */
	char links_down[48]; /* their numbers, "3,7" */
	/* of all links since the driver was loaded; -1 */
	int64_t link_replays, link_recoveries, link_crc;
	int ecc, ecc_next; /* 0 off, 1 on, now and after a reset; -1 */
	/* memory errors since the driver was loaded; -1 */
	int64_t corrected, uncorrected;
	int64_t corrected_ever, uncorrected_ever;
	int retired, retire_pending;               /* memory pages given up, up to Volta; -1 */
	int remapped, remap_pending, remap_failed; /* memory rows given up, from Ampere on; -1 */
	bool slow_told;
	unsigned slow;                            /* GPU_SLOW_…, together */
	int temperature, temperature_slow;        /* °C, now and where it slows down; -1 */
	double power, power_limit, power_default; /* W; -1 */
	int persistence;                          /* 0, 1; -1 */
	int compute;       /* nvml_mode_t: 0 shared, 2 prohibited, 3 one process; -1 */
	int mig, mig_next; /* 0, 1; -1 */
	int instances;
	/* that have contexts on it; in a container, only those that it sees */
	struct gpu_process processes[GPU_PROCESSES_MOST];
	int n_processes; /* the first ones, where there are more; -1 */
};

struct gpu_states {
	/* in CUDA_VISIBLE_DEVICES' order where it is set; a GPU that does not answer keeps its
	 * place */
	struct gpu_state *gpus;
	int n;
	int hidden;      /* GPUs that CUDA_VISIBLE_DEVICES leaves out */
	char driver[80]; /* "570.124.06", or "" */
	int cuda;        /* the newest CUDA that the driver can, 12080 for 12.8; 0 */
};

/* visible: CUDA_VISIBLE_DEVICES's value; NULL: all. ERR_NOTFOUND: no such library here, or no GPU;
 * another error: there is a driver and it fails. */
int topo_gpu_states_read(const char *library, const char *visible, struct gpu_states *out,
			 struct err *e);
void topo_gpu_states_free(struct gpu_states *s);

/* The one at a PCI address; NULL. */
const struct gpu_state *topo_gpu_state_at(const struct gpu_states *s, const char *bus);

/*
 * What is wrong with a GPU, whoever asks: for `doctor`, and for an agent that is about to train on
 * it. At `level` GPU_BAD it must not be trained on, at GPU_WARN a run suffers or may, at GPU_NOTE
 * somebody should look at it some day. Its text says what was found, `remedy` what to do. Calls
 * `say` for each finding, the worst ones first.
 */
enum gpu_level { GPU_NOTE, GPU_WARN, GPU_BAD };
typedef void gpu_say(void *arg, enum gpu_level level, const char *found, const char *remedy);
void topo_gpu_judge(const struct gpu_state *g, gpu_say *say, void *arg);

#endif
