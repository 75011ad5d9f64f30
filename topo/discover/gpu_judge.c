/*
 * gpu_judge: finds what is wrong with a GPU, from its state: one row per possible fault.
 *
 * Sources: NVIDIA's "GPU Memory Error Management" (rows that wait to be remapped or could not be
 * remapped; a GPU with 60 retired pages is due for exchange) and the text of nvml.h on clock event
 * reasons.
 */
#include "topo/discover/gpu_state.h"

#include "base/human.h"
#include "topo/discover/nvml_api.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 256, RETIRED_MAX = 60, NEARLY_HOT = 3 /* °C below the slowdown temperature */ };
#define POWER_NEARLY 0.97

typedef bool finds(const struct gpu_state *g, char out[TEXT]);

static bool lost(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "%s", g->trouble);
	return *g->trouble;
}

static bool remap_failed(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "a row of its memory is broken and could not be remapped");
	return g->remap_failed == 1;
}

static bool is_pending(const struct gpu_state *g)
{
	return g->remap_pending == 1 || g->retire_pending == 1;
}

static bool uncorrected_pending(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT,
		 "%lld uncorrected memory error%s, and the memory is used until a reset takes it "
		 "away",
		 (long long)g->uncorrected, human_s(g->uncorrected));
	return is_pending(g) && g->uncorrected > 0;
}

static bool prohibited(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "compute mode \"prohibited\": no program may use it");
	return g->compute == NVML_COMPUTE_PROHIBITED;
}

static bool parted_without(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "MIG is on and has no instance; no program can use the GPU");
	return g->mig == 1 && !g->instances;
}

static bool pending(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "worn memory waits for a reset to be taken away");
	return is_pending(g) && g->uncorrected <= 0;
}

static bool uncorrected(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "%lld uncorrected memory error%s since the driver was loaded",
		 (long long)g->uncorrected, human_s(g->uncorrected));
	return g->uncorrected > 0 && !is_pending(g);
}

static bool worn(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "%d pages of its memory are given up; %d are the most", g->retired,
		 RETIRED_MAX);
	return g->retired >= RETIRED_MAX;
}

static bool power_brake(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "clocks are down: the power supply asks for it (power brake)");
	return g->slow & GPU_SLOW_POWER_BRAKE;
}

static bool thermal(const struct gpu_state *g, char out[TEXT])
{
	bool near = g->temperature >= 0 && g->temperature_slow > 0 &&
		    g->temperature >= g->temperature_slow - NEARLY_HOT;
	if (g->temperature >= 0 && g->temperature_slow > 0)
		snprintf(out, TEXT, "%s: %d °C, and it slows down at %d °C",
			 g->slow & GPU_SLOW_THERMAL ? "clocks are down for heat" : "hot",
			 g->temperature, g->temperature_slow);
	else
		snprintf(out, TEXT, "clocks are down for heat");
	return (g->slow & GPU_SLOW_THERMAL) || near;
}

static bool slowdown(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "clocks are down: the hardware asks for it, heat or power");
	return g->slow & GPU_SLOW_HARDWARE;
}

static bool limited(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "limited to %.0f W, and its model has %.0f W", g->power_limit,
		 g->power_default);
	return g->power_limit > 0 && g->power_limit < POWER_NEARLY * g->power_default;
}

static bool has_few_lanes(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "PCIe has %d of %d lanes", g->pcie_width, g->pcie_width_most);
	return g->pcie_width > 0 && g->pcie_width < g->pcie_width_most;
}

static bool unstable(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "its NVLinks had to recover %lld time%s since the driver was loaded",
		 (long long)g->link_recoveries, human_s(g->link_recoveries));
	return g->link_recoveries > 0;
}

static bool ecc_off(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "ECC is off: errors of its memory go unseen");
	return g->ecc == 0;
}

static bool ecc_waits(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "ECC is on until the next reset");
	return g->ecc == 1 && g->ecc_next == 0;
}

static bool parted(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT,
		 "partitioned (MIG) into %d instance%s; a process sees one of them, without NVLink",
		 g->instances, human_s(g->instances));
	return g->mig == 1 && g->instances;
}

static bool mig_waits(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "MIG is %s until the next reset", g->mig ? "on" : "off");
	return g->mig >= 0 && g->mig_next >= 0 && g->mig != g->mig_next;
}

static bool unloads(const struct gpu_state *g, char out[TEXT])
{
	snprintf(out, TEXT, "persistence mode is off: every start waits for the driver");
	return g->persistence == 0;
}

#define RESET "end what uses it and reset it: nvidia-smi --gpu-reset -i %d (or reboot)"
/* clang-format off */
static const struct rule {
	finds *fn;
	enum gpu_level level;
	const char *remedy; /* a format with the GPU's number */
} rules[] = {
	{ lost, GPU_BAD, "dmesg names the Xid; reset GPU %d or reboot; until then leave the node out (Slurm: --exclude) or the GPU "
	  "(CUDA_VISIBLE_DEVICES)" },
	{ remap_failed, GPU_BAD, "have the GPU exchanged; until then leave it out: CUDA_VISIBLE_DEVICES without %d" },
	{ uncorrected_pending, GPU_BAD, RESET },
	{ prohibited, GPU_BAD, "nvidia-smi -i %d -c DEFAULT" },
	{ parted_without, GPU_BAD, "nvidia-smi -i %d -mig 0, or make instances: nvidia-smi mig -cgi" },
	{ pending, GPU_WARN, RESET },
	{ uncorrected, GPU_WARN, RESET "; when it comes again, have it exchanged" },
	{ worn, GPU_NOTE, "have GPU %d exchanged" },
	{ power_brake, GPU_WARN, "look at the power supplies and the rack's limit of GPU %d's node" },
	{ thermal, GPU_WARN, "look at fans, airflow and coolant of GPU %d's node" },
	{ slowdown, GPU_WARN, "nvidia-smi -q -d PERFORMANCE -i %d shows more" },
	{ limited, GPU_NOTE, "nvidia-smi -i %d -pl WATTS, unless the site wants it so" },
	{ has_few_lanes, GPU_WARN, "reseat GPU %d or its riser; look at the BIOS's setting of the slot" },
	{ unstable, GPU_WARN, "nvidia-smi nvlink -e -i %d names the link; reseat the GPU or its bridge" },
	{ ecc_off, GPU_NOTE, "nvidia-smi -i %d -e 1, then a reset" },
	{ ecc_waits, GPU_NOTE, "nvidia-smi -i %d -e 1 keeps it on" },
	{ parted, GPU_NOTE, "nvidia-smi -i %d -mig 0 gives the whole GPU back" },
	{ mig_waits, GPU_NOTE, "nvidia-smi --gpu-reset -i %d" },
	{ unloads, GPU_NOTE, "nvidia-smi -i %d -pm 1, or start nvidia-persistenced" },
};
/* clang-format on */

void topo_gpu_judge(const struct gpu_state *g, gpu_say *say, void *arg)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		char found[TEXT], remedy[TEXT];
		if (!rules[i].fn(g, found))
			continue;
		snprintf(remedy, sizeof remedy, rules[i].remedy, g->index);
		say(arg, rules[i].level, found, remedy);
		if (rules[i].fn == lost)
			return; /* the GPU's other values are unknown */
	}
}
