/* Any bytes as a rank's recorded steps: they are refused or drawn, and the drawing is JSON. */
#include "agent/tools/step_clocks.h"
#include "agent/tools/trace_events.h"

#include <jansson.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void draw(const struct step_file *f, const struct step_clocks *clocks)
{
	struct buf b = BUF_INIT;
	int64_t n = 0;
	buf_puts(&b, "[");
	tool_trace_events(&b, f, &(struct trace_steps){ 1, INT64_MAX },
			  tool_step_clocks_offset(clocks, f), tool_step_clocks_origin(clocks), &n);
	buf_puts(&b, "]");
	json_t *list = json_loads(buf_str(&b), 0, NULL);
	if (!list || (int64_t)json_array_size(list) != n)
		abort();
	json_decref(list);
	buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step_file f;
	struct step_clocks *clocks = NULL;
	struct err e = ERR_INIT;
	if (tool_step_file_parse((const char *)data, size, "it", &f, &e))
		return 0;
	if (!tool_step_clocks_add(&clocks, &f, &e))
		draw(&f, clocks);
	tool_step_clocks_free(clocks);
	tool_step_file_free(&f);
	return 0;
}
