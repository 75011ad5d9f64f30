#include "topo/discover/gpu_state.h"

#include "topo/discover/internal.h"
#include "topo/discover/nvml_api.h"
#include "topo/discover/visible.h"
#include "topo/read/found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES_ROOM = 512 }; /* if more run, the library lists none */

typedef nvml_code_t one_figure(nvml_device_t, unsigned *);

/* Reads a value; -1: it is not reported, or exceeds `most`. */
static int round_figure(one_figure *call, nvml_device_t d, unsigned most)
{
	unsigned n = 0;
	return call && call(d, &n) == NVML_OK && n <= most ? (int)n : -1;
}

static int any_known(int n)
{
	return n < 0 ? 0 : n;
}

static double watts_of(one_figure *call, nvml_device_t d)
{
	int n = round_figure(call, d, 10000000);
	return n < 0 ? -1 : n / 1000.0;
}

static void text_of(nvml_code_t (*call)(nvml_device_t, char *, unsigned), nvml_device_t d,
		    char *out, size_t size)
{
	char text[128] = "";
	if (!call || call(d, text, sizeof text - 1) != NVML_OK)
		text[0] = '\0';
	text[sizeof text - 1] = '\0';
	topo_found_text(out, size, text);
}

static nvml_code_t read_memory(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	struct nvml_memory basic = { 0 };
	struct nvml_memory_v2 whole = { .version = NVML_VERSION(struct nvml_memory_v2, 2) };
	nvml_code_t code;
	g->memory = g->memory_free = g->memory_reserved = -1;
	if (a->memory_v2 && a->memory_v2(d, &whole) == NVML_OK) {
		g->memory = (double)whole.total;
		g->memory_free = (double)whole.free;
		g->memory_reserved = (double)whole.reserved;
		return NVML_OK;
	}
	code = a->memory(d, &basic);
	if (code == NVML_OK) {
		g->memory = (double)basic.total;
		g->memory_free = (double)basic.free;
	}
	return code;
}

static int64_t ecc_count(const struct nvml_api *a, nvml_device_t d, nvml_error_t error,
			 nvml_span_t span)
{
	unsigned long long n = 0;
	return a->ecc_errors && a->ecc_errors(d, error, span, &n) == NVML_OK && n < INT64_MAX
		       ? (int64_t)n
		       : -1;
}

static int retired_pages(const struct nvml_api *a, nvml_device_t d, nvml_cause_t cause)
{
	unsigned n = 0; /* 0: asks for the number of pages only */
	nvml_code_t code = a->retired ? a->retired(d, cause, &n, NULL) : NVML_NOT_PERMITTED;
	return (code == NVML_OK || code == NVML_NOT_ENOUGH_ROOM) && n < 100000 ? (int)n : -1;
}

static void read_errors(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	unsigned now = 0, next = 0, corrected, uncorrected, pending, failed;
	g->ecc = g->ecc_next = -1;
	if (a->ecc && a->ecc(d, &now, &next) == NVML_OK) {
		g->ecc = now == NVML_ON;
		g->ecc_next = next == NVML_ON;
	}
	g->corrected = ecc_count(a, d, NVML_CORRECTED, NVML_SINCE_LOAD);
	g->uncorrected = ecc_count(a, d, NVML_UNCORRECTED, NVML_SINCE_LOAD);
	g->corrected_ever = ecc_count(a, d, NVML_CORRECTED, NVML_EVER);
	g->uncorrected_ever = ecc_count(a, d, NVML_UNCORRECTED, NVML_EVER);
	int one = retired_pages(a, d, NVML_RETIRED_SINGLE),
	    two = retired_pages(a, d, NVML_RETIRED_DOUBLE);
	g->retired = one < 0 && two < 0 ? -1 : any_known(one) + any_known(two);
	g->retire_pending = round_figure(a->retire_pending, d, 1);
	g->remapped = g->remap_pending = g->remap_failed = -1;
	if (a->remapped && a->remapped(d, &corrected, &uncorrected, &pending, &failed) == NVML_OK &&
	    corrected < 1000000 && uncorrected < 1000000) {
		g->remapped = (int)(corrected + uncorrected);
		g->remap_pending = pending != 0;
		g->remap_failed = failed != 0;
	}
}

static void add_process(int64_t *sum, const struct nvml_api *a, nvml_device_t d, unsigned link,
			nvml_counter_t which)
{
	unsigned long long n = 0;
	if (a->link_errors && a->link_errors(d, link, which, &n) == NVML_OK &&
	    n < INT64_MAX / NVML_LINKS_MAX)
		*sum = (*sum < 0 ? 0 : *sum) + (int64_t)n;
}

static void read_links(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	g->link_replays = g->link_recoveries = g->link_crc = -1;
	for (unsigned link = 0; a->link_state && link < NVML_LINKS_MAX; link++) {
		unsigned active = 0;
		size_t len = strlen(g->links_down);
		if (a->link_state(d, link, &active) != NVML_OK)
			continue;
		g->links++;
		g->links_up += active == NVML_ON;
		if (active != NVML_ON && len < sizeof g->links_down - 4)
			snprintf(g->links_down + len, sizeof g->links_down - len, "%s%u",
				 len ? "," : "", link);
		add_process(&g->link_replays, a, d, link, NVML_REPLAYS);
		add_process(&g->link_recoveries, a, d, link, NVML_RECOVERIES);
		add_process(&g->link_crc, a, d, link, NVML_CRC_FLITS);
		add_process(&g->link_crc, a, d, link, NVML_CRC_DATA);
	}
}

