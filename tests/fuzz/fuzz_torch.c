/* Any bytes as the dumps of PyTorch's flight recorder of two ranks: they are refused, or they make
 * dumps that muster reads and diagnoses. */
#include "agent/tools/torch_dump.h"
#include "agent/tools/torch_read.h"
#include "libcomm/flight/diagnose.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int add(struct trace *t, const struct torch_world *w, const json_t *dump, int rank,
	       struct err *e)
{
	json_t *ours = tool_torch_convert(w, dump, rank, 1, e);
	int rc = ours ? comm_trace_add_json(t, ours, "it", e) : -1;
	json_decref(ours);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct torch_world w = { 0 };
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	json_t *dump = NULL;
	int rc = tool_torch_read(data, size, "it", &dump, &e);
	if (rc && (!*e.text || strchr(e.text, '\n')))
		abort();
	for (int r = 0; !rc && r < 2; r++)
		rc = tool_torch_look(&w, dump, r, &e);
	for (int r = 0; !rc && r < 2; r++)
		rc = add(&t, &w, dump, r, &e);
	if (!rc && !comm_diagnose(&t, &d, &e))
		comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
	tool_torch_world_fini(&w);
	json_decref(dump);
	return 0;
}
