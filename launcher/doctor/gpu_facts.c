/* gpu_facts: the state of the GPUs as JSON, one row per value. A value that the GPU does not report
 * is null. */
#include "launcher/doctor/doctor.h"

#include "topo/discover/gpu_state.h"

#include <stddef.h>

enum kind { TEXT, COUNT /* -1: unknown */, POSITIVE /* 0: unknown */, WIDE, REAL, SWITCH };

#define ROW(member, kind) \
	{ \
#member, kind, offsetof(struct gpu_state, member) \
	}
/* clang-format off */
static const struct row {
	const char *key;
	enum kind kind;
	size_t offset;
} rows[] = {
	ROW(index, COUNT), ROW(trouble, TEXT), ROW(name, TEXT), ROW(uuid, TEXT), ROW(bus, TEXT), ROW(memory, REAL),
	ROW(memory_free, REAL), ROW(memory_reserved, REAL), ROW(pcie, POSITIVE), ROW(pcie_width, POSITIVE),
	ROW(pcie_most, POSITIVE), ROW(pcie_width_most, POSITIVE), ROW(links, COUNT), ROW(links_up, COUNT), ROW(links_down, TEXT),
	ROW(link_replays, WIDE), ROW(link_recoveries, WIDE), ROW(link_crc, WIDE), ROW(ecc, SWITCH), ROW(ecc_next, SWITCH),
	ROW(corrected, WIDE), ROW(uncorrected, WIDE), ROW(corrected_ever, WIDE), ROW(uncorrected_ever, WIDE), ROW(retired, COUNT),
	ROW(retire_pending, SWITCH), ROW(remapped, COUNT), ROW(remap_pending, SWITCH), ROW(remap_failed, SWITCH),
	ROW(temperature, COUNT), ROW(temperature_slow, COUNT), ROW(power, REAL), ROW(power_limit, REAL), ROW(power_default, REAL),
	ROW(persistence, SWITCH), ROW(compute, COUNT), ROW(mig, SWITCH), ROW(mig_next, SWITCH), ROW(instances, COUNT),
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows, ROWS_OF_LOST = 5 /* the rows up to `bus` */ };

static json_t *value_of(const struct row *r, const struct gpu_state *g)
{
	const char *at = (const char *)g + r->offset;
	switch (r->kind) {
	case TEXT:
		return *at ? json_string(at) : json_null();
	case COUNT:
		return *(const int *)(const void *)at >= 0
			       ? json_integer(*(const int *)(const void *)at)
			       : json_null();
	case POSITIVE:
		return *(const int *)(const void *)at > 0
			       ? json_integer(*(const int *)(const void *)at)
			       : json_null();
	case WIDE:
		return *(const int64_t *)(const void *)at >= 0
			       ? json_integer(*(const int64_t *)(const void *)at)
			       : json_null();
	case REAL:
		return *(const double *)(const void *)at >= 0
			       ? json_real(*(const double *)(const void *)at)
			       : json_null();
	case SWITCH:
		return *(const int *)(const void *)at >= 0
			       ? json_boolean(*(const int *)(const void *)at)
			       : json_null();
	}
	return NULL;
}

static json_t *slow_of(const struct gpu_state *g)
{
	static const struct {
		unsigned bit;
		const char *word;
	} words[] = { { GPU_SLOW_POWER_CAP, "power-cap" },
		      { GPU_SLOW_THERMAL, "thermal" },
		      { GPU_SLOW_POWER_BRAKE, "power-brake" },
		      { GPU_SLOW_HARDWARE, "hardware" } };
	if (!g->slow_told)
		return json_null();
	json_t *list = json_array();
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (g->slow & words[i].bit)
			json_array_append_new(list, json_string(words[i].word));
	return list;
}

static json_t *processes_of(const struct gpu_state *g)
{
	if (g->n_processes < 0)
		return json_null();
	json_t *list = json_array();
	for (int i = 0; i < g->n_processes; i++) {
		const struct gpu_process *p = &g->processes[i];
		json_array_append_new(
			list, json_pack("{s:i, s:s, s:o}", "pid", p->pid, "name", p->name, "bytes",
					p->bytes >= 0 ? json_real(p->bytes) : json_null()));
	}
	return list;
}

static json_t *facts_of(const struct gpu_state *g)
{
	json_t *o = json_object();
	/* the other values of a GPU that does not answer are unknown */
	int n = *g->trouble ? ROWS_OF_LOST : ROWS;
	for (int i = 0; i < n; i++)
		json_object_set_new(o, rows[i].key, value_of(&rows[i], g));
	if (*g->trouble)
		return o;
	json_object_set_new(o, "slow", slow_of(g));
	json_object_set_new(o, "processes", processes_of(g));
	return o;
}

json_t *doctor_gpu_facts(const struct gpu_states *s)
{
	json_t *list = json_array();
	for (int i = 0; i < s->n; i++)
		json_array_append_new(list, facts_of(&s->gpus[i]));
	return json_pack("{s:s, s:o, s:o}", "driver", s->driver, "cuda",
			 s->cuda > 0 ? json_integer(s->cuda) : json_null(), "gpus", list);
}