void topo_gpu_read_slow(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	unsigned long long bits = 0;
	g->slow_told = (a->slow && a->slow(d, &bits) == NVML_OK) ||
		       (a->slow_v1 && a->slow_v1(d, &bits) == NVML_OK);
	if (!g->slow_told)
		return;
	g->slow |= bits & NVML_SLOW_POWER_CAP ? GPU_SLOW_POWER_CAP : 0;
	g->slow |= bits & (NVML_SLOW_SW_THERMAL | NVML_SLOW_HW_THERMAL) ? GPU_SLOW_THERMAL : 0;
	g->slow |= bits & NVML_SLOW_POWER_BRAKE ? GPU_SLOW_POWER_BRAKE : 0;
	/* The driver sets the general hardware bit together with the bits for heat and power, which
	 * are more specific. */
	if (bits & NVML_SLOW_HARDWARE && !(g->slow & (GPU_SLOW_THERMAL | GPU_SLOW_POWER_BRAKE)))
		g->slow |= GPU_SLOW_HARDWARE;
}

static void read_condition(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	unsigned celsius = 0;
	topo_gpu_read_slow(a, d, g);
	g->temperature = g->temperature_slow = -1;
	if (a->temperature && a->temperature(d, NVML_TEMPERATURE, &celsius) == NVML_OK &&
	    celsius < 1000)
		g->temperature = (int)celsius;
	if (a->temperature_limit &&
	    a->temperature_limit(d, NVML_SLOWDOWN_AT, &celsius) == NVML_OK && celsius < 1000)
		g->temperature_slow = (int)celsius;
	g->power = watts_of(a->power, d);
	g->power_limit = watts_of(a->power_limit, d);
	g->power_default = watts_of(a->power_default, d);
	g->persistence = round_figure(a->persistence, d, 1);
	g->compute = round_figure(a->compute_mode, d, 16);
	g->pcie = any_known(round_figure(a->pcie, d, PCIE_MAX));
	g->pcie_width = any_known(round_figure(a->pcie_width, d, PCIE_WIDTH_MAX));
	g->pcie_most = any_known(round_figure(a->pcie_most, d, PCIE_MAX));
	g->pcie_width_most = any_known(round_figure(a->pcie_width_most, d, PCIE_WIDTH_MAX));
}

static void read_processes(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g)
{
	struct nvml_process list[PROCESSES_ROOM];
	unsigned n = PROCESSES_ROOM;
	g->n_processes = -1;
	if (!a->processes || a->processes(d, &n, list) != NVML_OK || n > PROCESSES_ROOM)
		return;
	g->n_processes = n < GPU_PROCESSES_MAX ? (int)n : GPU_PROCESSES_MAX;
	for (int i = 0; i < g->n_processes; i++) {
		char name[256] = "";
		struct gpu_process *p = &g->processes[i];
		p->pid = (int)list[i].pid;
		p->bytes = list[i].bytes == (unsigned long long)-1 ? -1 : (double)list[i].bytes;
		if (!a->process_name ||
		    a->process_name(list[i].pid, name, sizeof name - 1) != NVML_OK)
			name[0] = '\0';
		name[sizeof name - 1] = '\0';
		const char *slash = strrchr(name, '/');
		topo_found_text(p->name, sizeof p->name, slash ? slash + 1 : name);
	}
}

static void in_trouble(const struct nvml_api *a, nvml_code_t code, struct gpu_state *g)
{
	struct err why = ERR_INIT;
	char what[32];
	snprintf(what, sizeof what, "GPU %d", g->index);
	topo_nvml_failed(a, what, code, &why);
	snprintf(g->trouble, sizeof g->trouble, "%.*s", (int)sizeof g->trouble - 1, why.text);
}

void topo_gpu_read_state(const struct nvml_api *a, unsigned index, nvml_device_t *d,
			 struct gpu_state *g)
{
	struct nvml_pci pci = { .domain = 0 };
	g->index = (int)index;
	g->mig = g->mig_next = g->n_processes = -1;
	nvml_code_t code = a->handle(index, d);
	if (code == NVML_OK)
		code = a->pci(*d, &pci);
	if (code != NVML_OK) {
		in_trouble(a, code, g);
		return;
	}
	topo_nvml_bus(&pci, g->bus);
	text_of(a->name, *d, g->name, sizeof g->name);
	text_of(a->uuid, *d, g->uuid, sizeof g->uuid);
	/* The driver may answer the calls above from its own memory although the GPU has fallen off
	 * the bus. This call reads from the GPU. */
	code = read_memory(a, *d, g);
	if (code != NVML_OK && code != NVML_NOT_SUPPORTED && code != NVML_NOT_PERMITTED) {
		in_trouble(a, code, g);
		return;
	}
	read_errors(a, *d, g);
	read_links(a, *d, g);
	read_condition(a, *d, g);
	read_processes(a, *d, g);
}

