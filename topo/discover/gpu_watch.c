#include "topo/discover/gpu_watch.h"

#include "topo/discover/nvml_api.h"
#include "topo/discover/internal.h"

#include <stdlib.h>
#include <string.h>

struct gpu_watch {
	struct nvml_api api;
	unsigned index;
	nvml_device_t device;
	nvml_events_t events; /* NULL: the driver has none */
	int xids;
	unsigned last_xid;
};

/* Errors of the program, not of the GPU. */
static bool blames_program(unsigned long long xid)
{
	static const unsigned char list[] = { 13, 31, 43, 45, 68, 69 };
	for (size_t i = 0; i < sizeof list; i++)
		if (list[i] == xid)
			return true;
	return false;
}

static bool find_device(struct gpu_watch *w, const char *bus)
{
	unsigned n = 0;
	char at[16];
	if (w->api.count(&n) != NVML_OK)
		return false;
	for (unsigned i = 0; i < n && i < NVML_GPUS_MAX; i++) {
		struct nvml_pci pci = { .domain = 0 };
		if (w->api.handle(i, &w->device) != NVML_OK ||
		    w->api.pci(w->device, &pci) != NVML_OK)
			continue;
		topo_nvml_bus(&pci, at);
		w->index = i;
		if (!strcmp(at, bus))
			return true;
	}
	return false;
}

static void register_events(struct gpu_watch *w)
{
	const struct nvml_api *a = &w->api;
	if (!a->events_create || !a->events_register || !a->events_wait || !a->events_free ||
	    a->events_create(&w->events) != NVML_OK) {
		w->events = NULL;
		return;
	}
	if (a->events_register(w->device, NVML_EVENT_XID, w->events) == NVML_OK)
		return;
	a->events_free(w->events);
	w->events = NULL;
}

int topo_gpu_watch_open(const char *library, const char *bus, struct gpu_watch **out, struct err *e)
{
	struct gpu_watch *w = calloc(1, sizeof *w);
	*out = NULL;
	if (!w)
		return err_set(e, ERR_NOMEM, "GPU %s: no memory to watch it", bus);
	if (topo_nvml_open(library, &w->api, e)) {
		free(w);
		return -1;
	}
	if (!find_device(w, bus)) {
		topo_nvml_close(&w->api);
		free(w);
		return err_set(e, ERR_NOTFOUND, "GPU %s: the driver does not have it", bus);
	}
	register_events(w);
	*out = w;
	return 0;
}

void topo_gpu_watch_close(struct gpu_watch *w)
{
	if (!w)
		return;
	if (w->events)
		w->api.events_free(w->events);
	topo_nvml_close(&w->api);
	free(w);
}

int topo_gpu_watch_clock(const struct gpu_watch *w)
{
	unsigned mhz = 0;
	return w->api.clock && w->api.clock(w->device, NVML_SM_CLOCK, &mhz) == NVML_OK &&
			       mhz < 100000
		       ? (int)mhz
		       : -1;
}

int topo_gpu_watch_slow(const struct gpu_watch *w)
{
	struct gpu_state g = { .slow = 0 };
	topo_gpu_read_slow(&w->api, w->device, &g);
	return g.slow_told ? (int)g.slow : -1;
}

void topo_gpu_watch_read(const struct gpu_watch *w, struct gpu_state *out)
{
	nvml_device_t device;
	*out = (struct gpu_state){ .index = 0 };
	topo_gpu_read_state(&w->api, w->index, &device, out);
}

int topo_gpu_watch_xids(struct gpu_watch *w, unsigned *last)
{
	enum { MOST = 256 }; /* in one call */
	struct nvml_event event;
	if (!w->events)
		return -1;
	for (int i = 0; i < MOST; i++) {
		memset(&event, 0, sizeof event);
		if (w->api.events_wait(w->events, &event, 0) != NVML_OK)
			break;
		if (event.type != NVML_EVENT_XID || blames_program(event.data))
			continue;
		w->xids++;
		w->last_xid = (unsigned)event.data;
	}
	*last = w->last_xid;
	return w->xids;
}
