/*
 * gpu_state — the current state of this host's GPUs from NVIDIA's management library: memory,
 * errors, temperature, processes.
 *
 * Permanent properties (model, links, position) are in topo/cluster.h instead. `muster doctor`
 * reads the state, and so does an agent before it trains. Values that the driver or the model does
 * not provide are -1, "" or 0, as each line states. The calls can take seconds if the driver has
 * problems, and never return if it hangs.
 */
#ifndef MUSTER_TOPO_DISCOVER_GPU_STATE_H
#define MUSTER_TOPO_DISCOVER_GPU_STATE_H

#include "base/err.h"
#include "topo/discover/nvml.h"

#include <stdbool.h>
#include <stdint.h>

/* Reasons for reduced clocks that need attention. An idle GPU and clocks set by hand are not among
 * them. */
enum {
	GPU_SLOW_POWER_CAP = 1,
	GPU_SLOW_THERMAL = 2,
	GPU_SLOW_POWER_BRAKE = 4,
	GPU_SLOW_HARDWARE = 8
};

enum { GPU_PROCESSES_MAX = 32 };
struct gpu_process {
	int pid;
	double bytes;         /* -1: unknown */
	char name[TOPO_NAME]; /* name of the program, or "" */
};

struct gpu_state {
	int index; /* in the order of PCI addresses */
	/* why it does not answer, or "" if it does. If it does not, only name, UUID and address may
	 * be set below */
	char trouble[200];
	char name[TOPO_NAME], uuid[96], bus[16];
	/* bytes; -1. For a process that sees one instance, those of the instance */
	double memory, memory_free, memory_reserved;
	/* generation and width, current and maximum; 0 */
	int pcie, pcie_width, pcie_most, pcie_width_most;
	int links, links_up; /* NVLinks */
	char links_down[48]; /* their numbers, "3,7" */
	/* totals of all links since the driver was loaded; -1 */
	int64_t link_replays, link_recoveries, link_crc;
	int ecc, ecc_next; /* 0 off, 1 on; current and after a reset; -1 */
	/* memory errors since the driver was loaded; -1 */
	int64_t corrected, uncorrected;
	int64_t corrected_ever, uncorrected_ever;
	int retired, retire_pending;               /* retired memory pages, up to Volta; -1 */
	int remapped, remap_pending, remap_failed; /* remapped memory rows, since Ampere; -1 */
	bool slow_told;
	unsigned slow;                            /* a bit mask of GPU_SLOW_… */
	int temperature, temperature_slow;        /* °C, current and slowdown threshold; -1 */
	double power, power_limit, power_default; /* W; -1 */
	int persistence;                          /* 0, 1; -1 */
	int compute;       /* nvml_mode_t: 0 shared, 2 prohibited, 3 one process; -1 */
	int mig, mig_next; /* 0, 1; -1 */
	int instances;
	/* processes with a context on the GPU; in a container, only those that are visible there */
	struct gpu_process processes[GPU_PROCESSES_MAX];
	int n_processes; /* the list holds the first ones if there are more; -1 */
};

struct gpu_states {
	/* in the order of CUDA_VISIBLE_DEVICES if it is set; a GPU that does not answer keeps its
	 * position */
	struct gpu_state *gpus;
	int n;
	int hidden;      /* GPUs that CUDA_VISIBLE_DEVICES excludes */
	char driver[80]; /* "570.124.06", or "" */
	int cuda;        /* the newest CUDA version that the driver supports, 12080 for 12.8; 0 */
};

/* visible: the value of CUDA_VISIBLE_DEVICES; NULL: all. ERR_NOTFOUND: there is no such library or
 * no GPU. Other errors: there is a driver and it fails. */
int topo_gpu_states_read(const char *library, const char *visible, struct gpu_states *out,
			 struct err *e);
void topo_gpu_states_free(struct gpu_states *s);

/* The state of the GPU at a PCI address, or NULL. */
const struct gpu_state *topo_gpu_state_at(const struct gpu_states *s, const char *bus);

/*
 * Finds problems of a GPU, for `muster doctor` and for an agent before it trains. Levels: GPU_BAD,
 * it must not be used for training; GPU_WARN, a run suffers or may suffer; GPU_NOTE, it needs
 * attention some time. found: the problem; remedy: what to do. Calls `say` for each problem, the
 * worst first.
 */
enum gpu_level { GPU_NOTE, GPU_WARN, GPU_BAD };
typedef void gpu_say(void *arg, enum gpu_level level, const char *found, const char *remedy);
void topo_gpu_judge(const struct gpu_state *g, gpu_say *say, void *arg);

#endif