/* Finds the MIG instance number `place`, counted from 0 among the existing ones. */
static bool instance_at(const struct nvml_api *a, nvml_device_t d, int place, nvml_device_t *out)
{
	unsigned most = 0;
	if (!a->mig_most || !a->mig_handle || a->mig_most(d, &most) != NVML_OK)
		return false;
	for (unsigned i = 0; i < most; i++)
		if (a->mig_handle(d, i, out) == NVML_OK && !place--)
			return true;
	return false;
}

/* Reads the GPU's MIG instances; topo_visible_select() uses their names. Returns their number. */
static int read_parts(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g,
		      struct nvml_instance *parts)
{
	unsigned now = 0, next = 0;
	nvml_device_t part;
	if (*g->trouble || !a->mig || a->mig(d, &now, &next) != NVML_OK)
		return 0;
	g->mig = now == NVML_ON;
	g->mig_next = next == NVML_ON;
	while (g->mig && g->instances < NVML_INSTANCES_MAX &&
	       instance_at(a, d, g->instances, &part)) {
		text_of(a->uuid, part, parts[g->instances].uuid, sizeof parts->uuid);
		g->instances++;
	}
	return g->instances;
}

/* Keeps the GPUs that a process with this CUDA_VISIBLE_DEVICES sees. For a MIG instance the memory
 * is the instance's. */
static void choose_gpus(const struct nvml_api *a, const nvml_device_t *devices, const char *visible,
			const struct gpu_id *ids, const struct gpu_state *all, int n,
			struct gpu_states *s)
{
	int picked[NVML_GPUS_MAX], part[NVML_GPUS_MAX];
	s->n = topo_visible_select(visible, ids, n, picked, part);
	s->hidden = n - s->n;
	for (int i = 0; i < s->n; i++) {
		nvml_device_t d;
		s->gpus[i] = all[picked[i]];
		if (part[i] >= 0 && instance_at(a, devices[picked[i]], part[i], &d))
			read_memory(a, d, &s->gpus[i]);
	}
}

static int read_some(const struct nvml_api *a, const char *visible, int n, struct gpu_states *s,
		     struct err *e)
{
	struct gpu_id ids[NVML_GPUS_MAX];
	nvml_device_t devices[NVML_GPUS_MAX] = { NULL };
	struct nvml_instance(*parts)[NVML_INSTANCES_MAX] = calloc((size_t)n, sizeof *parts);
	struct gpu_state *all = calloc((size_t)n, sizeof *all);
	s->gpus = calloc((size_t)n, sizeof *s->gpus);
	int rc = parts && all && s->gpus
			 ? 0
			 : err_set(e, ERR_NOMEM, "NVIDIA driver: no memory for %d GPUs", n);
	for (int i = 0; !rc && i < n; i++) {
		topo_gpu_read_state(a, (unsigned)i, &devices[i], &all[i]);
		ids[i] = (struct gpu_id){ .index = i,
					  .uuid = all[i].uuid,
					  .instances = parts[i],
					  .n_instances = read_parts(a, devices[i], &all[i],
								    parts[i]) };
	}
	if (!rc)
		choose_gpus(a, devices, visible, ids, all, n, s);
	free(parts);
	free(all);
	return rc;
}

static int read_all(const struct nvml_api *a, const char *visible, struct gpu_states *s,
		    struct err *e)
{
	unsigned n = 0;
	nvml_code_t code = a->count(&n);
	if (code != NVML_OK)
		return topo_nvml_failed(a, "number of GPUs", code, e);
	if (!n)
		return err_set(e, ERR_NOTFOUND,
			       "NVIDIA driver: shows no GPU that this process may use");
	if (n > NVML_GPUS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "NVIDIA driver: shows %u GPUs, more than the limit of %d", n,
			       NVML_GPUS_MAX);
	return read_some(a, visible, (int)n, s, e);
}

int topo_gpu_states_read(const char *library, const char *visible, struct gpu_states *out,
			 struct err *e)
{
	struct nvml_api a;
	struct gpu_states s = { .n = 0 };
	char driver[80] = "";
	if (topo_nvml_open(library, &a, e))
		return -1;
	if (a.driver && a.driver(driver, sizeof driver - 1) == NVML_OK)
		topo_found_text(s.driver, sizeof s.driver, driver);
	if (!a.cuda || a.cuda(&s.cuda) != NVML_OK || s.cuda < 0 || s.cuda > 1000000)
		s.cuda = 0;
	int rc = read_all(&a, visible, &s, e);
	topo_nvml_close(&a);
	if (rc)
		topo_gpu_states_free(&s);
	else
		*out = s;
	return rc;
}

void topo_gpu_states_free(struct gpu_states *s)
{
	free(s->gpus);
	*s = (struct gpu_states){ .n = 0 };
}

const struct gpu_state *topo_gpu_state_at(const struct gpu_states *s, const char *bus)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->gpus[i].bus, bus))
			return &s->gpus[i];
	return NULL;
}
